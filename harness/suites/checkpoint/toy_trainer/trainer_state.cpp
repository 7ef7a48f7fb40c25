#include <algorithm>
#include <cstring>
#include <limits>

#include "harness/base/errors.h"
#include "harness/base/hashing.h"
#include "harness/base/hex.h"
#include "harness/suites/checkpoint/toy_trainer/trainer.h"

namespace lockstep::toy {

namespace kind = checkpoint::kind;
using checkpoint::Placement;
using checkpoint::Section;
using checkpoint::Slice;
using checkpoint::State;
using checkpoint::Tensor;
using Json = nlohmann::json;

namespace {

constexpr const char *kDropoutStream = "stream/dropout", *kNoiseStream = "stream/noise",
                     *kJitterStream = "stream/jitter";

/// A number with all its bits, legible.
Json number(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return {{"value", value}, {"bits", hex16(bits)}};
}

double number_in(const Json& json) {
  const uint64_t bits = from_hex16(json.at("bits").get<std::string>()).value_or(0);
  double value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class Values>
Tensor tensor(const std::string& name, const char* dtype, const Values& values) {
  Tensor made;
  made.name = name;
  made.dtype = dtype;
  made.shape = {static_cast<int64_t>(values.size())};
  return checkpoint::owning(std::move(made), std::as_bytes(std::span(values)));
}

template <class Values>
void take(const Tensor& from, Values& into) {
  LOCKSTEP_CHECK(from.bytes.size() == into.size() * sizeof(into[0]), "a loaded tensor has the form that was expected");
  if (!from.bytes.empty()) std::memcpy(into.data(), from.bytes.data(), from.bytes.size());
}

const Tensor& tensor_in(const Section& section, std::string_view name) {
  const auto found = std::ranges::find(section.tensors, name, &Tensor::name);
  LOCKSTEP_CHECK(found != section.tensors.end(), "a loaded section has the tensors that were expected");
  return *found;
}

Section parameters_section(const TrainerState& now, const Config& config, int rank, int ranks) {
  Section section;
  for (const Block& block : blocks()) {
    Tensor part;
    part.name = block.name;
    part.shape = block.shape;
    Slice held{0, block.elements};
    if (config.shard_parameters) {
      part.placement = Placement::sharded;
      held = part.slice = checkpoint::even_slice(block.elements, rank, ranks);
    }
    const auto bytes = std::as_bytes(std::span(now.parameters)
                                         .subspan(static_cast<std::size_t>(block.begin + held.begin),
                                                  static_cast<std::size_t>(held.end - held.begin)));
    section.tensors.push_back(checkpoint::owning(std::move(part), bytes));
  }
  return section;
}

Tensor moment(const std::string& name, const std::vector<float>& values, int rank, int ranks) {
  Tensor part = tensor(name, "F32", values);
  part.shape = {kParameters};
  part.placement = Placement::sharded;
  part.slice = checkpoint::even_slice(kParameters, rank, ranks);
  return part;
}

void put_accumulation(const TrainerState& now, Section& section) {
  section.values["micro_batches"] = now.micro;
  section.rank_values = {{"rows", now.accumulated_rows}, {"overflow", now.accumulated_overflow}};
  Tensor gradient = tensor("gradient", "I64", now.accumulated);
  gradient.placement = Placement::per_rank;
  section.tensors.push_back(std::move(gradient));
}

/// What ranks had accumulated, each for itself: `mine` of one rank is added.
void add_accumulated(const Section& mine, TrainerState& now) {
  std::vector<int64_t> gradient(kParameters);
  take(tensor_in(mine, "gradient"), gradient);
  for (std::size_t at = 0; at < gradient.size(); ++at) now.accumulated[at] += gradient[at];
  now.accumulated_rows += mine.rank_values.at("rows").get<int64_t>();
  now.accumulated_overflow |= mine.rank_values.at("overflow").get<bool>();
}

uint64_t word_in(const Json& values) { return from_hex16(values.at("word").get<std::string>()).value_or(1); }

/// Where a planted mistake of the sampler puts the cursor.
void plant_cursor(const Config& config, int rank, int ranks, const checkpoint::LoadOutcome& loaded, TrainerState& now) {
  if (config.planted.cursor_in_batches) now.sampler.cursor *= config.rows_of_step(ranks);
  if (config.planted.cursor_of_rank) {
    const bool same = loaded.of_ranks.empty();
    const State& theirs =
        same ? loaded.state : loaded.of_ranks[static_cast<std::size_t>(rank) % loaded.of_ranks.size()];
    now.sampler.cursor = theirs.find(kind::sampler_cursor)->rank_values.at("rows").get<int64_t>() * ranks;
  }
  now.sampler.cursor = std::min(now.sampler.cursor, now.sampler.samples - 1);
}

}  // namespace

State to_checkpoint(const TrainerState& now, const Config& config, int rank, int ranks) {
  State state;
  state[kind::parameters] = parameters_section(now, config, rank, ranks);
  state[kind::moments].tensors = {moment("first_moment", now.first, rank, ranks),
                                  moment("second_moment", now.second, rank, ranks)};
  state[kind::optimizer_step].values["update"] = now.updates;
  state[kind::scheduler].values = {{"position", now.scheduler.position},
                                   {"best", number(now.scheduler.best)},
                                   {"worse", now.scheduler.worse},
                                   {"lowered", number(now.scheduler.lowered)}};
  put_accumulation(now, state[kind::accumulation]);
  checkpoint::SamplerPosition position = now.sampler;
  if (config.planted.cursor_in_batches) position.cursor /= config.rows_of_step(ranks);
  checkpoint::put_position(state, position);
  if (config.planted.cursor_of_rank) {
    state[kind::sampler_cursor].rank_values["rows"] = (position.cursor + ranks - 1 - rank) / ranks;
  }
  state[kDropoutStream].values["counter"] = now.dropout;
  state[kNoiseStream].values["word"] = hex16(now.noise.word);
  if (config.jitter) state[kJitterStream].rank_values["word"] = hex16(now.jitter.word);
  state[kind::best_metric].values["best"] = number(now.patience.best);
  state[kind::patience].values["left"] = now.patience.left;
  state[kind::loss_scale].values = {{"scale", number(now.loss_scale.scale)}, {"good", now.loss_scale.good}};
  state[kind::averaged_weights].tensors = {tensor("averaged", "F32", now.averaged)};
  state[kind::normalisers].tensors = {tensor("mean", "F64", now.normaliser.mean),
                                      tensor("variance", "F64", now.normaliser.variance)};
  state[kind::control_values].values = {{"rate", number(now.controls.rate)}, {"decay", number(now.controls.decay)}};
  state[kind::cached_controls].values["base_rate"] = number(now.cached_base_rate);
  for (const std::string& left_out : config.planted.left_out) state.sections.erase(left_out);
  return state;
}

State Trainer::whole_state() const {
  Config whole = config_;
  whole.shard_parameters = false;
  whole.planted = {};
  return to_checkpoint(now_, whole, rank_, ranks_);
}

State Trainer::expected() const {
  State state = whole_state();
  for (const std::string& left_out : config_.planted.left_out) state.sections.erase(left_out);
  if (!config_.planted.shard_off_by_one) return state;
  for (Tensor& each : state[kind::moments].tensors) {
    each.slice.begin = std::min<int64_t>(each.slice.begin + 1, kParameters);
    each.slice.end = std::min<int64_t>(each.slice.end + 1, kParameters);
  }
  return state;
}

void from_checkpoint(const checkpoint::LoadOutcome& loaded, const Config& config, int rank, int ranks,
                     TrainerState& now) {
  const State& state = loaded.state;
  const auto with = [&](std::string_view name, const auto& use) {
    if (const Section* const section = state.find(name)) use(*section);
  };
  const auto number_of = [](const Section& section, const char* name) { return number_in(section.values.at(name)); };
  with(kind::parameters, [&](const Section& section) {
    for (const Block& block : blocks()) {
      std::span<float> whole(now.parameters);
      std::span<float> part =
          whole.subspan(static_cast<std::size_t>(block.begin), static_cast<std::size_t>(block.elements));
      take(tensor_in(section, block.name), part);
    }
  });
  with(kind::moments, [&](const Section& section) {
    for (const auto& [name, values] :
         {std::pair{"first_moment", &now.first}, std::pair{"second_moment", &now.second}}) {
      const Tensor& part = tensor_in(section, name);
      // A slice that a planted mistake has shifted may be shorter than this rank's.
      std::memcpy(values->data(), part.bytes.data(), std::min(part.bytes.size(), values->size() * sizeof(float)));
    }
  });
  with(kind::optimizer_step, [&](const Section& section) { now.updates = section.values.at("update"); });
  with(kind::scheduler, [&](const Section& section) {
    now.scheduler = {section.values.at("position"), number_of(section, "best"), section.values.at("worse"),
                     number_of(section, "lowered")};
  });
  with(kind::accumulation, [&](const Section& section) {
    now.micro = section.values.at("micro_batches");
    if (loaded.of_ranks.empty()) add_accumulated(section, now);
    for (const State& theirs : loaded.of_ranks) {
      if (rank == 0) add_accumulated(*theirs.find(kind::accumulation), now);
    }
  });
  with(kind::sampler_epoch, [&](const Section& section) { now.sampler.epoch = section.values.at("epoch"); });
  with(kind::sampler_permutation, [&](const Section& section) {
    now.sampler.samples = section.values.at("samples");
    now.sampler.seed = section.values.at("seed");
  });
  with(kind::sampler_cursor, [&](const Section& section) {
    now.sampler.cursor = section.values.at("sample");
    plant_cursor(config, rank, ranks, loaded, now);
  });
  with(kDropoutStream, [&](const Section& section) { now.dropout = section.values.at("counter"); });
  with(kNoiseStream, [&](const Section& section) { now.noise.word = word_in(section.values); });
  with(kJitterStream, [&](const Section& section) {
    const auto savers = loaded.of_ranks.size(), at = static_cast<std::size_t>(rank);
    if (savers == 0) {
      now.jitter.word = word_in(section.rank_values);
      return;
    }
    const uint64_t word = word_in(loaded.of_ranks[at % savers].find(kJitterStream)->rank_values);
    now.jitter.word = at < savers ? word : keyed(word, at / savers) | 1;
  });
  with(kind::best_metric, [&](const Section& section) { now.patience.best = number_of(section, "best"); });
  with(kind::patience, [&](const Section& section) { now.patience.left = section.values.at("left"); });
  with(kind::loss_scale,
       [&](const Section& section) { now.loss_scale = {number_of(section, "scale"), section.values.at("good")}; });
  with(kind::averaged_weights, [&](const Section& section) { take(tensor_in(section, "averaged"), now.averaged); });
  with(kind::normalisers, [&](const Section& section) {
    take(tensor_in(section, "mean"), now.normaliser.mean);
    take(tensor_in(section, "variance"), now.normaliser.variance);
  });
  with(kind::control_values,
       [&](const Section& section) { now.controls = {number_of(section, "rate"), number_of(section, "decay")}; });
  with(kind::cached_controls, [&](const Section& section) { now.cached_base_rate = number_of(section, "base_rate"); });
}

}  // namespace lockstep::toy
