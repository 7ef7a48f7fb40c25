#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/jobs/orders/faults/order.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/suites/engine/suite.h"

// What a run may leave behind when its processes have ended.

namespace lockstep::faults {

/// What is there before a run: sockets that listen, names of shared memory.
struct Before {
  std::set<std::string> listening, shared_memory;
};

/// Processes of the run's group; sockets that listen and were not there before, where a process of the group or none at all
/// holds them; new shared memory of LibTorch and Gloo; files in the run's folder that are none of a run's.
std::vector<std::string> left_behind(const Before& before, int group, const std::string& run_dir);

// Programs of the labelled suite on real ranks, under the supervisor that `lockstep run` has.

/// How a program ended, and what was seen of it. Times are seconds of the monotonic clock.
struct Played {
  EndedRun run;                       ///< as the supervisor saw it
  std::vector<RankResult> results;    ///< by rank; without a status, if it wrote none
  std::vector<double> error_at;       ///< by rank: when it had its error; 0: it had none, or no time to say so
  double acted_at = 0;                ///< when the fault was about to act; 0: it never was
  std::vector<std::string> left_behind;  ///< processes, sockets, shared memory, files
  int64_t saved_step = -1;            ///< of the last step that every rank has saved; -1: none
  int64_t finished_steps = 0;         ///< that every rank has finished
  bool finished() const;
};

/// Called every look while ranks live.
struct Ongoing {
  const HeartbeatFile& heartbeats;
  const std::vector<int>& pids;  ///< by rank
  double acted_at;
};
using Disturb = std::function<void(const Ongoing&)>;

class Bench {
 public:
  struct Options {
    std::string rank_program, work;  ///< `work`: a folder of its own, which is emptied
    double deadline_s = 20;
    const volatile int* stop_requested = nullptr;
    bool watches = true;             ///< false: a mistake: hangs are not looked for
  };
  explicit Bench(const Options& options);

  Played play(const Order& order, const Disturb& disturb = nullptr);
  /// Of the program that was played last, until the next one is: a rank's record, line by line.
  std::vector<std::string> record_of(int rank) const;

 private:
  Options options_;
  RankRuns runs_;
  int64_t rounds_ = 0;
  std::string dir_;
};

// Holds what was said of a program against what had to be said.

/// What lockstep would say of it: who, how, in which words.
struct Said {
  Notice notice = Notice::died;
  bool anything = false;
  int rank = -1;         ///< whose process it names
  std::string words;
  double at = 0;         ///< on the monotonic clock; 0: not before the end
};
/// `expected`, `found`: records by rank of the control run and of the program; looked at if every rank finished.
Said said_of(const Played& played, const std::vector<std::vector<std::string>>& expected,
             const std::vector<std::vector<std::string>>& found);

/// Of the wrong program: was the fault noticed, as what it is, with rank, place and operation, and told to every rank that lived?
CaseResult judge_wrong(const FaultKind& kind, const Order& order, const Played& played, const Said& said);
/// Of the correct one: nothing may be said, and every rank must finish.
CaseResult judge_control(const FaultKind& kind, const Order& order, const Played& played, const Said& said);

/// The first line in which a rank's record parts from the control run's: "rank 1, step 2: gradients/w1 at element 6". Empty: none.
std::string first_difference(const std::vector<std::vector<std::string>>& expected,
                             const std::vector<std::vector<std::string>>& found);

// What trials measured, gathered over all slots.

/// One wrong program, as the report tells it.
struct Noticed {
  std::string kind, by;     ///< "hung", "check"; by: empty where nobody noticed
  double after_s = -1;      ///< from the act to the first word; -1: only the finished run told, or not measured
  std::string words;
  int64_t steps_lost = 0;   ///< steps that had ended before the act, and are in no file of some rank
  std::string outcome = "named";                ///< as the trial's: "named", "missed"
  CaseVerdict verdict = CaseVerdict::good;
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Noticed, kind, by, after_s, words, steps_lost, outcome, verdict)

/// Into the measurements of the trial: a wrong program, by the trial's name.
void note(const std::string& trial, const Noticed& one);
/// Of a correct program of that kind: was nothing said of it?
void note_control(const std::string& kind, bool silent);
/// One of those that are counted: did it come out well?
void note_count(const std::string& name, bool good);

/// What all trials measured. Durations are samples by name.
class Figures {
 public:
  explicit Figures(const Measurements& m);
  /// "199 of 200" of what was counted.
  Facts facts() const;
  /// Durations with n, median, 99th percentile and maximum; families of faults; each kind: by whom, when, in which words, what was lost, and
  /// what was said of its control run. Those of which there is something to say.
  std::vector<SuiteTable> tables() const;
  /// Time from the act to the first word by kind, against the threshold and a save's; and the durations.
  std::vector<SuiteChart> charts(double threshold_s, double disk_threshold_s) const;

 private:
  std::map<std::string, std::vector<Noticed>> kinds_;
  std::map<std::string, std::pair<int64_t, int64_t>> controls_;  ///< silent ones, all
  std::map<std::string, std::vector<double>> seconds_;
  std::map<std::string, std::pair<int64_t, int64_t>> counts_;  ///< good ones, all
};

}  // namespace lockstep::faults
