#include "harness/suites/checkpoint/trainer/bench.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <limits>
#include <stdexcept>

#include "harness/base/errors.h"
#include "harness/base/files.h"
#include "harness/base/numbers.h"
#include "harness/lib/checkpoint/loader.h"
#include "harness/lib/checkpoint/saver.h"
#include "harness/run/run_folder.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/trace/reader.h"

namespace lockstep::restarts {
namespace {

namespace fs = std::filesystem;

/// What of an earlier attempt the next one must not meet; the rest is what it goes on from.
void clear_ends(const std::string& dir) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    const bool stays = name == "checkpoints" || name.ends_with(".trace") || name.ends_with(".log");
    if (!stays) fs::remove_all(entry.path());
  }
}

nlohmann::json run_json(const RunConfig& config, const Planted& planted) {
  nlohmann::json run = {{"config", nlohmann::json::parse(canonical_json(config))}};
  nlohmann::json& told = run["planted"] = nlohmann::json::object();
  if (planted.record) told["record"] = true;
  if (planted.rank >= 0) told.update({{"rank", planted.rank}, {"operation", planted.operation}, {"signal", planted.signal}});
  if (!planted.not_saved.empty()) told["not_saved"] = planted.not_saved;
  if (!planted.not_restored.empty()) told["not_restored"] = planted.not_restored;
  if (planted.unchecked) told["unchecked"] = true;
  if (!planted.mistake.empty()) told["mistake"] = planted.mistake;
  return run;
}

}  // namespace

bool Ended::finished() const {
  return !hung && std::ranges::all_of(exits, [](const RankEnd& exit) { return exit.code == 0 && exit.signal == 0; });
}

std::string Ended::in_words() const {
  const std::string text = lockstep::in_words(exits);
  return hung ? "hung; " + text : text;
}

int64_t Going::most_steps() const {
  int64_t most = -1;
  for (int rank = 0; rank < heartbeats.world_size(); ++rank) most = std::max(most, heartbeats.step(rank));
  return most;
}

int64_t Going::fewest_steps() const {
  int64_t fewest = heartbeats.step(0);
  for (int rank = 1; rank < heartbeats.world_size(); ++rank) fewest = std::min(fewest, heartbeats.step(rank));
  return fewest;
}

bool Going::all_began() const { return fewest_steps() >= 0; }

Bench::Bench(std::string rank_program, std::string work, double deadline_s, const volatile int* stop_requested)
    : work_(std::move(work)), deadline_s_(deadline_s), runs_(std::move(rank_program), work_, stop_requested) {}

std::string Bench::empty(const std::string& name) { return runs_.folder(name); }

std::string Bench::copy(const std::string& from, const std::string& name) {
  std::string dir = empty(name);
  fs::copy(from, dir, fs::copy_options::recursive);
  return dir;
}

Ended Bench::attempt(const std::string& dir, const RunConfig& config, const Planted& planted, const Disturb& disturb) {
  constexpr double kHangGrace_s = 2;  // beyond the ranks' own timeout, as in `lockstep run`
  clear_ends(dir);
  RankRun asked;
  asked.world_size = config.layout.world_size;
  asked.processes = processes_of(config);
  asked.thresholds = thresholds_of(config.watch, config.timeout_s + kHangGrace_s, deadline_s_);
  asked.stop_grace_s = config.checkpoint.grace_s;
  asked.deadline_s = deadline_s_;
  int killed = planted.signal == SIGKILL ? planted.rank : -1;
  asked.kills = [&](int rank) { return rank == killed; };
  RunHooks hooks;
  hooks.on_look = [&](const OngoingRun& run) {
    const auto kill = [&](int rank) {
      killed = rank;
      ::kill(run.pids[static_cast<std::size_t>(rank)], SIGKILL);
    };
    if (disturb && run.ends.empty())
      disturb({run.heartbeats, run.pids, run.since_started_s, [&](int signal) { runs_.signal(signal); }, kill});
    return false;
  };
  EndedRun run = runs_.run(dir, run_json(config, planted), asked, std::move(hooks));
  return {std::move(run.ends), run.late || run.alarm.has_value(), run.seconds};
}

RankResult result_of(const std::string& dir, int rank) {
  if (!fs::exists(rank_result_path(dir, rank))) return {};
  try {
    return read_rank_result(rank_result_path(dir, rank));
  } catch (const std::runtime_error& error) {
    RankResult unread;
    unread.error = error.what();
    return unread;
  }
}

