#pragma once
// How long steps take, and how much of them is communication.

#include <vector>

#include "harness/trainers/comm/ledger.h"
#include "harness/verdict/trace/rank_result.h"

namespace lockstep {

/// Follows one rank's steps. The first tenth of them, one at least, is left out of what is said of a step:
/// memory and buckets take shape there.
class StepMeter {
 public:
  /// `meter`: null where nothing is communicated.
  explicit StepMeter(const CommunicationMeter* meter) : meter_(meter) {}
  void begin(double now_s);
  /// Adds the step to train_seconds and communication_seconds.
  void end(double now_s, RankResult& result);
  /// Writes step_seconds, communication_share and received_bytes.
  void fill(RankResult& result) const;

 private:
  struct Step {
    double seconds = 0;
    CommunicationMeter communication;
  };
  CommunicationMeter communicated() const { return meter_ == nullptr ? CommunicationMeter{} : *meter_; }

  const CommunicationMeter* meter_;
  Step begun_;  ///< the clock and the meter when the open step began
  std::vector<Step> steps_;
};

}  // namespace lockstep
