#include "harness/verdict/compare/replay.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "harness/base/errors.h"
#include "harness/base/files.h"
#include "harness/base/text.h"
#include "harness/verdict/config/field.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/trace/reader.h"
#include "harness/verdict/trace/writer.h"

namespace lockstep {
namespace {

std::string json_of(const RunField& field, const RunConfig& config) {
  std::string text;
  if (field.spec.words == Words::path) {
    const std::string path = text_of(field.of(config));
    append_json(text, std::string_view(path.empty() ? path : std::filesystem::absolute(path).string()));
  } else {
    append_json(text, field.of(config));
  }
  return text;
}

bool is_users(const RunField& field) { return field.spec.setter == Setter::user; }

}  // namespace

std::string replay_config(const Matrix& matrix, const Cell& cell, int64_t step, bool has_step) {
  const TrainerSpec& trainer = spec_of(cell.config);
  const RunConfig defaults(trainer);
  std::string text = fmt::format("# Step {} of {}, repeated: does it differ from {}?\n", step,
                                 clean_line(cell.name), clean_line(cell.reference_name));
  text += fmt::format("name: replay\nquestion: mechanism\nseeds: {}\nranks: emulated\nforced_steps: [{}]\n",
                      cell.config.seed, step);
  if (has_step) text += "replay: rank-0.trace\n";
  text += fmt::format("band: {{floor: {}}}\n", matrix.band.floor);
  std::string differs;
  for (const RunField* each : fields_of(trainer)) {
    const RunField& field = *each;
    if (!is_users(field) || field.spec.key == "ranks" || field.spec.key == "backend" || field.spec.key == "snapshot_steps") continue;
    if (!equal(field.of(cell.config), field.of(defaults))) {
      text += fmt::format("{}: {}\n", field.spec.key, json_of(field, cell.config));
    }
    // The reference never has the cell's faults.
    if (field.spec.key.starts_with("mutant.") || field.spec.key.starts_with("second_mutant.")) continue;
    if (!equal(field.of(cell.config), field.of(cell.reference))) {
      differs += fmt::format(", {}: {}", field.spec.key, json_of(field, cell.reference));
    }
  }
  return text + fmt::format("reference: {{same_as: cell{}}}\n", differs);
}

bool keep_step(const std::string& from, int64_t step, const std::string& to, Files& files) {
  TraceReader reader(from);
  std::optional<StepRecords> records;
  do {
    records = reader.next();
  } while (records && records->step != step);
  const auto is_state = [](const Record& record) {
    return record.phase == Phase::snapshot && !record.payload.empty();
  };
  if (!records || std::none_of(records->records.begin(), records->records.end(), is_state)) return false;
  TraceHeader header = reader.header();
  header.started_by = "replay";
  header.level = TraceLevel::hash;
  TraceWriter writer(to, header, files);
  writer.begin_step(step);
  for (const Record& record : records->records) {
    if (is_state(record)) {
      writer.tensor(record.phase, record.name, {record.payload.data(), record.dtype, record.shape, {}},
                    Sharing::replicated, {}, Keep::whole);
    } else if (record.phase == Phase::samples) {
      writer.samples(record.ids);
    } else if (record.phase == Phase::random) {
      writer.random(record.name, record.stats.hash, static_cast<uint64_t>(record.value));
    }
  }
  writer.end_step();
  writer.finish();
  return true;
}

void write_replay(const Matrix& matrix, const Cell& cell, int64_t step, const std::string& reference_run,
                  const std::string& dir, Files& files) {
  if (const auto error = files.make_folders(dir)) {
    throw MachineError(dir + ": cannot be created: " + error.message());
  }
  const bool has_step = keep_step(reference_run + "/rank-0.trace", step, dir + "/rank-0.trace", files);
  write_file_atomically(dir + "/replay.yaml", replay_config(matrix, cell, step, has_step), files);
}

}  // namespace lockstep
