// Causes in the accumulation of micro-steps: what each counts, which of them arrive, and in what precision they are added up.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "harness/judge/causes/gradient.h"
#include "harness/judge/causes/loss.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/forced/gradients.h"
#include "harness/judge/compare/step_pairs.h"

namespace lockstep::causes {
namespace {

/// Every rank's gradient of its last `count` micro-steps; empty where a rank had no more than these, or values were not
/// kept.
std::vector<std::vector<NamedTensor>> last_parts(const std::vector<RankParts>& parts, std::size_t count = 1) {
  std::vector<std::vector<NamedTensor>> last;
  for (const RankParts& rank : parts) {
    if (rank.names.size() <= count) return {};
    std::vector<double> factors(rank.names.size(), 0);
    std::fill(factors.end() - static_cast<std::ptrdiff_t>(count), factors.end(), 1.0);
    auto gradient = weighed(rank, factors);
    if (!gradient) return {};
    last.push_back(std::move(*gradient));
  }
  return last;
}

/// Are the two equal, tensor by tensor, but for rounding in their type?
bool same_but_for_rounding(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  constexpr double kRoundings = 32;
  return !a.empty() && std::ranges::all_of(a, [&](const NamedTensor& x) {
    const NamedTensor* y = find_tensor(b, x.name);
    if (!y) return norm(x.values) == 0;
    return x.values.size() == y->values.size() && distance(x.values, y->values) <= kRoundings * x.epsilon * std::max(norm(x.values), norm(y->values));
  });
}

/// Of parts of which statistics alone were kept: is the gradient as long as its last part, and does it point where that does?
bool is_last_by_statistics(const RankParts& rank, const std::vector<NamedTensor>& local) {
  constexpr double kNear = 1e-5;
  if (rank.names.size() < 2 || local.empty()) return false;
  const auto is_it = [&](const GradientPart* part) {
    const NamedTensor* own = find_tensor(local, part->parameter);
    const double size = own ? norm(own->values) : -1;
    return size >= 0 && std::abs(part->norm - size) <= kNear * size && std::abs(part->dot - size * size) <= kNear * size * size;
  };
  const bool others = std::ranges::any_of(rank.gradients.front(), [](const GradientPart* part) { return part->norm > 0; });
  return others && std::ranges::all_of(rank.gradients.back(), is_it);
}

/// Did every rank's micro-steps but the last add nothing?
bool only_last_is_there(const std::vector<RankParts>& parts) {
  return std::ranges::all_of(parts, [](const RankParts& rank) {
    for (std::size_t k = 0; k + 1 < rank.gradients.size(); ++k) {
      if (std::ranges::any_of(rank.gradients[k], [](const GradientPart* part) { return norm(part->values.values) > 0; })) return false;
    }
    return rank.gradients.size() > 1;
  });
}

std::optional<Cause> only_last_micro_step(const CauseInputs& inputs) {
  const auto gradients = gradients_of(inputs);
  const Phase phase = inputs.difference.phase;
  if (!gradients || (phase != Phase::local_gradients && phase != Phase::reduced_gradients)) return std::nullopt;
  const ForcedValues& cell = inputs.forced->cell;
  const std::vector<RankParts> parts = parts_of(cell, "micro ");
  if (parts.empty()) return std::nullopt;
  const auto named = [&](const std::string& what) {
    return made("only-last-micro-step", kExact, fmt::format("{} the gradient of the last of {} micro-steps alone; {}", what, parts[0].names.size(), gradients->text()));
  };
  const std::vector<std::vector<NamedTensor>> last = last_parts(parts);
  // Where the micro-steps before the last made no gradient, the reference's parts show what they should have made.
  const std::vector<std::vector<NamedTensor>> wanted = last_parts(parts_of(inputs.forced->reference, "micro "));
  if (phase == Phase::local_gradients && !last.empty() && only_last_is_there(parts) && wanted.size() == last.size() &&
      std::ranges::equal(wanted, last, same_but_for_rounding)) {
    return named("every rank's gradient is the reference's");
  }
  if (last.empty()) {
    if (cell.local.size() != parts.size()) return std::nullopt;
    for (std::size_t r = 0; r < parts.size(); ++r) {
      if (!is_last_by_statistics(parts[r], cell.local[r])) return std::nullopt;
    }
    return named("every rank's gradient is");
  }
  const bool local = phase == Phase::local_gradients;
  for (std::size_t r = 0; local && r < last.size(); ++r) {
    if (!same_but_for_rounding(cell.local[r], last[r])) return std::nullopt;
  }
  if (!local && !same_but_for_rounding(cell.gradients, reduced_of(last, cell.reduced_by_sum))) return std::nullopt;
  // Micro-steps before it that added nothing would make it the whole.
  std::vector<double> all(parts[0].names.size(), 1);
  const auto whole = weighed(parts[0], all);
  if (!whole || same_but_for_rounding(*whole, last[0])) return std::nullopt;
  return named(local ? "every rank's gradient is" : "the reduced gradient is the mean over ranks of");
}

/// Reduced gradients of every rank; empty where one did not keep its values.
std::vector<std::vector<NamedTensor>> reduced_by_rank(const StepOfRun& step, const std::vector<int>& ranks) {
  std::vector<std::vector<NamedTensor>> all;
  for (const int rank : ranks) {
    all.emplace_back();
    for (const Record& record : step.ranks[static_cast<std::size_t>(rank)].records) {
      if (record.phase != Phase::reduced_gradients) continue;
      auto tensor = whole_tensor(record);
      if (!tensor) return {};
      all.back().push_back(std::move(*tensor));
    }
  }
  return all;
}

/// Every rank's reduced gradient is the mean of the local ones but for a part of its own, so that the mean of them all is that mean.
/// Returns the tensors of which that is so; empty where it is of none, or another tensor is wrong otherwise.
std::vector<std::string> partly_own(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::reduced_gradients || !inputs.forced || !inputs.cell) return {};
  constexpr double kRoundings = 64;
  const ForcedValues& cell = inputs.forced->cell;
  if (cell.local.size() < 2 || cell.local.size() != cell.local_ranks.size()) return {};
  const auto by_rank = reduced_by_rank(*inputs.cell, cell.local_ranks);
  if (by_rank.size() != cell.local.size()) return {};
  const std::vector<NamedTensor> mean = mean_of_local(cell), again = reduced_of(by_rank, false);
  std::vector<std::string> names;
  for (const NamedTensor& expected : mean) {
    const NamedTensor* all = find_tensor(again, expected.name);
    if (!all || all->values.size() != expected.values.size()) return {};
    double size = 0;
    bool kept_own = true, apart = false;
    for (std::size_t r = 0; r < by_rank.size(); ++r) {
      const NamedTensor *own = find_tensor(by_rank[r], expected.name), *local = find_tensor(cell.local[r], expected.name);
      if (!own || !local || own->values.size() != expected.values.size()) return {};
      size = std::max({size, norm(own->values), norm(local->values)});
      kept_own = kept_own && own->values == local->values;
      apart = apart || distance(own->values, expected.values) > kRoundings * expected.epsilon * size;
    }
    if (distance(all->values, expected.values) > kRoundings * expected.epsilon * size) return {};
    if (apart && kept_own) return {};
    if (apart) names.push_back(expected.name);
  }
  return names;
}

/// Does one of the tensors that are not the mean have a part in a micro-step before the last?
bool wrong_ones_have_earlier_parts(const RankParts& rank, const std::vector<NamedTensor>& reduced, const std::vector<NamedTensor>& mean) {
  for (std::size_t k = 0; k + 1 < rank.gradients.size(); ++k) {
    for (const GradientPart* part : rank.gradients[k]) {
      const NamedTensor *own = find_tensor(reduced, part->parameter), *expected = find_tensor(mean, part->parameter);
      if (own && expected && norm(part->values.values) > 0 && !same_but_for_rounding({*own}, {*expected})) return true;
    }
  }
  return false;
}

std::optional<Cause> last_micro_step_not_reduced(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::reduced_gradients || !inputs.forced || inputs.forced->cell.local.size() < 2) return std::nullopt;
  const ForcedValues& cell = inputs.forced->cell;
  const std::vector<std::vector<NamedTensor>> last = last_parts(parts_of(cell, "micro "));
  if (last.size() != cell.local.size()) {
    const std::vector<std::string> names = partly_own(inputs);
    if (names.empty()) return std::nullopt;
    // Without parts: every tensor of a step that accumulates keeps something of its rank's own.
    if (inputs.cell_facts.accumulation < 2 || names.size() != cell.local[0].size()) return std::nullopt;
    return made("last-micro-step-not-reduced", kFits,
                fmt::format("each rank's reduced gradient is the mean but for a part of its own, in all {} tensors, and their mean over ranks is right; a step has {} "
                            "micro-steps",
                            names.size(), inputs.cell_facts.accumulation));
  }
  const std::vector<RankParts> parts = parts_of(cell, "micro ");
  const std::vector<NamedTensor> mean = mean_of_local(cell);
  for (std::size_t count = 1; count < parts.front().names.size(); ++count) {
    // reduced = mean(all) - mean(last ones) + own last ones.
    const std::vector<std::vector<NamedTensor>> own_last = last_parts(parts, count);
    const std::vector<NamedTensor> mean_last = reduced_of(own_last, cell.reduced_by_sum);
    std::vector<NamedTensor> predicted = mean;
    for (NamedTensor& tensor : predicted) {
      const NamedTensor *of_all = find_tensor(mean_last, tensor.name), *own = find_tensor(own_last[0], tensor.name);
      if (!of_all || !own) continue;
      for (std::size_t i = 0; i < tensor.values.size(); ++i) tensor.values[i] += own->values[i] - of_all->values[i];
    }
    if (!same_but_for_rounding(cell.gradients, predicted) || same_but_for_rounding(cell.gradients, mean)) continue;
    // A tensor that the last micro-step alone reaches was not reduced at all.
    if (!wrong_ones_have_earlier_parts(parts.front(), cell.gradients, mean)) return std::nullopt;
    if (count > 1)
      return made("micro-steps-not-reduced", kExact,
                  fmt::format("rank 0's reduced gradient is the mean over ranks of the first {} of {} micro-steps, and "
                              "of the others its own gradient",
                              parts.front().names.size() - count, parts.front().names.size()));
    return made("last-micro-step-not-reduced", kExact,
                "rank 0's reduced gradient is the mean over ranks of all micro-steps but the last, and of the last its "
                "own gradient");
  }
  return std::nullopt;
}

