#include "harness/run/libraries.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>
#include <vector>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/run/run_folder.h"

namespace lockstep {
namespace {

constexpr const char* kLibtorch = "2.13";
constexpr int kLoader_ms = 10'000;

std::string chosen_folder() {
  const char* chosen = std::getenv("LOCKSTEP_LIBTORCH");
  return chosen != nullptr ? chosen : "";
}

}  // namespace

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

Reply answer_of(std::vector<std::string> words, std::vector<std::string> variables, int patience_ms, Errors errors) {
  Reply answer;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return answer;
  const std::vector<char*> arguments = pointers_to(words), environment = pointers_to(variables);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int nothing = ::open("/dev/null", O_RDWR);
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(errors == Errors::left_out ? nothing : ends[1], STDERR_FILENO);
    ::execvpe(arguments[0], arguments.data(), variables.empty() ? environ : environment.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  std::array<char, 4096> block{};
  pollfd wait{ends[0], POLLIN, 0};
  bool ended = false;
  while (pid > 0 && !ended) {
    const int ready = ::poll(&wait, 1, patience_ms);
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t n = ready > 0 ? ::read(ends[0], block.data(), block.size()) : -1;
    if (n < 0) break;
    answer.text.append(block.data(), static_cast<std::size_t>(n));
    ended = n == 0;
  }
  ::close(ends[0]);
  int status = 0;
  if (pid > 0 && !ended) ::kill(pid, SIGKILL);
  while (pid > 0 && ::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (pid > 0) answer.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  while (answer.text.ends_with('\n')) answer.text.pop_back();
  return answer;
}

namespace {

struct Loaded {
  std::string name, path;  ///< path empty: not found
};

/// "libc10.so => /torch/lib/libc10.so (0x00007f…)", "libc10.so => not found".
std::vector<Loaded> loaded_libraries(const std::string& program) {
  constexpr std::string_view kArrow = " => ";
  std::vector<std::string> variables = rank_environment();
  // ld.so(8): list what would be loaded, and do not begin.
  variables.emplace_back("LD_TRACE_LOADED_OBJECTS=1");
  std::istringstream lines(answer_of({program, "--version"}, std::move(variables), kLoader_ms).text);
  std::vector<Loaded> loaded;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t arrow = line.find(kArrow), first = line.find_first_not_of(" \t");
    if (arrow == std::string::npos) continue;
    const std::string target = line.substr(arrow + kArrow.size());
    loaded.push_back({line.substr(first, arrow - first), target.starts_with("not found") ? "" : target.substr(0, target.rfind(" ("))});
  }
  return loaded;
}

/// As the archive of LibTorch says it, or Python's package: the line "2.13.0+cpu", or "__version__ = '2.13.0+cpu'".
std::string version_beside(const std::string& folder) {
  const std::filesystem::path parent = std::filesystem::path(folder).parent_path();
  std::ifstream archive(parent / "build-version"), package(parent / "version.py");
  std::string line;
  if (std::getline(archive, line)) return line;
  while (std::getline(package, line)) {
    const std::size_t from = line.find('\''), to = line.rfind('\'');
    if (line.starts_with("__version__ = ") && from < to) return line.substr(from + 1, to - from - 1);
  }
  return "";
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return ::access(name.c_str(), X_OK) == 0 ? name : "";
  const char* path = std::getenv("PATH");
  const std::string folders = path == nullptr ? "/usr/bin:/bin" : path;
  for (std::size_t at = 0; at <= folders.size();) {
    const std::size_t colon = std::min(folders.find(':', at), folders.size());
    const std::string candidate = folders.substr(at, colon - at) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    at = colon + 1;
  }
  return "";
}

std::vector<std::string> rank_environment() {
  std::vector<std::string> pinned = {"OMP_NUM_THREADS=" + std::to_string(kThreadsPerRank),
                                     "MKL_NUM_THREADS=" + std::to_string(kThreadsPerRank)};
  if (const std::string folder = chosen_folder(); !folder.empty()) {
    const char* others = std::getenv("LD_LIBRARY_PATH");
    pinned.push_back("LD_LIBRARY_PATH=" + folder +
                     (others != nullptr && *others != '\0' ? std::string(":") + others : ""));
  }
  std::vector<std::string> entries = pinned;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto is_name_of = [&](const std::string& pin) {
      const std::size_t name = pin.find('=') + 1;
      return text.substr(0, name) == std::string_view(pin).substr(0, name);
    };
    if (std::none_of(pinned.begin(), pinned.end(), is_name_of)) entries.emplace_back(text);
  }
  return entries;
}

std::vector<std::string> missing_libraries(const std::string& program) {
  std::vector<std::string> missing;
  for (const Loaded& each : loaded_libraries(program)) {
    if (each.path.empty() && std::ranges::find(missing, each.name) == missing.end()) missing.push_back(each.name);
  }
  return missing;
}

std::string libtorch_folder(const std::string& program) {
  for (const Loaded& each : loaded_libraries(program)) {
    if (each.name.starts_with("libtorch") && !each.path.empty())
      return std::filesystem::path(each.path).lexically_normal().parent_path().string();
  }
  return "";
}

std::string libtorch_flavour(const std::string& folder) {
  struct Backend {
    const char *library, *name;
  };
  constexpr std::array<Backend, 3> kBackends = {{{"libtorch_cuda.so", "CUDA"}, {"libtorch_hip.so", "ROCm"}, {"libtorch_xpu.so", "XPU"}}};
  std::string text = "CPU";
  for (const Backend& each : kBackends) {
    if (::access((folder + "/" + each.library).c_str(), F_OK) == 0) text = each.name;
  }
  const std::string version = version_beside(folder);
  return text + " build" + (version.empty() ? "" : " " + version);
}

std::string library_problem(const std::string& program) {
  const std::vector<std::string> missing = missing_libraries(program);
  if (missing.empty()) return "";
  const bool torch = std::any_of(missing.begin(), missing.end(), [](const std::string& name) {
    return name.starts_with("libtorch") || name.starts_with("libc10");
  });
  const std::string names = fmt::format("{}", fmt::join(missing, ", "));
  if (!torch) return fmt::format("{}: {} not found; install the package that holds it", program, names);
  const std::string built = libtorch_version(program), version = built.empty() ? kLibtorch : built;
  const std::filesystem::path prefix = std::filesystem::path(program).parent_path().parent_path();
  return fmt::format(
      "{}: LibTorch {} not found ({}){}. Install it: python3 -m pip install torch=={} --index-url "
      "https://download.pytorch.org/whl/cpu. Then set LOCKSTEP_LIBTORCH to the folder that holds "
      "libtorch_cpu.so, or link it: ln -s FOLDER {}/lib/lockstep/libtorch",
      program, version, names,
      chosen_folder().empty() ? "" : ", LOCKSTEP_LIBTORCH=" + chosen_folder() + " does not hold it",
      built.empty() ? "2.13.0" : built, prefix.string());
}

}  // namespace lockstep

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct HashStateFree {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};
using HashState = std::unique_ptr<XXH3_state_t, HashStateFree>;

void add_file(XXH3_state_t* state, const std::string& path) {
  const std::string problem = OpenFile(path).read_blocks(
      std::size_t{1} << 18,
      [state](std::string_view block) { XXH3_64bits_update(state, block.data(), block.size()); });
  if (problem.empty()) return;
  throw MachineError(fmt::format("{}: {}, so its runs cannot be told from others", path, problem));
}

/// What the build wrote about a rank program: LibTorch's version, the commit.
std::array<std::string, 2> version_lines(const std::string& rank_program) {
  const fs::path program = rank_program, name = program.filename().string() + ".version";
  FileText file = read_file((program.parent_path() / name).string(), kMostConfigBytes);
  if (!file) {
    file = read_file((program.parent_path().parent_path() / "share" / "lockstep" / name).string(),
                     kMostConfigBytes);
  }
  std::istringstream text(file.text);
  std::array<std::string, 2> lines;
  for (std::string& line : lines) std::getline(text, line);
  return lines;
}

#if defined(__x86_64__)
std::string processor() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  char vendor[13] = "unknown";
  if (__get_cpuid(0, &a, &b, &c, &d) != 0) {
    std::memcpy(vendor, &b, 4);
    std::memcpy(vendor + 4, &d, 4);
    std::memcpy(vendor + 8, &c, 4);
  }
  unsigned family = 0, model = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0) {
    family = (a >> 8) & 0xf;
    model = (a >> 4) & 0xf;
    if (family == 15) family += (a >> 20) & 0xff;
    if (family == 6 || family >= 15) model += ((a >> 16) & 0xf) << 4;
  }
  return std::string(vendor) + " " + std::to_string(family) + "/" + std::to_string(model);
}

