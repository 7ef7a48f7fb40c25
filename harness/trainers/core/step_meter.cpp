#include "harness/trainers/core/step_meter.h"

#include <algorithm>

namespace lockstep {

void StepMeter::begin(double now_s) { begun_ = {now_s, communicated()}; }

void StepMeter::end(double now_s, RankResult& result) {
  const CommunicationMeter now = communicated();
  steps_.push_back({now_s - begun_.seconds,
                    {now.seconds - begun_.communication.seconds,
                     now.received_bytes - begun_.communication.received_bytes}});
  result.train_seconds += steps_.back().seconds;
  result.communication_seconds += steps_.back().communication.seconds;
}

void StepMeter::fill(RankResult& result) const {
  const std::size_t first = steps_.size() > 1 ? std::max<std::size_t>(1, steps_.size() / 10) : 0;
  if (first >= steps_.size()) {
    return;
  }
  std::vector<double> durations;
  double all = 0, communication = 0, bytes = 0;
  for (std::size_t i = first; i < steps_.size(); ++i) {
    durations.push_back(steps_[i].seconds);
    all += steps_[i].seconds;
    communication += steps_[i].communication.seconds;
    bytes += steps_[i].communication.received_bytes;
  }
  const std::size_t middle = durations.size() / 2;
  std::sort(durations.begin(), durations.end());
  result.step_seconds =
      durations.size() % 2 == 1 ? durations[middle] : (durations[middle - 1] + durations[middle]) / 2;
  result.communication_share = all > 0 ? communication / all : 0;
  result.received_bytes = bytes / static_cast<double>(durations.size());
}

}  // namespace lockstep
