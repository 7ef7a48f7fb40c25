#include "harness/run/stacks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "harness/base/atomic_file.h"
#include "harness/run/libraries.h"
#include "harness/run/process_state.h"

namespace lockstep {
namespace {

constexpr std::size_t kMost_bytes = 256 * 1024, kMostFrames = 4;
constexpr std::string_view kFilePrefix = "stacks-", kFileEnd = ".txt";

/// Asks the process for its stacks and waits two seconds for them; then the tool behind takes them.
constexpr const char* kAsk =
    "kill -$3 $2 || exit 1; n=0; "
    "while [ $n -lt 20 ]; do sleep 0.1; if [ -s \"$1\" ]; then sleep 0.1; cat \"$1\"; exit 0; fi; n=$((n+1)); done; "
    "shift 3; [ $# -eq 0 ] || exec \"$@\"";

bool is_python(int pid) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink(fmt::format("/proc/{}/exe", pid), error);
  return !error && program.filename().string().starts_with("python");
}

/// A frame's function, without arguments and template parameters; empty: the tool knows no name.
std::string function_in(std::string line) {
  constexpr std::string_view kUnnamed = "(anonymous namespace)::";
  for (std::size_t at = 0; (at = line.find(kUnnamed)) != std::string::npos;) line.erase(at, kUnnamed.size());
  std::string_view text = line;
  if (const auto at = text.find(" in "); at != std::string_view::npos && text.find("0x") < at) text.remove_prefix(at + 4);
  while (!text.empty() && (text.front() == ' ' || text.front() == '#')) text.remove_prefix(1);
  const auto skip = [&](auto belongs) {
    std::size_t n = 0;
    while (n < text.size() && belongs(static_cast<unsigned char>(text[n]))) ++n;
    text.remove_prefix(n);
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  };
  if (!text.empty() && std::isdigit(static_cast<unsigned char>(text.front())) != 0 && !text.starts_with("0x"))
    skip([](unsigned char c) { return std::isdigit(c) != 0; });
  if (text.starts_with("0x")) skip([](unsigned char c) { return std::isxdigit(c) != 0 || c == 'x'; });
  if (text.starts_with("in ")) text.remove_prefix(3);
  std::string name;
  int depth = 0;
  for (const char c : text) {
    if (c == '<') ++depth;
    if (depth == 0 && (c == '(' || c == ' ' || c == '@')) {
      if (c == '(' && name.ends_with("operator")) continue;
      break;
    }
    if (depth == 0) name.push_back(c);
    if (c == '>' && depth > 0) --depth;
  }
  return name == "??" || name == "-" ? "" : name;
}

/// Frames of the process's first thread: "#0  0x7f… in NAME (…)", "#0 0x7f… NAME", or py-spy's "    NAME (FILE:LINE)".
std::vector<std::string> frames_of(int pid, const std::string& output) {
  std::vector<std::string> frames;
  std::istringstream lines(output);
  const std::string heads[] = {fmt::format("TID {}:", pid), fmt::format("(LWP {})", pid), fmt::format("Thread {} ", pid)};
  bool within = false;
  for (std::string line; std::getline(lines, line);) {
    const bool head = line.starts_with("TID ") || line.starts_with("Thread ");
    if (head) within = std::ranges::any_of(heads, [&](const std::string& own) { return line.find(own) != std::string::npos; });
    const bool frame = line.starts_with('#') || line.starts_with("    ");
    if (head || !within || !frame) continue;
    if (std::string name = function_in(line); !name.empty()) frames.push_back(std::move(name));
  }
  return frames;
}

/// Of what faulthandler writes, the frames of the thread that it lists last, the first of the process: "forward (train.py:12)".
std::vector<std::string> python_frames_of(const std::string& output) {
  std::vector<std::string> frames;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with("(most recent call first):")) frames.clear();
    constexpr std::string_view kFile = "  File \"";
    const std::size_t quote = line.find('"', kFile.size()), number = line.find(", line "), in = line.find(" in ");
    if (!line.starts_with(kFile) || quote == std::string::npos || number == std::string::npos || in == std::string::npos) continue;
    constexpr std::size_t kLine = 7, kIn = 4;
    const std::string file = std::filesystem::path(line.substr(kFile.size(), quote - kFile.size())).filename().string();
    if (frames.size() < kMostFrames) frames.push_back(fmt::format("{} ({}:{})", line.substr(in + kIn), file, line.substr(number + kLine, in - number - kLine)));
  }
  return frames;
}

/// What waits, then those of its callers that are nobody's plumbing.
std::vector<std::string> of_interest(const std::vector<std::string>& all) {
  constexpr std::array<std::string_view, 8> kPlumbing = {"std::", "__", "_start", "main", "start_thread", "clone", "_Py", "Py"};
  std::vector<std::string> some;
  for (const std::string& name : all) {
    const bool plumbing = std::ranges::any_of(kPlumbing, [&](std::string_view word) { return name.starts_with(word); });
    if (some.size() < kMostFrames && (some.empty() || !plumbing)) some.push_back(name);
  }
  return some;
}

bool was_refused(const std::string& output) {
  constexpr std::array<std::string_view, 3> kSigns = {"Operation not permitted", "Permission denied", "ptrace: Inappropriate"};
  return std::ranges::any_of(kSigns, [&](std::string_view sign) { return output.find(sign) != std::string::npos; });
}

}  // namespace

