#include "harness/trainers/core/snapshots.h"

#include <cstring>
#include <optional>
#include <stdexcept>

namespace lockstep {
namespace {

/// The same numbers in float64.
std::vector<std::byte> widened(const std::vector<std::byte>& floats) {
  const std::size_t count = floats.size() / sizeof(float);
  std::vector<std::byte> doubles(count * sizeof(double));
  for (std::size_t i = 0; i < count; ++i) {
    float narrow = 0;
    std::memcpy(&narrow, floats.data() + i * sizeof(float), sizeof narrow);
    const double wide = narrow;
    std::memcpy(doubles.data() + i * sizeof(double), &wide, sizeof wide);
  }
  return doubles;
}

}  // namespace

SnapshotReader::SnapshotReader(const std::string& trace_path, bool wide) : path_(trace_path), reader_(trace_path), wide_(wide) {}

Snapshot SnapshotReader::at(int64_t step) {
  Snapshot kept;
  std::optional<StepRecords> records;
  do {
    records = reader_.next();
  } while (records && records->step < step);
  if (records && records->step == step) {
    for (Record& record : records->records) {
      if (record.phase != Phase::snapshot || record.payload.empty()) continue;
      kept[record.name] = wide_ && record.dtype == DType::float32 ? widened(record.payload) : std::move(record.payload);
    }
  }
  if (kept.empty()) {
    throw std::runtime_error(path_ + " holds no snapshot of step " + std::to_string(step) + ": " + reader_.end());
  }
  return kept;
}

}  // namespace lockstep
