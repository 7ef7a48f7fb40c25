#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "harness/judge/causes/gradient.h"
#include "harness/judge/compare/bits.h"
#include "harness/judge/compare/compared.h"
#include "harness/judge/compare/step_pairs.h"

// Causes of wrong local gradients, in the accumulation of micro-steps, and of one factor on loss and gradients, that any
// trainer may have: the mean over ranks against the reference, and the ranks' own.

namespace lockstep::causes {
namespace {

// One factor on the loss and on every gradient.

double the_world(const CauseInputs& inputs) { return world_size_of(inputs); }
double over_the_world(const CauseInputs& inputs) { return 1.0 / world_size_of(inputs); }
double micro_steps(const CauseInputs& inputs) {
  return static_cast<double>(std::max<int64_t>(1, inputs.cell_facts.accumulation));
}
double minus_one(const CauseInputs&) { return -1; }

bool is_factor(double factor, double value) { return std::abs(factor - value) <= 1e-4 * std::abs(value); }

template <double (*factor_of)(const CauseInputs&)>
Answer by_factor(const CauseInputs& inputs) {
  const bool of_loss = inputs.difference.phase == Phase::loss;
  const auto gradients = of_loss ? gradients_of(inputs) : local_of(inputs);
  const double factor = factor_of(inputs);
  if (!gradients || factor == 1) return {};
  // Who divides once more by as many micro-steps as there are ranks looks alike.
  if (factor < 1 && factor > 0 && is_factor(factor * micro_steps(inputs), 1)) return {};
  const Signatures signatures = gradients->signatures();
  const std::string words = factor_text(factor, gradients->world);
  if (signatures.all_fit(factor) && of_loss && !loss_is(inputs, factor)) return {};
  if (signatures.all_fit(factor))
    return of_loss ? told("loss and every gradient are {} times the reference's", words)
                   : told(gradients->text());
  // A few tensors of one group: what scales whole groups has its own pattern. Of two ranks 2 is any 2 there: a sum of two
  // losses, a use too many.
  const bool is_any_2 = gradients->world == 2 && (factor == 2 || factor == 0.5);
  // Of several losses one, whose model alone has the factor.
  const auto fits = [&](const GradientSignature& group) {
    return group.group == "all" || ((is_factor(group.ratio, factor) || is_factor(group.ratio, 1)) && group.residual <= 1e-4);
  };
  const auto has_it = [&](const GradientSignature& group) { return group.group != "all" && is_factor(group.ratio, factor); };
  if (of_loss && !is_any_2 && std::ranges::all_of(gradients->judgement->groups, fits) &&
      std::ranges::any_of(gradients->judgement->groups, has_it))
    return told(kFits, "one of several losses: {}", gradients->text());
  if (of_loss || is_any_2 || !signatures.part_of_a_role_fits(factor)) return {};
  std::vector<std::string> names;
  for (const TensorUse& use : gradients->judgement->tensors)
    if (use.use.used() > 1) names.push_back(use.name);
  return told(kFits, "{} times the reference's in {} only", words, fmt::join(names, ", "));
}

/// The declared group of that many ranks; empty if there is none.
std::string group_of(const CauseInputs& inputs, double factor) {
  if (!inputs.cell || !inputs.cell->declared) return "";
  for (const auto& [name, ranks] : inputs.cell->declared->groups) {
    const auto size = static_cast<double>(ranks.size());
    if (ranks.size() > 1 && (is_factor(factor, size) || is_factor(factor, 1 / size))) return name;
  }
  return "";
}

/// "the tokens with padding over those without": which counts of rows make the factor; empty where none do.
std::string counts_behind(const CauseInputs& inputs, double factor) {
  double rows = 0, tokens = 0, padded = 0;
  for (const RankLoss& rank : inputs.forced->cell.losses) {
    rows += static_cast<double>(rank.row_losses.size());
    tokens = std::accumulate(rank.row_counts.begin(), rank.row_counts.end(), tokens);
    padded = std::accumulate(rank.row_widths.begin(), rank.row_widths.end(), padded);
  }
  const std::pair<const char*, double> counts[] = {
      {"rows", rows}, {"tokens", tokens}, {"tokens with padding", padded}, {"ranks", the_world(inputs)}};
  for (const auto& [over, above] : counts) {
    for (const auto& [under, below] : counts) {
      if (above > 0 && below > 0 && is_factor(factor, above / below))
        return fmt::format(": {} {} over {} {}", above, over, below, under);
    }
  }
  return "";
}

/// Another factor, and the number of the run that is nearest to it.
Answer fitted_factor(const CauseInputs& inputs) {
  const auto gradients = gradients_of(inputs);
  const bool of_loss = inputs.difference.phase == Phase::loss;
  double along = 0, own = 0;
  for (const NamedTensor& expected : inputs.forced->reference.gradients) {
    const NamedTensor* actual = find_tensor(gradients->mean, expected.name);
    if (!actual && norm(expected.values) == 0) continue;
    if (!actual || actual->values.size() != expected.values.size()) return {};
    along += dot(expected.values, actual->values);
    own += dot(expected.values, expected.values);
  }
  const double factor = own > 0 ? along / own : 1, world = the_world(inputs), steps = micro_steps(inputs);
  if (!std::isfinite(factor) || std::abs(factor - 1) < 1e-4 || std::abs(factor) < 1e-9) return {};
  if (!gradients->signatures().all_fit(factor) || (of_loss && !loss_is(inputs, factor))) return {};
  // As many micro-steps as ranks: it may be either's number.
  const bool of_ranks = is_factor(factor, world) || is_factor(factor, 1 / world);
  if (of_ranks && steps != world) return {};
  const std::string text =
      fmt::format("{} {} times the reference's", of_loss ? "loss and every gradient are" : "every gradient is",
                  factor_text(factor, world_size_of(inputs)));
  if (const std::string group = of_ranks ? "" : group_of(inputs, factor); !group.empty())
    return made("counted-over-wrong-group", 0.95,
                "{}: the number of ranks of the group \"{}\", over which counts were added up or not", text, group);
  if (is_factor(factor, -1) || (steps > 1 && is_factor(factor, steps))) return {};
  if (steps > 1 && is_factor(factor * steps, 1))
    return told("{}: divided again by the {} micro-steps{}", text, steps, of_ranks ? " or ranks" : "");
  constexpr int kMostSteps = 16;
  for (int other = 2; steps > 1 && other <= kMostSteps; ++other) {
    // A whole number, or one over it, is any factor.
    const bool tells = std::fmod(steps, other) != 0 && std::fmod(other, steps) != 0;
    if (tells && is_factor(factor, steps / other))
      return made("normalised-by-another-window", kStrong,
                  "{}: {}/{}, where a step has {} micro-steps: counts of one number of them, a division by another",
                  text, steps, other, steps);
  }
  return of_ranks ? Answer() : told("{}{}", text, counts_behind(inputs, factor));
}

/// What the optimizer takes is a whole number of times what was reduced, or one over it; the reference's takes that.
Answer factor_of_reduced(const CauseInputs& inputs) {
  constexpr double kMost = 1024;
  const auto there = applied_factor(inputs.forced->reference), here = applied_factor(inputs.forced->cell);
  if (!there || !here || !is_factor(*there, 1) || is_factor(*here, 1)) return {};
  const double number = std::abs(*here) < 1 ? 1 / *here : *here;
  // Those by the ranks have names of their own; a clip's factor is no such number.
  const bool is_whole = std::abs(number) <= kMost && std::abs(number - std::round(number)) <= 1e-5;
  if (!is_whole || is_factor(number, the_world(inputs))) return {};
  const std::string factor = factor_text(*here, world_size_of(inputs));
  return told("every gradient is multiplied by {} after the reduction", factor);
}

// Local gradients.

/// From statistics, wherever a run stopped being numbers: which rank's gradients did alone.
Answer non_finite_on_a_rank(const CauseInputs& inputs) {
  if (inputs.difference.divergence.kind != DivergenceKind::value && inputs.difference.phase != Phase::local_gradients)
    return {};
  const auto first_of = [](const StepRecords& rank) -> const Record* {
    const auto found = std::ranges::find_if(rank.records, [](const Record& record) {
      return record.phase == Phase::local_gradients && record.has_stats && record.stats.nonfinite > 0;
    });
    return found == rank.records.end() ? nullptr : &*found;
  };
  if (std::ranges::any_of(inputs.reference->ranks, first_of)) return {};
  const std::vector<StepRecords>& all = inputs.cell->ranks;
  const auto ranks = ranks_where(all.size(), [&](std::size_t rank) { return first_of(all[rank]) != nullptr; });
  if (ranks.empty()) return {};
  const Record* first = first_of(all[ranks.front()]);
  return told("{} of {} is not finite on rank {}", counted(static_cast<int64_t>(first->stats.nonfinite), "value"),
              first->name, fmt::join(ranks, ", "));
}

/// In exact arithmetic nothing rounds, so that the reduced gradients have equal bits but for what a fault has changed.
Answer one_element_alone(const CauseInputs& inputs, const StepGradients& local) {
  if (!both_exact(inputs.reference_config, inputs.cell_config)) return {};
  const NamedTensor* changed = nullptr;
  std::size_t element = 0;
  double gap = 0;
  for (const NamedTensor& tensor : local.evidence->cell.gradients) {
    const NamedTensor* reference = find_tensor(local.evidence->reference.gradients, tensor.name);
    if (!reference || reference->values.size() != tensor.values.size()) return {};
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      if (distance(reference->values[i], tensor.values[i]) == 0) continue;
      if (changed) return {};
      changed = &tensor, element = i, gap = tensor.values[i] - reference->values[i];
    }
  }
  // Of a tensor of one element a factor changes no more.
  if (!changed || changed->values.size() < 2) return {};
  return told("only element {} of {} differs, by {}; in exact arithmetic every other element of every gradient is "
              "equal bit for bit",
              element, changed->name, short_number(gap));
}

Answer bit_flip(const StepGradients& local) {
  std::vector<FlippedBit> flips;
  std::set<int> ranks;
  for (const TensorUse& use : local.evidence->local.tensors) {
    if (use.use.used() <= 1) continue;
    const NamedTensor* reference = find_tensor(local.evidence->reference.gradients, use.name);
    const NamedTensor* mean = find_tensor(local.mean, use.name);
    const auto element =
        reference && mean ? single_difference(reference->values, mean->values, use.use.band) : std::nullopt;
    if (!element) return {};
    const auto here = flips_in_values({use.name, *element, reference->values[*element], mean->values[*element],
                                       use.use.band, reference->epsilon, local.evidence->cell.is_wide()},
                                      local.evidence->cell.local);
    // A change that several bits would explain says nothing of a bit.
    if (here.empty() || std::ranges::any_of(here, [&](const FlippedBit& flip) { return flip.bit != here[0].bit; })) return {};
    flips.push_back(here[0]);
    for (const FlippedBit& flip : here) ranks.insert(flip.rank);
  }
  if (flips.empty()) return {};
  return told(0.96, "only element {} of {} differs, and bit {} of rank {}'s value explains it{}", flips[0].element,
              flips[0].tensor, flips[0].bit, fmt::join(ranks, " or "),
              ranks.size() > 1 ? " (their values share the exponent)" : "");
}

/// One rank's local gradient has another form than those that it is to be reduced with.
Answer forms_differ(const CauseInputs& inputs) {
  const Divergence& it = inputs.difference.divergence;
  const bool shape = it.kind == DivergenceKind::shape && it.rank >= 0;
  if (!shape && it.kind != DivergenceKind::dtype) return {};
  return made(shape ? "shapes-differ" : "dtype-differs", kStrong, "rank {}'s gradient of {} is {}, other ranks' {}",
              it.rank, it.where, it.actual, it.expected);
}

// Micro-steps: what each counts, which of them arrive, and in what precision they are added up.

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
    return x.values.size() == y->values.size() &&
           distance(x.values, y->values) <= kRoundings * x.epsilon * std::max(norm(x.values), norm(y->values));
  });
}

