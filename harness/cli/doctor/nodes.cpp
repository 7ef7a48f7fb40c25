#include "harness/cli/doctor/nodes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "harness/base/errors.h"
#include "harness/base/files.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/launchers/local/protocol.h"

namespace lockstep {
namespace {

using nlohmann::json;
using State = Check::State;

constexpr double kMeetWithin_s = 30, kConnectWithin_s = 3, kAnswerWithin_s = 10, kReportWithin_s = 60;
constexpr std::size_t kMostUnreachable = 5;  // of one node; then it tries no others
constexpr int kTries = 4;                    // of the folder's latency; the first is not counted, since nodes begin it apart
constexpr double kSlowFolder_s = 1, kMostSkewOfNodes_s = 1;
constexpr uint64_t kMostReportBytes = 4 << 20;

double wall_s() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

json to_json(const NodeReport& report) {
  json checks = json::array();
  for (const Check& each : report.checks) checks.push_back({static_cast<int>(each.state), each.name, each.text});
  return {{"node", report.node}, {"checks", checks}, {"driver", report.driver}, {"settings", report.settings}, {"lock_holds", report.lock_holds},
          {"unreachable", report.unreachable}, {"reached", report.reached}};
}

NodeReport report_in(const json& object, const std::string& path) {
  const JsonFields fields(object, path);
  NodeReport report;
  report.node = fields.at<std::string>("node");
  for (const json& each : fields.at<std::vector<json>>("checks")) {
    const auto state = each.is_array() && each.size() == 3 ? json_as<int>(each[0]) : std::nullopt;
    const auto name = state ? json_as<std::string>(each[1]) : std::nullopt, text = state ? json_as<std::string>(each[2]) : std::nullopt;
    if (!name || !text || *state < 0 || *state > static_cast<int>(State::failed)) throw ConfigError(path + ": 'checks' holds what is no check");
    report.checks.push_back({static_cast<State>(*state), *name, *text});
  }
  report.driver = fields.at<std::string>("driver");
  report.settings = fields.at<std::map<std::string, std::string>>("settings");
  report.lock_holds = fields.at<bool>("lock_holds");
  report.unreachable = fields.at<std::vector<std::string>>("unreachable");
  report.reached = fields.at<int>("reached");
  return report;
}

double number_in(const json& object, const char* key, double otherwise) {
  return object.contains(key) ? json_as<double>(object[key]).value_or(otherwise) : otherwise;
}

/// One process's side of the meeting, whose files all bear rank 0's nonce: what an earlier meeting left is nobody's.
class NodeMeeting {
 public:
  NodeMeeting(std::string folder, const RankEnvironment& environment) : folder_(std::move(folder)), arrival_(introduce(environment)) {
    if (const auto error = real_files().make_folders(folder_)) throw MachineError(folder_ + ": cannot be created: " + error.message());
    if (arrival_.rank == 0) hold_lock();
    listening_ = listening_socket(arrival_.port);
    start_ = meet(folder_, arrival_, "file", kMeetWithin_s).start;
  }
  ~NodeMeeting() {
    for (const int each : {listening_, lock_}) {
      if (each >= 0) ::close(each);
    }
  }
  NodeMeeting(const NodeMeeting&) = delete;
  NodeMeeting& operator=(const NodeMeeting&) = delete;

  std::vector<NodeReport> lead(NodeReport mine) {
    std::vector<NodeReport> reports(static_cast<std::size_t>(arrival_.world));
    for (int attempt = 0; attempt < kTries; ++attempt) time_answers(attempt, reports);
    connect_to_others(mine);
    reports[0] = std::move(mine);
    for (int rank = 1; rank < arrival_.world; ++rank) take_report(rank, reports[static_cast<std::size_t>(rank)]);
    write("end", {});
    return reports;
  }

  void follow(NodeReport mine) {
    for (int attempt = 0; attempt < kTries; ++attempt) {
      if (wait_for("call", kReportWithin_s, [&](const json& call) { return number_in(call, "attempt", -1) >= attempt; }))
        write(own("answer"), {{"attempt", attempt}, {"wall_s", wall_s()}});
    }
    mine.lock_holds = is_refused_lock();
    connect_to_others(mine);
    write(own("report"), to_json(mine));
    const double deadline = monotonic_s() + 2 * kReportWithin_s;
    while (!found("end")) {
      if (::access(start_file(folder_, arrival_.rank).c_str(), F_OK) != 0) return;  // it was removed after the end
      if (monotonic_s() > deadline) throw MachineError(fmt::format("rank 0 has not ended the meeting in {}: it is gone, or its files are not seen here", folder_));
      pause();
    }
  }

