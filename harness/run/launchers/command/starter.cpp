#include "harness/run/launchers/command/starter.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/run/libraries.h"
#include "harness/run/probe.h"
#include "harness/run/rank_environment.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Variables = std::vector<std::pair<std::string, std::string>>;

constexpr double kImports_s = 300, kStarts_s = 30, kAnswers_s = 30;

bool is_python(const std::string& path) { return fs::path(path).filename().string().starts_with("python"); }

/// "/usr/bin/python3" of "#!/usr/bin/python3", "#!/usr/bin/env python3", and of pip's "#!/bin/sh" with the path in the
/// second line.
std::string python_in_first_lines(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string first, second;
  if (!std::getline(stream, first) || !first.starts_with("#!")) return "";
  std::istringstream words(first.substr(2));
  std::string word;
  words >> word;
  if (fs::path(word).filename() == "env") words >> word;
  if (is_python(word)) return find_program(word);
  if (fs::path(word).filename() == "sh" && std::getline(stream, second) && second.starts_with("'''exec'")) {
    std::istringstream rest(second.substr(second.find(' ')));
    rest >> word;
    std::erase(word, '"');
    if (is_python(word)) return word;
  }
  return "";
}

}  // namespace

std::vector<std::string> plain_words(const std::string& shell) {
  std::vector<std::string> words;
  bool open = false;
  char within = 0;
  for (std::size_t i = 0; i < shell.size(); ++i) {
    const char c = shell[i];
    if (within == '\'') {
      if (c == '\'')
        within = 0;
      else
        words.back() += c;
      continue;
    }
    if (within == 0 && (c == ' ' || c == '\t')) {
      open = false;
      continue;
    }
    const bool escaped =
        c == '\\' && i + 1 < shell.size() && (within == 0 || std::strchr("\"\\$`", shell[i + 1]) != nullptr);
    if (!escaped &&
        (c == '$' || c == '`' || c == '\n' || (within == 0 && std::strchr(";&|()<>*?[]{}~#!", c) != nullptr)))
      return {};
    if (!open) words.emplace_back();
    open = true;
    if (escaped) {
      words.back() += shell[++i];
    } else if (c == '"' || (c == '\'' && within == 0)) {
      within = within == 0 ? c : '\0';
    } else {
      words.back() += c;
    }
  }
  return within != 0 ? std::vector<std::string>() : words;
}

std::vector<std::string> take_assignments(std::vector<std::string>& words) {
  const auto is_assignment = [](const std::string& word) {
    return word.find('=') != std::string::npos && word.find('=') > 0 && word.find('/') > word.find('=');
  };
  auto end = words.begin();
  if (end != words.end() && *end == "env") ++end;
  const auto first = end;
  while (end != words.end() && is_assignment(*end)) ++end;
  const std::vector<std::string> taken(first, end);
  words.erase(words.begin(), end);
  return taken;
}

std::string python_of(const std::vector<std::string>& words) {
  if (words.empty()) return "";
  const std::string program = find_program(words.front());
  return is_python(program) ? program : python_in_first_lines(program);
}

std::string script_of(const std::vector<std::string>& words, const std::string& folder) {
  for (const std::string& word : words) {
    const fs::path path = (fs::path(folder) / word).lexically_normal();
    std::error_code error;
    if (word.ends_with(".py") && fs::is_regular_file(path, error)) return fs::absolute(path).string();
  }
  return "";
}

/// A process that forks already, at that socket of the file system. -1: there is none.
static int connected_to(const std::string& path) {
  sockaddr_un there{};
  there.sun_family = AF_UNIX;
  if (path.size() >= sizeof there.sun_path) return -1;
  path.copy(there.sun_path, path.size());
  const int connection = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(connection, reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0) return connection;
  ::close(connection);
  return -1;
}

