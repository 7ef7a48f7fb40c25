#include "scenarios/energy/energy_step.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "harness/base/numbers.h"
#include "harness/trainers/core/task.h"

namespace lockstep {

/// Standard normals [rows, each] float32 by Box and Muller from each row's own stream, 2 * each draws a row.
static at::Tensor normal_rows(std::span<const uint64_t> keys, int64_t each) {
  const auto rows = static_cast<int64_t>(keys.size());
  const auto a_row = static_cast<std::size_t>(each);
  at::Tensor normals = at::empty({rows, each}, at::kFloat);
  float* out = normals.mutable_data_ptr<float>();
  std::vector<float> uniform(2 * a_row);
  for (const uint64_t key : keys) {
    fill_uniform(key, uniform);
    fill_normal({uniform.data(), a_row}, {uniform.data() + a_row, a_row}, {out, a_row});
    out += each;
  }
  return normals;
}

EnergyStep::EnergyStep(const RunConfig& config, const EnergyModel& model, const PairTensors& rows,
           const RandomStreams& streams, const StepInput& input, EnergyFault* fault)
    : config_(config),
      model_(config, model, input.exact && input.end_row - input.first_row == 1),
      rows_(rows),
      streams_(fault == nullptr ? streams : fault->streams(input.step, streams)),
      input_(input),
      fault_(fault),
      dropout_(fault == nullptr ? energy(config).dropout : fault->dropout(input.step, energy(config).dropout)) {
  if (dropout_ > 0) {
    dropout_keys_ = row_keys(Purpose::dropout);
    replay_keys_ = row_keys(Purpose::dropout);
  }
  if (fault_ != nullptr) {
    for (uint64_t& key : replay_keys_) {
      key = fault_->replay_key(input_.step, key);
    }
  }
}

EncodedRows EnergyStep::encode_context() {
  const EncodedContext& encoded = context();
  EncodedRows rows{{encoded.steps_BSD, encoded.summary_B1D, encoded.mask_BS}};
  return fault_ == nullptr ? rows : fault_->encoded_context(input_.step, std::move(rows));
}

const EncodedContext& EnergyStep::context() {
  if (encoded_) {
    return *encoded_;
  }
  // Exact arithmetic too takes a row where it lies: what reads it first selects numbers, and computes none.
  const auto part = [&](const at::Tensor& all) { return all.narrow(0, input_.first_row, input_.end_row - input_.first_row); };
  const at::Tensor context = noisy_PSC_.defined() ? part(noisy_PSC_) : with_noise(part(rows_.context_PSC), input_.first_row);
  const at::Tensor mask = part(rows_.mask_PS);
  encoded_ =
      model_.encode_context(context, fault_ == nullptr ? mask : fault_->context_mask(input_.step, mask));
  return *encoded_;
}

at::Tensor EnergyStep::with_noise(const at::Tensor& context_BSC, int64_t first_row) const {
  if (energy(config_).context_noise <= 0) return context_BSC;
  const std::vector<uint64_t> keys = row_keys(Purpose::context_noise, first_row, first_row + context_BSC.size(0));
  const auto each = shape().context_steps * shape().channels;
  return context_BSC + energy(config_).context_noise * normal_rows(keys, each).view(context_BSC.sizes());
}

at::Tensor EnergyStep::encode_action(const at::Tensor& action_NA) {
  if (shared_encoded_ != nullptr && action_NA.is_same(shared_action_NA_)) {
    if (!shared_encoded_->defined()) *shared_encoded_ = model_.encode_action(action_NA);
    return *shared_encoded_;
  }
  const at::Tensor encoded = model_.encode_action(action_NA);
  return fault_ == nullptr ? encoded : fault_->encoded_action(input_.step, encoded);
}

at::Tensor EnergyStep::own_energies(const EncodedRows& rows, const at::Tensor& action_BnD, int64_t first_id) {
  std::vector<int64_t> ids;
  for (int64_t k = 0; k < action_BnD.size(1); ++k) {
    ids.push_back(first_id - k);
  }
  // Streams that are keyed by a candidate's place are apart from those of any in-batch candidate.
  constexpr int64_t kBehindAllColumns = int64_t{1} << 32;
  return of_head(rows, action_BnD, {std::move(ids), kBehindAllColumns - first_id, true});
}

std::vector<StreamUse> EnergyStep::streams(bool replayed) const {
  std::vector<StreamUse> uses;
  const auto rows = static_cast<uint64_t>(input_.end_row - input_.first_row);
  if (energy(config_).context_noise > 0) {
    const auto each = static_cast<uint64_t>(shape().context_steps * shape().channels);
    uses.push_back({"context_noise", stream_fingerprint(row_keys(Purpose::context_noise)),
                    rows * 2 * each + extra_draws(Purpose::context_noise)});
  }
  if (dropout_ > 0) {
    // Position in a row's streams, one stream a candidate: how many candidates there are is the energies'
    // matter.
    const uint64_t draws = rows * static_cast<uint64_t>(shape().hidden) + extra_draws(Purpose::dropout);
    uses.push_back({"dropout", stream_fingerprint(dropout_keys_), draws});
    if (replayed) {
      uses.push_back({"dropout replay", stream_fingerprint(replay_keys_), draws});
    }
  }
  return uses;
}

std::vector<uint64_t> EnergyStep::row_keys(Purpose purpose, int64_t first, int64_t end) const {
  std::vector<uint64_t> keys;
  const int64_t step = fault_ == nullptr ? input_.step : fault_->stream_step(input_.step);
  for (int64_t row = first; row < end; ++row) {
    const uint64_t key = streams_.row_key(purpose, step, input_.ids[static_cast<std::size_t>(row)], row);
    keys.push_back(fault_ == nullptr ? key : fault_->row_key(input_.step, purpose, key));
  }
  return keys;
}

at::Tensor EnergyStep::of_head(const EncodedRows& rows, const at::Tensor& action, const Columns& columns) {
  const auto step = std::static_pointer_cast<const EnergyStep>(shared_from_this());
  return model_.head({rows.tensors[0], rows.tensors[1], rows.tensors[2]}, action, columns.own,
                     [step, columns](int64_t first, int64_t rows, bool again) {
                       return step->dropout_factors(columns, first, rows, again);
                     });
}

at::Tensor EnergyStep::dropout_factors(const Columns& candidates, int64_t first, int64_t rows, bool again) const {
  if (dropout_ <= 0) {
    return {};
  }
  const auto keys = std::span<const uint64_t>(again ? replay_keys_ : dropout_keys_)
                        .subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows));
  const auto columns = static_cast<int64_t>(candidates.ids.size());
  const int64_t hidden = shape().hidden;
  at::Tensor factors = at::empty({rows, columns, hidden}, at::kFloat);
  float* out = factors.mutable_data_ptr<float>();
  for (const uint64_t key : keys) {
    for (int64_t column = 0; column < columns; ++column, out += hidden) {
      fill_dropout(streams_.pair_key(key, candidates.ids[static_cast<std::size_t>(column)],
                                     candidates.first + column),
                   static_cast<float>(dropout_), {out, static_cast<std::size_t>(hidden)});
    }
  }
  return factors.to(model_.model().dtype());
}

