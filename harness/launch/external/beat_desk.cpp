#include "harness/launch/external/beat_desk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/base/files.h"
#include "harness/base/json_text.h"
#include "harness/launch/external/meeting.h"
#include "harness/launch/external/object_file.h"

namespace lockstep {
namespace {

using nlohmann::json;

/// Ranks that save ask seconds apart whether others get on.
constexpr double kShareEvery_s = 0.1;
constexpr uint64_t kMostWatcherBytes = 1 << 16;

std::string watcher_file(const std::string& run_dir) { return run_dir + "/watcher.json"; }

}  // namespace

void write_watcher(const std::string& run_dir, const Watcher& watcher) {
  json object = {{"run", watcher.run}, {"port", watcher.port}, {"process", watcher.process}, {"key", watcher.key}};
  put_host(object, watcher);
  write_object(watcher_file(run_dir), object);
}

std::optional<Watcher> read_watcher(const std::string& run_dir) {
  const auto object = read_object(watcher_file(run_dir), kMostWatcherBytes);
  if (!object) return std::nullopt;
  Watcher watcher;
  take_host(watcher, *object);
  watcher.run = object->value("run", "");
  watcher.port = object->value("port", 0);
  watcher.process = object->value("process", 0);
  watcher.key = object->value("key", "");
  return watcher;
}

void remove_watcher(const std::string& run_dir) { (void)real_files().remove(watcher_file(run_dir)); }

std::string beats_of_rank(int rank) { return fmt::format("{}-rank-{}", kBeatFile, rank); }

std::string desk_line(const Watcher& watcher, int rank) {
  return json{{"key", watcher.key}, {"run", watcher.run}, {"rank", rank}}.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

BeatDesk::BeatDesk() {
  const Arrival self = introduce(Contract{});
  static_cast<HostIdentity&>(self_) = self;
  self_.key = self.nonce;
  self_.process = self.pid;
  listening_ = listening_socket(self_.port);
  ::fcntl(listening_, F_SETFD, FD_CLOEXEC);
  ::fcntl(listening_, F_SETFL, O_NONBLOCK);
}

BeatDesk::~BeatDesk() { ::close(listening_); }

void BeatDesk::expect(const RankStart& what) {
  Watcher watcher = self_;
  watcher.run = what.run;
  write_watcher(what.dir, watcher);
  runs_.insert_or_assign(what.run, Watched{what, BeatFile::open(what.dir + "/" + kBeatFile, what.world_size)});
}

void BeatDesk::forget(const std::string& run) {
  const auto found = runs_.find(run);
  if (found == runs_.end()) return;
  std::erase_if(speakers_, [&](const Speaker& each) { return each.run == run; });
  const RankStart& what = found->second.what;
  // Of a process that was killed before it could.
  for (int rank = 0; rank < what.world_size; ++rank) (void)real_files().remove(what.dir + "/" + beats_of_rank(rank));
  remove_watcher(what.dir);
  runs_.erase(found);
}

std::vector<LauncherEvent> BeatDesk::look(double now) {
  for (int there = 0; (there = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
    set_side_channel(there);
    speakers_.push_back({std::make_unique<LineSocket>(there), ""});
  }
  std::vector<LauncherEvent> events;
  std::erase_if(speakers_, [&](Speaker& each) { return !hear(each, events); });
  if (now - shared_at_ < kShareEvery_s) return events;
  shared_at_ = now;
  for (Speaker& each : speakers_) share(each);
  return events;
}

/// False: it is hung up on.
bool BeatDesk::hear(Speaker& speaker, std::vector<LauncherEvent>& events) {
  const bool there = speaker.socket->receive();
  while (const auto line = speaker.socket->line()) {
    if (speaker.rank < 0 && speaker.run.empty()) {
      if (!welcome(speaker, *line)) return false;
      continue;
    }
    try {
      LauncherEvent event = event_from_line(*line);
      const bool own = event.rank == speaker.rank || speaker.rank < 0;
      if (event.kind != LauncherEvent::Kind::beat || !own || event.rank < 0 || event.rank >= static_cast<int>(speaker.told.size())) return false;
      event.run = speaker.run;
      events.push_back(std::move(event));
    } catch (const std::runtime_error&) {
      return false;  // it does not speak as we do
    }
  }
  return there;
}

bool BeatDesk::welcome(Speaker& speaker, const std::string& line) {
  const json hello = parse_json(line);
  if (!hello.is_object() || hello.value("key", json()) != self_.key) return false;
  const auto run = runs_.find(hello.value("run", ""));
  const int rank = hello.value("rank", -2);
  if (run == runs_.end() || rank < -1 || rank >= run->second.what.world_size) return false;
  speaker.run = run->first;
  speaker.rank = rank;
  speaker.told.assign(static_cast<std::size_t>(run->second.what.world_size), 0);
  return true;
}

/// One that does not read is not waited for.
void BeatDesk::share(Speaker& speaker) {
  const auto run = runs_.find(speaker.run);
  if (run == runs_.end() || !speaker.socket->takes_more()) return;
  std::string lines;
  for (int rank = 0; rank < run->second.what.world_size; ++rank) {
    uint64_t& told = speaker.told[static_cast<std::size_t>(rank)];
    const BeatNote note = run->second.beats.note(rank);
    if (rank == speaker.rank || speaker.rank < 0 || note.changes == told) continue;
    told = note.changes;
    ParentCommand command;
    command.op = ParentCommand::Op::beat;
    command.run = speaker.run;
    command.rank = rank;
    command.beat = note;
    lines += to_line(command);
  }
  if (!lines.empty()) (void)speaker.socket->send(lines);
}

}  // namespace lockstep
