#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/judge/evidence/ledger.h"
#include "harness/plan/config/trainer_spec.h"

// Records of a step by phase and name, a difference between two of them, and what is known of the
// trainer.

namespace lockstep {

/// How many columns the rank's scores of that name have; -1 where it recorded none.
int64_t columns_of(const StepRecords& rank, const std::string& scores);

/// The mean of the ranks' losses; nothing where a rank recorded none.
std::optional<double> mean_loss(const StepOfRun& step);

/// The trainer that both runs' traces name; null if it is not one of ours, or if they name two.
const TrainerSpec* trainer_of(const RunReader& reference, const RunReader& cell);

/// Columns of the scores' record in which any run may record rewards by row: their ids are codes, not candidates.
inline constexpr int64_t kRewardColumn = 2000000, kCostColumn = 3000000, kAdvantageColumn = 8000000,
                         kGroupColumn = 9000000, kRatioColumn = 10000000;

/// What is known of its scores; for a null trainer, what holds for any.
const ScoreSpec& scores_of(const TrainerSpec* trainer);

// States of random generators of processes, data-loader workers and devices.

/// "process/dropout", "worker 3/augment", "device 0/dropout": where a generator lives, and its name. Streams without a scope are
/// keyed by sample, and their hashes add up over ranks.
bool is_of_a_generator(std::string_view stream);
/// "dropout" of these.
std::string_view name_of_generator(std::string_view stream);

/// "rank", "same" or "sample": what the header declares of the stream, by its whole name or without its scope; empty: nothing.
std::string declared_state(const StepOfRun& step, const std::string& stream);

/// Did forward passes take random numbers in the step (dropout, sampling), and not the same on the same ranks? Then losses and gradients of the
/// two are not those of one computation: rows of another layout get other numbers.
bool forward_draws_differ(const StepOfRun& a, const StepOfRun& b);

/// States of generators by step, stream and rank.
using GeneratorHistory = std::map<int64_t, std::map<std::string, std::map<int, uint64_t>>>;
void remember_generators(GeneratorHistory& history, const StepOfRun& step);

/// What run B's generators show: two ranks in one state, where the header declares another on each, or where the reference, of as many
/// ranks, has another on each; ranks in several states that are declared the same; and other numbers of draws than the
/// reference's where the declaration, or a `same_partition` of rows over ranks and micro-steps, tells how many they must be.
std::optional<Difference> generators_difference(const StepOfRun& a, const StepOfRun& b, bool same_partition = true);

// Two runs read side by side.

/// What the traces of another trainer say against themselves. A verdict rests on hashes and values; a tracer whose
/// other words contradict these is at fault, whatever the verdict.
class Contradictions {
 public:
  /// Looks at a step of both runs, at whole tensors and at parts. In each run: statistics against the values beside
  /// them, rows of scores, losses and inputs against the step's samples. Between runs of one layout: statistics, values
  /// and rows under equal hashes, and hashes over equal values.
  void look(const StepOfRun& a, const StepOfRun& b, const std::string& name_a, const std::string& name_b);

  /// " The traces contradict themselves: …" with the first one found and how many more; empty if there is none.
  std::string sentence() const;

 private:
  void note(int64_t step, std::size_t rank, const Record& record, const std::string& what);

  std::string first_;
  int64_t found_ = 0;
};

/// Sample ids by step and rank, of ranks that have rows of their own.
using SampleHistory = std::map<int64_t, std::vector<std::vector<int64_t>>>;

/// How two runs' steps pair up until one of them ends.
class StepPairs {
 public:
  /// `most_steps`: steps from this number on are not asked for; 0: all are.
  StepPairs(const std::string& dir_a, const std::string& dir_b, int64_t most_steps = 0)
      : a_(dir_a), b_(dir_b), most_steps_(most_steps), ours_(trainer_of(a_, b_) != nullptr) {
    if (!ours_) b_.name_like(dir_a);
  }
  RunReader& a() { return a_; }
  RunReader& b() { return b_; }
  bool same_layout() const { return a_.world_size() == b_.world_size(); }

  /// Reads the next step that both recorded; false at the end of either. Steps of one run alone are passed by and kept
  /// in mind: a run that was resumed, or whose trace was cut, lacks them.
  bool next();
  const StepOfRun& step_a() const { return *step_a_; }
  const StepOfRun& step_b() const { return *step_b_; }
  /// The steps before those; empty at the first, and of the run that lacks it.
  const std::optional<StepOfRun>& before_a() const { return before_a_; }
  const std::optional<StepOfRun>& before_b() const { return before_b_; }
  int64_t compared() const { return compared_; }
  /// What the steps so far say against themselves; nothing is looked for in traces of a trainer of ours.
  const Contradictions& contradictions() const { return contradictions_; }
  /// Of all steps that have been read, those without a partner too.
  const SampleHistory& samples_a() const { return samples_a_; }
  const SampleHistory& samples_b() const { return samples_b_; }
  const GeneratorHistory& generators_b() const { return generators_b_; }

  /// Do steps without a partner lie just before these?
  bool after_gap() const { return after_gap_; }
  bool has_gap() const { return !alone_.empty(); }
  /// Have both recorded parameters behind the last gap? What they hold there, all steps before have made.
  bool gap_is_bridged() const { return !open_gap_; }
  /// "steps 3 to 9 have no partner: only A recorded them"; empty if each has one.
  std::string gaps() const;
  /// The first step behind a gap differs in what the parameters that it begins with decide: the gap may have made it.
  /// Then this is the divergence: the first step that one run skipped.
  std::optional<Divergence> skipped_step(const Difference& difference) const;

  /// Once next() gave false: in words that the traces end at different steps, or before the steps that were asked for;
  /// empty if all that was asked for has been compared.
  std::string missing_end() const;
  /// Then the command that judges what both have.
  std::string judging_both() const;
  /// In words what the comparison could not reach: cut traces, unequal lengths; empty if both ended together
  /// and whole.
  std::string ends() const;

 private:
  struct Alone {
    int64_t first = 0, last = 0;
    bool of_a = true;
  };

  void read(bool of_a);
  bool pair_up();
  void pass_by(bool of_a);
  void count_rest();
  std::string text_of(const Alone& alone) const;

  RunReader a_, b_;
  int64_t most_steps_ = 0;
  bool ours_ = false;
  Contradictions contradictions_;
  bool begun_ = false, asked_reached_ = false, after_gap_ = false, open_gap_ = false;
  std::optional<StepOfRun> step_a_, step_b_, before_a_, before_b_;
  SampleHistory samples_a_, samples_b_;
  GeneratorHistory generators_b_;
  std::vector<Alone> alone_;
  int64_t compared_ = 0, last_ = -1, rest_ = 0, last_of_rest_ = -1;
};

/// " Not compared: steps 3 to 9 have no partner: only A recorded them."; empty if each step has one.
std::string gaps_sentence(const std::string& gaps);

/// Where `missing_end` says that the traces end apart: says so, but where `ends` has.
void tell_of_missing_end(const std::string& missing_end, const std::string& ends, Mechanism& result);

/// Writes `verdict` and `sentence` (without its full stop) of runs that agree in all that was compared; `inconclusive`
/// if nothing was, if the traces end at different steps, or if nothing shows what lies behind a gap. Pairs must be at
/// their end.
void agree_as_far(const StepPairs& pairs, VerdictKind verdict, const std::string& sentence, Mechanism& result);

}  // namespace lockstep
