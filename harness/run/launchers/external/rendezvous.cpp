#include "harness/run/launchers/external/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <utility>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/run/launchers/local/protocol.h"
#include "harness/run/process_state.h"

namespace lockstep {
namespace {

using nlohmann::json;

/// A shared file system tells nobody that a file has come.
constexpr int kArrivalsEvery_ms = 10;
constexpr uint64_t kMostArrivalBytes = 1 << 20;
/// For ranks to take rank 0's answer, from when all have come: they try to reach it first.
constexpr double kAnswerWithin_s = 25;
/// For the same, of ranks that have come at the last moment.
constexpr double kAnswerAtLeast_s = 2;
constexpr double kRankZeroFirst_s = 0.5;

void wait_a_moment() { ::poll(nullptr, 0, kArrivalsEvery_ms); }

std::string answer_file(const std::string& run_dir) { return run_dir + "/rendezvous.json"; }

int devices_of_machine() {
  int count = 0;
  while (std::filesystem::exists(fmt::format("/dev/nvidia{}", count))) ++count;
  return count;
}

std::string device_text(int local_rank) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const int device = device_of(local_rank, visible == nullptr ? std::nullopt : std::optional<std::string>(visible),
                               devices_of_machine());
  return device < 0 ? "cpu" : fmt::format("cuda:{}", device);
}

std::string who(const Arrival& a) { return fmt::format("process {} on {}", a.pid, a.host); }

/// When the answers must be there, of ranks that are all there `now`.
double answers_by(double deadline, double now) { return std::min(now + kAnswerWithin_s, std::max(deadline, now + kAnswerAtLeast_s)); }

/// Of this attempt; what is of another one is not there.
Arrival arrival_beside(const std::string& run_dir, const Arrival& mine, int rank) {
  Arrival found = read_arrival(run_dir, rank);
  return found.attempt == mine.attempt ? found : Arrival{};
}

/// Another process has come as this rank: rank 0 and that process are told, in the file that both of them read.
void leave_if_twice(const std::string& run_dir, Arrival mine) {
  const Arrival now = read_arrival(run_dir, mine.rank);
  if (now.nonce.empty() || now.nonce == mine.nonce) return;
  // One that was left behind: it leaves.
  if (now.attempt != mine.attempt) return write_members(start_file(run_dir, mine.rank), mine);
  mine.problem = fmt::format("two processes are rank {}: {} and {}", mine.rank, who(mine), who(now));
  mine.accepted = arrival_beside(run_dir, mine, 0).nonce;
  write_members(start_file(run_dir, mine.rank), mine);
  throw RendezvousError(mine.problem);
}

struct Answer {
  Met met;
  Arrival first;
  std::vector<std::string> nonces;  ///< by rank
  bool go = false;      ///< all have taken it
  std::string problem;  ///< somebody has not, and all shall leave

  template <class Self, class Visit>
  static void members(Self& self, Visit visit) {
    Met::members(self.met, visit);
    visit("first", self.first);
    visit("nonces", self.nonces);
    visit("go", self.go);
    visit("problem", self.problem);
  }
};

/// Rank 0's side.
class Host {
 public:
  Host(const std::string& run_dir, const Arrival& mine, const std::string& store, double deadline, const StayOrThrow& stay_or_throw)
      : run_dir_(run_dir), mine_(mine), store_(store), deadline_(deadline), stay_or_throw_(stay_or_throw) {
    ranks_.resize(static_cast<std::size_t>(mine.world));
    ranks_[0] = mine;
  }
  ~Host() { stop_listening(); }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  Met gather() {
    for (;;) {
      const bool changed = look();
      if (!problem_.empty()) end(problem_);
      if (missing().empty() && changed) publish();
      if (missing().empty() && all_accepted()) {
        answer(true, "");
        Met met = std::move(met_);
        met_.listening = -1;
        return met;
      }
      if (monotonic_s() > deadline_) end(lateness());
      stay_or_throw_();
      leave_if_twice(run_dir_, mine_);
      wait_a_moment();
    }
  }