std::vector<int64_t> negative_layers(const LayerNegativesConfig& config, int64_t layers) {
  std::vector<int64_t> chosen = config.layers;
  if (chosen.empty()) {
    chosen = {0, layers / 3, layers / 2, layers - 2};
  }
  if (config.as_written) {
    for (int64_t& layer : chosen) {
      layer = layer < 0 ? layer + layers : layer;
    }
    return chosen;
  }
  std::vector<int64_t> distinct;
  for (const int64_t layer : chosen) {
    if (layer >= 0 && layer < layers &&
        std::find(distinct.begin(), distinct.end(), layer) == distinct.end()) {
      distinct.push_back(layer);
    }
  }
  return distinct;
}

ExplicitNegatives::ExplicitNegatives(const RunConfig& config, const NegativesInput& input)
    : config_(energy(config).layer),
      layers_(energy(config).model.action_layers),
      as_written_(RankSeed::same, stream_seed(config), 0),
      input_(input) {}

std::vector<uint64_t> ExplicitNegatives::keys(Purpose purpose, bool one_for_all) const {
  std::vector<uint64_t> keys;
  for (std::size_t row = 0; row < input_.ids.size(); ++row) {
    const int64_t place = one_for_all ? 0 : input_.first_row + static_cast<int64_t>(row);
    const RandomStreams& streams = config_.as_written ? as_written_ : input_.streams;
    keys.push_back(streams.row_key(purpose, input_.step, input_.ids[row], place));
  }
  return keys;
}

