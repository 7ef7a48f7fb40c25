#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>

#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/cli/commands.h"
#include "harness/cli/doctor/node_facts.h"
#include "harness/cli/doctor/nodes.h"
#include "harness/lib/data/series.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/checks.h"
#include "harness/run/job_queue.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/libraries.h"
#include "harness/run/probe.h"
#include "harness/run/process_state.h"
#include "harness/run/rank_environment.h"
#include "harness/run/run_folder.h"

namespace lockstep {
namespace {

/// Of a state: its word, and its colour on a terminal.
constexpr std::array<const char*, 3> kWords{"ok", "note", "not ok"}, kColours{"32", "33", "31"};
const char* word_of(Check::State state) { return kWords[static_cast<std::size_t>(state)]; }

}  // namespace

std::string checks_text(const std::vector<Check>& checks, bool colour) {
  std::size_t width = 0;
  for (const Check& check : checks) width = std::max(width, check.name.size());
  std::string text;
  for (const Check& check : checks) {
    std::string word = fmt::format("{:<6}", word_of(check.state));
    if (colour) word = fmt::format("\x1b[{}m{}\x1b[0m", kColours[static_cast<std::size_t>(check.state)], word);
    text += fmt::format("{}  {:<{}}  {}\n", word, check.name, width, clean_line(check.text));
  }
  return text + (fit_to_run(checks) ? "fit to run\n" : "not fit to run: see above\n");
}

std::string checks_json(const std::vector<Check>& checks) {
  nlohmann::json list = nlohmann::json::array();
  for (const Check& check : checks) {
    list.push_back({{"name", check.name}, {"state", word_of(check.state)}, {"text", check.text}});
  }
  const nlohmann::json json = {{"checks", list}, {"fit_to_run", fit_to_run(checks)}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

bool fit_to_run(const std::vector<Check>& checks) {
  return std::none_of(checks.begin(), checks.end(),
                      [](const Check& c) { return c.state == Check::State::failed; });
}

namespace {

int print(const std::vector<Check>& checks, const DoctorOptions& options, const Console& console) {
  console.out << (options.json ? clean_json(checks_json(checks)) : checks_text(checks, console.out_colour));
  return fit_to_run(checks) ? kExitAsExpected : kExitMachine;
}

/// The same command once on each node of this job, as a step of it. Returns only by throwing.
[[noreturn]] void become_step(const DoctorOptions& options, const Environment& environment) {
  const auto nodes = environment.find("SLURM_JOB_NUM_NODES");
  const std::string count = nodes == environment.end() ? "1" : nodes->second;
  std::vector<std::string> words{"srun", "--nodes=" + count, "--ntasks=" + count, "--ntasks-per-node=1", "--overlap", "--mem=0", "--cpu-bind=none", "--mpi=none",
                                 "--input=none", program_path(), "doctor", "--nodes", "--out", options.out};
  if (options.json) words.emplace_back("--json");
  std::vector<char*> arguments = pointers_to(words);
  ::execvp(arguments.front(), arguments.data());
  throw MachineError(fmt::format("doctor --nodes: srun cannot be started inside job {}: {}; in a container, bind Slurm's programs and munge's socket", batch_job(environment),
                                 std::strerror(errno)));
}

/// Which rank is this process, by whatever started it? Throws ConfigError.
RankEnvironment own_rank(const Environment& environment) {
  const Resolution found = resolve_rank_environment(environment, {});
  if (found.chosen) return *found.chosen;
  throw ConfigError(found.problems.empty()
                        ? std::string("doctor --nodes: this process is in no job; give it one: salloc -N2 lockstep doctor --nodes --out DIR, or mpirun -N 1 lockstep doctor "
                                      "--nodes --out DIR, or torchrun --no-python lockstep doctor --nodes --out DIR on each node")
                        : fmt::format("doctor --nodes: {}", fmt::join(found.problems, "; ")));
}

/// `out`, or what is there of it: a run makes the rest.
std::string folder_there(const std::string& out) {
  std::filesystem::path folder(out);
  std::error_code ignored;
  while (!folder.empty() && !std::filesystem::exists(folder, ignored)) folder = folder.parent_path();
  return folder.empty() ? "." : folder.string();
}

NodeReport own_report(const DoctorOptions& options) {
  const std::string out = folder_there(options.out);
  const NodeFacts facts = see_node(out, rank_program_path(), false);
  const char* const of_slurm = std::getenv("SLURMD_NODENAME");
  NodeReport mine;
  mine.node = of_slurm != nullptr ? of_slurm : this_host().host;
  mine.driver = facts.driver;
  mine.settings = facts.settings;
  mine.checks = machine_checks(out);
  for (Check& check : node_checks(facts)) {
    if (check.name != "clocks") mine.checks.push_back(std::move(check));  // they are compared when all have met
  }
  return mine;
}

int doctor_of_nodes(const DoctorOptions& options, const Console& console) {
  const Environment environment = current_environment();
  if (!batch_job(environment).empty()) become_step(options, environment);
  const RankEnvironment rank = own_rank(environment);
  NodeReport mine = own_report(options);
  const std::string node = mine.node;
  try {
    const std::string folder = options.out + "/.lockstep-doctor";
    const std::vector<NodeReport> reports = meet_nodes(folder, rank, std::move(mine), rank_program_path());
    return reports.empty() ? kExitAsExpected : print(checks_of_nodes(reports), options, console);
  } catch (const RendezvousError& error) {
    // Whoever waited in vain says so: rank 0 in its place among the checks, another where its node cannot be read by rank 0.
    std::vector<Check> checks{{Check::State::failed, "nodes", fmt::format("{}: {} Every node must see {}: give --out a folder that they share", node, error.what(), options.out)}};
    if (rank.rank == 0) return print(checks, options, console);
    console.err << clean_text(checks_text(checks, false));
    return kExitMachine;
  }
}

bool has_rank_program() {
  return std::getenv("LOCKSTEP_RANK") != nullptr || ::access(rank_program_path().c_str(), X_OK) == 0;
}

/// What a trainer of the user's own is checked with: the probe, and the torch and hash library of the Python next to
/// this program.
Check probe_check() {
  try {
    const std::string probe = find_probe(), own = std::filesystem::path(program_path()).parent_path() / "python";
    const std::string python = ::access(own.c_str(), X_OK) == 0 ? own : find_program("python3");
    if (python.empty()) return {Check::State::failed, "probe", probe + "; there is no python3 on PATH"};
    const Reply said =
        answer_of({python, "-c",
                   "import lockstep_probe as p, torch; from lockstep_probe import hashing; hashing.load(); "
                   "print(p.__version__, 'with torch', torch.__version__)"},
                  environment_with({{"PYTHONPATH", probe}}), 60'000, Errors::with_the_rest);
    const std::string last = said.text.substr(said.text.find_last_of('\n') + 1);
    return {said.status == 0 ? Check::State::ok : Check::State::failed, "probe", fmt::format("{} ({})", last, python)};
  } catch (const ConfigError& error) {
    return {Check::State::failed, "probe", error.what()};
  }
}

}  // namespace

int doctor_command(const DoctorOptions& options, const Console& console) {
  if (options.nodes) return doctor_of_nodes(options, console);
  const std::string out = folder_there(options.out);
  std::vector<Check> checks = machine_checks(out);
  for (Check& check : node_checks(see_node(out, rank_program_path(), true))) checks.push_back(std::move(check));
  const std::string problem = problem_of_surroundings();
  if (!has_rank_program()) checks.push_back(probe_check());
  else
    checks.push_back(problem.empty() ? all_reduce_check(rank_program_path())
                                     : Check{Check::State::failed, "surroundings", problem});
  return print(checks, options, console);
}

// What doctor can see without starting anything.
namespace {

using State = Check::State;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kLeastMemory_GiB = 1;     // LibTorch once, and some 50 MiB for each of eight ranks
constexpr double kLeastDisk_GiB = 0.5;     // the largest matrix of configs/ leaves about 0.2
constexpr rlim_t kLeastDescriptors = 256;  // a rank holds a connection to each other rank, in two groups

std::string first_word(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    if (word == key && file >> word) return word;
  }
  return "";
}

Check programs() {
  const std::string program = rank_program_path();
  if (!has_rank_program())
    return {State::note, "programs",
            fmt::format("lockstep {} without lockstep-rank: check, issue, trace, compare, report, explain and pytest "
                        "do without it; `run` of the built-in "
                        "trainers and doctor --nodes need it (ci/build makes it, and ci/package)",
                        LOCKSTEP_VERSION)};
  if (::access(program.c_str(), X_OK) != 0) {
    return {State::failed, "programs",
            fmt::format("lockstep {}; {}: {}", LOCKSTEP_VERSION, program, std::strerror(errno))};
  }
  if (const std::string problem = library_problem(program); !problem.empty())
    return {State::failed, "programs", problem};
  const std::string libtorch = libtorch_version(program);
  if (libtorch.empty()) {
    return {State::note, "programs",
            fmt::format("lockstep {}; {}.version is missing: LibTorch's version is unknown", LOCKSTEP_VERSION,
                        program)};
  }
  const std::string folder = libtorch_folder(program);
  const std::string found = folder.empty() ? "" : fmt::format(" ({} in {})", libtorch_flavour(folder), folder);
  return {State::ok, "programs", fmt::format("lockstep {}, LibTorch {}{}", LOCKSTEP_VERSION, libtorch, found)};
}

Check cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int usable = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  std::string text = fmt::format("{} usable of {}", usable, ::sysconf(_SC_NPROCESSORS_ONLN));
  const std::string quota = first_line("/sys/fs/cgroup/cpu.max");
  if (!quota.empty() && quota.rfind("max", 0) != 0)
    text += fmt::format("; the control group allows {} (us quota, period)", quota);
  return {usable >= 2 ? State::ok : State::note, "cores", text + "; " + instruction_sets()};
}

Check memory() {
  const double available =
      std::strtod(first_word("/proc/meminfo", "MemAvailable:").c_str(), nullptr) * 1024 / kGiB;
  const double total = std::strtod(first_word("/proc/meminfo", "MemTotal:").c_str(), nullptr) * 1024 / kGiB;
  const std::string text = fmt::format("{:.1f} GiB available of {:.1f} GiB", available, total);
  if (available >= kLeastMemory_GiB) return {State::ok, "memory", text};
  return {State::failed, "memory", text + fmt::format("; ranks need at least {} GiB", kLeastMemory_GiB)};
}

Check threads() {
  const char* wish = std::getenv("OMP_NUM_THREADS");
  std::string text = fmt::format("independent of the number of cores: a rank has {} thread", kThreadsPerRank);
  if (wish != nullptr && std::to_string(kThreadsPerRank) != wish) {
    text += fmt::format("; OMP_NUM_THREADS={} is ignored, because it would change the bits", wish);
  }
  return {State::ok, "bits", text};
}

Check descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) return {State::ok, "open files", "no limit"};
  const std::string text = fmt::format("{} a process", limit.rlim_cur);
  if (limit.rlim_cur >= kLeastDescriptors) return {State::ok, "open files", text};
  return {State::failed, "open files", text + fmt::format("; raise it: ulimit -n {}", kLeastDescriptors)};
}

Check disk(const std::string& name, const std::string& folder) {
  struct statvfs space {};
  if (::statvfs(folder.c_str(), &space) != 0) {
    return {State::failed, name, folder + ": " + std::strerror(errno)};
  }
  const double free_GiB = static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize) / kGiB;
  const std::string text = fmt::format("{:.1f} GiB free in {}", free_GiB, folder);
  return {free_GiB >= kLeastDisk_GiB ? State::ok : State::failed, name, text};
}

