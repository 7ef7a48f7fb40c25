#include "harness/jobs/train_job.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/jobs/parent.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/lib/checkpoint/group.h"
#include "harness/lib/data/sampler.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/field.h"
#include "harness/run/libraries.h"
#include "harness/run/run_folder.h"
#include "harness/run/supervisor.h"
#include "harness/run/watch.h"
#include "harness/trainers/comm/emulated.h"
#include "harness/trainers/comm/gloo.h"
#include "harness/trainers/comm/gpu_plugin.h"
#include "harness/trainers/comm/ledger.h"
#include "harness/trainers/core/loop.h"
#include "harness/trainers/core/snapshots.h"
#include "harness/trainers/core/update.h"
#include "scenarios/mutants/mutants.h"
#include "scenarios/scenario.h"

namespace lockstep {

namespace {

/// Writes each operation down before it is done, so that the last one of a rank that ended is known too.
class OperationLog final : public checkpoint::Hook {
 public:
  explicit OperationLog(const std::string& path) : file_(path) {}
  checkpoint::Intervention before(const checkpoint::Operation& operation) override {
    const nlohmann::json line = {{"number", operation.number},
                                 {"kind", std::string(checkpoint::name_of(operation.kind))},
                                 {"words", checkpoint::in_words(operation)}};
    const std::lock_guard lock(mutex_);
    file_ << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n" << std::flush;
    return {};
  }

