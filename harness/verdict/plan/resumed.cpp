#include "harness/verdict/plan/resumed.h"

#include <algorithm>

#include <fmt/format.h>

#include "harness/base/clean_text.h"
#include "harness/base/nearest.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/config/field.h"
#include "harness/verdict/plan/question.h"

namespace lockstep {

const Cell* source_of(const std::vector<Cell>& cells, const std::string& resume_from) {
  const auto is_named = [&](const Cell& cell) { return cell.name == resume_from || cell.short_name == resume_from; };
  const auto found = std::ranges::find_if(cells, is_named);
  return found == cells.end() ? nullptr : &*found;
}

std::unordered_map<const Cell*, std::vector<int64_t>> steps_gone_on_from(const std::vector<Cell>& cells) {
  std::unordered_map<const Cell*, std::vector<int64_t>> steps;
  for (const Cell& cell : cells) {
    const RunConfig& config = cell.config;
    if (!config.resume_from.empty()) steps[source_of(cells, config.resume_from)].push_back(config.resume_step);
  }
  return steps;
}

std::vector<std::pair<std::string, std::string>> resume_problems(const std::vector<Cell>& cells, const Cell& cell) {
  const RunConfig& config = cell.config;
  if (!cell.reference.resume_from.empty()) {
    return {{"resume_from", "a reference cannot resume: set resume_from for cells only"}};
  }
  if (config.resume_from.empty()) {
    if (config.resume_step == 0) return {};
    return {{"resume_step", "resume_step has no effect: resume_from names no cell"}};
  }
  const Cell* source = source_of(cells, config.resume_from);
  if (source == nullptr) {
    std::vector<std::string_view> names;
    for (const Cell& each : cells) names.push_back(each.name);
    const std::string_view near = nearest(config.resume_from, names);
    return {{"resume_from", fmt::format("{} is not a cell of this matrix{}", in_quotes(config.resume_from),
                                        near.empty() ? "" : fmt::format("; did you mean {}?", in_quotes(near)))}};
  }
  if (source >= &cell) return {{"resume_from", fmt::format("{} must come before the cell that resumes from it", in_quotes(config.resume_from))}};
  if (config.resume_step <= source->config.resume_step || config.resume_step >= std::min(config.steps, source->config.steps)) {
    return {{"resume_step", fmt::format("resume_step is {}: it must lie within the steps that {} trains", config.resume_step,
                                        in_quotes(config.resume_from))}};
  }
  if (config.checkpoint.on()) {
    return {{"resume_from", "a run that resumes from another cannot have checkpoint.every"}};
  }
  if (source->config.trace == TraceLevel::off) {
    return {{"resume_from", fmt::format("the state is read from the trace, and {} has none (trace: off)", in_quotes(config.resume_from))}};
  }
  RunConfig own = config, theirs = source->config;
  for (RunConfig* each : {&own, &theirs}) each->mutant = each->second_mutant = MutantConfig{};
  if (training_hash(own) == training_hash(theirs)) return {};
  return {{"resume_from", fmt::format("{} trains differently from the cell that resumes from it: only layout, ranks, buckets and trace may differ",
                                      in_quotes(config.resume_from))}};
}

void begin_by_itself(RunConfig& config) {
  config.resume_from.clear();
  config.resume_step = 0;
}

}  // namespace lockstep
