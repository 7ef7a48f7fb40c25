#include "harness/judge/compare/led.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "harness/judge/compare/bits.h"
#include "harness/judge/compare/forced/update.h"
#include "harness/judge/compare/forced/values.h"
#include "harness/judge/compare/operations.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/judge/trace/rank_result.h"

namespace lockstep {
namespace {

/// In the order of a step.
constexpr const char* kItems[] = {"rows", "start weights", "loss",    "reduction", "gradients", "clip",
                                  "rate", "update",        "buffers", "replicas",  "norm",      "metrics"};

/// As good as rounding in float64.
constexpr double kRounding = LedBounds{}.same;
/// An element of a gradient below these shares of its tensor's largest and of all is nothing but rounding.
constexpr double kOfTensor = 1e-10, kOfAll = 1e-13;

/// How far the tensors of two runs lie apart.
struct Apart {
  double all = 0;                   ///< of all together, relative
  double worst = 0;                 ///< of one tensor, relative to its own size or a millionth of all
  std::string where;                ///< that tensor
  std::string form;                 ///< a tensor that one run lacks, or has in another shape: in words
  double factor = 1, residual = 0;  ///< run = factor * reference but for a share of `residual`
};

/// `among`: of the tensors that these have by name alone; null: of all.
Apart apart(const std::vector<NamedTensor>& expected, const std::vector<NamedTensor>& actual,
            const std::vector<NamedTensor>* among = nullptr) {
  Apart found;
  std::vector<const NamedTensor*> looked_at;
  double all = 0, off = 0, along = 0, own = 0;
  for (const NamedTensor& tensor : expected)
    if (!among || find_tensor(*among, tensor.name)) looked_at.push_back(&tensor);
  for (const NamedTensor* tensor : looked_at) all += std::pow(norm(tensor->values), 2);
  all = std::sqrt(all);
  for (const NamedTensor* each : looked_at) {
    const NamedTensor& tensor = *each;
    const NamedTensor* other = find_tensor(actual, tensor.name);
    if (!other && norm(tensor.values) <= kRounding * all) continue;  // none, or one of zeros
    if (!other || other->values.size() != tensor.values.size()) {
      found.form = fmt::format("{} {}", tensor.name, other ? "has another shape" : "has no gradient in the run");
      continue;
    }
    const double gap = distance(tensor.values, other->values), size = std::max(norm(tensor.values), 1e-6 * all);
    off += gap * gap;
    along += dot(tensor.values, other->values);
    own += dot(other->values, other->values);
    // Within rounding of all gradients together nothing is said of a single one.
    const double share = gap <= kRounding * all ? 0 : size > 0 ? gap / size : kInfinity;
    if (share > found.worst || !std::isfinite(share)) found.worst = share, found.where = tensor.name;
  }
  found.all = all > 0 ? std::sqrt(off) / all : off > 0 ? kInfinity : 0;
  found.factor = all > 0 ? along / (all * all) : 1;
  found.residual = own > 0 ? std::sqrt(std::max(0.0, 1 - along * along / (all * all * own))) : 0;
  return found;
}

/// How far it lies from the reference's, by its size.
double share_of(double expected, double actual) {
  return distance(expected, actual) / std::max(std::abs(expected == 0 ? actual : expected), 1e-30);
}

/// Distances up to `same` count as none, beyond `different` as a difference.
struct Allowance {
  double same, different;
};

/// Takes in what a step shows of the item. True: it is equal.
bool add(LedItem& item, int64_t step, double apart, const std::string& where, const std::string& words,
         Allowance allowance) {
  ++item.steps;
  if (apart <= allowance.same) {
    if (item.state == Mark::none) item.state = Mark::same;
    return true;
  }
  const Mark state = apart <= allowance.different ? Mark::undecided : Mark::different;
  if (item.state != Mark::different && (item.state != state || item.first < 0))
    item.state = state, item.first = step, item.where = where, item.text = words;
  return false;
}

std::string factor_text(const Apart& apart) {
  const std::string off = fmt::format("{:.3g} % off", 100 * apart.all);
  if (apart.residual < 1e-9 && std::abs(apart.factor - 1) > LedBounds{}.different)
    return fmt::format("{}: {} times the reference's", off, short_number(apart.factor));
  return apart.where.empty() ? off : fmt::format("{}, most in {}", off, apart.where);
}

// Steps.

/// Tensors of that phase by name, of the first rank that holds each: ranks may hold parameters of their own.
std::vector<NamedTensor> of_all_ranks(const StepOfRun& step, Phase phase) {
  std::vector<NamedTensor> found;
  std::set<std::string> seen;
  for (const StepRecords& rank : step.ranks) {
    for (const Record* record : records_of(rank, phase)) {
      if (seen.contains(record->name)) continue;
      if (auto tensor = whole_tensor(*record)) seen.insert(record->name), found.push_back(std::move(*tensor));
    }
  }
  return found;
}

/// A step's values. Where nothing is recorded between a backward pass and the optimizer, what that takes stands for the
/// gradients.
ForcedValues values_of(const StepOfRun& step, const std::string& dir) {
  const bool keeps = keeps_gradients(step);
  ForcedValues values;
  if (keeps) values = forced_values(step, dir, scores_of(nullptr));
  values.step = step.step;
  values.applied = of_all_ranks(step, Phase::applied_gradients);
  values.parameters = of_all_ranks(step, Phase::parameters);
  values.optimizer_state = of_all_ranks(step, Phase::optimizer_state);
  if (keeps) return values;
  values.gradients = values.applied;
  values.loss = mean_loss(step);
  return values;
}

int64_t micro_steps_of(const ForcedValues& values) {
  std::set<std::string> parts;
  if (!values.parts.empty())
    for (const GradientPart& each : values.parts.front())
      if (each.part.starts_with("micro ")) parts.insert(each.part);
  return std::max<int64_t>(1, std::ssize(parts));
}

struct Pair {
  const StepOfRun &a, &b;
  ForcedValues values_a, values_b;
};

class LedJudge {
 public:
  LedJudge(const std::string& reference, const std::string& run, LedBounds bounds)
      : reference_(reference), run_(run), bounds_(bounds), pairs_(reference, run) {
    for (const char* name : kItems) items_.push_back({.name = name});
  }