Check data() {
  try {
    const RunConfig config;
    const TrainerSpec& trainer = spec_of(config);
    const SampleCounts samples = trainer.inspect_data(config).samples;
    return {State::ok, "data",
            fmt::format("{}: {} training, {} held-out and {} test {} of trainer {}", title_of(config.data.source),
                        samples.train, samples.holdout, samples.test, trainer.samples_word, trainer.name)};
  } catch (const ConfigError& error) {
    std::string text = error.problems().empty() ? error.what() : error.problems().front().text();
    return {State::note, "data", text + "; configs with data.source=synthetic need no files"};
  }
}

/// Which rank would a process started here take itself for, and what could start ranks?
Check launchers() {
  const Resolution found = resolve_rank_environment(current_environment(), {});
  std::string text;
  if (!found.problems.empty()) {
    for (const std::string& problem : found.problems) text += problem + "; ";
    return {State::failed, "launchers", text + "unset the variables of one launcher, or use lockstep-rank run FOLDER --environment NAME"};
  }
  if (found.chosen) text = fmt::format("{} says rank {} of {}; ", found.chosen->name, found.chosen->rank, found.chosen->world);
  for (const std::string& note : found.notes) text += note + "; ";
  std::string there = "local", missing;
  for (const NamedLauncher& launcher : named_launchers()) {
    const bool has = !find_program(launcher_choice(launcher.name).words.front()).empty();
    (has ? there : missing) += (has || !missing.empty() ? ", " : "") + std::string(launcher.name);
  }
  if (!find_program("sbatch").empty()) there += ", slurm";
  text += there + (missing.empty() ? "" : "; not here: " + missing);
  return {found.notes.empty() ? State::ok : State::note, "launchers", text};
}

}  // namespace

std::vector<Check> machine_checks(const std::string& out) {
  return {programs(), cores(), memory(), threads(), descriptors(), launchers(), disk("disk", out), data()};
}

}  // namespace lockstep