 private:
  bool look() {
    bool changed = met_.start.empty();
    for (int rank = 1; rank < mine_.world; ++rank) {
      Arrival& known = ranks_[static_cast<std::size_t>(rank)];
      if (known.accepted == mine_.nonce) continue;
      Arrival found = arrival_beside(run_dir_, mine_, rank);
      if (found.nonce.empty()) continue;
      if (found.accepted == mine_.nonce && !found.problem.empty())
        problem_ = fmt::format("rank {} ({}) has left: {}", rank, who(found), found.problem);
      changed = changed || found.nonce != known.nonce;
      known = std::move(found);
    }
    return changed;
  }
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < mine_.world; ++rank)
      if (ranks_[static_cast<std::size_t>(rank)].nonce.empty()) ranks.push_back(rank);
    return ranks;
  }
  bool all_accepted() const {
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank)
      if (ranks_[rank].accepted != mine_.nonce) return false;
    return !met_.start.empty();
  }
  void publish() {
    deadline_ = answers_by(deadline_, monotonic_s());
    met_.ranks = ranks_;
    met_.start = mine_.nonce;
    for (const Arrival& each : ranks_) met_.one_host = met_.one_host && same_host(each, mine_);
    met_.tcp = store_.empty() ? !met_.one_host : store_ == "tcp";
    met_.host = met_.one_host ? "127.0.0.1" : mine_.address;
    listen();
    answer(false, "");
  }
  /// Where the store is, for these ranks alone. Ranks that have taken an earlier answer know that port.
  void listen() {
    const Reach wanted = met_.one_host ? Reach::this_host : Reach::all_hosts;
    if (!met_.tcp || (met_.listening >= 0 && reach_ == wanted)) return;
    stop_listening();
    reach_ = wanted;
    try {
      met_.listening = listening_socket(met_.port, reach_);
    } catch (const MachineError& error) {
      end(error.what());
    }
  }
  void stop_listening() {
    if (met_.listening >= 0) ::close(std::exchange(met_.listening, -1));
  }
  /// `go`: all have taken it; `problem`: somebody has not, and all shall leave.
  void answer(bool go, const std::string& problem) const {
    Answer said{met_, mine_, {}, go, problem};
    for (const Arrival& each : ranks_) said.nonces.push_back(each.nonce);
    write_members(answer_file(run_dir_), said);
  }
  /// Who has come learns why, whether all had come or not.
  [[noreturn]] void end(const std::string& problem) const {
    answer(false, problem);
    throw RendezvousError(problem);
  }
  std::string lateness() const {
    std::vector<int> late = missing();
    const bool silent = late.empty();
    if (silent) {
      for (int rank = 1; rank < mine_.world; ++rank)
        if (ranks_[static_cast<std::size_t>(rank)].accepted != mine_.nonce) late.push_back(rank);
    }
    std::string text = fmt::format("{} of {} did not {} in time: {} {}. Did the launcher bring {} processes, and do all of them see {}?",
                                   late.size() == 1 ? "a rank" : "ranks", mine_.world, silent ? "answer" : "come",
                                   late.size() == 1 ? "rank" : "ranks", fmt::join(late, ", "), mine_.world, run_dir_);
    for (const Arrival& each : ranks_)
      if (!each.problem.empty()) text += fmt::format(" Rank {} said: {}", each.rank, each.problem);
    return text;
  }

  const std::string& run_dir_;
  const Arrival& mine_;
  const std::string& store_;
  double deadline_;
  const StayOrThrow& stay_or_throw_;
  std::vector<Arrival> ranks_;
  std::string problem_;  ///< of a rank that has taken the answer and left
  Met met_;
  Reach reach_ = Reach::this_host;  ///< of met_.listening
};

/// Rank 0's answer that repeats this rank's nonce; nothing: there is none. Throws RendezvousError with the problem that it tells of.
std::optional<Answer> answer_to(const std::string& run_dir, const Arrival& mine) {
  const auto answer = read_members<Answer>(answer_file(run_dir), kMostArrivalBytes);
  const std::size_t rank = static_cast<std::size_t>(mine.rank);
  const bool own = answer && answer->nonces.size() == static_cast<std::size_t>(mine.world) && answer->nonces[rank] == mine.nonce;
  if (!own) return std::nullopt;
  if (!answer->problem.empty()) throw RendezvousError(answer->problem);
  return answer;
}