Starter::Starter(const std::string& python, const std::string& probe, const std::string& log) : log_(log) {
  if (const char* path = std::getenv("LOCKSTEP_STARTER"); path != nullptr && *path != '\0') {
    to_ = connected_to(path);
    from_ = ::fcntl(to_, F_DUPFD_CLOEXEC, 0);
    if (from_ < 0) throw MachineError(fmt::format("LOCKSTEP_STARTER={}: nothing listens there", path));
    return;
  }
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0)
    throw MachineError(fmt::format("no pipe: {}", std::strerror(errno)));
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, in[0], 0);
  ::posix_spawn_file_actions_adddup2(&files, out[1], 1);
  ::posix_spawn_file_actions_addopen(&files, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  std::vector<std::string> words = {python, "-u", "-m", "lockstep_probe.starter"};
  std::vector<std::pair<std::string, std::string>> own = probe_variables(probe, {});
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"})
    own.emplace_back(name, "1");  // read when libraries load, as the runs have them
  std::vector<std::string> variables = environment_with(own);
  const std::vector<char*> arguments = pointers_to(words), environment = pointers_to(variables);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none, ordinary;
  sigemptyset(&none);
  sigemptyset(&ordinary);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE, SIGXFSZ}) sigaddset(&ordinary, number);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &ordinary);
  ::posix_spawnattr_setpgroup(&attributes,
                              0);  // what a terminal sends reaches lockstep alone, which then ends the runs
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  const int error = ::posix_spawn(&process_, python.c_str(), &files, &attributes, arguments.data(), environment.data());
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  ::close(in[0]);
  ::close(out[1]);
  to_ = in[1];
  from_ = out[0];
  if (error != 0) throw MachineError(fmt::format("{}: cannot be started: {}", python, std::strerror(error)));
}

Starter::~Starter() {
  if (to_ >= 0) {
    ::shutdown(to_, SHUT_WR);  // of a socket; a pipe is closed
    ::close(to_);
  }  // it then ends all that it has started
  const double deadline = monotonic_s() + 5;
  while (from_ >= 0 && monotonic_s() < deadline && read_more(0.2)) {
  }
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  if (from_ >= 0) ::close(from_);
}

void Starter::send(const std::string& line) {
  const std::string text = line + "\n";
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(to_, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw MachineError(fmt::format("the process that starts Python has ended; see {}", log_));
    done += static_cast<std::size_t>(written);
  }
}

bool Starter::read_more(double wait_s) {
  pollfd watched{from_, POLLIN, 0};
  const int ready = ::poll(&watched, 1, static_cast<int>(1000 * wait_s));
  if (ready <= 0) return true;
  char bytes[4096];
  const ssize_t count = ::read(from_, bytes, sizeof bytes);
  if (count < 0 && errno == EINTR) return true;
  if (count <= 0) return false;
  unread_.append(bytes, static_cast<std::size_t>(count));
  for (std::size_t end; (end = unread_.find('\n')) != std::string::npos; unread_.erase(0, end + 1))
    take_line(unread_.substr(0, end));
  return true;
}

void Starter::take_line(const std::string& line) {
  const nlohmann::json said = parse_json(line);
  if (!said.is_object()) return;
  const auto name = json_as<std::string>(said.value("ended", nlohmann::json()));
  if (!name) {
    answers_.push_back(line);
    return;
  }
  const auto process = by_name_.find(*name);
  if (process == by_name_.end()) return;
  const int signal = json_as<int>(said.value("signal", nlohmann::json())).value_or(0),
            code = json_as<int>(said.value("code", nlohmann::json())).value_or(0);
  going_[process->second] = signal != 0 ? signal : (code & 0xff) << 8;
}

std::string Starter::answer(const std::string& key, double within_s) {
  const double deadline = monotonic_s() + within_s;
  for (;;) {
    for (auto at = answers_.begin(); at != answers_.end(); ++at) {
      if (!parse_json(*at).contains(key)) continue;
      std::string found = std::move(*at);
      answers_.erase(at);
      return found;
    }
    if (monotonic_s() > deadline || !read_more(0.05)) return "";
  }
}

double Starter::import(const std::vector<std::string>& modules, const std::string& script) {
  send(nlohmann::json({{"import", modules}, {"script", script.empty() ? nlohmann::json() : nlohmann::json(script)}})
           .dump());
  const nlohmann::json said = parse_json(answer("imported", kImports_s));
  return said.is_object() ? json_as<double>(said.value("seconds", nlohmann::json())).value_or(0) : 0;
}

std::vector<std::string> Starter::modules() {
  send(R"({"modules": null})");
  const nlohmann::json said = parse_json(answer("modules", kAnswers_s));
  return said.is_object() ? json_as<std::vector<std::string>>(said.value("modules", nlohmann::json()))
                                .value_or(std::vector<std::string>())
                          : std::vector<std::string>();
}

