#include "harness/jobs/rank_watch.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "harness/base/files.h"

namespace lockstep {

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

}  // namespace lockstep
