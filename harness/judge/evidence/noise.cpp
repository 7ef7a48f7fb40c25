#include "harness/judge/evidence/noise.h"

#include <boost/math/distributions/students_t.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <thread>
#include <unordered_set>

#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "harness/judge/trace/reader.h"
#include "harness/judge/trace/record.h"
#include "harness/plan/config/run_config.h"
#include "harness/plan/config/trainer_spec.h"

namespace lockstep {
namespace {

constexpr double kLevel = 0.95;
constexpr std::size_t kMostBlocksShown = 10, kFewestStepsShown = 10;
/// With fewer blocks their spread says little.
constexpr std::size_t kFewestBlocks = 4;

/// Unbiased |G|^2 and S of one step, or their sums over several.
struct Parts {
  double gradient_squared = 0, noise = 0;
  void add(const Parts& other) {
    gradient_squared += other.gradient_squared;
    noise += other.noise;
  }
  Parts over(std::size_t count) const {
    return {gradient_squared / static_cast<double>(count), noise / static_cast<double>(count)};
  }
};

/// The two forms with x = 1 / B: S is the slope of the squared norm over x, |G|^2 what is left where a batch
/// holds all rows there are.
Parts parts_of(const NoiseStep& s) {
  const double gap = s.per_small - s.per_big, noise = (s.small_squared - s.big_squared) / gap;
  const double without_end = (s.per_small * s.big_squared - s.per_big * s.small_squared) / gap;
  return {without_end + noise * s.per_all, noise};
}

double batch_of(const Parts& parts) {
  if (!(parts.gradient_squared > 0)) return kInfinity;
  return std::max(0.0, parts.noise) / parts.gradient_squared;
}

/// Every v at which the mean of S - v |G|^2 over the run may be 0, by Student's t (Fieller 1954). Consecutive steps are not
/// independent (weights, and with momentum what came before), so that blocks of about n^(1/3) steps are counted.
Interval interval_of(const std::vector<Parts>& parts) {
  const std::size_t n = parts.size();
  const auto length = std::max<std::size_t>(1, static_cast<std::size_t>(std::lround(std::cbrt(static_cast<double>(n)))));
  const std::size_t count = n / length;
  if (count < kFewestBlocks) return {0, kInfinity, kLevel};
  std::vector<Parts> blocks(count);
  Parts mean;
  for (std::size_t b = 0; b < count; ++b) {
    const std::size_t begin = b * n / count, end = (b + 1) * n / count;
    for (std::size_t i = begin; i < end; ++i) blocks[b].add(parts[i].over(end - begin));
    mean.add(blocks[b].over(count));
  }
  double gg = 0, gs = 0, ss = 0;
  for (const Parts& block : blocks) {
    const double g = block.gradient_squared - mean.gradient_squared, s = block.noise - mean.noise;
    gg += g * g;
    gs += g * s;
    ss += s * s;
  }
  const auto blocks_less_one = static_cast<double>(count - 1);
  const double t = boost::math::quantile(boost::math::students_t(blocks_less_one), 1 - (1 - kLevel) / 2);
  const double q = t * t / (static_cast<double>(count) * blocks_less_one), g = mean.gradient_squared, s = mean.noise;
  // Its square is within t standard errors where a v^2 - 2 b v + c <= 0.
  const double a = g * g - q * gg, b = g * s - q * gs, c = s * s - q * ss;
  const double root = std::sqrt(std::max(0.0, b * b - a * c));
  if (a > 0 && g > 0) return {std::max(0.0, (b - root) / a), std::max(0.0, (b + root) / a), kLevel};
  // |G|^2 may be 0. Where S is above 0 for sure, one root is above 0, and all beyond it may be.
  return {a < 0 && c > 0 && s > 0 ? (b - root) / a : 0, kInfinity, kLevel};
}

}  // namespace

std::optional<NoiseScale> estimate_noise_scale(std::span<const NoiseStep> steps) {
  std::vector<Parts> parts;
  std::vector<int64_t> at;
  Parts sum;
  for (const NoiseStep& step : steps) {
    if (!(step.per_small > step.per_big) || step.small_squared == 0) continue;
    parts.push_back(parts_of(step));
    at.push_back(step.step);
    sum.add(parts.back());
  }
  if (parts.empty()) return std::nullopt;
  const auto n = static_cast<double>(parts.size());
  NoiseScale scale;
  scale.steps = std::ssize(parts);
  scale.gradient_squared = sum.gradient_squared / n;
  scale.noise = sum.noise / n;
  scale.batch = batch_of(sum);
  scale.interval = interval_of(parts);
  const std::size_t blocks = std::clamp<std::size_t>(parts.size() / kFewestStepsShown, 1, kMostBlocksShown);
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t begin = b * parts.size() / blocks, end = (b + 1) * parts.size() / blocks;
    Parts block;
    for (std::size_t i = begin; i < end; ++i) block.add(parts[i]);
    scale.at.push_back(at[(begin + end - 1) / 2]);
    scale.batch_at.push_back(batch_of(block));
  }
  return scale;
}