  LedFindings judge() {
    const ProbeReport reference = read_probe_report(reference_, 0), run = read_probe_report(run_, 0);
    const std::set<int64_t> led(run.led.begin(), run.led.end());
    LedFindings found;
    found.problem = run.led_problem;
    for (const ProbeReport* each : {&reference, &run}) {
      found.narrow.insert(found.narrow.end(), each->narrow.begin(), each->narrow.end());
      for (const auto& [step, names] : each->narrow_gradients) narrow_[step].insert(names.begin(), names.end());
    }
    while (pairs_.next()) {
      if (pairs_.step_a().step < 0 || !led.contains(pairs_.step_a().step) ||
          records_of(pairs_.step_a().ranks[0], Phase::snapshot).empty())
        continue;
      found.steps.push_back(step());
    }
    changed_after();
    start();
    rows(std::ssize(found.steps));
    for (const auto& [step, names] : narrow_)
      for (const std::string& name : names) found.narrow.push_back(fmt::format("{} (step {})", name, step));
    found.items = std::move(items_);
    found.micro_steps = micro_steps_;
    return found;
  }

 private:
  LedItem& item(const std::string& name) { return *std::ranges::find(items_, name, &LedItem::name); }

  Allowance beyond(double same) const { return {std::max(same, bounds_.same), bounds_.different}; }
  /// A difference of a tensor that is narrow decides nothing.
  Allowance of_tensor(int64_t step, const std::string& where) const {
    const auto found = narrow_.find(step);
    const bool narrow = found != narrow_.end() && (found->second.contains(where) || where.empty());
    return {bounds_.same, narrow ? kInfinity : bounds_.different};
  }

  LedStep step() {
    const Pair at{pairs_.step_a(), pairs_.step_b(), values_of(pairs_.step_a(), reference_),
                  values_of(pairs_.step_b(), run_)};
    LedStep found;
    found.step = at.a.step;
    reduction(at);
    const bool gradients_agree = gradients(at, found);
    loss(at, found, gradients_agree);
    const bool applied_agree = gradients_agree && clip(at);
    const bool rates_agree = scalars(at, "rate", Phase::control, {LedBounds{}.same, LedBounds{}.different});
    if (applied_agree && rates_agree && update(at)) buffers(at);
    replicas(at);
    if (at.b.declared && !at.b.declared->replicas.empty())
      row_takers_ = static_cast<int>(at.b.declared->replicas.front().size());
    micro_steps_ = std::max(micro_steps_, micro_steps_of(at.values_b) / micro_steps_of(at.values_a));
    if (gradients_agree) {
      scalars(at, "norm", Phase::gradient_norm, beyond(1e-9));
      scalars(at, "metrics", Phase::evaluation, beyond(1e-9));
    }
    return found;
  }