/// All others have taken rank 0's answer as well.
void wait_for_the_others(const std::string& run_dir, const Arrival& mine, double deadline, const StayOrThrow& stay_or_throw) {
  const double begun = monotonic_s(), until = answers_by(deadline, begun) + kRankZeroFirst_s;
  for (; monotonic_s() < until; wait_a_moment()) {
    stay_or_throw();
    if (const auto answer = answer_to(run_dir, mine); answer && answer->go) return;
  }
  throw RendezvousError(fmt::format("rank 0 ({}) has not said within {:.0f} s that all ranks have come together; it is gone, or cannot write into {}",
                                 who(read_arrival(run_dir, 0)), until - begun, run_dir));
}

Met join(const std::string& run_dir, Arrival mine, double deadline, const Examine& examine, const StayOrThrow& stay_or_throw) {
  const auto index = static_cast<std::size_t>(mine.rank);
  for (;;) {
    if (auto answer = answer_to(run_dir, mine)) {
      Met met = std::move(answer->met);
      met.ranks.resize(static_cast<std::size_t>(mine.world));
      met.ranks[0] = std::move(answer->first);
      if (examine) mine.problem = examine(met);
      mine.accepted = met.start;
      met.ranks[index] = mine;
      write_members(start_file(run_dir, mine.rank), mine);
      if (mine.problem.empty()) wait_for_the_others(run_dir, mine, deadline, stay_or_throw);
      return met;
    }
    stay_or_throw();
    leave_if_twice(run_dir, mine);
    if (monotonic_s() > deadline) {
      const Arrival first = arrival_beside(run_dir, mine, 0);
      throw RendezvousError(first.nonce.empty()
                             ? fmt::format("rank 0 did not come in time; rank {} waited in {}. Ranks meet in this folder, wherever MASTER_ADDR "
                                           "points: is rank 0 started, and does its host see it?", mine.rank, run_dir)
                             : fmt::format("rank 0 ({}) did not answer in time: it has left, or waits for ranks that have not come; what it "
                                           "says stands in its result in {}", who(first), run_dir));
    }
    wait_a_moment();
  }
}

}  // namespace

std::string start_file(const std::string& run_dir, int rank) { return fmt::format("{}/rank-{}.start.json", run_dir, rank); }

Arrival read_arrival(const std::string& run_dir, int rank) {
  return read_members<Arrival>(start_file(run_dir, rank), kMostArrivalBytes).value_or(Arrival{});
}

Arrival introduce(const RankEnvironment& rank_environment) {
  Arrival mine;
  mine.rank = rank_environment.rank;
  mine.world = rank_environment.world;
  mine.local_rank = rank_environment.local_rank;
  mine.rank_environment = rank_environment.name;
  static_cast<HostIdentity&>(mine) = this_host();
  mine.pid = ::getpid();
  mine.pid_started = process_state(mine.pid).started;
  mine.device = device_text(rank_environment.local_rank);
  mine.nonce = random_hex();
  return mine;
}

void note_process(const std::string& run_dir, Arrival mine, int process) {
  mine.process = process;
  mine.process_started = process_state(process).started;
  write_members(start_file(run_dir, mine.rank), mine);
}

Met meet(const std::string& run_dir, Arrival mine, const std::string& store, double deadline_s, const Examine& examine,
         const StayOrThrow& stay_or_throw) {
  const double deadline = monotonic_s() + deadline_s;
  write_members(start_file(run_dir, mine.rank), mine);
  // Rank 0 knows who is missing: it speaks first.
  if (mine.rank != 0) return join(run_dir, std::move(mine), deadline + kRankZeroFirst_s, examine, stay_or_throw);
  return Host(run_dir, mine, store, deadline, stay_or_throw).gather();
}

