#include "harness/jobs/heartbeat_forward.h"

#include "harness/base/files.h"

namespace lockstep {
namespace {

/// A small part of the shortest threshold that configs are given, and no load on a host that computes.
constexpr int kForwardEvery_ms = 20;
/// How a rank's process is, told though the rank reports nothing: whether it hangs is judged from that.
constexpr double kStatesEvery_s = 0.1;

}  // namespace

void HeartbeatForward::prepare(const RankStart& what) {
  if (what.heartbeats == kHeartbeatFile) return;
  const std::string path = what.dir + "/" + what.heartbeats;
  HeartbeatFile heartbeats = HeartbeatFile::create(path, what.world_size);
  runs_.erase(what.run);
  runs_.emplace(what.run, Watched{path, std::move(heartbeats), what.first, what.processes == 1, {}, {}, std::vector<uint64_t>(static_cast<std::size_t>(what.world_size), 0)});
}

void HeartbeatForward::started(const RankStart& what, const std::vector<int>& pids) {
  const auto found = runs_.find(what.run);
  if (found == runs_.end()) return;
  found->second.pids = pids;
}

void HeartbeatForward::take(const ParentCommand& command) {
  const auto found = runs_.find(command.run);
  if (found == runs_.end() || command.rank < 0 || command.rank >= found->second.heartbeats.world_size()) return;
  found->second.heartbeats.take(command.rank, command.heartbeat);
}

void HeartbeatForward::ended(const std::string& run) {
  const auto found = runs_.find(run);
  if (found == runs_.end()) return;
  look(run, found->second, found->second.states_told_at);
  (void)real_files().remove(found->second.path);
  runs_.erase(found);
}

void HeartbeatForward::look(double now) {
  for (auto& [run, watched] : runs_) look(run, watched, now);
}

int HeartbeatForward::patience_ms() const { return runs_.empty() ? -1 : kForwardEvery_ms; }

void HeartbeatForward::look(const std::string& run, Watched& watched, double now) {
  const bool states_due = now - watched.states_told_at >= kStatesEvery_s;
  if (states_due) watched.states_told_at = now;
  const int last = watched.one_process && !watched.pids.empty() ? watched.heartbeats.world_size() : watched.first + static_cast<int>(watched.pids.size());
  for (int rank = watched.first; rank < last; ++rank) {
    LauncherEvent event;
    event.kind = LauncherEvent::Kind::heartbeat;
    event.run = run;
    event.rank = rank;
    event.heartbeat = watched.heartbeats.note(rank);
    uint64_t& told = watched.told[static_cast<std::size_t>(rank)];
    const auto here = static_cast<std::size_t>(rank - watched.first);
    if (watched.views.size() <= here) {
      watched.views.push_back(live_view(watched.pids[watched.one_process ? 0 : here]));
      watched.views.back()->mark(now);
    }
    ProcessView& process = *watched.views[here];
    if (event.heartbeat.changes == told && !states_due) continue;
    if (event.heartbeat.changes != told) process.mark(now);
    told = event.heartbeat.changes;
    event.heartbeat.process = process.state();
    event.heartbeat.times = process.since(now);
    tell_(event);
  }
}

}  // namespace lockstep