 private:
  std::mutex mutex_;
  std::ofstream file_;
};

}  // namespace

struct RankCheckpoints::Hooked {
  Hooked(std::unique_ptr<checkpoint::Hook> own_hook, checkpoint::Group& saving)
      : hook(std::move(own_hook)), seam(*hook), storage(checkpoint::posix_storage(), seam), group(saving, seam) {}
  std::unique_ptr<checkpoint::Hook> hook;
  checkpoint::Seam seam;
  checkpoint::HookedStorage storage;
  checkpoint::HookedGroup group;
};

RankCheckpoints::RankCheckpoints(const std::string& run_dir, const nlohmann::json& planted, const RunConfig& config,
                                 int rank, RankGroups groups)
    : groups_(std::move(groups)) {
  setup_.root = run_dir + "/checkpoints";
  setup_.storage = &checkpoint::posix_storage();
  setup_.saving = groups_.saving.get();
  setup_.agreeing = groups_.agreeing.get();
  setup_.config_hash = training_hash(config);
  setup_.not_saved = planted.value("not_saved", "");
  setup_.not_restored = planted.value("not_restored", "");
  setup_.unchecked = planted.value("unchecked", false);
  setup_.mistakes.one_file_name = planted.value("mistake", "") == "one_file_name";
  std::unique_ptr<checkpoint::Hook> hook;
  if (planted.value("record", false)) {
    hook = std::make_unique<OperationLog>(run_dir + "/operations-" + std::to_string(rank) + ".jsonl");
  } else if (planted.value("rank", -1) == rank) {
    hook = std::make_unique<checkpoint::SignalAt>(planted.value("operation", int64_t{-1}), planted.value("signal", SIGKILL));
  }
  if (!hook) return;
  hooked_ = std::make_unique<Hooked>(std::move(hook), *groups_.saving);
  setup_.storage = &hooked_->storage;
  setup_.saving = &hooked_->group;
}

RankCheckpoints::~RankCheckpoints() = default;

CheckpointSetup RankCheckpoints::setup(const std::string& trace, const SamplerSteps& steps,
                                       const PreemptionSignals& signals) const {
  CheckpointSetup setup = setup_;
  setup.signals = &signals;
  setup.sampler = steps;
  setup.new_trace = trace + ".new";
  setup.trace = trace;
  return setup;
}

/// Steps of a run as places of the sampler's permutations, and back.
static SamplerSteps sampler_steps(const RunConfig& config, int64_t samples) {
  const bool equal = config.rows == RowPartition::equal;
  const int64_t batch = config.layout.global_batch();
  const auto sampler = [&](int ranks, int64_t rows) {
    return DistributedSampler({samples, ranks, 0, static_cast<int>(rows), config.seed, config.data.shuffle,
                               config.data.drop_last, config.data.block});
  };
  const int64_t batches = equal ? sampler(config.layout.world_size, config.layout.rows_per_rank).batches_per_epoch()
                                : sampler(1, batch).batches_per_epoch();
  struct Permutation {
    DistributedSampler whole;
    int64_t epoch = -1;
    std::string hash;
  };
  const auto known = std::make_shared<Permutation>(Permutation{sampler(1, batch), -1, ""});
  const int64_t places = batches * batch;
  const auto hash_of = [known](int64_t epoch) {
    if (known->epoch != epoch) {
      known->hash = checkpoint::permutation_hash(known->whole.epoch_indices(epoch));
      known->epoch = epoch;
    }
    return known->hash;
  };
  SamplerSteps steps;
  steps.position_at = [=, seed = config.seed](int64_t step) {
    const int64_t epoch = step / batches;
    return checkpoint::SamplerPosition{epoch, places, seed, hash_of(epoch), step % batches * batch};
  };
  steps.step_at = [=](const checkpoint::SamplerPosition& position, std::string& problem) -> int64_t {
    if (position.samples != places) {
      problem = "sampler permutation: " + std::to_string(places) + " places of an epoch expected, found " +
                std::to_string(position.samples);
    } else if (!position.permutation_hash.empty() && position.permutation_hash != hash_of(position.epoch)) {
      problem = "sampler permutation: " + hash_of(position.epoch) + " expected, found " + position.permutation_hash;
    } else if (position.cursor % batch != 0) {
      problem = "sampler cursor: a multiple of " + std::to_string(batch) + " expected, found " +
                std::to_string(position.cursor);
    }
    return problem.empty() ? position.epoch * batches + position.cursor / batch : 0;
  };
  return steps;
}

RankWatch::RankWatch(HeartbeatFile& heartbeats, const std::string& run_dir, int rank, int world_size, bool records)
    : heartbeats_(heartbeats),
      path_(flight::ring_path(run_dir, rank)),
      rank_(rank),
      ring_(records ? std::make_unique<flight::Ring>(path_, rank, world_size) : nullptr) {}

void RankWatch::heartbeat(int64_t step, const std::string& operation) {
  step_ = step;
  doing_ = operation;
  heartbeats_.report(rank_, step, operation.c_str());
}

void RankWatch::enter(const flight::Entry& what) {
  const HeartbeatGroup group = what.group == "gradients" ? HeartbeatGroup::gradients : HeartbeatGroup::data;
  flight::Entry entry = what;
  entry.sequence = ++entered_[static_cast<std::size_t>(group)];
  entry.step = step_;
  if (ring_ != nullptr) last_ = ring_->enter(entry);
  heartbeats_.enter(rank_, group);
  heartbeats_.report(rank_, step_, (what.tag.empty() ? what.op : what.op + " " + what.tag).c_str());
}

void RankWatch::leave() {
  if (ring_ != nullptr) ring_->leave(last_);
  heartbeats_.report(rank_, step_, doing_.c_str());
}

void RankWatch::note_resident(int64_t bytes) {
  heartbeats_.resident(rank_, bytes);
  memory_.add(step_ + 1, bytes);
}

void RankWatch::write_memory(const std::string& run_dir) const {
  if (memory_.steps().empty()) return;
  const auto leak = flight::leak_in(memory_.steps(), memory_.bytes());
  nlohmann::json file = {{"steps", memory_.steps()}, {"resident_bytes", memory_.bytes()}};
  if (leak) {
    file["leak_bytes_a_step"] = leak->bytes_a_step;
    std::fprintf(stderr, "rank %d: %s\n", rank_, flight::in_words(*leak).c_str());
  }
  write_file_atomically(run_dir + "/rank-" + std::to_string(rank_) + ".memory.json", file.dump() + "\n");
}

void RankWatch::forget() {
  if (ring_ == nullptr) return;
  ring_.reset();
  real_files().remove(path_);
}

namespace {

/// Before the ranks are forked: makes what they share.
void prepare_train_job(const nlohmann::json& run) {
  const RunConfig config = run_config_from_json(run.at("config").dump(), "run.json");
  make_scenario(config.trainer)->make_ready(config);
}

struct RankJob {
  std::string_view section;  ///< of run.json
  int (*run)(const RankTask& task, const nlohmann::json& run);
  void (*prepare)(const nlohmann::json& run) = nullptr;  ///< before the ranks are forked; may be null
  bool stops_in_order = false;                           ///< it takes the signals that tell it to end itself
};

constexpr std::array kJobs{
    RankJob{"all_reduce", &all_reduce_job},             // all-reduces of all processes of a job, checked and timed
    RankJob{"config", &train_job, &prepare_train_job, true},  // one run of a built-in trainer
    RankJob{"fault_case", &faults_job},                 // a small program in which a fault acts
};

/// run.json, as lockstep wrote it a moment ago.
nlohmann::json read_run(const std::string& run_dir) {
  const std::string path = run_dir + "/run.json";
  std::string problem;
  std::optional<nlohmann::json> run = read_sealed(path, problem);
  if (!run) throw MachineError(path + " " + problem);
  return *std::move(run);
}

const RankJob& job_of(const nlohmann::json& run, const std::string& run_dir) {
  for (const RankJob& job : kJobs) {
    if (run.contains(job.section)) return job;
  }
  throw MachineError(run_dir + "/run.json names no job that this program knows");
}

RankResult result_of(const RankTask& task, int world_size, const char* status) {
  RankResult result;
  result.rank = std::max(task.rank, 0);
  result.world_size = world_size;
  result.status = status;
  return result;
}

}  // namespace

int run_job(const RankTask& task) {
  try {
    const nlohmann::json run = read_run(task.run_dir);
    const RankJob& job = job_of(run, task.run_dir);
    if (!job.stops_in_order) release_stop_signals();
    return job.run(task, run);
  } catch (const std::exception& error) {
    const int rank = std::max(task.rank, 0);
    RankResult result = result_of(task, 1, "failed");
    result.phase = "launch";
    result.error = message_of(error);
    std::fprintf(stderr, "rank %d failed: %s\n", rank, result.error.c_str());
    write_rank_result(rank_result_path(task.run_dir, rank), result);
    return 1;
  }
}

void prepare_job(const std::string& run_dir) {
  const nlohmann::json run = read_run(run_dir);
  const RankJob& job = job_of(run, run_dir);
  if (job.prepare != nullptr) job.prepare(run);
}

void end_rank(const RankTask& task, int world_size) {
  write_rank_result(rank_result_path(task.run_dir, std::max(task.rank, 0)), result_of(task, world_size, "finished"));
  std::fflush(nullptr);
  ::_exit(0);
}

std::string message_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

int transport_main(const char* transport, const char* ranks) {
  const WordList words = words_of(Transport{});
  const auto found = std::ranges::find(words, transport);
  std::string problem;
  if (found == words.end())
    problem = std::string(transport) + " is none of gloo, nccl and gloo_cuda";
  else if (const auto kind = static_cast<Transport>(found - words.begin()); kind != Transport::gloo)
    problem = gpu_problem(kind, std::atoi(ranks));
  std::printf("%s\n", problem.empty() ? kTransportFine : problem.c_str());
  return problem.empty() ? 0 : 2;
}

/// Meets the other ranks over `config.transport`; `local_rank` is this one's place among the ranks of its host. Throws
/// std::runtime_error.
static std::unique_ptr<Comm> meet_over_transport(const RunConfig& config, const GlooOptions& options, int local_rank) {
  return config.transport == Transport::gloo ? make_gloo_comm(options) : make_gpu_comm(config.transport, options, local_rank);
}

/// Writes what carries this rank's collectives, and what that may be held to, into its result. Of emulated ranks and one process
/// alone there is nothing to say.
static void note_transport(const RunConfig& config, RankResult& result) {
  if (config.backend != Backend::gloo || config.layout.world_size == 1) return;
  result.transport = word_of(config.transport);
  result.certified_by = word_of(certified_here_by(config.transport));
}

namespace {

/// What all ranks of a process share.
struct Process {
  RankTask task;
  RunConfig config;
  std::string planned_data;  ///< hash of the data that the run was planned on; empty: not said
  std::unique_ptr<Scenario> scenario;
  HeartbeatFile heartbeats;
  nlohmann::json planted;                      ///< of run.json: what a suite does to this run's checkpoints
  const PreemptionSignals* signals = nullptr;  ///< of runs with checkpoints
  AbortListener* abort_listener = nullptr;              ///< of a rank that has a process of its own