/// From hashes, where rank 0 alone kept values: some tensors' reduced gradients are others on every rank, and neither the mean of the local ones nor
/// the rank's own.
std::optional<Cause> every_rank_has_its_own(const CauseInputs& inputs) {
  if (inputs.difference.phase != Phase::reduced_gradients || !inputs.forced || !inputs.cell || inputs.forced->cell.local.size() < 2) return std::nullopt;
  std::vector<std::string> names;
  std::size_t all = 0;
  for (const Record& record : inputs.cell->ranks[0].records) {
    if (record.phase != Phase::reduced_gradients) continue;
    ++all;
    std::set<uint64_t> hashes;
    for (const StepRecords& rank : inputs.cell->ranks) {
      const Record *reduced = find_record(rank, Phase::reduced_gradients, record.name), *local = find_record(rank, Phase::local_gradients, record.name);
      if (!reduced || !local || local->stats.hash == reduced->stats.hash) return std::nullopt;
      hashes.insert(reduced->stats.hash);
    }
    if (hashes.size() == 1) continue;
    if (hashes.size() != inputs.cell->ranks.size()) return std::nullopt;
    names.push_back(record.name);
  }
  if (names.empty() || names.size() == all) return std::nullopt;
  return made("one-use-not-reduced", kFits,
              fmt::format("{} of {} tensors ({}) are other ones on every rank, and neither the mean of the local gradients nor the rank's own: a part of their gradient did not "
                          "enter the reduction",
                          names.size(), all, fmt::join(names, ", ")));
}

