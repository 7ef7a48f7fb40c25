#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <vector>

#include "harness/lib/flight/ring.h"

// Flight records in PyTorch's own schema, as its analyser (python -m torch.distributed.flight_recorder.fr_trace) reads them.

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

// As much of Python's pickle as PyTorch's flight records are written in: dictionaries, lists, tuples, texts, numbers.

/// Protocol 2. Python's pickle.load gives the same value back: objects are dict, arrays are list.
std::string to_pickle(const nlohmann::json& value);

/// Protocols 0 to 5 as far as they are met in flight records: nothing is imported, and nothing called but PyTorch's own
/// builders of lists, whose argument is taken as it is. Tuples come as arrays, keys that are numbers as their digits. Takes less than
/// a GB and some seconds, whatever the bytes. Throws std::runtime_error if it is cut short or damaged (naming the offset), needs more than that, is nested
/// deeper, or stands for more values than any flight record.
nlohmann::json from_pickle(std::string_view bytes);

}  // namespace lockstep::flight