at::Tensor ExplicitNegatives::shuffled(const at::Tensor& own_BA) {
  const std::vector<uint64_t> row_keys = keys(Purpose::negative_shuffle, config_.as_written);
  const int64_t steps = input_.action_steps;
  const at::Tensor own_BHC = own_BA.reshape({own_BA.size(0), steps, own_BA.size(1) / steps});
  at::Tensor result = at::empty_like(own_BHC);
  for (std::size_t row = 0; row < row_keys.size(); ++row) {
    const std::vector<int64_t> order = keyed_shuffle(row_keys[row], steps);
    const auto place = static_cast<int64_t>(row);
    result.select(0, place).copy_(
        own_BHC.select(0, place).index_select(0, at::tensor(at::ArrayRef<int64_t>(order), at::kLong)));
  }
  uses_.push_back(
      {"negative_shuffle", stream_fingerprint(row_keys), row_keys.size() * static_cast<uint64_t>(steps)});
  return result.reshape(own_BA.sizes());
}

at::Tensor ExplicitNegatives::candidates(const at::Tensor& own_BA,
                                         const std::vector<at::Tensor>& predictions) {
  uses_.clear();
  const auto wanted = static_cast<std::size_t>(config_.count);
  std::vector<at::Tensor> all;
  for (const int64_t layer : negative_layers(config_, layers_)) {
    const at::Tensor predicted = predictions.at(static_cast<std::size_t>(layer)).to(own_BA.scalar_type());
    all.push_back(config_.as_written ? predicted : predicted.detach());
  }
  // What comes behind the predictions, by kind: a standard deviation, or a shuffle (an action of one step has
  // none).
  std::vector<double> noise{0.1, 0.2, 0.4};
  const std::size_t shuffle_at = all.size() + noise.size();
  const std::size_t shuffles = input_.action_steps > 1 ? 1 : 0;
  for (int64_t k = 0; all.size() + noise.size() + shuffles < wanted; ++k) {
    noise.push_back(0.3 + 0.1 * static_cast<double>(k));
  }
  const int64_t width = own_BA.size(1);
  const auto levels = static_cast<int64_t>(noise.size());
  const std::vector<uint64_t> row_keys = keys(Purpose::negative_noise, false);
  const at::Tensor normals =
      normal_rows(row_keys, levels * width).reshape({own_BA.size(0), levels, width}).to(own_BA.scalar_type());
  uses_.push_back({"negative_noise", stream_fingerprint(row_keys),
                   row_keys.size() * static_cast<uint64_t>(2 * levels * width)});
  for (int64_t level = 0; level < levels; ++level) {
    if (all.size() == shuffle_at && shuffles == 1) {
      all.push_back(shuffled(own_BA));
    }
    all.push_back(own_BA + noise[static_cast<std::size_t>(level)] * normals.select(1, level));
  }
  if (all.size() == shuffle_at && shuffles == 1) {
    all.push_back(shuffled(own_BA));
  }
  all.resize(wanted);
  return at::stack(all, 1);
}

std::vector<int64_t> keyed_shuffle(uint64_t key, int64_t n) {
  std::vector<int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  if (n < 2) {
    return order;
  }
  std::vector<float> draws;
  while (std::is_sorted(order.begin(), order.end())) {
    draws.resize(draws.size() + static_cast<std::size_t>(n));
    fill_uniform(key, draws);
    const float* last = draws.data() + draws.size() - static_cast<std::size_t>(n);
    std::stable_sort(order.begin(), order.end(), [last](int64_t a, int64_t b) { return last[a] < last[b]; });
  }
  return order;
}

}  // namespace lockstep
