#include "harness/verdict/plan/matrix.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <system_error>

#include "harness/base/errors.h"
#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/config/catalogue.h"
#include "harness/verdict/config/field.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/plan/question.h"

namespace lockstep {
namespace {

// In the order of the enumerators.
constexpr auto kVerdictNames = std::to_array<std::string_view>(
    {"identical", "within_envelope", "equivalent", "divergent", "inconclusive", "failed"});
static_assert(kVerdictNames.size() == static_cast<std::size_t>(VerdictKind::failed) + 1);
constexpr auto kOutcomeTestNames = std::to_array<std::string_view>({"t", "sign"});
static_assert(kOutcomeTestNames.size() == static_cast<std::size_t>(OutcomeTest::sign) + 1);

}  // namespace

bool trains_command(const Matrix& matrix) { return matrix.of_command && !matrix.cells.empty(); }

std::vector<int64_t> seeds_of(const Matrix& matrix, const Cell& cell) {
  return cell.seeds.empty() ? matrix.seeds : cell.seeds;
}

std::span<const std::string_view> verdict_names() { return kVerdictNames; }

const char* name_of(VerdictKind kind) { return kVerdictNames[static_cast<std::size_t>(kind)].data(); }

std::span<const std::string_view> outcome_test_names() { return kOutcomeTestNames; }

const char* name_of(OutcomeTest test) { return kOutcomeTestNames[static_cast<std::size_t>(test)].data(); }

std::vector<std::string> references_without_control(const Matrix& matrix) {
  std::set<std::string> controlled;
  for (const Cell& cell : matrix.cells) {
    if (cell.power_control) controlled.insert(learning_text(config_fields(cell.reference)));
  }
  std::vector<std::string> names;
  for (const Cell& cell : matrix.cells) {
    if (cell.power_control || cell.noise || cell.anchor) continue;
    if (controlled.contains(learning_text(config_fields(cell.reference)))) continue;
    if (std::ranges::find(names, cell.reference_name) == names.end()) names.push_back(cell.reference_name);
  }
  return names;
}

namespace fs = std::filesystem;

void check_out_dir(const Matrix& matrix, const std::string& out_dir) {
  std::error_code error;
  if (fs::exists(out_dir, error) && !fs::is_directory(out_dir, error)) {
    throw ConfigError(fmt::format("{}: is a file, not an output folder", out_dir));
  }
  const fs::path path = fs::path(out_dir) / "matrix.json";
  const FileText file = read_file(path.string());
  if (file.missing) return;
  const nlohmann::json json = parse_json(file.text);
  const auto name = json.is_object() ? json.find("name") : json.end();
  if (!json.is_object() || name == json.end() || !name->is_string()) {
    throw ConfigError(fmt::format("{}: is malformed; remove it if the folder is {}'s, or give another --out",
                                  path.string(), matrix.name));
  }
  if (name->get<std::string>() != matrix.name) {
    throw ConfigError(
        fmt::format("{}: contains the results of the matrix {}, but this config is {}; give another --out", out_dir,
                    name->get<std::string>(), matrix.name));
  }
}

std::string default_out_dir(const Matrix& matrix) { return "out/" + matrix.name; }

std::string matrix_stamp(const Matrix& matrix) {
  return nlohmann::json{{"name", matrix.name}, {"file", matrix.file}, {"schema_version", 1}}.dump(2) + "\n";
}

Place MatrixSource::place_of(std::string_view key) const {
  const auto at = places.find(key);
  return at != places.end() ? at->second : Place{0, 1, 1};
}

LOCKSTEP_WORDS(RanksPolicy, fit, "auto", "emulated", "real", "fit")

WordList words_of(OutcomeTest) { return outcome_test_names(); }

namespace {

using namespace ranges;

std::vector<std::string_view> metric_names() {
  std::vector<std::string_view> names;
  for (const CatalogueEntry& entry : catalogue_metrics()) names.push_back(entry.name);
  return names;
}

/// A question is a line of a table and no enumerator; in a config it is read and written as one.
FieldRef question_of(Matrix& matrix) {
  return WordRef{&matrix.question, question_names(),
                 [](const void* place) {
                   const auto at = std::ranges::find(question_names(), *static_cast<const std::string*>(place));
                   return static_cast<int>(at - question_names().begin());
                 },
                 [](void* place, int index) {
                   *static_cast<std::string*>(place) = question_names()[static_cast<std::size_t>(index)];
                 }};
}

// The member's own spelling is its key.
#define MATRIX(member, ...)                                                       \
  {                                                                               \
    {#member, __VA_ARGS__}, [](Matrix& m) -> FieldRef { return ref_to(m.member); } \
  }
const MatrixField kMatrixFields[] = {
    MATRIX(name, kAny, "", "name of the matrix and of its folder under `out/`: letters, digits, `_`, `-`, `.`", Words::name),
    {{"question", kAny, "", "what is asked of the cells"}, question_of},
    MATRIX(primary.metric, kAny, "",
        "metric by which the outcome is judged, one of `lockstep list metrics` that has enough pairs in the "
        "data; `auc_accuracy_24` is the area under the curve of `accuracy_24`; default the trainer's first: "
        "`accuracy_24` of energy", Words::any, Setter::user,
           &metric_names),
    MATRIX(primary.margin, Range{1e-12, 1e12}, "units of the metric",
        "differences within ± margin count as equal; more than half of a power control's effect is refused, and "
        "reports say if the margin was changed after the runs"),
    MATRIX(primary.target, kMetricUnits, "units of the metric",
        "value of the metric to which runs are timed, in steps. The metric must be measured during the run, and "
        "a run that does not reach the value has no time; 0: none"),
    MATRIX(primary.alpha, Range{1e-9, 0.5, false, true}, "", "level of each of the two one-sided tests"),
    MATRIX(primary.test, kAny, "",
        "test that decides: `t`, Student's t on the mean of the paired differences, which assumes that they are "
        "normal; `sign`, the sign test on their median, which assumes no shape and needs more seeds, at least 5 "
        "(for `divergent` 6)"),
    MATRIX(band.floor, Range{1e-6, 1e12}, "", "c of the band's floor, c · ε · sum of the terms' sizes"),
    MATRIX(band.exact, Range{0, 1}, "",
        "above 0: the band is this times the larger of the gradient and the sum of the terms' sizes, without "
        "twins; certificates use 1e-12 unless it is given"),
    MATRIX(ranks, kAny, "",
        "`auto`: emulated ranks, certified by a prefix on real ones; `emulated`; `real`; `fit`: real where the "
        "machine or the job has room for all ranks of the layout, else as `auto`"),
    MATRIX(certify_steps, kStep, "steps",
        "length of the prefix of each cell that is repeated on real ranks, with one seed; 0: none"),
    MATRIX(certify.exact, kStep, "steps",
        "first steps of each cell and its reference that are repeated in exact arithmetic, with one seed; 0: "
        "none"),
    MATRIX(forced_steps, kStep, "steps",
        "steps at which gradients are compared at the reference's parameters. A step that no run reaches is "
        "refused, unless `--set steps` has shortened the runs; []: none; default `[0, 1, 2, 5, 10, 20, 50, 100, "
        "200, 500]`"),
    MATRIX(seeds_auto.first, Range{2, 10000}, "seeds", "with `seeds: auto`: seeds of the first interim analysis"),
    MATRIX(seeds_auto.step, Range{1, 10000}, "seeds", "with `seeds: auto`: seeds added for each further interim analysis"),
    MATRIX(seeds_auto.most, Range{2, 10000}, "seeds", "with `seeds: auto`: seeds of the last interim analysis"),
    MATRIX(seeds_auto.budget_s, Range{0, 31536000}, "s",
        "with `seeds: auto`: no interim analysis begins after this time; 0: no limit"),
    MATRIX(timing.steps, Range{2, 1e6}, "steps", "length of a timed run"),
    MATRIX(timing.repeats, Range{3, 1000}, "runs", "runs of each timed layout"),
    MATRIX(allow_no_negatives, kAny, "",
        "a cell may have no negatives (`negatives: local` with one row per rank): its loss is 0 and it learns "
        "nothing"),
    MATRIX(launcher, kAny, "",
        "what starts real ranks: `local`, `slurm`, `torchrun`, `openmpi`, `mpich`, `srun`, each with options "
        "behind it, or `external:COMMAND`; the run's bits do not depend on it"),
    MATRIX(replay, kAny, "",
        "trace of a kept step: only that step is computed, from the state that the trace holds", Words::path),
    MATRIX(allow_unequal_batch, kAny, "",
        "a cell's global batch may differ from its reference's; both must then take as many steps, or as many "
        "samples"),
};
#undef MATRIX

/// Those, and every question's own.
const std::vector<MatrixField>& all_fields() {
  static const std::vector<MatrixField> fields = [] {
    std::vector<MatrixField> all(std::begin(kMatrixFields), std::end(kMatrixFields));
    for (const QuestionPlan* question : question_plans()) {
      if (question->fields == nullptr) continue;
      const auto own = question->fields();
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }();
  return fields;
}

}  // namespace

std::span<const MatrixField> matrix_fields() { return all_fields(); }

const MatrixField* find_matrix_field(std::string_view key) {
  const auto at = std::ranges::find(all_fields(), key, [](const MatrixField& field) { return field.spec.key; });
  return at != all_fields().end() ? &*at : nullptr;
}

}  // namespace lockstep
