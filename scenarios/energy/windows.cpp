#include "scenarios/energy/windows.h"

#include "harness/base/hashing.h"

namespace lockstep {
namespace {

constexpr uint64_t kContextLengthKey = 0x636f6e74657874;  // "context"

}  // namespace

int keyed_context_length(const PairConfig& config, WindowPart part, int64_t pair) {
  const auto choices = static_cast<uint64_t>(config.context_steps - config.min_context + 1);
  return config.min_context + static_cast<int>(keyed(kContextLengthKey, part, pair) % choices);
}

}  // namespace lockstep