std::string trace_of(const std::string& dir, int rank) { return fmt::format("{}/rank-{}.trace", dir, rank); }

std::span<const ExperimentKind> experiment_kinds() {
  static constexpr std::array<ExperimentKind, 6> kKinds{{
      {"kill", "SIGKILL before every operation of a save on each rank, then the run goes on", &make_kills},
      {"resume", "a run goes on from each of its steps, once and twice in a row", &make_resumes},
      {"left_out", "a kind of state that a save leaves out, or that a load does not put back", &make_left_out},
      {"reshard", "a run goes on with another number of ranks, in exact arithmetic", &make_reshards},
      {"cycle", "a run of 4 ranks is killed at random moments and started again", &make_cycles},
      {"preempt", "SIGTERM or SIGUSR1 to one rank or to all at random moments, then the run goes on", &make_preemptions},
  }};
  return kKinds;
}

RunConfig shaped(const RunConfig& config, const Shape& shape) {
  RunConfig run = config;
  const int batch = config.layout.global_batch();
  if (batch % shape.ranks != 0) {
    throw ConfigError(fmt::format("trainer.cell: its batch of {} rows cannot be shared by {} ranks; take a layout whose "
                                  "batch can",
                                  batch, shape.ranks));
  }
  run.layout = {shape.ranks, batch / shape.ranks};
  run.backend = shape.ranks > 1 ? Backend::gloo : Backend::emulated;
  run.steps = shape.steps;
  run.stop_after = 0;
  run.checkpoint.every = shape.every;
  run.checkpoint.keep = shape.keep;
  run.checkpoint.async = shape.async;
  run.checkpoint.sharded = shape.sharded;
  return run;
}

std::string reference(Bench& bench, const std::string& name, const RunConfig& config, const Planted& planted) {
  const auto run = [&](const std::string& folder, const Planted& with) {
    std::string dir = bench.empty(folder);
    const Ended ended = bench.attempt(dir, config, with);
    if (!ended.finished()) {
      std::string said;
      for (int rank = 0; rank < config.layout.world_size && said.empty(); ++rank) said = result_of(dir, rank).error;
      throw ConfigError(fmt::format("an uninterrupted run fails ({}): {}", ended.in_words(), said));
    }
    return dir;
  };
  std::string first = run(name, planted);
  const std::string control = run(name + "-control", {});
  const std::string difference = first_difference(first, control, config.layout.world_size);
  if (!difference.empty())
    throw ConfigError("two uninterrupted runs differ, so that nothing could be compared with them: " + difference);
  return first;
}

namespace {

bool same_series(const Series& a, const Series& b) {
  if (a.steps != b.steps || a.values.size() != b.values.size()) return false;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    if (!same_bits(a.values[i], b.values[i])) return false;
  }
  return true;
}

std::string curve_difference(const RankResult& expected, const RankResult& found) {
  for (const auto& [name, series] : expected.curves) {
    const auto other = found.curves.find(name);
    if (other == found.curves.end()) return fmt::format("curve {}: missing", name);
    if (!same_series(series, other->second)) {
      return fmt::format("curve {}: {} values expected, {} found, or other ones", name, series.values.size(),
                         other->second.values.size());
    }
  }
  for (const auto& [name, value] : expected.metrics) {
    const auto other = found.metrics.find(name);
    if (other == found.metrics.end() || !same_bits(other->second, value))
      return fmt::format("metric {}: {} expected", name, value);
  }
  return "";
}

std::string result_difference(const RankResult& expected, const RankResult& found) {
  if (found.status != "finished") {
    return fmt::format("it did not finish: {}", found.error.empty() ? "no result" : found.error);
  }
  if (std::string curves = curve_difference(expected, found); !curves.empty()) return curves;
  if (found.parameters_hash != expected.parameters_hash) {
    return fmt::format("last parameters: hash {} expected, found {}", expected.parameters_hash, found.parameters_hash);
  }
  return "";
}

bool same_record(const Record& a, const Record& b) {
  return a.phase == b.phase && a.name == b.name && a.shape == b.shape && a.stats == b.stats && a.ids == b.ids &&
         same_bits(a.value, b.value) && a.payload == b.payload && a.collective == b.collective;
}