std::string noise_caveat(const RunConfig& config) {
  const TrainerSpec* const trainer = find_trainer_spec(config.trainer);
  std::string text;
  const auto say = [&](const std::string& sentence) {
    if (!sentence.empty()) text += (text.empty() ? "" : " ") + sentence;
  };
  if (trainer && trainer->noise_scale_caveat) say(trainer->noise_scale_caveat(config));
  if (config.data.block > 1)
    say(fmt::format("Rows come in blocks of {} similar rows: the noise scale holds for batches of whole blocks.",
                    config.data.block));
  if (config.rank_seed == RankSeed::same)
    say("All ranks draw the same dropout and noise, so the noise scale does not include these.");
  return text;
}

namespace {

/// Norms of one rank's gradients at a step, over all parameters.
struct GradientNorms {
  int64_t step = 0;
  std::vector<int64_t> ids;                       ///< samples of this rank's rows
  double local_squared = 0, reduced_squared = 0;  ///< sums of squares, before any reduction and after it
  bool has_local = false, has_reduced = false;    ///< false: the trace keeps no norms of them
  uint64_t nonfinite = 0;                         ///< values that the sums leave out
};

GradientNorms norms_of(const StepRecords& step) {
  GradientNorms norms;
  norms.step = step.step;
  for (const Record& record : step.records) {
    if (record.phase == Phase::samples) norms.ids = record.ids;
    const bool local = record.phase == Phase::local_gradients;
    if (record.is_scalar || !record.has_stats || (!local && record.phase != Phase::reduced_gradients)) continue;
    (local ? norms.local_squared : norms.reduced_squared) += record.stats.norm * record.stats.norm;
    (local ? norms.has_local : norms.has_reduced) = true;
    norms.nonfinite += record.stats.nonfinite;
  }
  return norms;
}

/// One step of all ranks, or nothing if a norm is missing or left values out.
std::optional<NoiseStep> join_ranks(const std::vector<GradientNorms>& ranks) {
  std::size_t all_rows = 0;
  for (const GradientNorms& rank : ranks) {
    if (!rank.has_local && !rank.ids.empty()) return std::nullopt;
    if (rank.nonfinite > 0) return std::nullopt;
    all_rows += rank.ids.size();
  }
  if (!ranks.front().has_reduced || all_rows == 0) return std::nullopt;
  NoiseStep step;
  step.step = ranks.front().step;
  step.big_squared = ranks.front().reduced_squared;
  step.per_big = 1.0 / static_cast<double>(all_rows);
  int with_rows = 0;
  for (const GradientNorms& rank : ranks) {
    if (rank.ids.empty()) continue;
    // A rank's loss is its rows' sum times ranks / all rows, so that the mean over ranks is that of all rows.
    const auto rows = static_cast<double>(rank.ids.size());
    const double to_own_mean = static_cast<double>(all_rows) / (static_cast<double>(ranks.size()) * rows);
    step.small_squared += rank.local_squared * to_own_mean * to_own_mean;
    step.per_small += 1.0 / rows;
    ++with_rows;
  }
  step.small_squared /= with_rows;
  step.per_small /= with_rows;
  return step;
}

/// Which samples a run has drawn. Once some came again an epoch is over, and all have been seen but for fewer
/// than a batch that did not fit.
class DataSeen {
 public:
  void add(const std::vector<GradientNorms>& ranks) {
    for (const GradientNorms& rank : ranks) {
      drawn_ += rank.ids.size();
      ids_.insert(rank.ids.begin(), rank.ids.end());
    }
  }
  double per_all() const { return drawn_ > ids_.size() ? 1.0 / static_cast<double>(ids_.size()) : 0.0; }