  /// What both recorded as numbers, on any rank. True: all agree.
  bool scalars(const Pair& at, const std::string& name, Phase phase, Allowance allowance) {
    bool agree = true;
    const bool is_rate = phase == Phase::control, several = at.b.ranks.size() > 1;
    for (const Record* expected : records_of(at.a.ranks[0], phase)) {
      if (!expected->is_scalar || (is_rate && expected->name.find("scale") != std::string::npos)) continue;
      for (std::size_t rank = 0; rank < at.b.ranks.size(); ++rank) {
        const Record* actual = find_record(at.b.ranks[rank], phase, expected->name);
        if (!actual || !actual->is_scalar) continue;
        const std::string on = is_rate && (!several || rank == 0) ? "" : fmt::format(" on rank {}", rank);
        const std::string words =
            fmt::format("{} {} → {}{}", expected->name, short_number(expected->value), short_number(actual->value), on);
        agree &= add(item(name), at.a.step, share_of(expected->value, actual->value), expected->name, words, allowance);
      }
    }
    return agree;
  }

  /// Do ranks that hold a parameter alike take other gradients of it?
  static bool stay_apart(const StepOfRun& step, const std::string& name) {
    return hashes_of(step, Phase::snapshot, name).size() == 1 && hashes_of(step, Phase::applied_gradients, name).size() == step.ranks.size();
  }

  /// Is what every rank takes of that parameter, which all hold alike, its own gradient?
  static bool keeps_own(const StepOfRun& step, const std::string& name) {
    return each_keeps_its_own(step, name) && hashes_of(step, Phase::snapshot, name).size() == 1 &&
           hashes_of(step, Phase::local_gradients, name).size() > 1;
  }

  void reduction(const Pair& at) {
    if (at.values_b.local.size() < 2) return;
    const std::vector<NamedTensor> means = mean_of_local(at.values_b);
    const Apart mean = apart(means, at.values_b.gradients);
    LedItem& own = item("reduction");
    if (!mean.form.empty() || own.state == Mark::different) return;
    if (!(mean.residual < 1e-7)) {
      // Scaled by hand, it is the rank's own still.
      const bool all_own = apart(at.values_b.local[0], at.values_b.gradients).residual < 1e-7 &&
                           std::ranges::all_of(means, [&](const NamedTensor& each) { return stay_apart(at.b, each.name); });
      std::vector<NamedTensor> reduced;
      for (const NamedTensor& each : means)
        if (!all_own && !keeps_own(at.b, each.name)) reduced.push_back(each);
      const std::size_t kept = means.size() - reduced.size();
      if (const Apart rest = apart(reduced, at.values_b.gradients); !rest.form.empty() || rest.residual > 1e-7) return;
      if (kept == 0) return;
      own.state = Mark::different;
      own.first = at.a.step;
      own.code = kept == means.size() ? "gradient-not-reduced" : "parameter-not-reduced";
      own.text = fmt::format("{} of {} tensors are each rank's own at step {}", kept, means.size(), at.a.step);
      return;
    }
    const auto ranks = static_cast<double>(at.values_b.local.size());
    own.state = Mark::same;
    ++own.steps;
    const double factor = at.values_b.reduced_by_sum ? mean.factor * ranks : mean.factor;
    own.text = std::abs(factor - 1) < 1e-9 ? "mean of the ranks' gradients"
               : std::abs(factor - ranks) < 1e-9
                   ? "sum of the ranks' gradients"
                   : fmt::format("{} times the mean of the ranks' gradients", short_number(factor));
  }

  /// Then what they clipped was alike, whatever was recorded before somebody scaled it.
  static bool clip_by_one_norm(const Pair& at) {
    const Record* a = find_record(at.a.ranks[0], Phase::gradient_norm, "gradient_norm");
    const Record* b = find_record(at.b.ranks[0], Phase::gradient_norm, "gradient_norm");
    return a && b && a->is_scalar && b->is_scalar && a->value > 0 && distance(a->value, b->value) < 1e-9 * a->value;
  }

