// Causes in one named part of the loss, an auxiliary one: its factor, its gradient.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "harness/verdict/causes/gradient_parts.h"
#include "harness/verdict/causes/loss_evidence.h"
#include "harness/verdict/causes/rules.h"
#include "harness/verdict/causes/step_gradients.h"

namespace lockstep::causes {
namespace {

/// A named loss as one of the runs has it.
struct Term {
  std::string name;
  double value = 0;  ///< mean over ranks, weight included
};

std::vector<Term> terms_of(const ForcedValues& values) {
  std::map<std::string, std::pair<double, std::size_t>> sums;
  for (const RankLoss& rank : values.losses) {
    for (const auto& [name, value] : rank.terms) {
      const auto weight = rank.weights.find(name);
      sums[name].first += value * (weight == rank.weights.end() ? 1 : weight->second);
      ++sums[name].second;
    }
  }
  std::vector<Term> terms;
  for (const auto& [name, sum] : sums) {
    if (sum.second == values.losses.size()) terms.push_back({name, sum.first / static_cast<double>(sum.second)});
  }
  return terms;
}

/// What one over a number of ranks that share a mistake may be: of the world, or of a declared group.
std::map<double, std::string> factors_of(const CauseInputs& inputs) {
  std::map<double, std::string> factors = {{0, "0"}};
  const int world = world_size_of(inputs);
  if (world > 1) factors.emplace(1.0 / world, fmt::format("1/{}", world));
  const auto whole = inputs.cell ? inputs.cell->ranks.size() : 0;
  if (whole > 1) factors.emplace(1.0 / static_cast<double>(whole), fmt::format("1/{}", whole));
  if (!inputs.cell || !inputs.cell->declared) return factors;
  for (const auto& [name, ranks] : inputs.cell->declared->groups) {
    if (ranks.size() > 1) factors.emplace(1.0 / static_cast<double>(ranks.size()), fmt::format("1/{}, the ranks of group \"{}\"", ranks.size(), name));
  }
  return factors;
}

Cause named_by(double factor, const std::string& evidence, double confidence) {
  return made(factor == 0 ? "auxiliary-loss-detached" : "auxiliary-loss-over-world", confidence, evidence);
}

/// The cell's loss is the reference's with one named loss times a factor.
std::optional<Cause> term_in_loss(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::loss || !inputs.forced || !inputs.forced->reference.loss || !inputs.forced->cell.loss) return std::nullopt;
  const ForcedEvidence& forced = *inputs.forced;
  const double gap = *forced.cell.loss - *forced.reference.loss;
  std::vector<Cause> fitting;
  std::vector<Term> terms = terms_of(forced.reference);
  if (terms.size() < 2) return std::nullopt;
  for (const Term& term : terms) {
    for (const auto& [factor, words] : factors_of(inputs)) {
      if (std::abs(term.value) < 100 * forced.loss_band) continue;
      if (std::abs(gap - (factor - 1) * term.value) > 4 * forced.loss_band + 1e-6 * std::abs(term.value)) continue;
      fitting.push_back(named_by(factor, fmt::format("the loss is the reference's with the named loss \"{}\" times {}; {}", term.name, words, losses_text(inputs)), kExact));
    }
  }
  return fitting.size() == 1 ? std::optional(fitting.front()) : std::nullopt;
}

/// A named loss's own gradient, over ranks.
std::optional<std::vector<NamedTensor>> gradient_of_term(const ForcedValues& values, const std::string& part) {
  std::vector<std::vector<NamedTensor>> by_rank;
  for (const RankParts& rank : parts_of(values, "loss ")) {
    std::vector<double> factors(rank.names.size(), 0);
    const auto at = std::ranges::find(rank.names, part) - rank.names.begin();
    if (at == std::ssize(rank.names)) return std::nullopt;
    factors[static_cast<std::size_t>(at)] = 1;
    auto gradient = weighed(rank, factors);
    if (!gradient) return std::nullopt;
    by_rank.push_back(std::move(*gradient));
  }
  return by_rank.empty() ? std::nullopt : std::optional(reduced_of(by_rank, values.reduced_by_sum));
}

std::set<std::string> part_names(const ForcedValues& values) {
  std::set<std::string> names;
  for (const RankParts& rank : parts_of(values, "loss ")) names.insert(rank.names.begin(), rank.names.end());
  return names;
}

/// The gradient with `factor` times more of a part.
std::vector<NamedTensor> with_more(std::vector<NamedTensor> gradient, const std::vector<NamedTensor>& part, double factor) {
  for (NamedTensor& tensor : gradient) {
    const NamedTensor* more = find_tensor(part, tensor.name);
    if (!more || more->values.size() != tensor.values.size()) continue;
    for (std::size_t i = 0; i < tensor.values.size(); ++i) tensor.values[i] += factor * more->values[i];
  }
  return gradient;
}

bool is_of_gradients(Phase phase) { return phase == Phase::local_gradients || phase == Phase::reduced_gradients; }

/// By recorded parts: the reference's gradient with one of its named losses times a factor, or the cell's own part brought to what it should be.
std::optional<Cause> term_in_gradient(const CauseInputs& inputs) {
  const auto gradients = gradients_of(inputs);
  if (!gradients || !is_of_gradients(inputs.difference.phase)) return std::nullopt;
  const ForcedEvidence& forced = *inputs.forced;
  constexpr double kRoom = 8;
  std::vector<Cause> fitting;
  const auto try_part = [&](const std::string& part, bool of_reference) {
    const auto own = gradient_of_term(of_reference ? forced.reference : forced.cell, part);
    if (!own || whole_norm(*own) == 0) return;
    for (const auto& [factor, words] : factors_of(inputs)) {
      if (!of_reference && factor == 0) continue;
      const bool fits = of_reference ? agree(with_more(forced.reference.gradients, *own, factor - 1), gradients->mean, *gradients->judgement, kRoom)
                                     : agree(forced.reference.gradients, with_more(gradients->mean, *own, 1 / factor - 1), *gradients->judgement, kRoom);
      if (!fits) continue;
      fitting.push_back(named_by(factor, fmt::format("the gradient is the reference's with that of \"{}\" times {}; {}", part, words, gradients->text()), kExact));
    }
  };
  for (const std::string& part : part_names(forced.reference)) try_part(part, true);
  if (fitting.empty()) {
    for (const std::string& part : part_names(forced.cell)) try_part(part, false);
  }
  return fitting.size() == 1 ? std::optional(fitting.front()) : std::nullopt;
}

/// Without parts: the run has named losses, and some tensors' gradients are one of these factors of the reference's, where others are not. What
/// they alone have a gradient from is one of these losses.
std::optional<Cause> some_tensors_by_factor(const CauseInputs& inputs) {
  const auto gradients = gradients_of(inputs);
  if (!gradients || !is_of_gradients(inputs.difference.phase) || terms_of(inputs.forced->cell).size() < 2) return std::nullopt;
  if (!part_names(inputs.forced->reference).empty()) return std::nullopt;
  constexpr double kTelling = 64;
  for (const auto& [factor, words] : factors_of(inputs)) {
    std::vector<std::string> scaled;
    std::size_t others = 0, right = 0;
    for (const TensorUse& use : gradients->judgement->tensors) {
      const NamedTensor *expected = find_tensor(inputs.forced->reference.gradients, use.name), *actual = find_tensor(gradients->mean, use.name);
      if (!expected || !actual || expected->values.size() != actual->values.size()) return std::nullopt;
      if (use.use.used() <= 1) {
        right += norm(expected->values) > kTelling * use.use.band;
        continue;
      }
      double rest = 0;
      for (std::size_t i = 0; i < expected->values.size(); ++i) rest = std::hypot(rest, actual->values[i] - factor * expected->values[i]);
      if (rest <= 2 * use.use.band && norm(expected->values) > kTelling * use.use.band) scaled.push_back(use.name);
      else ++others;
    }
    if (scaled.empty() || (right == 0 && others == 0)) continue;
    if (factor == 0 && right == 0) continue;
    return named_by(factor, fmt::format("the gradient of {} is {} times the reference's, {} tensors agree and {} differ otherwise, and the loss has several named parts",
                                     fmt::join(scaled, ", "), words, right, others), kFits);
  }
  return std::nullopt;
}

constexpr Rule kTermsInLoss[] = {term_in_loss};
constexpr Rule kTermsInGradients[] = {term_in_gradient, some_tensors_by_factor};

}  // namespace

std::span<const Rule> named_loss_rules(Phase phase) {
  if (phase == Phase::loss) return kTermsInLoss;
  if (is_of_gradients(phase)) return kTermsInGradients;
  return {};
}

}  // namespace lockstep::causes
