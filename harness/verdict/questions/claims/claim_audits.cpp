#include "harness/verdict/questions/claims/claim_audits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "harness/base/clean_text.h"
#include "harness/base/read_file.h"
#include "harness/verdict/config/layout_name.h"
#include "harness/verdict/evidence/align.h"
#include "harness/verdict/evidence/arms.h"
#include "harness/verdict/evidence/trace_audit.h"
#include "harness/verdict/results/document.h"
#include "harness/verdict/trace/rank_result.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {

ClaimState state_of(bool yes) { return yes ? ClaimState::holds : ClaimState::does_not_hold; }

/// One answer after the other; the first that is no decides.
void add_answer(const AuditAnswer& answer, ConditionResult& result) {
  if (result.state == ClaimState::does_not_hold) return;
  result.state = state_of(answer.yes);
  result.figures =
      answer.yes && !result.figures.empty() ? result.figures + "; " + answer.figures : answer.figures;
}

const std::string& first_dir(const ArmEvidence& arm) {
  if (arm.dirs.empty()) throw Undecided("none of its runs exists");
  return arm.dirs.begin()->second;
}

}  // namespace

void judge_certified(const Condition& condition, const ArmEvidence& arm, ConditionResult& result) {
  result.text = fmt::format("real ranks of {} give the same bits as emulated ranks over {} or more", condition.cell,
                            counted(condition.step, "step"));
  const Certification& certification = arm.cell->certification;
  if (!certification.wanted) throw Undecided("it has no real prefix");
  result.value = static_cast<double>(certification.steps);
  if (certification.divergence) {
    result.figures = certification.divergence->sentence;
    result.state = ClaimState::does_not_hold;
    return;
  }
  if (certification.certify == kByBand) {
    result.value = 0;
    result.figures = fmt::format("bits differ; {} within tolerance", counted(certification.steps, "step"));
    result.state = state_of(false);
    return;
  }
  result.figures = fmt::format("{} equal bit for bit", counted(certification.steps, "step"));
  result.state = state_of(certification.steps >= condition.step);
}

void judge_suite(const Condition& condition, const std::string& path, ConditionResult& result) {
  const auto named = [](const char* what, const std::string& words) {
    return words.empty() ? "" : fmt::format(", {} {}", what, in_quotes(words));
  };
  result.text = fmt::format("trials of {}{}{}{} are {}", condition.cell, named("failure", condition.failure),
                            named("place", condition.place_words), named("outcome", condition.outcome),
                            fmt::join(condition.is, " or "));
  const FileText file = read_file(path);
  if (!file) throw Undecided(fmt::format("{} {}: run its config first", path, file.problem));
  const Results results = results_from_json(file.text, path);
  if (!results.suite) throw Undecided(path + " is not from a suite");
  int64_t cases = 0, faults = 0, undecided = 0, planted = 0, so = 0;
  for (const SuiteCount& count : results.suite->table) {
    if (!condition.failure.empty() && count.failure != condition.failure) continue;
    if (!condition.place_words.empty() && count.place != condition.place_words) continue;
    cases += count.cases;
    if (count.outcome == condition.outcome) so += count.cases;
    if (count.verdict == CaseVerdict::fault) faults += count.cases;
    if (count.verdict == CaseVerdict::undecided) undecided += count.cases;
    if (count.verdict == CaseVerdict::planted) planted += count.cases;
  }
  if (cases == 0) throw Undecided(fmt::format("{} has no such case", path));
  result.value = static_cast<double>(faults);
  result.figures = fmt::format("{} of {} wrong, {} undecided", faults, counted(cases, "case"), undecided);
  if (!condition.outcome.empty()) result.figures += fmt::format(", {} so", so);
  const bool clean = faults + undecided == 0 && (condition.outcome.empty() || so == cases);
  const bool faulty = faults > 0 && (condition.outcome.empty() || so > 0);
  const bool found = planted == cases && (condition.outcome.empty() || so == cases);
  if (planted > 0) result.figures += fmt::format(", {} planted and found", planted);
  bool yes = false;
  for (const std::string& word : condition.is) yes = yes || (word == "clean" ? clean : word == "faulty" ? faulty : found);
  result.state = state_of(yes);
}

