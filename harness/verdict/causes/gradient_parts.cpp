#include "harness/verdict/causes/gradient_parts.h"

#include <algorithm>

namespace lockstep::causes {

std::vector<RankParts> parts_of(const ForcedValues& values, std::string_view kind) {
  std::vector<RankParts> by_rank;
  for (const std::vector<GradientPart>& own : values.parts) {
    RankParts parts;
    for (const GradientPart& each : own) {
      if (!each.part.starts_with(kind)) continue;
      const auto at = static_cast<std::size_t>(std::ranges::find(parts.names, each.part) - parts.names.begin());
      if (at == parts.names.size()) {
        parts.names.push_back(each.part);
        parts.gradients.emplace_back();
      }
      parts.gradients[at].push_back(&each);
    }
    if (parts.names.empty()) return {};
    by_rank.push_back(std::move(parts));
  }
  return by_rank;
}

std::optional<std::vector<NamedTensor>> weighed(const RankParts& parts, std::span<const double> factors) {
  std::vector<NamedTensor> sum;
  for (std::size_t k = 0; k < parts.names.size(); ++k) {
    for (const GradientPart* part : parts.gradients[k]) {
      const NamedTensor& own = part->values;
      if (own.values.empty()) return std::nullopt;
      auto place = std::ranges::find(sum, part->parameter, &NamedTensor::name);
      if (place == sum.end()) {
        sum.push_back(own);
        place = sum.end() - 1;
        std::ranges::fill(place->values, 0);
      }
      if (place->values.size() != own.values.size()) return std::nullopt;
      for (std::size_t i = 0; i < own.values.size(); ++i) place->values[i] += factors[k] * own.values[i];
    }
  }
  return sum;
}

std::vector<NamedTensor> reduced_of(const std::vector<std::vector<NamedTensor>>& by_rank, bool by_sum) {
  ForcedValues values;
  values.local = by_rank;
  values.reduced_by_sum = by_sum;
  return mean_of_local(values);
}

bool agree(const std::vector<NamedTensor>& expected, const std::vector<NamedTensor>& gradients, const GradientJudgement& judgement, double room) {
  if (judgement.tensors.empty()) return false;
  return std::ranges::all_of(judgement.tensors, [&](const TensorUse& use) {
    const NamedTensor *x = find_tensor(expected, use.name), *y = find_tensor(gradients, use.name);
    // A parameter that no part reaches has no gradient.
    if (x && !y) return norm(x->values) <= room * use.use.band;
    return x && y && x->values.size() == y->values.size() && distance(x->values, y->values) <= room * use.use.band;
  });
}

}  // namespace lockstep::causes
