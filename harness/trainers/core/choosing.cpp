#include "harness/trainers/core/choosing.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "harness/verdict/trace/reader.h"
#include "harness/verdict/trace/record_values.h"

namespace lockstep {

std::map<int64_t, std::vector<at::Tensor>> read_choosing(const std::string& trace_path, const std::vector<int64_t>& steps,
                                                         std::string_view scores) {
  std::map<int64_t, std::vector<at::Tensor>> found;
  TraceReader reader(trace_path);
  const std::string of_later_micro_steps = std::string(scores) + ".";
  while (std::optional<StepRecords> step = reader.next()) {
    if (std::ranges::find(steps, step->step) == steps.end()) continue;
    for (const Record& record : step->records) {
      if (record.name != scores && !record.name.starts_with(of_later_micro_steps)) continue;
      if (const auto values = values_of(record); values && record.shape.size() == 2) {
        found[step->step].push_back(at::tensor(at::ArrayRef<double>(*values), at::kDouble).reshape(record.shape));
      }
    }
  }
  for (const int64_t step : steps) {
    if (!found.contains(step)) {
      throw std::runtime_error(trace_path + " holds no " + std::string(scores) + " of step " + std::to_string(step) + ": " +
                               reader.end());
    }
  }
  return found;
}

}  // namespace lockstep