namespace {

/// What lacks of what the runs of a matrix should have written, the first of it; empty: nothing.
std::string lacking(const fs::path& run, const RankResult& of_rank, const Condition& condition) {
  // Emulated ranks are threads of one process, which has the log and the memory.
  const bool of_process = of_rank.resident_last_bytes > 0 || of_rank.rank == 0;
  for (const std::string& word : condition.is) {
    std::error_code none;
    const bool there =
        word == "logs"                 ? !of_process || fs::exists(run / fmt::format("rank-{}.log", of_rank.rank), none)
        : word == "steps_per_s"        ? of_rank.step_seconds > 0
        : word == "memory"             ? !of_process || of_rank.resident_last_bytes > 0
        : word == "communication_time" ? of_rank.world_size == 1 || of_rank.communication_seconds > 0
                                       : true;  // results: it was read
    if (!there) return word;
  }
  const bool measured = condition.metric.empty() || of_rank.rank != 0 || of_rank.metrics.contains(condition.metric);
  return measured ? "" : condition.metric;
}

}  // namespace

void judge_written(const Condition& condition, const std::string& path, ConditionResult& result) {
  result.text = fmt::format("each rank of the runs of {} writes {}{}", condition.cell, fmt::join(condition.is, ", "),
                            condition.metric.empty() ? "" : fmt::format(", and the first one {}", condition.metric));
  const fs::path runs = fs::path(path).parent_path() / "runs";
  if (!fs::is_directory(runs)) throw Undecided(fmt::format("{} does not exist: run its config first", runs.string()));
  int64_t finished = 0, ranks = 0;
  for (const fs::directory_entry& run : fs::directory_iterator(runs)) {
    if (!fs::exists(run.path() / "done")) continue;
    // Forced runs compute gradients at another run's steps: they train nothing, and have no steps a second.
    const std::optional<RunRecord> record = read_run_record(run.path().string());
    if (record && record->config.forced.on()) continue;
    ++finished;
    int world = 1;
    for (int rank = 0; rank < world; ++rank, ++ranks) {
      const std::string file = (run.path() / fmt::format("rank-{}.result.json", rank)).string();
      std::string lacks = "a result";
      if (fs::exists(file)) {
        const RankResult of_rank = read_rank_result(file);
        world = of_rank.world_size;
        lacks = lacking(run.path(), of_rank, condition);
      }
      if (lacks.empty()) continue;
      result.figures = fmt::format("{}, rank {} lacks {}", run.path().filename().string(), rank, lacks);
      result.state = ClaimState::does_not_hold;
      return;
    }
  }
  if (finished == 0) throw Undecided(fmt::format("no run of {} finished", runs.string()));
  result.value = static_cast<double>(ranks);
  result.figures = fmt::format("all of it, of {} in {}", counted(ranks, "rank"), counted(finished, "run"));
  result.state = ClaimState::holds;
}

void judge_samples(const Condition& condition, const ArmEvidence& arm, const ArmEvidence& reference,
                   ConditionResult& result) {
  result.text = fmt::format("samples of {} are {}", condition.cell, fmt::join(condition.is, " and "));
  const SampleLedger ledger = read_samples(first_dir(arm), arm.world_size);
  for (const std::string& word : condition.is) {
    if (word == "as_reference") {
      add_answer(same_samples(ledger, read_samples(first_dir(reference), reference.world_size)), result);
    } else {
      add_answer(word == "each_once"      ? each_sample_once(ledger)
                 : word == "equal_counts" ? equal_counts(ledger)
                                          : reshuffled(ledger),
                 result);
    }
  }
}

