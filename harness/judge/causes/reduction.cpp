// Causes of a wrong reduction: the reduced gradient is recomputed from the local ones under each hypothesis.
// No reference is needed.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/judge/causes/gradient.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/bits.h"
#include "harness/judge/compare/forced/update.h"
#include "harness/judge/compare/forced/values.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/judge/trace/record.h"

namespace lockstep::causes {
namespace {

/// A tensor with everything that its reduction can be recomputed from.
struct Reduced {
  const NamedTensor* reduced = nullptr;
  NamedTensor mean;
  std::vector<const NamedTensor*> local;  ///< by rank
  std::vector<const NamedTensor*>
      before;  ///< by rank, of the step before, and last what was reduced there; empty: not known
  std::vector<double> allowance;          ///< what rounding explains of each element
  bool wrong = false;
};

/// The reduction of one step, tensor by tensor.
struct Reduction {
  const ForcedEvidence* evidence = nullptr;
  std::shared_ptr<const ForcedValues> shared;  ///< see of_shared_tensors
  std::vector<Reduced> tensors;
  std::size_t world = 1;
  std::string bucket;  ///< of the divergence's tensor, ", in bucket 2", or empty

  const ForcedValues& cell() const { return shared ? *shared : evidence->cell; }
  bool by_sum() const { return cell().reduced_by_sum; }
  /// What one rank's gradient counts in the reduction, and what that is called: of a trainer that adds gradients up `mean` is their sum.
  double share() const { return by_sum() ? 1 : 1 / static_cast<double>(world); }
  const char* name() const { return by_sum() ? "sum" : "mean"; }
};

/// What element i of a tensor's reduction would be.
using Prediction = std::function<double(const Reduced& tensor, std::size_t element)>;

/// Of ranks that hold parameters of their own, too: the tensors of which every one kept its local gradient, as if they
/// were replicas in these. Null: none.
std::shared_ptr<const ForcedValues> of_shared_tensors(const CauseInputs& inputs) {
  if (!inputs.cell || inputs.cell->ranks.size() < 2) return nullptr;
  const ForcedValues& all = inputs.forced->cell;
  auto shared = std::make_shared<ForcedValues>();
  shared->epsilon = all.epsilon;
  shared->micro_steps = all.micro_steps;
  shared->reduced_by_sum = all.reduced_by_sum;
  shared->local.resize(inputs.cell->ranks.size());
  for (const NamedTensor& tensor : all.gradients) {
    std::vector<NamedTensor> own;
    for (const StepRecords& rank : inputs.cell->ranks) {
      auto whole = whole_tensor(find_record(rank, Phase::local_gradients, tensor.name));
      if (whole && whole->shape == tensor.shape) own.push_back(*std::move(whole));
    }
    if (own.size() != shared->local.size()) continue;
    shared->gradients.push_back(tensor);
    for (std::size_t rank = 0; rank < own.size(); ++rank) shared->local[rank].push_back(std::move(own[rank]));
    if (const NamedTensor* taken = find_tensor(all.applied, tensor.name)) shared->applied.push_back(*taken);
  }
  for (std::size_t rank = 0; rank < shared->local.size(); ++rank) shared->local_ranks.push_back(static_cast<int>(rank));
  return shared->gradients.empty() ? nullptr : shared;
}

/// How many times the mean of the ranks' own gradients a tensor's reduced one is; NaN: no multiple of it, or not known.
double times_mean(const StepOfRun& step, const std::string& name) {
  const auto values_in = [&](const StepRecords& rank, Phase phase) {
    const auto whole = whole_tensor(find_record(rank, phase, name));
    return whole ? whole->values : std::vector<double>();
  };
  std::vector<double> reduced = values_in(step.ranks[0], Phase::reduced_gradients), mean(reduced.size());
  for (const StepRecords& rank : step.ranks) {
    const std::vector<double> local = values_in(rank, Phase::local_gradients);
    if (local.empty() || local.size() != mean.size()) return std::nan("");
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += local[i] / static_cast<double>(step.ranks.size());
  }
  const double times = dot(reduced, mean) / dot(mean, mean);
  for (double& each : mean) each *= times;
  return distance(reduced, mean) < 1e-6 * norm(reduced) ? times : std::nan("");
}

/// Are a reference's own ranks reduced as the run's are? Then that is no fault.
bool are_reduced_alike(const CauseInputs& inputs, const std::string& name) {
  if (!inputs.reference || !inputs.cell || inputs.reference->ranks.size() != inputs.cell->ranks.size()) return false;
  return std::abs(times_mean(*inputs.reference, name) - times_mean(*inputs.cell, name)) < 1e-6;
}

/// Nothing unless the divergence lies in the reduced gradients, or in a call that may have made them, and every rank's
/// local gradients are known.
std::optional<Reduction> reduction_of(const CauseInputs& inputs) {
  const Phase phase = inputs.difference.phase;
  const bool by_call = phase == Phase::collective && inputs.ledger && inputs.ledger->code == "wrong-op";
  if ((phase != Phase::reduced_gradients && !by_call) || !inputs.forced) return std::nullopt;
  Reduction reduction;
  reduction.evidence = &*inputs.forced;
  if (inputs.forced->cell.local.size() < 2) reduction.shared = of_shared_tensors(inputs);
  const ForcedValues& cell = reduction.cell();
  reduction.world = cell.local.size();
  if (reduction.world < 2) return std::nullopt;
  const std::vector<NamedTensor> means = mean_of_local(cell);
  for (const ReductionUse& use : judge_reduction(cell)) {
    Reduced tensor;
    tensor.reduced = find_tensor(cell.gradients, use.name);
    tensor.mean = *find_tensor(means, use.name);
    for (const auto& rank : cell.local) {
      tensor.local.push_back(find_tensor(rank, use.name));
      if (!tensor.local.back()) return std::nullopt;
    }
    if (const auto& before = inputs.forced->cell_before; before && before->local.size() == reduction.world) {
      for (const auto& rank : before->local) tensor.before.push_back(find_tensor(rank, use.name));
      tensor.before.push_back(find_tensor(before->gradients, use.name));
      const auto unlike = [&](const NamedTensor* old) {
        return !old || old->values.size() != tensor.mean.values.size();
      };
      if (std::ranges::any_of(tensor.before, unlike)) tensor.before.clear();
    }
    tensor.allowance = reduction_allowance(cell, *tensor.reduced);
    tensor.wrong = use.used > 1 && !are_reduced_alike(inputs, use.name);
    reduction.tensors.push_back(std::move(tensor));
  }
  if (inputs.cell) {
    const std::string bucket = bucket_of(inputs.cell->ranks[0], inputs.difference.divergence.where);
    if (!bucket.empty()) reduction.bucket = ", in " + bucket;
  }
  return reduction.tensors.empty() ? std::nullopt : std::optional(reduction);
}

/// Does the hypothesis give every element of the tensor, within `room` allowances of its own size?
bool gives(const Reduced& tensor, const Prediction& hypothesis, double room = 2) {
  for (std::size_t i = 0; i < tensor.reduced->values.size(); ++i) {
    const double expected = hypothesis(tensor, i), actual = tensor.reduced->values[i];
    const double grown =
        tensor.mean.values[i] == 0 ? 1 : std::max(1.0, std::abs(expected / tensor.mean.values[i]));
    const double size = tensor.reduced->epsilon * std::abs(expected) * 8;
    if (!(distance(expected, actual) <= room * tensor.allowance[i] * std::min(grown, 1e3) + size))
      return false;
  }
  return true;
}

std::size_t wrong_count(const Reduction& reduction) {
  return static_cast<std::size_t>(std::ranges::count(reduction.tensors, true, &Reduced::wrong));
}

std::size_t wrong_elements(const Reduction& reduction) {
  std::size_t elements = 0;
  for (const Reduced& tensor : reduction.tensors) elements += tensor.wrong ? tensor.mean.values.size() : 0;
  return elements;
}

/// Does every wrong tensor follow the hypothesis; and if it must hold everywhere, every other too?
bool explains(const Reduction& reduction, const Prediction& hypothesis, bool everywhere) {
  if (wrong_count(reduction) == 0) return false;
  return std::ranges::all_of(reduction.tensors, [&](const Reduced& tensor) {
    return (!tensor.wrong && !everywhere) || gives(tensor, hypothesis);
  });
}

/// "3 of 17 tensors, in bucket 2".
std::string of_tensors(const Reduction& reduction) {
  return fmt::format("{} of {} tensors{}", wrong_count(reduction), reduction.tensors.size(),
                     reduction.bucket);
}

/// "rank 2", or "rank 2 or 5".
std::string one_of(const std::vector<int>& ranks) { return fmt::format("rank {}", fmt::join(ranks, " or ")); }

/// The sum was divided by a count of elements: of the tensor, or of all tensors together.
Answer divided_by_elements(const Reduction& reduction) {
  const auto world = static_cast<double>(reduction.world);
  double all = 0;
  for (const Reduced& tensor : reduction.tensors) all += static_cast<double>(tensor.mean.values.size());
  const Prediction by_own = [&](const Reduced& t, std::size_t i) { return t.mean.values[i] * world / static_cast<double>(t.mean.values.size()); };
  const Prediction by_all = [&](const Reduced& t, std::size_t i) { return t.mean.values[i] * world / all; };
  const bool own = explains(reduction, by_own, true);
  if (!own && !explains(reduction, by_all, true)) return {};
  return told("the sum over {} ranks was divided by the number of elements of {}", world,
              own ? "each tensor" : fmt::format("all tensors, {}", all));
}

/// Of a tensor in parts: has each rank's part what its own local gradient has there?
bool parts_are_own(const CauseInputs& inputs, const Reduction& reduction, const Reduced& tensor) {
  if (!inputs.cell || inputs.cell->parts.empty()) return false;
  const std::vector<int>& ranks = reduction.cell().local_ranks;
  std::size_t found = 0;
  for (std::size_t k = 0; k < ranks.size(); ++k) {
    const auto rank = static_cast<std::size_t>(ranks[k]);
    if (rank >= inputs.cell->parts.size()) return false;
    for (const Record& part : inputs.cell->parts[rank]) {
      if (part.phase != Phase::reduced_gradients || part.name != tensor.reduced->name) continue;
      const auto own = values_at(*tensor.local[k], part), held = values_of(part);
      if (!own || !held || *own != *held) return false;
      ++found;
    }
  }
  return found == ranks.size();
}

/// Is what each rank holds a multiple of its own local gradient, as clipping makes of it, and not of the mean?
bool each_holds_a_multiple(const CauseInputs& inputs, const Reduction& reduction, const Reduced& tensor) {
  constexpr double kNone = 1e-9;
  constexpr std::size_t kFew = 4;
  const std::vector<int>& ranks = reduction.cell().local_ranks;
  for (std::size_t k = 0; inputs.cell && k < ranks.size(); ++k) {
    const StepRecords& rank = inputs.cell->ranks[static_cast<std::size_t>(ranks[k])];
    const auto held = values_of(find_record(rank, Phase::reduced_gradients, tensor.reduced->name));
    if (!held || held->size() != tensor.mean.values.size() || held->size() < kFew) return false;
    const auto rest = [&](const NamedTensor& of) { return weigh({{&*held, {&of.values}}}, 0).residual; };
    if (rest(*tensor.local[k]) > kNone || rest(tensor.mean) < 1e3 * kNone) return false;
  }
  return inputs.cell && !ranks.empty();
}

/// Is every wrong tensor each rank's own local gradient?
bool keep_their_own(const CauseInputs& inputs, const Reduction& reduction) {
  return wrong_count(reduction) > 0 && std::ranges::all_of(reduction.tensors, [&](const Reduced& tensor) {
           if (!tensor.wrong || parts_are_own(inputs, reduction, tensor)) return true;
           const bool same = tensor.reduced->values == tensor.local[0]->values;
           return (same && (!inputs.cell || each_keeps_its_own(*inputs.cell, tensor.reduced->name))) ||
                  each_holds_a_multiple(inputs, reduction, tensor);
         });
}

double norm_of_rank(const Reduction& reduction, std::size_t rank) {
  double whole = 0;
  for (const Reduced& tensor : reduction.tensors) whole = std::hypot(whole, norm(tensor.local[rank]->values));
  return whole;
}

Answer clip_before_reduction(const CauseInputs& inputs, const Reduction& reduction) {
  std::vector<double> factors;
  for (std::size_t rank = 0; rank < reduction.world; ++rank)
    factors.push_back(clip_factor(inputs.cell_facts.clip_norm, norm_of_rank(reduction, rank)));
  const Prediction clipped = [&](const Reduced& t, std::size_t i) {
    double sum = 0;
    for (std::size_t rank = 0; rank < factors.size(); ++rank) sum += factors[rank] * t.local[rank]->values[i];
    return sum * reduction.share();
  };
  // Who clips by hand before reducing by hand shows the tracer the clipped mean where the optimizer takes it.
  Reduction taken = reduction;
  for (Reduced& tensor : taken.tensors) {
    tensor.wrong = true;
    tensor.reduced = find_tensor(taken.cell().applied, tensor.mean.name);
  }
  const bool clips = std::ranges::any_of(factors, [](double factor) { return factor < 1; });
  const bool by_hand = clips && std::ranges::all_of(taken.tensors, &Reduced::reduced) && explains(taken, clipped, true);
  if (!by_hand && !explains(reduction, clipped, true)) return {};
  return told("the {} gradient is the {} of local gradients that were each clipped to {}: factors {:.4g}",
              by_hand ? "applied" : "reduced", reduction.name(), inputs.cell_facts.clip_norm, fmt::join(factors, ", "));
}

template <bool all>
Answer not_reduced(const CauseInputs& inputs, const Reduction& reduction) {
  if (!keep_their_own(inputs, reduction) || (wrong_count(reduction) == reduction.tensors.size()) != all) return {};
  if (clip_before_reduction(inputs, reduction)) return {};  // reduced by hand, after that
  return told("{} are each rank's own local gradient", of_tensors(reduction));
}

/// Is every rank's gradient what is left of its micro-steps' where the sum so far is clipped after each but the last?
Answer clipped_between_micro_steps(const CauseInputs& inputs) {
  const ForcedValues& cell = inputs.forced->cell;
  const std::vector<RankParts> parts = parts_of(cell, "micro ");
  double least = 1;
  for (std::size_t rank = 0; rank < parts.size() && parts.size() == cell.local.size(); ++rank) {
    std::vector<double> factors(parts[rank].names.size(), 0);
    for (std::size_t k = 0; k < factors.size(); ++k) {
      factors[k] = 1;
      const auto so_far = weighed(parts[rank], factors);
      if (!so_far) return {};
      if (k + 1 == factors.size()) {
        for (const NamedTensor& each : cell.local[rank]) {
          const NamedTensor* expected = find_tensor(*so_far, each.name);
          const double size = norm(each.values);
          if (expected ? distance(expected->values, each.values) > 64 * each.epsilon * size : size > 0) return {};
        }
        continue;
      }
      const double factor = clip_factor(inputs.cell_facts.clip_norm, whole_norm(*so_far));
      least = std::min(least, factor);
      for (std::size_t before = 0; before <= k; ++before) factors[before] *= factor;
    }
  }
  if (least > 0.999) return {};
  return told("each rank's gradient is clipped to {} after every micro-step, before the reduction: by factors down to "
              "{}",
              inputs.cell_facts.clip_norm, short_number(least));
}

/// Is what every rank had of the wrong tensors one and the same? Then it was whole before the reduction, and the
/// largest of them is their mean.
bool are_copies(const Reduction& reduction) {
  return wrong_count(reduction) > 0 && std::ranges::all_of(reduction.tensors, [](const Reduced& tensor) {
           const std::vector<double>& first = tensor.local.front()->values;
           const double room = 64 * tensor.reduced->epsilon * norm(first);
           return !tensor.wrong || std::ranges::all_of(tensor.local, [&](const NamedTensor* own) {
             return distance(own->values, first) <= room;
           });
         });
}

/// Ranks that hold whole gradients all divide them by their number.
Answer copies_divided(const Reduction& reduction) {
  const auto world = static_cast<double>(reduction.world);
  const Prediction divided = [=](const Reduced& t, std::size_t i) { return t.local.front()->values[i] / world; };
  if (!are_copies(reduction) || !explains(reduction, divided, false)) return {};
  return told("{} are 1/{} of the gradient that every rank has by itself, the whole one", of_tensors(reduction), world);
}

Answer wrong_reduction_op(const CauseInputs& inputs, const Reduction& reduction) {
  // Of one number that each rank keeps rank 0's may be the least.
  if (keep_their_own(inputs, reduction) || are_copies(reduction)) return {};
  struct Op {
    const char* name;
    double (*fold)(double, double);
  };
  static constexpr Op kOps[] = {{"max", [](double a, double b) { return std::max(a, b); }},
                                {"min", [](double a, double b) { return std::min(a, b); }},
                                {"product", [](double a, double b) { return a * b; }}};
  const auto world = static_cast<double>(reduction.world);
  for (const Op& op : kOps) {
    for (const auto& [before, after] : {std::pair{1.0, 1.0}, {1.0, 1 / world}, {1 / world, 1.0}}) {
      const Prediction folded = [&, before = before, after = after](const Reduced& t, std::size_t i) {
        double value = before * t.local[0]->values[i];
        for (std::size_t rank = 1; rank < t.local.size(); ++rank)
          value = op.fold(value, before * t.local[rank]->values[i]);
        return after * value;
      };
      if (!explains(reduction, folded, false)) continue;
      return told("{} are the {} over ranks, not the mean", of_tensors(reduction), op.name);
    }
  }
  return {};
}

Answer reduced_in_low_precision(const Reduction& reduction) {
  if (reduction.cell().epsilon < 1e-10) return {};
  const auto world = static_cast<double>(reduction.world);
  for (const auto& [name, bits] : {std::pair{"bfloat16", 7}, {"float16", 10}}) {
    // Either the result itself has no more bits than that, or each message had none more.
    std::size_t elements = 0, short_ones = 0;
    bool near = true;
    for (const Reduced& tensor : reduction.tensors) {
      for (std::size_t i = 0; tensor.wrong && i < tensor.reduced->values.size(); ++i) {
        const double value = tensor.reduced->values[i];
        ++elements;
        short_ones += rounded_to(value, bits) == value || std::abs(value) < 6.2e-5;
        const double unit = std::ldexp(1.0, -bits) / reduction.cell().epsilon;
        near = near && std::abs(value - tensor.mean.values[i]) <= tensor.allowance[i] * unit + 6e-8;
      }
    }
    const bool result_is_short = near && elements >= 4 && short_ones == elements;
    const auto messages = [&](bool divided_first) {
      return explains(
          reduction,
          [&, divided_first, bits = bits](const Reduced& t, std::size_t i) {
            double sum = 0;
            for (const NamedTensor* local : t.local) {
              sum += divided_first ? rounded_to(local->values[i] / world, bits)
                                   : rounded_to(local->values[i], bits) / world;
            }
            return sum;
          },
          false);
    };
    if (!result_is_short && !messages(false) && !messages(true)) continue;
    return told("{} have the {} bits of a {} mantissa and lie within its rounding of the mean", of_tensors(reduction),
                bits, name);
  }
  return {};
}

/// Do all ranks hold one result in the wrong tensors, though each began with a gradient of its own?
bool hold_one_result(const CauseInputs& inputs, const Reduction& reduction) {
  return inputs.cell && std::ranges::all_of(reduction.tensors, [&](const Reduced& tensor) {
           return !tensor.wrong ||
                  (hashes_of(*inputs.cell, Phase::reduced_gradients, tensor.reduced->name).size() == 1 &&
                   hashes_of(*inputs.cell, Phase::local_gradients, tensor.reduced->name).size() > 1);
         });
}

/// A way of counting ranks' gradients: each so many times what it is in the reduction.
struct Counting {
  std::string code;
  double confidence = kExact;
  std::vector<double> times;  ///< by rank
  std::vector<double>
      before;        ///< by rank, of those of the step before, and of what was reduced there; empty: none
  std::string text;  ///< what the reduced gradients are
  int rank = -1;     ///< the one that counts otherwise

