#include "harness/run/launchers/command/leavings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "harness/base/clean_text.h"
#include "harness/base/json_text.h"
#include "harness/base/read_file.h"
#include "harness/run/probe.h"
#include "harness/run/run_folder.h"
#include "harness/verdict/config/field.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kStepNames = {"step", "global_step", "iteration", "iter", "epoch"};

constexpr const char* kNothing =
    "the command ended well, and the probe recorded nothing of rank {}: it must train with a torch.optim optimizer in the Python that it starts, "
    "which must not ignore PYTHONPATH (-S, -I, -E); or add `import lockstep_probe`";

RankResult result_of(const RankLeft& left, const char* status) {
  RankResult result;
  result.rank = left.rank;
  result.world_size = left.world_size;
  result.config_hash = left.hash;
  result.status = status;
  result.phase = left.operation;
  return result;
}

class Log {
 public:
  void add(const std::string& name, int64_t step, double value) {
    Series& series = found_[name];
    // A step that is logged again replaces what it said before.
    if (!series.steps.empty() && series.steps.back() == step) {
      series.values.back() = value;
    } else if (series.steps.empty() || series.steps.back() < step) {
      series.steps.push_back(step);
      series.values.push_back(value);
    }
  }
  std::map<std::string, Series> done() { return std::move(found_); }

 private:
  std::map<std::string, Series> found_;
};

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      cells.emplace_back();
    else if (c != '\r')
      cells.back() += c;
  }
  return cells;
}

std::optional<double> number_of(const std::string& text) {
  const char* begin = text.data();
  const char* const end = begin + text.size();
  while (begin != end && *begin == ' ') ++begin;
  double value = 0;
  const auto [read, error] = std::from_chars(begin, end, value);
  return begin != end && error == std::errc() && read == end ? std::optional(value) : std::nullopt;
}

void read_csv(const std::string& text, Log& log) {
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  const std::vector<std::string> names = cells_of(line);
  const auto* const step_name = std::ranges::find_if(kStepNames, [&](std::string_view name) { return std::ranges::find(names, name) != names.end(); });
  if (step_name == kStepNames.end()) throw std::runtime_error("its first line names no column step");
  const auto step_column = static_cast<std::size_t>(std::ranges::find(names, *step_name) - names.begin());
  while (std::getline(lines, line)) {
    const std::vector<std::string> cells = cells_of(line);
    const auto step = cells.size() > step_column ? number_of(cells[step_column]) : std::nullopt;
    if (!step) continue;
    for (std::size_t i = 0; i < std::min(cells.size(), names.size()); ++i) {
      if (i == step_column) continue;
      if (const auto value = number_of(cells[i])) log.add(names[i], static_cast<int64_t>(*step), *value);
    }
  }
}

void read_jsonl(const std::string& text, Log& log) {
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const nlohmann::json json = parse_json(line);
    if (!json.is_object()) throw std::runtime_error(fmt::format("line {} is no JSON object", number));
    const auto* const step_name = std::ranges::find_if(kStepNames, [&](std::string_view name) { return json.contains(name) && json[std::string(name)].is_number(); });
    if (step_name == kStepNames.end()) continue;
    const auto step = json[std::string(*step_name)].get<double>();
    constexpr double kMostSteps = 1e15;
    if (!(std::abs(step) < kMostSteps)) throw std::runtime_error(fmt::format("line {}: {} is no step", number, step));
    for (const auto& [key, value] : json.items())
      if (value.is_number() && key != *step_name) log.add(key, static_cast<int64_t>(step), value.get<double>());
  }
}

/// A protocol buffer's fields, one after the other: number, and a value or a run of bytes.
struct Field {
  uint64_t number = 0, kind = 0, value = 0;
  std::string_view bytes;
};

bool take_varint(std::string_view& text, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !text.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(text.front());
    text.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

std::optional<Field> take_field(std::string_view& text) {
  Field field;
  uint64_t head = 0, size = 0;
  if (!take_varint(text, head)) return std::nullopt;
  field.number = head >> 3;
  field.kind = head & 7;
  constexpr uint64_t kVarint = 0, kEight = 1, kBytes = 2, kFour = 5;
  if (field.kind == kVarint) return take_varint(text, field.value) ? std::optional(field) : std::nullopt;
  if (field.kind == kBytes && !take_varint(text, size)) return std::nullopt;
  if (field.kind != kBytes) size = field.kind == kEight ? 8 : field.kind == kFour ? 4 : UINT64_MAX;
  if (size > text.size()) return std::nullopt;
  field.bytes = text.substr(0, size);
  text.remove_prefix(size);
  if (field.kind != kBytes) std::memcpy(&field.value, field.bytes.data(), size);
  return field;
}

/// Summary.Value: tag 1; simple_value 2; or a tensor 8, whose one float is 5 (packed) or its content 4.
void read_value(std::string_view text, int64_t step, Log& log) {
  std::string tag;
  std::optional<double> number;
  const auto of_bits = [](uint64_t bits) { return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits))); };
  while (const auto field = take_field(text)) {
    if (field->number == 1) tag = field->bytes;
    if (field->number == 2 && field->kind == 5) number = of_bits(field->value);
    std::string_view tensor = field->number == 8 ? field->bytes : std::string_view();
    while (const auto part = take_field(tensor)) {
      uint32_t bits = 0;
      if ((part->number == 5 || part->number == 4) && part->bytes.size() == sizeof(bits)) {
        std::memcpy(&bits, part->bytes.data(), sizeof(bits));
        number = of_bits(bits);
      }
    }
  }
  if (!tag.empty() && number) log.add(tag, step, *number);
}

