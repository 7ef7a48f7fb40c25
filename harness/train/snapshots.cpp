#include "harness/train/snapshots.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "harness/trace/reader.h"

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

std::map<int64_t, Snapshot> read_snapshots(const std::string& trace_path, const std::vector<int64_t>& steps,
                                           bool wide) {
  std::map<int64_t, Snapshot> snapshots;
  TraceReader reader(trace_path);
  while (std::optional<StepRecords> step = reader.next()) {
    if (std::find(steps.begin(), steps.end(), step->step) == steps.end()) {
      continue;
    }
    for (Record& record : step->records) {
      if (record.phase == Phase::snapshot && !record.payload.empty()) {
        snapshots[step->step][record.name] =
            wide && record.dtype == DType::float32 ? widened(record.payload) : std::move(record.payload);
      }
    }
  }
  for (const int64_t step : steps) {
    if (snapshots.find(step) == snapshots.end()) {
      throw std::runtime_error(trace_path + " holds no snapshot of step " + std::to_string(step) + ": " +
                               reader.end());
    }
  }
  return snapshots;
}

}  // namespace lockstep