/// Of parts of which statistics alone were kept: is the gradient as long as its last part, and does it point where that
/// does?
bool is_last_by_statistics(const RankParts& rank, const std::vector<NamedTensor>& local) {
  constexpr double kNear = 1e-5;
  const auto is_it = [&](const GradientPart* part) {
    const NamedTensor* own = find_tensor(local, part->parameter);
    const double size = own ? norm(own->values) : -1;
    return size >= 0 && std::abs(part->norm - size) <= kNear * size &&
           std::abs(part->dot - size * size) <= kNear * size * size;
  };
  return rank.names.size() > 1 && !local.empty() &&
         std::ranges::any_of(rank.gradients.front(), [](const GradientPart* part) { return part->norm > 0; }) &&
         std::ranges::all_of(rank.gradients.back(), is_it);
}

/// Did a rank's micro-steps but the last add nothing?
bool only_last_is_there(const RankParts& rank) {
  const auto adds_nothing = [](const GradientPart* part) { return !(norm(part->values.values) > 0); };
  return rank.gradients.size() > 1 &&
         std::all_of(rank.gradients.begin(), rank.gradients.end() - 1,
                     [&](const auto& parts) { return std::ranges::all_of(parts, adds_nothing); });
}

Answer only_last_micro_step(const CauseInputs& inputs) {
  const ForcedValues& cell = inputs.forced->cell;
  const std::vector<RankParts> parts = parts_of(cell, "micro ");
  if (parts.empty()) return {};
  const auto named = [&](const char* what) {
    return told("{} the gradient of the last of {} micro-steps alone; {}", what, parts[0].names.size(),
                gradients_of(inputs)->text());
  };
  const bool local = inputs.difference.phase == Phase::local_gradients;
  const auto last = last_parts(parts);
  if (last.empty()) {
    const bool all = std::ranges::equal(parts, cell.local, is_last_by_statistics);
    return all ? Answer(named("every rank's gradient is")) : std::nullopt;
  }
  // Where the micro-steps before the last made no gradient, the reference's parts show what they should have made.
  if (local && std::ranges::all_of(parts, only_last_is_there) &&
      std::ranges::equal(last_parts(parts_of(inputs.forced->reference, "micro ")), last, same_but_for_rounding))
    return named("every rank's gradient is the reference's");
  const bool is_last = local ? std::ranges::equal(cell.local, last, same_but_for_rounding)
                             : same_but_for_rounding(cell.gradients, reduced_of(last, cell.reduced_by_sum));
  // Micro-steps before it that added nothing would make it the whole.
  const auto whole = weighed(parts[0], std::vector<double>(parts[0].names.size(), 1));
  if (!is_last || !whole || same_but_for_rounding(*whole, last[0])) return {};
  return named(local ? "every rank's gradient is" : "the reduced gradient is the mean over ranks of");
}

