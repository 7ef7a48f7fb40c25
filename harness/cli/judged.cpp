#include "harness/cli/judged.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <vector>

#include "harness/launch/identity.h"
#include "harness/launch/run_folder.h"
#include "harness/plan/earlier_runs.h"
#include "harness/plan/json_text.h"
#include "harness/plan/read_file.h"
#include "harness/trace/rank_result.h"
#include "reports/format.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string text_in(const std::string& path) { return read_file(path).text; }

/// Size, time of the last change and inode; "gone" if there is no such file.
std::string stamp_of(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return "gone";
  return fmt::format("{} {}.{:09} {}", file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec, file.st_ino);
}

/// Every file of the run that the judge reads, with its stamp.
std::string evidence_stamps(const std::string& dir) {
  std::vector<std::string> names{"run.json"};
  std::error_code error;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename().string();
    if (is_evidence(name)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  std::string stamps;
  for (const std::string& name : names) stamps += name + " " + stamp_of(dir + "/" + name) + "\n";
  return stamps;
}

std::string key_of(const Prepared& prepared, const MatrixSelection& selection) {
  const BuildIdentity& identity = prepared.identity;
  // Whatever else the matrix says (expectations, margins, claims) stands in the config's own text.
  json parts = {identity.build, identity.libtorch, identity.isa, identity.data, command_text(selection),
                prepared.config_text,
                // The runs know nothing of the program that judges them.
                hash_of_file("/proc/self/exe")};
  const std::string& replay = prepared.plan.matrix.replay;
  if (!replay.empty()) parts.push_back(stamp_of(replay));
  for (const PlannedRun& run : prepared.plan.runs) {
    parts.push_back({run.id, run.hash, evidence_stamps(run_folder(prepared.out_dir, run.id))});
  }
  const std::string all = parts.dump(-1, ' ', false, json::error_handler_t::replace);
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

/// What a judgement leaves under OUT, by name.
std::vector<std::string> files_of(const Results& results) {
  std::vector<std::string> files;
  for (const ReportFormat& format : report_formats()) {
    if (!format.file_name.empty()) files.emplace_back(format.file_name);
  }
  for (const CellResult& cell : results.cells) {
    if (cell.replay.empty()) continue;
    for (const char* name : {"replay.yaml", "rank-0.trace"}) {
      files.push_back("replay/" + cell.run + "/" + name);
    }
  }
  return files;
}

}  // namespace

Judged::Judged(const Prepared& prepared, const MatrixSelection& selection)
    : out_dir_(prepared.out_dir), key_(key_of(prepared, selection)) {}

std::optional<Results> Judged::standing() const {
  const json noted = parse_json(text_in(path()));
  if (!noted.is_object() || noted.value("key", json()) != key_) return std::nullopt;
  const auto files = noted.find("files");
  if (files == noted.end() || !files->is_object() || files->empty()) return std::nullopt;
  for (const auto& [name, stamp] : files->items()) {
    if (stamp != stamp_of(out_dir_ + "/" + name)) return std::nullopt;
  }
  const std::string results = out_dir_ + "/results.json";
  try {
    return results_from_json(text_in(results), results);
  } catch (const std::runtime_error&) {
    return std::nullopt;  // whatever it is, judging anew mends it
  }
}

void Judged::note(const Results& results) const {
  json files = json::object();
  for (const std::string& name : files_of(results)) files[name] = stamp_of(out_dir_ + "/" + name);
  const json content = {{"schema_version", 1}, {"key", key_}, {"files", files}};
  write_file_atomically(path(), content.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

}  // namespace lockstep