  /// What element i of the reduction would be.
  double operator()(const Reduced& tensor, std::size_t i, double share) const {
    double sum = 0;
    for (std::size_t rank = 0; rank < times.size(); ++rank) sum += times[rank] * tensor.local[rank]->values[i];
    for (std::size_t part = 0; part < before.size(); ++part) {
      if (before[part] == 0) continue;
      if (tensor.before.empty()) return std::nan("");
      sum += before[part] * tensor.before[part]->values[i] / (part < times.size() ? 1 : share);
    }
    return sum * share;
  }
};

/// All ranks by one factor, or one otherwise than the rest.
std::vector<Counting> countings_of(const CauseInputs& inputs, const Reduction& reduction) {
  const std::size_t ranks = reduction.world;
  const auto world = static_cast<double>(ranks);
  std::vector<Counting> all;
  const auto by_factor = [&](const char* code, double confidence, double factor, const std::string& why) {
    all.push_back({code,
                   confidence,
                   std::vector<double>(ranks, factor),
                   {},
                   fmt::format("{} times the {} of the local gradients{}", factor_text(factor, static_cast<int>(ranks)),
                               reduction.name(), why)});
  };
  by_factor("gradient-sum-not-mean", kExact, world, "");
  by_factor("mean-taken-twice", kExact, 1 / world, "");
  std::set<double> divisors = {2 * world, world + 1, static_cast<double>(inputs.cell_facts.rows_per_rank),
                               static_cast<double>(inputs.cell_facts.global_batch)};
  double rows = 0, micro_steps = static_cast<double>(reduction.cell().micro_steps);
  for (std::size_t rank = 0; inputs.cell && rank < inputs.cell->ranks.size(); ++rank) {
    const auto samples = records_of(inputs.cell->ranks[rank], Phase::samples);
    const auto own = static_cast<double>(samples.empty() ? 0 : samples.front()->ids.size());
    rows += own;
    if (rank == 0) divisors.insert({own, own / micro_steps});
  }
  divisors.insert({rows, rows / micro_steps});
  for (double group = 2; group < world; ++group) divisors.insert(group);
  for (const double divisor : divisors) {
    // Those have names of their own: the sum, the mean, and the mean of the mean.
    if (divisor < 2 || divisor == world || divisor == world * world || divisor != std::round(divisor)) continue;
    by_factor("divided-by-wrong-world", 0.9, world / divisor,
              fmt::format(": the sum over {} ranks was divided by {}", world, divisor));
  }
  const auto but_one = [&](const char* code, double rest, double own, double old, const char* how) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      Counting counting{code, kExact, std::vector<double>(ranks, rest), {}, "", reduction.cell().local_ranks.at(rank)};
      counting.times[rank] = own;
      if (old != 0) counting.before.resize(ranks, 0), counting.before[rank] = old;
      counting.text = fmt::format("the {} {}", reduction.name(), how);
      all.push_back(std::move(counting));
    }
  };
  but_one("rank-missing", 1, 0, 0, "without {}'s gradient");
  // With two ranks, a mean that lacks one rank looks the same as the other's gradient that was never reduced.
  if (ranks > 2 && !reduction.by_sum())
    but_one("rank-missing", world / (world - 1), 0, 0,
            "without {}'s gradient, divided by one less than the world size");
  for (std::size_t rank = 0; hold_one_result(inputs, reduction) && rank < ranks; ++rank) {
    Counting alone{"rank-missing",
                   kExact,
                   std::vector<double>(ranks, 0),
                   {},
                   fmt::format("on every rank the gradient of rank {} alone", reduction.cell().local_ranks.at(rank))};
    alone.times[rank] = 1 / reduction.share();
    all.push_back(std::move(alone));
  }
  but_one("rank-counted-twice", 1, 2, 0, "with {}'s gradient added twice");
  if (!reduction.evidence->cell_before) return all;
  const ForcedValues& before = *reduction.evidence->cell_before;
  but_one("stale-gradient", 1, 0, 1, "with {}'s gradient of the step before in the place of its own");
  all.push_back({"stale-gradient", kExact, std::vector<double>(ranks, 0), std::vector<double>(ranks, 1),
                 fmt::format("those of step {}, every rank's contribution", before.step)});
  for (const double kept : {1.0, clip_factor(inputs.cell_facts.clip_norm, reduced_norm(before))}) {
    Counting counting{"gradients-not-zeroed", kExact, std::vector<double>(ranks, 1), std::vector<double>(ranks + 1, 0),
                      fmt::format("the {} of the local gradients plus the reduced gradient of step {}",
                                  reduction.name(), before.step)};
    counting.before.back() = kept;
    all.push_back(std::move(counting));
  }
  return all;
}

