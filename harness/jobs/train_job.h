#pragma once

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "harness/jobs/parent.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/lib/checkpoint/group.h"
#include "harness/lib/checkpoint/preemption/preemption.h"
#include "harness/lib/checkpoint/storage.h"
#include "harness/lib/flight/ring.h"
#include "harness/plan/config/run_config.h"
#include "harness/run/watch.h"
#include "harness/trainers/comm/comm.h"
#include "harness/trainers/comm/gloo_options.h"
#include "harness/trainers/comm/ledger.h"
#include "harness/trainers/core/checkpoints.h"

// What one rank's checkpoints stand on: its folder, its groups, the sampler's positions, and what a suite does to them.

namespace lockstep {

/// A rank's groups: of saves, which may be asynchronous, and of what ranks agree on after each step.
struct RankGroups {
  std::unique_ptr<checkpoint::Group> saving, agreeing;
};

/// One rank's storage and groups. `planted` is what run.json says under that key, from a suite:
///
///   record          true: writes the operations on checkpoints to operations-R.jsonl, a line each
///   rank, operation, signal   the process of that rank gets the signal before its operation of that number
///   not_saved, not_restored   a kind of state that saves leave out, or that a load does not put back
///   unchecked       true: and nobody looks whether it was
///   mistake         of the saver: "one_file_name"
class RankCheckpoints {
 public:
  RankCheckpoints(const std::string& run_dir, const nlohmann::json& planted, const RunConfig& config, int rank,
                  RankGroups groups);
  ~RankCheckpoints();
  RankCheckpoints(const RankCheckpoints&) = delete;
  RankCheckpoints& operator=(const RankCheckpoints&) = delete;

  CheckpointSetup setup(const std::string& trace, const SamplerSteps& steps, const PreemptionSignals& signals) const;

 private:
  struct Hooked;
  CheckpointSetup setup_;  ///< as far as it is known before the trace
  RankGroups groups_;
  std::unique_ptr<Hooked> hooked_;  ///< or none
};

// What a rank lets others see of its progress: its heartbeat, and the flight record of its last collectives.

class RankWatch : public CollectiveWatch {
 public:
  /// Records the flight in the run's folder, if `records`. The file of heartbeats must outlive it.
  RankWatch(HeartbeatFile& heartbeats, const std::string& run_dir, int rank, int world_size, bool records);

  /// The rank has finished so many steps, and does this.
  void heartbeat(int64_t step, const std::string& operation);
  void enter(const flight::Entry& what) override;
  void leave() override;
  /// The run went well: nobody will ask for the record.
  void forget();
  /// The process's resident memory, once a step: into the heartbeat, and for the file of the run's end.
  void note_resident(int64_t bytes);
  /// Writes RUN/rank-<r>.memory.json, and into the rank's log if memory grows without end.
  void write_memory(const std::string& run_dir) const;

 private:
  HeartbeatFile& heartbeats_;
  const std::string path_;
  const int rank_;
  std::unique_ptr<flight::Ring> ring_;
  int64_t step_ = 0;
  std::array<uint64_t, kHeartbeatGroups> entered_{};
  uint64_t last_ = 0;
  std::string doing_;
  flight::MemorySeries memory_;
};

// What a process of a run does: its run.json has a section that names the job, and the table in jobs.cpp has a line for each.
//
// To add a job: a function below, in a file beside this one, and a line in the table. A job that throws is written down
// for all of them alike: rank-<r>.result.json says "failed" and why.

/// The jobs. `run`: all of run.json. Each returns the exit status, having written rank-<r>.result.json; or throws.
int train_job(const RankTask& task, const nlohmann::json& run);
int all_reduce_job(const RankTask& task, const nlohmann::json& run);
int faults_job(const RankTask& task, const nlohmann::json& run);

/// Does the job of the run in `task.run_dir`. Returns the exit status of the process.
int run_job(const RankTask& task);
/// Prepares it. Throws where run.json cannot be read.
void prepare_job(const std::string& run_dir);

/// Ends the process of a rank that has finished its job: threads and connections of Gloo end with it.
[[noreturn]] void end_rank(const RankTask& task, int world_size);

/// What was thrown, without the stack that LibTorch adds.
std::string message_of(const std::exception& error);

// What carries the collectives of a real rank, as its config asks.

/// All that a process does which is asked whether `ranks` of its host can meet over the transport (harness/run/transport_check.h):
/// prints why not, or `kTransportFine`, on standard output. Returns the exit status: 0, or 2 with a problem.
int transport_main(const char* transport, const char* ranks);

}  // namespace lockstep
