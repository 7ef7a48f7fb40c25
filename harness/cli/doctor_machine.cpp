// What doctor can see without starting anything.

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "harness/base/errors.h"
#include "harness/cli/doctor.h"
#include "harness/lib/data/series_source.h"
#include "harness/run/identity.h"
#include "harness/run/libraries.h"
#include "harness/run/process_state.h"
#include "harness/run/rank_environment.h"
#include "harness/run/run_folder.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/plan/launcher_choice.h"

namespace lockstep {
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