std::optional<pid_t> Starter::start(const std::vector<std::string>& words, const ProgramStart& what, std::string& why) {
  const std::string name = std::to_string(++number_);
  nlohmann::json environment = nlohmann::json::object();
  for (const std::string& entry : what.environment) {
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos) environment[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  const std::string folder = what.folder.empty() ? fs::current_path().string() : what.folder;
  send(nlohmann::json(
           {{"start", name}, {"words", words}, {"environment", environment}, {"folder", folder}, {"log", what.log}})
           .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  const double deadline = monotonic_s() + kStarts_s;
  for (;;) {
    for (auto at = answers_.begin(); at != answers_.end(); ++at) {
      const nlohmann::json said = parse_json(*at);
      if (said.value("cannot", nlohmann::json()) == name) {
        why = refused = json_as<std::string>(said.value("why", nlohmann::json())).value_or("");
        answers_.erase(at);
        return std::nullopt;
      }
      if (said.value("started", nlohmann::json()) != name) continue;
      const auto process = json_as<int>(said.value("pid", nlohmann::json())).value_or(-1);
      answers_.erase(at);
      by_name_[name] = process;
      going_.emplace(process, std::nullopt);
      return process;
    }
    if (monotonic_s() > deadline || !read_more(0.05)) {
      why = refused = "the process that starts Python does not answer";
      return std::nullopt;
    }
  }
}

std::optional<int> Starter::ended(pid_t process) {
  const auto found = going_.find(process);
  if (found == going_.end()) return std::nullopt;
  const bool there = read_more(0);
  // Without it nobody knows how its processes end.
  if (!found->second && !there) found->second = SIGKILL;
  const std::optional<int> status = found->second;
  if (status) going_.erase(found);
  return status;
}

std::string followed(const std::string& command) {
  const std::string first = command.substr(0, command.find(' ', command.find_first_not_of(' ')));
  if (command.find_first_of(";&|()`\n") == std::string::npos && first.find('=') == std::string::npos)
    return "exec " + command;
  return "trap 'trap \"\" TERM; kill -TERM 0' TERM; (" + command + "\n) & wait $!";
}

std::vector<std::string> environment_for(const Variables& variables) {
  std::vector<std::string> environment = environment_with(variables);
  std::erase_if(environment, [&](const std::string& entry) {
    const std::string name = entry.substr(0, entry.find('='));
    return is_rank_variable(name) && !name.starts_with("MASTER_") &&
           std::ranges::find(variables, name, &Variables::value_type::first) == variables.end();
  });
  return environment;
}

void kill_processes_of_run(const std::string& heartbeat) {
  const std::string mark = std::string("LOCKSTEP_HEARTBEAT=") + heartbeat;
  struct stat own {};
  const bool there = ::stat(heartbeat.c_str(), &own) == 0;
  const auto is_same_file = [&](const fs::path& process) {
    struct stat its {};
    const bool sees = ::stat((process.string() + "/root" + heartbeat).c_str(), &its) == 0;
    return sees == there && (!there || (its.st_dev == own.st_dev && its.st_ino == own.st_ino));
  };
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    int pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr != name.data() + name.size() ||
        pid == ::getpid())
      continue;
    std::ifstream file(at->path() / "environ", std::ios::binary);
    for (std::string entry; std::getline(file, entry, '\0');) {
      if (entry != mark) continue;
      if (is_same_file(at->path())) ::kill(pid, SIGKILL);
      break;
    }
  }
}

std::string excerpt_of(const std::string& log) {
  std::ifstream file(log);
  std::string text;
  for (std::string line; std::getline(file, line) && line.find("torch/distributed/elastic/") == std::string::npos;)
    text += line + "\n";
  return text;
}

