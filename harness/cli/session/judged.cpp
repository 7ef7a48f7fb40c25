#include "harness/cli/session/judged.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "harness/base/atomic_file.h"
#include "harness/base/hex.h"
#include "harness/base/read_file.h"
#include "harness/base/sealed_json.h"
#include "harness/run/identity.h"
#include "harness/run/run_folder.h"
#include "harness/verdict/questions/question_judge.h"
#include "harness/verdict/results/document.h"
#include "reports/format.h"

namespace lockstep {
namespace {

using nlohmann::json;

std::string text_in(const std::string& path) { return read_file(path).text; }

/// Size, time of the last change and inode; "gone" if there is no such file.
std::string stamp_of(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return "gone";
  return fmt::format("{} {}.{:09} {}", file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec, file.st_ino);
}

std::string key_of(const Prepared& prepared, const MatrixSelection& selection) {
  const BuildIdentity& identity = prepared.identity;
  // Whatever else the matrix says (expectations, margins) stands in the config's own text.
  json parts = {identity.build, identity.libtorch, identity.isa, identity.data, command_text(selection),
                prepared.config_text,
                // The runs know nothing of the program that judges them.
                hash_of_file("/proc/self/exe"),
                // When margin and metric were declared stands in every report.
                text_in(prepared.out_dir + "/declared.json")};
  // `done` holds the checksums of all that the judge reads of a run, and the plan has held the files against
  // them.
  for (const PlannedRun& run : prepared.plan.runs) {
    parts.push_back({run.id, run.hash, text_in(run_folder(prepared.out_dir, run.id) + "/done")});
  }
  return long_hash_in_hex(parts.dump(-1, ' ', false, json::error_handler_t::replace));
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
  std::string problem;
  const std::optional<json> noted = read_sealed(path(), problem);
  if (!noted || noted->value("key", json()) != key_) return std::nullopt;
  const auto files = noted->find("files");
  if (files == noted->end() || !files->is_object() || files->empty()) return std::nullopt;
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

void Judged::note(const Results& results, Files& files) const {
  json stamps = json::object();
  for (const std::string& name : files_of(results)) stamps[name] = stamp_of(out_dir_ + "/" + name);
  json content = {{"schema_version", 2}, {"key", key_}, {"files", stamps}};
  seal(content);
  write_file_atomically(path(), content.dump(2, ' ', false, json::error_handler_t::replace) + "\n", files);
}

}  // namespace lockstep
