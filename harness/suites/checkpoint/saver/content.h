#pragma once
// States that tell which save they are of, in every kind and on every rank.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "harness/lib/checkpoint/loader.h"
#include "harness/lib/checkpoint/state.h"

namespace lockstep::saver {

/// What one save saved. Two tries to save one step differ in their `writer`.
struct Content {
  int64_t step = 0;
  int writer = 0;
  int64_t floats = 24;  ///< of each moment; all ranks together
  bool few_kinds = false;  ///< most of the bytes are the tensors'
  auto operator<=>(const Content&) const = default;
};
/// "step 11", "step 11 of writer 2".
std::string in_words(const Content& content);

/// Every kind that there is, replicated, sharded and of each rank.
checkpoint::State state_of(const Content& content, int rank, int ranks);

/// States by content, rank and number of ranks, each made once. For all threads.
class Contents {
 public:
  std::shared_ptr<const checkpoint::State> state(const Content& content, int rank, int ranks);
  /// What a rank gets that loads on another number of ranks: all but what each rank had for itself.
  std::shared_ptr<const checkpoint::State> shared(const Content& content, int rank, int ranks);

 private:
  using Key = std::tuple<Content, int, int, bool>;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const checkpoint::State>> states_;
};

/// Where what a rank loaded is not this content; empty: nowhere. `saved_by`: ranks that had saved it.
std::string difference(Contents& contents, const Content& content, int saved_by, const checkpoint::LoadOutcome& loaded,
                       int rank, int ranks);

/// Is every kind that the rank loaded that of one of these, and not all of the same?
bool is_mixture(Contents& contents, const std::vector<Content>& known, const checkpoint::LoadOutcome& loaded, int rank,
                int ranks);

}  // namespace lockstep::saver
