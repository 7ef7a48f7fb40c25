#include "harness/lib/checkpoint/sampler_position.h"

#include <algorithm>

#include "harness/base/hex.h"

namespace lockstep::checkpoint {
namespace {

template <class Value>
Value value_in(const State& state, std::string_view kind, const char* name, std::string& problem) {
  const Section* const section = state.find(kind);
  if (section != nullptr && section->values.contains(name)) {
    const nlohmann::json& value = section->values[name];
    if constexpr (std::is_same_v<Value, std::string>) {
      if (value.is_string()) return value.get<Value>();
    } else {
      if (value.is_number_integer()) return value.get<Value>();
    }
  }
  if (problem.empty()) problem = words_of(kind) + ": " + name + ": missing";
  return {};
}

}  // namespace

std::string permutation_hash(const std::vector<int64_t>& ids) {
  return long_hash_in_hex({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int64_t)});
}

std::vector<int64_t> next_places(const SamplerPosition& position, int rank, int world_size,
                                 int64_t rows_per_rank) {
  std::vector<int64_t> places;
  for (int64_t row = 0; row < rows_per_rank; ++row) {
    const int64_t place = position.cursor + row * world_size + rank;
    if (place >= position.samples) break;
    places.push_back(place);
  }
  return places;
}

SamplerPosition advanced(SamplerPosition position, int world_size, int64_t rows_per_rank) {
  position.cursor = std::min(position.cursor + world_size * rows_per_rank, position.samples);
  if (position.cursor < position.samples) return position;
  position.cursor = 0;
  ++position.epoch;
  position.permutation_hash.clear();
  return position;
}

void put_position(State& state, const SamplerPosition& position) {
  state[kind::sampler_epoch].values["epoch"] = position.epoch;
  state[kind::sampler_permutation].values = {
      {"samples", position.samples}, {"seed", position.seed}, {"hash", position.permutation_hash}};
  state[kind::sampler_cursor].values["sample"] = position.cursor;
}

SamplerPosition position_in(const State& state, std::string& problem) {
  problem.clear();
  return {value_in<int64_t>(state, kind::sampler_epoch, "epoch", problem),
          value_in<int64_t>(state, kind::sampler_permutation, "samples", problem),
          value_in<int64_t>(state, kind::sampler_permutation, "seed", problem),
          value_in<std::string>(state, kind::sampler_permutation, "hash", problem),
          value_in<int64_t>(state, kind::sampler_cursor, "sample", problem)};
}

}  // namespace lockstep::checkpoint
