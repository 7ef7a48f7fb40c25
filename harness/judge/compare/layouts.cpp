#include "harness/judge/compare/compared.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include <fmt/format.h>

#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "harness/judge/compare/bits.h"
#include "harness/judge/compare/forced/update.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/judge/trace/record.h"

namespace lockstep {
namespace {

/// Where one step's rounding may reach this share it says nothing any more.
constexpr double kUselessBound = 0.1;
const std::vector<ForcedValues> kNoRepeats;

double total_norm(const StepOfRun& step, Phase phase) {
  double squares = 0;
  for (const Record* record : records_of(step.ranks[0], phase))
    squares += record->stats.norm * record->stats.norm;
  return std::sqrt(squares);
}

/// A step that both runs began with the same parameters and of which the traces keep statistics alone.
class BoundedStep {
 public:
  BoundedStep(const StepOfRun& a, const StepOfRun& b, const ScoreSpec& scores, double bound, Compared& compared)
      : a_(a), b_(b), scores_(scores), record_(scores.record), bound_(bound), compared_(compared) {}

  /// Phase by phase: the first difference that rounding does not explain. `ours`: see
  /// StepRules::loss_is_differentiated.
  std::optional<Difference> first(bool ours) {
    for (auto part :
         {&BoundedStep::scores, &BoundedStep::loss, &BoundedStep::gradients, &BoundedStep::gradient_norm}) {
      const Compared compared = compared_;
      const double used = used_;
      auto found = (this->*part)();
      if (!found) continue;
      if (ours || !is_of_one_rank(found->phase)) return passed_ ? std::move(passed_) : std::move(found);
      compared_ = compared;
      used_ = used;
      if (!passed_) passed_ = std::move(found);
    }
    // Whose loss is one factor of the reference's may report it otherwise, as its gradients would tell.
    return compared_gradients_ || (passed_ && passed_->phase == Phase::loss && is_reported_otherwise()) ? std::nullopt : std::move(passed_);
  }
  double used() const { return used_; }
  /// What single ranks recorded otherwise although the reduced gradients agree; see is_of_one_rank.
  const std::optional<Difference>& passed() const { return passed_; }

 private:
  /// Nothing if |expected - actual| <= bound * size; counts how much of the bound it takes.
  std::optional<Difference> within(Phase phase, const std::string& where, double expected, double actual,
                                   double size) {
    const double gap = distance(expected, actual);
    compared_.add(*kind_of(phase), a_.step);
    const double share = gap == 0 ? 0 : size > 0 && std::isfinite(gap) ? gap / (bound_ * size) : kInfinity;
    if (share <= 1) {
      used_ = std::max(used_, share);
      return std::nullopt;
    }
    used_ = share;
    const bool of_parts = phase == Phase::scores || phase == Phase::loss;  // of ranks, merged
    Difference found = difference_at(b_, phase, of_parts ? kRankUnknown : kAllRanks, where, DivergenceKind::band,
                                     exact_number(expected), exact_number(actual));
    found.relative = std::isfinite(gap) ? share : kInfinity;
    found.divergence.sentence.pop_back();
    found.divergence.sentence += fmt::format(
        ", which is {} times the estimated rounding tolerance (not measured).", short_number(share));
    return found;
  }

  double merged_norm(const StepOfRun& step) const {
    double squares = 0;
    for (const StepRecords& rank : step.ranks) {
      const Record* scores = find_record(rank, Phase::scores, record_);
      if (!scores || !scores->has_stats || scores->stats.nonfinite > 0) return -1;
      squares += scores->stats.norm * scores->stats.norm;
    }
    return std::sqrt(squares);
  }

  std::optional<Difference> scores() {
    if (auto found = columns()) return found;
    const double norm_a = merged_norm(a_), norm_b = merged_norm(b_);
    if (norm_a < 0 || norm_b < 0) return std::nullopt;
    return within(Phase::scores, record_ + " (norm)", norm_a, norm_b, norm_a);
  }