std::string own_stacks_path(const std::string& run_dir, int rank) { return fmt::format("{}/python-stacks-{}.txt", run_dir, rank); }

std::vector<std::string> stack_command(int pid) {
  const std::string number = std::to_string(pid);
  const bool python = is_python(pid);
  const auto py_spy = [&](std::vector<std::string>& words) {
    if (const std::string tool = find_program("py-spy"); words.empty() && !tool.empty()) words = {tool, "dump", "--pid", number};
  };
  std::vector<std::string> words;
  if (python) py_spy(words);
  if (const std::string tool = find_program("eu-stack"); words.empty() && !tool.empty()) words = {tool, "-p", number};
  if (const std::string tool = find_program("gdb"); words.empty() && !tool.empty())
    words = {tool, "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load off", "-p", number, "-ex", "thread apply all bt 40"};
  py_spy(words);
  return words;
}

Stacks read_stacks(const std::string& tool, int pid, const std::string& output, bool ended) {
  if (std::vector<std::string> python = python_frames_of(output); !python.empty()) return {output, std::move(python)};
  const std::vector<std::string> all = frames_of(pid, output);
  if (!all.empty()) return {output, of_interest(all)};
  if (was_refused(output)) {
    return {fmt::format("no stack: {} may not trace process {}; run lockstep as the user of its ranks with CAP_SYS_PTRACE, or set "
                        "kernel.yama.ptrace_scope to 1 or 0; it said: {}\n", tool, pid, output), {}};
  }
  if (!ended) return {fmt::format("no stack: {} was killed at its time limit, or with the process, before it had any of process {}\n{}", tool, pid, output), {}};
  return {fmt::format("no stack: {} found no frame of process {}; it said: {}\n", tool, pid, output), {}};
}

std::string in_words(const Stacks& stacks) {
  if (stacks.frames.empty()) return stacks.text.substr(0, stacks.text.find('\n'));
  return fmt::format("its first thread is in {}", fmt::join(stacks.frames, " < "));
}

void write_stacks(const std::string& run_dir, int rank, const Stacks& stacks) {
  const std::string words = stacks.frames.empty() ? "" : in_words(stacks) + "\n";
  write_file_atomically(fmt::format("{}/{}{}{}", run_dir, kFilePrefix, rank, kFileEnd), words + stacks.text);
}

std::vector<KeptStacks> kept_stacks(const std::string& run_dir) {
  std::vector<KeptStacks> kept;
  std::error_code error;
  for (std::filesystem::directory_iterator at(run_dir, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(kFilePrefix) || !name.ends_with(kFileEnd)) continue;
    const char* const first = name.data() + kFilePrefix.size();
    const char* const last = name.data() + name.size() - kFileEnd.size();
    KeptStacks each;
    if (first >= last || std::from_chars(first, last, each.rank).ptr != last) continue;
    each.path = at->path().string();
    std::ifstream file(each.path);
    std::getline(file, each.words);
    kept.push_back(std::move(each));
  }
  std::ranges::sort(kept, {}, &KeptStacks::rank);
  return kept;
}

StackTaker::StackTaker(int pid, double limit_s, double now, const std::string& own_stacks) : pid_(pid), until_(now + limit_s) {
  std::vector<std::string> words = stack_command(pid);
  // What is stopped answers nobody.
  const bool asks = !own_stacks.empty() && ::access(own_stacks.c_str(), F_OK) == 0 && !process_state(pid).stopped();
  if (asks) {
    const std::vector<std::string> ask = {"/bin/sh", "-c", kAsk, "faulthandler", own_stacks, std::to_string(pid), std::to_string(SIGRTMIN + kOwnStacks)};
    words.insert(words.begin(), ask.begin(), ask.end());
  }
  std::array<int, 2> ends{};
  if (words.empty() || ::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    stacks_.text = words.empty() ? "no stack: none of eu-stack (package elfutils), gdb and py-spy is installed; install one of them\n"
                                 : "no stack: no pipe to a tool\n";
    done_ = true;
    return;
  }
  name_ = asks ? "faulthandler" : std::filesystem::path(words.front()).filename().string();
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  tool_ = ::fork();
  if (tool_ == 0) {
    const int nothing = ::open("/dev/null", O_RDONLY);
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    ::execv(arguments.front(), arguments.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  out_ = ends[0];
}

StackTaker::~StackTaker() {
  if (!done_) over(false);
}

void StackTaker::over(bool ended) {
  done_ = true;
  ::close(out_);
  if (tool_ > 0) {
    if (!ended) ::kill(tool_, SIGKILL);
    ::waitpid(tool_, nullptr, 0);
  }
  stacks_ = read_stacks(name_, pid_, output_, ended);
}

bool StackTaker::done(double now) {
  if (done_) return true;
  std::array<char, 4096> block{};
  ssize_t n = 0;
  while ((n = ::read(out_, block.data(), block.size())) > 0) {
    if (output_.size() < kMost_bytes) output_.append(block.data(), static_cast<std::size_t>(n));
  }
  // The pipe's other end closes when the tool ends.
  if (n == 0) {
    over(true);
  } else if ((errno != EAGAIN && errno != EINTR) || now > until_) {
    over(false);
  }
  return done_;
}

bool StackTaker::holds() const {
  if (done_) return true;
  std::ifstream status(fmt::format("/proc/{}/status", pid_));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("TracerPid:")) return std::atoi(line.c_str() + 10) > 0;
  }
  return true;  // it is gone
}

}  // namespace lockstep