  /// Does the reference scale what it takes by a number of its own? What is clipped has one norm in all steps.
  bool scales_by_hand() {
    if (scales_by_hand_) return *scales_by_hand_;
    std::vector<double> norms;
    for (StepPairs pairs(reference_, run_); pairs.next();) {
      const ForcedValues values = values_of(pairs.step_a(), reference_);
      const Apart own = apart(values.gradients, values.applied, &values.applied);
      if (values.applied.empty() || own.residual > 1e-6 || std::abs(own.factor - 1) < 1e-6) continue;
      double square = 0;
      for (const NamedTensor& each : values.applied) square += dot(each.values, each.values);
      norms.push_back(std::sqrt(square));
    }
    const auto [least, most] = std::ranges::minmax_element(norms);
    scales_by_hand_ = norms.size() > 1 && *most - *least > 1e-6 * *most;
    return *scales_by_hand_;
  }

  bool gradients(const Pair& at, LedStep& found) {
    if (at.values_a.gradients.empty() || at.values_b.gradients.empty())
      return true;  // an optimizer that calls for them itself: its updates show them
    const auto& taken_a = at.values_a.applied.empty() ? at.values_a.gradients : at.values_a.applied;
    const auto& taken_b = at.values_b.applied.empty() ? at.values_b.gradients : at.values_b.applied;
    const Apart taken = apart(taken_a, taken_b);
    // What the optimizers do not take is another model's, or a later step's.
    const Apart told = apart(at.values_a.gradients, at.values_b.gradients, &taken_a);
    found.gradients = told.all;
    found.applied = taken.all;
    double off = std::max(told.worst, told.form.empty() ? 0 : kInfinity);
    if (off > bounds_.same && taken.worst <= bounds_.same && taken.form.empty()) {
      // Who reduces by hand, or evaluates several times, takes other gradients than those recorded before; who clips
      // takes these, scaled: then clipping hides the difference.
      const Apart own_a = apart(at.values_a.gradients, taken_a, &taken_a),
                  own_b = apart(at.values_b.gradients, taken_b, &taken_b);
      // Of who clips by hand only what is taken may be known.
      const bool is_taken = (own_a.all <= bounds_.same) != (own_b.all <= bounds_.same);
      if (!told.form.empty() || is_taken || own_a.residual > 1e-6 || own_b.residual > 1e-6 || clip_by_one_norm(at) || scales_by_hand())
        off = 0, found.gradients = taken.all;
    }
    return add(item("gradients"), at.a.step, off, told.where, told.form.empty() ? factor_text(told) : told.form,
               of_tensor(at.a.step, told.where));
  }

  void loss(const Pair& at, LedStep& found, bool gradients_agree) {
    if (!at.values_a.loss || !at.values_b.loss) return;
    found.expected_loss = *at.values_a.loss;
    found.loss = *at.values_b.loss;
    const double gap = share_of(found.expected_loss, found.loss);
    LedItem& own = item("loss");
    if (gradients_agree && gap > bounds_.same) {
      own.steps++;
      if (own.state == Mark::none) own.state = Mark::same;
      own.text = "each rank's is a share of its own; gradients agree";
      return;
    }
    add(own, at.a.step, gap, "", fmt::format("{} → {}", short_number(found.expected_loss), short_number(found.loss)),
        beyond(0));
  }

  bool clip(const Pair& at) {
    if (at.values_a.applied.empty() || at.values_b.applied.empty()) return true;
    const Apart taken = apart(at.values_a.applied, at.values_b.applied),
                there = apart(at.values_a.gradients, at.values_a.applied);
    const bool clips = there.residual < 1e-6 && there.factor < 0.999;
    const bool agree = add(item("clip"), at.a.step, taken.form.empty() ? taken.worst : kInfinity, taken.where,
                           taken.form.empty() ? "what the optimizer takes is " + factor_text(taken) : taken.form,
                           of_tensor(at.a.step, taken.where));
    // By another norm it would have clipped otherwise before.
    if (!agree && item("clip").first == at.a.step && clips && clipped_ &&
        apart(at.values_b.gradients, at.values_b.applied).all <= bounds_.same)
      item("clip").code = "clip-missing";
    clipped_ = clipped_ || (agree && clips);
    return agree;
  }

  /// The tensor of several that lies furthest from the reference's.
  struct Furthest {
    double share = 0;
    std::string where;

