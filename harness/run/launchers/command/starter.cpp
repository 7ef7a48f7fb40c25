#include "harness/run/launchers/command/starter.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

namespace lockstep {
namespace {

namespace fs = std::filesystem;

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

Starter::Starter(const std::string& python, const std::string& probe, const std::string& log) : log_(log) {
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
  if (to_ >= 0) ::close(to_);  // it then ends all that it has started
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

}  // namespace lockstep
