#include "harness/lib/checkpoint/state.h"

#include <algorithm>
#include <array>

#include "harness/base/errors.h"

namespace lockstep::checkpoint {
namespace {

struct Dtype {
  std::string_view name;
  std::size_t bytes;
};

constexpr std::array<Dtype, 13> kDtypes{{{"BOOL", 1},
                                         {"U8", 1},
                                         {"I8", 1},
                                         {"I16", 2},
                                         {"U16", 2},
                                         {"F16", 2},
                                         {"BF16", 2},
                                         {"I32", 4},
                                         {"U32", 4},
                                         {"F32", 4},
                                         {"F64", 8},
                                         {"I64", 8},
                                         {"U64", 8}}};

constexpr std::array<Kind, 16> kKinds{{{kind::parameters, "parameters"},
                                       {kind::moments, "moments"},
                                       {kind::optimizer_step, "optimizer step"},
                                       {kind::scheduler, "scheduler"},
                                       {kind::accumulation, "accumulation position"},
                                       {kind::sampler_epoch, "sampler epoch"},
                                       {kind::sampler_permutation, "sampler permutation"},
                                       {kind::sampler_cursor, "sampler cursor"},
                                       {kind::best_metric, "best metric"},
                                       {kind::patience, "early-stop patience"},
                                       {kind::loss_scale, "loss scale"},
                                       {kind::averaged_weights, "averaged weights"},
                                       {kind::normalisers, "running normalisers"},
                                       {kind::control_values, "control values"},
                                       {kind::cached_controls, "cached control values"},
                                       {kind::curves, "curves"}}};

constexpr std::array<std::string_view, 3> kPlacements{"replicated", "sharded", "per_rank"};

}  // namespace

std::optional<std::size_t> element_bytes(std::string_view dtype) {
  for (const Dtype& known : kDtypes) {
    if (known.name == dtype) return known.bytes;
  }
  return std::nullopt;
}

std::string_view name_of(Placement placement) { return kPlacements[static_cast<std::size_t>(placement)]; }

std::optional<Placement> placement_named(std::string_view name) {
  const auto at = std::find(kPlacements.begin(), kPlacements.end(), name);
  if (at == kPlacements.end()) return std::nullopt;
  return static_cast<Placement>(at - kPlacements.begin());
}

Slice even_slice(int64_t count, int part, int parts) {
  const int64_t whole = count / parts, rest = count % parts;
  const auto begin_of = [&](int64_t index) { return whole * index + rest * index / parts; };
  return {begin_of(part), begin_of(part + 1)};
}

int64_t Tensor::elements() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

Tensor owning(Tensor tensor, std::span<const std::byte> bytes) {
  auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  tensor.bytes = *copy;
  tensor.keeps = std::move(copy);
  return tensor;
}

std::span<const Kind> kinds() { return kKinds; }

std::string words_of(std::string_view kind_name) {
  if (kind_name.starts_with(kind::stream_prefix)) {
    return "random stream " + std::string(kind_name.substr(kind::stream_prefix.size()));
  }
  for (const Kind& known : kKinds) {
    if (known.name == kind_name) return std::string(known.words);
  }
  return std::string(kind_name);
}

Section& State::operator[](std::string_view kind_name) {
  const bool known =
      kind_name.starts_with(kind::stream_prefix) ||
      std::any_of(kKinds.begin(), kKinds.end(), [&](const Kind& kind) { return kind.name == kind_name; });
  LOCKSTEP_CHECK(known, "no kind of state is called " + std::string(kind_name));
  return sections[std::string(kind_name)];
}

const Section* State::find(std::string_view kind_name) const {
  const auto at = sections.find(kind_name);
  return at == sections.end() ? nullptr : &at->second;
}

State snapshot_of(const State& state) {
  State copy;
  for (const auto& [name, section] : state.sections) {
    Section& own = copy.sections[name];
    own.values = section.values;
    own.rank_values = section.rank_values;
    for (const Tensor& tensor : section.tensors) own.tensors.push_back(owning(tensor, tensor.bytes));
  }
  return copy;
}

}  // namespace lockstep::checkpoint