/// The one way of counting that gives every wrong tensor. To few wrong numbers several ranks may fit by chance.
Answer counted_otherwise(const CauseInputs& inputs, const Reduction& reduction) {
  // Of two ranks that keep their own, either lacks the other's.
  if (keep_their_own(inputs, reduction)) return {};
  std::vector<Counting> fitting;
  for (Counting& counting : countings_of(inputs, reduction)) {
    const Prediction counted = [&](const Reduced& t, std::size_t i) { return counting(t, i, reduction.share()); };
    if (!explains(reduction, counted, false)) continue;
    // One factor on some tensors alone takes more than a few numbers.
    const bool one_factor = counting.rank < 0;
    if (one_factor && !explains(reduction, counted, true) && wrong_elements(reduction) < 4 * reduction.world) continue;
    fitting.push_back(std::move(counting));
  }
  std::vector<int> ranks;
  for (const Counting& each : fitting) {
    // Of so few wrong numbers two ways give them.
    if (each.code != fitting.front().code) return {};
    if (each.rank >= 0 && each.text == fitting.front().text) ranks.push_back(each.rank);
  }
  if (fitting.empty() || ranks.size() == reduction.world) return {};
  return of_rank(made(fitting.front().code, fitting.front().confidence, "{} are {}", of_tensors(reduction),
                      fmt::format(fmt::runtime(fitting.front().text), one_of(ranks))),
                 ranks);
}

