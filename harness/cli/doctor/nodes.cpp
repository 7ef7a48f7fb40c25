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
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <tuple>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/launchers/local/protocol.h"
#include "harness/run/libraries.h"

namespace lockstep {
namespace {

using nlohmann::json;
using State = Check::State;

constexpr double kMeetWithin_s = 30, kConnectWithin_s = 3, kAnswerWithin_s = 10, kReportWithin_s = 60;
constexpr std::size_t kMostUnreachable = 5;  // of one node; then it tries no others
constexpr int kTries = 4;                    // of the folder's latency; the first is not counted, since nodes begin it apart
constexpr double kSlowFolder_s = 1, kMostSkewOfNodes_s = 1;
constexpr uint64_t kMostReportBytes = 4 << 20;
constexpr int kRankWithin_s = 120;           // without output; ranks meet, and end an all-reduce, within 60 s each
constexpr double kSumWithin_s = 2 * kRankWithin_s;

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

/// Latency by the first, bandwidth by the last.
const std::vector<all_reduce::Ask>& all_reduce_asks() {
  static const std::vector<all_reduce::Ask> kAsks{{int64_t{4} << 10, 100}, {int64_t{64} << 20, 3}};
  return kAsks;
}

/// run.json of ranks that all-reduce. By the config in it `lockstep-rank run` knows how many they are.
void write_order(const std::string& folder, int ranks) {
  RunConfig config;
  config.layout = {ranks, 1};
  config.backend = Backend::gloo;
  json run{{"config", json::parse(canonical_json(config))},
           {"all_reduce", {{"ranks", ranks}, {"asks", all_reduce_asks()}}}};
  seal(run);
  if (const auto error = real_files().make_folders(folder)) throw MachineError(folder + ": " + error.message());
  write_file_atomically(folder + "/run.json", run.dump() + "\n");
}

/// One for each of all_reduce_asks(), or none.
std::vector<all_reduce::Answer> sums_in(const json& value) {
  try {
    auto sums = value.get<std::vector<all_reduce::Answer>>();
    if (sums.size() == all_reduce_asks().size()) return sums;
  } catch (const json::exception&) {
  }
  return {};
}

/// Runs one rank to its end, in that environment.
void run_rank(const std::string& folder, int rank, const std::string& program, std::vector<std::string> variables,
              NodeReport& mine) {
  const std::string said =
      answer_of({program, "run", folder, "--within", "60"}, std::move(variables), 1000 * kRankWithin_s, Errors::with_the_rest).text;
  mine.sums = sums_in(json::parse(read_file(all_reduce::answer_file(folder, rank)).text, nullptr, false));
  if (!mine.sums.empty()) return;
  mine.sum_problem = said.empty() ? program + " gave no answer" : said.substr(said.rfind('\n') + 1);
}

/// One process's side of the meeting, whose files all bear rank 0's nonce: what an earlier meeting left is nobody's.
class NodeMeeting {
 public:
  NodeMeeting(std::string folder, const RankEnvironment& environment, std::string rank_program)
      : folder_(std::move(folder)), rank_program_(std::move(rank_program)), arrival_(introduce(environment)) {
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
    const auto well = [](const NodeReport& each) { return each.unreachable.empty() && each.answer_s >= 0; };
    const bool reduces = arrival_.world > 1 && std::ranges::all_of(reports, well);
    if (reduces) write_order(ranks_folder(), arrival_.world);
    write("ranks", {{"reduce", reduces}});
    if (reduces) take_sums(reports);
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
    if (const auto ranks = said_by_rank_0("ranks", 2 * kReportWithin_s); ranks && ranks->value("reduce", false)) {
      run_rank(ranks_folder(), arrival_.rank, rank_program_, rank_environment(), mine);
      write(own("sum"), {{"problem", mine.sum_problem}, {"sums", mine.sums}});
    }
    said_by_rank_0("end", kSumWithin_s);
  }

 private:
  static void pause() { ::poll(nullptr, 0, 2); }
  std::string path_of(const std::string& name) const { return folder_ + "/" + name + ".json"; }
  std::string ranks_folder() const { return folder_ + "/ranks"; }
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

