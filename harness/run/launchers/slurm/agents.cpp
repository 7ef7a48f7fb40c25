#include "harness/run/launchers/slurm/agents.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/run/launchers/external/launcher.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/libraries.h"
#include "harness/run/rank_environment.h"
#include "harness/run/run_folder.h"

namespace lockstep {

static AgentHello hello_from_line(const std::string& line);
namespace {

constexpr int kAgentsEvery_ms = 50;
constexpr std::size_t kLogLines = 3, kQuoted_bytes = 200;
constexpr int kMostBegun = 3;

std::string who(const AgentHello& agent) {
  return fmt::format("node {} (process {} on {})", agent.node, agent.pid, agent.host);
}

/// "rank 3", "ranks 4 to 7".
std::string ranks_text(int first, int count) {
  return count == 1 ? fmt::format("rank {}", first) : fmt::format("ranks {} to {}", first, first + count - 1);
}

/// Elements of an array work in one folder at once: each has its own.
std::string agents_file(const std::string& folder, const std::string& kind) {
  const char* element = std::getenv("SLURM_ARRAY_TASK_ID");
  return folder + "/agents" + (element == nullptr ? "" : "-" + std::string(element)) + kind;
}

}  // namespace

AgentLauncher::AgentLauncher(const std::string& rank_program, std::vector<std::string> command, int agents, const std::string& folder, Reach reach)
    : log_(agents_file(folder, ".log")), key_file_(agents_file(folder, ".key")), wanted_(static_cast<std::size_t>(agents)), door_(reach) {
  if (const std::string problem = library_problem(rank_program); !problem.empty()) throw MachineError(problem);
  host_ = this_host();
  write_object(key_file_, {{"key", door_.key()}}, OpenFor::keeping);
  const std::string place = fmt::format("{}:{}", reach == Reach::this_host ? "127.0.0.1" : host_.address, door_.port());
  for (std::string& word : command)
    word = replaced(replaced(replaced(word, "{rank_program}", rank_program), "{place}", place), "{key}", key_file_);
  const std::string program = find_program(command.front());
  if (program.empty()) throw MachineError("there is no program " + command.front() + ", which starts the agents");
  command.front() = program;
  command_ = std::move(command);
  begin();
}

void AgentLauncher::begin() {
  ++begun_;
  begun_at_ = monotonic_s();
  launcher_ = start_command(command_, log_);
}

/// Their step was killed, as by the end of its srun, or an agent before it could come: runs are lost, and start again on new agents.
void AgentLauncher::begin_again() {
  if (begun_ == kMostBegun) {
    std::string text = fmt::format("agents were started {} times, and are gone or did not all come", begun_);
    for (const std::string& line : last_lines(log_, kLogLines)) text += "; " + line;
    throw MachineError(text + "; see " + log_);
  }
  end_launcher(0);
  agents_.clear();
  told_ready_ = false;
  begin();
}

AgentLauncher::~AgentLauncher() {
  agents_.clear();
  end_launcher(2);
  (void)real_files().remove(key_file_);
}

std::vector<AgentLauncher::Part> AgentLauncher::placed(int processes) const {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < agents_.size(); ++i)
    if (agents_[i].here) order.push_back(i);
  const auto room = [this](std::size_t i) { return agents_[i].hello.slots - agents_[i].busy; };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return room(a) > room(b); });
  std::vector<int> counts(order.size(), 0);
  int left = processes;
  for (std::size_t i = 0; i < order.size() && left > 0; ++i) {
    counts[i] = std::clamp(room(order[i]), 0, left);
    left -= counts[i];
  }
  for (std::size_t i = 0; left > 0; i = (i + 1) % order.size(), --left) ++counts[i];
  std::vector<Part> parts;
  int first = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (counts[i] == 0) continue;
    parts.push_back({order[i], first, counts[i], false, std::vector<bool>(static_cast<std::size_t>(counts[i]), false)});
    first += counts[i];
  }
  return parts;
}

void AgentLauncher::start(const RankStart& what) {
  // Where all agents are gone, new ones are about to be started.
  if (!told_ready_ || std::ranges::none_of(agents_, &Agent::here)) {
    waiting_.push_back(what);
    return;
  }
  const auto count = static_cast<std::size_t>(what.processes);
  Going going{what, placed(what.processes), std::vector<int>(count, -1), std::vector<std::string>(count)};
  const auto host_of = [this](const Part& part) -> const HostIdentity& { return agents_[part.agent].hello; };
  const bool one_host = std::all_of(going.parts.begin(), going.parts.end(),
                                    [&](const Part& part) { return same_host(host_of(part), host_of(going.parts.front())); });
  const std::vector<Part> parts = going.parts;
  going_.insert_or_assign(what.run, std::move(going));
  for (const Part& part : parts) {
    Agent& agent = agents_[part.agent];
    agent.busy += part.count;
    // One that is gone is found at the next look.
    (void)agent.socket->send(to_line(command_for(what, part, one_host)));
  }
}

