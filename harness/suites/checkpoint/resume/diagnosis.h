#pragma once
// What a resumed run did not get back, told from its own records.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/suites/checkpoint/toy_trainer/record.h"
#include "harness/suites/checkpoint/toy_trainer/trainer.h"

namespace lockstep::resume {

/// A kind of state that was not restored, and where it showed.
struct LostKind {
  std::string kind;      ///< of harness/lib/checkpoint/state.h
  int64_t step = 0;      ///< the first one in which it acted
  std::string sentence;  ///< "sampler cursor: sample 371 expected, 355 seen"
};

/// Follows a resumed run step by step. It knows the state that the uninterrupted run had at the stop, by rank, and
/// carries each part of it on by what the resumed run recorded: what that read decides what it should have drawn next,
/// its own gradient what its update should have been, its own metric what its patience should be. So each record is
/// judged by itself, and a kind that was lost is not hidden by another one. It does not know what was left out.
class Diagnosis {
 public:
  Diagnosis(toy::Config config, std::vector<toy::TrainerState> at_stop);
  /// One step's records, by rank.
  void take(const std::vector<toy::StepRecord>& ranks);
  /// In the order in which they showed; each kind once.
  const std::vector<LostKind>& lost() const { return lost_; }

 private:
  void judge_reading(const toy::StepRecord& record);
  void judge_draws(const std::vector<toy::StepRecord>& ranks);
  void judge_step(const toy::StepRecord& record);
  void judge_update(const toy::StepRecord& record);
  void judge_rate(int64_t step, const toy::UpdateRecord& update);
  void judge_direction(int64_t step, const toy::UpdateRecord& update);
  void judge_evaluation(int64_t step, const toy::EvaluationRecord& evaluation);
  void name(std::string_view kind, int64_t step, const std::string& found);

  toy::Config config_;
  toy::TrainerState now_;                ///< as it should be; what all ranks have
  std::vector<toy::Generator> jitters_;  ///< by rank
  std::vector<float> first_, second_;      ///< all ranks' moments
  std::vector<int64_t> accumulated_;       ///< all ranks'
  int64_t accumulated_rows_ = 0;
  bool first_step_ = true, first_update_ = true;
  std::vector<LostKind> lost_;
};

}  // namespace lockstep::resume