/// Every rank's reduced gradient is the mean of the local ones but for a part of its own, so that the mean of them all is
/// that mean. Returns the tensors of which that is so; empty where it is of none, or another tensor is wrong otherwise.
std::vector<std::string> partly_own(const CauseInputs& inputs) {
  constexpr double kRoundings = 64;
  const ForcedValues& cell = inputs.forced->cell;
  if (!inputs.cell || cell.local.size() != cell.local_ranks.size()) return {};
  std::vector<std::vector<NamedTensor>> by_rank;
  for (const int rank : cell.local_ranks) {
    by_rank.emplace_back();
    for (const Record* record : records_of(inputs.cell->ranks[static_cast<std::size_t>(rank)], Phase::reduced_gradients)) {
      auto tensor = whole_tensor(*record);
      if (!tensor) return {};
      by_rank.back().push_back(std::move(*tensor));
    }
  }
  const std::vector<NamedTensor> mean = mean_of_local(cell), again = reduced_of(by_rank, false);
  std::vector<std::string> names;
  for (const NamedTensor& expected : mean) {
    const NamedTensor* all = find_tensor(again, expected.name);
    if (!all || all->values.size() != expected.values.size()) return {};
    double size = 0, apart = 0;
    bool kept_own = true;
    for (std::size_t r = 0; r < by_rank.size(); ++r) {
      const NamedTensor *own = find_tensor(by_rank[r], expected.name), *local = find_tensor(cell.local[r], expected.name);
      if (!own || !local || own->values.size() != expected.values.size()) return {};
      size = std::max({size, norm(own->values), norm(local->values)});
      kept_own = kept_own && own->values == local->values;
      apart = std::max(apart, distance(own->values, expected.values));
    }
    const double room = kRoundings * expected.epsilon * size;
    if (distance(all->values, expected.values) > room || (apart > room && kept_own)) return {};
    if (apart > room) names.push_back(expected.name);
  }
  return names;
}