 private:
  std::unordered_set<int64_t> ids_;
  std::size_t drawn_ = 0;
};

}  // namespace

std::optional<NoiseScale> read_noise_scale(const RunConfig& config, const std::string& run_dir) {
  const int world_size = config.layout.world_size;
  const TrainerSpec* const trainer = find_trainer_spec(config.trainer);
  const bool all_rows_count = !trainer || !trainer->rows_may_not_count || !trainer->rows_may_not_count(config);
  if (world_size < 2 || config.trace == TraceLevel::off || !all_rows_count ||
      config.forced.on() || config.mutant.name != "none" || config.second_mutant.name != "none") {
    return std::nullopt;
  }
  std::vector<TraceReader> readers;
  std::vector<StepRecords> used(static_cast<std::size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank)
    readers.emplace_back(fmt::format("{}/rank-{}.trace", run_dir, rank));
  std::vector<NoiseStep> steps;
  DataSeen seen;
  for (;;) {
    std::vector<GradientNorms> ranks;
    for (std::size_t rank = 0; rank < readers.size(); ++rank) {
      std::optional<StepRecords> step = readers[rank].next(std::move(used[rank]));
      if (step && (ranks.empty() || step->step == ranks.front().step)) ranks.push_back(norms_of(*step));
      used[rank] = step ? *std::move(step) : StepRecords();
    }
    // Traces of ranks that stopped at different steps say as much as the shortest.
    if (ranks.size() != readers.size()) break;
    seen.add(ranks);
    if (const std::optional<NoiseStep> step = join_ranks(ranks)) steps.push_back(*step);
  }
  for (NoiseStep& step : steps) step.per_all = seen.per_all();
  std::optional<NoiseScale> scale = estimate_noise_scale(steps);
  if (!scale) return scale;
  scale->small_batch = config.layout.rows_per_rank;
  scale->big_batch = config.layout.global_batch();
  scale->caveat = noise_caveat(config);
  return scale;
}

namespace {

using Values = std::map<std::string, std::vector<double>>;

/// The parameters of a step's snapshot, by name; nothing where none was kept.
Values parameters_in(const StepRecords& step) {
  Values parameters;
  for (const Record& record : step.records) {
    // Moments and buffers have a family before their name.
    if (record.phase != Phase::snapshot || record.name.find('/') != std::string::npos) continue;
    if (record.dtype != DType::float32 && record.dtype != DType::float64) continue;
    if (std::optional<std::vector<double>> values = values_of(record)) parameters[record.name] = *std::move(values);
  }
  return parameters;
}

std::map<int64_t, Values> snapshots_in(const std::string& run_dir) {
  std::map<int64_t, Values> snapshots;
  TraceReader reader(run_dir + "/rank-0.trace");
  while (const std::optional<StepRecords> step = reader.next()) {
    if (Values parameters = parameters_in(*step); !parameters.empty()) snapshots[step->step] = std::move(parameters);
  }
  return snapshots;
}

std::set<std::string> parameters_without_gradient(const RunConfig& config) {
  std::set<std::string> names;
  for (const ModelParameter& parameter : spec_of(config).parameters(config, config.data.channels)) {
    if (parameter.without_gradient) names.insert(parameter.name);
  }
  return names;
}

/// What two runs' parameters are apart, as shares of their length.
struct Distance {
  double with_gradient = 0, without = 0;
};

/// Nothing if they are not of one model.
std::optional<Distance> distance_of(const Values& a, const Values& b, const std::set<std::string>& without_gradient) {
  double apart = 0, apart_without = 0, whole = 0;
  if (a.size() != b.size()) return std::nullopt;
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != values.size()) return std::nullopt;
    double& sum = without_gradient.contains(name) ? apart_without : apart;
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum += (other->second[i] - values[i]) * (other->second[i] - values[i]);
      whole += values[i] * values[i];
    }
  }
  if (whole == 0) return std::nullopt;
  return Distance{std::sqrt(apart / whole), std::sqrt(apart_without / whole)};
}

