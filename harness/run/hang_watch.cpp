#include "harness/run/hang_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

/// A look costs microseconds; a rank's silence is known as exactly as it was looked at.
constexpr double kLooksAThreshold = 50, kOftenest_s = 0.002, kSeldomest_s = 0.1;
/// A process that computed, or was ready to, for so much of the time that was looked at is slow, not stuck.
constexpr double kBusy = 0.5;
/// Who waits for a disk (a page of a library, a file) gets on when it answers; for so many thresholds that is believed.
constexpr double kDiskThresholds = 20;
/// Of the shortest threshold: what looks that came late may add to a standstill. Ranks that had no core meanwhile are looked at
/// by themselves; this is for a machine that stood still as a whole.
constexpr double kMissed = 0.04;
/// Of a rank on another host something is told ten times a second: after so long without it the word does not come through.
constexpr double kUnheard_s = 0.3;
/// For the launcher of a rank whose process is gone to say how it ended.
constexpr double kWord_s = 10;

/// May it be that nobody works, and all wait for whoever was found?
bool waits_for_others(const Standstill& found) { return is_collective(found.operation) || works_or_waits(found.phase); }

}  // namespace

HangWatch::HangWatch(int world_size, const Thresholds& thresholds, double now, ProcessViewer viewer)
    : thresholds_(thresholds),
      look_every_s_(std::clamp(thresholds.shortest_s() / kLooksAThreshold, kOftenest_s, kSeldomest_s)),
      looked_at_(now),
      viewer_(std::move(viewer)),
      watch_(world_size, now),
      processes_(static_cast<std::size_t>(world_size)) {}

void HangWatch::started(const std::vector<int>& pids, double now) {
  started_ = true;
  looked_at_ = now;
  watch_ = RunWatch(static_cast<int>(processes_.size()), now);
  for (std::size_t r = 0; r < processes_.size(); ++r) {
    const int rank = static_cast<int>(r), pid = pids.empty() ? -1 : pids.size() == 1 ? pids.front() : pids.at(r);
    processes_[r].id = pid > 0 ? process_here(pid) : ProcessId{-1};
    if (pid > 0 || processes_[r].told == nullptr) {
      processes_[r].view = pid > 0 ? viewer_(pid) : nullptr;
      processes_[r].told = nullptr;
    }
    processes_[r].heard_at = processes_[r].told_at = now;
    mark(rank, now);
  }
}

/// The rank says which process it is: another than its launcher knew.
void HangWatch::announced(int rank, const ProcessId& said, double now) {
  Process& process = processes_.at(static_cast<std::size_t>(rank));
  if (said.pid == 0 || said == process.said) return;
  process.said = said;
  process.id = seen_from_here(said);
  process.unseen = process.id.pid < 0;
  process.told = nullptr;
  if (process.unseen)
    process.view = std::make_unique<ToldView>();
  else
    process.view = viewer_(process.id.pid);
  mark(rank, now);
}

void HangWatch::resumed(double seconds, double now) {
  if (seconds < thresholds_.shortest_s() / 2) return;
  for (std::size_t r = 0; r < processes_.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (std::exchange(processes_[r].resumed, true)) continue;
    watch_.forgive(rank, watch_.silent_s(rank, now));
    mark(rank, now);
  }
}

void HangWatch::told(int rank, const ProcessState& state, const ProcessView::Since& since, double now) {
  Process& process = processes_.at(static_cast<std::size_t>(rank));
  if (process.told == nullptr) {
    auto view = std::make_unique<ToldView>();
    process.told = view.get();
    process.view = std::move(view);
  }
  process.told->take(state, since);
  process.told_at = now;
}

ProcessId HangWatch::process_of(int rank) const { return rank < 0 ? ProcessId{-1} : processes_.at(static_cast<std::size_t>(rank)).id; }

bool HangWatch::is_stopped(int rank) const {
  const auto& view = processes_[static_cast<std::size_t>(rank)].view;
  return view != nullptr && view->state().stopped();
}

int HangWatch::behind() const {
  return watch_.behind([this](int rank) { return is_stopped(rank); });
}

HangWatch::Unheard HangWatch::unheard(double now) const {
  for (std::size_t r = 0; r < processes_.size(); ++r) {
    const Process& process = processes_[r];
    const bool elsewhere = process.told != nullptr || (started_ && process.view == nullptr);
    if (!elsewhere || !watch_.alive(static_cast<int>(r))) continue;
    if (const double silent_s = now - process.told_at; silent_s > kUnheard_s) return {static_cast<int>(r), silent_s};
  }
  return {};
}

