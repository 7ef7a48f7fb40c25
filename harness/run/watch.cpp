#include "harness/run/watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <limits>
#include <map>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>

#include "harness/base/text.h"

namespace lockstep {
namespace {

template <std::size_t N>
bool begins_with_any(const std::string& text, const std::array<std::string_view, N>& words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return text.starts_with(word); });
}

HeartbeatGroup group_of(const std::string& operation) {
  return operation.starts_with("reduce_gradients") ? HeartbeatGroup::gradients : HeartbeatGroup::data;
}

const char* name_of(HeartbeatGroup group) { return group == HeartbeatGroup::gradients ? "gradients" : "data"; }

std::string list_of(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

WatchPhase phase_of(const std::string& operation) {
  constexpr std::array<std::string_view, 4> kLoads = {"rendezvous", "load", "read snapshots", "prepare"};
  if (operation.empty() || begins_with_any(operation, kLoads)) return WatchPhase::load;
  if (operation.starts_with("evaluate")) return WatchPhase::evaluation;
  if (operation.starts_with("save")) return WatchPhase::save;
  if (operation.starts_with("teardown")) return WatchPhase::teardown;
  return WatchPhase::step;
}

/// Does a rank that has reported this take part in saves and loads, where it may work or wait?
static bool works_or_waits(WatchPhase phase) {
  return phase == WatchPhase::save || phase == WatchPhase::load || phase == WatchPhase::teardown;
}

const char* to_word(WatchPhase phase) {
  constexpr std::array kWords = {"load", "step", "evaluation", "save", "teardown"};
  return kWords[static_cast<std::size_t>(phase)];
}

/// An operation in which a rank waits for others; in any other it is others that wait for it.
static bool is_collective(const std::string& operation) {
  constexpr std::array<std::string_view, 5> kCollectives = {"all_reduce", "all_gather", "broadcast",
                                                            "barrier", "reduce_gradients"};
  return begins_with_any(operation, kCollectives);
}

double Thresholds::of(WatchPhase phase) const {
  const std::array all = {load_s, step_s, evaluation_s, save_s, teardown_s};
  return all[static_cast<std::size_t>(phase)];
}

double Thresholds::shortest_s() const { return std::min({load_s, step_s, evaluation_s, save_s, teardown_s}); }

Thresholds thresholds_of(const WatchConfig& config, double otherwise_s, double slow_s) {
  const auto or_default = [otherwise_s](double own_s) { return own_s > 0 ? own_s : otherwise_s; };
  return {or_default(config.load_s), or_default(config.step_s), or_default(config.evaluation_s), or_default(config.save_s),
          or_default(config.teardown_s), slow_s};
}

std::string in_words(const Standstill& found) {
  std::string text = fmt::format("no progress for {:.2f} s (threshold of {}: {:g} s)", found.seconds, to_word(found.phase),
                                 found.threshold_s);
  if (!found.operation.empty()) text += fmt::format(" in '{}'", found.operation);
  if (!found.awaited.empty()) {
    text += fmt::format("; {} {} in {} ({} {}), which it has not entered", list_of(found.waiting),
                        found.waiting.size() == 1 ? "waits" : "wait", found.awaited, found.group, found.sequence);
  }
  return text;
}

RunWatch::RunWatch(int world_size, double now) : ranks_(static_cast<std::size_t>(world_size)) {
  for (Seen& seen : ranks_) seen.changed_at = now;
}

std::vector<int> RunWatch::look(const HeartbeatFile& heartbeat, double now) {
  std::vector<int> changed;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const int rank = static_cast<int>(r);
    const uint64_t changes = heartbeat.changes(rank);
    if (changes == ranks_[r].changes) continue;
    const HeartbeatNote note = heartbeat.note(rank);
    ranks_[r].changes = changes;
    ranks_[r].step = note.step;
    ranks_[r].operation = note.operation;
    ranks_[r].entered = note.entered;
    ranks_[r].changed_at = now;
    changed.push_back(rank);
  }
  return changed;
}

void RunWatch::ended(int rank) { ranks_[static_cast<std::size_t>(rank)].ended = true; }

void RunWatch::forgive(double seconds) {
  for (Seen& seen : ranks_) seen.changed_at += seconds;
}