void judge_draws(const Condition& condition, const ArmEvidence& arm, ConditionResult& result) {
  result.text = fmt::format("draws of {} are {}", condition.cell, fmt::join(condition.is, " and "));
  for (const std::string& word : condition.is) {
    if (word == "apart") {
      add_answer(ranks_draw_apart(read_draws(first_dir(arm), arm.world_size)), result);
      continue;
    }
    std::vector<DrawLedger> runs;
    std::vector<int64_t> seeds;
    for (const auto& [seed, dir] : arm.dirs) {
      runs.push_back(read_draws(dir, arm.world_size));
      seeds.push_back(seed);
    }
    if (runs.size() < 2) throw Undecided("there is only one seed, and no other to compare it with");
    add_answer(runs_draw_apart(runs, seeds), result);
  }
}

void judge_first(const Condition& condition, const ArmEvidence& arm, ConditionResult& result) {
  std::vector<std::string> asked;
  if (condition.step >= 0) asked.push_back(fmt::format("at step {}", condition.step));
  if (condition.rank >= -1) asked.push_back(fmt::format("on rank {}", condition.rank));
  if (!condition.where.empty()) asked.push_back("in " + condition.where);
  if (!condition.cause.empty()) asked.push_back("as " + condition.cause);
  result.text = fmt::format("the fault in {} is found {}", condition.cell, fmt::join(asked, ", "));
  const CellResult& cell = *arm.cell;
  const Divergence* first =
      cell.mechanism && cell.mechanism->first_divergence ? &*cell.mechanism->first_divergence : nullptr;
  const Cause* cause = cell.mechanism && cell.mechanism->cause ? &*cell.mechanism->cause
                       : cell.cause                            ? &*cell.cause
                                                               : nullptr;
  if (first == nullptr && !cell.failure) {
    result.figures = "nothing was found";
    result.state = ClaimState::does_not_hold;
    return;
  }
  const int64_t step = first != nullptr ? first->step : cell.failure->step;
  const int rank = first != nullptr ? first->rank : cell.failure->rank;
  const std::string where = first != nullptr ? first->where : cell.failure->operation;
  const std::string code = cause != nullptr ? cause->code : "unexplained";
  result.figures =
      fmt::format("step {}, {}, {}, {}", step, rank < 0 ? "all ranks" : fmt::format("rank {}", rank),
                  where.empty() ? "no place" : where, code);
  result.state = state_of((condition.step < 0 || condition.step == step) &&
                          (condition.rank < -1 || condition.rank == rank) &&
                          (condition.where.empty() || condition.where == where) &&
                          (condition.cause.empty() || condition.cause == code));
}

void judge_timing(const Condition& condition, const Timing* timing, ConditionResult& result) {
  const std::string name = condition.metric == "speed_up"     ? "speed-up"
                           : condition.metric == "efficiency" ? "efficiency"
                                                              : "share of communication";
  result.text =
      condition.low == condition.high
          ? fmt::format("{} at {} is {:g}", name, condition.cell, condition.low)
          : fmt::format("{} at {} within {:g} to {:g}", name, condition.cell, condition.low, condition.high);
  if (timing == nullptr) throw Undecided("nothing was timed");
  const auto row = std::ranges::find_if(timing->rows, [&](const TimingRow& each) {
    return layout_name(each.layout) == condition.cell;
  });
  if (row == timing->rows.end()) throw Undecided(condition.cell + " was not timed");
  result.value = condition.metric == "speed_up"     ? row->speed_up
                 : condition.metric == "efficiency" ? row->efficiency
                                                    : row->communication_share;
  result.interval = {result.value, result.value, 1};
  result.figures = fmt::format("{:.2f} with {} on {}", result.value, counted(row->layout.world_size, "rank"),
                               counted(timing->cores, "core"));
  if (row->crowded) {
    result.figures += ": ranks share cores, so it does not apply to ranks that do not";
    result.state = ClaimState::not_testable;
    return;
  }
  result.state = state_of(result.value >= condition.low && result.value <= condition.high);
}

}  // namespace lockstep
