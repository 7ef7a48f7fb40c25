#include "harness/jobs/heartbeat.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "harness/base/files.h"
#include "harness/base/machine.h"

namespace lockstep {
namespace {

constexpr double kReachWithin_s = 2, kAgainWithin_s = 0.2, kAgainAfter_s = 1;
constexpr int kConnectEvery_ms = 50;

}  // namespace

HeartbeatLine::HeartbeatLine(const std::string& folder, const Arrival& mine, int task_rank, int world_size) {
  const std::optional<Watcher> watcher = read_watcher(folder);
  if (!watcher) return;
  if (same_host(*watcher, mine)) {
    tracer_ = watcher->process;
    return;
  }
  watcher_ = *watcher;
  task_rank_ = task_rank;
  what_.run = watcher->run;
  what_.dir = folder;
  what_.world_size = world_size;
  what_.processes = task_rank < 0 ? 1 : world_size;
  what_.first = std::max(task_rank, 0);
  what_.heartbeats = heartbeats_of_rank(mine.rank);
  heartbeats_.prepare(what_);
  std::string problem;
  // Lockstep listens for other hosts once it has seen that a rank is on one.
  for (const double until = monotonic_s() + kReachWithin_s; !connect(until - monotonic_s(), problem); ::poll(nullptr, 0, kConnectEvery_ms)) {
    if (problem != std::strerror(ECONNREFUSED) || monotonic_s() > until) break;
  }
  if (desk_ != nullptr) return;
  std::fprintf(stderr,
               "lockstep-rank: rank %d (host %s) cannot tell lockstep (host %s) at %s:%d how it gets on: %s. If it hangs, only its peers' "
               "timeouts will say so; set LOCKSTEP_ADDRESS where lockstep runs to what this host sees\n",
               mine.rank, mine.host.c_str(), watcher->host.c_str(), watcher->address.c_str(), watcher->port, problem.c_str());
}

bool HeartbeatLine::connect(double deadline_s, std::string& problem) {
  tried_at_ = monotonic_s();
  // The port may be another one by now.
  if (auto watcher = read_watcher(what_.dir)) watcher_ = *std::move(watcher);
  const int there = connected_within(watcher_.address, watcher_.port, std::max(deadline_s, 0.0), problem);
  if (there < 0) return false;
  set_side_channel(there);
  desk_ = std::make_unique<LineSocket>(there);
  if (!desk_->send(desk_line(watcher_, task_rank_))) desk_.reset();
  return desk_ != nullptr;
}

void HeartbeatLine::started(pid_t rank) {
  if (what_.heartbeats != kHeartbeatFile) heartbeats_.started(what_, {rank});
}

int HeartbeatLine::patience_ms() const {
  const int wanted = heartbeats_.patience_ms();
  return wanted < 0 ? kConnectEvery_ms : std::min(wanted, kConnectEvery_ms);
}

void HeartbeatLine::look() {
  std::string problem;
  if (desk_ == nullptr && what_.heartbeats != kHeartbeatFile && monotonic_s() - tried_at_ > kAgainAfter_s) connect(kAgainWithin_s, problem);
  take();
  heartbeats_.look(monotonic_s());
}

void HeartbeatLine::ended() { heartbeats_.ended(what_.run); }

void HeartbeatLine::take() {
  if (desk_ == nullptr) return;
  bool there = desk_->receive();
  while (const auto line = desk_->line()) {
    try {
      const ParentCommand command = command_from_line(*line);
      if (command.op == ParentCommand::Op::heartbeat) heartbeats_.take(command);
    } catch (const std::runtime_error&) {
      there = false;  // it does not speak as we do
    }
  }
  // The rank goes on; what it does is seen by nobody until the connection is there again.
  if (!there) desk_.reset();
}

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
