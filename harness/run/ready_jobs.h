#pragma once
// The jobs that could start now, by how many slots they take.

#include <cstddef>
#include <functional>
#include <optional>
#include <queue>
#include <vector>

namespace lockstep {

/// One heap for each width: the first ready job that fits is found by a look at the top of each heap.
class ReadyJobs {
 public:
  /// `place[job]`: where the job stands in the order.
  ReadyJobs(std::vector<std::size_t> order, std::vector<std::size_t> place, int slots)
      : order_(std::move(order)), place_(std::move(place)), by_slots_(static_cast<std::size_t>(slots) + 1) {}

  void add(std::size_t job, int slots) { by_slots_[static_cast<std::size_t>(slots)].push(place_[job]); }

  /// The first in the order that takes at most `free_slots`; it is then no longer among them.
  std::optional<std::size_t> take(int free_slots) {
    Places* best = nullptr;
    for (std::size_t slots = 1; slots <= static_cast<std::size_t>(free_slots); ++slots) {
      Places& places = by_slots_[slots];
      if (!places.empty() && (best == nullptr || places.top() < best->top())) best = &places;
    }
    if (best == nullptr) return std::nullopt;
    const std::size_t job = order_[best->top()];
    best->pop();
    return job;
  }

 private:
  using Places = std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>>;
  std::vector<std::size_t> order_, place_;
  std::vector<Places> by_slots_;
};

}  // namespace lockstep