ParentCommand AgentLauncher::command_for(const RankStart& what, const Part& part, bool one_host) const {
  const AgentHello& there = agents_[part.agent].hello;
  ParentCommand command;
  static_cast<RankStart&>(command) = what;
  command.op = ParentCommand::Op::start;
  command.first = part.first;
  command.here = part.count;
  if (!one_host) command.address = there.address;
  // What ranks of another host write into mapped memory is not seen here, nor there what these write.
  if (!one_host || !same_host(there, host_)) command.heartbeats = std::string(kHeartbeatFile) + "-" + there.node;
  return command;
}

void AgentLauncher::stop(const std::string& run, int signal) {
  std::erase_if(waiting_, [&](const RankStart& each) {
    if (each.run != run) return false;
    // Its ranks are not started any more: without a word on each the run would be waited for.
    for (int rank = 0; rank < each.processes; ++rank) {
      LauncherEvent event = exit_event(each, rank, 0, signal);
      event.told = true;
      events_.push_back(std::move(event));
    }
    return true;
  });
  ParentCommand command;
  command.op = ParentCommand::Op::kill;
  command.run = run;
  command.signal = signal;
  send_to_parts(command);
}

void AgentLauncher::tell(const std::string& run, const std::string& why) {
  ParentCommand command;
  command.op = ParentCommand::Op::tell;
  command.run = run;
  command.why = why;
  send_to_parts(command);
}

void AgentLauncher::send_to_parts(const ParentCommand& command) {
  const auto found = going_.find(command.run);
  if (found == going_.end()) return;
  for (const Part& part : found->second.parts) {
    if (agents_[part.agent].here) (void)agents_[part.agent].socket->send(to_line(command));
  }
}

void AgentLauncher::welcome(Door::Guest guest) {
  AgentHello hello;
  try {
    hello = hello_from_line(guest.hello);
  } catch (const ConfigError&) {
    return;  // it does not speak as we do: hung up on
  }
  if (complete()) return;  // one too many
  if (!agents_.empty() && agents_.front().hello.build != hello.build) {
    throw MachineError(fmt::format("{} runs the build {} and {} the build {}: install one on all nodes", who(agents_.front().hello),
                                   agents_.front().hello.build, who(hello), hello.build));
  }
  if (!agents_.empty() && agents_.front().hello.isa != hello.isa) {
    throw MachineError(fmt::format("{} computes on {} and {} on {}: their bits may differ; ask for nodes of one kind",
                                   who(agents_.front().hello), agents_.front().hello.isa, who(hello), hello.isa));
  }
  Agent agent;
  agent.hello = std::move(hello);
  agent.socket = std::move(guest.socket);
  agents_.push_back(std::move(agent));
  if (!complete()) return;
  // In the order of their names, whoever came first.
  std::stable_sort(agents_.begin(), agents_.end(), [](const Agent& a, const Agent& b) { return a.hello.node < b.hello.node; });
  told_ready_ = true;
  events_.emplace_back();
  for (const RankStart& what : std::exchange(waiting_, {})) start(what);
}

std::optional<std::size_t> AgentLauncher::Part::going(int rank) const {
  // The process that is all ranks has the number -1.
  const int at = rank == -1 && count == 1 ? 0 : rank - first;
  if (at < 0 || at >= count || ended[static_cast<std::size_t>(at)]) return std::nullopt;
  return static_cast<std::size_t>(at);
}