    /// By its change from `before`, else by its size, over the elements that `counts` takes; within rounding of itself
    /// not at all.
    void look(const NamedTensor& expected, const NamedTensor* actual, const NamedTensor* before = nullptr,
              const std::function<bool(std::size_t)>& counts = nullptr) {
      if (!actual || actual->values.size() != expected.values.size()) return;
      double off = 0, change = 0, size = 0;
      for (std::size_t i = 0; i < expected.values.size(); ++i) {
        if (counts && !counts(i)) continue;
        off += std::pow(distance(expected.values[i], actual->values[i]), 2);
        size += expected.values[i] * expected.values[i];
        if (before && before->values.size() == expected.values.size())
          change += std::pow(expected.values[i] - before->values[i], 2);
      }
      const double base = std::sqrt(before ? change : size), gap = std::sqrt(off);
      if (gap <= 1e-14 * std::sqrt(size)) return;
      const double own = base > 0 ? gap / base : kInfinity;
      if (own > share) share = own, where = expected.name;
    }
  };

  bool update(const Pair& at) {
    const KnownState began = state_before(at.a, pairs_.before_a());
    if (!began) return true;
    const auto& taken = at.values_a.applied.empty() ? at.values_a.gradients : at.values_a.applied;
    const double all = whole_norm(taken);
    Furthest worst;
    /// Elements that a gradient moves: what follows from rounding alone is left out.
    const auto look = [&](const NamedTensor& expected, const NamedTensor* actual, const NamedTensor* before,
                          const std::string& parameter) {
      const NamedTensor* gradient = find_tensor(taken, parameter);
      if (!gradient || gradient->values.size() != expected.values.size()) return worst.look(expected, actual, before);
      const double least = std::max(kOfTensor * largest_of(gradient->values), kOfAll * all);
      worst.look(expected, actual, before, [&](std::size_t i) { return std::abs(gradient->values[i]) > least; });
    };
    for (const NamedTensor& expected : at.values_a.parameters)
      if (!is_buffer(expected.name))
        look(expected, find_tensor(at.values_b.parameters, expected.name), find_tensor(began->tensors, expected.name),
             expected.name);
    for (const NamedTensor& expected : at.values_a.optimizer_state) {
      const std::size_t slash = expected.name.find('/');
      look(expected, find_tensor(at.values_b.optimizer_state, expected.name), nullptr,
           slash == std::string::npos ? "" : expected.name.substr(slash + 1));
    }
    for (const Record* expected : records_of(at.a.ranks[0], Phase::averaged_weights)) {
      const auto of_a = whole_tensor(*expected), of_b = whole_tensor(find_record(at.b.ranks[0], expected->phase, expected->name));
      if (of_a && of_b) worst.look({"average/" + of_a->name, of_a->shape, of_a->values}, &*of_b);
    }
    return add(item("update"), at.a.step, worst.share, worst.where,
               fmt::format("{:.3g} % off in {}, from the same gradients", 100 * worst.share, worst.where),
               {std::max(1e-6, bounds_.same), 10 * bounds_.different});
  }

  void buffers(const Pair& at) {
    Furthest worst;
    for (const NamedTensor& expected : at.values_a.parameters)
      if (is_buffer(expected.name))
        worst.look(expected, find_tensor(at.values_b.parameters, expected.name));
    const std::string name = worst.where.substr(worst.where.find('/') + 1);
    LedItem& own = item("buffers");
    add(own, at.a.step, worst.share, name, fmt::format("{} {:.3g} % off", name, 100 * worst.share), beyond(1e-10));
    if (own.state == Mark::different && own.first == at.a.step && own.code.empty() && are_each_ranks_own(at))
      own.code = "buffers-not-synchronised";
  }

  /// Do several ranks end the step with buffers that are neither the reference's nor the other ranks'?
  static bool are_each_ranks_own(const Pair& at) {
    const auto is_own = [&](const StepRecords& rank, const NamedTensor& expected) {
      if (!is_buffer(expected.name) || hashes_of(at.b, Phase::parameters, expected.name).size() < 2) return false;
      const auto values = values_of(find_record(rank, Phase::parameters, expected.name));
      return values && values->size() == expected.values.size() && distance(*values, expected.values) > 1e-6 * norm(expected.values);
    };
    return std::ranges::count_if(at.b.ranks, [&](const StepRecords& rank) {
             return std::ranges::any_of(at.values_a.parameters, [&](const auto& each) { return is_own(rank, each); });
           }) > 1;
  }

