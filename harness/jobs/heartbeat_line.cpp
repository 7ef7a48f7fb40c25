#include "harness/jobs/heartbeat_line.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "harness/base/clock.h"

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

}  // namespace lockstep
