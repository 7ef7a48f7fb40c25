#include "harness/run/process_state.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

#include "harness/base/files.h"
#include "harness/run/libraries.h"

namespace lockstep {
namespace {

/// Of the process in that folder of /proc; 0: it may not be asked.
uint64_t space_of(const std::string& folder) {
  struct stat space {};
  std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  std::erase(boot, '-');
  if (boot.size() < 16 || ::stat((folder + "/ns/pid").c_str(), &space) != 0) return 0;
  return std::strtoull(boot.substr(0, 16).c_str(), nullptr, 16) ^ static_cast<uint64_t>(space.st_ino);
}

/// Its number in its own namespace, the last of those that it has.
int innermost_pid(const std::string& folder) {
  std::ifstream file(folder + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("NSpid:")) return std::atoi(line.substr(line.find_last_of("\t ") + 1).c_str());
  return 0;
}

}  // namespace

uint64_t process_space() {
  static const uint64_t space = space_of("/proc/self");
  return space;
}

ProcessId process_here(int pid) { return {pid, process_space(), process_state(pid).started}; }

ProcessId seen_from_here(const ProcessId& said) {
  if (said.pid <= 0 || said.space == 0 || said.started == 0) return {-1};
  if (said.space == process_space()) return said;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    int pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr != name.data() + name.size()) continue;
    if (innermost_pid(at->path()) != said.pid || space_of(at->path()) != said.space) continue;
    const ProcessId here = process_here(pid);
    if (here.started == said.started) return here;
  }
  return {-1};
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool is_gone(const ProcessId& process) {
  if (process.pid <= 0) return false;
  const ProcessState now = process_state(process.pid);
  return now.gone() || (process.started != 0 && now.started != process.started);
}

std::string tracer_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  constexpr std::string_view kKey = "TracerPid:\t";
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kKey)) continue;
    const std::string tracer = line.substr(kKey.size());
    return tracer == "0" ? "" : "process " + tracer + " (" + first_line("/proc/" + tracer + "/comm") + ")";
  }
  return "";
}

ProcessState process_state(int pid) {
  ProcessState found;
  const std::string folder = "/proc/" + std::to_string(pid);
  const std::string line = first_line(folder + "/stat");
  // The name may hold blanks and brackets; what is wanted stands behind its last bracket.
  const std::size_t end = line.rfind(')');
  if (end == std::string::npos) return found;
  std::istringstream fields(line.substr(end + 1));
  fields >> found.state;
  constexpr int kBetween = 18;  // fields 4 to 21
  std::string other;
  for (int i = 0; i < kBetween; ++i) fields >> other;
  fields >> found.started;
  found.waits_in = first_line(folder + "/wchan");
  if (found.waits_in == "0") found.waits_in.clear();
  return found;
}

namespace {

/// An open file of /proc, read from its start each time.
class ProcFile {
 public:
  explicit ProcFile(const std::string& path) : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~ProcFile() {
    if (file_ >= 0) ::close(file_);
  }
  ProcFile(const ProcFile&) = delete;
  ProcFile& operator=(const ProcFile&) = delete;
  /// Empty: the thread is gone.
  std::string text() const {
    std::array<char, 512> bytes{};
    const ssize_t n = file_ < 0 ? -1 : ::pread(file_, bytes.data(), bytes.size() - 1, 0);
    return n <= 0 ? "" : std::string(bytes.data(), static_cast<std::size_t>(n));
  }

 private:
  int file_;
};

struct Times {
  double ran_s = 0, delayed_s = 0;
};

class Thread {
 public:
  explicit Thread(const std::string& folder) : schedule_(folder + "/schedstat"), stat_(folder + "/stat") {}

  /// False: it is gone.
  bool mark() { return read(marked_); }
  /// False: it is gone. `span_s`: since the mark.
  bool since(double span_s, double& ran_s, double& without_core_s, double& uncounted_s) const {
    Times now;
    if (!read(now)) return false;
    ran_s = now.ran_s - marked_.ran_s;
    without_core_s = std::min(now.delayed_s - marked_.delayed_s, span_s);
    uncounted_s = ready() ? std::max(0.0, span_s - ran_s - without_core_s) : 0;
    return true;
  }

 private:
  bool read(Times& times) const {
    unsigned long long ran_ns = 0, delayed_ns = 0;
    if (std::sscanf(schedule_.text().c_str(), "%llu %llu", &ran_ns, &delayed_ns) != 2) return false;
    times = {static_cast<double>(ran_ns) * 1e-9, static_cast<double>(delayed_ns) * 1e-9};
    return true;
  }
  bool ready() const {
    const std::string line = stat_.text();
    const std::size_t end = line.rfind(") ");
    return end != std::string::npos && line[end + 2] == 'R';
  }

  ProcFile schedule_, stat_;
  Times marked_;  ///< zeros for one that began after the mark
};

class LiveView : public ProcessView {
 public:
  explicit LiveView(int pid) : process_(process_here(pid)), folder_("/proc/" + std::to_string(pid) + "/task") {}

  void mark(double now) override {
    marked_at_ = now;
    if (marks_++ % kMarksAListing == 0) list();
    std::erase_if(threads_, [](const auto& each) { return !each.second->mark(); });
  }

  Since since(double now) override {
    Since found;
    const double span_s = now - marked_at_;
    list();
    for (const auto& [number, thread] : threads_) {
      double ran_s = 0, without_core_s = 0, uncounted_s = 0;
      if (!thread->since(span_s, ran_s, without_core_s, uncounted_s)) continue;
      found.all_ran_s += ran_s;
      found.all_without_core_s += without_core_s;
      found.all_uncounted_s += uncounted_s;
      if (number != process_.pid) continue;
      found.ran_s = ran_s;
      found.without_core_s = without_core_s;
      found.uncounted_s = uncounted_s;
    }
    return found;
  }

  ProcessState state() override {
    ProcessState now = process_state(process_.pid);
    return now.started == process_.started ? now : ProcessState{};  // else another has its number
  }

 private:
  static constexpr int kMarksAListing = 64;

  void list() {
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator(folder_, gone)) {
      const int number = std::atoi(entry.path().filename().c_str());
      if (!threads_.contains(number)) threads_.emplace(number, std::make_unique<Thread>(entry.path().string()));
    }
  }

  ProcessId process_;
  std::string folder_;
  double marked_at_ = 0;
  int marks_ = 0;
  std::map<int, std::unique_ptr<Thread>> threads_;
};

}  // namespace

std::unique_ptr<ProcessView> live_view(int pid) { return std::make_unique<LiveView>(pid); }

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
