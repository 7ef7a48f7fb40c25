#include "harness/trace/rank_result.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "harness/base/errors.h"
#include "harness/base/json_text.h"
#include "harness/base/read_file.h"
#include "harness/base/sealed_json.h"
#include "harness/trace/temporary_files.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr int kSchemaVersion = 2;

/// A double as JSON: a number with all its digits, or "nan", "inf", "-inf", which JSON's numbers lack.
Json number_to_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json metric_to_json(double value) {
  return {{"value", number_to_json(value)}, {"bits", fmt::format("{:016x}", std::bit_cast<uint64_t>(value))}};
}

/// Reads one file; every complaint names it and the key.
class ResultReader {
 public:
  explicit ResultReader(std::string path) : path_(std::move(path)) {}

  [[noreturn]] void fail(const std::string& problem) const {
    throw std::runtime_error(path_ + ": " + problem);
  }

  const Json& at(const Json& object, const std::string& key) const {
    const auto found = object.find(key);
    if (found == object.end()) fail("lacks \"" + key + '"');
    return *found;
  }
  std::string text(const Json& object, const std::string& key) const {
    const Json& value = at(object, key);
    if (!value.is_string()) fail('"' + key + "\" is not a text");
    return value.get<std::string>();
  }
  std::vector<std::string> texts(const Json& object, const std::string& key) const {
    const Json& list = at(object, key);
    if (!list.is_array()) fail('"' + key + "\" is not a list");
    std::vector<std::string> texts;
    for (const Json& each : list) {
      if (!each.is_string()) fail("an item of \"" + key + "\" is not a text");
      texts.push_back(each.get<std::string>());
    }
    return texts;
  }
  int64_t integer(const Json& object, const std::string& key) const {
    const Json& value = at(object, key);
    if (!value.is_number_integer()) fail('"' + key + "\" is not an integer");
    return value.get<int64_t>();
  }
  double number(const Json& value, const std::string& key) const {
    if (value.is_number()) return value.get<double>();
    if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (value == "inf") return std::numeric_limits<double>::infinity();
    if (value == "-inf") return -std::numeric_limits<double>::infinity();
    fail('"' + key + "\" is not a number");
  }
  double metric(const Json& value, const std::string& key) const {
    if (!value.is_object()) fail("metric \"" + key + "\" is not an object");
    const std::string bits = text(value, "bits");
    if (bits.size() != 16 || bits.find_first_not_of("0123456789abcdef") != std::string::npos) {
      fail("the bits of metric \"" + key + "\" are not 16 hex digits");
    }
    return std::bit_cast<double>(static_cast<uint64_t>(std::stoull(bits, nullptr, 16)));
  }
  Series series(const Json& value, const std::string& key) const {
    if (!value.is_object()) fail("curve \"" + key + "\" is not an object");
    const Json& steps = at(value, "steps");
    const Json& values = at(value, "values");
    if (!steps.is_array() || !values.is_array() || steps.size() != values.size()) {
      fail("curve \"" + key + "\" does not have one value a step");
    }
    Series series;
    for (const Json& step : steps) {
      if (!step.is_number_integer()) fail("a step of curve \"" + key + "\" is not an integer");
      series.steps.push_back(step.get<int64_t>());
    }
    for (const Json& each : values) series.values.push_back(number(each, key));
    return series;
  }

 private:
  std::string path_;
};

void write_all(int fd, const std::string& path, const std::string& content) {
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t written = ::write(fd, content.data() + done, content.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw MachineError(path + ": cannot write: " + std::strerror(errno));
    done += static_cast<std::size_t>(written);
  }
}

/// Closes a descriptor and removes the temporary file, unless all went well.
struct TemporaryFile {
  std::string path;
  int fd = -1;
  bool renamed = false;
  ~TemporaryFile() {
    if (fd >= 0) ::close(fd);
    if (!renamed) ::unlink(path.c_str());
  }
};

void sync_folder(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw MachineError(folder + ": cannot open: " + std::strerror(errno));
  const int failed = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some file systems know no fsync of folders and say EINVAL.
  if (failed != 0 && error != EINVAL) throw MachineError(folder + ": cannot sync: " + std::strerror(error));
}

}  // namespace

