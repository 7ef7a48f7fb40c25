#pragma once
// All-reduces that `lockstep doctor` asks of ranks (run.json's section `all_reduce`), and what each rank answers. Free of LibTorch.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep {

class Comm;

namespace all_reduce {

/// All-reduces of one size.
struct Ask {
  int64_t bytes = 0;  ///< of float32 elements
  int64_t calls = 1;  ///< that are timed
};

struct Answer {
  double seconds = 0;        ///< of one call: the mean of the timed ones
  int64_t wrong = 0;         ///< elements that are not the sum, in a call before the timed ones and in one after them
  int64_t first_wrong = -1;  ///< the first of them
  std::string got = {};      ///< there; it may be no number
  double expected = 0;
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Ask, bytes, calls)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Answer, seconds, wrong, first_wrong, got, expected)

/// To be called on all ranks. `spoil`: planted, the element that is changed before the sums are checked; -1: none is.
Answer answer_to(const Ask& ask, Comm& comm, int64_t spoil = -1);

inline std::string answer_file(const std::string& run_dir, int rank) {
  return run_dir + "/rank-" + std::to_string(rank) + ".all_reduce.json";
}

}  // namespace all_reduce
}  // namespace lockstep