  /// Nothing where the meeting's files have been removed, after its end.
  std::optional<json> said_by_rank_0(const std::string& name, double within_s) const {
    for (const double deadline = monotonic_s() + within_s;; pause()) {
      if (auto object = found(name)) return object;
      if (::access(start_file(folder_, arrival_.rank).c_str(), F_OK) != 0) return std::nullopt;
      if (monotonic_s() > deadline)
        throw MachineError(fmt::format("rank 0 has stopped in {}: it is gone, or its files are not seen", folder_));
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

  void take_sums(std::vector<NodeReport>& reports) const {
    run_rank(ranks_folder(), 0, rank_program_, rank_environment(), reports[0]);
    for (int rank = 1; rank < arrival_.world; ++rank) {
      NodeReport& report = reports[static_cast<std::size_t>(rank)];
      const auto object = wait_for(fmt::format("sum-{}", rank), kSumWithin_s, [](const json&) { return true; });
      if (!object) {
        report.sum_problem = fmt::format("no word of it within {:g} s", kSumWithin_s);
        continue;
      }
      report.sums = sums_in(object->value("sums", json()));
      if (report.sums.empty())
        report.sum_problem = json_as<std::string>(object->value("problem", json())).value_or("no readable answer");
    }
  }

  std::string folder_, rank_program_;
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

/// "4 kB in 61 us, bus bandwidth 0.09 GB/s", as nccl-tests counts it: what a link must carry for the sum.
std::string in_words(const all_reduce::Ask& ask, double seconds, std::size_t ranks) {
  const bool small = ask.bytes < 1 << 20;
  const double bytes_a_link = 2 * (1 - 1 / static_cast<double>(ranks)) * static_cast<double>(ask.bytes);
  const std::string call = small ? fmt::format("{} kB in {:.0f} us", ask.bytes >> 10, seconds * 1e6)
                                 : fmt::format("{} MB in {:.1f} ms", ask.bytes >> 20, seconds * 1e3);
  return fmt::format("{}, bus bandwidth {:.3g} GB/s", call, bytes_a_link / std::max(seconds, 1e-9) * 1e-9);
}

/// Nothing where no rank was asked.
std::optional<Check> all_reduce_of(const std::vector<NodeReport>& reports) {
  const std::vector<all_reduce::Ask>& asks = all_reduce_asks();
  std::vector<std::string> failed, wrong;
  std::vector<double> slowest_s(asks.size());
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const auto& [sums, problem] = std::tie(reports[rank].sums, reports[rank].sum_problem);
    const std::string who = fmt::format("rank {} on {}", rank, reports[rank].node);
    if (sums.empty() && problem.empty()) return std::nullopt;
    if (sums.empty()) failed.push_back(fmt::format("{}: {}", who, problem));
    for (std::size_t k = 0; k < sums.size(); ++k) {
      slowest_s[k] = std::max(slowest_s[k], sums[k].seconds);
      if (sums[k].wrong == 0) continue;
      wrong.push_back(fmt::format("{} has {} at element {} of {}, not {:g}, and {} wrong in two calls", who,
                                  sums[k].got, sums[k].first_wrong, with_commas(asks[k].bytes / 4), sums[k].expected,
                                  counted(sums[k].wrong, "element")));
    }
  }
  if (!failed.empty()) return Check{State::failed, "all-reduce", fmt::format("{}", fmt::join(failed, "; "))};
  std::string text = fmt::format("{} real ranks on Gloo agree bit for bit, and every element is right", reports.size());
  for (std::size_t k = 0; k < asks.size(); ++k) text += "; " + in_words(asks[k], slowest_s[k], reports.size());
  if (wrong.empty()) return Check{State::ok, "all-reduce", text};
  return Check{State::failed, "all-reduce",
               fmt::format("{}; the network or a node's memory changes data: try nodes in pairs, and without the "
                           "network card's offloads (ethtool -K)", fmt::join(wrong, "; "))};
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
    if (auto sums = all_reduce_of(reports)) all.push_back(*std::move(sums));
  }
  return all;
}

Check all_reduce_check(const std::string& rank_program) {
  std::string folder = (std::filesystem::temp_directory_path() / "lockstep-doctor-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return {State::failed, "all-reduce", folder + ": " + std::strerror(errno)};
  const Removed at_the_end{folder};
  try {
    write_order(folder, 2);
  } catch (const MachineError& error) {
    return {State::failed, "all-reduce", error.what()};
  }
  std::vector<NodeReport> reports(2);
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      reports[static_cast<std::size_t>(rank)].node = "this host";
      std::vector<std::string> variables = rank_environment();
      std::erase_if(variables, [](const std::string& each) {
        return is_rank_variable(each.substr(0, each.find('='))) || each.starts_with("LOCKSTEP_WORLD_SIZE=");
      });
      variables.insert(variables.end(), {fmt::format("LOCKSTEP_RANK_ID={}", rank), "LOCKSTEP_WORLD_SIZE=2"});
      ranks.emplace_back(run_rank, folder, rank, rank_program, std::move(variables),
                         std::ref(reports[static_cast<std::size_t>(rank)]));
    }
  }
  return *all_reduce_of(reports);
}

std::vector<NodeReport> meet_nodes(const std::string& folder, const RankEnvironment& environment, NodeReport mine,
                                   const std::string& rank_program) {
  if (environment.rank == 0) {
    const Removed at_the_end{folder};
    return NodeMeeting(folder, environment, rank_program).lead(std::move(mine));
  }
  NodeMeeting(folder, environment, rank_program).follow(std::move(mine));
  return {};
}

}  // namespace lockstep