  /// Do all ranks end the step with the same parameters?
  void replicas(const Pair& at) {
    if (at.b.ranks.size() < 2) return;
    StepOfRun alike = at.b;  // but for parts that no placement tells
    for (StepRecords& rank : alike.ranks)
      std::erase_if(rank.records, [&](const Record& each) {
        return hashes_of(at.a, Phase::snapshot, each.name).size() > 1 || hashes_of(at.a, Phase::parameters, each.name).size() > 1;
      });
    // Who takes another gradient may yet have the same weights, sent by their owner.
    const auto drift = replica_drift(alike, &at.a, Phase::parameters);
    LedItem& own = item("replicas");
    double apart = 0;
    const auto values = [&](const StepRecords& rank) {
      return drift ? values_of(find_record(rank, drift->phase, drift->name)) : std::nullopt;
    };
    const auto first = values(at.b.ranks[0]);
    for (const StepRecords& rank : at.b.ranks) {
      const auto other = values(rank);
      if (first && other && first->size() == other->size() && norm(*first) > 0)
        apart = std::max(apart, distance(*first, *other) / norm(*first));
    }
    const bool was_different = own.state == Mark::different;
    add(own, at.a.step, apart, drift ? drift->name : "", drift ? drift->sentence : "", {1e-9, 1e-9});
    if (own.state == Mark::different && !was_different && drift) own.rank = drift->rank;
  }

  /// What the program made of buffers and averages once a step's update was made: a queue, running statistics.
  void changed_after() {
    std::map<std::pair<int64_t, std::string>, std::set<double>> by_rank;
    for (int rank = 0; rank < pairs_.b().world_size(); ++rank) {
      const ProbeReport report = read_probe_report(run_, rank);
      for (const auto& [step, tensors] : report.changed_after) {
        for (const auto& [name, off] : tensors) {
          add(item("buffers"), step, off, name,
              fmt::format("{} {:.3g} % off on rank {}, changed after the update{}", name, 100 * off, rank,
                          average_text(report, step)),
              beyond(1e-10));
          by_rank[{step, name}].insert(off);
        }
      }
    }
    LedItem& own = item("buffers");
    if (own.state != Mark::different || !by_rank.contains({own.first, own.where})) return;
    if (!is_buffer(own.where)) {
      own.code = "average-of-weights-differs";
    } else if (std::ranges::any_of(by_rank, [&](const auto& each) {
                 return each.first.first == own.first && each.second.size() > 1;
               })) {
      own.code = "buffers-not-synchronised";
    }
  }

  /// "; it has 0.512 of the average before it, the reference's 0.8: as if made 3 times"; empty where that is not known.
  static std::string average_text(const ProbeReport& report, int64_t step) {
    const auto at = report.averaged.find(step);
    if (at == report.averaged.end() || at->second.size() != 2 || at->second[0].empty() || at->second[1].empty()) return "";
    const double expected = at->second[0][0], actual = at->second[1][0];
    const double times = expected > 0 && expected < 1 && actual > 0 ? std::log(actual) / std::log(expected) : 0;
    const bool whole = times > 1.5 && std::abs(times - std::round(times)) < 1e-3;
    return fmt::format("; it has {} of the average before it, the reference's {}{}", short_number(actual),
                       short_number(expected), whole ? fmt::format(": as if made {:.0f} times", times) : "");
  }

  /// What the run's own start was before anything was laid in.
  void start() {
    LedItem& own = item("start weights");
    std::vector<std::map<std::string, double>> starts;
    for (int rank = 0; rank < pairs_.b().world_size(); ++rank) {
      const ProbeReport report = read_probe_report(run_, rank);
      if (!report.led.empty()) starts.push_back(report.other_start);
      if (!report.led.empty() && rank != static_cast<int>(starts.size()) - 1) return;
    }
    if (starts.empty()) return;
    own.steps = 1;
    own.state = Mark::same;
    const auto other = std::ranges::find_if(starts, [&](const auto& start) {
      return std::ranges::any_of(start, [&](const auto& each) { return each.second > bounds_.different; });
    });
    if (other == starts.end()) return;
    const auto most = std::ranges::max_element(*other, {}, [](const auto& each) { return each.second; });
    own.where = most->first;
    if (std::ranges::all_of(starts, [&](const auto& start) { return start == starts.front(); })) {
      // A program that sets no seed begins otherwise each time.
      own.text = fmt::format("others than the reference's, alike on all ranks: is a seed set? ({})", most->first);
      return;
    }
    own.state = Mark::different;
    own.first = 0;
    const auto count = std::ranges::count_if(starts, [](const auto& start) { return !start.empty(); });
    if (count == 1) own.rank = static_cast<int>(other - starts.begin());
    own.code = is_buffer(most->first) ? "buffers-not-synchronised" : "initial-weights-differ";
    own.text = fmt::format("{} with another {}, {:.3g} % off",
                           count == 1 ? fmt::format("rank {} begins", own.rank) : "ranks begin", most->first,
                           100 * most->second);
  }

