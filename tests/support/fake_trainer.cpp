// A trainer of somebody else's and its probe in one, without PyTorch: fits one weight by rows of numbers, on as many ranks as there are, and
// leaves what lockstep_probe leaves. `--ranks N` starts its ranks itself, as torchrun does.
//
// FAULT: what is wrong. scale: the loss times the number of ranks. kill@S, exit@S, hang@S: rank 1 at step S. throw@S: it says an error first.
// silent: nothing is recorded. world: ranks believe that there is one more. cut: no end mark.

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/judge/trace/writer.h"
#include "harness/run/watch.h"

namespace {

using namespace lockstep;

std::string variable(const char* name, const std::string& otherwise = "") {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

struct Options {
  std::map<std::string, std::string> values;
  Options(int argc, char** argv) {
    for (int i = 1; i + 1 < argc; i += 2) values[argv[i]] = argv[i + 1];
  }
  int of(const std::string& name, int otherwise) const { return values.contains(name) ? std::atoi(values.at(name).c_str()) : otherwise; }
};

/// What ranks share in place of a network: each rank's gradient of a step, and how many have put theirs there. A file, named by the launcher's port.
struct Shared {
  std::atomic<int> arrived[4096];
  double gradients[4096][64];
};

Shared& shared() {
  static Shared* const all = [] {
    const std::string path = variable("SHARED", "/tmp") + "/fake-" + variable("MASTER_PORT", std::to_string(::getppid()));
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT, 0644);
    if (file < 0 || ::ftruncate(file, sizeof(Shared)) != 0) ::_exit(9);
    return static_cast<Shared*>(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  }();
  return *all;
}

TraceHeader header_of(int rank, int world) {
  TraceHeader header;
  header.config_hash = variable("LOCKSTEP_RUN", "none");
  header.rank = rank;
  header.world_size = world;
  header.trainer = "fake_trainer";
  header.level = TraceLevel::full;
  header.started_by = "fake_trainer";
  return header;
}

void write_text(const std::string& path, const std::string& text) { std::ofstream(path + ".tmp") << text, ::rename((path + ".tmp").c_str(), path.c_str()); }

int train(const Options& options, int rank, int world) {
  const std::string folder = variable("LOCKSTEP_TRACE"), slots = variable("LOCKSTEP_HEARTBEAT"), fault = variable("FAULT");
  const int batch = options.of("--batch", 2), steps = options.of("--steps", 6), seed = options.of("--seed", 0);
  const std::string kind = fault.substr(0, fault.find('@'));
  const int fault_step = fault.find('@') == std::string::npos ? -1 : std::atoi(fault.substr(fault.find('@') + 1).c_str());
  std::printf("rank %d of %d trains\n", rank, world);
  if (fault == "silent" || folder.empty()) return 0;
  const int said = fault == "world" ? world + 1 : world;
  std::string environment;
  for (const char* name : {"FAULT", "SHARED"}) environment += (environment.empty() ? "" : ", ") + ("\"" + std::string(name) + "\": \"" + variable(name) + "\"");
  write_text(folder + "/rank-" + std::to_string(rank) + ".hello.json",
             "{\"rank\": " + std::to_string(rank) + ", \"world_size\": " + std::to_string(said) + ", \"torch\": \"0\", \"env\": {" + environment + "}}");
  std::optional<HeartbeatFile> heartbeat;
  if (!slots.empty()) {
    heartbeat = HeartbeatFile::open(slots, world);
    heartbeat->announce(rank, process_here(::getpid()));
    heartbeat->report(rank, -1, "load");
  }
  const auto say = [&](int64_t step, const char* doing) {
    if (heartbeat) heartbeat->report(rank, step, doing);
  };
  TraceWriter trace(folder + "/rank-" + std::to_string(rank) + ".trace", header_of(rank, world));
  const std::vector<int64_t> shape = {1};
  double weight = -1 - 0.1 * seed;
  const auto tensor = [&](Phase phase, double& value, Sharing sharing) {
    TensorView view;
    view.data = &value;
    view.dtype = DType::float64;
    view.shape = shape;
    trace.tensor(phase, "w", view, sharing);
  };
  trace.begin_step(-1);
  tensor(Phase::parameters, weight, Sharing::replicated);
  trace.end_step();
  for (int step = 0; step < steps; ++step) {
    say(step, "forward");
    if (rank == world - 1 && step == fault_step) {
      if (kind == "kill") ::raise(SIGKILL);
      if (kind == "exit") ::_exit(3);
      if (kind == "throw") {
        write_text(folder + "/rank-" + std::to_string(rank) + ".error", "ValueError: no such file\n");
        ::_exit(1);
      }
      if (kind == "stuck") write_text(folder + "/rank-" + std::to_string(rank) + ".error", "ValueError: it stays\n");
      while (kind == "hang" || kind == "stuck") ::pause();
      if (kind == "leave") {
        trace.finish();
        return 0;
      }
    }
    trace.begin_step(step);
    std::vector<int64_t> ids;
    double loss = 0, gradient = 0;
    for (int i = 0; i < batch; ++i) {
      ids.push_back((static_cast<int64_t>(step) * batch + i) * world + rank);
      const double x = static_cast<double>(ids.back() % 7) - 3, error = weight * x - 2 * x;
      loss += error * error / batch;
      gradient += 2 * error * x / batch;
    }
    const double factor = fault == "scale" ? world : 1;
    loss *= factor;
    gradient *= factor;
    trace.samples(ids);
    trace.scalar(Phase::loss, "loss", loss, Sharing::own);
    tensor(Phase::local_gradients, gradient, Sharing::own);
    say(step, "all_reduce");
    Shared& all = shared();
    all.gradients[step][rank] = gradient;
    all.arrived[step].fetch_add(1);
    while (all.arrived[step].load() < world) ::poll(nullptr, 0, 1);  // one that spins on a busy machine lacks a core, and is not judged
    double reduced = 0;
    for (int r = 0; r < world; ++r) reduced += all.gradients[step][r] / world;
    tensor(Phase::reduced_gradients, reduced, Sharing::replicated);
    weight -= 0.01 * reduced;
    tensor(Phase::parameters, weight, Sharing::replicated);
    if (rank == 0 && (step % 2 == 1 || step == steps - 1)) trace.scalar(Phase::evaluation, "error", (weight - 2) * (weight - 2), Sharing::own);
    trace.end_step();
    say(step + 1, "train");
  }
  say(steps, "teardown");
  if (fault != "cut") trace.finish();
  write_text(folder + "/rank-" + std::to_string(rank) + ".probe.json",
             "{\"format\": 1, \"tier\": \"zero\", \"torch\": \"0\", \"wrapper\": \"none\", \"samples\": true, \"loss\": true, \"row_losses\": false, "
             "\"metrics\": [\"error\"], \"steps\": 6, \"seconds\": 1.5, \"probe_seconds\": 0.5, \"notes\": []}");
  return 0;
}

/// One rank after the other fails, is told of and takes the others with it.
int start_ranks(const Options& options, int ranks) {
  std::map<pid_t, int> going;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::setsid();  // as torchrun's ranks have
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::exit(train(options, rank, ranks));
    }
    going[pid] = rank;
  }
  int worst = 0, status = 0;
  while (!going.empty()) {
    const pid_t pid = ::wait(&status);
    const int rank = going[pid];
    going.erase(pid);
    const int code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    if (code == 0) continue;
    std::printf("  rank      : %d (local_rank: %d)\n  exitcode  : %d (pid: %d)\n", rank, rank, code, pid);
    if (worst == 0) {
      for (const auto& [other, its_rank] : going) ::kill(other, SIGTERM);
    }
    worst = 1;
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Options options(argc, argv);
  if (const int ranks = options.of("--ranks", 0); ranks > 0) return start_ranks(options, ranks);
  return train(options, std::atoi(variable("RANK", "0").c_str()), std::atoi(variable("WORLD_SIZE", "1").c_str()));
}
