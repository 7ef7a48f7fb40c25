#pragma once
// What a rank lets others see of its progress: its heartbeat, and the flight record of its last collectives.

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "harness/lib/flight/ring.h"
#include "harness/run/watch.h"
#include "harness/trainers/comm/ledger.h"

namespace lockstep {

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

}  // namespace lockstep