std::optional<Cause> one_use_not_reduced(const CauseInputs& inputs) {
  if (last_micro_step_not_reduced(inputs)) return std::nullopt;
  const std::vector<std::string> names = partly_own(inputs);
  if (names.empty()) return every_rank_has_its_own(inputs);
  if (names.size() == inputs.forced->cell.local[0].size()) return std::nullopt;
  return made("one-use-not-reduced", kExact,
              fmt::format("{} of {} tensors ({}) are the mean of the local gradients but for a part that is each rank's own, and the mean of them over ranks is "
                          "right: a part of their gradient did not enter the reduction",
                          names.size(), inputs.forced->cell.local[0].size(), fmt::join(names, ", ")));
}

bool is_short(double value, int bits) {
  const auto raw = std::bit_cast<uint32_t>(static_cast<float>(value));
  return static_cast<double>(static_cast<float>(value)) == value && (raw & ((uint32_t{1} << (23 - bits)) - 1)) == 0;
}

/// Has every element no more bits than that, and are there enough of them to tell?
bool all_short(const std::vector<NamedTensor>& tensors, int bits) {
  std::size_t elements = 0;
  for (const NamedTensor& tensor : tensors) {
    for (const double value : tensor.values) {
      if (value != 0 && !is_short(value, bits)) return false;
      elements += value != 0;
    }
  }
  return elements >= 8;
}

