#pragma once
// What the suite of collectives asks of its ranks (run.json's section `collectives`), and what each rank answers.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::collectives {

/// One collective at one size.
struct Ask {
  std::string collective;  ///< of collective_names()
  int64_t count = 0;       ///< float32 elements: of the larger of what a rank brings and what it gets
  int64_t calls = 1;       ///< that are timed
  bool as_pytorch = false; ///< over a group whose threads are as PyTorch makes them
};

struct Order {
  int world = 2;
  std::vector<Ask> asks;
  int wrong_rank = -1;        ///< planted: what this rank got of the first ask is changed at `wrong_element`; -1: nothing
  int64_t wrong_element = 0;
};

struct Answer {
  double seconds = 0;         ///< of one call, in the mean over the timed ones
  int64_t wrong = 0;          ///< elements that are not what they should be, before and after the timed calls
  int64_t first_wrong = -1;   ///< the first of them
  double got = 0, expected = 0;  ///< there
  std::string error = {};     ///< the backend refused the call
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Ask, collective, count, calls, as_pytorch)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Order, world, asks, wrong_rank, wrong_element)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Answer, seconds, wrong, first_wrong, got, expected, error)

}  // namespace lockstep::collectives