bool AgentLauncher::take(std::size_t index, LauncherEvent event) {
  using Kind = LauncherEvent::Kind;
  if (event.kind == Kind::ready) return true;
  if (event.kind == Kind::told_to_stop) {
    events_.push_back(std::move(event));
    return true;
  }
  const auto found = going_.find(event.run);
  if (found == going_.end()) return true;
  Going& going = found->second;
  const auto part = std::find_if(going.parts.begin(), going.parts.end(), [index](const Part& p) { return p.agent == index; });
  if (part == going.parts.end()) return true;
  if (event.kind == Kind::started) {
    if (part->started || event.pids.size() != static_cast<std::size_t>(part->count)) return false;
    part->started = true;
    // A process's number means nothing on another host.
    if (same_host(agents_[index].hello, host_))
      std::copy(event.pids.begin(), event.pids.end(), going.pids.begin() + part->first);
    else
      std::fill_n(going.places.begin() + part->first, part->count, who(agents_[index].hello));
    if (std::any_of(going.parts.begin(), going.parts.end(), [](const Part& p) { return !p.started; })) return true;
    event.pids = going.pids;
    event.places = going.places;
  } else if (event.kind == Kind::heartbeat) {
    // The process that is all ranks reports for each of them.
    const bool all = going.what.processes == 1;
    if (event.rank < 0 || event.rank >= going.what.world_size || (!all && (event.rank < part->first || event.rank >= part->first + part->count))) return false;
    share(index, event);
  } else if (event.kind == Kind::exit) {
    const auto ends = part->going(event.rank);
    if (!ends || (event.rank == -1) != (going.what.processes == 1)) return false;
    part->ended[*ends] = true;
    --agents_[index].busy;
    const auto over = [](const Part& p) { return std::all_of(p.ended.begin(), p.ended.end(), [](bool ended) { return ended; }); };
    if (std::all_of(going.parts.begin(), going.parts.end(), over)) going_.erase(found);
  } else if (event.kind == Kind::node_lost) {
    return false;  // lockstep says that
  }
  events_.push_back(std::move(event));
  return true;
}

/// Ranks look at each other's heartbeats while they save.
void AgentLauncher::share(std::size_t from, const LauncherEvent& heartbeat) {
  ParentCommand command;
  command.op = ParentCommand::Op::heartbeat;
  command.run = heartbeat.run;
  command.rank = heartbeat.rank;
  command.heartbeat = heartbeat.heartbeat;
  for (const Part& part : going_.at(heartbeat.run).parts) {
    const Agent& there = agents_[part.agent];
    // One that does not read is not waited for.
    if (part.agent != from && there.here && there.socket->takes_more()) (void)there.socket->send(to_line(command));
  }
}

/// "; it held ranks 4 to 7 of a, rank 1 of b".
std::string AgentLauncher::held(std::size_t index) const {
  std::string text;
  for (const auto& [run, going] : going_) {
    for (const Part& part : going.parts) {
      if (part.agent == index) text += fmt::format("{}{} of {}", text.empty() ? "; it held " : ", ", ranks_text(part.first, part.count), run);
    }
  }
  return text;
}

void AgentLauncher::lose(std::size_t index, const std::string& why) {
  Agent& agent = agents_[index];
  agent.here = false;
  agent.socket.reset();  // it ends its ranks when it finds that
  const std::string text = fmt::format("{} is gone: its agent has {}", who(agent.hello), why);
  events_.push_back({.kind = LauncherEvent::Kind::node_lost, .message = text + held(index)});
  std::vector<LauncherEvent> lost;
  for (auto& [run, going] : going_) {
    for (const Part& part : going.parts) {
      if (part.agent != index) continue;
      for (int i = 0; i < part.count; ++i) {
        if (part.ended[static_cast<std::size_t>(i)]) continue;
        LauncherEvent event = exit_event(going.what, part.first + i, 1);
        event.lost = true;
        event.message = fmt::format("{}; it held {} of this run", text, ranks_text(part.first, part.count));
        lost.push_back(std::move(event));
      }
    }
  }
  for (LauncherEvent& event : lost) take(index, std::move(event));
}

void AgentLauncher::hear(std::size_t index) {
  const bool there = agents_[index].socket->receive();
  while (const auto line = agents_[index].socket->line()) {
    try {
      if (take(index, event_from_line(*line))) continue;
    } catch (const std::runtime_error&) {
      // As with what is understood and cannot be.
    }
    return lose(index, "said what no agent says: " + clean_line(line->substr(0, kQuoted_bytes)));
  }
  if (!there) lose(index, "closed its connection");
}