/// All numbers together, the smallest first.
std::vector<double> in_order(const Reduction& reduction, const Prediction& of) {
  std::vector<double> all;
  for (const Reduced& tensor : reduction.tensors)
    for (std::size_t i = 0; i < tensor.reduced->values.size(); ++i) all.push_back(of(tensor, i));
  std::ranges::sort(all);
  return all;
}

/// A flat buffer of the step before, taken apart in this step's order: every number of it is there, elsewhere.
Answer stale_in_other_places(const Reduction& reduction) {
  if (std::ranges::any_of(reduction.tensors, [](const Reduced& each) { return each.before.empty(); })) return {};
  const std::vector<double> now = in_order(reduction,
                                           [](const Reduced& t, std::size_t i) { return t.reduced->values[i]; }),
                            before = in_order(
                                reduction, [](const Reduced& t, std::size_t i) { return t.before.back()->values[i]; }),
                            own = in_order(reduction, [&](const Reduced& t, std::size_t i) {
                              double sum = 0;
                              for (std::size_t rank = 0; rank < reduction.world; ++rank)
                                sum += t.before[rank]->values[i];
                              return sum * reduction.share();
                            });
  constexpr std::size_t kFew = 8;
  const double room = 64 * reduction.cell().epsilon * norm(now);
  if (now.size() < kFew || !(norm(now) > 0) || (distance(now, before) > room && distance(now, own) > room)) return {};
  return told("the {} numbers of all tensors are those of step {}, in other places: a buffer of the step before, in "
              "this step's order",
              now.size(), reduction.evidence->cell_before->step);
}