double HangWatch::next_look_s(double now) const {
  return std::clamp(watch_.next_limit(thresholds_, now) - now, kOftenest_s / 4, look_every_s_);
}

void HangWatch::mark(int rank, double now) {
  Process& process = processes_[static_cast<std::size_t>(rank)];
  if (process.view != nullptr) process.view->mark(now);
  process.marked_at = now;
  process.forgiven_s = 0;
}

/// Time without a core is taken off the standstill. Where all wait in a collective, each rank's may have kept the next from going on,
/// so that of all threads of all ranks adds up; but what is stopped waits for no core of anybody's. Was there any?
bool HangWatch::was_starved(const Standstill& found, double now) {
  const bool all_wait = is_collective(found.operation) && !is_stopped(found.rank);
  double sum_s = 0, uncounted_s = 0, longest_s = 0, forgiven_s = 0;
  for (std::size_t r = 0; r < processes_.size(); ++r) {
    const int rank = static_cast<int>(r);
    const Process& process = processes_[r];
    if (process.view == nullptr || !watch_.alive(rank) || (!all_wait && rank != found.rank)) continue;
    const ProcessView::Since since = process.view->since(now);
    sum_s += all_wait ? since.all_without_core_s : since.without_core_s;
    uncounted_s += all_wait ? since.all_uncounted_s : since.uncounted_s;
    longest_s = std::max(longest_s, now - process.marked_at);
    forgiven_s = std::max(forgiven_s, process.forgiven_s);
  }
  double more_s = std::min(sum_s, longest_s) - forgiven_s;
  // Who is ready now may wait for a core, and tells how long when it has had one: a little time, and another look.
  if (more_s < kOftenest_s / 2) more_s = std::min(2 * look_every_s_, std::min(sum_s + uncounted_s, longest_s) - forgiven_s);
  if (more_s < kOftenest_s / 2) return false;
  for (std::size_t r = 0; r < processes_.size(); ++r) {
    if (!all_wait && static_cast<int>(r) != found.rank) continue;
    watch_.forgive(static_cast<int>(r), more_s);
    processes_[r].forgiven_s += more_s;
  }
  return true;
}

/// Does the rank, or any where all wait in a collective, wait for a disk just now? Then that is not compared with it for a while.
bool HangWatch::waits_for_disk(const Standstill& found) {
  const bool all_wait = is_collective(found.operation);
  bool waits = false;
  for (std::size_t r = 0; r < processes_.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (!watch_.alive(rank) || processes_[r].view == nullptr || (!all_wait && rank != found.rank)) continue;
    waits = waits || processes_[r].view->state().waits_for_disk();
  }
  if (!waits || disk_s_ > kDiskThresholds * found.threshold_s) return false;
  const double while_s = 2 * look_every_s_;
  disk_s_ += while_s;
  for (std::size_t r = 0; r < processes_.size(); ++r) {
    if (all_wait || static_cast<int>(r) == found.rank) watch_.forgive(static_cast<int>(r), while_s);
  }
  return true;
}

void HangWatch::forgive_missed(double now) {
  const double late_s = now - looked_at_ - 2 * look_every_s_;
  looked_at_ = now;
  const double most_s = std::max(kMissed * thresholds_.shortest_s(), 2 * look_every_s_) - missed_s_;
  if (late_s <= 0 || most_s <= 0) return;
  const double forgiven_s = std::min(late_s, most_s);
  missed_s_ += forgiven_s;
  watch_.forgive(forgiven_s);
}

/// Of a rank elsewhere of which nobody tells anything there is nothing to judge; who waits for it is told by a timeout. Where the word
/// stops coming the rank's silence is that of the network, or of its host.
void HangWatch::forgive_unheard(double before, double now) {
  for (std::size_t r = 0; r < processes_.size(); ++r) {
    const int rank = static_cast<int>(r);
    const Process& process = processes_[r];
    if (!watch_.alive(rank)) continue;
    if (started_ && process.view == nullptr) watch_.forgive(rank, watch_.silent_s(rank, now));
    if (process.told == nullptr) continue;
    const double unheard_s = std::min(now - std::max(before, process.told_at + kUnheard_s), watch_.silent_s(rank, now));
    if (unheard_s > 0) watch_.forgive(rank, unheard_s);
  }
}