void add_parameters(const DriftPair& pair, const std::set<std::string>& without_gradient, RunEvidence& apart) {
  Series &moved = apart.curves[std::string(kParameterDrift)], &idle = apart.curves[std::string(kIdleParameterDrift)];
  const std::map<int64_t, Values> cell = snapshots_in(pair.cell_dir);
  for (const auto& [step, parameters] : snapshots_in(pair.reference_dir)) {
    const auto own = cell.find(step);
    if (own == cell.end()) continue;
    const std::optional<Distance> distance = distance_of(parameters, own->second, without_gradient);
    if (!distance) continue;
    moved.steps.push_back(step);
    moved.values.push_back(distance->with_gradient);
    if (without_gradient.empty()) continue;
    idle.steps.push_back(step);
    idle.values.push_back(distance->without);
  }
}

Series differences(const Series& reference, const Series& cell) {
  std::map<int64_t, double> by_step;
  for (std::size_t i = 0; i < reference.steps.size(); ++i) by_step[reference.steps[i]] = reference.values[i];
  Series series;
  for (std::size_t i = 0; i < cell.steps.size(); ++i) {
    const auto other = by_step.find(cell.steps[i]);
    if (other == by_step.end()) continue;
    series.steps.push_back(cell.steps[i]);
    series.values.push_back(std::abs(cell.values[i] - other->second));
  }
  return series;
}

}  // namespace

std::vector<CurveBand> drift_of(const std::vector<DriftPair>& pairs, const RunConfig& config,
                                const std::string& primary_metric) {
  const std::set<std::string> without_gradient = parameters_without_gradient(config);
  std::vector<RunEvidence> apart;
  for (const DriftPair& pair : pairs) {
    RunEvidence& of_pair = apart.emplace_back();
    add_parameters(pair, without_gradient, of_pair);
    for (const std::string& metric : {std::string("loss"), primary_metric}) {
      const auto reference = pair.reference->curves.find(metric);
      const auto cell = pair.cell->curves.find(metric);
      if (reference == pair.reference->curves.end() || cell == pair.cell->curves.end()) continue;
      of_pair.curves[metric] = differences(reference->second, cell->second);
    }
  }
  std::vector<const RunEvidence*> seeds;
  for (const RunEvidence& of_pair : apart) seeds.push_back(&of_pair);
  std::vector<std::string> metrics{std::string(kParameterDrift), std::string(kIdleParameterDrift), "loss"};
  if (primary_metric != "loss") metrics.push_back(primary_metric);
  return curve_bands(seeds, metrics);
}

