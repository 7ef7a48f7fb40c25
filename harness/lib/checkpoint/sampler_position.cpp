#include "harness/lib/checkpoint/sampler_position.h"

#include "harness/base/hex.h"

namespace lockstep::checkpoint {

std::string permutation_hash(const std::vector<int64_t>& ids) {
  return long_hash_in_hex({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int64_t)});
}

void put_position(State& state, const SamplerPosition& position) {
  state[kind::sampler_epoch].values["epoch"] = position.epoch;
  state[kind::sampler_permutation].values = {
      {"samples", position.samples}, {"seed", position.seed}, {"hash", position.permutation_hash}};
  state[kind::sampler_cursor].values["sample"] = position.cursor;
}

}  // namespace lockstep::checkpoint
