// The same small runs, again and again, in processes of their own, on a quiet machine and on a loaded one:
// every byte of every trace must be that of the first time. A first difference ends the soak and keeps all
// files.

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "harness/answer/questions/question_judge.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/compare/bits.h"
#include "harness/judge/trace/rank_result.h"
#include "losses/loss.h"
#include "scenarios/energy/spec.h"
#include "tests/support/mini_run.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The small runs that are repeated.

struct Variant {
  std::string name;
  RunConfig config;
  /// Index of the variant at whose snapshot a forced run computes, or -1.
  int forced_from = -1;
};

constexpr int64_t kSteps = 3, kSnapshotStep = 1;

struct Kind {
  const char* name;
  Layout layout;
  Backend ranks;
};
constexpr std::array kKinds{Kind{"solo", {1, 12}, Backend::emulated},
                            Kind{"emulated", {3, 4}, Backend::emulated},
                            Kind{"real", {3, 4}, Backend::gloo}};

std::vector<std::pair<const char*, Negatives>> negatives_of(const std::string& loss) {
  std::vector<std::pair<const char*, Negatives>> all{{"global", Negatives::global},
                                                     {"local", Negatives::local}};
  if (loss == "infonce") {
    all.emplace_back("layer", Negatives::layer);
    all.emplace_back("mixed", Negatives::mixed);
  }
  return all;
}

/// What takes turns, by the variant's number.
void take_turns(RunConfig& config, std::size_t turn) {
  constexpr std::array kOptimizers{OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw};
  constexpr std::array kPartitions{RowPartition::equal, RowPartition::unequal, RowPartition::one_empty};
  config.optimizer = kOptimizers[turn % 3];
  config.momentum = config.optimizer == OptimizerKind::sgd ? 0.9 : 0.0;
  config.weight_decay = config.optimizer == OptimizerKind::adamw ? 0.05 : 0.0;
  config.clip_norm = turn % 2 == 0 ? 0.3 : 0.0;
  config.rows = config.layout.world_size > 1 ? kPartitions[turn / 3 % 3] : RowPartition::equal;
  config.accumulation = turn % 4 == 3 ? 2 : 1;
  energy(config).invalid_rows = turn % 5 == 4 ? 0.2 : 0.0;
  energy(config).activation_checkpointing = turn % 7 == 6;
  config.trace = turn % 2 == 0 ? TraceLevel::full : TraceLevel::stats;
}

/// Every loss with every kind of negatives that it takes, on one process, three emulated and three real
/// ranks, in each precision, free and forced. Optimizers, partitionings of rows, micro-steps and trace levels take
/// turns.
std::vector<Variant> soak_variants() {
  constexpr std::array kPrecisions{std::pair{"float32", Precision::float32},
                                   std::pair{"float64", Precision::float64},
                                   std::pair{"bfloat16", Precision::bfloat16}};
  std::vector<Variant> variants;
  std::size_t turn = 0;
  for (const LossEntry& loss : losses()) {
    for (const auto& [negatives_name, negatives] : negatives_of(std::string(loss.name))) {
      for (const auto& [precision_name, precision] : kPrecisions) {
        for (const Kind& kind : kKinds) {
          RunConfig config = mini_config();
          config.layout = kind.layout;
          config.backend = kind.ranks;
          energy(config).loss = loss.name;
          energy(config).negatives = negatives;
          config.precision = precision;
          config.data.series = 24;
          config.steps = kSteps;
          config.snapshot_steps = {kSnapshotStep};
          take_turns(config, turn);
          const std::string name =
              std::string(loss.name) + "-" + negatives_name + "-" + precision_name + "-" + kind.name;
          variants.push_back({name, config});
          config.snapshot_steps = {};
          config.forced = {"", {kSnapshotStep}, 0, {}};
          variants.push_back({name + "-forced", config, static_cast<int>(variants.size()) - 1});
        }
        ++turn;
      }
    }
  }
  return variants;
}

struct Options {
  int64_t runs = 10000;
  int jobs = 2;
  int spinners = 2;    // beside each loaded run
  int64_t plant = -1;  // this run gets a flipped bit
  int kinds = 0;       // the first so many; 0: all
  std::string out;
  std::string program;  // lockstep-rank
};

/// What the workers, which are processes, tell the one that waits for them.
struct Shared {
  std::atomic<int64_t> next{0}, done{0}, loaded{0}, executed{0};
  std::atomic<bool> stop{false};
};

/// Processes that do nothing but take time on the cores of the caller, until they go out of scope.
class Load {
 public:
  explicit Load(int spinners) {
    for (int i = 0; i < spinners; ++i) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) asm volatile("");
      }
      if (pid > 0) pids_.push_back(pid);
    }
  }
  ~Load() {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

 private:
  std::vector<pid_t> pids_;
};