Answer buckets_swapped(const Reduction& reduction) {
  if (wrong_count(reduction) < 2) return {};
  std::string example;
  for (const Reduced& tensor : reduction.tensors) {
    if (!tensor.wrong) continue;
    const auto other = std::ranges::find_if(reduction.tensors, [&](const Reduced& each) {
      if (&each == &tensor || !each.wrong || each.mean.values.size() != tensor.mean.values.size()) return false;
      for (std::size_t i = 0; i < each.mean.values.size(); ++i)
        if (distance(each.mean.values[i], tensor.reduced->values[i]) > 2 * each.allowance[i]) return false;
      return true;
    });
    if (other == reduction.tensors.end()) return {};
    example = fmt::format("{} has the mean of {}", tensor.reduced->name, other->reduced->name);
  }
  return told("{} have each other's means: {}", of_tensors(reduction), example);
}

Answer message_corrupted(const Reduction& reduction) {
  if (wrong_count(reduction) != 1) return {};
  const auto wrong = std::ranges::find(reduction.tensors, true, &Reduced::wrong);
  std::vector<std::size_t> elements;
  for (std::size_t i = 0; i < wrong->allowance.size(); ++i) {
    if (distance(wrong->mean.values[i], wrong->reduced->values[i]) > wrong->allowance[i])
      elements.push_back(i);
  }
  if (elements.size() != 1) return {};
  const std::size_t at = elements.front();
  const WrongElement element{wrong->reduced->name,      at,
                             wrong->mean.values[at],    wrong->reduced->values[at],
                             wrong->allowance[at],      wrong->reduced->epsilon,
                             reduction.cell().is_wide()};
  std::set<int> ranks, bits;
  for (const FlippedBit& flip : flips_in_messages(element, reduction.cell().local)) {
    ranks.insert(flip.rank);
    bits.insert(flip.bit);
  }
  for (int bit = 0; bit < (element.wide ? 64 : 32); ++bit) {
    // The result may have been flipped where it arrived.
    const double turned = with_bit_turned(wrong->reduced->values[at], bit, element.wide);
    if (!(std::abs(turned - wrong->mean.values[at]) <= wrong->allowance[at])) continue;
    ranks.insert(0);
    bits.insert(bit);
  }
  // A tensor of one element is "one element" under any mistake: there only a bit that fits counts, and less than a mistake that fits: a
  // rank that is missing is a message of which one bit of the exponent leaves nothing.
  const bool alone = wrong->allowance.size() < 2;
  if (ranks.empty() && alone) return {};
  const std::string flip = ranks.empty() ? "no single bit of one rank's message explains it"
                                         : fmt::format("bit {} of the message of rank {} explains it",
                                                       fmt::join(bits, " or "), fmt::join(ranks, " or "));
  return told(ranks.empty() || alone ? kFits : 0.95,
              "only element {} of {} is not the mean of the local gradients{}: {}", at, wrong->reduced->name,
              reduction.bucket, flip);
}