std::string vector_extensions() {
  std::string sets;
  const auto add = [&](const char* name, int there) {
    if (there != 0) sets += std::string(" ") + name;
  };
  __builtin_cpu_init();
  add("avx", __builtin_cpu_supports("avx"));
  add("avx2", __builtin_cpu_supports("avx2"));
  add("fma", __builtin_cpu_supports("fma"));
  add("avx512f", __builtin_cpu_supports("avx512f"));
  add("avx512bw", __builtin_cpu_supports("avx512bw"));
  add("avx512dq", __builtin_cpu_supports("avx512dq"));
  add("avx512vl", __builtin_cpu_supports("avx512vl"));
  add("avx512vnni", __builtin_cpu_supports("avx512vnni"));
  return sets;
}
#else
std::string processor() { return "not x86-64"; }
std::string vector_extensions() { return {}; }
#endif

}  // namespace

std::string program_path() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (!error) return path.string();
  const fs::path started_as = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  const fs::path whole = fs::canonical(started_as, error);
  return (error ? started_as : whole).string();
}

std::string rank_program_path() {
  const char* chosen = std::getenv("LOCKSTEP_RANK");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  return (fs::path(program_path()).parent_path() / "lockstep-rank").string();
}

std::string share_folder() {
  std::error_code error;
  const fs::path share = fs::path(program_path()).parent_path().parent_path() / "share" / "lockstep";
  return fs::is_directory(share, error) ? share.string() : "";
}