std::string step_difference(const StepRecords& expected, const StepRecords& found) {
  if (expected.step != found.step) return fmt::format("step {} expected, found {}", expected.step, found.step);
  for (std::size_t i = 0; i < expected.records.size() && i < found.records.size(); ++i) {
    if (!same_record(expected.records[i], found.records[i]))
      return fmt::format("step {}: {}, {}", expected.step, name_of(expected.records[i].phase), expected.records[i].name);
  }
  if (expected.records.size() == found.records.size()) return "";
  return fmt::format("step {}: {} records expected, found {}", expected.step, expected.records.size(),
                     found.records.size());
}

std::string trace_difference(const std::string& expected_path, const std::string& found_path) {
  const FileText expected_bytes = read_file(expected_path), found_bytes = read_file(found_path);
  if (!expected_bytes) return expected_path + ": " + expected_bytes.problem;
  if (!found_bytes) return found_path + ": " + found_bytes.problem;
  if (expected_bytes.text == found_bytes.text) return "";
  try {
    TraceReader expected(expected_path), found(found_path);
    for (;;) {
      const auto a = expected.next(), b = found.next();
      if (!a && !b) break;
      if (!b) return fmt::format("step {} expected, the trace ends before: {}", a->step, found.end());
      if (!a) return fmt::format("step {} was not expected", b->step);
      if (std::string step = step_difference(*a, *b); !step.empty()) return step;
    }
  } catch (const TraceError& error) {
    return error.what();
  }
  return "the same records in other bytes";
}

}  // namespace

Kept kept_in(const std::string& run_dir) {
  Kept kept;
  const checkpoint::Survey found = checkpoint::survey(checkpoint::posix_storage(), run_dir + "/checkpoints", true);
  for (const checkpoint::Entry& entry : found.entries) {
    if (entry.standing == checkpoint::Standing::whole) kept.whole.push_back(entry.commit.step);
    if (entry.standing == checkpoint::Standing::damaged) ++kept.damaged;
  }
  return kept;
}

std::string best_model_problem(const std::string& run_dir, const RunConfig& config) {
  const Series curve = result_of(run_dir, 0).curves.at(std::string(spec_of(config).shown_metric));
  const auto value_at = [&](int64_t step) {
    const auto at = std::ranges::find(curve.steps, step);
    return at == curve.steps.end() ? -std::numeric_limits<double>::infinity() : curve.values[static_cast<std::size_t>(at - curve.steps.begin())];
  };
  int64_t best = -1;
  for (const int64_t step : curve.steps) {
    if (checkpoint::due(step, config.checkpoint.every) && (best < 0 || value_at(step) > value_at(best))) best = step;
  }
  const checkpoint::ReadPointer pointer = checkpoint::read_pointer(checkpoint::posix_storage(), run_dir + "/checkpoints", checkpoint::kBest);
  const int64_t named = pointer.missing ? -1 : pointer.pointer.step;
  if (best < 0 ? named >= 0 : named < 0 || value_at(named) < value_at(best)) return fmt::format("best_model: step {} expected, found {}", best, named);
  const Kept kept = kept_in(run_dir);
  if (named >= 0 && std::ranges::find(kept.whole, named) == kept.whole.end()) return fmt::format("best_model: step {} is not whole", named);
  return "";
}

std::string first_difference(const std::string& expected_dir, const std::string& found_dir, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string result = result_difference(result_of(expected_dir, rank), result_of(found_dir, rank));
    if (!result.empty()) return fmt::format("rank {}: {}", rank, result);
    const std::string trace = trace_difference(trace_of(expected_dir, rank), trace_of(found_dir, rank));
    if (!trace.empty()) return fmt::format("rank {}: trace: {}", rank, trace);
  }
  return "";
}

std::string trace_difference_before(const std::string& expected_dir, const std::string& found_dir, int ranks, int64_t step) {
  for (int rank = 0; rank < ranks; ++rank) {
    try {
      TraceReader expected(trace_of(expected_dir, rank)), found(trace_of(found_dir, rank));
      for (;;) {
        const auto a = expected.next(), b = found.next();
        if (!a || a->step >= step) break;
        std::string problem = b ? step_difference(*a, *b) : fmt::format("step {} expected, {}", a->step, found.end());
        if (!problem.empty()) return fmt::format("rank {}: trace: {}", rank, problem);
      }
    } catch (const TraceError& error) {
      return fmt::format("rank {}: trace: {}", rank, error.what());
    }
  }
  return "";
}

std::string training_difference(const std::string& expected_dir, const std::string& found_dir) {
  const std::string result = result_difference(result_of(expected_dir, 0), result_of(found_dir, 0));
  return result.empty() ? "" : "rank 0: " + result;
}

}  // namespace lockstep::restarts
