#include "harness/lib/checkpoint/assembly.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/base/hex.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::json;

/// The tensors in order of their names, whatever order the trainer gave.
std::vector<const Tensor*> sorted(const Section& section) {
  std::vector<const Tensor*> tensors;
  for (const Tensor& tensor : section.tensors) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(),
            [](const Tensor* a, const Tensor* b) { return a->name < b->name; });
  return tensors;
}

Json form_of(const Section& section) {
  Json tensors = Json::array();
  for (const Tensor* tensor : sorted(section)) {
    Json form = {tensor->name, tensor->dtype, name_of(tensor->placement)};
    if (tensor->placement != Placement::per_rank) form.push_back(tensor->shape);
    tensors.push_back(std::move(form));
  }
  return {std::move(tensors), section.values};
}

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// Ranks hold ranges in the order of ranks, without a gap.
std::vector<Slice> slices_of(const Tensor& tensor, const std::string& where,
                             const std::vector<const Json*>& theirs, std::string& problem) {
  std::vector<Slice> slices;
  int64_t at = 0;
  for (std::size_t rank = 0; rank < theirs.size(); ++rank) {
    const Slice slice = {(*theirs[rank])[0].get<int64_t>(), (*theirs[rank])[1].get<int64_t>()};
    if (slice.begin != at && problem.empty()) {
      problem =
          slice.begin > at
              ? fmt::format("{}: elements {} to {} are held by no rank", where, at, slice.begin)
              : fmt::format("{}: rank {} holds elements from {} on, which an earlier rank holds up to {}",
                            where, rank, slice.begin, at);
    }
    at = slice.end;
    slices.push_back(slice);
  }
  if (at != tensor.elements() && problem.empty()) {
    problem = fmt::format("{}: elements {} to {} are held by no rank", where, at, tensor.elements());
  }
  return slices;
}

}  // namespace

Json forms_of(const State& state) {
  Json forms = Json::object();
  for (const auto& [kind, section] : state.sections) forms[kind] = long_hash_in_hex(dumped(form_of(section)));
  return forms;
}

std::string forms_problem(const Json& first, const Json& other, int rank) {
  for (const auto& [kind, form] : first.items()) {
    if (!other.contains(kind)) return fmt::format("{}: rank 0 has it, rank {} has not", words_of(kind), rank);
    if (other[kind] != form) {
      return fmt::format("{}: rank {} holds other tensors or values than rank 0", words_of(kind), rank);
    }
  }
  for (const auto& [kind, form] : other.items()) {
    if (!first.contains(kind)) return fmt::format("{}: rank {} has it, rank 0 has not", words_of(kind), rank);
  }
  return "";
}

Json contribution_of(const State& state) {
  Json kinds = Json::object();
  for (const auto& [kind, section] : state.sections) {
    Json own = {{"values", section.rank_values}, {"held", Json::object()}};
    for (const Tensor& tensor : section.tensors) {
      if (tensor.placement == Placement::sharded)
        own["held"][tensor.name] = {tensor.slice.begin, tensor.slice.end};
      if (tensor.placement == Placement::per_rank) own["held"][tensor.name] = tensor.shape;
    }
    kinds[kind] = std::move(own);
  }
  return kinds;
}

std::map<std::string, KindEntry> assemble(const State& state, const std::vector<Json>& contributions,
                                          std::string& problem) {
  problem.clear();
  std::map<std::string, KindEntry> kinds;
  for (const auto& [kind, section] : state.sections) {
    KindEntry& entry = kinds[kind];
    entry.values = section.values;
    for (const Json& contribution : contributions)
      entry.rank_values.push_back(contribution.at(kind).at("values"));
    for (const Tensor* tensor : sorted(section)) {
      TensorEntry& form = entry.tensors.emplace_back();
      form.name = tensor->name;
      form.dtype = tensor->dtype;
      form.placement = tensor->placement;
      std::vector<const Json*> theirs;
      if (tensor->placement != Placement::replicated) {
        for (const Json& contribution : contributions) {
          theirs.push_back(&contribution.at(kind).at("held").at(tensor->name));
        }
      }
      if (tensor->placement == Placement::per_rank) {
        for (const Json* shape : theirs) form.shapes.push_back(shape->get<std::vector<int64_t>>());
        continue;
      }
      form.shape = tensor->shape;
      if (tensor->placement != Placement::sharded) continue;
      form.slices = slices_of(*tensor, words_of(kind) + ": " + tensor->name, theirs, problem);
    }
  }
  return kinds;
}

}  // namespace lockstep::checkpoint
