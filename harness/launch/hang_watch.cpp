#include "harness/launch/hang_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

/// A look costs microseconds; a hang is to be found within a tenth of its threshold.
constexpr double kLooksAThreshold = 25, kOftenest_s = 0.002, kSeldomest_s = 0.1;
/// A rank's process is looked at when so much of its threshold has gone by.
constexpr double kSampleFrom = 0.5;
/// A process that computed, or was ready to, for so much of the time that was looked at is slow, not stuck.
constexpr double kBusy = 0.5;
/// Who waits for a disk (a page of a library, a file) gets on when it answers; for so many thresholds that is believed.
constexpr double kDiskThresholds = 20;

}  // namespace

HangWatch::HangWatch(int world_size, const Thresholds& thresholds, double now)
    : thresholds_(thresholds),
      look_every_s_(std::clamp(thresholds.shortest_s() / kLooksAThreshold, kOftenest_s, kSeldomest_s)),
      looked_at_(now),
      watch_(world_size, now),
      elsewhere_(static_cast<std::size_t>(world_size)),
      samples_(static_cast<std::size_t>(world_size)) {}

void HangWatch::started(const std::vector<int>& pids, double now) {
  pids_ = pids;
  looked_at_ = now;
  watch_ = RunWatch(static_cast<int>(samples_.size()), now);
}

int HangWatch::pid_of(int rank) const {
  if (pids_.empty() || rank < 0) return -1;
  return pids_.size() == 1 ? pids_.front() : pids_.at(static_cast<std::size_t>(rank));
}

void HangWatch::told(int rank, const ProcessState& state) { elsewhere_.at(static_cast<std::size_t>(rank)) = state; }

ProcessState HangWatch::state_of(int rank) const {
  if (const int pid = pid_of(rank); pid > 0) return process_state(pid);
  return rank < 0 ? ProcessState{} : elsewhere_.at(static_cast<std::size_t>(rank));
}

int HangWatch::behind() const {
  return watch_.behind([this](int rank) { return state_of(rank).stopped(); });
}

/// Time without a core is taken off the standstill; where all wait in a collective, that of any rank's threads is every rank's.
/// Was there any?
bool HangWatch::was_starved(const Standstill& found, double now) {
  const bool all_wait = is_collective(found.operation);
  double most_s = 0;
  for (std::size_t r = 0; r < samples_.size(); ++r) {
    const int rank = static_cast<int>(r);
    const Sample& sample = samples_[r];
    if (!sample.taken || !watch_.alive(rank) || (!all_wait && rank != found.rank)) continue;
    const ProcessState state = state_of(rank);
    const double delayed_s = all_wait ? state.all_delayed_s - sample.state.all_delayed_s : state.delayed_s - sample.state.delayed_s;
    most_s = std::max(most_s, std::min(delayed_s, now - sample.at) - sample.forgiven_s);
  }
  if (most_s < look_every_s_) return false;
  for (std::size_t r = 0; r < samples_.size(); ++r) {
    if (!all_wait && static_cast<int>(r) != found.rank) continue;
    watch_.forgive(static_cast<int>(r), most_s);
    samples_[r].forgiven_s += most_s;
    samples_[r].silent_s -= most_s;
  }
  return true;
}

/// Does the rank, or any where all wait in a collective, wait for a disk just now? Then that is not held against it for a while.
bool HangWatch::waits_for_disk(const Standstill& found) {
  const bool all_wait = is_collective(found.operation);
  bool waits = false;
  for (std::size_t r = 0; r < samples_.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (!watch_.alive(rank) || (!all_wait && rank != found.rank)) continue;
    waits = waits || state_of(rank).waits_for_disk();
  }
  if (!waits || disk_s_ > kDiskThresholds * found.threshold_s) return false;
  const double while_s = 2 * look_every_s_;
  disk_s_ += while_s;
  for (std::size_t r = 0; r < samples_.size(); ++r) {
    if (!all_wait && static_cast<int>(r) != found.rank) continue;
    watch_.forgive(static_cast<int>(r), while_s);
    samples_[r].silent_s -= while_s;
  }
  return true;
}

std::optional<Stalled> HangWatch::look(const BeatFile& beat, double now) {
  if (const double missed_s = now - looked_at_ - 2 * look_every_s_; missed_s > 0) watch_.forgive(missed_s);
  looked_at_ = now;
  watch_.look(beat, now);
  for (std::size_t r = 0; r < samples_.size(); ++r) {
    const int rank = static_cast<int>(r);
    const double silent_s = watch_.silent_s(rank, now);
    Sample& sample = samples_[r];
    if (silent_s < sample.silent_s) {
      sample.taken = false;
      disk_s_ = 0;
    }
    sample.silent_s = silent_s;
    if (sample.taken || !watch_.alive(rank) || silent_s < kSampleFrom * thresholds_.shortest_s()) continue;
    sample.state = state_of(rank);
    sample.taken = sample.state.state != '?';
    sample.at = now;
    sample.forgiven_s = 0;
  }
  const auto find = [&] {
    return watch_.standstill(thresholds_, now,
                             [this](int rank) { return state_of(rank).stopped(); });
  };
  auto found = find();
  if (found && was_starved(*found, now)) found = find();
  while (found && waits_for_disk(*found)) found = find();
  if (!found) return std::nullopt;
  return described(*found, now);
}

Stalled HangWatch::described(const Standstill& found, double now) const {
  Stalled stalled{found, false, in_words(found)};
  const ProcessState state = state_of(found.rank);
  if (state.state == '?') return stalled;
  const Sample& sample = samples_[static_cast<std::size_t>(found.rank)];
  const double watched_s = now - sample.at, computed_s = state.ran_s - sample.state.ran_s,
               ready_s = computed_s + state.delayed_s - sample.state.delayed_s;
  if (state.stopped()) {
    stalled.message += "; its process is stopped by a signal";
  } else if (sample.taken && watched_s > 0 && ready_s > kBusy * watched_s) {
    stalled.slow = true;
    stalled.message += fmt::format("; its process computes (it had a core for {:.2f} of the last {:.2f} s): slow, or in a loop",
                                   computed_s, watched_s);
  } else {
    stalled.message += "; its process is asleep";
    if (!state.waits_in.empty()) stalled.message += " in " + state.waits_in;
  }
  return stalled;
}

}  // namespace lockstep