 public:
  /// Their number is no matter of rounding, nor of parameters.
  std::optional<Difference> columns() const {
    const int world_size = static_cast<int>(b_.ranks.size());
    const int64_t expected = columns_of(a_.ranks[0], record_);
    if (expected < 0) return std::nullopt;
    std::vector<int> wrong;
    int64_t found = expected;
    for (int rank = 0; rank < world_size; ++rank) {
      const int64_t actual = columns_of(b_.ranks[static_cast<std::size_t>(rank)], record_);
      if (actual == expected || actual < 0) continue;
      if (wrong.empty()) found = actual;
      wrong.push_back(rank);
    }
    if (wrong.empty()) return std::nullopt;
    return columns_difference(scores_, b_, expected, found, first_or_all(wrong, b_));
  }

 private:
  std::optional<Difference> loss() {
    const std::optional<double> expected = mean_loss(a_), actual = mean_loss(b_);
    if (!expected || !actual) return std::nullopt;
    return within(Phase::loss, "loss (mean over ranks)", *expected, *actual,
                  std::max(1.0, std::abs(*expected)));
  }

  /// Are the ranks' losses shares of the reference's, or sums, or means of rows that not all ranks have equally many
  /// of?
  bool is_reported_otherwise() const {
    constexpr double kAlike = 1e-5;
    const std::optional<double> expected = mean_loss(a_), found = mean_loss(b_);
    double rows = 0, weighted = 0;
    for (const StepRecords& rank : b_.ranks) {
      for (const Record* record : records_of(rank, Phase::samples)) {
        rows += static_cast<double>(record->ids.size());
        weighted += static_cast<double>(record->ids.size()) * find_record(rank, Phase::loss, "loss")->value;
      }
    }
    const auto ranks = static_cast<double>(b_.ranks.size());
    const auto is = [&](double value) { return distance(*expected, value) <= kAlike * std::abs(*expected); };
    return is(*found * ranks) || is(*found / ranks) || (rows > 0 && (is(weighted / rows) || is(*found / rows * ranks) || is(*found * rows / ranks)));
  }

  /// By norm and by the largest and smallest element: a turned sign leaves every norm as it was.
  std::optional<Difference> gradients() {
    // Against the whole gradient: the noise of a bias whose terms cancel is large against the bias's own
    // norm.
    // Who keeps sums in tensors of its own shows what its optimizer took alone.
    const auto lacks_reduced = [](const StepOfRun& step) { return records_of(step.ranks[0], Phase::reduced_gradients).empty(); };
    const Phase phase = lacks_reduced(a_) || lacks_reduced(b_) ? Phase::applied_gradients : Phase::reduced_gradients;
    const double size = total_norm(a_, phase);
    std::optional<Difference> worst;
    double most = 1;
    if (records_of(b_.ranks[0], phase).empty()) return std::nullopt;
    for (const Record* record : records_of(a_.ranks[0], phase)) {
      const Record* other = nullptr;  // of a rank that has it: stages of a pipeline differ
      for (const StepRecords& rank : b_.ranks) other = other ? other : find_record(rank, phase, record->name);
      if (!other) {
        return difference_at(b_, phase, 0, record->name, DivergenceKind::missing, "a gradient", "nothing");
      }
      if (is_in_shards(*record, *other) || is_as_taken(*record, *other)) continue;
      compared_gradients_ = true;
      if (record->stats.hash == other->stats.hash) compared_.add(Looked::reduced_gradients, a_.step);
      if (record->stats.hash == other->stats.hash || !record->has_stats || !other->has_stats) continue;
      const TensorStats &x = record->stats, &y = other->stats;
      for (const auto& [what, expected, actual] :
           {std::tuple{"norm", x.norm, y.norm}, {"smallest", x.min, y.min}, {"largest", x.max, y.max}}) {
        auto found = within(phase, fmt::format("{} ({})", record->name, what), expected,
                            actual, size);
        if (!found || used_ <= most) continue;
        most = used_;
        worst = std::move(found);
      }
    }
    if (worst) used_ = most;
    return worst;
  }