std::optional<Cause> accumulated_in_low_precision(const CauseInputs& inputs) {
  const auto gradients = gradients_of(inputs);
  if (inputs.difference.phase != Phase::local_gradients || !gradients) return std::nullopt;
  const ForcedValues& cell = inputs.forced->cell;
  const std::vector<RankParts> parts = parts_of(cell, "micro ");
  const bool accumulates = inputs.cell_facts.accumulation > 1 || (!parts.empty() && parts[0].names.size() > 1);
  if (!accumulates || cell.local.empty()) return std::nullopt;
  for (const auto& [type, bits] : {std::pair{"bfloat16", 7}, {"float16", 10}}) {
    // A coarser gradient everywhere is another precision; here each micro-step has more bits than their sum.
    const bool sums = std::ranges::all_of(cell.local, [&, bits = bits](const auto& rank) { return all_short(rank, bits); });
    if (!sums || all_short(inputs.forced->reference.gradients, bits)) continue;
    bool known = !parts.empty(), longer = false;
    for (const RankParts& rank : parts) {
      for (const auto& part : rank.gradients) {
        for (const GradientPart* each : part) {
          known = known && !each->values.values.empty();
          longer = longer || !all_short({each->values}, bits);
        }
      }
    }
    if (known && !longer) continue;
    const double epsilon = std::ldexp(1.0, -bits);
    for (const TensorUse& use : gradients->judgement->tensors) {
      if (use.use.difference > 4 * epsilon * use.norm_reference * static_cast<double>(std::max<int64_t>(2, inputs.cell_facts.accumulation)) + use.use.band)
        return std::nullopt;
    }
    return made("accumulated-in-low-precision", known ? kExact : kFits,
                fmt::format("every element of the ranks' summed gradients has the {} bits of a {} mantissa{}, and they lie within its rounding of the reference's; {}",
                            bits, type, known ? ", and those of the micro-steps have more" : "", gradients->text()));
  }
  return std::nullopt;
}

/// The reference's gradient as a sum of the ranks' own, or else of their micro-steps': how much each should count,
/// where 1 is what it counts in their mean. Empty: it is no such sum, or several are.
struct Shares {
  std::vector<double> of;
  bool of_micro_steps = false;
};