std::string text_in(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

int number_in(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<int>() : -1;
}

CommandNodes::CommandNodes(std::string folder, const RankEnvironment& node, double within_s)
    : folder_(std::move(folder)), mine_(introduce(node)) {
  fs::create_directories(folder_);
  lock_ = ::open(lock_file(mine_.rank).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0 || ::flock(lock_, LOCK_EX | LOCK_NB) != 0)
    throw MachineError(fmt::format(
        "{}: {}", lock_file(mine_.rank),
        errno == EWOULDBLOCK ? "this node is here already; wait for it, or give another --out" : std::strerror(errno)));
  try {
    start_ = meet(folder_, mine_, "file", within_s).start;
  } catch (const RendezvousError&) {
    ::unlink(start_file(folder_, mine_.rank).c_str());
    ::close(lock_);
    throw;
  }
}

CommandNodes::~CommandNodes() {
  part_["status"] = status;
  if (mine_.rank == 0) write("part", part_);
  ::unlink(start_file(folder_, mine_.rank).c_str());
  ::close(lock_);
}

void CommandNodes::write(const std::string& name, nlohmann::json object) const {
  object["start"] = start_;
  write_object(folder_ + "/" + name + ".json", object);
}

nlohmann::json CommandNodes::read(const std::string& name) const {
  const auto object = read_object(folder_ + "/" + name + ".json", kMostConfigBytes);
  return object && text_in(*object, "start") == start_ ? *object : nlohmann::json::object();
}

void CommandNodes::start(const std::string& run_dir, const std::string& heartbeat, const CommandLine& line,
                         Variables& variables) {
  variables.insert(
      variables.end(),
      {{"PET_NNODES", std::to_string(count())}, {"PET_MASTER_ADDR", mine_.address}, {"PET_NODE_RANK", "0"}});
  part_ = {{"number", number_in(part_, "number") + 1},
           {"dir", run_dir},
           {"shell", line.shell},
           {"folder", line.folder},
           {"variables", variables},
           {"heartbeat", heartbeat}};
  write("part", part_);
}

bool CommandNodes::is_gone(int node) const {
  const int lock = ::open(lock_file(node).c_str(), O_RDWR | O_CLOEXEC);
  const bool gone = lock >= 0 && ::flock(lock, LOCK_SH | LOCK_NB) == 0;
  ::close(lock);
  return gone;
}

std::string CommandNodes::failed() const {
  for (int node = 1; node < count(); ++node) {
    if (is_gone(node)) return fmt::format("node {} ({}) is gone", node, read_arrival(folder_, node).host);
    const nlohmann::json done = read(fmt::format("done-{}", node));
    if (number_in(done, "number") == number_in(part_, "number") && done.contains("why")) return text_in(done, "why");
  }
  return "";
}

void CommandNodes::over(double grace_s) {
  part_["grace_s"] = grace_s;
  write("part", part_);
  const double deadline = monotonic_s() + grace_s + kLauncherNotices_s;
  for (int node = 1; node < count() && monotonic_s() < deadline;)
    if (number_in(read(fmt::format("done-{}", node)), "number") == number_in(part_, "number"))
      ++node;
    else
      ::poll(nullptr, 0, kLookEvery_ms);
}

int CommandNodes::follow() {
  pid_t process = -1;
  double end_at = INFINITY;
  std::string log;
  for (;; ::poll(nullptr, 0, kLookEvery_ms)) {
    const bool alone = is_gone(0);
    const nlohmann::json now = read("part");
    if (process < 0) {
      if (now.contains("status")) return number_in(now, "status");
      if (alone) throw MachineError(fmt::format("node 0 ({}) is gone", read_arrival(folder_, 0).host));
      if (number_in(now, "number") <= number_in(part_, "number")) continue;
      part_ = now;
      end_at = INFINITY;
      auto variables = now.value("variables", Variables());
      std::ranges::find(variables, "PET_NODE_RANK", &Variables::value_type::first)->second = std::to_string(mine_.rank);
      log = fmt::format("{}/node-{}.log", text_in(now, "dir"), mine_.rank);
      process = start_program(
          {{kShell, "-c", followed(text_in(now, "shell"))}, environment_for(variables), log, text_in(now, "folder")});
    }
    if (alone || now.contains("status")) end_at = 0;
    if (now.contains("grace_s")) end_at = std::min(end_at, monotonic_s() + now.value("grace_s", 0.0));
    if (monotonic_s() >= end_at) ::killpg(process, SIGKILL);
    int status = 0;
    if (::waitpid(process, &status, WNOHANG) != process) continue;
    process = -1;
    kill_processes_of_run(text_in(part_, "heartbeat"));
    nlohmann::json done = {{"number", number_in(part_, "number")}};
    if (status != 0 && std::isinf(end_at)) {
      const std::string said = "\n" + excerpt_of(log);
      done["why"] = fmt::format("node {} ({}): its part of the command has failed: {}", mine_.rank, mine_.host,
                                clean_line(said.substr(said.rfind('\n', said.size() - 2) + 1)));
    }
    write(fmt::format("done-{}", mine_.rank), done);
  }
}

}  // namespace lockstep