  std::string path(const std::string& name) const { return task.run_dir + "/" + name; }
};

RowsOf rows_of(const Process& process) {
  const RunConfig& config = process.config;
  const int world = config.layout.world_size;
  const auto sampler = [&process, &config](int ranks, int rank, int rows) {
    return DistributedSampler({process.scenario->samples(), ranks, rank, rows, config.seed,
                               config.data.shuffle, config.data.drop_last, config.data.block});
  };
  if (config.rows == RowPartition::equal || world == 1) {
    auto samplers = std::make_shared<std::vector<DistributedSampler>>();
    for (int rank = 0; rank < world; ++rank) {
      samplers->push_back(sampler(world, rank, config.layout.rows_per_rank));
    }
    return [samplers](int64_t step, int rank) { return (*samplers)[static_cast<std::size_t>(rank)].batch(step); };
  }
  auto whole = std::make_shared<DistributedSampler>(sampler(1, 0, config.layout.global_batch()));
  return [whole, world, partition = config.rows, block = config.data.block](int64_t step, int rank) {
    const std::vector<int64_t> batch = whole->batch(step);
    const std::vector<int> owner = owners_of_rows(static_cast<int64_t>(batch.size()), world, partition, block);
    std::vector<int64_t> rows;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (owner[i] == rank) rows.push_back(batch[i]);
    }
    return rows;
  };
}

/// Where a rank's rows stand among all rows of a step.
std::vector<int64_t> positions_of(const RunConfig& config, int64_t all_rows, int rank) {
  const std::vector<int> owner =
      owners_of_rows(all_rows, config.layout.world_size, config.rows, config.data.block);
  std::vector<int64_t> positions;
  for (std::size_t i = 0; i < owner.size(); ++i) {
    if (owner[i] == rank) positions.push_back(static_cast<int64_t>(i));
  }
  return positions;
}

/// The trace that a forced run takes its states from.
std::string snapshots_of(const Process& process) {
  const ForcedConfig& forced = process.config.forced;
  return forced.kept_step.empty() ? process.path("../" + forced.from + "/rank-0.trace") : forced.kept_step;
}

/// What a rank meets the others by.
struct RankConnections {
  std::function<std::unique_ptr<Comm>()> comm;
  std::function<RankGroups()> groups;  ///< for checkpoints
};

std::string result_path(const Process& process, int rank) {
  return process.path("rank-" + std::to_string(rank) + ".result.json");
}

/// How a rank ends of which nothing else is known yet.
RankResult failed_result(const Process& process, int rank) {
  RankResult result;
  result.rank = rank;
  result.world_size = process.config.layout.world_size;
  result.config_hash = config_hash(process.config);
  result.data_hash = process.scenario->data_hash();
  note_transport(process.config, result);
  result.status = "failed";
  result.phase = "rendezvous";
  return result;
}

/// For a rank that is told that a peer is gone, while it waits or computes.
std::unique_ptr<AbortListener> make_abort_listener(Process& process, int rank) {
  constexpr double kGrace_s = 0.05;  // the collective itself may have said so by then
  return std::make_unique<AbortListener>(process.task.notices, kGrace_s, [&process, rank](const std::string& why) {
    RankResult result = failed_result(process, rank);
    result.phase = "train";
    result.steps_done = std::max<int64_t>(process.heartbeats.step(rank), 0);
    result.error = "lost its peer: " + why + " (this rank was in '" + process.heartbeats.operation(rank) + "')";
    std::fprintf(stderr, "rank %d: %s\n", rank, result.error.c_str());
    write_rank_result(result_path(process, rank), result);
  });
}

/// What a rank's own words say of peers that are gone, and what the launcher says of them.
std::string with_what_was_told(const std::string& error, AbortListener* abort_listener) {
  constexpr double kWait_s = 0.2;  // the launcher's word and the broken connection may come in any order
  if (abort_listener == nullptr || !only_lost_its_peers(error)) return error;
  const std::string why = abort_listener->told(kWait_s);
  return why.empty() ? error : "lost its peer: " + why + "; " + error;
}

/// One rank from its communicator to its result file. Nothing escapes: what was thrown stands in the result.
int run_rank(Process& process, int rank, const RankConnections& meet) {
  const RunConfig& config = process.config;
  RankResult result = failed_result(process, rank);
  int64_t step_now = 0;
  int exit_code = 1;
  RankWatch watch(process.heartbeats, process.task.run_dir, rank, config.layout.world_size, config.backend == Backend::gloo);
  try {
    at::set_num_threads(1);
    require_planned_data(process.planned_data, result.data_hash, rank);
    const std::string trace_path = process.path("rank-" + std::to_string(rank) + ".trace");
    const bool keeps = config.checkpoint.on() && !config.forced.on();
    TraceWriter trace(keeps ? trace_path + ".new" : trace_path,
                      {result.config_hash, rank, config.layout.world_size, config.trainer, config.trace,
                       config.backend == Backend::gloo ? "real" : "emulated"});
    const auto heartbeat = [&](int64_t step, const std::string& operation) {
      if (step > step_now && config.backend == Backend::gloo) watch.note_resident(resident_bytes());
      if (step > step_now && result.first_step_seconds == 0 && process.task.command_started > 0) {
        result.first_step_seconds = monotonic_s() - process.task.command_started;
      }
      step_now = step;
      watch.heartbeat(step, operation);
    };
    heartbeat(0, "rendezvous");
    const std::unique_ptr<Mutant> mutant = make_mutant(config, rank);
    CommunicationMeter meter;
    std::unique_ptr<Comm> comm = meet.comm();
    comm = mutant == nullptr ? std::move(comm) : mutant->below_ledger(std::move(comm));
    if (config.watch.comm_check && config.layout.world_size > 1)
      comm = make_checked_comm(std::move(comm), [&step_now] { return step_now; });
    comm = make_ledger_comm(
        std::move(comm), trace, [&](const std::string& operation) { heartbeat(step_now, operation); }, &meter, &watch);
    comm = mutant == nullptr ? std::move(comm) : mutant->above_ledger(std::move(comm));
    result.phase = "train";
    const std::unique_ptr<Task> task = process.scenario->make_task(config, *comm, mutant.get());
    const RowsOf rows = perturbed(rows_of(process), config), rows_ahead = perturbed(rows_of(process), config);
    RankContext context{&config, rank, comm.get(),   &trace,     task.get(), mutant.get(),
                        rows,    heartbeat, &monotonic_s, rows_ahead};
    context.positions_of = [&config](int64_t all_rows, int of_rank) { return positions_of(config, all_rows, of_rank); };
    context.meter = &meter;
    context.show = [&process, rank](double value) { process.heartbeats.show(rank, value); };
    if (config.forced.on()) {
      const std::string& chosen_by = config.forced.chosen_by;
      const std::string choosing = chosen_by.empty() ? "" : process.path("../" + chosen_by + "/rank-" + std::to_string(rank) + ".trace");
      compute_forced(context, snapshots_of(process), choosing, result);
      exit_code = 0;
    } else if (keeps) {
      RankCheckpoints checkpoints(process.task.run_dir, process.planted, config, rank, meet.groups());
      const SamplerSteps steps = sampler_steps(config, process.scenario->samples());
      const CheckpointSetup setup = checkpoints.setup(trace_path, steps, *process.signals);
      exit_code = train(context, result, "", &setup);
    } else {
      const bool resumes = !config.resume_from.empty();
      exit_code = train(context, result, resumes ? process.path("../" + config.resume_from + "/rank-0.trace") : "");
    }
    // A trace without its end is one that a later attempt goes on with.
    if (exit_code == 0) trace.finish();
    result.faults_acted = acted_faults(mutant.get());
    result.status = exit_code == 0 ? "finished" : "interrupted";
  } catch (const std::exception& error) {
    result.error = with_what_was_told(message_of(error), process.abort_listener);
    std::fprintf(stderr, "rank %d failed at step %lld in %s: %s\n", rank, static_cast<long long>(step_now),
                 result.phase.c_str(), result.error.c_str());
  }
  if (process.abort_listener != nullptr) process.abort_listener->end_by_itself();
  if (exit_code == 0) {
    watch.forget();
    watch.heartbeat(step_now, "teardown");
    if (config.backend == Backend::gloo) watch.write_memory(process.task.run_dir);
  }
  write_rank_result(result_path(process, rank), result);
  return exit_code;
}

int run_emulated(Process& process) {
  const int world_size = process.config.layout.world_size;
  EmulatedWorld world(world_size, process.config.timeout_s);
  checkpoint::ThreadRendezvous saving(world_size), agreeing(world_size);
  Turns turns(emulated_turns());
  std::vector<std::thread> threads;
  std::vector<int> codes(static_cast<std::size_t>(world_size), 1);
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      const Turns::Taken turn(turns);
      const RankConnections meet{[&world, rank] { return world.comm(rank); },
                         [&saving, &agreeing, rank] { return RankGroups{saving.group(rank), agreeing.group(rank)}; }};
      const int code = run_rank(process, rank, meet);
      codes[static_cast<std::size_t>(rank)] = code;
      if (code != 0) {
        world.abort("lost its peer: rank " + std::to_string(rank) + " has failed");
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  // A rank that failed decides; else all were stopped alike, or finished.
  const auto failed = std::find(codes.begin(), codes.end(), 1);
  return failed != codes.end() ? 1 : codes.front();
}

/// Ranks of several processes see each other's heartbeats.
PeerSigns signs_of(Process& process, int rank) {
  PeerSigns signs;
  signs.count = [&process, rank] {
    uint64_t sum = 0;
    for (int other = 0; other < process.heartbeats.world_size(); ++other) {
      if (other != rank) sum += process.heartbeats.changes(other);
    }
    return sum;
  };
  signs.report = [&process, rank] { process.heartbeats.report(rank, process.heartbeats.step(rank), "save"); };
  return signs;
}

/// For a peer. Where lockstep watches them it tells who stands still at its threshold; of one that computes it says that it is slow.
double longest_wait_s(const Process& process) {
  constexpr double kSecond = 1.1;  // lockstep's word comes first
  const RunConfig& config = process.config;
  return process.task.watched ? kSecond * std::max(config.watch.slow_s, longest_silence_s(config)) : config.timeout_s;
}

/// Where calls are compared, ranks compare themselves first: who counts other ranks, comes twice, never comes, or was given another
/// config or data is named before the first connection. Ranks that a launcher has started over TCP have met and compared by then.
std::unique_ptr<Comm> meet_really(const Process& process, int rank) {
  constexpr double kMostSkew_s = 60;  // clocks change nothing in training; logs that cannot be held together do harm
  const RunConfig& config = process.config;
  const RankTask& task = process.task;
  const double wait_s = longest_wait_s(process);
  const GlooOptions options{process.path(task.store), rank, config.layout.world_size, task.address, wait_s, task.meet};
  const bool calls = config.watch.comm_check && task.meet.host.empty();
  if (calls) {
    const Identity identity{{{"libtorch", TORCH_VERSION}, {"config", config_hash(config)}, {"data", process.scenario->data_hash()}}, {}};
    run_preflight_check(options, identity, {wait_s, kMostSkew_s});
  }
  std::unique_ptr<Comm> comm = meet_over_transport(config, options, task.local_rank >= 0 ? task.local_rank : rank);
  // Connected: every rank has read it.
  if (calls && rank == 0) (void)real_files().remove(preflight_path(options));
  return comm;
}

RankConnections connections_of(Process& process, int rank) {
  const RunConfig& config = process.config;
  const int world = config.layout.world_size;
  if (world == 1) {
    return {[] { return make_solo_comm(); },
            [] {
              return RankGroups{std::make_unique<checkpoint::AloneGroup>(), std::make_unique<checkpoint::AloneGroup>()};
            }};
  }
  return {[&process, rank] { return meet_really(process, rank); },
          [&process, &config, rank, world] {
            const RankTask& task = process.task;
            const GlooOptions options{process.path(task.store + "-checkpoints"), rank, world, task.address,
                                      longest_wait_s(process), task.meet};
            auto groups = make_gloo_groups(options, {"saving", "agreeing"}, signs_of(process, rank));
            return RankGroups{std::move(groups[0]), std::move(groups[1])};
          }};
}

}  // namespace

int train_job(const RankTask& task, const nlohmann::json& run) {
  const RunConfig config = run_config_from_json(run.at("config").dump(), task.run_dir + "/run.json");
  const int world = config.layout.world_size;
  Process process{task, config, run.value("data_hash", ""), make_scenario(config.trainer),
                  HeartbeatFile::open(task.run_dir + "/" + task.heartbeats, world), run.value("planted", nlohmann::json::object()), nullptr};
  // For as long as the process lives: one that comes when the run is done changes nothing any more.
  if (config.checkpoint.on())
    process.signals = new PreemptionSignals();
  else
    release_stop_signals();
  at::set_num_threads(1);
  process.scenario->prepare(process.config);
  if (task.rank < 0 && world > 1) return run_emulated(process);
  const int rank = std::max(task.rank, 0);
  const auto abort_listener = world > 1 ? make_abort_listener(process, rank) : nullptr;
  process.abort_listener = abort_listener.get();
  return run_rank(process, rank, connections_of(process, rank));
}

}  // namespace lockstep
