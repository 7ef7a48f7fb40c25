#include "harness/lib/flight/dump.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "harness/base/atomic_file.h"
#include "harness/base/errors.h"
#include "harness/base/files.h"
#include "harness/base/json_text.h"
#include "harness/base/read_file.h"
#include "harness/lib/flight/pickle.h"

namespace lockstep::flight {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kDescription = "undefined";  // PyTorch's word for a group without one
constexpr int64_t kMillisecond_ns = 1'000'000;

json ranks_text(int world_size) {
  std::string text = "[";
  for (int rank = 0; rank < world_size; ++rank) text += (rank > 0 ? ", " : "") + std::to_string(rank);
  return text + "]";
}

json entry_json(const Entry& entry, int world_size, const std::string& backend) {
  std::vector<int64_t> out_shape = entry.shape;
  if (entry.op == "all_gather") out_shape.insert(out_shape.begin(), world_size);
  const bool done = entry.state == State::completed;
  const std::string op = entry.op == "reduce_gradients" ? "all_reduce" : entry.op;
  json made = {{"record_id", entry.id},
               {"pg_id", entry.group == "data" ? 0 : 1},
               {"process_group", {entry.group, kDescription}},
               {"collective_seq_id", entry.sequence},
               {"p2p_seq_id", 0},
               {"op_id", entry.sequence},
               {"is_p2p", false},
               {"profiling_name", backend + ":" + op},
               {"time_created_ns", entry.created_ns},
               {"input_sizes", json::array({entry.shape})},
               {"input_dtypes", json::array({entry.dtype})},
               {"output_sizes", json::array({out_shape})},
               {"output_dtypes", json::array({entry.dtype})},
               {"state", done ? "completed" : "started"},
               {"time_discovered_started_ns", entry.created_ns},
               {"time_discovered_completed_ns", nullptr},
               {"retired", done},
               {"timeout_ms", 0},
               {"frames", json::array({{{"name", entry.tag}, {"filename", "step"}, {"line", entry.step}}})}};
  if (entry.root >= 0) made["root"] = entry.root;
  if (done) {
    made["time_discovered_completed_ns"] = entry.completed_ns;
    made["duration_ms"] = static_cast<double>(entry.completed_ns - entry.created_ns) / kMillisecond_ns;
  }
  return made;
}

/// "NAME_3" -> 3
std::optional<int> rank_of(const std::string& name) {
  std::size_t begin = name.size();
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(name[begin - 1])) != 0) --begin;
  const std::size_t digits = name.size() - begin;
  if (digits == 0 || digits > 6) return std::nullopt;
  return std::stoi(name.substr(begin));
}

template <class T>
T value_of(const json& object, const char* key, T otherwise) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? otherwise : found->get<T>();
}

Entry entry_from(const json& from) {
  Entry entry;
  entry.id = value_of<uint64_t>(from, "record_id", 0);
  const json& group = from.at("process_group");
  entry.group = group.at(0).get<std::string>();
  if (const auto word = group.at(1).get<std::string>(); word != kDescription && !word.empty()) entry.group += ":" + word;
  entry.sequence = from.at("collective_seq_id").get<uint64_t>();
  const auto name = from.at("profiling_name").get<std::string>();
  entry.op = name.substr(name.find(':') + 1);
  if (const auto frames = from.find("frames"); frames != from.end() && !frames->empty()) {
    const bool ours = value_of<std::string>(frames->front(), "filename", "") == "step";
    if (ours) entry.tag = value_of<std::string>(frames->front(), "name", "");
    if (ours) entry.step = value_of<int64_t>(frames->front(), "line", 0);
  }
  if (const auto types = from.find("input_dtypes"); types != from.end() && !types->empty())
    entry.dtype = types->front().get<std::string>();
  if (const auto sizes = from.find("input_sizes"); sizes != from.end() && !sizes->empty())
    entry.shape = sizes->front().get<std::vector<int64_t>>();
  entry.root = value_of(from, "root", -1);
  entry.created_ns = value_of<int64_t>(from, "time_created_ns", 0);
  entry.completed_ns = value_of<int64_t>(from, "time_discovered_completed_ns", 0);
  const bool done = value_of<std::string>(from, "state", "") == "completed" || value_of(from, "retired", false);
  entry.state = done ? State::completed : State::started;
  return entry;
}

}  // namespace

json dump_of(const Recorded& recorded, const std::string& backend) {
  json groups = json::object(), status = json::object(), entries = json::array();
  for (const char* group : {"data", "gradients"})
    groups[group] = {{"name", group}, {"desc", kDescription}, {"ranks", ranks_text(recorded.world_size)}};
  for (const Entry& entry : recorded.entries) {
    entries.push_back(entry_json(entry, recorded.world_size, backend));
    json& last = status[entry.group == "data" ? "0" : "1"];
    last["last_enqueued_collective"] = last["last_started_collective"] = entry.sequence;
    if (entry.state == State::completed) last["last_completed_collective"] = entry.sequence;
  }
  return {{"version", kSchemaVersion}, {"pg_config", groups}, {"pg_status", status}, {"entries", entries}};
}

Recorded recorded_from(const json& dump, int rank) {
  Recorded found;
  found.rank = rank;
  try {
    for (const json& entry : dump.at("entries")) {
      if (value_of(entry, "is_p2p", false)) continue;  // between two ranks, not of a whole group
      found.entries.push_back(entry_from(entry));
    }
    for (const auto& [name, group] : dump.at("pg_config").items()) {
      const json ranks = parse_json(group.at("ranks").get<std::string>());
      found.world_size = std::max(found.world_size, static_cast<int>(ranks.size()));
    }
  } catch (const json::exception& error) {
    throw std::runtime_error(std::string("is no flight record: ") + error.what());
  }
  return found;
}

int write_records(const std::string& run_dir, int world_size, const std::string& backend) {
  int written = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    if (!fs::exists(ring_path(run_dir, rank))) continue;
    const std::string folder = run_dir + "/flight";
    if (const auto error = real_files().make_folders(folder)) throw MachineError(folder + ": " + error.message());
    write_file_atomically(folder + "/rank_" + std::to_string(rank), to_pickle(dump_of(read_ring(ring_path(run_dir, rank)), backend)));
    real_files().remove(ring_path(run_dir, rank));
    ++written;
  }
  return written;
}

std::vector<Recorded> read_records(const std::string& folder) {
  std::vector<Recorded> found;
  for (const auto& file : fs::directory_iterator(folder)) {
    std::string name = file.path().filename().string();
    if (name.ends_with(".json")) name.resize(name.size() - 5);
    const std::optional<int> rank = rank_of(name);
    if (!rank || !file.is_regular_file()) continue;
    const FileText read = read_file(file.path().string());
    if (!read) throw std::runtime_error(file.path().string() + ": " + read.problem);
    const std::string& bytes = read.text;
    try {
      found.push_back(recorded_from(bytes.starts_with('{') ? parse_json(bytes) : from_pickle(bytes), *rank));
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(file.path().string() + ": " + error.what());
    }
  }
  if (found.empty()) throw std::runtime_error(folder + ": holds no flight record (files whose names end in a rank's number)");
  std::ranges::sort(found, {}, &Recorded::rank);
  return found;
}

bool holds_records(const std::string& folder) {
  if (!fs::is_directory(folder)) return false;
  try {
    return !read_records(folder).empty();
  } catch (const std::runtime_error&) {
    return false;
  }
}

}  // namespace lockstep::flight
