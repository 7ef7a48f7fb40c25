#include "harness/suites/checkpoint/trainer/resumes.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <limits>
#include <map>
#include <stdexcept>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "harness/judge/trace/reader.h"
#include "harness/lib/checkpoint/loader.h"
#include "harness/lib/checkpoint/saver.h"
#include "harness/lib/checkpoint/state.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/run/run_folder.h"

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
  EndedRun run = runs_.run(dir, {{"config", nlohmann::json::parse(canonical_json(config))}, {"planted", planted}}, asked, std::move(hooks));
  return {std::move(run.ends), run.late || run.alarm.has_value(), run.seconds};
}

Ended Bench::attempt_past(int64_t steps, const std::string& dir, const RunConfig& config, const Planted& planted) {
  return attempt(dir, config, planted, [steps](const Going& going) {
    if (going.fewest_steps() > steps) going.signal_all(SIGKILL);
  });
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

std::vector<CaseResult> wrong_end(const std::string& whole_dir, const std::string& run_dir, const RunConfig& config,
                                  const std::string& who) {
  if (const std::string problem = best_model_problem(run_dir, config); !problem.empty())
    return {fault("not the best", who + ": " + problem)};
  const std::string difference = first_difference(whole_dir, run_dir, config.layout.world_size);
  if (!difference.empty()) return {fault("end differs", who + ": " + difference)};
  return {};
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

/// The same of runs of other numbers of ranks: last parameters, and rank 0's curves and metrics.
static std::string training_difference(const std::string& expected_dir, const std::string& found_dir) {
  const std::string result = result_difference(result_of(expected_dir, 0), result_of(found_dir, 0));
  return result.empty() ? "" : "rank 0: " + result;
}

// A kind of state that a save leaves out, or that a load does not put back: the run must say which. And what becomes of a
// run in which nobody looks: which kinds its further bits stand on.
namespace {

constexpr int64_t kLeftOutSteps = 80, kLeftOutEvery = 2, kLeftOutFurther = 6;
/// What a load holds against the config and puts nowhere: between two steps it is always the same.
constexpr std::array<std::string_view, 3> kDerived{checkpoint::kind::accumulation, checkpoint::kind::sampler_permutation,
                                                   checkpoint::kind::cached_controls};

class LeftOut {
 public:
  LeftOut(const Subject& subject, Bench& bench)
      // Long enough to be in the second epoch, where the sampler's epoch counts.
      : config_(shaped(subject.config, {2, kLeftOutSteps, kLeftOutEvery, 3, false, false})),
        whole_(reference(bench, "left_out-whole", config_)),
        before_(bench.empty("left_out")) {
    saved_after(before_, {}, bench, 0);
  }

  std::map<std::string, checkpoint::KindEntry> kinds() const { return newest_in(before_).kinds; }

  std::vector<CaseResult> run(const std::string& how, const std::string& kind, Bench& bench) const {
    std::string dir;
    Planted planted;
    if (how == "not saved") {
      planted.not_saved = kind;
      dir = bench.empty("run");
      saved_after(dir, planted, bench, kLeftOutEvery);
      planted = {};
    } else {
      dir = bench.copy(before_, "run");
      planted.not_restored = kind;
    }
    if (how == "not put back, nobody looks") return {unnoticed(kind, planted, dir, bench)};
    const int64_t newest = kept_in(dir).newest();
    const Ended ended = bench.attempt(dir, config_, planted, [newest](const Going& going) {
      if (going.most_steps() > newest) going.signal_all(SIGKILL);  // it has taken the state, and trains
    });
    const std::string words = checkpoint::words_of(kind), said = result_of(dir, 0).error;
    if (said.find(words + ":") != std::string::npos) return {good("refused, named")};
    if (said.empty())
      return {fault("silent", fmt::format("{} was {}, and the run went on ({})", words, how, ended.in_words()))};
    return {fault("another name", fmt::format("{} was {}; the run says: {}", words, how, said))};
  }

 private:
  CaseResult unnoticed(const std::string& kind, Planted planted, const std::string& dir, Bench& bench) const {
    planted.unchecked = true;
    const int64_t until = kept_in(dir).newest() + kLeftOutFurther;
    const Ended ended = bench.attempt_past(until, dir, config_, planted);
    if (const std::string said = result_of(dir, 0).error; !said.empty())
      return {"undecided", CaseVerdict::undecided, 1,
              fmt::format("{}: {} ({})", checkpoint::words_of(kind), said, ended.in_words())};
    const std::string difference = trace_difference_before(whole_, dir, 2, until);
    return good(difference.empty() ? std::string("same bits") : "other bits");
  }

  checkpoint::Manifest newest_in(const std::string& dir) const {
    checkpoint::Survey found = checkpoint::survey(checkpoint::posix_storage(), dir + "/checkpoints", true);
    for (checkpoint::Entry& entry : found.entries) {
      if (entry.standing == checkpoint::Standing::whole) return entry.manifest;
    }
    throw ConfigError("a run of the trainer leaves no checkpoint: " + result_of(dir, 0).error);
  }

  /// Ends the run when a checkpoint stands; with `steps` 0 when one of the second epoch does.
  void saved_after(const std::string& dir, const Planted& planted, Bench& bench, int64_t steps) const {
    bench.attempt(dir, config_, planted, [&](const Going& going) {
      const int64_t reached = going.fewest_steps();
      if (reached <= kLeftOutEvery || (steps > 0 && reached <= steps)) return;
      if (steps == 0 && reached < config_.steps - 1 && newest_in(dir).epoch == 0) return;
      going.signal_all(SIGKILL);
    });
  }

  const RunConfig config_;
  const std::string whole_, before_;
};

Experiment plan_left_out(const Subject& subject, Bench& bench) {
  const auto left_out = std::make_shared<const LeftOut>(subject, bench);
  Experiment planned;
  const auto add = [&](const char* word, const std::string& how, const std::string& kind) {
    planned.trials.push_back({{fmt::format("left_out:{}:{}", word, kind), how, checkpoint::words_of(kind), 0.5},
                              [left_out, how, kind](Bench& on) { return left_out->run(how, kind, on); }});
  };
  const std::map<std::string, checkpoint::KindEntry> kinds = left_out->kinds();
  for (const auto& [kind, entry] : kinds) {
    add("not_saved", "not saved", kind);
    const bool same_anyway = std::ranges::find(kDerived, kind) != kDerived.end() ||
                             (kind == checkpoint::kind::best_metric && entry.values.value("step", -1) < 0);
    if (same_anyway) continue;
    add("not_put_back", "not put back", kind);
    add("unnoticed", "not put back, nobody looks", kind);
  }
  planned.facts = {{"kinds of state that the trainer saves", std::to_string(kinds.size())}};
  return planned;
}

}  // namespace

// SIGTERM or SIGUSR1 at random moments: an agreed step, a save within the grace, the exit code, and then the run goes on.
namespace {

constexpr int64_t kPreemptionSteps = 24, kPreemptionEvery = 3;
constexpr int kPreemptionRanks = 2;

struct Signal {
  bool async = false;
  int number = SIGTERM;
  int rank = -1;       ///< -1: all, as a launcher passes it on
  double moment = 0;   ///< share of the time from when all ranks have begun to their end, in [0, 1)
};

class Preemptions {
 public:
  Preemptions(const Subject& subject, Bench& bench) {
    for (const bool async : {false, true}) {
      Made& made = made_[async];
      made.config = shaped(subject.config, {kPreemptionRanks, kPreemptionSteps, kPreemptionEvery, 3, async, false});
      if (subject.config.eval_every == 0) made.config.eval_every = kPreemptionEvery;
      made.whole = reference(bench, async ? "preempt-async" : "preempt", made.config);
      // How long it takes from when all ranks have begun.
      double began_s = 0;
      const Ended timed = bench.attempt(bench.empty("timed"), made.config, {}, [&](const Going& going) {
        if (began_s == 0 && going.all_began()) began_s = going.since_started_s;
      });
      made.seconds = timed.seconds - began_s;
    }
  }

  std::vector<CaseResult> run(Signal signal, Bench& bench) const {
    const Made& made = made_.at(signal.async);
    std::string dir, who;
    Ended ended;
    // One that comes when the run has finished tells nothing: the next one comes earlier.
    for (int tries = 0; tries < 4; ++tries, signal.moment /= 2) {
      dir = bench.empty("run");
      ended = send(signal, made, dir, bench, who);
      if (!ended.finished()) break;
    }
    if (ended.hung) return {fault("hang", who + ": " + ended.in_words())};
    if (ended.finished())
      return {{"it had finished", CaseVerdict::undecided, 1, who + ": four runs had finished before the signal"}};
    if (std::string problem = not_in_order(ended, dir, signal, made); !problem.empty())
      return {fault("not in order", who + ": " + problem)};
    bench.attempt(dir, made.config);
    if (auto wrong = wrong_end(made.whole, dir, made.config, who); !wrong.empty()) return wrong;
    return {good("saved within the grace, end equal")};
  }

 private:
  struct Made {
    RunConfig config;
    std::string whole;
    double seconds = 0;
  };

  static Ended send(const Signal& signal, const Made& made, const std::string& dir, Bench& bench, std::string& who) {
    double due_s = -1;
    bool sent = false;
    int64_t at_step = 0;
    Ended ended = bench.attempt(dir, made.config, {}, [&](const Going& going) {
      if (sent || !going.all_began()) return;
      if (due_s < 0) due_s = going.since_started_s + signal.moment * made.seconds;
      if (going.since_started_s < due_s) return;
      sent = true;
      at_step = going.most_steps();
      if (signal.rank < 0) going.signal_all(signal.number);
      else ::kill(going.processes[static_cast<std::size_t>(signal.rank)], signal.number);
    });
    who = fmt::format("signal {} to {} after step {}", signal.number,
                      signal.rank < 0 ? "all ranks" : fmt::format("rank {}", signal.rank), at_step);
    return ended;
  }

  /// Every rank with the signal's exit code, after the same step, and that step saved within the grace.
  static std::string not_in_order(const Ended& ended, const std::string& dir, const Signal& signal, const Made& made) {
    for (const RankEnd& exit : ended.exits) {
      if (exit.code != 128 + signal.number)
        return fmt::format("status {} of every rank expected, found {}: {}", 128 + signal.number, ended.in_words(),
                           result_of(dir, exit.rank).error);
    }
    const int64_t newest = kept_in(dir).newest();
    for (int rank = 0; rank < kPreemptionRanks; ++rank) {
      const RankResult result = result_of(dir, rank);
      if (result.steps_done != newest) {
        return fmt::format("rank {} stopped after step {}, the newest checkpoint is of step {}", rank, result.steps_done,
                           newest);
      }
      if (result.checkpoints.stop_seconds > made.config.checkpoint.grace_s)
        return fmt::format("rank {} took {:.3g} s, the grace is {:g} s", rank, result.checkpoints.stop_seconds,
                           made.config.checkpoint.grace_s);
    }
    return "";
  }

  std::map<bool, Made> made_;
};

Experiment plan_preemptions(const Subject& subject, Bench& bench) {
  const auto preemptions = std::make_shared<const Preemptions>(subject, bench);
  Experiment planned;
  for (int64_t number = 0; number < subject.signals; ++number) {
    const auto draw = [&](uint64_t what) {
      return keyed(static_cast<uint64_t>(subject.seed), static_cast<uint64_t>(number), what);
    };
    const Signal signal{number % 2 == 1, draw(1) % 2 == 0 ? SIGTERM : SIGUSR1,
                        static_cast<int>(draw(2) % (kPreemptionRanks + 1)) - 1,
                        static_cast<double>(draw(3) % 10000) / 10000};
    const std::string place =
        fmt::format("{}{}", signal.rank < 0 ? "all ranks" : "one rank", signal.async ? ", asynchronous saves" : "");
    const char* const name = signal.number == SIGTERM ? "SIGTERM" : "SIGUSR1";
    planned.trials.push_back({{fmt::format("preempt:{}", number), name, place, 1},
                              [preemptions, signal](Bench& on) { return preemptions->run(signal, on); }});
  }
  planned.facts = {{"signals", fmt::format("{}, half of them to a run that saves asynchronously", subject.signals)}};
  return planned;
}

}  // namespace

// A run goes on with another number of ranks. Under exact arithmetic it has the bits of the one that did not change.
namespace {

constexpr std::array kWorlds{1, 2, 3, 4, 5, 8};
constexpr int kBatch = 120;  ///< rows that each of them shares equally
constexpr int64_t kReshardSteps = 4, kReshardEvery = 2;

class Reshards {
 public:
  Reshards(const Subject& subject, Bench& bench)
      : subject_(subject), whole_(reference(bench, "reshards", config_of(1))) {
    for (const int from : kWorlds) {
      const std::string dir = bench.empty(fmt::format("reshard-{}", from));
      bench.attempt_past(kReshardEvery, dir, config_of(from));
      if (kept_in(dir).newest() != kReshardEvery)
        throw ConfigError(fmt::format("{} ranks left no checkpoint of step {}: {}", from, kReshardEvery, result_of(dir, 0).error));
      before_[from] = dir;
    }
  }

  std::vector<CaseResult> run(int from, int to, Bench& bench) const {
    const std::string dir = bench.copy(before_.at(from), "run");
    if (from != to) {
      for (int rank = 0; rank < from; ++rank) std::filesystem::remove(trace_of(dir, rank));
    }
    const Ended ended = bench.attempt(dir, config_of(to));
    const std::string what = fmt::format("saved by {} ranks, gone on with {}", from, to);
    const int64_t resumed = result_of(dir, 0).checkpoints.resumed_at;
    if (resumed != kReshardEvery) {
      return {fault("resume fails", fmt::format("{}: at step {} expected, found step {} ({}): {}", what, kReshardEvery, resumed,
                                                ended.in_words(), result_of(dir, 0).error))};
    }
    const std::string difference = training_difference(whole_, dir);
    if (!difference.empty()) return {fault("other bits", what + ": " + difference)};
    return {good("bit-equal")};
  }

 private:
  RunConfig config_of(int ranks) const {
    RunConfig base = subject_.config;
    base.arithmetic = Arithmetic::exact;
    base.layout = {1, kBatch};
    return shaped(base, {ranks, kReshardSteps, kReshardEvery, 3, false, true});
  }

  const Subject& subject_;
  const std::string whole_;
  std::map<int, std::string> before_;
};

Experiment plan_reshards(const Subject& subject, Bench& bench) {
  const auto reshards = std::make_shared<const Reshards>(subject, bench);
  Experiment planned;
  for (const int from : kWorlds) {
    for (const int to : kWorlds) {
      planned.trials.push_back(
          {{fmt::format("reshard:{}_to_{}", from, to), "reshard", fmt::format("from {} ranks", from), 1},
           [reshards, from, to](Bench& on) { return reshards->run(from, to, on); }});
    }
  }
  planned.facts = {
      {"pairs of world sizes", fmt::format("{} of {{{}}}²", planned.trials.size(), fmt::join(kWorlds, ", "))}};
  return planned;
}

}  // namespace

// A run goes on from each of its steps, once and twice in a row.
namespace {

namespace fs = std::filesystem;

constexpr int64_t kResumeFurther = 10;  ///< steps that are compared with the run that was never stopped
constexpr int64_t kBetween = 3;   ///< steps between two stops in a row

class Resumes {
 public:
  Resumes(const Subject& subject, Bench& bench)
      : config_(config_of(subject, subject.resume_steps + kBetween + kResumeFurther + 2)),
        whole_(reference(bench, "resumes", config_)) {}

  std::vector<CaseResult> run(int64_t step, int times, Bench& bench) const {
    const std::string dir = stopped_at(step, bench);
    int64_t from = step;
    if (times == 2) {
      if (std::string problem = go_on(dir, from, from + kBetween, bench); !problem.empty())
        return {fault("resume fails", problem)};
      from = kept_in(dir).newest();
      if (from < step + kBetween - 1) {
        return {fault("lost work", fmt::format("stopped again after step {}, the newest checkpoint is of step {}",
                                               step + kBetween, from))};
      }
    }
    if (std::string problem = go_on(dir, from, from + kResumeFurther, bench); !problem.empty())
      return {fault("resume fails", problem)};
    const std::string difference = trace_difference_before(whole_, dir, config_.layout.world_size, from + kResumeFurther);
    if (!difference.empty())
      return {fault("other bits", fmt::format("a run that goes on at step {}: {}", from, difference))};
    return {good(fmt::format("{} further steps bit-equal", kResumeFurther))};
  }

  /// Each checkpoint by its epoch and step, `latest` at the newest, and `best_model` at the best evaluation.
  CaseResult named_right() const {
    const std::string root = whole_ + "/checkpoints";
    const checkpoint::Survey found = checkpoint::survey(checkpoint::posix_storage(), root, true);
    if (static_cast<int64_t>(found.entries.size()) != config_.steps || !found.strangers.empty()) {
      return fault("other names", fmt::format("{} checkpoints and no stranger expected, found {} and {}", config_.steps,
                                              found.entries.size(), found.strangers.size()));
    }
    for (const checkpoint::Entry& entry : found.entries) {
      const auto epoch = entry.manifest.kinds.at(std::string(checkpoint::kind::sampler_epoch)).values.at("epoch").get<int64_t>();
      const std::string name = checkpoint::checkpoint_name(epoch, entry.manifest.step);
      if (entry.name != name) return fault("other names", fmt::format("{} expected, found {}", name, entry.name));
    }
    const auto points_to = [&](std::string_view pointer) {
      return checkpoint::read_pointer(checkpoint::posix_storage(), root, pointer).pointer.step;
    };
    if (points_to(checkpoint::kLatest) != config_.steps)
      return fault("latest is behind", fmt::format("step {} expected, found {}", config_.steps, points_to(checkpoint::kLatest)));
    if (const std::string problem = best_model_problem(whole_, config_); !problem.empty()) return fault("not the best", problem);
    return good("as documented");
  }

 private:
  static RunConfig config_of(const Subject& subject, int64_t steps) {
    return shaped(subject.config, {2, steps, 1, static_cast<int>(steps) + 1, false, false});
  }

  /// What the uninterrupted run left when it had saved that step.
  std::string stopped_at(int64_t step, Bench& bench) const {
    std::string dir = bench.empty("run");
    fs::create_directories(dir + "/checkpoints");
    const std::string ending = fmt::format("_step_{}", step);
    for (const auto& entry : fs::directory_iterator(whole_ + "/checkpoints")) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("epoch_") && name.ends_with(ending))
        fs::copy(entry.path(), dir + "/checkpoints/" + name, fs::copy_options::recursive);
    }
    for (int rank = 0; rank < config_.layout.world_size; ++rank) fs::copy(trace_of(whole_, rank), trace_of(dir, rank));
    return dir;
  }

  /// Until every rank has finished that many steps; then all are killed. Returns what went wrong.
  std::string go_on(const std::string& dir, int64_t from, int64_t until, Bench& bench) const {
    const int64_t newest = kept_in(dir).newest();
    if (newest != from) return fmt::format("a checkpoint of step {} expected, the newest is of step {}", from, newest);
    bool reached = false;
    const Ended ended = bench.attempt(dir, config_, {}, [&](const Going& going) {
      // An evaluation is reported before its step ends.
      if (reached || going.fewest_steps() <= until) return;
      reached = true;
      going.signal_all(SIGKILL);
    });
    if (reached || ended.finished()) return "";
    return fmt::format("the run that goes on at step {} ends ({}): {}", from, ended.in_words(), result_of(dir, 0).error);
  }

  const RunConfig config_;
  const std::string whole_;
};

Experiment plan_resumes(const Subject& subject, Bench& bench) {
  const auto resumes = std::make_shared<const Resumes>(subject, bench);
  Experiment planned;
  for (int64_t step = 1; step <= subject.resume_steps; ++step) {
    for (const int times : {1, 2}) {
      const std::string name = fmt::format("resume:step_{}:{}", step, times == 1 ? "once" : "twice");
      planned.trials.push_back({{name, times == 1 ? "resume" : "resume twice in a row", "every step", 0.6},
                                [resumes, step, times](Bench& on) { return resumes->run(step, times, on); }});
    }
  }
  planned.trials.push_back({{"resume:names", "names and pointers", "folder of checkpoints", 0.1},
                            [resumes](Bench&) { return std::vector{resumes->named_right()}; }});
  planned.facts = {
      {"steps at which a run was stopped", fmt::format("1 to {}, each once and twice in a row", subject.resume_steps)},
      {"uninterrupted runs that agreed", "2 of 2, byte for byte"}};
  return planned;
}

}  // namespace

std::span<const ExperimentKind> experiment_kinds() {
  static constexpr std::array<ExperimentKind, 6> kKinds{{
      {"kill", "SIGKILL before every operation of a save on each rank, then the run goes on", &plan_kills},
      {"resume", "a run goes on from each of its steps, once and twice in a row", &plan_resumes},
      {"left_out", "a kind of state that a save leaves out, or that a load does not put back", &plan_left_out},
      {"reshard", "a run goes on with another number of ranks, in exact arithmetic", &plan_reshards},
      {"cycle", "a run of 4 ranks is killed at random moments and started again", &plan_cycles},
      {"preempt", "SIGTERM or SIGUSR1 to one rank or to all at random moments, then the run goes on", &plan_preemptions},
  }};
  return kKinds;
}

}  // namespace lockstep::restarts
