#include "scenarios/energy/energy_step.h"

#include <ATen/ATen.h>

#include <memory>

#include "scenarios/energy/noise.h"

namespace lockstep {

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

}  // namespace lockstep