 private:
  static void pause() { ::poll(nullptr, 0, 2); }
  std::string path_of(const std::string& name) const { return folder_ + "/" + name + ".json"; }
  std::string own(const char* name) const { return fmt::format("{}-{}", name, arrival_.rank); }
  void write(const std::string& name, json object) const {
    object["start"] = start_;
    write_object(path_of(name), object);
  }
  std::optional<json> found(const std::string& name) const {
    auto object = read_object(path_of(name), kMostReportBytes);
    return object && object->value("start", json()) == start_ ? object : std::nullopt;
  }
  template <class IsIt>
  std::optional<json> wait_for(const std::string& name, double within_s, IsIt is_it) const {
    for (const double deadline = monotonic_s() + within_s;; pause()) {
      if (auto object = found(name); object && is_it(*object)) return object;
      if (monotonic_s() > deadline) return std::nullopt;
    }
  }

  void hold_lock() {
    lock_ = ::open((folder_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock_ < 0 || ::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      throw MachineError(fmt::format("{}/lock: {}", folder_, errno == EWOULDBLOCK ? "another doctor --nodes runs in this folder; wait for it, or give another --out"
                                                                                   : std::strerror(errno)));
    }
  }
  bool is_refused_lock() const {
    const int own = ::open((folder_ + "/lock").c_str(), O_RDWR | O_CLOEXEC);
    const bool refused = own >= 0 && ::flock(own, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (own >= 0) ::close(own);
    return refused;
  }

  /// To the port that each other process listens at; none has to accept.
  void connect_to_others(NodeReport& mine) const {
    for (int rank = 0; rank < arrival_.world && mine.unreachable.size() < kMostUnreachable; ++rank) {
      if (rank == arrival_.rank) continue;
      const Arrival other = read_arrival(folder_, rank);
      std::string problem;
      const int there = connected_within(other.address, other.port, kConnectWithin_s, problem);
      if (there >= 0) {
        ::close(there);
        ++mine.reached;
      } else {
        mine.unreachable.push_back(fmt::format("{} ({}:{}): {}", other.host, other.address, other.port, problem));
      }
    }
  }

  void time_answers(int attempt, std::vector<NodeReport>& reports) const {
    const double begun = monotonic_s(), begun_wall = wall_s();
    write("call", {{"attempt", attempt}});
    for (int rank = 1; rank < arrival_.world; ++rank) {
      NodeReport& report = reports[static_cast<std::size_t>(rank)];
      const auto answer = wait_for(fmt::format("answer-{}", rank), begun + kAnswerWithin_s - monotonic_s(),
                                   [&](const json& each) { return number_in(each, "attempt", -1) >= attempt; });
      if (attempt == 0) continue;
      if (!answer) report.answer_s = -1;
      if (!answer || report.answer_s < 0) continue;
      report.answer_s = std::max(report.answer_s, monotonic_s() - begun);
      // It was said after the call, and before the answer was seen.
      const double said = number_in(*answer, "wall_s", begun_wall), seen = wall_s();
      const double ahead = said > seen ? said - seen : std::min(said - begun_wall, 0.0);
      if (attempt == 1 || std::abs(ahead) < std::abs(report.clock_ahead_s)) report.clock_ahead_s = ahead;
    }
  }

  void take_report(int rank, NodeReport& report) const {
    const auto object = wait_for(fmt::format("report-{}", rank), kReportWithin_s, [](const json&) { return true; });
    const double answer_s = report.answer_s, ahead_s = report.clock_ahead_s;
    if (!object) {
      throw RendezvousError(fmt::format("rank {} ({}) came, and gave no report within {:g} s: its process has ended, or its files in {} are not seen here", rank,
                                        read_arrival(folder_, rank).host, kReportWithin_s, folder_));
    }
    report = report_in(*object, path_of(fmt::format("report-{}", rank)));
    report.answer_s = answer_s;
    report.clock_ahead_s = ahead_s;
  }

  std::string folder_;
  Arrival arrival_;
  std::string start_;
  int lock_ = -1, listening_ = -1;
};

/// The meeting's folder, once rank 0 is done with it, however that went.
struct Removed {
  const std::string& folder;
  ~Removed() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
};

std::string names_of(const std::set<std::string>& nodes) { return fmt::format("{}", fmt::join(nodes, ", ")); }

/// What nodes say under one name: those that are well in one line, the others by what they say.
void add_merged(const std::string& name, const std::vector<NodeReport>& reports, std::vector<Check>& all) {
  std::vector<std::tuple<State, std::string, std::set<std::string>>> groups;
  std::set<std::string> well;
  for (const NodeReport& report : reports) {
    for (const Check& check : report.checks) {
      if (check.name != name) continue;
      if (check.state == State::ok) well.insert(report.node);
      const auto same = std::ranges::find_if(groups, [&](const auto& each) { return std::get<0>(each) == check.state && std::get<1>(each) == check.text; });
      if (same == groups.end())
        groups.emplace_back(check.state, check.text, std::set{report.node});
      else
        std::get<2>(*same).insert(report.node);
    }
  }
  bool said = false;
  for (const auto& [state, text, nodes] : groups) {
    if (groups.size() == 1) {
      all.push_back({state, name, text});
    } else if (state != State::ok) {
      all.push_back({state, name, fmt::format("{}: {}", names_of(nodes), text)});
    } else if (!said) {
      said = true;
      all.push_back({state, name, well == nodes ? fmt::format("{}: {}", names_of(nodes), text) : fmt::format("{} (of {}; ok on {})", text, names_of(nodes), names_of(well))});
    }
  }
}

std::set<std::string> nodes_in(const std::vector<NodeReport>& reports) {
  std::set<std::string> nodes;
  for (const NodeReport& report : reports) nodes.insert(report.node);
  return nodes;
}

Check who_met(const std::vector<NodeReport>& reports) {
  const std::set<std::string> nodes = nodes_in(reports);
  const std::string text = fmt::format("{} on {}: {}", reports.size() == 1 ? "1 process" : fmt::format("{} processes", reports.size()),
                                       counted(static_cast<int64_t>(nodes.size()), "node"), names_of(nodes));
  if (nodes.size() > 1) return {State::ok, "nodes", text};
  return {State::note, "nodes", text + "; nothing between nodes was checked: ask for two or more (salloc -N2)"};
}

Check folder_latency(const std::vector<NodeReport>& reports) {
  const std::string name = "folder latency";
  const auto slowest = std::ranges::max_element(reports, {}, &NodeReport::answer_s);
  std::set<std::string> silent;
  for (const NodeReport& report : reports) {
    if (report.answer_s < 0) silent.insert(report.node);
  }
  if (!silent.empty()) {
    return {State::failed, name,
            fmt::format("{} did not answer a file of {} within {:g} s: ranks meet by files, so they would not find each other; mount the folder with short attribute "
                        "caches (NFS: actimeo=1, lookupcache=positive), or use another one", names_of(silent), reports.front().node, kAnswerWithin_s)};
  }
  const std::string text = fmt::format("a file of {} is seen and answered within {:.3f} s (slowest: {}; 3 tries)", reports.front().node, slowest->answer_s, slowest->node);
  if (slowest->answer_s <= kSlowFolder_s) return {State::ok, name, fmt::format("{}; up to {:g} s is well", text, kSlowFolder_s)};
  return {State::note, name, fmt::format("{}, more than {:g} s: each start of ranks waits that long; mount the folder with short attribute caches (NFS: actimeo=1)", text, kSlowFolder_s)};
}

Check locks_between(const std::vector<NodeReport>& reports) {
  const std::string name = "locks of nodes";
  std::set<std::string> wrong;
  for (const NodeReport& report : reports) {
    if (!report.lock_holds) wrong.insert(report.node);
  }
  if (wrong.empty()) return {State::ok, name, fmt::format("a lock (flock) of {} keeps out all others", reports.front().node)};
  return {State::failed, name,
          fmt::format("{} got a lock (flock) that {} held: two runs, or two saves, would write over each other; mount the folder with locks between nodes (NFS: without "
                      "nolock and local_lock; Lustre: flock, not localflock), or use another one", names_of(wrong), reports.front().node)};
}

Check connections(const std::vector<NodeReport>& reports) {
  const std::string name = "connections";
  std::vector<std::string> wrong;
  int reached = 0;
  for (const NodeReport& report : reports) {
    reached += report.reached;
    for (const std::string& each : report.unreachable) wrong.push_back(fmt::format("{} cannot reach {}", report.node, each));
  }
  const char* const range = std::getenv("LOCKSTEP_PORTS");
  const std::string ports = range == nullptr ? "at ports of the system's choice" : fmt::format("at ports of LOCKSTEP_PORTS={}", range);
  if (wrong.empty()) return {State::ok, name, fmt::format("each process reaches each other one {} ({} in both directions)", ports, counted(reached, "connection"))};
  return {State::failed, name,
          fmt::format("{}; tried {}: open TCP between the nodes (lockstep: LOCKSTEP_PORTS=FROM-TO; Gloo: net.ipv4.ip_local_port_range), or choose another network with "
                      "GLOO_SOCKET_IFNAME or LOCKSTEP_ADDRESS", fmt::join(wrong, "; "), ports)};
}

Check clocks_of_nodes(const std::vector<NodeReport>& reports) {
  std::vector<std::string> wrong;
  for (const NodeReport& report : reports) {
    if (std::abs(report.clock_ahead_s) > kMostSkewOfNodes_s)
      wrong.push_back(fmt::format("{} is {:.1f} s {}", report.node, std::abs(report.clock_ahead_s), report.clock_ahead_s > 0 ? "ahead" : "behind"));
  }
  if (wrong.empty()) return {State::ok, "clocks", fmt::format("those of all nodes agree with {}'s within {:g} s", reports.front().node, kMostSkewOfNodes_s)};
  return {State::note, "clocks",
          fmt::format("compared with {}: {} (up to {:g} s is well); times in logs and ages of files cannot be compared: run NTP on all nodes", reports.front().node,
                      fmt::join(wrong, ", "), kMostSkewOfNodes_s)};
}

/// Nodes by the value that each has.
using ByValue = std::map<std::string, std::set<std::string>>;

std::string in_words(const ByValue& by_value) {
  std::vector<std::string> words;
  for (const auto& [value, nodes] : by_value) words.push_back(fmt::format("{} on {}", value.empty() ? "none" : value, names_of(nodes)));
  return fmt::format("{}", fmt::join(words, ", "));
}

/// What should be the same on all nodes, and is not.
void add_differences(const std::vector<NodeReport>& reports, std::vector<Check>& all) {
  ByValue drivers;
  std::map<std::string, ByValue> settings;
  for (const NodeReport& report : reports) {
    drivers[report.driver].insert(report.node);
    for (const auto& [name, value] : report.settings) settings[name];
  }
  if (drivers.size() > 1) all.push_back({State::note, "drivers", fmt::format("they differ: {}; install one version of NVIDIA's driver on all nodes", in_words(drivers))});
  for (auto& [name, values] : settings) {
    for (const NodeReport& report : reports) {
      const auto found = report.settings.find(name);
      values[found == report.settings.end() ? "" : found->second].insert(report.node);
    }
    if (values.size() > 1)
      all.push_back({State::note, "settings", fmt::format("{} differs: {}; set it where lockstep is started, and let the launcher pass it on (srun --export=ALL, mpirun -x {})", name, in_words(values), name)});
  }
}

}  // namespace

std::vector<Check> checks_of_nodes(const std::vector<NodeReport>& reports) {
  std::vector<Check> all;
  std::set<std::string> done;
  for (const NodeReport& report : reports) {
    for (const Check& check : report.checks) {
      if (done.insert(check.name).second) add_merged(check.name, reports, all);
    }
  }
  all.push_back(who_met(reports));
  if (reports.size() > 1) {
    for (const auto& each : {folder_latency, locks_between, connections, clocks_of_nodes}) all.push_back(each(reports));
    add_differences(reports, all);
  }
  return all;
}

std::vector<NodeReport> meet_nodes(const std::string& folder, const RankEnvironment& environment, NodeReport mine) {
  if (environment.rank == 0) {
    const Removed at_the_end{folder};
    return NodeMeeting(folder, environment).lead(std::move(mine));
  }
  NodeMeeting(folder, environment).follow(std::move(mine));
  return {};
}

}  // namespace lockstep