std::string libtorch_version(const std::string& rank_program) { return version_lines(rank_program)[0]; }

std::string commit_of_rank_program(const std::string& rank_program) {
  const std::string commit = version_lines(rank_program)[1];
  return commit.empty() ? "unknown commit" : commit;
}

std::string instruction_sets() {
  std::string text = processor() + vector_extensions();
  for (const char* name :
       {"ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA"}) {
    if (const char* value = std::getenv(name)) text += std::string(" ") + name + "=" + value;
  }
  return text;
}

std::string hash_of_file(const std::string& path) {
  const HashState state(XXH3_createState());
  XXH3_64bits_reset(state.get());
  add_file(state.get(), path);
  return hex16(XXH3_64bits_digest(state.get()));
}

BuildIdentity current_identity(const std::string& rank_program, const std::string& data_hash) {
  std::error_code error;
  return {fs::exists(rank_program, error) ? hash_of_file(rank_program) : hash_of_file("/proc/self/exe"),
          libtorch_version(rank_program), instruction_sets(), data_hash};
}

namespace {

/// The first look at a driver's GPUs takes seconds.
constexpr int kPatience_ms = 60'000;

}  // namespace

/// Asks a process of `rank_program` of its own, in the environment of ranks: why `ranks` of this host cannot meet over the transport,
/// and what to do; empty: they can. 0 ranks: the plugin is asked for alone. gloo is never asked.
static std::string transport_problem(const std::string& rank_program, Transport transport, int ranks) {
  if (transport == Transport::gloo) return "";
  const std::string said =
      answer_of({rank_program, kTransportOption, std::string(word_of(transport)), std::to_string(ranks)}, rank_environment(), kPatience_ms).text;
  if (said == kTransportFine) return "";
  return said.empty() ? rank_program + " gave no answer when it was asked for its GPUs: `" + rank_program + " --transport " +
                            std::string(word_of(transport)) + " " + std::to_string(ranks) + "` shows why"
                      : said;
}

void require_transports(const Plan& plan, const std::string& rank_program, bool all, bool here) {
  std::vector<ConfigProblem> problems;
  for (const Transport transport : {Transport::nccl, Transport::gloo_cuda}) {
    int most = 1;
    for (const PlannedRun& run : plan.runs) {
      if (run.config.transport == transport && (all || !run.reused)) most = std::max(most, processes_of(run.config));
    }
    // A program that is not there, or cannot be loaded, is told by whoever starts it.
    if (most == 1 || ::access(rank_program.c_str(), X_OK) != 0 || !library_problem(rank_program).empty()) continue;
    const std::string problem = transport_problem(rank_program, transport, here ? most : 0);
    if (!problem.empty()) problems.push_back({plan.matrix.file, 0, 0, "backend " + std::string(word_of(transport)) + ": " + problem, ""});
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

}  // namespace lockstep