  void rows(int64_t steps) {
    const int takers = row_takers_ > 0 ? row_takers_ : pairs_.b().world_size();
    judge_rows({reference_, pairs_.a().world_size()}, {run_, pairs_.b().world_size()}, takers, steps, item("rows"));
  }

  std::string reference_, run_;
  LedBounds bounds_;
  StepPairs pairs_;
  std::vector<LedItem> items_;
  std::map<int64_t, std::set<std::string>> narrow_;
  bool clipped_ = false;  ///< at a step before, alike
  std::optional<bool> scales_by_hand_;
  int row_takers_ = 0;  ///< ranks that share out a step's rows, where others hold one model with them; 0: all
  int64_t micro_steps_ = 1;  ///< see LedFindings
};

const LedItem* earliest(const std::vector<LedItem>& items, Mark state) {
  const LedItem* first = nullptr;
  for (const LedItem& item : items)
    if (item.state == state && (!first || item.first < first->first)) first = &item;
  return first;
}

}  // namespace

const LedItem* LedFindings::different() const {
  const LedItem* first = earliest(items, Mark::different);
  // A loss may be that of what an optimizer has updated in the step.
  for (const LedItem& each : items)
    if (first && first->name == "loss" && each.name == "reduction" && each.first == first->first) return &each;
  return first;
}
const LedItem* LedFindings::undecided() const { return earliest(items, Mark::undecided); }

LedFindings judge_led(const std::string& reference, const std::string& run, LedBounds bounds) {
  return LedJudge(reference, run, bounds).judge();
}

std::vector<LedStep> led_steps(const std::string& reference, const std::string& run) {
  StepPairs pairs(reference, run);
  std::vector<LedStep> steps;
  while (pairs.next()) {
    if (pairs.step_a().step < 0) continue;
    const ForcedValues a = values_of(pairs.step_a(), reference), b = values_of(pairs.step_b(), run);
    LedStep step{.step = a.step};
    if (a.loss && b.loss) step.expected_loss = *a.loss, step.loss = *b.loss;
    if (!a.gradients.empty() && !b.gradients.empty()) step.gradients = apart(a.gradients, b.gradients).all;
    step.applied = a.applied.empty() || b.applied.empty() ? step.gradients : apart(a.applied, b.applied).all;
    steps.push_back(step);
  }
  return steps;
}

namespace {

class Explains {
 public:
  explicit Explains(const OtherwiseInputs& inputs) : inputs_(inputs), pairs_(inputs.reference, inputs.run) {
    ranks_ = pairs_.b().world_size();
    const LedItem* different = inputs.found.different();
    item_ = different ? different->name : "";
    step_ = different ? different->first : 0;
    while (pairs_.next()) look(pairs_.step_a(), pairs_.step_b(), different && pairs_.step_a().step == step_);
  }

  std::optional<Otherwise> explain() {
    using Tried = OtherwiseInputs::Tried;
    if (inputs_.tried == Tried::first && item_ == "rate" && ranks_ > 1) return schedule();
    const bool of_values = item_ == "gradients" || item_ == "loss" || item_ == "buffers" || item_ == "clip";
    if (!of_values) return std::nullopt;
    if (inputs_.tried == Tried::norm) return norm_ && ranks_ > pairs_.a().world_size() ? norm() : std::nullopt;
    if (inputs_.tried == Tried::first && item_ == "loss") return operations();
    if (inputs_.tried == Tried::first)
      return gathers_ && !weighted_ && item_ != "buffers" && pairs_.a().world_size() == 1 ? gradients() : std::nullopt;
    return item_ == "loss" ? std::nullopt : operations();
  }

 private:
  void look(const StepOfRun& a, const StepOfRun& b, bool differs) {
    for (const Record& record : a.ranks[0].records) norm_ = norm_ || record.name.ends_with("running_mean");
    for (const Record& record : b.ranks[0].records)
      gathers_ = gathers_ || (record.phase == Phase::collective && record.collective.op == "all_gather");
    if (!differs || !keeps_gradients(a) || !keeps_gradients(b)) return;
    const ForcedValues of_a = forced_values(a, inputs_.reference, scores_of(nullptr)), of_b = forced_values(b, inputs_.run, scores_of(nullptr));
    const std::vector<WeighedTensor> tensors = weighed_tensors(of_a.gradients, of_b.local);
    constexpr double kNone = 1e-8;
    weighted_ = !of_b.local.empty() && tensors.size() == of_a.gradients.size() && weigh(tensors, of_b.epsilon).residual < kNone;
  }

