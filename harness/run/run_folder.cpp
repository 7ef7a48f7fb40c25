#include "harness/run/run_folder.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/matrix/plan_history.h"
#include "harness/run/job_queue.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kTailBytes = 64 * 1024;
constexpr std::size_t kLineBytes = 400;

/// Variables that change what ranks compute, how fast, or over which network.
constexpr std::array<std::string_view, 14> kMattering = {
    "OMP_",  "MKL_",   "KMP_",  "GOMP_", "ATEN_",     "DNNL_",       "ONEDNN_",
    "GLOO_", "TORCH_", "NCCL_", "CUDA_", "LOCKSTEP_", "LD_PRELOAD=", "OPENBLAS_"};

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

bool is_plain_name(const std::string& id) {
  return !id.empty() && id != "." && id != ".." && id.find('/') == std::string::npos;
}

}  // namespace

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::string run_folder(const std::string& out_dir, const std::string& id) {
  LOCKSTEP_CHECK(is_plain_name(id), "a run's id is the name of its folder: '" + id + "'");
  return (fs::path(out_dir) / "runs" / id).string();
}

int processes_of(const RunConfig& config) {
  return config.backend == Backend::gloo ? config.layout.world_size : 1;
}

std::vector<std::pair<std::string, std::string>> provenance(const BuildIdentity& identity) {
  std::vector<std::pair<std::string, std::string>> facts = {
      {"build", identity.build},
      {"libtorch", identity.libtorch},
      {"isa", identity.isa},
      {"data", identity.data},
      {"host", host_name()},
      {"processor", processor_name()},
      {"cores", std::to_string(std::max(1U, std::thread::hardware_concurrency()))},
      {"threads_per_rank", std::to_string(kThreadsPerRank)},
      {"bits_depend_on",
       "build, libtorch, isa (the processor and its instruction sets), threads_per_rank, data; "
       "not on host, cores or the build folder"},
  };
  const auto first_variable = static_cast<std::ptrdiff_t>(facts.size());
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto matters = [&](std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; };
    if (std::none_of(kMattering.begin(), kMattering.end(), matters)) continue;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    facts.emplace_back("env." + std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)));
  }
  std::sort(facts.begin() + first_variable, facts.end());
  return facts;
}

bool goes_on(const std::string& dir, const PlannedRun& run, const BuildIdentity& identity, const std::string& data_hash) {
  if (!run.config.checkpoint.on()) return false;
  std::error_code error;
  bool any = false;
  for (fs::directory_iterator at(dir + "/checkpoints", error), end; !error && at != end; at.increment(error))
    any = any || at->path().filename().string().starts_with("epoch_");
  // One that finished and is run again has lost what it left: nothing of it is gone on with.
  if (!any || fs::exists(dir + "/done", error)) return false;
  std::string problem;
  const std::optional<json> earlier = read_sealed(dir + "/run.json", problem);
  if (!earlier) return false;
  // What is not there is empty; what is of another type is equal to no text.
  const auto in = [](const json& object, const char* key) { return object.is_object() ? object.value(key, json("")) : json(""); };
  const json facts = in(*earlier, "provenance");
  return in(*earlier, "config_hash") == run.hash && in(*earlier, "data_hash") == data_hash && in(facts, "build") == identity.build &&
         in(facts, "libtorch") == identity.libtorch && in(facts, "isa") == identity.isa;
}

namespace {

/// What a run that goes on needs of its earlier attempt. Anything else would be mistaken for this attempt's.
bool is_needed(const std::string& name) {
  return name == "checkpoints" || (name.starts_with("rank-") && (name.ends_with(".trace") || name.ends_with(".log")));
}

void clear_run_folder(const std::string& dir, Files& files) {
  std::vector<std::string> others;
  std::error_code unlisted;
  for (fs::directory_iterator at(dir, unlisted), end; !unlisted && at != end; at.increment(unlisted)) {
    if (!is_needed(at->path().filename().string())) others.push_back(at->path().string());
  }
  for (const std::string& path : others) {
    if (const auto error = files.remove_all(path))
      throw MachineError(path + ": cannot remove what an earlier attempt left: " + error.message());
  }
}

}  // namespace

void prepare_run_folder(const std::string& dir, const PlannedRun& run, const BuildIdentity& identity,
                        const std::string& data_hash, Files& files) {
  if (goes_on(dir, run, identity, data_hash)) {
    clear_run_folder(dir, files);
  } else if (const auto error = files.remove_all(dir)) {
    throw MachineError(dir + ": cannot remove what an earlier attempt left: " + error.message());
  }
  if (const auto error = make_durable_folders(dir, files)) {
    throw MachineError(dir + ": cannot be created: " + error.message());
  }
  json facts = json::object();
  for (const auto& [key, value] : provenance(identity)) facts[key] = value;
  facts["started"] = utc_now();
  json content = {{"config", json::parse(canonical_json(run.config))},
                  {"config_hash", run.hash},
                  {"id", run.id},
                  {"role", name_of(run.role)},
                  {"cell", run.cell},
                  {"provenance", facts}};
  if (!data_hash.empty()) content["data_hash"] = data_hash;
  seal(content);
  write_file_atomically(dir + "/run.json",
                        content.dump(2, ' ', false, json::error_handler_t::replace) + "\n", files);
}

void write_done(const std::string& dir, const PlannedRun& run, const BuildIdentity& identity,
                double seconds, Files& files) {
  json content = {{"config_hash", run.hash},
                  {"build", identity.build},
                  {"libtorch", identity.libtorch},
                  {"isa", identity.isa},
                  {"data", identity.data},
                  {"seconds", seconds},
                  {"files", json::parse(evidence_json(dir))}};
  seal(content);
  write_file_atomically(dir + "/done", content.dump(2) + "\n", files);
}

void require_planned_data(const std::string& planned, const std::string& read, int rank) {
  if (planned.empty() || read.empty() || planned == read) return;
  throw MachineError("the data changed while the matrix ran: its hash was " + planned +
                     " when the runs were planned, and rank " + std::to_string(rank) + " read " + read +
                     "; run again to plan with the current data");
}

std::vector<std::string> last_lines(const std::string& path, std::size_t count) {
  const OpenFile file(path);
  if (!file.problem().empty()) return {};
  std::string tail(std::min<uint64_t>(file.size_bytes(), kTailBytes), '\0');
  const auto from = static_cast<off_t>(file.size_bytes() - tail.size());
  const ssize_t got = ::pread(file.descriptor(), tail.data(), tail.size(), from);
  std::istringstream text(tail.substr(0, static_cast<std::size_t>(std::max<ssize_t>(got, 0))));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    const bool long_line = line.size() > kLineBytes;
    line = clean_line(std::string_view(line).substr(0, kLineBytes));
    lines.push_back(long_line ? line + " [cut]" : std::move(line));
  }
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  return lines;
}

std::string rank_log_path(const std::string& dir, int rank) {
  return dir + "/rank-" + std::to_string(std::max(rank, 0)) + ".log";
}

std::string rank_result_path(const std::string& dir, int rank) {
  return dir + "/rank-" + std::to_string(rank) + ".result.json";
}

}  // namespace lockstep