void AgentLauncher::look_at_launcher() {
  int status = 0;
  if (launcher_ < 0 || ::waitpid(launcher_, &status, WNOHANG) != launcher_) return;
  launcher_ = -1;
  if (complete()) return;  // its agents say themselves when they are gone
  if ((WIFSIGNALED(status) || WEXITSTATUS(status) > 128) && begun_ < kMostBegun) return begin_again();
  std::string text = fmt::format("{} of {} agents have come, and what should start them has ended (status {})", agents_.size(), wanted_,
                                 WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  for (const std::string& line : last_lines(log_, kLogLines)) text += "; " + line;
  throw MachineError(text);
}

std::vector<LauncherEvent> AgentLauncher::poll(double wait_s) {
  const double until = monotonic_s() + std::max(wait_s, 0.0);
  do {
    look_at_launcher();
    if (!told_ready_ && !agents_.empty() && monotonic_s() - begun_at_ > kLoadDeadline_s / kMostBegun) begin_again();
    if (!told_ready_ && begun_ > 1 && monotonic_s() - begun_at_ > kLoadDeadline_s)
      throw MachineError(fmt::format("no agent has come within {} s of the new start; see {}", kLoadDeadline_s, log_));
    std::vector<pollfd> wait;
    std::vector<std::size_t> of_agent;
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      if (!agents_[i].here) continue;
      wait.push_back({agents_[i].socket->descriptor(), POLLIN, 0});
      of_agent.push_back(i);
    }
    door_.add_to(wait);
    const double left_ms = 1000 * (until - monotonic_s());
    const int patience = events_.empty() ? std::clamp(static_cast<int>(left_ms) + 1, 0, kAgentsEvery_ms) : 0;
    ::poll(wait.data(), wait.size(), patience);
    for (std::size_t i = 0; i < of_agent.size(); ++i)
      if (wait[i].revents != 0) hear(of_agent[i]);
    for (Door::Guest& guest : door_.look(monotonic_s())) welcome(std::move(guest));
    if (told_ready_ && std::ranges::none_of(agents_, &Agent::here)) begin_again();
  } while (events_.empty() && monotonic_s() < until);
  return take_events();
}

void AgentLauncher::end_launcher(double deadline_s) {
  if (launcher_ < 0) return;
  const double deadline = monotonic_s() + deadline_s;
  while (::waitpid(launcher_, nullptr, WNOHANG) == 0) {
    if (monotonic_s() > deadline) {
      ::killpg(launcher_, SIGTERM);
      ::poll(nullptr, 0, 1000);
      ::killpg(launcher_, SIGKILL);
      ::waitpid(launcher_, nullptr, 0);
      break;
    }
    ::poll(nullptr, 0, 10);
  }
  launcher_ = -1;
}

void AgentLauncher::shut_down(double deadline_s) {
  for (Agent& agent : agents_)
    if (agent.here) (void)agent.socket->send(to_line(ParentCommand{}));
  end_launcher(deadline_s);
  agents_.clear();
  going_.clear();
}

bool is_whole_job(const std::map<std::string, std::string>& environment) {
  const auto here = environment.find("SLURMD_NODENAME"), job = environment.find("SLURM_JOB_NODELIST");
  return nodes_of_job(environment) == 1 && here != environment.end() && job != environment.end() && here->second == job->second;
}

std::vector<std::string> agents_by_srun(int nodes) {
  const std::string count = std::to_string(nodes);
  return {"srun",   "--nodes",   count,   "--ntasks", count,  "--ntasks-per-node", "1",           "--overlap",
          "--mem",  "0",         "--input", "none",   "--mpi", "none",             "--no-kill",   "--kill-on-bad-exit=0",
          "--unbuffered", "{rank_program}", "--agent", "{place}", "{key}"};
}

int nodes_of_job(const std::map<std::string, std::string>& environment) {
  if (batch_job(environment).empty()) return 0;
  for (const char* name : {"SLURM_JOB_NUM_NODES", "SLURM_NNODES"}) {
    const auto found = environment.find(name);
    if (found == environment.end()) continue;
    int nodes = 0;
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), nodes);
    if (nodes > 0) return nodes;
  }
  return 1;
}

using nlohmann::json;

namespace {

constexpr int kMostSlots = 1 << 16;
constexpr uint64_t kMostKeyBytes = 1 << 12;

}  // namespace

std::string to_line(const AgentHello& hello) {
  json object;
  put_members(object, hello);
  return object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

AgentHello hello_from_line(const std::string& line) {
  const json object = parse_json(line);
  AgentHello hello;
  take_members(hello, JsonFields(object, "an agent's hello"));
  if (hello.key.empty()) throw ConfigError("an agent's hello has no key");
  hello.slots = std::clamp(hello.slots, 1, kMostSlots);
  return hello;
}

std::string key_in_file(const std::string& path) {
  return read_members<AgentHello>(path, kMostKeyBytes).value_or(AgentHello{}).key;
}

AgentHello introduce_agent(const std::string& key) {
  AgentHello hello;
  static_cast<HostIdentity&>(hello) = this_host();
  hello.key = key;
  hello.pid = ::getpid();
  hello.build = hash_of_file("/proc/self/exe");
  hello.isa = instruction_sets();
  const char* node = std::getenv("SLURMD_NODENAME");
  hello.node = node != nullptr ? node : hello.host;
  const char* processors = std::getenv("SLURM_CPUS_ON_NODE");
  hello.slots = processors != nullptr ? std::max(1, std::atoi(processors)) : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return hello;
}

}  // namespace lockstep