  /// Does the run agree with the reference if these variables are set for one of them?
  std::optional<Otherwise> agrees(const OtherRun& other) {
    const std::optional<std::string> made = inputs_.make(other);
    if (!made) return std::nullopt;
    last_ = *made;
    LedFindings found = other.of_reference ? judge_led(*made, inputs_.run) : judge_led(inputs_.reference, *made);
    if (found.different() || found.undecided() || found.steps.size() != inputs_.found.steps.size()) return std::nullopt;
    return Otherwise{"", "", std::move(found)};
  }

  static std::optional<Otherwise> named(std::optional<Otherwise> found, const std::string& code, const std::string& because) {
    if (found) found->code = code, found->because = because;
    return found;
  }

  std::optional<Otherwise> norm() {
    return named(agrees({"reference-by-ranks", true, fmt::format("NORM_PARTS={}", ranks_ / pairs_.a().world_size())}), "batch-norm-local",
                 fmt::format("The whole difference is each rank's own BatchNorm statistics: all else is the same (the "
                             "reference with statistics by {}' rows agrees).",
                             counted(ranks_, "rank")));
  }

  std::optional<Otherwise> gradients() {
    auto found = agrees({"run-gather-gradients", false, "GATHER=gradients"});
    if (!found) return found;
    const std::vector<std::string> seen = read_probe_report(last_, 0).gathers;
    constexpr std::pair<const char*, const char*> kCodes[] = {
        {"detached", "candidates-detached"},    {"put back", "gather-own-slice"},   {"without", "gather-without-gradient"},
        {"sliced", "gather-backward-sliced"}, {"averaged", "gather-averaged"}, {"other", "gather-backward-sliced"}};
    for (const auto& [kind, code] : kCodes)
      if (std::ranges::find(seen, kind) != seen.end())
        return named(std::move(found), code,
                     "The whole difference is the gradient of what is gathered: with gathers whose backward pass sums over "
                     "ranks the run agrees.");
    return std::nullopt;
  }

  std::optional<Otherwise> schedule() {
    auto found = agrees({"run-schedule-once", false, "SCHEDULE=once"});
    if (!found) return found;
    std::vector<std::string> seen = read_probe_report(last_, 0).gathers;
    std::erase_if(seen, [](const std::string& each) { return !each.ends_with(" a step"); });
    // As many micro-steps as ranks: it may follow either.
    const bool by_ranks = seen == std::vector{fmt::format("{} a step", ranks_)} && inputs_.found.micro_steps != ranks_;
    return named(std::move(found), by_ranks ? "scheduler-stepped-per-rank" : "rate-differs",
                 fmt::format("The whole difference is that the schedule is stepped more than once an update ({}): "
                             "stepped once, the run agrees.",
                             join_words(seen)));
  }

  /// The operation at which the two part.
  std::optional<Otherwise> operations() {
    std::vector<Operations> of[2];
    for (const bool of_reference : {true, false}) {
      const auto made = inputs_.make({of_reference ? "reference-operations" : "run-operations", of_reference, fmt::format("OPERATIONS={}", step_)});
      if (!made) return std::nullopt;
      for (int rank = 0; rank < (of_reference ? pairs_.a().world_size() : ranks_); ++rank) of[of_reference ? 0 : 1].push_back(read_operations(*made, rank));
    }
    const std::optional<Parting> found = find_parting(of[0], of[1]);
    if (!found) return std::nullopt;
    return Otherwise{found->code, found->because, {}, found->other_rows};
  }

  const OtherwiseInputs& inputs_;
  StepPairs pairs_;
  std::string item_, last_;
  int ranks_ = 1;
  int64_t step_ = 0;
  bool norm_ = false, gathers_ = false;
  bool weighted_ = false;  ///< the reference's gradient is a weighted sum of the ranks' own: rows are not coupled
};

}  // namespace

std::optional<Otherwise> explain_otherwise(const OtherwiseInputs& inputs) { return Explains(inputs).explain(); }

}  // namespace lockstep
