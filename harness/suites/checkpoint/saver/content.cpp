#include "harness/suites/checkpoint/saver/content.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/lib/checkpoint/state.h"

namespace lockstep::saver {
namespace {

using checkpoint::even_slice;
using checkpoint::LoadOutcome;
using checkpoint::Placement;
using checkpoint::Section;
using checkpoint::Slice;
using checkpoint::State;
using checkpoint::Tensor;
namespace kind = checkpoint::kind;

Tensor floats(const std::string& name, int64_t count, double first, Placement placement = Placement::replicated,
              Slice slice = {}) {
  Tensor tensor;
  tensor.name = name;
  tensor.shape = {count};
  tensor.placement = placement;
  tensor.slice = slice;
  const Slice held = tensor.held();
  std::vector<float> values(static_cast<std::size_t>(held.end - held.begin));
  std::iota(values.begin(), values.end(), static_cast<float>(first) + static_cast<float>(held.begin));
  return checkpoint::owning(std::move(tensor), std::as_bytes(std::span(values)));
}

/// All but what each rank had for itself.
State shared_part(State state) {
  for (auto& [name, section] : state.sections) {
    section.rank_values = nlohmann::json::object();
    std::erase_if(section.tensors, [](const Tensor& tensor) { return tensor.placement == Placement::per_rank; });
  }
  return state;
}

/// What one rank had for itself.
State own_part(State state) {
  for (auto& [name, section] : state.sections) {
    section.values = nlohmann::json::object();
    std::erase_if(section.tensors, [](const Tensor& tensor) { return tensor.placement != Placement::per_rank; });
  }
  return state;
}

std::string first_difference(const State& expected, const State& seen) {
  const std::vector<std::string> differences = checkpoint::state_differences(expected, seen);
  return differences.empty() ? "" : differences.front();
}

}  // namespace

std::string in_words(const Content& content) {
  return content.writer == 0 ? fmt::format("step {}", content.step)
                             : fmt::format("step {} of writer {}", content.step, content.writer);
}

State state_of(const Content& content, int rank, int ranks) {
  State state;
  const double base = static_cast<double>(1000 * content.step + 200 * content.writer);
  const int64_t tag = 100 * content.step + content.writer;
  state[kind::parameters].tensors = {floats("w", 12, base), floats("bias", 3, base + 20)};
  for (const char* name : {"first_moment/w", "second_moment/w"}) {
    state[kind::moments].tensors.push_back(
        floats(name, content.floats, base + 40, Placement::sharded, even_slice(content.floats, rank, ranks)));
  }
  state[kind::optimizer_step].values["updates"] = tag;
  state["stream/dropout"].rank_values["words"] = {tag, rank};
  if (content.few_kinds) return state;
  state[kind::scheduler].values["rate"] = static_cast<double>(tag) / 1024;
  state[kind::accumulation].values["micro_batches"] = tag;
  state[kind::accumulation].tensors = {floats("gradient/w", 2, base + 100 + rank, Placement::per_rank)};
  checkpoint::put_position(state, {.epoch = content.step / 10,
                                   .samples = 97,
                                   .seed = tag,
                                   .permutation_hash = std::to_string(tag),
                                   .cursor = tag % 97});
  state["stream/noise"].values["counter"] = tag;
  state[kind::best_metric].values["recall"] = tag;
  state[kind::patience].values["checks_left"] = tag;
  state[kind::loss_scale].values["scale"] = tag;
  state[kind::averaged_weights].tensors = {floats("w", 12, base + 60)};
  state[kind::normalisers].values["mean"] = tag;
  state[kind::control_values].values["rate"] = tag;
  state[kind::cached_controls].values["rate"] = tag;
  return state;
}

std::shared_ptr<const State> Contents::state(const Content& content, int rank, int ranks) {
  const std::lock_guard lock(mutex_);
  auto& state = states_[{content, rank, ranks, false}];
  if (!state) state = std::make_shared<const State>(state_of(content, rank, ranks));
  return state;
}

std::shared_ptr<const State> Contents::shared(const Content& content, int rank, int ranks) {
  const std::lock_guard lock(mutex_);
  auto& state = states_[{content, rank, ranks, true}];
  if (!state) state = std::make_shared<const State>(shared_part(state_of(content, rank, ranks)));
  return state;
}

std::string difference(Contents& contents, const Content& content, int saved_by, const LoadOutcome& loaded, int rank,
                       int ranks) {
  if (saved_by == ranks) return first_difference(*contents.state(content, rank, ranks), loaded.state);
  std::string found = first_difference(*contents.shared(content, rank, ranks), loaded.state);
  if (!found.empty()) return found;
  if (loaded.of_ranks.size() != static_cast<std::size_t>(saved_by))
    return fmt::format("parts of {} ranks expected, found {}", saved_by, loaded.of_ranks.size());
  for (int old = 0; old < saved_by; ++old) {
    State seen = loaded.of_ranks[static_cast<std::size_t>(old)], expected = own_part(*contents.state(content, old, saved_by));
    for (auto& [name, section] : seen.sections) expected.sections.try_emplace(name);
    found = first_difference(expected, seen);
    if (!found.empty()) return fmt::format("what rank {} had: {}", old, found);
  }
  return "";
}

bool is_mixture(Contents& contents, const std::vector<Content>& known, const LoadOutcome& loaded, int rank, int ranks) {
  std::vector<bool> used(known.size());
  for (const auto& [name, section] : loaded.state.sections) {
    bool found = false;
    for (std::size_t i = 0; i < known.size() && !found; ++i) {
      const auto expected = loaded.of_ranks.empty() ? contents.state(known[i], rank, ranks)
                                                    : contents.shared(known[i], rank, ranks);
      const Section* theirs = expected->find(name);
      State one, other;
      one.sections[name] = theirs == nullptr ? Section{} : *theirs;
      other.sections[name] = section;
      found = theirs != nullptr && checkpoint::state_differences(one, other).empty();
      if (found) used[i] = true;
    }
    if (!found) return false;
  }
  return std::ranges::count(used, true) > 1;
}

}  // namespace lockstep::saver