/// Ranks hold different results of one reduction, and only one of them.
Answer one_rank_got_another_result(const CauseInputs& inputs) {
  // With two ranks, rank 0's result, which is kept, tells whose is wrong.
  const auto reduction = reduction_of(inputs);
  const bool first_is_right = reduction && wrong_count(*reduction) == 0;
  if (inputs.cell->ranks.size() == 2 && !first_is_right) return {};
  std::set<std::string> names;
  std::set<int> ranks;
  for (const Record* record : records_of(inputs.cell->ranks[0], Phase::reduced_gradients)) {
    const Holders holders = holders_of(*inputs.cell, *record, nullptr);
    if (!holders.parted()) continue;
    if (holders.groups.size() > 2 || holders.groups[0].size() != 1) return {};
    ranks.insert(inputs.cell->ranks.size() == 2 ? 1 : holders.groups[0][0]);
    names.insert(record->name);
  }
  if (ranks.size() != 1 || names.size() != 1) return {};
  return told("only rank {} has a different result of the reduction of {}", *ranks.begin(), *names.begin());
}

// What ranks give it is that of the step before, or nothing.

/// Ranks whose local gradients are, in every tensor, those of the step before.
Answer stale_local(const StepGradients& local) {
  if (!local.evidence->cell_before) return {};
  const auto &now = local.evidence->cell.local, &before = local.evidence->cell_before->local;
  if (before.size() != now.size()) return {};
  const auto stale = ranks_where(now.size(), [&](std::size_t rank) {
    return whole_norm(now[rank]) > 0 && std::ranges::all_of(now[rank], [&](const NamedTensor& tensor) {
             const NamedTensor* old = find_tensor(before[rank], tensor.name);
             return old && old->values == tensor.values;
           });
  });
  if (stale.empty()) return {};
  return told("rank {}: every local gradient equals that of step {} bit for bit", fmt::join(stale, ", "),
              local.evidence->cell_before->step);
}