namespace {

/// One run: of the ranks the slowest, the one that waits most, the one that receives most.
struct TimedRun {
  double step_seconds = 0, share = 0, bytes = 0, activation_bytes = 0, weight_bytes = 0;
};

/// One layout's runs, and what became of those that did not finish.
struct TimedLayout {
  Layout layout;
  std::vector<TimedRun> runs;
  int planned = 0;
  std::string failure;  ///< of the first that failed
};

TimedRun read_run(const PlannedRun& run, const std::string& dir, const RankResultReader& read) {
  TimedRun timed;
  for (int rank = 0; rank < run.config.layout.world_size; ++rank) {
    const RankResult result = read(fmt::format("{}/rank-{}.result.json", dir, rank));
    if (result.steps_done < run.config.steps || !(result.step_seconds > 0)) {
      throw std::runtime_error(
          fmt::format("rank {} timed {} of {} steps", rank, result.steps_done, run.config.steps));
    }
    timed.step_seconds = std::max(timed.step_seconds, result.step_seconds);
    timed.share = std::max(timed.share, result.communication_share);
    timed.bytes = std::max(timed.bytes, result.received_bytes);
    timed.activation_bytes = std::max(timed.activation_bytes, result.activation_bytes);
    timed.weight_bytes = std::max(timed.weight_bytes, result.weight_bytes);
  }
  return timed;
}

void add_run(const PlannedRun& run, const std::string& out_dir, const std::map<std::string, Failure>& failures,
             const RankResultReader& read, TimedLayout& layout) {
  ++layout.planned;
  const std::string dir = out_dir + "/runs/" + run.id;
  const auto launched = failures.find(run.id);
  const RunEvidence evidence =
      gather_run(run, dir, launched == failures.end() ? nullptr : &launched->second, read);
  std::string failure;
  if (evidence.failure) {
    failure = fmt::format("{}: {}", to_word(evidence.failure->kind), evidence.failure->message);
  } else {
    try {
      layout.runs.push_back(read_run(run, dir, read));
    } catch (const std::runtime_error& error) {
      failure = error.what();
    }
  }
  if (layout.failure.empty()) layout.failure = failure;
}

TimingRow row_of(const TimedLayout& timed, const std::string& group, int cores) {
  const auto over_runs = [&](double TimedRun::*value) {
    std::vector<double> values;
    for (const TimedRun& run : timed.runs) values.push_back(run.*value);
    return values;
  };
  TimingRow row;
  row.group = group;
  row.layout = timed.layout;
  row.runs = static_cast<int>(timed.runs.size());
  const std::vector<double> seconds = over_runs(&TimedRun::step_seconds);
  row.step_seconds = median(seconds);
  row.interval = {kNaN, kNaN, 1.0};
  if (!seconds.empty()) row.interval = {std::ranges::min(seconds), std::ranges::max(seconds), 1.0};
  row.rows_per_second = timed.layout.global_batch() / row.step_seconds;
  const std::vector<double> shares = over_runs(&TimedRun::share);
  row.communication_share = median(shares);
  if (!shares.empty()) row.share_range = {std::ranges::min(shares), std::ranges::max(shares), 1.0};
  row.bytes = median(over_runs(&TimedRun::bytes));
  row.activation_bytes = median(over_runs(&TimedRun::activation_bytes));
  row.weight_bytes = median(over_runs(&TimedRun::weight_bytes));
  row.crowded = timed.layout.world_size > cores;
  return row;
}

bool of_one_group(const std::string& group, const Layout& a, const Layout& b) {
  return group == kEqualBatch ? a.global_batch() == b.global_batch() : a.rows_per_rank == b.rows_per_rank;
}

void hold_against_one_rank(std::vector<TimingRow>& rows) {
  for (TimingRow& row : rows) {
    const auto one = std::ranges::find_if(rows, [&](const TimingRow& other) {
      return other.group == row.group && other.layout.world_size == 1 &&
             of_one_group(row.group, other.layout, row.layout);
    });
    row.speed_up = one == rows.end() ? kNaN : row.rows_per_second / one->rows_per_second;
    row.efficiency = row.speed_up / row.layout.world_size;
    if (one == rows.end()) continue;
    // The slowest run against the fastest of one rank, and the other way round; one rank itself is the unit.
    const double batches = static_cast<double>(row.layout.global_batch()) / one->layout.global_batch();
    row.speed_up_range = {batches * one->interval.low / row.interval.high,
                          batches * one->interval.high / row.interval.low, 1.0};
    if (&*one == &row) row.speed_up_range = {1, 1, 1};
  }
}

std::vector<TimingRow> rows_of(std::vector<TimedLayout> timed, int cores) {
  std::ranges::stable_sort(timed, {}, [](const TimedLayout& each) { return each.layout.world_size; });
  std::vector<TimingRow> rows;
  std::vector<bool> grouped(timed.size(), false);
  for (const char* group : {kEqualBatch, kEqualRows}) {
    for (std::size_t i = 0; i < timed.size(); ++i) {
      const auto alike = std::ranges::count_if(timed, [&](const TimedLayout& other) {
        return of_one_group(group, other.layout, timed[i].layout);
      });
      if (alike < 2) continue;
      grouped[i] = true;
      rows.push_back(row_of(timed[i], group, cores));
    }
  }
  // It shares its batch and its rows a rank with no other layout: only its time can be reported.
  for (std::size_t i = 0; i < timed.size(); ++i) {
    if (!grouped[i]) rows.push_back(row_of(timed[i], kEqualBatch, cores));
  }
  hold_against_one_rank(rows);
  return rows;
}

/// Says that the machine may have been busy, if repeats scatter widely; empty if none do.
std::string scatter_in_words(const std::vector<TimingRow>& rows) {
  constexpr double kWide = 1.5;
  const TimingRow* widest = nullptr;
  double most = kWide;
  for (const TimingRow& row : rows) {
    const double ratio = row.interval.high / row.interval.low;
    if (!(ratio > most)) continue;
    most = ratio;
    widest = &row;
  }
  if (widest == nullptr) return "";
  return fmt::format(
      " Repeats of {} differ by a factor of {:.1f}: another program may have used the machine.",
      layout_name(widest->layout), most);
}

/// "At an equal global batch 8x3 processes 0.12 times (0.11 to 0.13 over 3 runs) the rows a second of one rank;
/// 55 % of a step (50 to 58 %) is communication."
std::string widest_in_words(const std::vector<TimingRow>& rows, const std::string& group) {
  const TimingRow* widest = nullptr;
  for (const TimingRow& row : rows) {
    if (row.group != group || !std::isfinite(row.speed_up) || row.layout.world_size < 2) continue;
    if (widest == nullptr || row.layout.world_size > widest->layout.world_size) widest = &row;
  }
  if (widest == nullptr) return "";
  const std::string runs = counted(widest->runs, "run");
  return fmt::format(
      " At {} {} processes {:.2f} times ({:.2f} to {:.2f} over {}) the rows a second of one rank; {:.0f} % of a step "
      "({:.0f} to {:.0f} %) is communication.",
      group == kEqualBatch ? "an equal global batch" : "equal rows a rank", layout_name(widest->layout),
      widest->speed_up, widest->speed_up_range.low, widest->speed_up_range.high, runs,
      100 * widest->communication_share, 100 * widest->share_range.low, 100 * widest->share_range.high);
}

std::string sentence_of(const Timing& timing, const std::vector<TimedLayout>& timed) {
  std::string text;
  int most = 1;
  for (const TimedLayout& each : timed) most = std::max(most, each.layout.world_size);
  const std::string cores = counted(timing.cores, "core");
  if (most > timing.cores) {
    text = fmt::format(
        "{} ranks share {}: a speed-up above {} is not possible on this machine, and ranks that wait "
        "for a core count as communicating.",
        most, cores, timing.cores);
  } else {
    text = fmt::format("Every rank had its own core ({} for at most {} ranks).", cores, most);
  }
  for (const char* group : {kEqualBatch, kEqualRows}) text += widest_in_words(timing.rows, group);
  text += scatter_in_words(timing.rows);
  for (const TimedLayout& each : timed) {
    if (each.failure.empty()) continue;
    text += fmt::format(" For {}, {} of {} timed runs failed ({}).", layout_name(each.layout),
                        each.planned - static_cast<int>(each.runs.size()), each.planned, each.failure);
  }
  return text;
}

std::string fact(const std::vector<std::pair<std::string, std::string>>& facts, const std::string& key) {
  for (const auto& [name, value] : facts) {
    if (name == key) return value;
  }
  return "";
}

}  // namespace

std::optional<Timing> judge_timing(const Plan& plan, const std::string& out_dir,
                                   const std::map<std::string, Failure>& failures,
                                   const RankResultReader& read,
                                   const std::vector<std::pair<std::string, std::string>>& provenance) {
  std::vector<TimedLayout> timed;
  for (const PlannedRun& run : plan.runs) {
    if (run.role != RunRole::timing) continue;
    auto at = std::ranges::find(timed, run.config.layout, &TimedLayout::layout);
    if (at == timed.end()) at = timed.insert(timed.end(), {run.config.layout, {}, 0, ""});
    add_run(run, out_dir, failures, read, *at);
  }
  if (timed.empty()) return std::nullopt;
  Timing timing;
  timing.processor = fact(provenance, "processor");
  timing.cores = std::atoi(fact(provenance, "cores").c_str());
  if (timing.cores < 1) timing.cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  timing.rows = rows_of(timed, timing.cores);
  timing.sentence = sentence_of(timing, timed);
  return timing;
}

}  // namespace lockstep