/// Records of length (8 bytes), its check (4), Event, its check (4). Event: step 2, summary 5 with values 1.
void read_events(std::string_view text, Log& log) {
  constexpr std::size_t kHead = 12, kTail = 4;
  while (text.size() >= kHead) {
    uint64_t length = 0;
    std::memcpy(&length, text.data(), sizeof(length));
    if (length > text.size() - kHead || text.size() - kHead - length < kTail) return;  // its writer was cut short
    std::string_view event = text.substr(kHead, length), summary;
    text.remove_prefix(kHead + length + kTail);
    int64_t step = 0;
    while (const auto field = take_field(event)) {
      if (field->number == 2 && field->kind == 0) step = static_cast<int64_t>(field->value);
      if (field->number == 5) summary = field->bytes;
    }
    while (const auto value = take_field(summary))
      if (value->number == 1) read_value(value->bytes, step, log);
  }
}

std::vector<std::string> event_files(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path.string()};
  std::vector<std::string> files;
  for (fs::recursive_directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    if (at->path().filename().string().find(".tfevents.") != std::string::npos) files.push_back(at->path().string());
  if (files.empty()) throw std::runtime_error("holds no TensorBoard events (*.tfevents.*)");
  std::ranges::sort(files);
  return files;
}

std::string whole_text(const std::string& path) {
  FileText file = read_file(path);
  if (!file) throw std::runtime_error(file.problem);
  return std::move(file.text);
}

}  // namespace

std::map<std::string, Series> metrics_in_log(const std::string& path) {
  Log log;
  if (path.ends_with(".csv")) {
    read_csv(whole_text(path), log);
  } else if (path.ends_with(".jsonl") || path.ends_with(".json")) {
    read_jsonl(whole_text(path), log);
  } else {
    for (const std::string& file : event_files(path)) read_events(whole_text(file), log);
  }
  std::map<std::string, Series> found = log.done();
  if (found.empty()) throw std::runtime_error("holds no number by step");
  return found;
}

bool is_whole(const RankLeft& left) {
  const RecordedRank recorded = read_recorded_rank(left.dir, left.rank);
  return recorded.there && recorded.problem.empty() && recorded.whole;
}

void write_failed(const RankLeft& left, const std::string& error) {
  RankResult result = result_of(left, "failed");
  result.error = error;
  write_rank_result(rank_result_path(left.dir, left.rank), result);
}

void write_finished(const RankLeft& left, const std::string& metrics_from) {
  const RecordedRank recorded = read_recorded_rank(left.dir, left.rank);
  if (!recorded.there) return write_failed(left, fmt::format(fmt::runtime(kNothing), left.rank));
  if (!recorded.problem.empty()) return write_failed(left, recorded.problem);
  if (!recorded.whole) return write_failed(left, fmt::format("its trace has no end mark, though the command ended well: {}", recorded.end));
  RankResult result = result_of(left, "finished");
  result.phase = "train";
  result.steps_done = recorded.steps;
  result.train_seconds = read_probe_report(left.dir, left.rank).seconds;
  if (!recorded.loss.steps.empty()) result.curves["loss"] = recorded.loss;
  if (left.rank == 0) {
    std::map<std::string, Series> metrics = recorded.metrics;
    if (!metrics_from.empty()) {
      try {
        for (auto& [name, series] : metrics_in_log(metrics_from)) metrics.insert_or_assign(name, std::move(series));
      } catch (const std::runtime_error& error) {
        return write_failed(left, fmt::format("metrics_from {}: {}", metrics_from, error.what()));
      }
    }
    for (auto& [name, series] : metrics) {
      if (name == "loss") continue;  // of the log: the trace has that of every rank
      result.metrics[name] = series.values.back();
      result.curves[name] = std::move(series);
    }
  }
  write_rank_result(rank_result_path(left.dir, left.rank), result);
}

std::string thrown_error(const RankLeft& left) {
  const FileText file = read_file(fmt::format("{}/rank-{}.error", left.dir, left.rank), kMostConfigBytes);
  if (!file) return "";
  return clean_line(file.text.substr(0, file.text.find('\n')));
}

std::map<int, int> exit_codes_in(const std::string& log) {
  std::map<int, int> codes;
  std::ifstream file(log);
  int rank = -1;
  // "  rank      : 4 (local_rank: 4)", and below it "  exitcode  : -9 (pid: 4711)".
  for (std::string line; std::getline(file, line);) {
    const std::size_t name = line.find_first_not_of(' '), colon = line.find(" : ");
    if (name == std::string::npos || colon == std::string::npos) continue;
    const std::string_view key = std::string_view(line).substr(name), value = std::string_view(line).substr(colon + 3);
    const auto number = number_of(std::string(value.substr(0, value.find(' '))));
    if (key.starts_with("rank ")) rank = number ? static_cast<int>(*number) : -1;
    if (key.starts_with("exitcode ") && number && rank >= 0) codes.emplace(rank, static_cast<int>(*number));
  }
  return codes;
}

void write_excerpt(const std::string& log, const RankLeft& left) {
  std::ifstream file(log);
  std::ofstream own(rank_log_path(left.dir, left.rank));
  for (std::string line; std::getline(file, line);) {
    if (line.find("torch/distributed/elastic/") != std::string::npos) break;
    own << line << "\n";
  }
}

}  // namespace lockstep