  /// What B's tracer calls reduced is what the optimizer took, and the reference has worked on it in between.
  bool is_as_taken(const Record& of_a, const Record& of_b) const {
    const auto is_taken = [](const StepOfRun& step, const Record& record) {
      const Record* applied = find_record(step.ranks[0], Phase::applied_gradients, record.name);
      return !applied || applied->stats.hash == record.stats.hash;
    };
    return is_taken(b_, of_b) && !is_taken(a_, of_a) && records_of(a_.ranks[0], Phase::gradient_norm).empty();
  }

  std::optional<Difference> gradient_norm() {
    for (const Record* record : records_of(a_.ranks[0], Phase::gradient_norm)) {
      const Record* other = find_record(b_.ranks[0], Phase::gradient_norm, record->name);
      if (!other || !record->is_scalar) continue;
      if (auto found = within(Phase::gradient_norm, record->name, record->value, other->value,
                              std::abs(record->value))) {
        return found;
      }
    }
    return std::nullopt;
  }

  const StepOfRun &a_, &b_;
  const ScoreSpec& scores_;
  std::string record_;  ///< their name
  double bound_;
  Compared& compared_;
  double used_ = 0;
  bool compared_gradients_ = false;
  std::optional<Difference> passed_;
};

/// One number that both runs record at each step: how far they come apart where it is not judged.
class Course {
 public:
  explicit Course(std::string name) : name_(std::move(name)) {}

  void add(int64_t step, std::optional<double> expected, std::optional<double> actual) {
    if (!expected || !actual || !std::isfinite(*expected) || !std::isfinite(*actual)) return;
    size_ = seen_ == 0 ? std::abs(*expected) : size_ + (std::abs(*expected) - size_) / static_cast<double>(seen_ + 1);
    ++seen_;
    const double size = std::max(std::abs(*expected), size_), gap = size > 0 ? distance(*expected, *actual) / size : 0;
    if (gap > apart_) apart_ = gap, at_ = step;
  }

  /// "losses by up to 2 % (step 5)"; empty where no step has it.
  std::string text() const { return at_ < 0 ? "" : fmt::format("{} by up to {:.2g} % (step {})", name_, 100 * apart_, at_); }

 private:
  std::string name_;
  double size_ = 0, apart_ = 0;
  int64_t seen_ = 0, at_ = -1;
};

/// Is the reduced gradient nearer to the sum of the ranks' own than to their mean?
bool seems_summed(const ForcedValues& values) {
  const auto ranks = static_cast<double>(values.local.size());
  if (values.reduced_by_sum || values.local.size() < 2) return values.reduced_by_sum;
  double along = 0, size = 0;
  const std::vector<NamedTensor> mean = mean_of_local(values);
  for (const NamedTensor& reduced : values.gradients) {
    const NamedTensor* own = find_tensor(mean, reduced.name);
    if (!own || own->values.size() != reduced.values.size()) continue;
    along += dot(own->values, reduced.values);
    size += dot(own->values, own->values);
  }
  return size > 0 && std::abs(along / size - ranks) < std::abs(along / size - 1);
}

/// Two free runs of different layouts, step by step.
class FreeLayouts {
 public:
  FreeLayouts(StepPairs& pairs, const CompareOptions& options)
      : pairs_(pairs),
        explains_(options.explains),
        rules_(rules_of(pairs.a(), pairs.b(), options.configs())),
        scores_(rules_.scores()),
        epsilon_(working_epsilon(rules_.reference_facts, std::numeric_limits<float>::epsilon())) {
    const ProbeReport report = rules_.ours() ? ProbeReport() : read_probe_report(pairs.b().dir(), 0);
    if (report.led_problem.empty()) led_ = {report.led.begin(), report.led.end()};
  }