void RunWatch::forgive(int rank, double seconds) { ranks_[static_cast<std::size_t>(rank)].changed_at += seconds; }

void RunWatch::grant(const Thresholds& thresholds, int rank, double seconds, double now) {
  Seen& seen = ranks_[static_cast<std::size_t>(rank)];
  seen.changed_at = std::max(seen.changed_at, now + seconds - thresholds.of(phase_of(seen.operation)));
}

std::vector<const RunWatch::Seen*> RunWatch::slowest() const {
  int64_t lowest = std::numeric_limits<int64_t>::max();
  for (const Seen& seen : ranks_) {
    if (!seen.ended) lowest = std::min(lowest, seen.step);
  }
  std::vector<const Seen*> result;
  for (const Seen& seen : ranks_) {
    if (!seen.ended && seen.step == lowest) result.push_back(&seen);
  }
  return result;
}

double RunWatch::next_limit(const Thresholds& thresholds, double now) const {
  double next = std::numeric_limits<double>::infinity();
  for (const Seen& seen : ranks_) {
    const double limit = seen.changed_at + thresholds.of(phase_of(seen.operation));
    if (!seen.ended && limit >= now) next = std::min(next, limit);
  }
  return next;
}

double RunWatch::deadline(double limit_s) const {
  double latest = 0;
  for (const Seen* seen : slowest()) latest = std::max(latest, seen->changed_at);
  return latest + limit_s;
}

/// Has the other not entered the collective that this one waits in?
bool RunWatch::lacks(const Seen& waiting, const Seen& other) const {
  if (waiting.ended || other.ended || !is_collective(waiting.operation)) return false;
  const auto group = static_cast<std::size_t>(group_of(waiting.operation));
  return other.entered[group] < waiting.entered[group];
}

/// -1: nobody waits in a collective that another has not entered. Of those whom as many wait for, one that is stopped may have
/// kept the rest from going on, then one outside a collective.
int RunWatch::most_blamed(const std::function<bool(int rank)>& stopped) const {
  int worst = -1;
  auto worst_key = std::tuple(0, false, false, 0.0);
  for (const Seen& other : ranks_) {
    const auto blamers =
        static_cast<int>(std::ranges::count_if(ranks_, [&](const Seen& waiting) { return lacks(waiting, other); }));
    if (blamers == 0) continue;
    const bool is_stopped = stopped != nullptr && stopped(rank_of(&other));
    const auto key = std::tuple(blamers, is_stopped, !is_collective(other.operation), -other.changed_at);
    if (blamers > 0 && (worst < 0 || key > worst_key)) {
      worst = rank_of(&other);
      worst_key = key;
    }
  }
  return worst;
}

int RunWatch::behind(const std::function<bool(int rank)>& stopped) const {
  if (const int blamed = most_blamed(stopped); blamed >= 0) return blamed;
  const std::vector<const Seen*> candidates = slowest();
  if (candidates.empty()) return -1;
  std::map<std::string, int> counts;
  for (const Seen* seen : candidates) ++counts[seen->operation];
  const auto key = [&](const Seen* seen) {
    const bool runs = stopped == nullptr || !stopped(rank_of(seen));
    return std::tuple(runs, is_collective(seen->operation), counts[seen->operation], seen->changed_at);
  };
  return rank_of(*std::ranges::min_element(candidates, {}, key));
}

void RunWatch::name_awaited(Standstill& found) const {
  const Seen& culprit = ranks_[static_cast<std::size_t>(found.rank)];
  std::map<std::tuple<std::string, uint64_t>, std::vector<int>> waits;
  for (const Seen& waiting : ranks_) {
    if (!lacks(waiting, culprit)) continue;
    const auto group = static_cast<std::size_t>(group_of(waiting.operation));
    waits[{waiting.operation, waiting.entered[group]}].push_back(rank_of(&waiting));
  }
  for (const auto& [what, ranks] : waits) {
    if (ranks.size() <= found.waiting.size()) continue;
    std::tie(found.awaited, found.sequence) = what;
    found.group = name_of(group_of(found.awaited));
    found.waiting = ranks;
  }
}