std::string difference_of_identity(const Arrival& first, const Arrival& mine) {
  std::string text;
  if (first.build != mine.build)
    text = fmt::format("rank 0 runs the build {} and rank {} the build {}", first.build, mine.rank, mine.build);
  if (first.isa != mine.isa) {
    text += fmt::format("{}rank 0 computes on {} and rank {} on {}", text.empty() ? "" : "; ", first.isa, mine.rank, mine.isa);
  }
  if (text.empty()) return "";
  return fmt::format("{} (hosts {} and {}): their bits may differ. Install one build on all hosts, choose hosts of one kind, "
                     "or say --mixed", text, first.host, mine.host);
}

std::string unreachable_text(const Met& met, const Arrival& mine, double deadline_s) {
  const auto failed = [&](const std::string& why) {
    return fmt::format("rank 0 (host {}) listens at {}:{} and rank {} (host {}) cannot reach it: {}. Set LOCKSTEP_ADDRESS or "
                       "GLOO_SOCKET_IFNAME on rank 0's host to what the other hosts see, or LOCKSTEP_STORE=file",
                       met.ranks.front().host, met.host, met.port, mine.rank, mine.host, why);
  };
  std::string why;
  const int there = connected_within(met.host, met.port, deadline_s, why);
  if (there < 0) return failed(why);
  ::close(there);
  return "";
}

namespace {

constexpr uint64_t kMostExitBytes = 1 << 16;

}  // namespace

std::string exit_file(const std::string& run_dir, int rank) { return fmt::format("{}/rank-{}.exit.json", run_dir, rank); }
std::string stop_file(const std::string& run_dir) { return run_dir + "/stop.json"; }

void write_exit(const std::string& run_dir, const RankExit& exit) { write_members(exit_file(run_dir, exit.rank), exit); }

std::optional<RankExit> read_exit(const std::string& run_dir, int rank) {
  const auto exit = read_members<RankExit>(exit_file(run_dir, rank), kMostExitBytes, {.rank = rank});
  return exit && exit->rank == rank ? exit : std::nullopt;
}

void write_stop(const std::string& run_dir, const StopWish& wish) { write_members(stop_file(run_dir), wish); }

StopWish read_stop(const std::string& run_dir) { return read_members<StopWish>(stop_file(run_dir), kMostExitBytes).value_or(StopWish{}); }

std::optional<json> read_object(const std::string& path, uint64_t most_bytes) {
  const FileText file = read_file(path, most_bytes);
  if (!file) return std::nullopt;
  json object = parse_json(file.text);
  if (!object.is_object()) return std::nullopt;
  return object;
}

void write_object(const std::string& path, const json& object, OpenFor purpose) {
  write_file_atomically(path, object.dump(2, ' ', false, json::error_handler_t::replace) + "\n", real_files(), purpose);
}

namespace {

/// Ranks that save ask seconds apart whether others get on.
constexpr double kShareEvery_s = 0.1;
constexpr uint64_t kMostWatcherBytes = 1 << 16;

std::string watcher_file(const std::string& run_dir) { return run_dir + "/watcher.json"; }

}  // namespace

static void write_watcher(const std::string& run_dir, const Watcher& watcher) { write_members(watcher_file(run_dir), watcher, OpenFor::keeping); }

std::optional<Watcher> read_watcher(const std::string& run_dir) { return read_members<Watcher>(watcher_file(run_dir), kMostWatcherBytes); }

static void remove_watcher(const std::string& run_dir) { (void)real_files().remove(watcher_file(run_dir)); }

std::string heartbeats_of_rank(int rank) { return fmt::format("{}-rank-{}", kHeartbeatFile, rank); }

