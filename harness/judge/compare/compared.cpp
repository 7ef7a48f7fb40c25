#include "harness/judge/compare/compared.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "harness/judge/compare/bits.h"
#include "harness/judge/trace/record.h"

namespace lockstep {
namespace {

/// What is said of each kind, in their order, and whose records it is.
struct KindOfEvidence {
  std::string_view words;
  std::optional<Phase> phase = {};
};
constexpr std::array<KindOfEvidence, kLookedKinds> kKinds = {{
    {"samples", Phase::samples},
    {"random streams", Phase::random},
    {"control values", Phase::control},
    {"collectives", Phase::collective},
    {"collectives among the run's ranks"},
    {"energies", Phase::scores},
    {"loss", Phase::loss},
    {"local gradients", Phase::local_gradients},
    {"reduction"},
    {"reduced gradients", Phase::reduced_gradients},
    {"gradient norm", Phase::gradient_norm},
    {"norm"},
    {"applied gradients", Phase::applied_gradients},
    {"clip"},
    {"update"},
    {"parameters", Phase::parameters},
    {"optimizer state", Phase::optimizer_state},
    {"buffers"},
    {"replicas"},
    {"evaluation", Phase::evaluation},
}};

std::set<Phase> phases_of(const StepOfRun& step) {
  std::set<Phase> phases;
  for (const StepRecords& rank : step.ranks) {
    const Record* before = nullptr;  // ranks record phase after phase
    for (const Record& record : rank.records) {
      if (before == nullptr || before->phase != record.phase) phases.insert(record.phase);
      before = &record;
    }
  }
  return phases;
}

std::set<std::string> tags_of(const StepRecords& rank) {
  std::set<std::string> tags;
  for (const Record* record : records_of(rank, Phase::collective)) tags.insert(record->collective.op + record->collective.tag);
  return tags;
}

}  // namespace

std::optional<Looked> kind_of(Phase phase) {
  const auto found = std::ranges::find(kKinds, phase, &KindOfEvidence::phase);
  return found == kKinds.end() ? std::nullopt : std::optional(static_cast<Looked>(found - kKinds.begin()));
}

void Compared::add(Looked kind, int64_t step) {
  Count& count = counts_[static_cast<std::size_t>(kind)];
  if (step <= count.last) return;
  count.last = step;
  ++count.steps;
}

void Compared::add(const Compared& other) {
  for (std::size_t i = 0; i < kLookedKinds; ++i) {
    counts_[i].steps += other.counts_[i].steps;
    counts_[i].last = std::max(counts_[i].last, other.counts_[i].last);
  }
  for (const auto& [key, steps] : other.alone_) alone_[key] += steps;
}

std::vector<Fact> Compared::facts(int64_t all, const std::optional<Divergence>& first, std::string_view step) const {
  std::vector<Fact> facts;
  bool before = first && std::ranges::find(kKinds, first->phase, &KindOfEvidence::words) != kKinds.end();
  if (first) all = std::ranges::max(counts_, {}, &Count::steps).steps;
  for (std::size_t k = 0; k < kLookedKinds; ++k) {
    const auto kind = static_cast<Looked>(k);
    const std::string name(kKinds[k].words);
    before = before && name != first->phase;
    const int64_t last = counts_[k].last;
    const bool beyond = first && last > first->step;
    // Of later steps, which some comparisons go on to, nothing is said.
    const int64_t compared = beyond && !before ? 0 : std::min(steps(kind), all) - (first && !before && last == first->step ? 1 : 0);
    if (compared > 0) {
      const bool whole = beyond || (compared == all && step == "step");
      const std::string of_all = counted(all, step);
      facts.push_back({Mark::same, name, whole ? "" : compared < all ? fmt::format("{} of {}", compared, of_all) : of_all});
    }
    for (const bool is_a : {true, false})
      if (compared <= 0 && !first && alone_.contains({is_a, kind})) facts.push_back({Mark::none, name, fmt::format("only the {} recorded it", is_a ? "reference" : "run")});
  }
  return facts;
}

std::string Compared::lacking(std::initializer_list<Looked> kinds) const {
  std::vector<std::string> texts;
  for (const Looked kind : kinds) {
    if (steps(kind) == 0) texts.emplace_back(kKinds[static_cast<std::size_t>(kind)].words);
  }
  return join_words(texts);
}

void Compared::add_alone(const std::set<Phase>& of_a, const std::set<Phase>& of_b) {
  for (const auto& [own, other, is_a] : {std::tuple{&of_a, &of_b, true}, {&of_b, &of_a, false}}) {
    for (const Phase phase : *own) {
      const auto kind = lockstep::kind_of(phase);
      if (kind && kind != Looked::collectives && kind != Looked::evaluation && !other->contains(phase)) ++alone_[{is_a, *kind}];
    }
  }
}

void Compared::add_exact(const StepOfRun& a, const StepOfRun& b) {
  const std::set<Phase> of_a = phases_of(a), of_b = phases_of(b);
  for (const Phase phase : {Phase::samples, Phase::random, Phase::control}) {
    if (of_a.contains(phase) && of_b.contains(phase)) add(*kind_of(phase), b.step);
  }
  add_ledger(a, b);
  add_replicas(b);
  if (b.step >= 0) add_alone(of_a, of_b);
}

void Compared::add_ledger(const StepOfRun& a, const StepOfRun& b) {
  const std::set<std::string> of_b = tags_of(b.ranks[0]);
  if (of_b.empty() || b.ranks.size() == 1 || is_updated_by_some(b)) return;  // one process exchanges nothing
  const std::set<std::string> of_a = tags_of(a.ranks[0]);
  const bool both = std::ranges::any_of(of_b, [&](const std::string& tag) { return of_a.contains(tag); });
  if (both) add(Looked::collectives, b.step);
  else if (b.ranks.size() > 1) add(Looked::own_collectives, b.step);
}

void Compared::add_replicas(const StepOfRun& b) {
  if (b.ranks.size() < 2) return;
  const auto is_held_alike = [&](const Record& mine) {
    return mine.replicated && find_record(b.ranks[1], mine.phase, mine.name) != nullptr;
  };
  if (std::ranges::any_of(b.ranks[0].records, is_held_alike)) add(Looked::replicas, b.step);
}

void Compared::add_bits(const StepOfRun& a, const StepOfRun& b) {
  const std::set<Phase> of_a = phases_of(a), of_b = phases_of(b);
  for (const Phase phase : of_a) {
    const auto kind = kind_of(phase);
    if (kind && of_b.contains(phase)) add(*kind, b.step);
  }
  if (b.step >= 0) add_alone(of_a, of_b);
}

void EqualParameters::look(Phase phase, const StepOfRun& a, const StepOfRun& b) {
  std::size_t seen = 0;
  bool equal = true;
  for (const Record* record : records_of(a.ranks[0], phase)) {
    const Record* other = find_record(b.ranks[0], phase, record->name);
    if (!other || is_in_shards(*record, *other)) continue;
    ++seen;
    equal = equal && other->stats.hash == record->stats.hash;
  }
  equal_ = equal && seen > 0;
}

void EqualParameters::after(const StepOfRun& a, const StepOfRun& b) {
  assumed_ = false;
  if (!equal_ && !lost_) return;
  look(Phase::parameters, a, b);
  lost_ = false;
}

void EqualParameters::before(const StepOfRun& a, const StepOfRun& b) {
  if (records_of(a.ranks[0], Phase::snapshot).empty() || records_of(b.ranks[0], Phase::snapshot).empty()) return;
  look(Phase::snapshot, a, b);
  assumed_ = lost_ = false;
}

/// Values of one metric by sample, of all ranks.
static std::map<int64_t, std::vector<double>> evaluated_rows(const StepOfRun& step, const std::string& name) {
  std::map<int64_t, std::vector<double>> rows;
  for (const SampleRow& row : sample_rows(step, Phase::evaluation, name))
    if (row.values.size() == 1) rows[row.id].push_back(row.values.front());
  return rows;
}

/// Do both runs have a metric by samples?
static bool evaluated_rows_of_both(const StepOfRun& a, const StepOfRun& b) {
  return std::ranges::any_of(records_of(a.ranks[0], Phase::evaluation), [&](const Record* record) {
    return !record->is_scalar && !evaluated_rows(a, record->name).empty() && !evaluated_rows(b, record->name).empty();
  });
}

std::optional<Difference> evaluated_rows_differ(const StepOfRun& a, const StepOfRun& b, bool equal, double epsilon) {
  std::set<std::string> names;
  for (const Record* record : records_of(a.ranks[0], Phase::evaluation)) {
    if (!record->is_scalar && !record->ids.empty()) names.insert(record->name);
  }
  for (const std::string& name : names) {
    const auto expected = evaluated_rows(a, name), actual = evaluated_rows(b, name);
    if (expected.empty() || actual.empty()) continue;
    std::set<int64_t> ids;
    for (const auto* rows : {&expected, &actual}) {
      for (const auto& each : *rows) ids.insert(each.first);
    }
    for (const int64_t id : ids) {
      const auto of_a = expected.find(id), of_b = actual.find(id);
      const std::size_t times_a = of_a == expected.end() ? 0 : of_a->second.size(), times_b = of_b == actual.end() ? 0 : of_b->second.size();
      if (times_a != times_b) {
        return difference_at(b, Phase::evaluation, kRankUnknown, name, DivergenceKind::missing,
                             fmt::format("sample {} {}", id, counted(static_cast<int64_t>(times_a), "time")),
                             counted(static_cast<int64_t>(times_b), "time"));
      }
      const double gap = distance(of_a->second.front(), of_b->second.front());
      if (!equal || gap <= rounding_bound(0, epsilon) * std::max(1.0, std::abs(of_a->second.front()))) continue;
      return difference_at(b, Phase::evaluation, kRankUnknown, fmt::format("{}, sample {}", name, id),
                           DivergenceKind::value, exact_number(of_a->second.front()),
                           exact_number(of_b->second.front()));
    }
  }
  return std::nullopt;
}

static std::vector<double> numbers_of(const StepOfRun& step, const std::string& name) {
  std::vector<double> all;
  for (const StepRecords& rank : step.ranks) {
    const Record* record = find_record(rank, Phase::evaluation, name);
    if (record && record->is_scalar) all.push_back(record->value);
  }
  return all;
}

static double mean_of(const std::map<int64_t, std::vector<double>>& rows) {
  double sum = 0;
  for (const auto& [id, values] : rows) sum += values.front();
  return sum / static_cast<double>(rows.size());
}

/// By their norms and largest elements, tensor by tensor.
static bool nearly_same_weights(const StepOfRun& a, const StepOfRun& b) {
  constexpr double kNear = 1e-5;
  std::size_t seen = 0;
  for (const Record* expected : records_of(a.ranks[0], Phase::parameters)) {
    const Record* actual = find_record(b.ranks[0], Phase::parameters, expected->name);
    if (!actual || !expected->has_stats || !actual->has_stats || is_in_shards(*expected, *actual)) continue;
    ++seen;
    if (!(apart(expected->stats, actual->stats) <= kNear * expected->stats.norm)) return false;
  }
  return seen > 0;
}

std::optional<OtherMetric> other_metric(const StepOfRun& a, const StepOfRun& b, const std::string& name) {
  constexpr double kSame = 1e-5, kApart = 1e-4;
  const auto near = [](double x, double y, double room) { return std::abs(x - y) <= room * std::abs(y); };
  OtherMetric found{numbers_of(b, name), "", 0};
  const std::vector<double> expected = numbers_of(a, name);
  if (found.of_ranks.empty() || expected.empty()) return std::nullopt;
  for (const Record* record : records_of(a.ranks[0], Phase::evaluation)) {
    const auto of_a = evaluated_rows(a, record->name), of_b = evaluated_rows(b, record->name);
    if (record->is_scalar || of_a.size() < 2 || of_a.size() != of_b.size() || !near(expected[0], mean_of(of_a), kSame))
      continue;
    found.rows = record->name;
    found.mean = mean_of(of_b);
    return near(found.of_ranks[0], found.mean, kApart) ? std::nullopt : std::optional(found);
  }
  double sum = 0;
  for (const double each : found.of_ranks) sum += each;
  found.mean = sum / static_cast<double>(found.of_ranks.size());
  const auto [least, most] = std::ranges::minmax(found.of_ranks);
  const double room = kApart * std::abs(expected[0]);
  const bool may_be_mean = expected[0] >= least - room && expected[0] <= most + room, alike = near(least, most, kSame);
  return alike || may_be_mean || near(sum, expected[0], kApart) || !nearly_same_weights(a, b) ? std::nullopt
                                                                                              : std::optional(found);
}

std::optional<Difference> Evaluations::differ(const StepOfRun& a, const StepOfRun& b, bool equal, double epsilon) {
  if (auto rows = evaluated_rows_differ(a, b, equal, epsilon)) return rows;
  std::optional<Difference> first;
  bool judged = false, apart = false, both = evaluated_rows_of_both(a, b);
  const std::vector<const Record*> of_a = records_of(a.ranks[0], Phase::evaluation),
                                   of_b = records_of(b.ranks[0], Phase::evaluation);
  for (const Record* expected : of_a) {
    const Record* actual = find_record(b.ranks[0], Phase::evaluation, expected->name);
    if (!actual || !expected->is_scalar || !actual->is_scalar) continue;
    both = true;
    // Ranks that recorded other values have evaluated their own parts.
    const bool of_parts = std::ranges::any_of(b.ranks, [&](const StepRecords& rank) {
      const Record* other = find_record(rank, Phase::evaluation, expected->name);
      return other && !same_bits(other->value, actual->value);
    });
    const double gap = distance(expected->value, actual->value), bound = rounding_bound(0, epsilon), size = std::abs(expected->value);
    // A small metric may be a difference of large numbers, which rounds as these do.
    const bool is_known = equal && !of_parts && !(gap > bound * size && gap <= bound);
    judged = judged || is_known;
    const auto other =
        epsilon <= std::numeric_limits<float>::epsilon() ? other_metric(a, b, expected->name) : std::nullopt;
    if (other && !first) {
      first = difference_at(b, Phase::evaluation, kAllRanks, expected->name, DivergenceKind::value,
                            exact_number(expected->value), fmt::format("{:.6g}", fmt::join(other->of_ranks, ", ")));
      first->divergence.sentence +=
          other->rows.empty() ? " Ranks have values of their own, although their weights are nearly the reference's."
                              : fmt::format(" In the reference it is the mean of {}, here it is not.", other->rows);
      first->divergence.sentence += " What trains does not differ up to there.";
    } else if (is_known && !(gap <= bound * size)) {
      if (first) continue;
      first = difference_at(b, Phase::evaluation, 0, expected->name, DivergenceKind::value,
                            exact_number(expected->value), exact_number(actual->value));
      first->divergence.sentence += " The parameters are equal bit for bit there.";
    } else if (!is_known && gap > 0) {
      apart = true;
      const double share = gap / std::max(std::abs(expected->value), std::numeric_limits<double>::min());
      if (metric_.empty() || share > most_) {
        most_ = share;
        metric_ = expected->name;
        step_ = a.step;
        expected_ = expected->value;
        actual_ = actual->value;
      }
    }
  }
  only_a_ += !both && !of_a.empty();
  only_b_ += !both && !of_b.empty();
  judged_ += judged;
  apart_ += apart;
  same_ += both && !apart && !judged;
  return first;
}

void Evaluations::tell(std::vector<Fact>& facts) const {
  if (judged_ + same_ + apart_ + only_a_ + only_b_ == 0) return;
  std::vector<std::string> texts;
  if (judged_ > 0) texts.push_back(fmt::format("agrees at {} with bit-equal parameters", counted(judged_, "step")));
  if (same_ > 0) texts.push_back(fmt::format("equal at {}", counted(same_, "step")));
  if (apart_ > 0) {
    texts.push_back(fmt::format(
        "not judged at {}, where parameters are unequal, ranks evaluate parts of their own or rounding may explain it: {} {} → {} at step {}",
        counted(apart_, "step"), metric_, short_number(expected_), short_number(actual_), step_));
  }
  for (const auto& [steps, whose] : {std::pair{only_a_, "the reference"}, {only_b_, "the run"}}) {
    if (steps > 0) texts.push_back(fmt::format("only {} recorded it at {}", whose, counted(steps, "step")));
  }
  const std::string name(kKinds[static_cast<std::size_t>(Looked::evaluation)].words);
  std::erase_if(facts, [&](const Fact& fact) { return fact.name == name; });
  facts.push_back({judged_ + same_ > 0 ? Mark::same : Mark::none, name, fmt::format("{}", fmt::join(texts, "; "))});
}

namespace {

/// One average with what it is made of: old average, new average, parameter.
struct Average {
  std::string name;
  double epsilon = 0;
  std::vector<double> old, now, parameter;
};

std::optional<std::vector<double>> values_in(const StepOfRun& step, Phase phase, const std::string& name) {
  const Record* record = find_record(step.ranks[0], phase, name);
  return record && is_floating(record->dtype) ? values_of(*record) : std::nullopt;
}

std::optional<std::vector<double>> values_of_state(const Snapshot* state, const std::string& name) {
  const NamedTensor* tensor = state ? find_tensor(state->tensors, name) : nullptr;
  return tensor ? std::optional(tensor->values) : std::nullopt;
}

std::vector<Average> averages_of(const AveragedStep& at, bool parameters_before) {
  const StepOfRun* before = at.before && at.before->step == at.step.step - 1 ? at.before : nullptr;
  std::vector<Average> all;
  for (const Record* record : records_of(at.step.ranks[0], Phase::averaged_weights)) {
    auto old = values_of_state(at.state, "average/" + record->name), was = values_of_state(at.state, record->name);
    if (!old && before) old = values_in(*before, Phase::averaged_weights, record->name);
    if (!was && before) was = values_in(*before, Phase::parameters, record->name);
    // Before the first step an average that nobody recorded is the parameter's copy.
    if (!old && before && before->step < 0) old = was;
    const auto now = values_of(*record), parameter = parameters_before ? was : values_in(at.step, Phase::parameters, record->name);
    if (now && old && parameter && now->size() == old->size() && now->size() == parameter->size())
      all.push_back({record->name, epsilon_of(record->dtype), *old, *now, *parameter});
  }
  return all;
}

std::optional<AverageStep> fitted(const std::vector<Average>& averages, bool before, std::optional<double> decay = {}) {
  double dot = 0, squares = 0;
  for (const Average& each : averages) {
    for (std::size_t i = 0; i < each.now.size(); ++i) {
      const double apart = each.old[i] - each.parameter[i];
      dot += (each.now[i] - each.parameter[i]) * apart;
      squares += apart * apart;
    }
  }
  if (!(squares > 0)) return std::nullopt;
  constexpr double kRoundings = 8;
  AverageStep step{"", decay.value_or(dot / squares), 0, before};
  for (const Average& each : averages) {
    double rest = 0, size = 0;
    for (std::size_t i = 0; i < each.now.size(); ++i) {
      const double gap = each.now[i] - each.parameter[i] - step.decay * (each.old[i] - each.parameter[i]);
      rest += gap * gap;
      size += each.old[i] * each.old[i] + each.parameter[i] * each.parameter[i] + each.now[i] * each.now[i];
    }
    const double residual = size > 0 ? std::sqrt(rest / size) / (kRoundings * each.epsilon) : 0;
    if (!(residual <= step.residual)) step.residual = residual, step.worst = each.name;
  }
  return step;
}

}  // namespace

std::optional<AverageStep> average_step(const AveragedStep& at) {
  auto after_update = fitted(averages_of(at, false), false);
  auto before_update = fitted(averages_of(at, true), true);
  if (!before_update || (after_update && after_update->residual <= before_update->residual)) return after_update;
  return before_update;
}

std::optional<Difference> averages_difference(const AveragedStep& a, const AveragedStep& b) {
  const auto reference = average_step(a);
  if (!reference || reference->residual > 1 || !(std::abs(reference->decay) <= 1)) return std::nullopt;
  const auto same = fitted(averages_of(b, reference->before), reference->before, reference->decay);
  // Where parameters hardly move, a decay is told by rounding alone.
  if (!same || same->residual <= 4) return std::nullopt;
  const auto own = average_step(b);
  std::string found = fmt::format("{} times as far from that as rounding goes", short_number(same->residual));
  if (own && own->residual <= 1) {
    found = own->before == reference->before
                ? fmt::format("{} times the old average and {} times the parameter", short_number(own->decay), short_number(1 - own->decay))
                : fmt::format("made of the parameters {} the update", own->before ? "before" : "after");
  }
  return difference_at(b.step, Phase::averaged_weights, kAllRanks, same->worst, DivergenceKind::update,
                       fmt::format("{} times the old average and {} times the parameter",
                                   short_number(reference->decay), short_number(1 - reference->decay)),
                       found);
}

}  // namespace lockstep
