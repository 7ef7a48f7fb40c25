// A plan in words and as JSON.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "harness/base/errors.h"
#include "harness/base/text.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/plan/interim_analyses.h"
#include "harness/verdict/plan/plan.h"
#include "harness/verdict/plan/plan_history.h"
#include "harness/verdict/plan/question.h"

namespace lockstep {
namespace {

int cores_or(int jobs) {
  return jobs > 0 ? jobs : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int cores_of(const PlannedRun& run, int jobs) {
  return run.exclusive ? jobs : std::min(run.config.layout.world_size, jobs);
}

std::string duration(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 100) return fmt::format("{:.0f} s", seconds);
  if (seconds < 6000) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string ranks_text(const RunConfig& config) {
  if (config.layout.world_size == 1) return "1 process";
  return fmt::format("{} {}", config.layout.world_size, config.backend == Backend::gloo ? "real" : "emulated");
}

// Runs that differ by seed (or by permutation) alone: one line of the text.
struct Line {
  const PlannedRun* first = nullptr;
  std::string name;
  std::size_t runs = 0, reused = 0;
  double estimate_s = 0, memory_bytes = 0;
  std::string why;
};

std::vector<Line> lines_of(const Plan& plan) {
  std::vector<Line> lines;
  std::map<std::pair<RunRole, std::string>, std::size_t> index;
  const auto line_of = asked_by(plan.matrix).line_of;
  for (const PlannedRun& run : plan.runs) {
    // What twins cost in all is of interest, and what each is of stands above.
    const std::string name = run.role == RunRole::forced_twin ? "in float64" : line_of != nullptr ? line_of(run) : run.cell;
    const auto [at, is_new] = index.emplace(std::pair(run.role, name), lines.size());
    if (is_new) lines.push_back({&run, name, 0, 0, 0, 0, ""});
    Line& line = lines[at->second];
    ++line.runs;
    line.memory_bytes = std::max(line.memory_bytes, run.memory_bytes);
    if (run.reused) {
      ++line.reused;
    } else {
      line.estimate_s += run.estimate_s;
      if (line.why.empty()) line.why = run.why;
    }
  }
  return lines;
}

std::size_t width_of(std::string_view text) {  // columns: UTF-8 continuation bytes have none
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t width) {
  const std::size_t has = width_of(text);
  return text + std::string(width > has ? width - has : 0, ' ');
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) line += " " + padded(row[i], widths[i]) + " ";
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string gigabytes(double bytes) { return fmt::format("{:.1f} GB", bytes / 1e9); }

/// Of a plan's time, what evaluations take by the model that it is estimated by.
double evaluations_total_s(const Plan& plan, int cores) {
  double core_seconds = 0;
  for (const PlannedRun& run : plan.runs) {
    if (!run.reused) core_seconds += std::min(run.estimate_s, modelled_evaluation_s(run)) * cores_of(run, cores);
  }
  return core_seconds / cores;
}

std::string role_text(RunRole role) {
  std::string text = name_of(role);
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

std::string headline(const Matrix& matrix) {
  const QuestionPlan& asks = asked_by(matrix);
  if (asks.headline != nullptr) {
    return fmt::format("{} · {}: {}\n", matrix.name, asks.name, asks.headline(matrix));
  }
  if (!asks.by_outcome) {
    return fmt::format("{} · {}: {}\n", matrix.name, asks.name,
                       counted(static_cast<int64_t>(matrix.seeds.size()), "seed"));
  }
  if (matrix.seeds_auto.on) {
    return fmt::format("{} · {}: {}, margin ± {}, paired, {}, until decided\n", matrix.name, asks.name,
                       matrix.primary.metric, matrix.primary.margin, interim_analyses_in_words(matrix.seeds_auto));
  }
  return fmt::format("{} · {}: {}, margin ± {}, {} paired {}\n", matrix.name, asks.name,
                     matrix.primary.metric, matrix.primary.margin, matrix.seeds.size(),
                     matrix.seeds.size() == 1 ? "seed" : "seeds");
}

// What the looks after this one add at most: as many runs again for each seed more.
std::string most_text(const Plan& plan, int cores) {
  const SeedsAuto& seeds = plan.matrix.seeds_auto;
  const auto now = static_cast<double>(plan.matrix.seeds.size());
  if (!seeds.on || now == 0 || now >= seeds.most) return "";
  double runs = 0, core_seconds = 0;
  for (const PlannedRun& run : plan.runs) {
    if (run.role != RunRole::cell && run.role != RunRole::reference) continue;
    runs += 1;
    core_seconds += run.estimate_s * cores_of(run, cores);
  }
  const double more = seeds.most / now - 1;
  const std::string budget =
      seeds.budget_s > 0 ? fmt::format("; no interim analysis starts after {}", duration(seeds.budget_s)) : "";
  return fmt::format(
      "first interim analysis: {} seeds; with all {}, if no cell is decided before: {:.0f} more runs, about {}{}\n",
      plan.matrix.seeds.size(), seeds.most, runs * more, duration(core_seconds * more / cores), budget);
}

// Where evaluations and saves do not meet, the best model that was seen is not one that is kept.
std::string best_model_text(const Plan& plan) {
  for (const PlannedRun& run : plan.runs) {
    const RunConfig& config = run.config;
    if (!config.checkpoint.on() || (run.role != RunRole::cell && run.role != RunRole::reference)) continue;
    const int64_t all = steps_to_run(config), every = config.checkpoint.every, evaluated = config.eval_every.evaluations(all);
    const int64_t period = config.eval_every.steps() > 0 ? config.eval_every.steps() : all;  // the last step is always evaluated
    const int64_t saved = all / std::lcm(period, every) + (all % period != 0 && all % every == 0 ? 1 : 0);
    if (evaluated == 0 || saved == evaluated) continue;
    return fmt::format("checkpoints: {} of {} of a run {} at a step that is saved (eval_every {}, checkpoint.every {}): {}; let checkpoint.every divide eval_every and steps\n",
                       saved == 0 ? std::string("none") : std::to_string(saved), counted(evaluated, "evaluation"),
                       saved == 1 || saved == 0 ? "is" : "are", config.eval_every.steps(), config.checkpoint.every,
                       saved == 0 ? "best_model is not written" : "best_model names the best of those alone");
  }
  return "";
}

// What will show nothing is said before hours are spent on it.
std::string control_text(const Matrix& matrix) {
  if (!asked_by(matrix).by_outcome) return "";
  constexpr std::size_t kMostNamed = 5;
  std::vector<std::string> names = references_without_control(matrix);
  if (names.empty()) return "";
  const std::size_t more = names.size() > kMostNamed ? names.size() - kMostNamed : 0;
  names.resize(names.size() - more);
  if (more > 0) names.push_back(fmt::format("{} more", more));
  return fmt::format(
      "there is no power control for {}: nothing will show that a difference would be noticed in comparisons with {}; "
      "add a cell "
      "under power_controls\n",
      join_words(names), names.size() == 1 ? "it" : "them");
}

}  // namespace

double estimate_total_s(const Plan& plan, int jobs) {
  const int cores = cores_or(jobs);
  double core_seconds = 0, longest = 0;
  std::map<std::string, double> ends;  // of what others wait for
  for (const PlannedRun& run : plan.runs) {
    if (run.reused) continue;
    core_seconds += run.estimate_s * cores_of(run, cores);
    double end = run.estimate_s;
    for (const std::string& need : run.needs) {
      if (const auto at = ends.find(need); at != ends.end()) end = std::max(end, at->second + run.estimate_s);
    }
    if (run.role == RunRole::reference) ends[run.id] = end;
    longest = std::max(longest, end);
  }
  return std::max(core_seconds / cores, longest);
}

std::vector<std::string> lacking_memory(const Plan& plan, double machine_bytes) {
  std::vector<std::string> lacking;
  for (const Line& line : lines_of(plan)) {
    if (line.reused == line.runs || machine_bytes <= 0 || line.memory_bytes <= machine_bytes) continue;
    lacking.push_back(fmt::format("{} '{}' ({}) needs about {} of memory, but this machine has {}", role_text(line.first->role), line.name,
                                  ranks_text(line.first->config), gigabytes(line.memory_bytes), gigabytes(machine_bytes)));
  }
  return lacking;
}

double estimate_trace_bytes(const Plan& plan) {
  double bytes = 0;
  for (const PlannedRun& run : plan.runs) bytes += modelled_trace_bytes(run);
  return bytes;
}

std::string plan_text(const Plan& plan, int jobs) {
  std::vector<std::vector<std::string>> rows{
      {"ROLE", "NAME", "RUNS", "RANKS", "STEPS", "ESTIMATE", "MEMORY", "REUSED"}};
  std::size_t reused = 0;
  const bool various = asked_by(plan.matrix).draws_cells();
  for (const Line& line : lines_of(plan)) {
    reused += line.reused;
    const std::string all = line.reused == 0           ? "no"
                            : line.reused == line.runs ? "all"
                                                       : fmt::format("{}", line.reused);
    rows.push_back({role_text(line.first->role), line.name, fmt::format("{}", line.runs),
                    various ? "" : ranks_text(line.first->config),
                    various ? "" : fmt::format("{}", steps_to_run(line.first->config)),
                    line.reused == line.runs ? "-" : duration(line.estimate_s), gigabytes(line.memory_bytes),
                    line.why.empty() ? all : all + ": " + line.why});
  }
  const int cores = cores_or(jobs);
  std::string out = headline(plan.matrix);
  if (!plan.matrix.question_text.empty()) out += plan.matrix.question_text + "\n";
  out += table(rows);
  out += fmt::format("{}: {} to run, {} reused; about {} on {}", counted(static_cast<int64_t>(plan.runs.size()), "run"),
                     plan.runs.size() - reused, reused, duration(estimate_total_s(plan, cores)),
                     counted(cores, "core"));
  if (const double evaluations_s = evaluations_total_s(plan, cores); evaluations_s >= 1) {
    out += fmt::format(", {} of it for evaluations", duration(evaluations_s));
  }
  if (various) out += fmt::format(", about {:.1f} GB of traces", estimate_trace_bytes(plan) / 1e9);
  out += "\n";
  return out + best_model_text(plan) + control_text(plan.matrix) + most_text(plan, cores);
}

std::string plan_json(const Plan& plan, int jobs) {
  using Json = nlohmann::ordered_json;
  const int cores = cores_or(jobs);
  Json runs = Json::array();
  std::size_t reused = 0;
  for (const PlannedRun& run : plan.runs) {
    reused += run.reused ? 1 : 0;
    runs.push_back({{"id", run.id},
                    {"role", name_of(run.role)},
                    {"cell", run.cell},
                    {"seed", run.config.seed},
                    {"hash", run.hash},
                    {"world_size", run.config.layout.world_size},
                    {"ranks", run.config.backend == Backend::gloo ? "real" : "emulated"},
                    {"steps", steps_to_run(run.config)},
                    {"needs", run.needs},
                    {"estimate_s", run.estimate_s},
                    {"memory_bytes", run.memory_bytes},
                    {"reused", run.reused},
                    {"why", run.why},
                    {"config", Json::parse(canonical_json(run.config))}});
  }
  Json cells = Json::array();
  for (const Cell& cell : plan.matrix.cells) {
    Json expected = Json::array();
    for (const VerdictKind kind : cell.expected) expected.push_back(name_of(kind));
    cells.push_back({{"name", cell.name},
                     {"reference", cell.reference_name},
                     {"power_control", cell.power_control},
                     {"expected", expected}});
  }
  Json out{{"schema_version", 1},
           {"name", plan.matrix.name},
           {"file", plan.matrix.file},
           {"question", plan.matrix.question},
           {"seeds", plan.matrix.seeds},
           {"cells", cells},
           {"without_power_control",
            asked_by(plan.matrix).by_outcome ? references_without_control(plan.matrix) : std::vector<std::string>{}},
           {"runs", runs},
           {"reused", reused},
           {"jobs", cores},
           {"estimate_s", estimate_total_s(plan, cores)}};
  if (const SeedsAuto& seeds = plan.matrix.seeds_auto; seeds.on) {
    out["seeds_auto"] = {
        {"first", seeds.first}, {"step", seeds.step}, {"most", seeds.most}, {"budget_s", seeds.budget_s}};
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
