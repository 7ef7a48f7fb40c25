#include "harness/run/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>

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

bool works_or_waits(WatchPhase phase) {
  return phase == WatchPhase::save || phase == WatchPhase::load || phase == WatchPhase::teardown;
}

const char* to_word(WatchPhase phase) {
  constexpr std::array kWords = {"load", "step", "evaluation", "save", "teardown"};
  return kWords[static_cast<std::size_t>(phase)];
}

bool is_collective(const std::string& operation) {
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

double RunWatch::standstill_s(double now) const {
  double shortest = std::numeric_limits<double>::infinity();
  for (const Seen* seen : slowest()) shortest = std::min(shortest, now - seen->changed_at);
  return std::max(0.0, shortest);
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

}  // namespace lockstep