/// All threads and ranks of what this process starts share one core, or have all of them: threads that are
/// interrupted anywhere, or that run side by side.
void use_cores(bool one, int64_t which) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  for (int core = 0; core < cores; ++core) {
    if (!one || core == which % cores) CPU_SET(core, &set);
  }
  ::sched_setaffinity(0, sizeof set, &set);
}

std::string reference_of(const Options& options, const Variant& variant) {
  return options.out + "/first/" + variant.name;
}

RunConfig config_of(const Options& options, const std::vector<Variant>& variants, const Variant& variant) {
  RunConfig config = variant.config;
  if (variant.forced_from >= 0) {
    const Variant& from = variants[static_cast<std::size_t>(variant.forced_from)];
    config.forced.kept_step = reference_of(options, from) + "/rank-0.trace";
  }
  return config;
}

/// The run's ranks, by the rank program from its beginning. Of one process, or emulated.
void run_executed(const Options& options, const std::string& dir) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(options.program.c_str(), "lockstep-rank", "--rank", "-1", dir.c_str(), "0", "127.0.0.1", "heartbeat",
            static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0) {
    throw std::runtime_error(dir + ": " + options.program + " ended with status " + std::to_string(status));
  }
}

void run_forked(const std::string& root, const std::string& id, const RunConfig& config) {
  for (const int status : mini_run_statuses(root, id, config)) {
    if (status != 0) {
      throw std::runtime_error(root + "/" + id + ": a rank ended with status " + std::to_string(status));
    }
  }
}

/// The name of the first file of two runs of one config that differs, or nothing.
std::string first_difference(const std::string& expected, const std::string& found, int world_size) {
  for (int rank = 0; rank < world_size; ++rank) {
    const std::string trace = "/rank-" + std::to_string(rank) + ".trace";
    const std::string bytes = read_text(expected + trace);
    if (bytes.empty() || bytes != read_text(found + trace)) return trace.substr(1);
    const std::string name = "/rank-" + std::to_string(rank) + ".result.json";
    const RankResult a = read_rank_result(expected + name), b = read_rank_result(found + name);
    if (a.parameters_hash != b.parameters_hash || a.metrics != b.metrics) return name.substr(1);
  }
  return {};
}

void tell_difference(const std::string& expected, const std::string& found, const std::string& file) {
  std::fprintf(stderr, "soak: %s differs\n  first time: %s\n  this time:  %s\n", file.c_str(),
               expected.c_str(), found.c_str());
  const Mechanism mechanism = compare_runs({expected, found, {}, {}});
  std::fprintf(stderr, "  %s\n", mechanism.sentence.c_str());
}

/// Run number `i`. False if it differs from the first of its variant.
bool repeat(const Options& options, const std::vector<Variant>& variants, int64_t i, Shared& shared) {
  const auto count = static_cast<int64_t>(variants.size());
  const Variant& variant = variants[static_cast<std::size_t>(i % count)];
  const int64_t round = i / count;
  const bool loaded = (i + round) % 2 == 1;
  const bool executed = variant.config.backend != Backend::gloo && (i + round) % 25 == 7;
  RunConfig config = config_of(options, variants, variant);
  const std::string id = "run-" + std::to_string(i), dir = options.out + "/" + id;
  const std::string expected = reference_of(options, variant);
  if (i == options.plant) {
    config.mutant.name = "flip_bit";
    config.mutant.step = 1;
    config.mutant.rank = config.layout.world_size - 1;
  }
  {
    use_cores(loaded && round % 2 == 0, i);
    const Load load(loaded ? options.spinners : 0);
    if (executed && i != options.plant) {
      fs::remove_all(dir);  // of a soak before this one that stopped at a difference
      fs::create_directories(dir);
      fs::copy_file(expected + "/run.json", dir + "/run.json");
      fs::copy_file(expected + "/heartbeat", dir + "/heartbeat");
      run_executed(options, dir);
      ++shared.executed;
    } else {
      run_forked(options.out, id, config);
    }
    if (loaded) ++shared.loaded;
  }
  const std::string file = first_difference(expected, dir, config.layout.world_size);
  if (!file.empty()) {
    tell_difference(expected, dir, file);
    return false;
  }
  fs::remove_all(dir);
  return true;
}

