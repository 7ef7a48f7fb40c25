#include "harness/trainers/comm/ring_order.h"

#include <algorithm>
#include <cstdint>

namespace lockstep {
namespace {

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

template <typename T>
void ring_sum(const std::vector<const T*>& inputs, std::size_t elements, T* output) {
  constexpr std::size_t kLargestSegment = 1024 * 1024;
  const std::size_t ranks = inputs.size();
  const std::size_t bytes = elements * sizeof(T);
  const std::size_t segments =
      round_up(std::max((bytes + kLargestSegment - 1) / kLargestSegment, 2 * ranks), ranks);
  const std::size_t segment_bytes = round_up((bytes + segments - 1) / segments, sizeof(T));
  const std::size_t chunk_elements = segments / ranks * segment_bytes / sizeof(T);
  for (std::size_t chunk = 0; chunk < ranks; ++chunk) {
    const std::size_t begin = std::min(elements, chunk * chunk_elements);
    const std::size_t end = std::min(elements, begin + chunk_elements);
    const T* last = inputs[(chunk + ranks - 1) % ranks];
    std::copy(last + begin, last + end, output + begin);
    for (std::size_t back = 2; back <= ranks; ++back) {
      const T* next = inputs[(chunk + ranks - back) % ranks];
      for (std::size_t i = begin; i < end; ++i) {
        output[i] = next[i] + output[i];
      }
    }
  }
}

template void ring_sum(const std::vector<const float*>&, std::size_t, float*);
template void ring_sum(const std::vector<const double*>&, std::size_t, double*);
template void ring_sum(const std::vector<const int64_t*>&, std::size_t, int64_t*);
template void ring_sum(const std::vector<const int32_t*>&, std::size_t, int32_t*);

}  // namespace lockstep
