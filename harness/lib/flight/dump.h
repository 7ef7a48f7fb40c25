#pragma once
// Flight records in PyTorch's own schema, as its analyser (python -m torch.distributed.flight_recorder.fr_trace) reads them.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "harness/lib/flight/ring.h"

namespace lockstep::flight {

/// The version of the schema that is written: that of LibTorch 2.13.
inline constexpr const char* kSchemaVersion = "2.10";

/// One rank's record: {version, pg_config, pg_status, entries}. A collective's tag is the name of its one frame, its step the
/// frame's line. Reductions of gradients are all_reduce in the group "gradients".
/// `backend`: PyTorch's word for what carried them, "gloo" or "nccl".
nlohmann::json dump_of(const Recorded& recorded, const std::string& backend = "gloo");

/// What a record's bytes stand for: a pickle, or JSON if they begin with {. Throws std::runtime_error if they are neither or too much.
nlohmann::json value_of(std::string_view bytes);

/// The inverse of dump_of, of our records and of PyTorch's own (schema 2.x). Throws std::runtime_error naming what is wrong: another version, a part
/// that lacks or has another type, a list of members that cannot be read.
Recorded recorded_from(const nlohmann::json& dump, int rank);

/// A file that is no record, or not one that can be read.
struct Unread {
  int rank = 0;
  std::string path, why;
};

struct Records {
  std::vector<Recorded> read;          ///< by rank
  std::vector<Unread> unread = {};
};

/// RUN/flight/rank_<r>, one pickle for each ring in the run's folder, which it takes the place of; returns how many. To be
/// called when the ranks have ended. Throws MachineError.
int write_records(const std::string& run_dir, int world_size, const std::string& backend = "gloo");

/// The records of a folder: files whose names end in a rank's number, pickles or JSON of up to 128 MiB. Throws std::runtime_error naming
/// the files if there is none that can be read.
Records read_records(const std::string& folder);

/// A line for each: the file, why, and that nothing is said of its rank.
std::vector<std::string> in_words(const std::vector<Unread>& unread);

/// Is it a folder with at least one such record?
bool holds_records(const std::string& folder);

}  // namespace lockstep::flight