std::optional<Standstill> RunWatch::standstill(const Thresholds& thresholds, double now,
                                               const std::function<bool(int rank)>& stopped) const {
  Standstill found;
  double last_change = -std::numeric_limits<double>::infinity(), longest_s = 0;
  bool works = false;
  for (const Seen& seen : ranks_) {
    if (seen.ended) continue;
    const WatchPhase phase = phase_of(seen.operation);
    const double limit_s = thresholds.of(phase), silent_s = now - seen.changed_at;
    last_change = std::max(last_change, seen.changed_at);
    longest_s = std::max(longest_s, limit_s);
    if (is_collective(seen.operation) || works_or_waits(phase)) continue;
    works = true;
    if (silent_s <= limit_s || silent_s - limit_s <= found.seconds - found.threshold_s) continue;
    found = {rank_of(&seen), silent_s, limit_s, phase, seen.operation};
  }
  const bool all_wait = !works && now - last_change > longest_s && longest_s > 0;
  if (found.rank < 0 && !all_wait) return std::nullopt;
  // Of several that are late, the one that the others lack.
  if (const int blamed = behind(stopped); found.rank < 0 || (blamed >= 0 && now - ranks_[static_cast<std::size_t>(
                                                                  blamed)].changed_at > found.threshold_s)) {
    const Seen& seen = ranks_[static_cast<std::size_t>(blamed)];
    const WatchPhase phase = phase_of(seen.operation);
    found = {blamed, now - seen.changed_at, thresholds.of(phase), phase, seen.operation};
  }
  name_awaited(found);
  return found;
}

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
  const RunWatch before = std::exchange(watch_, RunWatch(static_cast<int>(processes_.size()), now));
  for (std::size_t r = 0; r < processes_.size(); ++r) {
    const int rank = static_cast<int>(r), pid = pids.empty() ? -1 : pids.size() == 1 ? pids.front() : pids.at(r);
    if (!before.alive(rank)) ended(rank);
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
  Unheard longest;
  for (std::size_t r = 0; r < processes_.size(); ++r) {
    const Process& process = processes_[r];
    const bool elsewhere = process.told != nullptr || (started_ && process.view == nullptr);
    if (!elsewhere || !watch_.alive(static_cast<int>(r))) continue;
    const double silent_s = now - process.told_at;
    if (silent_s > std::max(kUnheard_s, longest.seconds)) longest = {static_cast<int>(r), silent_s};
  }
  return longest;
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

namespace {

/// Reports and looks may meet: `changes` is odd while a report is written, so that a reader can tell a whole slot from half of two.
constexpr int kReadAttempts = 64;

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw MachineError(path + ": " + what + ": " + std::strerror(error));
}

off_t offset_of(int rank) { return static_cast<off_t>(sizeof(HeartbeatSlot)) * rank; }

}  // namespace

HeartbeatFile HeartbeatFile::create(const std::string& path, int world_size) {
  LOCKSTEP_CHECK(world_size >= 1, "a run has at least one rank");
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) fail(path, "cannot create", errno);
  HeartbeatFile file(descriptor, world_size);
  // Reserved now: on a full disk the first report would be lost.
  if (const int error = ::posix_fallocate(descriptor, 0, offset_of(world_size))) fail(path, "cannot reserve space", error);
  return file;
}

HeartbeatFile HeartbeatFile::open(const std::string& path, int world_size) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) fail(path, "cannot open", errno);
  HeartbeatFile file(descriptor, world_size);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || status.st_size != offset_of(world_size))
    throw MachineError(path + ": is not the heartbeat file of " + std::to_string(world_size) + " ranks");
  for (int rank = 0; rank < world_size; ++rank) file.own(rank) = file.slot(rank);
  return file;
}

HeartbeatFile::HeartbeatFile(HeartbeatFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), own_(std::move(other.own_)) {}

HeartbeatFile& HeartbeatFile::operator=(HeartbeatFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(own_, other.own_);
  return *this;
}

HeartbeatFile::~HeartbeatFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

HeartbeatSlot& HeartbeatFile::own(int rank) {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size(), "no such rank");
  return own_[static_cast<std::size_t>(rank)];
}