  Comparison compare() {
    std::optional<CauseInputs> around;
    while (!around && pairs_.next()) {
      const StepOfRun &a = pairs_.step_a(), &b = pairs_.step_b();
      if (pairs_.after_gap()) parameters_.lost();
      parameters_.before(a, b);
      if (reordered_ < 0 && rows_reordered(a, b)) reordered_ = a.step;
      around = first_at_step();
      parameters_.after(a, b);
      if (!around) around = found_at_step(averages_difference({a, pointer_to(pairs_.before_a())}, {b, pointer_to(pairs_.before_b())}));
      if (!around) around = found_at_step(evaluations_.differ(a, b, parameters_.hold(), epsilon_));
    }
    Comparison compared;
    Mechanism& result = compared.mechanism;
    result.band_used = used_;
    result.compared_steps = pairs_.compared();
    result.facts = facts(around ? std::optional(around->difference.divergence) : std::nullopt);
    if (around) {
      complete(*around);
      compared = parted_at(*std::move(around), pairs_, rules_, std::move(result));
    } else {
      result.verdict = led_decides() ? VerdictKind::within_envelope : VerdictKind::inconclusive;
      result.sentence = open_sentence() + gaps_sentence(pairs_.gaps());
    }
    if (result.verdict == VerdictKind::inconclusive && led_at_all()) result.decide = pairs_.judging_both();
    if (reordered_ >= 0 && pairs_.same_layout()) {
      result.sentence += fmt::format(" From step {} on the rows are in another order, so the runs are compared as two layouts.", reordered_);
    }
    return compared;
  }

 private:
  /// The first difference of the step at which the pairs are, with what is known around it.
  std::optional<CauseInputs> first_at_step() {
    const StepOfRun &a = pairs_.step_a(), &b = pairs_.step_b();
    const bool is_step = a.step >= 0;
    // Runs that begin with the same later step come from somewhere else: nothing says that it is the same place.
    const bool known = !parameters_.assumed() || a.step == 0;
    const bool drew = is_step && !rules_.ours() && forward_draws_differ(a, b);
    if (drew) ++drawn_steps_;
    const bool equal = is_step && !drew && known && parameters_.hold() && rounding_bound(0, epsilon_) <= kUselessBound;
    const bool whole = is_step && keeps_gradients(a) && keeps_gradients(b);
    if (led_.contains(a.step)) led_open_ += equal ? 0 : 1;
    if (is_step && !drew && !equal) {
      losses_.add(a.step, mean_loss(a), mean_loss(b));
      gradients_.add(a.step, gradient_size(a), gradient_size(b));
    }
    if (equal && whole) {
      std::optional<CauseInputs> differing = by_values(a, b);
      return differing ? std::move(differing) : found_at_step(moved_buffer());
    }
    // Where nothing is compared with the reference, the run's own numbers show how its ranks' gradients are joined.
    const bool unjudged = drew || rounding_bound(0, epsilon_) > kUselessBound;
    if (whole && unjudged && !rules_.ours() && !reduced_by_sum_) reduced_by_sum_ = seems_summed(forced_values(b, pairs_.b().dir(), scores_));
    OwnFindings own = own_findings(a, b, pointer_to(pairs_.before_b()), true, rules_.ours(), &exact_, pointer_to(pairs_.before_a()));
    std::optional<Difference> found = std::move(own.difference);
    if (is_step && (!found || !is_exact(found->phase))) {
      // Nothing lies before an exact phase; a finding in the ledger or the replicas may come after these.
      BoundedStep bounded(a, b, scores_, rounding_bound(0, epsilon_), equal_);
      keep_earlier(found, equal ? bounded.first(rules_.ours()) : bounded.columns());
      keep_earlier(found, number_of_one_run(a, b));
      if (!passed_) passed_ = bounded.passed();
      if (equal) judged(a.step, bounded.used());
    }
    const bool joins = whole && !rules_.ours() && joins_updates(a, pointer_to(pairs_.before_a()), b, pointer_to(pairs_.before_b()));
    if (whole && reduced_by_sum_ && !joins) {
      std::optional<CauseInputs> shown = judge_own_step(values_at(a, b, own_), rules_, *reduced_by_sum_, of_local_);
      if (shown && !takes_reduced_ && shown->difference.phase == Phase::applied_gradients) shown.reset();
      if (shown && (!found || earlier(shown->difference, *found))) return shown;
      if (shown && shown->difference.phase == found->phase) {
        // Replicas have parted in the very values that are wrong: which rank is told, and from what.
        shown->difference = *found;
        return shown;
      }
    }
    if (is_step) keep_earlier(found, moved_buffer());
    if (!found && whole && is_step && !equal && !drew) {
      if (auto explained = by_near_values(a, b)) return explained;
    }
    if (!found) return std::nullopt;
    CauseInputs inputs = inputs_of(*found, a, b);
    if (found->phase == Phase::collective) inputs.ledger = own.ledger;
    return inputs;
  }