/// Does one of the tensors that are not the mean have a part in a micro-step before the last?
bool wrong_ones_have_earlier_parts(const RankParts& rank, const std::vector<NamedTensor>& reduced,
                                   const std::vector<NamedTensor>& mean) {
  for (std::size_t k = 0; k + 1 < rank.gradients.size(); ++k) {
    for (const GradientPart* part : rank.gradients[k]) {
      const NamedTensor *own = find_tensor(reduced, part->parameter), *expected = find_tensor(mean, part->parameter);
      if (own && expected && norm(part->values.values) > 0 && !same_but_for_rounding({*own}, {*expected})) return true;
    }
  }
  return false;
}

Answer last_micro_step_not_reduced(const CauseInputs& inputs) {
  const ForcedValues& cell = inputs.forced->cell;
  if (cell.local.size() < 2) return {};
  const std::vector<RankParts> parts = parts_of(cell, "micro ");
  if (last_parts(parts).size() != cell.local.size()) {
    // Without parts: every tensor of a step that accumulates keeps something of its rank's own.
    const std::size_t wrong = inputs.cell_facts.accumulation < 2 ? 0 : partly_own(inputs).size();
    if (wrong == 0 || wrong != cell.local[0].size()) return {};
    return told(kFits,
                "each rank's reduced gradient is the mean but for a part of its own, in all {} tensors, and their "
                "mean over ranks is right; a step has {} micro-steps",
                wrong, inputs.cell_facts.accumulation);
  }
  const std::vector<NamedTensor> mean = mean_of_local(cell);
  const std::size_t steps = parts.front().names.size();
  for (std::size_t count = 1; count < steps; ++count) {
    // reduced = mean(all) - mean(last ones) + own last ones.
    const auto own_last = last_parts(parts, count);
    const auto predicted = with_more(with_more(mean, reduced_of(own_last, cell.reduced_by_sum), -1), own_last[0], 1);
    if (!same_but_for_rounding(cell.gradients, predicted) || same_but_for_rounding(cell.gradients, mean)) continue;
    // A tensor that the last micro-step alone reaches was not reduced at all.
    if (!wrong_ones_have_earlier_parts(parts.front(), cell.gradients, mean)) return {};
    return made(count > 1 ? "micro-steps-not-reduced" : "last-micro-step-not-reduced", kExact,
                "rank 0's reduced gradient is the mean over ranks of the first {} of {} micro-steps, and of the "
                "others its own gradient",
                steps - count, steps);
  }
  return {};
}