Shares shares_of(const ForcedEvidence& evidence) {
  const ForcedValues &reference = evidence.reference, &cell = evidence.cell;
  const double epsilon = std::max({reference.epsilon, cell.epsilon, reference.working_epsilon, cell.working_epsilon});
  const auto fitted = [&](const std::vector<std::vector<NamedTensor>>& parts) -> std::vector<double> {
    constexpr double kRoundings = 100, kLeast = 1e-8, kMost = 1e-3;
    const std::vector<WeighedTensor> tensors = weighed_tensors(reference.gradients, parts);
    std::size_t elements = 0;
    for (const WeighedTensor& each : tensors) elements += each.sum->size();
    if (tensors.size() != reference.gradients.size() || elements < 4 * parts.size()) return {};
    Weights weights = weigh(tensors, epsilon);
    if (!weights.all_known() || weights.residual > std::min(kMost, std::max(kLeast, kRoundings * epsilon))) return {};
    for (double& weight : weights.of)
      weight *= cell.reduced_by_sum ? 1 : static_cast<double>(std::max<std::size_t>(1, cell.local.size()));
    return weights.of;
  };
  if (cell.local.size() > 1) {
    if (Shares found{fitted(cell.local)}; !found.of.empty()) return found;
  }
  std::vector<std::vector<NamedTensor>> parts;
  for (const RankParts& rank : parts_of(cell, "micro ")) {
    for (const auto& part : rank.gradients) {
      parts.emplace_back();
      for (const GradientPart* each : part) parts.back().push_back(each->values);
    }
  }
  return parts.size() > std::max<std::size_t>(1, cell.local.size()) ? Shares{fitted(parts), true} : Shares{};
}

/// Each rank (or micro-step) divides by its own count: then their shares are 1 in the mean. Else it scales by another number of its own. One that alone
/// counts otherwise than the rest does neither.
std::optional<Cause> counted_each_by_its_own(const CauseInputs& inputs) {
  if (!inputs.forced) return std::nullopt;
  const Shares shares = shares_of(*inputs.forced);
  if (shares.of.size() < 2) return std::nullopt;
  const double mean = std::accumulate(shares.of.begin(), shares.of.end(), 0.0) / static_cast<double>(shares.of.size());
  const double alike = std::max(1e-6, 1e3 * inputs.forced->cell.epsilon) * std::abs(mean);
  std::vector<double> sorted = shares.of;
  std::ranges::sort(sorted);
  const std::size_t last = sorted.size() - 1;
  const bool but_one = last > 1 ? sorted[last] - sorted[1] <= alike || sorted[last - 1] - sorted[0] <= alike
                                : std::abs(sorted[0] - 1) <= alike || std::abs(sorted[1] - 1) <= alike;
  const int world = world_size_of(inputs);
  const bool by_count = std::abs(mean - 1) <= alike, by_world = world > 1 && std::abs(mean * world - 1) <= alike * world;
  if (sorted[last] - sorted[0] <= alike || but_one || !(sorted[0] > 0)) return std::nullopt;
  std::vector<std::string> words;
  for (const double share : shares.of) words.push_back(fmt::format("{:.3g}", 100 * share));
  if (words.size() > 8) words.resize(8), words.push_back("…");
  if (!by_count && !by_world && shares.of_micro_steps) return std::nullopt;
  return made(by_world                ? "gradient-times-world"
              : !by_count             ? "local-statistics"
              : shares.of_micro_steps ? "micro-steps-weighted-alike"
                                      : "mean-of-means",
              by_count || by_world ? kExact : kFits,
              fmt::format("the reference's gradient is the {}' own, added up with other weights: they should count {} "
                          "% of what they do",
                          shares.of_micro_steps ? "micro-steps" : "ranks", join_words(words)));
}

constexpr Rule kAccumulationInLoss[] = {counted_each_by_its_own};
constexpr Rule kAccumulationInGradients[] = {counted_each_by_its_own, only_last_micro_step,
                                             accumulated_in_low_precision};
constexpr Rule kAccumulationInReduction[] = {only_last_micro_step, last_micro_step_not_reduced, one_use_not_reduced};

}  // namespace

std::span<const Rule> accumulation_rules(Phase phase) {
  if (phase == Phase::loss) return kAccumulationInLoss;
  if (phase == Phase::local_gradients) return kAccumulationInGradients;
  if (phase == Phase::reduced_gradients) return kAccumulationInReduction;
  return {};
}

}  // namespace lockstep::causes