  /// Something that no gradient moves, large enough to move in every step or in none: an average of weights, a queue,
  /// running statistics.
  bool moves_by_itself(const Record& record) const {
    constexpr int64_t kLarge = 8;
    if (record.is_scalar || !is_floating(record.dtype) || elements_of(record.shape) < kLarge) return false;
    return is_buffer(record.name) || !find_record(pairs_.step_a().ranks[0], Phase::reduced_gradients, record.name);
  }

  /// A buffer that the reference left as it was in this step, such as a frozen BatchNorm's statistics, and a rank of
  /// the run did not; or what moves by itself in the reference, and stands still on a rank of the run.
  std::optional<Difference> moved_buffer() const {
    const auto &before_a = pairs_.before_a(), &before_b = pairs_.before_b();
    const StepOfRun &a = pairs_.step_a(), &b = pairs_.step_b();
    // A led run's buffers are laid in anew as a step begins.
    if (rules_.ours() || led_.contains(b.step) || !before_a || !before_b || before_a->step != a.step - 1 || before_b->step != b.step - 1)
      return std::nullopt;
    const auto hash = [](const StepRecords& rank, const std::string& name) {
      const Record* record = find_record(rank, Phase::parameters, name);
      return record ? std::optional(record->stats.hash) : std::nullopt;
    };
    for (const Record* record : records_of(a.ranks[0], Phase::parameters)) {
      const auto was_in_a = hash(before_a->ranks[0], record->name);
      const bool stands_still = was_in_a == record->stats.hash;
      if (!was_in_a || !(stands_still ? is_buffer(record->name) : moves_by_itself(*record))) continue;
      const auto others = ranks_where<int>(std::min(b.ranks.size(), before_b->ranks.size()), [&](std::size_t rank) {
        const auto was = hash(before_b->ranks[rank], record->name), is = hash(b.ranks[rank], record->name);
        return was && is && (*was == *is) != stands_still;
      });
      if (others.empty()) continue;
      const char *none = kNoChange, *some = "a change";
      return difference_at(b, Phase::parameters, others.size() == 1 ? others.front() : kAllRanks, record->name,
                           others.size() == 1 ? DivergenceKind::replica : DivergenceKind::value,
                           stands_still ? none : some, stands_still ? some : none);
    }
    return std::nullopt;
  }

  EqualStep values_at(const StepOfRun& a, const StepOfRun& b, Compared& compared) const {
    return {a, pairs_.a().dir(), b, pairs_.b().dir(), pairs_.before_b(), kNoRepeats, state_before(a, pairs_.before_a()),
            state_before(b, pairs_.before_b()), true, true, nullptr, nullptr, &compared, pointer_to(pairs_.before_a())};
  }

  std::optional<CauseInputs> by_values(const StepOfRun& a, const StepOfRun& b) {
    JudgedStep step = judge_equal_step(values_at(a, b, equal_), rules_);
    exact_.add_exact(a, b);
    judged(a.step, step.at.band_used);
    reduced_by_sum_ = step.reduced_by_sum;
    of_local_ = of_local_ && !step.local_passed();
    for (const Difference& each : step.passed) {
      takes_reduced_ &= each.phase != Phase::reduced_gradients && each.phase != Phase::applied_gradients;
    }
    if (!passed_ && !step.passed.empty()) passed_ = step.passed.front();
    return std::move(step.first);
  }

