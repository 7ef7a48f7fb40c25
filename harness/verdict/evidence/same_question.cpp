#include "harness/verdict/evidence/same_question.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "harness/base/errors.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/evidence/align.h"
#include "harness/verdict/config/trainer_spec.h"

namespace lockstep {
namespace {

using Differences = std::vector<QuestionDifference>;

void note(Differences& differences, const std::string& what, const std::string& a, const std::string& b) {
  if (a != b) differences.push_back({what, a, b});
}

/// These keys say how rows are fetched, not which rows.
bool is_about_speed(const std::string& key) { return key == "data.cache" || key == "data.prefetch"; }

void note_length(Differences& differences, const std::string& what, int64_t a, int64_t b,
                 const RunConfig& run_a, const RunConfig& run_b) {
  const int64_t batch_a = run_a.layout.global_batch(), batch_b = run_b.layout.global_batch();
  // A run with another batch has seen as much if it has seen as many samples.
  if (batch_a == batch_b || a * batch_a == b * batch_b) {
    if (batch_a == batch_b && a != b)
      note(differences, what, fmt::format("{} steps", a), fmt::format("{} steps", b));
    return;
  }
  note(differences, what, fmt::format("{} samples", a * batch_a), fmt::format("{} samples", b * batch_b));
}

/// Empty where the trainer is none of ours.
std::string shown_metric_of(const RunConfig& config) {
  const TrainerSpec* trainer = find_trainer_spec(config.trainer);
  return trainer ? std::string(trainer->shown_metric) : "";
}

void refuse_out_of_range(const Primary& primary) {
  std::vector<ConfigProblem> problems;
  if (!(primary.margin > 0) || !std::isfinite(primary.margin))
    problems.push_back(
        {"--margin", 0, 0, fmt::format("the margin is {}; it must be above 0", primary.margin), ""});
  if (!(primary.alpha > 0 && primary.alpha < 0.5))
    problems.push_back(
        {"--alpha", 0, 0, fmt::format("alpha is {}; it must lie in (0, 0.5)", primary.alpha), ""});
  if (!problems.empty()) throw ConfigError(problems);
}


using Shapes = std::map<std::string, std::vector<int64_t>>;

/// Of all parameters that the run first records, the whole's; nothing where one may be a part of a tensor.
std::optional<Shapes> shapes_of(const std::string& dir) {
  RunReader run(dir);
  Shapes shapes;
  while (const std::optional<StepOfRun> step = shapes.empty() ? run.next() : std::nullopt) {
    for (const StepRecords& rank : step->ranks) {
      for (const Record& record : rank.records) {
        if (record.phase != Phase::parameters || record.name.starts_with("buffer/")) continue;
        if (!record.replicated && !record.placement && step->ranks.size() > 1) return std::nullopt;
        shapes.emplace(record.name, record.placement ? record.placement->whole : record.shape);
      }
    }
  }
  return shapes;
}

/// What optimizers hold of flattened parameters is no evidence of another model: a piece of one dimension where the other run has
/// another shape, nor a tensor without a name of its own.
void leave_out_flat(Shapes& a, Shapes& b) {
  const auto is_flat = [](const auto& each, const Shapes& others) {
    const auto other = others.find(each.first);
    const bool is_other = other != others.end() && other->second != each.second;
    return each.first.starts_with("unnamed") || (is_other && (each.second.size() == 1 || other->second.size() == 1));
  };
  const Shapes whole_a = a;
  std::erase_if(a, [&](const auto& each) { return is_flat(each, b); });
  std::erase_if(b, [&](const auto& each) { return is_flat(each, whole_a); });
}

}  // namespace

void require_one_model(const std::string& run_a, const std::string& run_b) {
  std::optional<Shapes> a = shapes_of(run_a), b = shapes_of(run_b);
  if (!a || !b) return;
  const std::size_t all_of_a = a->size(), all_of_b = b->size();
  leave_out_flat(*a, *b);
  if (a->empty() || b->empty()) return;
  std::multiset<std::vector<int64_t>> left;
  for (const auto& [name, shape] : *b) left.insert(shape);
  std::size_t alike = 0, of_one_shape = 0;
  std::vector<std::string> told;
  for (const auto& [name, shape] : *a) {
    const auto other = b->find(name);
    alike += other != b->end() && other->second == shape;
    if (const auto found = left.find(shape); found != left.end()) ++of_one_shape, left.erase(found);
    if (told.size() < 3 && (other == b->end() || other->second != shape)) {
      told.push_back(fmt::format("{} is [{}] and {}", name, fmt::join(shape, ", "),
                                 other == b->end() ? "missing" : fmt::format("[{}]", fmt::join(other->second, ", "))));
    }
  }
  if (2 * std::max(alike, of_one_shape) >= std::min(a->size(), b->size())) return;
  throw ConfigError(fmt::format("{} and {}: these are not two runs of one model: of {} and {} parameters {} agree in name and shape; {}", run_a, run_b, all_of_a,
                                all_of_b, alike, fmt::join(told, ", ")));
}

std::vector<QuestionDifference> data_differences(const RunConfig& a, const RunConfig& b) {
  Differences differences;
  note(differences, "trainer", a.trainer, b.trainer);
  const auto rows_a = config_fields(a), rows_b = config_fields(b);
  const std::map<std::string, std::string> other(rows_b.begin(), rows_b.end());
  for (const auto& [key, value] : rows_a) {
    if (key.starts_with("data.") && !is_about_speed(key)) note(differences, key, value, other.at(key));
  }
  return differences;
}

std::vector<QuestionDifference> run_differences(const RunConfig& a, const RunConfig& b) {
  Differences differences = data_differences(a, b);
  // Evaluations after as many steps or as many samples are the same evaluations.
  if (a.eval_every.is_never() != b.eval_every.is_never()) {
    const auto words = [](const RunConfig& run) { return std::string(run.eval_every.is_never() ? "never" : "evaluated"); };
    note(differences, "eval_every", words(a), words(b));
  } else if (a.eval_every != b.eval_every) {
    note_length(differences, "eval_every", a.eval_every.steps(), b.eval_every.steps(), a, b);
  }
  note_length(differences, "steps", steps_to_run(a), steps_to_run(b), a, b);
  return differences;
}

std::vector<QuestionDifference> question_differences(const Arm& a, const Arm& b, const Given& given) {
  Differences differences = run_differences(a.config, b.config);
  if (a.question && b.question) note(differences, "question", *a.question, *b.question);
  if (!a.primary || !b.primary) return differences;
  const auto number = [](double value) { return fmt::format("{}", value); };
  if (given.metric.empty()) note(differences, "primary.metric", a.primary->metric, b.primary->metric);
  if (!given.margin)
    note(differences, "primary.margin", number(a.primary->margin), number(b.primary->margin));
  if (!given.alpha) note(differences, "primary.alpha", number(a.primary->alpha), number(b.primary->alpha));
  note(differences, "primary.test", name_of(a.primary->test), name_of(b.primary->test));
  return differences;
}

Primary primary_of(const Arm& a, const Arm& b, const Given& given) {
  const std::optional<Primary>& declared = a.primary ? a.primary : b.primary;
  Primary primary = declared.value_or(Primary{});
  if (primary.metric.empty()) primary.metric = shown_metric_of(a.config);
  if (!given.metric.empty()) primary.metric = given.metric;
  if (given.alpha) primary.alpha = *given.alpha;
  if (given.margin) {
    primary.margin = *given.margin;
  } else if (!declared) {
    throw ConfigError("--margin: no matrix declares one for these runs; a margin is in units of the metric");
  } else if (primary.metric != declared->metric) {
    throw ConfigError(fmt::format("--margin: the declared one ({}) is of {}; {} needs its own",
                                  declared->margin, declared->metric, primary.metric));
  }
  refuse_out_of_range(primary);
  return primary;
}

}  // namespace lockstep