std::string desk_line(const Watcher& watcher, int rank) {
  return json{{"key", watcher.key}, {"run", watcher.run}, {"rank", rank}}.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

HeartbeatServer::HeartbeatServer() {
  const Arrival self = introduce(RankEnvironment{});
  static_cast<HostIdentity&>(self_) = self;
  self_.key = door_.key();
  self_.port = door_.port();
  self_.process = self.pid;
}

std::string HeartbeatServer::expect(const RankStart& what) {
  Watcher watcher = self_;
  watcher.run = what.run;
  watcher.attempt = random_hex();
  write_watcher(what.dir, watcher);
  runs_.insert_or_assign(what.run, Watched{what, watcher.attempt, HeartbeatFile::open(what.dir + "/" + kHeartbeatFile, what.world_size)});
  return watcher.attempt;
}

void HeartbeatServer::open_to_hosts() {
  if (!door_.open_to_hosts()) return;
  self_.port = door_.port();
  for (const auto& [run, watched] : runs_) {
    Watcher watcher = self_;
    watcher.run = run;
    watcher.attempt = watched.attempt;
    write_watcher(watched.what.dir, watcher);
  }
}

void HeartbeatServer::forget(const std::string& run) {
  const auto found = runs_.find(run);
  if (found == runs_.end()) return;
  std::erase_if(connections_, [&](const Connection& each) { return each.run == run; });
  const RankStart& what = found->second.what;
  // Of a process that was killed before it could.
  for (int rank = 0; rank < what.world_size; ++rank) (void)real_files().remove(what.dir + "/" + heartbeats_of_rank(rank));
  remove_watcher(what.dir);
  runs_.erase(found);
}

std::vector<LauncherEvent> HeartbeatServer::look(double now) {
  for (Door::Guest& guest : door_.look(now)) welcome(std::move(guest));
  std::vector<LauncherEvent> events;
  std::erase_if(connections_, [&](Connection& each) { return !hear(each, events); });
  if (now - shared_at_ < kShareEvery_s) return events;
  shared_at_ = now;
  for (Connection& each : connections_) share(each);
  return events;
}

/// False: it is hung up on.
bool HeartbeatServer::hear(Connection& connection, std::vector<LauncherEvent>& events) {
  const bool there = connection.socket->receive();
  while (const auto line = connection.socket->line()) {
    try {
      LauncherEvent event = event_from_line(*line);
      const bool own = event.rank == connection.rank || connection.rank < 0;
      if (event.kind != LauncherEvent::Kind::heartbeat || !own || event.rank < 0 || event.rank >= static_cast<int>(connection.told.size())) return false;
      event.run = connection.run;
      events.push_back(std::move(event));
    } catch (const std::runtime_error&) {
      return false;  // it does not speak as we do
    }
  }
  return there;
}

void HeartbeatServer::welcome(Door::Guest guest) {
  Connection connection{std::move(guest.socket), "", -1};
  try {
    const json object = parse_json(guest.hello);
    const JsonFields hello(object, "the hello of a rank's process");
    connection.run = hello.at<std::string>("run");
    connection.rank = hello.at<int>("rank");
  } catch (const ConfigError&) {
    return;  // it is hung up on
  }
  const auto run = runs_.find(connection.run);
  if (run == runs_.end() || connection.rank < -1 || connection.rank >= run->second.what.world_size) return;
  connection.told.assign(static_cast<std::size_t>(run->second.what.world_size), 0);
  // Who comes again has lost the connection that it had.
  std::erase_if(connections_, [&](const Connection& each) { return each.run == connection.run && each.rank == connection.rank; });
  connections_.push_back(std::move(connection));
}

/// One that does not read is not waited for.
void HeartbeatServer::share(Connection& connection) {
  const auto run = runs_.find(connection.run);
  if (run == runs_.end() || !connection.socket->takes_more()) return;
  std::string lines;
  for (int rank = 0; rank < run->second.what.world_size; ++rank) {
    uint64_t& told = connection.told[static_cast<std::size_t>(rank)];
    const HeartbeatNote note = run->second.heartbeats.note(rank);
    if (rank == connection.rank || connection.rank < 0 || note.changes == told) continue;
    told = note.changes;
    ParentCommand command;
    command.op = ParentCommand::Op::heartbeat;
    command.run = connection.run;
    command.rank = rank;
    command.heartbeat = note;
    lines += to_line(command);
  }
  if (!lines.empty()) (void)connection.socket->send(lines);
}

}  // namespace lockstep