std::optional<Stalled> HangWatch::look(const HeartbeatFile& heartbeat, double now) {
  const double before = looked_at_;
  forgive_missed(now);
  for (const int rank : watch_.look(heartbeat, now)) {
    processes_[static_cast<std::size_t>(rank)].heard_at = now;
    processes_[static_cast<std::size_t>(rank)].resumed = false;
    announced(rank, heartbeat.process(rank), now);
    mark(rank, now);
    disk_s_ = missed_s_ = 0;
  }
  forgive_unheard(before, now);
  const auto find = [&] { return watch_.standstill(thresholds_, now, [this](int rank) { return is_stopped(rank); }); };
  auto found = find();
  if (found && was_starved(*found, now)) found = find();
  while (found && waits_for_disk(*found)) found = find();
  if (!found || waits_for_word(now)) return std::nullopt;
  name_computing(*found, now);
  Stalled stalled = described(*found, now);
  if (stalled.slow) grant(stalled, now);
  return stalled;
}

bool HangWatch::waits_for_word(double now) {
  bool waits = false;
  for (std::size_t r = 0; r < processes_.size(); ++r) {
    Process& process = processes_[r];
    const bool seen = process.view != nullptr && process.told == nullptr && !process.unseen;
    const bool gone = seen && watch_.alive(static_cast<int>(r)) && process.view->state().gone();
    if (!gone || process.gone_at == 0) process.gone_at = gone ? now : 0;
    waits = waits || (gone && now - process.gone_at < kWord_s);
  }
  return waits;
}

bool HangWatch::computes(int rank, double now) const {
  const Process& process = processes_[static_cast<std::size_t>(rank)];
  if (process.view == nullptr) return false;
  const ProcessView::Since since = process.view->since(now);
  return now > process.marked_at && since.all_ran_s + since.all_without_core_s > kBusy * (now - process.marked_at);
}

/// Where all wait for each other, in a collective or at a save, one that computes is whom they wait for.
void HangWatch::name_computing(Standstill& found, double now) const {
  if (!waits_for_others(found) || is_stopped(found.rank) || computes(found.rank, now)) return;
  for (std::size_t r = 0; r < processes_.size(); ++r) {
    if (watch_.alive(static_cast<int>(r)) && computes(static_cast<int>(r), now)) found.rank = static_cast<int>(r);
  }
}

/// A threshold more, or what is left to the limit of one that computes.
void HangWatch::grant(Stalled& slow, double now) {
  const Standstill& found = slow.standstill;
  const Process& process = processes_[static_cast<std::size_t>(found.rank)];
  const double silent_s = now - process.heard_at;
  slow.ends = silent_s >= thresholds_.slow_s;
  if (slow.ends) {
    slow.slow = !process.unseen;
    return;
  }
  const double more_s = std::min(found.threshold_s, thresholds_.slow_s - silent_s);
  const bool all_wait = waits_for_others(found);
  for (std::size_t r = 0; r < processes_.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (all_wait || rank == found.rank) watch_.grant(thresholds_, rank, more_s, now);
  }
  mark(found.rank, now);
}

Stalled HangWatch::described(const Standstill& found, double now) const {
  Stalled stalled{found, false, true, in_words(found)};
  const Process& process = processes_[static_cast<std::size_t>(found.rank)];
  if (process.view == nullptr) return stalled;
  const ProcessState state = process.view->state();
  const ProcessView::Since since = process.view->since(now);
  const double watched_s = now - process.marked_at;
  if (process.unseen) {
    stalled.slow = true;
    stalled.message += "; its process is in another PID namespace or on another host: whether it computes is not seen from here";
  } else if (state.stopped()) {
    const std::string tracer = process.id.pid > 0 ? tracer_of(process.id.pid) : "";
    stalled.message += tracer.empty() ? "; its process is stopped by a signal" : "; its process is held by " + tracer;
  } else if (computes(found.rank, now)) {
    stalled.slow = true;
    stalled.message += fmt::format("; its process computes (it had a core for {:.2f} of the last {:.2f} s): slow, or in a loop",
                                   since.all_ran_s, watched_s);
  } else {
    stalled.message += "; its process is asleep";
    if (!state.waits_in.empty()) stalled.message += " in " + state.waits_in;
  }
  return stalled;
}

}  // namespace lockstep
