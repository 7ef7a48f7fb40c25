#include "harness/run/launchers/external/heartbeat_server.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/base/files.h"
#include "harness/base/hex.h"
#include "harness/base/json_text.h"
#include "harness/run/launchers/external/object_file.h"
#include "harness/run/launchers/external/rendezvous.h"

namespace lockstep {
namespace {

using nlohmann::json;

/// Ranks that save ask seconds apart whether others get on.
constexpr double kShareEvery_s = 0.1;
constexpr uint64_t kMostWatcherBytes = 1 << 16;

std::string watcher_file(const std::string& run_dir) { return run_dir + "/watcher.json"; }

}  // namespace

void write_watcher(const std::string& run_dir, const Watcher& watcher) {
  json object = {{"run", watcher.run}, {"port", watcher.port}, {"process", watcher.process}, {"key", watcher.key},
                 {"attempt", watcher.attempt}};
  put_host(object, watcher);
  write_object(watcher_file(run_dir), object, OpenFor::keeping);
}

std::optional<Watcher> read_watcher(const std::string& run_dir) {
  return read_fields(watcher_file(run_dir), kMostWatcherBytes, [](const JsonFields<>& object) {
    Watcher watcher;
    take_host(watcher, object);
    watcher.run = object.value("run", "");
    watcher.port = object.value("port", 0);
    watcher.process = object.value("process", 0);
    watcher.key = object.value("key", "");
    watcher.attempt = object.value("attempt", "");
    return watcher;
  });
}

void remove_watcher(const std::string& run_dir) { (void)real_files().remove(watcher_file(run_dir)); }

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
