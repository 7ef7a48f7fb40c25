#include "scenarios/energy/explicit_negatives.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "scenarios/energy/noise.h"

namespace lockstep {
namespace {

constexpr std::array kNoise{0.1, 0.2, 0.4};

double filler_noise(int64_t k) { return 0.3 + 0.1 * static_cast<double>(k); }

}  // namespace

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
  std::vector<double> noise(kNoise.begin(), kNoise.end());
  const std::size_t shuffle_at = all.size() + noise.size();
  const std::size_t shuffles = input_.action_steps > 1 ? 1 : 0;
  for (int64_t k = 0; all.size() + noise.size() + shuffles < wanted; ++k) {
    noise.push_back(filler_noise(k));
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

}  // namespace lockstep