Answer one_use_not_reduced(const CauseInputs& inputs) {
  if (inputs.forced->cell.local.size() < 2 || last_micro_step_not_reduced(inputs)) return {};
  const std::vector<std::string> names = partly_own(inputs);
  const std::size_t all = inputs.forced->cell.local[0].size();
  if (names.empty() || names.size() == all) return {};
  return told("{} of {} tensors ({}) are the mean of the local gradients but for a part of each rank's own, and their "
              "mean over ranks is right: a part of their gradient did not enter the reduction",
              names.size(), all, fmt::join(names, ", "));
}

/// Has every element no more bits of a mantissa than that, and are there enough of them to tell?
bool all_short(const std::vector<NamedTensor>& tensors, int bits) {
  std::size_t elements = 0;
  for (const NamedTensor& tensor : tensors) {
    for (const double value : tensor.values) {
      if (rounded_to(value, bits) != value) return false;
      elements += value != 0;
    }
  }
  return elements >= 8;
}

Answer accumulated_in_low_precision(const CauseInputs& inputs) {
  const auto gradients = gradients_of(inputs);
  const ForcedValues& cell = inputs.forced->cell;
  const std::vector<RankParts> parts = parts_of(cell, "micro ");
  const bool accumulates = inputs.cell_facts.accumulation > 1 || (!parts.empty() && parts[0].names.size() > 1);
  if (!accumulates || cell.local.empty()) return {};
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
    const double units = 4 * std::ldexp(1.0, -bits) * std::max(2.0, micro_steps(inputs));
    for (const TensorUse& use : gradients->judgement->tensors)
      if (use.use.difference > units * use.norm_reference + use.use.band) return {};
    return told(known ? kExact : kFits,
                "every element of the ranks' summed gradients has the {} bits of a {} mantissa{}, and they lie within "
                "its rounding of the reference's; {}",
                bits, type, known ? ", and those of the micro-steps have more" : "", gradients->text());
  }
  return {};
}

/// The reference's gradient as a sum of the ranks' own, or else of their micro-steps': how much each should count,
/// where 1 is what it counts in their mean. Empty: it is no such sum, or several are.
struct Shares {
  std::vector<double> of;
  bool of_micro_steps = false;
};

