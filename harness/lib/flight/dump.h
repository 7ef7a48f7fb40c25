#pragma once
// Flight records in PyTorch's own schema, as its analyser (python -m torch.distributed.flight_recorder.fr_trace) reads them.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/lib/flight/ring.h"

namespace lockstep::flight {

/// The version of the schema that is written: that of LibTorch 2.13.
inline constexpr const char* kSchemaVersion = "2.10";

/// One rank's record: {version, pg_config, pg_status, entries}. A collective's tag is the name of its one frame, its step the
/// frame's line. Reductions of gradients are all_reduce in the group "gradients".
/// `backend`: PyTorch's word for what carried them, "gloo" or "nccl".
nlohmann::json dump_of(const Recorded& recorded, const std::string& backend = "gloo");

/// The inverse, of our records and of PyTorch's own. Throws std::runtime_error if it is no record.
Recorded recorded_from(const nlohmann::json& dump, int rank);

/// RUN/flight/rank_<r>, one pickle for each ring in the run's folder, which it takes the place of; returns how many. To be
/// called when the ranks have ended. Throws MachineError.
int write_records(const std::string& run_dir, int world_size, const std::string& backend = "gloo");

/// The records of a folder, by rank: files whose names end in a rank's number, pickles or JSON. Throws std::runtime_error
/// naming the file, or if there is none.
std::vector<Recorded> read_records(const std::string& folder);

/// Is it a folder that holds such records and nothing else?
bool holds_records(const std::string& folder);

}  // namespace lockstep::flight