HeartbeatSlot HeartbeatFile::slot(int rank) const {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size(), "no such rank");
  HeartbeatSlot found;
  const ssize_t bytes = ::pread(descriptor_, &found, sizeof(found), offset_of(rank));
  return bytes == static_cast<ssize_t>(sizeof(found)) ? found : HeartbeatSlot{};
}

HeartbeatSlot HeartbeatFile::seen(int rank) const {
  HeartbeatSlot found = slot(rank);
  // A rank that was killed inside a report leaves an odd count for ever: then the last look has to do.
  for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
    const HeartbeatSlot again = slot(rank);
    const bool whole = again.changes % 2 == 0 && std::memcmp(&again, &found, sizeof(found)) == 0;
    found = again;
    if (whole) break;
    if (attempt >= kReadAttempts / 4) std::this_thread::yield();  // one that lost its core within a report may need this one
  }
  if (found.changes == 0) found.step = -1;
  return found;
}

/// What cannot be written is lost: a rank must not fail because its progress cannot be seen.
void HeartbeatFile::put(int rank, std::size_t from, std::size_t bytes) const {
  const char* const slot = reinterpret_cast<const char*>(&own_[static_cast<std::size_t>(rank)]);
  [[maybe_unused]] const ssize_t written = ::pwrite(descriptor_, slot + from, bytes, offset_of(rank) + static_cast<off_t>(from));
}

void HeartbeatFile::report(int rank, int64_t step, const char* operation) { write(rank, step, operation, (own(rank).changes & ~uint64_t{1}) + 2); }

/// `changes`: an even count, which the slot has in the end.
void HeartbeatFile::write(int rank, int64_t step, const char* operation, uint64_t changes) {
  HeartbeatSlot& slot = own(rank);
  slot.step = step;
  std::strncpy(slot.operation, operation, sizeof(slot.operation) - 1);
  slot.changes = changes - 1;
  put(rank, 0, sizeof(slot));
  slot.changes = changes;
  put(rank, offsetof(HeartbeatSlot, changes), sizeof(slot.changes));
}

HeartbeatNote HeartbeatFile::note(int rank) const {
  const HeartbeatSlot slot = seen(rank);
  HeartbeatNote note;
  note.changes = slot.changes & ~uint64_t{1};  // one that is being written is noted again at the next look
  note.step = slot.step;
  note.operation = std::string(slot.operation, ::strnlen(slot.operation, sizeof(slot.operation)));
  note.resident_bytes = slot.resident_bytes;
  note.shown = slot.shown;
  note.entered = slot.entered;
  return note;
}

void HeartbeatFile::take(int rank, const HeartbeatNote& note) {
  HeartbeatSlot& slot = own(rank);
  slot.entered = note.entered;
  slot.resident_bytes = note.resident_bytes;
  slot.shown = note.shown;
  if (note.changes > 0) return write(rank, note.step, note.operation.c_str(), note.changes);
  put(rank, 0, sizeof(slot));
}

void HeartbeatFile::enter(int rank, HeartbeatGroup group) { ++own(rank).entered[static_cast<std::size_t>(group)]; }

void HeartbeatFile::resident(int rank, int64_t bytes) {
  own(rank).resident_bytes = bytes;
  put(rank, offsetof(HeartbeatSlot, resident_bytes), sizeof(int64_t));
}

void HeartbeatFile::show(int rank, double value) {
  own(rank).shown = std::bit_cast<uint64_t>(value) + 1;
  put(rank, offsetof(HeartbeatSlot, shown), sizeof(uint64_t));
}

void HeartbeatFile::announce(int rank, const ProcessId& process) {
  HeartbeatSlot& slot = own(rank);
  slot.process = process.pid;
  slot.process_space = process.space;
  slot.process_started = process.started;
  put(rank, 0, sizeof(slot));
}

std::optional<double> HeartbeatFile::shown(int rank) const {
  const uint64_t bits = slot(rank).shown;
  return bits == 0 ? std::nullopt : std::optional(std::bit_cast<double>(bits - 1));
}

ProcessId HeartbeatFile::process(int rank) const {
  const HeartbeatSlot slot = seen(rank);
  return {static_cast<int>(slot.process), slot.process_space, slot.process_started};
}

std::string HeartbeatFile::operation(int rank) const { return note(rank).operation; }

}  // namespace lockstep
