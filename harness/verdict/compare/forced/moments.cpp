// The optimizer's state after the update of a forced step.

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "harness/verdict/compare/forced/step.h"
#include "harness/verdict/compare/rounding_bound.h"

namespace lockstep {
namespace {

constexpr std::string_view kFirst = "first_moment/", kSecond = "second_moment/";

/// What gradients within their bands make of a moment at most. The first takes up its gradient with a factor of no more than 1, clipped by
/// a norm that is as uncertain as all of them. The second takes up the square: (1 - beta2) g^2 is no more than what it comes to.
/// `epsilon`: of the coarser of the two runs.
std::optional<double> moment_band(const ForcedContext& context, const NamedTensor& moment, double epsilon) {
  const bool second = moment.name.starts_with(kSecond);
  if (!second && !moment.name.starts_with(kFirst)) return std::nullopt;
  const std::vector<TensorUse>& uses = context.evidence.reduced.tensors;
  const auto use = std::ranges::find(uses, moment.name.substr((second ? kSecond : kFirst).size()), &TensorUse::name);
  if (use == uses.end()) return std::nullopt;
  double band = use->use.band;
  if (context.reference_facts.clip_norm > 0 || context.cell_facts.clip_norm > 0) {
    double whole = 0, uncertain = 0;
    for (const TensorUse& each : uses) whole = std::hypot(whole, each.norm_reference), uncertain = std::hypot(uncertain, each.use.band);
    if (whole > 0) band += use->norm_reference * uncertain / whole;
  }
  if (second) band = band * (2 * std::sqrt(largest_of(moment.values)) + band);
  return band + rounding_bound(0, epsilon) * norm(moment.values);
}

}  // namespace

std::optional<Difference> judge_moments(ForcedContext& context) {
  const ForcedEvidence& evidence = context.evidence;
  std::optional<Difference> worst;
  double most = 1;
  for (const NamedTensor& expected : evidence.reference.optimizer_state) {
    const NamedTensor* actual = find_tensor(evidence.cell.optimizer_state, expected.name);
    if (!actual || actual->shape != expected.shape) continue;
    const auto band = moment_band(context, expected, std::max(expected.epsilon, actual->epsilon));
    if (!band) continue;
    const BandUse use{distance(expected.values, actual->values), *band};
    if (!context.outside(expected.name, use) || use.used() <= most) continue;
    most = use.used();
    worst = forced_difference(context, Phase::optimizer_state, -1, expected.name, DivergenceKind::band, "norm " + exact_number(norm(expected.values)),
                              fmt::format("norm {}; {}", exact_number(norm(actual->values)), context.band_text(use)));
  }
  return worst;
}

}  // namespace lockstep