  /// A step that both begin nearly alike: a difference far beyond what that, and the differences so far, can make of it
  /// is one if a cause explains it. Nothing is said once the runs have come further apart.
  std::optional<CauseInputs> by_near_values(const StepOfRun& a, const StepOfRun& b) {
    constexpr double kSensitivity = 100, kMost = 5e-3;
    if (!explains_ || apart_ || (rules_.ours() && scores_.taken)) return std::nullopt;
    const EqualStep step = values_at(a, b, near_);
    const auto begins = relative_distance(step.state, step.cell_state);
    const double allowed = kSensitivity * std::max({begins.value_or(1), last_gap_, epsilon_});
    if (!(allowed <= kMost)) {
      apart_ = true;
      return std::nullopt;
    }
    StepRules rules = rules_;
    rules.band.floor = allowed / epsilon_;
    JudgedStep judged = judge_equal_step(step, rules);
    const double size = total_norm(a, Phase::reduced_gradients);
    for (const GradientSignature& group : judged.at.groups) {
      if (group.group == "all") last_gap_ = size > 0 ? std::max(last_gap_, group.difference / size) : 1;
    }
    if (!judged.first) return std::nullopt;
    apart_ = true;
    CauseInputs inputs = *judged.first;
    complete(inputs);
    if (!explains_(inputs)) return std::nullopt;
    inputs.difference.divergence.sentence +=
        fmt::format(" The two begin this step {} apart, by their size, which explains no more than {} of it.", short_number(*begins), short_number(allowed));
    return inputs;
  }

  std::optional<CauseInputs> found_at_step(const std::optional<Difference>& found) const {
    return found ? std::optional(inputs_of(*found, pairs_.step_a(), pairs_.step_b())) : std::nullopt;
  }

  void judged(int64_t step, double used) {
    used_ = std::max(used_, used);
    if (judged_steps_ == 0) assumed_ = parameters_.assumed();
    ++judged_steps_;
    last_judged_ = step;
  }

  static std::optional<double> gradient_size(const StepOfRun& step) {
    if (const Record* norm = find_record(step.ranks[0], Phase::gradient_norm, "gradient_norm")) return norm->value;
    const double size = total_norm(step, Phase::reduced_gradients);
    return size > 0 ? std::optional(size) : std::nullopt;
  }

  /// With what pairs and configs tell of the step.
  void complete(CauseInputs& inputs) const {
    CauseInputs all = inputs_at(pairs_, inputs.difference);
    all.forced = std::move(inputs.forced);
    all.ledger = std::move(inputs.ledger);
    inputs = std::move(all);
    rules_.tell(inputs);
  }

  std::vector<Fact> facts(const std::optional<Divergence>& first) const {
    Compared all = exact_;
    all.add(equal_);
    all.add(own_);
    std::vector<Fact> facts = all.facts(pairs_.compared(), first);
    if (first) return facts;
    // What nothing was seen of is undecided too.
    for (const Looked kind : {Looked::samples, Looked::loss, Looked::reduced_gradients, Looked::updates})
      if (const std::string name = all.lacking({kind}); !name.empty() && std::ranges::find(facts, name, &Fact::name) == facts.end())
        facts.push_back({Mark::none, name, "not compared"});
    evaluations_.tell(facts);
    return facts;
  }

  bool led_at_all() const { return judged_steps_ > 0 && !led_.empty() && led_open_ == 0; }
  /// A run that its reference leads is judged at the steps that it was led at.
  bool led_decides() const { return led_at_all() && pairs_.missing_end().empty(); }