Shares shares_of(const ForcedEvidence& evidence) {
  const ForcedValues &reference = evidence.reference, &cell = evidence.cell;
  const double epsilon =
      std::max({reference.epsilon, cell.epsilon, reference.working_epsilon, cell.working_epsilon});
  const std::size_t world = std::max<std::size_t>(1, cell.local.size());
  const auto fitted = [&](const std::vector<std::vector<NamedTensor>>& parts) -> std::vector<double> {
    constexpr double kRoundings = 100, kLeast = 1e-8, kMost = 1e-3;
    const std::vector<WeighedTensor> tensors = weighed_tensors(reference.gradients, parts);
    std::size_t elements = 0;
    for (const WeighedTensor& each : tensors) elements += each.sum->size();
    if (tensors.size() != reference.gradients.size() || elements < 4 * parts.size()) return {};
    Weights weights = weigh(tensors, epsilon);
    if (!weights.all_known() || weights.residual > std::min(kMost, std::max(kLeast, kRoundings * epsilon))) return {};
    for (double& weight : weights.of) weight *= cell.reduced_by_sum ? 1 : static_cast<double>(world);
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
  return parts.size() > world ? Shares{fitted(parts), true} : Shares{};
}

/// Each rank (or micro-step) divides by its own count: then their shares are 1 in the mean. Else it scales by another
/// number of its own. One that alone counts otherwise than the rest does neither.
Answer counted_each_by_its_own(const CauseInputs& inputs) {
  const auto [shares, of_micro_steps] = shares_of(*inputs.forced);
  if (shares.size() < 2) return {};
  const double mean = std::accumulate(shares.begin(), shares.end(), 0.0) / static_cast<double>(shares.size());
  const double alike = std::max(1e-6, 1e3 * inputs.forced->cell.epsilon) * std::abs(mean), world = the_world(inputs);
  std::vector<double> sorted = shares;
  std::ranges::sort(sorted);
  const std::size_t last = sorted.size() - 1;
  const bool but_one = last > 1 ? sorted[last] - sorted[1] <= alike || sorted[last - 1] - sorted[0] <= alike
                                : std::abs(sorted[0] - 1) <= alike || std::abs(sorted[1] - 1) <= alike;
  const bool by_count = std::abs(mean - 1) <= alike;
  // Where the reference has as many ranks, and micro-steps, their number is no reason.
  const bool as_many = inputs.reference && inputs.cell && inputs.reference->ranks.size() == inputs.cell->ranks.size();
  const bool by_world = !as_many && world > 1 && std::abs(mean * world - 1) <= alike * world;
  const bool unscaled = as_many && of_micro_steps && std::abs(mean * micro_steps(inputs) - 1) <= alike * micro_steps(inputs);
  if (sorted[last] - sorted[0] <= alike || (but_one && !by_count) || !(sorted[0] > 0)) return {};
  if (!by_count && !by_world && !unscaled && of_micro_steps) return {};
  std::vector<std::string> words;
  for (const double share : shares) words.push_back(fmt::format("{:.3g}", 100 * share));
  if (words.size() > 8) words.resize(8), words.push_back("…");
  const char* code = unscaled         ? "accumulation-not-scaled"
                     : by_world       ? "gradient-times-world"
                     : !by_count      ? "local-statistics"
                     : of_micro_steps ? "micro-steps-weighted-alike"
                                      : "mean-of-means";
  return made(code, by_count || by_world || unscaled ? kExact : kFits,
              "the reference's gradient is the {}' own, added up with other weights: they should count {} % of what "
              "they do",
              of_micro_steps ? "micro-steps" : "ranks", join_words(words));
}

}  // namespace

std::span<const Hypothesis> gradient_hypotheses() {
  static constexpr Hypothesis kTable[] = {
      {"loss-times-world", kInLoss, kValues, kExact, by_factor<the_world>},
      {"loss-over-world", kInLoss, kValues, kExact, by_factor<over_the_world>},
      {"accumulation-not-scaled", kInLoss | kInGradients, kValues, kExact, by_factor<micro_steps>},
      {"sign-flipped", kInLoss | kInGradients, kValues, kExact, by_factor<minus_one>},
      {"gradient-times-world", kInGradients, kLocal, kExact, by_factor<the_world>},
      {"constant-factor counted-over-wrong-group normalised-by-another-window", kInLoss | kInLocal, kValues,
       kGeneral + 0.1, fitted_factor},
      {"constant-factor", kInApplied, kValues, kFits, factor_of_reduced},
      {"non-finite", kInexactPhases, kRuns, kStrong, non_finite_on_a_rank},
      {"bit-flip", kInGradients, kLocal | kConfigs, kStrong, of_local<one_element_alone>},
      {"bit-flip", kInGradients, kLocal, kStrong, of_local<bit_flip>},
      {"shapes-differ dtype-differs", kInLocal, kNothing, kStrong, forms_differ},
      {"only-last-micro-step", kInGradients, kValues, kExact, only_last_micro_step},
      {"last-micro-step-not-reduced micro-steps-not-reduced", kInReduced, kValues, kExact, last_micro_step_not_reduced},
      {"one-use-not-reduced", kInReduced, kValues | kRanks, kExact, one_use_not_reduced},
      {"accumulated-in-low-precision", kInLocal, kValues, kExact, accumulated_in_low_precision},
      {"mean-of-means micro-steps-weighted-alike local-statistics gradient-times-world accumulation-not-scaled",
       kInLoss | kInLocal, kValues, kExact, counted_each_by_its_own},
      {"local-statistics", kInScores | kInLoss | kInLocal, kRanks, kFits, mean_of_own_rows_in_a_buffer},
      {"mean-of-means local-statistics", kInEvaluation, kRuns, kExact, metric_of_own_part},
      {"normalised-by-another-window", kInNorm | kInApplied | kInParameters, kRuns, kExact, norm_of_another_window},
  };
  return kTable;
}

