#include "harness/suites/checkpoint/trainer/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "harness/base/read_file.h"
#include "harness/base/same_bits.h"
#include "harness/lib/checkpoint/saver.h"
#include "harness/lib/checkpoint/survey.h"
#include "harness/suites/checkpoint/trainer/bench.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/trace/reader.h"

namespace lockstep::restarts {
namespace {

bool same_series(const Series& a, const Series& b) {
  if (a.steps != b.steps || a.values.size() != b.values.size()) return false;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    if (!same_bits(a.values[i], b.values[i])) return false;
  }
  return true;
}

std::string curve_difference(const RankResult& expected, const RankResult& found) {
  for (const auto& [name, series] : expected.curves) {
    const auto other = found.curves.find(name);
    if (other == found.curves.end()) return fmt::format("curve {}: missing", name);
    if (!same_series(series, other->second)) {
      return fmt::format("curve {}: {} values expected, {} found, or other ones", name, series.values.size(),
                         other->second.values.size());
    }
  }
  for (const auto& [name, value] : expected.metrics) {
    const auto other = found.metrics.find(name);
    if (other == found.metrics.end() || !same_bits(other->second, value))
      return fmt::format("metric {}: {} expected", name, value);
  }
  return "";
}

std::string result_difference(const RankResult& expected, const RankResult& found) {
  if (found.status != "finished") {
    return fmt::format("it did not finish: {}", found.error.empty() ? "no result" : found.error);
  }
  if (std::string curves = curve_difference(expected, found); !curves.empty()) return curves;
  if (found.parameters_hash != expected.parameters_hash) {
    return fmt::format("last parameters: hash {} expected, found {}", expected.parameters_hash, found.parameters_hash);
  }
  return "";
}

bool same_record(const Record& a, const Record& b) {
  return a.phase == b.phase && a.name == b.name && a.shape == b.shape && a.stats == b.stats && a.ids == b.ids &&
         same_bits(a.value, b.value) && a.payload == b.payload && a.collective == b.collective;
}

std::string step_difference(const StepRecords& expected, const StepRecords& found) {
  if (expected.step != found.step) return fmt::format("step {} expected, found {}", expected.step, found.step);
  for (std::size_t i = 0; i < expected.records.size() && i < found.records.size(); ++i) {
    if (!same_record(expected.records[i], found.records[i]))
      return fmt::format("step {}: {}, {}", expected.step, name_of(expected.records[i].phase), expected.records[i].name);
  }
  if (expected.records.size() == found.records.size()) return "";
  return fmt::format("step {}: {} records expected, found {}", expected.step, expected.records.size(),
                     found.records.size());
}

std::string trace_difference(const std::string& expected_path, const std::string& found_path) {
  const FileText expected_bytes = read_file(expected_path), found_bytes = read_file(found_path);
  if (!expected_bytes) return expected_path + ": " + expected_bytes.problem;
  if (!found_bytes) return found_path + ": " + found_bytes.problem;
  if (expected_bytes.text == found_bytes.text) return "";
  try {
    TraceReader expected(expected_path), found(found_path);
    for (;;) {
      const auto a = expected.next(), b = found.next();
      if (!a && !b) break;
      if (!b) return fmt::format("step {} expected, the trace ends before: {}", a->step, found.end());
      if (!a) return fmt::format("step {} was not expected", b->step);
      if (std::string step = step_difference(*a, *b); !step.empty()) return step;
    }
  } catch (const TraceError& error) {
    return error.what();
  }
  return "the same records in other bytes";
}

}  // namespace

Kept kept_in(const std::string& run_dir) {
  Kept kept;
  const checkpoint::Survey found = checkpoint::survey(checkpoint::posix_storage(), run_dir + "/checkpoints", true);
  for (const checkpoint::Entry& entry : found.entries) {
    if (entry.standing == checkpoint::Standing::whole) kept.whole.push_back(entry.commit.step);
    if (entry.standing == checkpoint::Standing::damaged) ++kept.damaged;
  }
  return kept;
}

std::string best_model_problem(const std::string& run_dir, const RunConfig& config) {
  const Series curve = result_of(run_dir, 0).curves.at(std::string(spec_of(config).shown_metric));
  const auto value_at = [&](int64_t step) {
    const auto at = std::ranges::find(curve.steps, step);
    return at == curve.steps.end() ? -std::numeric_limits<double>::infinity() : curve.values[static_cast<std::size_t>(at - curve.steps.begin())];
  };
  int64_t best = -1;
  for (const int64_t step : curve.steps) {
    if (checkpoint::due(step, config.checkpoint.every) && (best < 0 || value_at(step) > value_at(best))) best = step;
  }
  const checkpoint::ReadPointer pointer = checkpoint::read_pointer(checkpoint::posix_storage(), run_dir + "/checkpoints", checkpoint::kBest);
  const int64_t named = pointer.missing ? -1 : pointer.pointer.step;
  if (best < 0 ? named >= 0 : named < 0 || value_at(named) < value_at(best)) return fmt::format("best_model: step {} expected, found {}", best, named);
  const Kept kept = kept_in(run_dir);
  if (named >= 0 && std::ranges::find(kept.whole, named) == kept.whole.end()) return fmt::format("best_model: step {} is not whole", named);
  return "";
}

std::string first_difference(const std::string& expected_dir, const std::string& found_dir, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string result = result_difference(result_of(expected_dir, rank), result_of(found_dir, rank));
    if (!result.empty()) return fmt::format("rank {}: {}", rank, result);
    const std::string trace = trace_difference(trace_of(expected_dir, rank), trace_of(found_dir, rank));
    if (!trace.empty()) return fmt::format("rank {}: trace: {}", rank, trace);
  }
  return "";
}

std::string trace_difference_before(const std::string& expected_dir, const std::string& found_dir, int ranks, int64_t step) {
  for (int rank = 0; rank < ranks; ++rank) {
    try {
      TraceReader expected(trace_of(expected_dir, rank)), found(trace_of(found_dir, rank));
      for (;;) {
        const auto a = expected.next(), b = found.next();
        if (!a || a->step >= step) break;
        std::string problem = b ? step_difference(*a, *b) : fmt::format("step {} expected, {}", a->step, found.end());
        if (!problem.empty()) return fmt::format("rank {}: trace: {}", rank, problem);
      }
    } catch (const TraceError& error) {
      return fmt::format("rank {}: trace: {}", rank, error.what());
    }
  }
  return "";
}

std::string training_difference(const std::string& expected_dir, const std::string& found_dir) {
  const std::string result = result_difference(result_of(expected_dir, 0), result_of(found_dir, 0));
  return result.empty() ? "" : "rank 0: " + result;
}

}  // namespace lockstep::restarts