/// `work(0 … count - 1)`, partitioned to workers: processes that have run no tensor.
template <typename Work>
bool in_workers(const Options& options, int64_t count, Shared& shared, const Work& work) {
  sigset_t child_ended;
  sigemptyset(&child_ended);
  sigaddset(&child_ended, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &child_ended, nullptr);
  shared.next = shared.done = 0;
  std::vector<pid_t> pids;
  for (int worker = 0; worker < options.jobs; ++worker) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      bool good = true;
      try {
        for (int64_t i = shared.next++; i < count && good && !shared.stop; i = shared.next++) {
          good = work(i);
          ++shared.done;
        }
      } catch (const std::exception& error) {
        std::fprintf(stderr, "soak: %s\n", error.what());
        good = false;
      }
      if (!good) shared.stop = true;
      std::fflush(nullptr);
      ::_exit(good ? 0 : 1);
    }
    pids.push_back(pid);
  }
  constexpr timespec kLook{0, 200'000'000};
  bool good = true;
  for (const pid_t pid : pids) {
    int status = 0;
    const auto began = std::chrono::steady_clock::now();
    while (::waitpid(pid, &status, WNOHANG) == 0) {
      ::sigtimedwait(&child_ended, nullptr, &kLook);
      if (::isatty(STDERR_FILENO) == 0 || shared.done == 0) continue;
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
      const auto done = static_cast<double>(shared.done.load());
      std::fprintf(stderr, "\rsoak: %lld of %lld, %.0f s to go  ", static_cast<long long>(shared.done.load()),
                   static_cast<long long>(count), seconds * (static_cast<double>(count) - done) / done);
    }
    good = good && status == 0;
  }
  if (::isatty(STDERR_FILENO) != 0) std::fprintf(stderr, "\r\033[K");
  return good;
}

/// What threads compute, processes compute.
bool emulated_is_real(const Options& options, const std::vector<Variant>& variants) {
  bool good = true;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    if (variants[i].config.backend != Backend::gloo || variants[i].forced_from >= 0) continue;
    const std::string real = reference_of(options, variants[i]);
    const std::string emulated = reference_of(options, variants[i - 2]);
    const Mechanism mechanism = compare_runs({emulated, real, {}, {}});
    if (mechanism.verdict == VerdictKind::identical) continue;
    std::fprintf(stderr, "soak: %s and %s: %s\n", emulated.c_str(), real.c_str(), mechanism.sentence.c_str());
    good = false;
  }
  return good;
}

int soak(const Options& options) {
  std::vector<Variant> variants = soak_variants();
  if (options.kinds > 0 && static_cast<std::size_t>(options.kinds) < variants.size()) {
    variants.resize(static_cast<std::size_t>(options.kinds));
  }
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
  auto* shared = new (memory) Shared;
  fs::create_directories(options.out + "/first");
  const auto first_time = [&](bool forced) {
    return [&, forced](int64_t i) {
      const Variant& variant = variants[static_cast<std::size_t>(i)];
      if ((variant.forced_from >= 0) == forced) {
        run_forked(options.out + "/first", variant.name, config_of(options, variants, variant));
      }
      return true;
    };
  };
  const auto count = static_cast<int64_t>(variants.size());
  bool good = in_workers(options, count, *shared, first_time(false)) &&
              in_workers(options, count, *shared, first_time(true)) && emulated_is_real(options, variants);
  good = good && in_workers(options, options.runs, *shared,
                            [&](int64_t i) { return repeat(options, variants, i, *shared); });
  const auto number = [](const auto& value) { return static_cast<long long>(value); };
  std::printf("soak: %lld runs of %lld kinds, %lld on a loaded machine, %lld as programs of their own: %s\n",
              number(shared->done.load()), number(count), number(shared->loaded.load()),
              number(shared->executed.load()), good ? "0 differ" : "STOPPED AT A DIFFERENCE");
  if (good) {
    fs::remove_all(options.out);
  } else {
    std::printf("soak: everything is kept in %s\n", options.out.c_str());
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::Options options;
  options.program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "lockstep-rank";
  options.jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  CLI::App app{"Repeats small runs and compares every byte of their traces with the first time's."};
  app.add_option("--runs", options.runs, "how many runs after the first of each kind")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--jobs", options.jobs, "runs at a time")->check(CLI::PositiveNumber);
  app.add_option("--spinners", options.spinners, "busy processes beside each loaded run")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--plant", options.plant, "flip a bit in this run: the soak must find it");
  app.add_option("--kinds", options.kinds, "only the first so many kinds of runs")
      ->check(CLI::PositiveNumber);
  app.add_option("--out", options.out, "folder for the runs; kept if something differs")->required();
  CLI11_PARSE(app, argc, argv);
  try {
    return lockstep::soak(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "soak: %s\n", error.what());
    return 7;
  }
}