  /// What steps that can be judged show, and why others were not; where the comparison ended.
  std::string open_sentence() const {
    const int64_t compared = pairs_.compared();
    const std::string ends = pairs_.ends();
    if (compared == 0) {
      return fmt::format("Nothing could be compared: {}.",
                         ends.empty() ? "both traces end before the first step" : ends);
    }
    std::string text;
    if (drawn_steps_ > 0) {
      text += fmt::format(" Losses and gradients of {} were not compared: forward passes take random numbers there (dropout, sampling), and rows "
                          "of another layout get others.", counted(drawn_steps_, "step"));
    } else if (judged_steps_ < compared) {
      text += unjudged_text();
    }
    if (judged_steps_ > 0) {
      text += fmt::format(
          " {}, which both begin with the same parameters{}, {} within rounding ({:.2g} % of the tolerance used; estimated, not measured).",
          judged_steps_ == 1 ? fmt::format("Step {}", last_judged_)
                             : fmt::format("{} up to step {}", counted(judged_steps_, "step"), last_judged_),
          assumed_ ? " (the traces do not show it)" : "", judged_steps_ == 1 ? "lies" : "lie", 100 * used_);
    }
    text += passed_text(passed_);
    if (!ends.empty()) text += fmt::format(" Compared up to the end of the shorter trace: {}.", ends);
    if (const std::string missing = pairs_.missing_end(); !missing.empty() && missing != ends) text += fmt::format(" {}.", missing);
    return text.substr(text.starts_with(' '));
  }

  std::string unjudged_text() const {
    const std::string what = (rules_.ours() ? fmt::format("{}, ", scores_.record) : "") + "losses, gradients";
    std::string text =
        rounding_bound(0, epsilon_) > kUselessBound
            ? fmt::format(" Not judged are {}: rounding in their precision has no useful bound", what)
            : fmt::format(" {} parameters are not the same bit for bit, and {} and updates were not judged{}: a "
                          "mistake in them would not be seen",
                          judged_steps_ == 0 ? "The runs'" : fmt::format("After step {} their", last_judged_), what,
                          own_.facts(1).empty() ? "" : " against the reference's");
    std::vector<std::string> apart;
    for (const Course* course : {&losses_, &gradients_}) {
      if (!course->text().empty()) apart.push_back(course->text());
    }
    if (!apart.empty()) text += fmt::format("; they differ in {}", join_words(apart));
    return text + ".";
  }

  StepPairs& pairs_;
  const std::function<bool(const CauseInputs&)> explains_;
  const StepRules rules_;
  const ScoreSpec& scores_;
  int64_t drawn_steps_ = 0;  ///< whose forward passes took random numbers
  std::set<int64_t> led_;  ///< steps at which run B was led by its reference
  int64_t led_open_ = 0;   ///< and that did not begin with the reference's bits all the same
  double epsilon_;
  EqualParameters parameters_;
  Course losses_{"losses"}, gradients_{"gradient norms"};
  double last_gap_ = 0;  ///< largest relative difference of gradients at steps that began nearly alike
  bool apart_ = false;   ///< the runs have come too far apart to be compared by values
  mutable Compared near_;
  Compared exact_, equal_, own_;  ///< of all steps; of those from equal parameters; of others, by themselves
  Evaluations evaluations_;
  double used_ = 0;
  int64_t judged_steps_ = 0, last_judged_ = -1, reordered_ = -1;
  bool assumed_ = false;
  std::optional<bool> reduced_by_sum_;  ///< of run B; nothing: no step has shown it
  bool of_local_ = true;                ///< are the recorded local gradients what is reduced?
  bool takes_reduced_ = true;           ///< are reduced ones taken?
  std::optional<Difference> passed_;    ///< the first, see JudgedStep
};

}  // namespace

Difference columns_difference(const ScoreSpec& scores, const StepOfRun& run, int64_t expected, int64_t actual,
                              int rank) {
  const std::string column(scores.column);
  const int64_t missing = expected - actual;
  Difference found = difference_at(run, Phase::scores, rank, std::string(scores.record), DivergenceKind::missing,
                                   counted(expected - scores.own_columns, column) + " a row",
                                   counted(actual - scores.own_columns, column) + " a row");
  if (missing > 0) found.divergence.actual += fmt::format(" ({} missing)", missing);
  found.divergence.sentence = fmt::format("They first differ at step {}, {}, {}: {} of {} a row.", run.step,
                                          name_of(Phase::scores), rank_text(rank, static_cast<int>(run.ranks.size())),
                                          counted(actual - scores.own_columns, column), expected - scores.own_columns);
  return found;
}

Comparison compare_layouts(StepPairs& pairs, const CompareOptions& options) {
  return FreeLayouts(pairs, options).compare();
}

}  // namespace lockstep