Answer rank_without_gradient(const CauseInputs& inputs, const StepGradients& local) {
  if (!inputs.cell || local.world < 2 || rows_may_not_count(inputs)) return {};
  const auto& gradients = local.evidence->cell.local;
  const auto zero = ranks_where(gradients.size(), [&](std::size_t rank) {
    return !sample_ids(inputs.cell->ranks[rank]).empty() && whole_norm(gradients[rank]) == 0;
  });
  if (zero.size() != 1) return {};
  return told("rank {} has rows, but all its local gradients are 0", zero.front());
}

/// Is every gradient the reference's plus `old`?
bool adds(const StepGradients& local, const std::vector<NamedTensor>& old) {
  bool any = false;
  for (const TensorUse& use : local.evidence->local.tensors) {
    const NamedTensor* reference = find_tensor(local.evidence->reference.gradients, use.name);
    const NamedTensor *mean = find_tensor(local.mean, use.name), *before = find_tensor(old, use.name);
    if (!reference || !mean || !before || before->values.size() != mean->values.size()) return false;
    std::vector<double> sum = reference->values;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += before->values[i];
    if (!(distance(mean->values, sum) <= 3 * use.use.band)) return false;
    any = any || norm(before->values) > 16 * use.use.band;
  }
  return any;
}

