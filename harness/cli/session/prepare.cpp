#include "harness/cli/session/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/base/clean_text.h"
#include "harness/base/errors.h"
#include "harness/base/hex.h"
#include "harness/base/nearest.h"
#include "harness/base/read_file.h"
#include "harness/base/shell_word.h"
#include "harness/run/identity.h"
#include "harness/run/probe.h"
#include "harness/verdict/config/metrics.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/plan/launcher_choice.h"
#include "harness/verdict/plan/matrix_folder.h"
#include "harness/verdict/plan/memory.h"
#include "harness/verdict/plan/question.h"
#include "harness/verdict/plan/read_matrix.h"
#include "harness/verdict/plan/timing.h"
#include "harness/verdict/questions/question_judge.h"

namespace lockstep {
namespace {

/// What a config says of its data: equal ones read the same. How rows are read ahead or kept is no part of it.
std::string key_of(const RunConfig& config) {
  std::string key = config.trainer;
  if (spec_of(config).is_command()) {
    for (const RunField& field : spec_of(config).fields()) key += fmt::format("\n{}={}", field.spec.key, text_of(field.of(config)));
    return key;
  }
  for (const RunField* field : fields_of(spec_of(config))) {
    const std::string_view name = field->spec.key;
    if (!name.starts_with("data.") || name == "data.cache" || name == "data.prefetch") continue;
    key += fmt::format("\n{}={}", name, text_of(field->of(config)));
  }
  // Of a trainer that makes its data they follow from keys of its own, too.
  if (const auto counts = spec_of(config).counted_samples(config)) {
    key += fmt::format("\n{} {} {}", counts->train, counts->holdout, counts->test);
  }
  return key;
}

/// What the samples that were read do not allow, in words, and in how many runs of cells.
class SampleProblems {
 public:
  SampleProblems(const Matrix& matrix, const PlannedData& data) : matrix_(matrix), data_(data) {}

  /// `judged`: also by the metrics that it is judged by.
  void check(const std::string& name, const RunConfig& config, bool judged) {
    const DataFacts* found = data_.find(config);
    LOCKSTEP_CHECK(found != nullptr, "the samples of every run are counted");
    const DataConfig& data = config.data;
    add(name, data.train_file, too_few_samples(config, found->samples));
    if (!judged) return;
    if (!asked_by(matrix_).by_outcome) return;
    add(name, data.test_file, unmeasured(matrix_.primary.metric, config, found->samples));
  }

  void throw_if_any() const {
    std::vector<ConfigProblem> problems;
    for (const auto& [what, first] : found_) {
      const auto& [file, message] = what;
      problems.push_back({file.empty() ? matrix_.file : file, 0, 0, "cell '" + first + "': " + message, ""});
    }
    if (!problems.empty()) throw ConfigError(std::move(problems));
  }

 private:
  void add(const std::string& name, const std::string& file, const std::string& message) {
    if (!message.empty()) found_.emplace(std::pair(file, message), name);
  }

  const Matrix& matrix_;
  const PlannedData& data_;
  std::map<std::pair<std::string, std::string>, std::string> found_;  // by file and message: the first name
};

void check_samples(const Matrix& matrix, const PlannedData& data) {
  SampleProblems problems(matrix, data);
  for (const Cell& cell : matrix.cells) {
    problems.check(cell.name, cell.config, true);
    problems.check(cell.reference_name, cell.reference, true);
  }
  for (const Layout& layout : matrix.timing.layouts) {
    problems.check(timing_name(layout), timing_config(matrix, layout), false);
  }
  problems.throw_if_any();
}

}  // namespace

void check_question(const Matrix& matrix) {
  const QuestionJudge& judge = judge_of(matrix.question);
  if (judge.problems == nullptr) return;
  std::vector<ConfigProblem> problems = judge.problems(matrix);
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

void PlannedData::add(const RunConfig& config, DataFacts facts) {
  facts_.emplace_back(key_of(config), std::move(facts));
}

const DataFacts* PlannedData::find(const RunConfig& config) const {
  // Configs of one matrix mostly share their data, and neighbours do.
  const auto same = [key = key_of(config)](const auto& each) { return each.first == key; };
  const auto found = std::find_if(facts_.rbegin(), facts_.rend(), same);
  return found == facts_.rend() ? nullptr : &found->second;
}

std::string PlannedData::hash_of(const RunConfig& config) const {
  const DataFacts* facts = find(config);
  return facts == nullptr ? "" : facts->hash;
}

std::string PlannedData::hash() const {
  std::set<std::string> hashes;
  for (const auto& [key, facts] : facts_) hashes.insert(facts.hash);
  if (hashes.size() == 1) return *hashes.begin();
  std::string all;
  for (const std::string& hash : hashes) all += hash + "\n";
  return hash_in_hex(all);
}

PlannedData check_data(const Matrix& matrix) {
  PlannedData data;
  const auto add = [&data](const RunConfig& config) {
    if (data.find(config) == nullptr) data.add(config, spec_of(config).inspect_data(config));
  };
  for (const Cell& cell : matrix.cells) {
    add(cell.config);
    add(cell.reference);
  }
  check_samples(matrix, data);
  return data;
}

Prepared prepare(const MatrixSelection& selection) {
  return prepare(selection, read_config_text(selection.config));
}

Prepared prepare(const MatrixSelection& selection, std::string config_text) {
  Prepared prepared;
  prepared.config_text = std::move(config_text);
  const Matrix matrix =
      parse_matrix(prepared.config_text, selection.config, {selection.set, selection.only, selection.seeds, selection.launcher});
  prepared.plan.matrix = matrix;
  check_question(matrix);
  if (prepared.nothing_selected()) return prepared;
  prepared.out_dir = selection.out.empty() ? default_out_dir(matrix) : selection.out;
  check_out_dir(matrix, prepared.out_dir);
  prepared.rank_program = rank_program_path();
  prepared.data = check_data(matrix);
  std::string data_hash = prepared.data.hash();
  // The kept step that a replay begins from is read by its runs as data are.
  if (!matrix.replay.empty()) data_hash = hash_in_hex(data_hash + hash_of_file(matrix.replay));
  prepared.identity = trains_command(matrix) ? probe_identity(find_probe(), data_hash)
                                                                         : current_identity(prepared.rank_program, data_hash);
  prepared.plan = make_plan(matrix, prepared.out_dir, prepared.identity);
  return prepared;
}

std::vector<std::string> lacking_here(const Plan& plan) {
  const bool here = launcher_choice(plan.matrix.launcher).kind == LauncherChoice::Kind::local;
  return here ? lacking_memory(plan, machine_memory_bytes()) : std::vector<std::string>{};
}

std::string nothing_selected_text(const Prepared& prepared, const MatrixSelection& selection) {
  std::string names;
  const Overrides all{selection.set, "", selection.seeds, selection.launcher};
  for (const Cell& cell : parse_matrix(prepared.config_text, selection.config, all).cells) {
    names += "\n  " + cell.name;
  }
  if (names.empty()) return fmt::format("{} has no cells\n", selection.config);
  return fmt::format("no cell of {} is selected by --only {}; its cells are:{}\n", selection.config,
                     shell_quoted(selection.only), names);
}

std::string plan_hash(const Plan& plan) {
  std::string all;
  for (const PlannedRun& run : plan.runs) all += run.hash + "\n";
  return hash_in_hex(all);
}

}  // namespace lockstep
