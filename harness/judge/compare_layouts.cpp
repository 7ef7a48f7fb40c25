// Runs of different layouts from their free traces: rows meet by sample id, what rounding touches is bounded,
// not measured.

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>

#include "harness/judge/compare.h"
#include "harness/judge/forced_free.h"

namespace lockstep {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Where the bound reaches this share it says nothing any more, and only the exact phases are compared.
constexpr double kUselessBound = 0.1;

const Record* find(const StepRecords& step, Phase phase, const std::string& name) {
  for (const Record& record : step.records) {
    if (record.phase == phase && record.name == name) return &record;
  }
  return nullptr;
}

std::vector<const Record*> of_phase(const StepRecords& step, Phase phase) {
  std::vector<const Record*> list;
  for (const Record& record : step.records) {
    if (record.phase == phase) list.push_back(&record);
  }
  return list;
}

Difference difference(int64_t step, Phase phase, int rank, const std::string& where, const std::string& kind,
                      const std::string& expected, const std::string& actual, int world_size) {
  Difference result;
  result.phase = phase;
  result.relative = kInfinity;
  result.divergence = {step, name_of(phase), rank, where, kind, expected, actual, ""};
  result.divergence.sentence =
      fmt::format("They part at step {}, {}, {}: {}: {}.", step, name_of(phase), rank_text(rank, world_size),
                  where, expected_found(expected, actual));
  return result;
}

// --- sample ids ---

uint64_t merged_hash(const StepOfRun& step, Phase phase, const std::string& name) {
  uint64_t sum = 0;
  for (const StepRecords& rank : step.ranks) {
    const Record* record = find(rank, phase, name);
    sum += record ? record->stats.hash : 0;
  }
  return sum;
}

std::vector<int64_t> sorted_ids(const StepOfRun& step) {
  std::vector<int64_t> ids;
  for (const StepRecords& rank : step.ranks) {
    for (const Record* record : of_phase(rank, Phase::samples)) {
      ids.insert(ids.end(), record->ids.begin(), record->ids.end());
    }
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::string samples_text(const std::vector<int64_t>& ids) {
  if (ids.empty()) return "none";
  const std::size_t shown = std::min<std::size_t>(ids.size(), 6);
  std::string text = ids.size() == 1 ? "sample " : "samples ";
  text += fmt::format("{}", fmt::join(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < ids.size()) text += fmt::format(" and {} more", ids.size() - shown);
  return text;
}

std::optional<Difference> samples_difference(const StepOfRun& a, const StepOfRun& b) {
  // The merged hash settles the common case; ids in other rows are the same batch all the same.
  if (merged_hash(a, Phase::samples, "samples") == merged_hash(b, Phase::samples, "samples"))
    return std::nullopt;
  const std::vector<int64_t> in_a = sorted_ids(a), in_b = sorted_ids(b);
  std::vector<int64_t> missing, extra;
  std::set_difference(in_a.begin(), in_a.end(), in_b.begin(), in_b.end(), std::back_inserter(missing));
  std::set_difference(in_b.begin(), in_b.end(), in_a.begin(), in_a.end(), std::back_inserter(extra));
  if (missing.empty() && extra.empty()) return std::nullopt;
  int rank = -1;
  for (std::size_t r = 0; r < b.ranks.size() && rank < 0 && !extra.empty(); ++r) {
    for (const Record* record : of_phase(b.ranks[r], Phase::samples)) {
      for (int64_t id : record->ids) {
        if (std::binary_search(extra.begin(), extra.end(), id)) rank = static_cast<int>(r);
      }
    }
  }
  return difference(a.step, Phase::samples, rank, "samples", extra.empty() ? "missing" : "value",
                    samples_text(missing), samples_text(extra), static_cast<int>(b.ranks.size()));
}

// --- random streams ---

struct StreamSum {
  uint64_t hash = 0;
  double draws = 0;
  std::set<uint64_t> by_rank;
};

std::map<std::string, StreamSum> stream_sums(const StepOfRun& step) {
  std::map<std::string, StreamSum> sums;
  for (const StepRecords& rank : step.ranks) {
    for (const Record* record : of_phase(rank, Phase::random)) {
      StreamSum& sum = sums[record->name];
      sum.hash += record->stats.hash;
      sum.draws += record->value;
      sum.by_rank.insert(record->stats.hash);
    }
  }
  return sums;
}

std::string stream_text(const std::map<std::string, StreamSum>& sums, const std::string& name) {
  const auto found = sums.find(name);
  if (found == sums.end()) return "nothing";
  return fmt::format("hash {}, {} draws", hex16(found->second.hash), exact_number(found->second.draws));
}

/// "dropout replay" is drawn by runs that compute their energies again in the backward pass. It must be what
/// "dropout" was, also where the other run has no second pass.
std::map<std::string, StreamSum> with_replays(std::map<std::string, StreamSum> sums,
                                              const std::map<std::string, StreamSum>& other) {
  constexpr std::string_view kReplay = " replay";
  for (const auto& [name, unused] : other) {
    const bool replay = name.size() > kReplay.size() && name.ends_with(kReplay);
    const auto first = replay ? sums.find(name.substr(0, name.size() - kReplay.size())) : sums.end();
    if (first != sums.end()) sums.emplace(name, first->second);
  }
  return sums;
}

std::optional<Difference> random_difference(const StepOfRun& a, const StepOfRun& b) {
  const std::map<std::string, StreamSum> own_a = stream_sums(a), own_b = stream_sums(b);
  const std::map<std::string, StreamSum> sums_a = with_replays(own_a, own_b),
                                         sums_b = with_replays(own_b, own_a);
  std::map<std::string, StreamSum> names = sums_a;
  names.insert(sums_b.begin(), sums_b.end());
  const int world_size = static_cast<int>(b.ranks.size());
  for (const auto& [name, unused] : names) {
    const auto in_a = sums_a.find(name), in_b = sums_b.find(name);
    const bool both = in_a != sums_a.end() && in_b != sums_b.end();
    if (both && in_a->second.hash == in_b->second.hash && in_a->second.draws == in_b->second.draws) continue;
    Difference result = difference(a.step, Phase::random, -1, name, both ? "bits" : "missing",
                                   stream_text(sums_a, name), stream_text(sums_b, name), world_size);
    if (both && world_size > 1 && in_b->second.by_rank.size() == 1) {
      result.divergence.actual += fmt::format("; all {} ranks drew the same numbers", world_size);
      result.divergence.sentence += fmt::format(" All {} ranks drew the same numbers.", world_size);
    }
    return result;
  }
  return std::nullopt;
}

// --- control values ---

std::string control_text(const Record* record) { return record ? exact_number(record->value) : "nothing"; }

std::optional<Difference> control_difference(const StepOfRun& a, const StepOfRun& b) {
  const int world_size = static_cast<int>(b.ranks.size());
  std::vector<std::string> names;
  for (const StepOfRun* run : {&a, &b}) {
    for (const Record* record : of_phase(run->ranks[0], Phase::control)) {
      if (std::find(names.begin(), names.end(), record->name) == names.end()) names.push_back(record->name);
    }
  }
  for (const std::string& name : names) {
    const Record* expected = find(a.ranks[0], Phase::control, name);
    std::vector<int> wrong;
    for (int rank = 0; rank < world_size; ++rank) {
      const Record* actual = find(b.ranks[static_cast<std::size_t>(rank)], Phase::control, name);
      const bool same = expected && actual &&
                        std::bit_cast<uint64_t>(expected->value) == std::bit_cast<uint64_t>(actual->value);
      if (!same) wrong.push_back(rank);
    }
    if (wrong.empty()) continue;
    const Record* actual = find(b.ranks[static_cast<std::size_t>(wrong[0])], Phase::control, name);
    const bool on_all = world_size > 1 && static_cast<int>(wrong.size()) == world_size;
    return difference(a.step, Phase::control, on_all ? -1 : wrong[0], name,
                      expected && actual ? "value" : "missing", control_text(expected), control_text(actual),
                      world_size);
  }
  return std::nullopt;
}

// --- what rounding touches ---

/// The free traces' bounded phases at one step.
class BoundedStep {
 public:
  BoundedStep(const StepOfRun& a, const StepOfRun& b, double bound) : a_(a), b_(b), bound_(bound) {}

  /// Phase by phase; the first that leaves the bound.
  std::optional<Difference> first() {
    for (auto part : {&BoundedStep::energies, &BoundedStep::loss, &BoundedStep::gradients,
                      &BoundedStep::gradient_norm, &BoundedStep::parameters}) {
      if (auto found = (this->*part)()) return found;
    }
    return std::nullopt;
  }
  double used() const { return used_; }

 private:
  /// Nothing if |expected - actual| <= bound * size; counts how much of the bound it takes.
  std::optional<Difference> within(Phase phase, const std::string& where, double expected, double actual,
                                   double size) {
    const double gap = std::abs(expected - actual);
    const double share = gap == 0 ? 0 : size > 0 && std::isfinite(gap) ? gap / (bound_ * size) : kInfinity;
    if (share <= 1) {
      used_ = std::max(used_, share);
      return std::nullopt;
    }
    used_ = share;
    Difference found = difference(a_.step, phase, -1, where, "band", exact_number(expected),
                                  exact_number(actual), static_cast<int>(b_.ranks.size()));
    found.divergence.sentence.pop_back();
    found.divergence.sentence += fmt::format(
        ", which is {} times what rounding may explain (bound, not measured).", short_number(share));
    return found;
  }

  /// Columns of one rank's energies, -1 if it recorded none.
  static int64_t columns_of(const StepRecords& rank) {
    const Record* columns = find(rank, Phase::energies, "columns");
    if (columns && columns->shape.size() == 1) return columns->shape[0];
    const Record* energies = find(rank, Phase::energies, "energies");
    return energies && energies->shape.size() == 2 ? energies->shape[1] : -1;
  }

  static double merged_norm(const StepOfRun& step) {
    double squares = 0;
    for (const StepRecords& rank : step.ranks) {
      const Record* energies = find(rank, Phase::energies, "energies");
      if (!energies || !energies->has_stats || energies->stats.nonfinite > 0) return -1;
      squares += energies->stats.norm * energies->stats.norm;
    }
    return std::sqrt(squares);
  }

  std::optional<Difference> energies() {
    const int world_size = static_cast<int>(b_.ranks.size());
    const int64_t expected = columns_of(a_.ranks[0]);
    if (expected < 0) return std::nullopt;
    std::vector<int> wrong;
    int64_t found = expected;
    for (int rank = 0; rank < world_size; ++rank) {
      const int64_t actual = columns_of(b_.ranks[static_cast<std::size_t>(rank)]);
      if (actual == expected || actual < 0) continue;
      if (wrong.empty()) found = actual;
      wrong.push_back(rank);
    }
    if (!wrong.empty()) {
      const bool on_all = world_size > 1 && static_cast<int>(wrong.size()) == world_size;
      return columns_difference(a_.step, expected, found, on_all ? -1 : wrong[0], world_size);
    }
    const double norm_a = merged_norm(a_), norm_b = merged_norm(b_);
    if (norm_a < 0 || norm_b < 0) return std::nullopt;
    return within(Phase::energies, "energies (norm)", norm_a, norm_b, norm_a);
  }

  static std::optional<double> mean_loss(const StepOfRun& step) {
    double sum = 0;
    for (const StepRecords& rank : step.ranks) {
      const Record* loss = find(rank, Phase::loss, "loss");
      if (!loss) return std::nullopt;
      sum += loss->value;
    }
    return sum / static_cast<double>(step.ranks.size());
  }

  std::optional<Difference> loss() {
    const std::optional<double> expected = mean_loss(a_), actual = mean_loss(b_);
    if (!expected || !actual) return std::nullopt;
    return within(Phase::loss, "loss (mean over ranks)", *expected, *actual,
                  std::max(1.0, std::abs(*expected)));
  }

  static double total_norm(const StepOfRun& step, Phase phase) {
    double squares = 0;
    for (const Record* record : of_phase(step.ranks[0], phase))
      squares += record->stats.norm * record->stats.norm;
    return std::sqrt(squares);
  }

  std::optional<Difference> gradients() {
    // Against the whole gradient: the noise of a bias whose terms cancel is large against the bias's own
    // norm.
    const double size = total_norm(a_, Phase::reduced_gradients);
    std::optional<Difference> worst;
    double most = 1;
    for (const Record* record : of_phase(a_.ranks[0], Phase::reduced_gradients)) {
      const Record* other = find(b_.ranks[0], Phase::reduced_gradients, record->name);
      if (!other) {
        return difference(a_.step, Phase::reduced_gradients, 0, record->name, "missing", "a gradient",
                          "nothing", static_cast<int>(b_.ranks.size()));
      }
      if (record->stats.hash == other->stats.hash || !record->has_stats || !other->has_stats) continue;
      auto found = within(Phase::reduced_gradients, record->name + " (norm)", record->stats.norm,
                          other->stats.norm, size);
      if (!found || used_ <= most) continue;
      most = used_;
      worst = std::move(found);
    }
    if (worst) used_ = most;
    return worst;
  }

  std::optional<Difference> gradient_norm() {
    const std::vector<const Record*> expected = of_phase(a_.ranks[0], Phase::gradient_norm);
    for (const Record* record : expected) {
      const Record* other = find(b_.ranks[0], Phase::gradient_norm, record->name);
      if (!other || !record->is_scalar) continue;
      if (auto found = within(Phase::gradient_norm, record->name, record->value, other->value,
                              std::abs(record->value))) {
        return found;
      }
    }
    return std::nullopt;
  }

  std::optional<Difference> parameters() {
    // Adam gives a parameter whose gradient is nothing but rounding a full step in a random direction: only
    // the norm of all parameters together is steady enough to be bounded.
    const double expected = total_norm(a_, Phase::parameters), actual = total_norm(b_, Phase::parameters);
    if (expected == 0) return std::nullopt;
    return within(Phase::parameters, "all parameters (norm)", expected, actual, expected);
  }

  const StepOfRun &a_, &b_;
  double bound_;
  double used_ = 0;
};

}  // namespace

Difference columns_difference(int64_t step, int64_t expected, int64_t actual, int rank, int world_size) {
  const int64_t missing = expected - actual;
  Difference found = difference(step, Phase::energies, rank, "energies", "missing",
                                counted(expected - 1, "negative") + " a row",
                                counted(actual - 1, "negative") + " a row", world_size);
  if (missing > 0) found.divergence.actual += fmt::format(" ({} missing)", missing);
  found.divergence.sentence =
      fmt::format("They part at step {}, energies, {}: {} of {} a row.", step, rank_text(rank, world_size),
                  counted(actual - 1, "negative"), expected - 1);
  return found;
}

double rounding_bound(int64_t steps, double epsilon) {
  const auto grown = static_cast<double>(steps + 1);
  return 128 * epsilon * grown * grown;
}

std::optional<Difference> first_exact_difference(const StepOfRun& a, const StepOfRun& b) {
  if (auto found = samples_difference(a, b)) return found;
  if (auto found = random_difference(a, b)) return found;
  return control_difference(a, b);
}

Mechanism compare_layouts(StepPairs& pairs, const CompareOptions& options) {
  Mechanism result;
  std::optional<CauseInputs> inputs;
  SampleHistory samples_a, samples_b;
  int64_t bounded_steps = 0;
  std::optional<int64_t> first_step;
  while (!result.first_divergence && pairs.next()) {
    const StepOfRun &a = pairs.step_a(), &b = pairs.step_b();
    if (!first_step) first_step = a.step;
    remember_samples(samples_a, a);
    remember_samples(samples_b, b);
    const OwnFindings own = own_findings(a, b, pairs.before_b() ? &*pairs.before_b() : nullptr, true);
    std::optional<Difference> found = own.difference;
    // Of an exact phase nothing lies before it; a ledger or a replica may come after the bounded phases.
    const bool exact = found && is_exact(found->phase);
    const double bound = rounding_bound(a.step - *first_step);
    if (!exact && bound <= kUselessBound) {
      BoundedStep bounded(a, b, bound);
      keep_earlier(found, bounded.first());
      result.band_used = std::max(result.band_used, bounded.used());
      ++bounded_steps;
    }
    if (!found) continue;
    result.first_divergence = found->divergence;
    result.compared_steps = pairs.compared();
    inputs.emplace();
    inputs->difference = *found;
    inputs->reference = a;
    inputs->cell = b;
    inputs->reference_before = pairs.before_a();
    inputs->cell_before = pairs.before_b();
    inputs->reference_samples = samples_a;
    inputs->cell_samples = samples_b;
    if (found->phase == Phase::collective) inputs->ledger = own.ledger;
  }
  if (!result.first_divergence) result.first_divergence = pairs.missing_step();
  if (!inputs) result.compared_steps = pairs.compared();
  if (result.first_divergence) {
    result.verdict = VerdictKind::divergent;
    result.sentence = result.first_divergence->sentence;
    if (inputs) {
      inputs->reference_config = options.reference_config;
      inputs->cell_config = options.cell_config;
      if (pairs.next()) {
        remember_samples(inputs->reference_samples, pairs.step_a());
        remember_samples(inputs->cell_samples, pairs.step_b());
      }
      result.cause = name_cause(*inputs);
    }
    return result;
  }
  const std::string ends = pairs.ends();
  if (result.compared_steps == 0) {
    result.sentence = fmt::format("Nothing could be compared: {}.",
                                  ends.empty() ? "both traces end before the first step" : ends);
    return result;
  }
  result.verdict = VerdictKind::within_envelope;
  result.sentence = fmt::format(
      "Within rounding (bound, not measured): {:.2g} % of it used over the first {}; sample ids, random "
      "streams and "
      "control values agree exactly over {}.",
      100 * result.band_used, counted(bounded_steps, "step"), counted(result.compared_steps, "step"));
  if (!ends.empty()) result.sentence += fmt::format(" Compared as far as both go: {}.", ends);
  return result;
}

}  // namespace lockstep