Answer accumulated_before(const StepGradients& local) {
  if (!local.evidence->cell_before) return {};
  // What stays in a gradient after a step: the rank's own, the reduced one, or what clipping made of it.
  const ForcedValues& before = *local.evidence->cell_before;
  if (!adds(local, mean_of_local(before)) && !adds(local, before.gradients) && !adds(local, before.applied)) return {};
  return told("every gradient is the reference's plus that of step {}", before.step);
}

template <auto rule>
constexpr Rule of_reduction = given<reduction_of, rule>;

}  // namespace

std::span<const Hypothesis> reduction_hypotheses() {
  static constexpr Hypothesis kTable[] = {
      {"gradient-sum-not-mean mean-taken-twice divided-by-wrong-world rank-missing rank-counted-twice stale-gradient "
       "gradients-not-zeroed",
       kInReduced, kValues, kExact, of_reduction<counted_otherwise>},
      {"gradient-sum-not-mean mean-taken-twice", kInApplied, kValues, kExact, taken_by_another_count},
      {"gradient-sum-not-mean mean-taken-twice", kInApplied | kInNorm, kValues, kExact, some_reduced_again},
      {"divided-by-wrong-world", kInReduced, kValues, kExact, of_reduction<divided_by_elements>},
      {"gradient-over-world", kInReduced, kValues, kExact, of_reduction<copies_divided>},
      {"gradient-over-world", kInGradients, kLocal, kExact, gradients_over_world},
      {"stale-gradient", kInGradients, kLocal, kExact, of_local<stale_local>},
      {"stale-gradient", kInReduced, kValues | kBefore, kExact, of_reduction<stale_in_other_places>},
      {"rank-missing", kInGradients, kLocal, kFits, of_local<rank_without_gradient>},
      {"gradients-not-zeroed", kInGradients, kLocal, kExact, of_local<accumulated_before>},
      {"gradient-not-reduced", kInReduced, kValues, kExact, of_reduction<not_reduced<true>>},
      {"gradient-not-reduced", kInState | kInReduced, kRanks | kBefore, 0.95, no_gradient_reduced},
      {"parameter-not-reduced", kInReduced, kValues, kExact, of_reduction<not_reduced<false>>},
      {"clip-before-reduction", kInReduced, kValues | kClip, kExact, of_reduction<clip_before_reduction>},
      {"clip-before-reduction", kInLocal, kValues | kClip, kExact, clipped_between_micro_steps},
      {"wrong-reduction-op", kInReduced | in(Phase::collective), kValues, kExact, of_reduction<wrong_reduction_op>},
      {"reduced-in-low-precision", kInReduced, kValues, 0.95, of_reduction<reduced_in_low_precision>},
      {"buckets-swapped", kInReduced, kValues, kExact, of_reduction<buckets_swapped>},
      {"message-corrupted", kInReduced, kValues, kFits, of_reduction<message_corrupted>},
      {"message-corrupted", kInReduced, kReplicas | kRanks, kStrong, one_rank_got_another_result},
  };
  return kTable;
}

}  // namespace lockstep::causes
