// SIGTERM or SIGUSR1 at random moments: an agreed step, a save within the grace, the exit code, and then the run goes on.

#include <fmt/format.h>

#include <array>
#include <csignal>
#include <map>

#include "harness/base/errors.h"
#include "harness/base/hashing.h"
#include "harness/suites/checkpoint/trainer/experiment.h"
#include "harness/suites/checkpoint/trainer/judge.h"

namespace lockstep::restarts {
namespace {

constexpr int64_t kPreemptionSteps = 24, kPreemptionEvery = 3;
constexpr int kPreemptionRanks = 2;

struct Signal {
  bool async = false;
  int number = SIGTERM;
  int rank = -1;       ///< -1: all, as a launcher passes it on
  double moment = 0;   ///< share of the time from when all ranks have begun to their end, in [0, 1)
};

class Preemptions : public Experiment {
 public:
  explicit Preemptions(const Subject& subject) : subject_(subject) {}

  std::vector<Trial> trials(Bench& bench) override {
    for (const bool async : {false, true}) {
      Made& made = made_[async];
      made.config = shaped(subject_.config, {kPreemptionRanks, kPreemptionSteps, kPreemptionEvery, 3, async, false});
      if (subject_.config.eval_every == 0) made.config.eval_every = kPreemptionEvery;
      made.whole = reference(bench, async ? "preempt-async" : "preempt", made.config);
      // How long it takes from when all ranks have begun.
      double began_s = 0;
      const Ended timed = bench.attempt(bench.empty("timed"), made.config, {}, [&](const Going& going) {
        if (began_s == 0 && going.all_began()) began_s = going.since_started_s;
      });
      made.seconds = timed.seconds - began_s;
    }
    std::vector<Trial> trials;
    for (int64_t number = 0; number < subject_.signals; ++number) {
      const auto draw = [&](uint64_t what) {
        return keyed(static_cast<uint64_t>(subject_.seed), static_cast<uint64_t>(number), what);
      };
      Signal signal{number % 2 == 1, draw(1) % 2 == 0 ? SIGTERM : SIGUSR1, static_cast<int>(draw(2) % (kPreemptionRanks + 1)) - 1,
                    static_cast<double>(draw(3) % 10000) / 10000};
      const std::string name = fmt::format("preempt:{}", number);
      trials.push_back({name, signal.number == SIGTERM ? "SIGTERM" : "SIGUSR1",
                        fmt::format("{}{}", signal.rank < 0 ? "all ranks" : "one rank",
                                    signal.async ? ", asynchronous saves" : ""),
                        1});
      planned_[name] = signal;
    }
    return trials;
  }

  std::vector<CaseResult> run(const Trial& trial, Bench& bench) const override {
    Signal signal = planned_.at(trial.name);
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
    if (const std::string problem = best_model_problem(dir, made.config); !problem.empty())
      return {fault("not the best", who + ": " + problem)};
    const std::string difference = first_difference(made.whole, dir, kPreemptionRanks);
    if (!difference.empty()) return {fault("end differs", who + ": " + difference)};
    return {good("saved within the grace, end equal")};
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements&) const override {
    return {{"signals", fmt::format("{}, half of them to a run that saves asynchronously", planned_.size())}};
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

  const Subject& subject_;
  std::map<bool, Made> made_;
  std::map<std::string, Signal> planned_;
};

}  // namespace

std::unique_ptr<Experiment> make_preemptions(const Subject& subject) { return std::make_unique<Preemptions>(subject); }

}  // namespace lockstep::restarts
