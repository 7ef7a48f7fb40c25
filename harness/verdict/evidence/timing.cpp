#include "harness/verdict/evidence/timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "harness/verdict/config/layout_name.h"

namespace lockstep {
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