Answer gradients_over_world(const CauseInputs& inputs) { return by_factor<over_the_world>(inputs); }

std::vector<RankParts> parts_of(const ForcedValues& values, std::string_view kind) {
  std::vector<RankParts> by_rank;
  for (const std::vector<GradientPart>& own : values.parts) {
    RankParts parts;
    for (const GradientPart& each : own) {
      if (!each.part.starts_with(kind)) continue;
      const auto at = static_cast<std::size_t>(std::ranges::find(parts.names, each.part) - parts.names.begin());
      if (at == parts.names.size()) parts.names.push_back(each.part), parts.gradients.emplace_back();
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
      if (place == sum.end())
        place = sum.insert(place, {own.name, own.shape, std::vector<double>(own.values.size()), own.epsilon, own.may_be_shard});
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

std::vector<NamedTensor> with_more(std::vector<NamedTensor> gradient, const std::vector<NamedTensor>& part,
                                   double factor) {
  for (NamedTensor& tensor : gradient) {
    const NamedTensor* more = find_tensor(part, tensor.name);
    if (!more || more->values.size() != tensor.values.size()) continue;
    for (std::size_t i = 0; i < tensor.values.size(); ++i) tensor.values[i] += factor * more->values[i];
  }
  return gradient;
}

double apart(const std::vector<double>& actual, double factor, const std::vector<double>& expected) {
  double squares = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double gap = actual[i] - factor * expected[i];
    squares += gap * gap;
  }
  return std::sqrt(squares);
}

bool agree(const std::vector<NamedTensor>& expected, const std::vector<NamedTensor>& gradients,
           const GradientJudgement& judgement, double room) {
  return !judgement.tensors.empty() && std::ranges::all_of(judgement.tensors, [&](const TensorUse& use) {
    const NamedTensor *x = find_tensor(expected, use.name), *y = find_tensor(gradients, use.name);
    // A parameter that no part reaches has no gradient.
    if (x && !y) return norm(x->values) <= room * use.use.band;
    return x && y && x->values.size() == y->values.size() && distance(x->values, y->values) <= room * use.use.band;
  });
}

/// How many bands a gradient must be long for its factor to mean something.
constexpr double kTelling = 16;

/// The role of a parameter: where a header declares roles, as the rules number it, or else by its place among the declared
/// ones; without a role of its own it is `other`, where the rules know that.
static std::optional<Role> role_of(const std::string& name, const TrainerRules& rules, const Declared* declared) {
  if (!declared) return rules.role_of ? std::optional(rules.role_of(parameter_group(name))) : std::nullopt;
  constexpr Role kBeyondAnyTrainers = 1000;
  const DeclaredParameters* entry = entry_of(declared->parameters, name);
  const bool named = entry && !entry->role.empty();
  if (rules.role_named) return rules.role_named(named ? entry->role : "other");
  if (!named) return std::nullopt;
  const auto first = std::ranges::find(declared->parameters, entry->role, &DeclaredParameters::role);
  return kBeyondAnyTrainers + static_cast<Role>(first - declared->parameters.begin());
}

Signatures::Signatures(const StepGradients& of) {
  const std::vector<NamedTensor>& reference = of.evidence->reference.gradients;
  double band = 0;
  const auto add = [&](const std::string& name, const NamedTensor& expected, std::vector<double> actual, double own) {
    tensors_.push_back({role_of(name, *of.rules, of.declared), &expected.values, std::move(actual), own});
  };
  for (const TensorUse& use : of.judgement->tensors) {
    band = std::max(band, use.use.band);
    const NamedTensor *expected = find_tensor(reference, use.name), *actual = find_tensor(of.mean, use.name);
    if (!expected || !actual || expected->values.size() != actual->values.size()) continue;
    add(use.name, *expected, actual->values, use.use.band);
  }
  for (const std::string& name : of.judgement->missing) {
    const NamedTensor* expected = find_tensor(reference, name);
    if (!expected || find_tensor(of.mean, name) || of.judgement->tensors.empty()) continue;
    add(name, *expected, std::vector<double>(expected->values.size(), 0), band);
  }
}

bool Signatures::Pair::fits(double factor) const {
  return apart(cell, factor, *reference) <= (1 + std::abs(factor)) * band;
}

bool Signatures::Pair::tells() const { return norm(*reference) > kTelling * band; }

bool Signatures::Pair::no_factor_fits() const {
  const double own = norm(*reference);
  const double rest = apart(cell, own > 0 ? dot(cell, *reference) / (own * own) : 0, *reference);
  // Well beyond rounding, and a good part of the gradient itself.
  return rest > kTelling * band && rest >= 0.1 * norm(cell);
}

bool Signatures::all_fit(double factor) const {
  return std::ranges::all_of(tensors_, [&](const Pair& pair) { return pair.fits(factor); }) &&
         std::ranges::any_of(tensors_, [&](const Pair& pair) {
           return std::abs(factor - 1) * norm(*pair.reference) > kTelling * pair.band;
         });
}

bool Signatures::part_of_a_role_fits(double factor) const {
  const auto first = std::ranges::find_if(tensors_, [](const Pair& pair) { return !pair.fits(1); });
  if (first == tensors_.end() || !first->role) return false;
  bool told = false, rest_is_right = false;
  for (const Pair& pair : tensors_) {
    if (pair.fits(1)) {
      rest_is_right = rest_is_right || (pair.role == first->role && pair.tells() && !pair.fits(factor));
    } else if (pair.role != first->role || !pair.fits(factor)) {
      return false;
    } else {
      told = told || pair.tells();
    }
  }
  return told && rest_is_right;
}

std::string StepGradients::text() const {
  std::vector<std::string> lacking;
  for (const std::string& name : judgement->missing)
    if (!find_tensor(mean, name)) lacking.push_back(name);
  const std::string others = signature_text(*judgement, world);
  return lacking.empty() ? others : fmt::format("no gradient of {}; {}", fmt::join(lacking, ", "), others);
}

std::optional<StepGradients> gradients_of(const CauseInputs& inputs) {
  if (!inputs.forced) return std::nullopt;
  const ForcedEvidence& forced = *inputs.forced;
  const bool local = !forced.local.tensors.empty();
  return StepGradients{&forced, local ? &forced.local : &forced.reduced, &trainer_rules(inputs),
                       local ? mean_of_local(forced.cell) : forced.cell.gradients, world_size_of(inputs),
                       inputs.trainer ? nullptr : declared_of(inputs)};
}

bool loss_is(const CauseInputs& inputs, double factor) {
  if (inputs.difference.phase != Phase::loss || !inputs.forced) return false;
  const auto &reference = inputs.forced->reference.loss, &cell = inputs.forced->cell.loss;
  if (!reference || !cell || std::abs(*reference) < 100 * inputs.forced->loss_band) return false;
  // A factor so near to 1 that rounding leaves it open explains nothing.
  constexpr double kTelling = 16;
  if (std::abs(factor - 1) * std::abs(*reference) <= kTelling * inputs.forced->loss_band) return false;
  return std::abs(*cell - factor * *reference) <= (1 + std::abs(factor)) * inputs.forced->loss_band;
}

bool lacks_a_gradient(const CauseInputs& inputs) {
  const Divergence& it = inputs.difference.divergence;
  if (!inputs.forced || it.kind != DivergenceKind::missing || !holds(kInGradients, inputs.difference.phase))
    return false;
  const auto has = [&](const std::vector<NamedTensor>& gradients) { return find_tensor(gradients, it.where) != nullptr; };
  return has(inputs.forced->reference.gradients) && !has(inputs.forced->cell.gradients) &&
         std::ranges::none_of(inputs.forced->cell.local, has);
}

std::optional<StepGradients> local_of(const CauseInputs& inputs) {
  if (!inputs.forced || inputs.forced->local.tensors.empty()) return std::nullopt;
  const bool is_local = inputs.difference.phase == Phase::local_gradients || lacks_a_gradient(inputs);
  return is_local ? gradients_of(inputs) : std::nullopt;
}

}  // namespace lockstep::causes