void write_file_atomically(const std::string& path, const std::string& content) {
  TemporaryFile file{temporary_name(path)};
  file.fd = ::open(file.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file.fd < 0) throw MachineError(path + ": cannot create: " + std::strerror(errno));
  write_all(file.fd, path, content);
  if (::fsync(file.fd) != 0) throw MachineError(path + ": cannot sync: " + std::strerror(errno));
  if (::close(std::exchange(file.fd, -1)) != 0)
    throw MachineError(path + ": cannot close: " + std::strerror(errno));
  if (::rename(file.path.c_str(), path.c_str()) != 0) {
    throw MachineError(path + ": cannot put the finished file in place: " + std::strerror(errno));
  }
  file.renamed = true;
  sync_folder(path);
}

void write_rank_result(const std::string& path, const RankResult& result) {
  Json json = {
      {"schema_version", kSchemaVersion},
      {"rank", result.rank},
      {"world_size", result.world_size},
      {"config_hash", result.config_hash},
      {"data_hash", result.data_hash},
      {"status", result.status},
      {"error", result.error},
      {"phase", result.phase},
      {"steps_done", result.steps_done},
      {"train_seconds", number_to_json(result.train_seconds)},
      {"first_step_seconds", number_to_json(result.first_step_seconds)},
      {"communication_seconds", number_to_json(result.communication_seconds)},
      {"activation_bytes", number_to_json(result.activation_bytes)},
      {"resident_first_bytes", number_to_json(result.resident_first_bytes)},
      {"resident_last_bytes", number_to_json(result.resident_last_bytes)},
      {"parameters_hash", result.parameters_hash},
      {"step_seconds", number_to_json(result.step_seconds)},
      {"communication_share", number_to_json(result.communication_share)},
      {"weight_bytes", number_to_json(result.weight_bytes)},
      {"received_bytes", number_to_json(result.received_bytes)},
      {"faults_acted", result.faults_acted},
      {"metrics", Json::object()},
      {"curves", Json::object()},
  };
  for (const auto& [name, value] : result.metrics) json["metrics"][name] = metric_to_json(value);
  for (const auto& [name, series] : result.curves) {
    LOCKSTEP_CHECK(series.steps.size() == series.values.size(), "a curve needs one value a step: " + name);
    Json values = Json::array();
    for (double value : series.values) values.push_back(number_to_json(value));
    json["curves"][name] = {{"steps", series.steps}, {"values", std::move(values)}};
  }
  seal(json);
  write_file_atomically(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

RankResult read_rank_result(const std::string& path) {
  const ResultReader reader(path);
  const FileText file = read_file(path);
  if (!file) reader.fail(file.problem);
  JsonProblem problem;
  const Json json = parse_json(file.text, &problem);
  if (!problem.message.empty()) reader.fail(problem.text());
  if (!json.is_object()) reader.fail("not a JSON object");
  const int64_t version = reader.integer(json, "schema_version");
  if (version != kSchemaVersion) {
    reader.fail(fmt::format("schema version {}; this build reads version {}", version, kSchemaVersion));
  }
  if (const std::string problem = seal_problem(json); !problem.empty()) {
    throw std::runtime_error(path + " " + problem);
  }
  RankResult result;
  result.rank = static_cast<int>(reader.integer(json, "rank"));
  result.world_size = static_cast<int>(reader.integer(json, "world_size"));
  result.config_hash = reader.text(json, "config_hash");
  result.data_hash = reader.text(json, "data_hash");
  result.status = reader.text(json, "status");
  result.error = reader.text(json, "error");
  result.phase = reader.text(json, "phase");
  result.steps_done = reader.integer(json, "steps_done");
  result.train_seconds = reader.number(reader.at(json, "train_seconds"), "train_seconds");
  result.first_step_seconds = reader.number(reader.at(json, "first_step_seconds"), "first_step_seconds");
  const auto read = [&](const char* key) { return reader.number(reader.at(json, key), key); };
  result.communication_seconds = read("communication_seconds");
  result.activation_bytes = read("activation_bytes");
  result.resident_first_bytes = read("resident_first_bytes");
  result.resident_last_bytes = read("resident_last_bytes");
  result.parameters_hash = reader.text(json, "parameters_hash");
  result.step_seconds = read("step_seconds");
  result.communication_share = read("communication_share");
  result.weight_bytes = read("weight_bytes");
  result.received_bytes = read("received_bytes");
  // Results from before faults were watched have none.
  if (json.contains("faults_acted")) result.faults_acted = reader.texts(json, "faults_acted");
  for (const auto& [name, value] : reader.at(json, "metrics").items())
    result.metrics[name] = reader.metric(value, name);
  for (const auto& [name, value] : reader.at(json, "curves").items())
    result.curves[name] = reader.series(value, name);
  return result;
}

}  // namespace lockstep
