#include "harness/plan/matrix/matrix.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <set>
#include <system_error>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/trainer_spec.h"

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

std::vector<int> analysis_sizes(const SeedsAuto& seeds) {
  std::vector<int> sizes;
  for (int n = seeds.first; n < seeds.most; n += seeds.step) sizes.push_back(n);
  sizes.push_back(seeds.most);
  return sizes;
}

std::vector<int64_t> seeds_of_analysis(int count) {
  std::vector<int64_t> seeds(static_cast<std::size_t>(count));
  std::iota(seeds.begin(), seeds.end(), int64_t{0});
  return seeds;
}

void set_analysis(Matrix& matrix, const std::vector<int>& counts) {
  int most = 0;
  for (std::size_t i = 0; i < matrix.cells.size(); ++i) {
    matrix.cells[i].seeds = seeds_of_analysis(counts.at(i));
    most = std::max(most, counts[i]);
  }
  matrix.seeds = seeds_of_analysis(most);
}

std::string interim_analyses_in_words(const SeedsAuto& seeds) {
  return fmt::format("{} to {} seeds, {} at a time", seeds.first, seeds.most, seeds.step);
}

void check_seeds_auto(const MatrixSource& source, Problems& problems) {
  const SeedsAuto& seeds = source.matrix.seeds_auto;
  const QuestionPlan& asks = asked_by(source.matrix);
  if (!seeds.on) return;
  if (!asks.by_outcome) {
    problems.add(source.place_of("seeds"),
                 fmt::format("seeds: auto adds seeds until outcomes are decided; the question is {}", asks.name));
    return;
  }
  const bool has_first = source.places.contains("seeds_auto.first");
  if (seeds.first > seeds.most) {
    problems.add(
        source.place_of(has_first ? "seeds_auto.first" : "seeds_auto.most"),
        fmt::format("the first interim analysis has {} seeds, more than the last with {}", seeds.first, seeds.most));
  } else if (analysis_sizes(seeds).size() > static_cast<std::size_t>(kMostAnalyses)) {
    problems.add(
        source.place_of(source.places.contains("seeds_auto.step") ? "seeds_auto.step" : "seeds_auto.most"),
        fmt::format("{} make more than {} interim analyses", interim_analyses_in_words(seeds), kMostAnalyses));
  }
}

namespace {

void add_snapshots(RunConfig& config) {
  std::vector<int64_t>& kept = config.snapshot_steps;
  const std::vector<int64_t> more = drift_steps(config.steps);
  kept.insert(kept.end(), more.begin(), more.end());
  std::ranges::sort(kept);
  kept.erase(std::ranges::unique(kept).begin(), kept.end());
}

}  // namespace

bool rounds_alone(const Cell& cell) {
  if (cell.config.arithmetic == cell.reference.arithmetic) return false;
  RunConfig config = cell.config;
  config.arithmetic = cell.reference.arithmetic;
  return same_config(config, cell.reference);
}

std::vector<int64_t> drift_steps(int64_t steps) {
  std::vector<int64_t> at;
  for (int64_t decade = 1; decade < steps; decade *= 10) {
    for (const int64_t step : {decade, 2 * decade, 5 * decade}) {
      if (step < steps) at.push_back(step);
    }
  }
  if (steps > 1 && at.back() != steps - 1) at.push_back(steps - 1);
  return at;
}

void keep_drift_snapshots(std::vector<Cell>& cells) {
  std::vector<RunConfig> references;
  for (Cell& cell : cells) {
    if (!rounds_alone(cell)) continue;
    references.push_back(cell.reference);
    add_snapshots(cell.config);
  }
  for (Cell& cell : cells) {
    const auto same = [&cell](const RunConfig& reference) { return same_config(reference, cell.reference); };
    if (std::ranges::any_of(references, same)) add_snapshots(cell.reference);
  }
}

// The JSON Schema of matrices, from the same tables that read them.
namespace {

using Json = SchemaJson;

enum class Many { one, one_or_list, list };

/// A key that users may set, with the value that it may have for each trainer that has it.
struct UserKey {
  std::string key;
  std::vector<Json> values;
};

/// The core's keys, then every trainer's own: which of them a matrix may have is its trainer's to say.
const std::vector<UserKey>& user_keys() {
  static const std::vector<UserKey> keys = [] {
    std::vector<UserKey> all;
    for (const TrainerSpec* trainer : trainer_specs()) {
      const RunConfig defaults(*trainer);
      for (const RunField* field : fields_of(*trainer)) {
        if (field->named != nullptr) continue;  // a key that some user has named: the pattern says which there may be
        if (field->spec.setter != Setter::user) continue;
        Json value = field_schema(field->spec, field->of(defaults));
        const auto known = std::ranges::find(all, field->spec.key, &UserKey::key);
        if (known == all.end()) {
          all.push_back({std::string(field->spec.key), {std::move(value)}});
        } else if (find_core_field(field->spec.key) == nullptr && known->values.back() != value) {
          known->values.push_back(std::move(value));
        }
      }
    }
    return all;
  }();
  return keys;
}

// An object of RunConfig keys, each with one value, one or several, or several.
Json settings_schema(Many many) {
  Json object = object_schema();
  const auto as_many = [many](const Json& one) -> Json {
    const Json list{{"type", "array"}, {"items", one}, {"minItems", 1}};
    return many == Many::one ? one : many == Many::list ? list : Json{{"anyOf", {one, list}}};
  };
  for (const auto& [key, values] : user_keys()) add_property(object, key, as_many({{"$ref", "#/definitions/" + key}}));
  // Keys that users name: with their group in front, or within it.
  for (const TrainerSpec* trainer : trainer_specs()) {
    for (const OpenGroup& group : trainer->open_groups) {
      const std::string word(group.prefix.substr(0, group.prefix.size() - 1)), name = "[A-Za-z_][A-Za-z0-9_]*$";
      const Json value = as_many({{"$ref", "#/definitions/" + word + ".NAME"}});
      object["patternProperties"]["^" + word + "\\." + name] = value;
      const Json within{{"type", "object"}, {"description", group.help}, {"patternProperties", {{"^" + name, value}}}, {"additionalProperties", false}};
      object["properties"][word] = within;
    }
  }
  return object;
}

Json sections() {
  const Json verdict{{"type", "string"}, {"enum", verdict_names()}};
  const Json verdicts{{"anyOf", {verdict, {{"type", "array"}, {"items", verdict}, {"minItems", 1}}}}};
  const Json rule{{"$ref", "#/definitions/rule"}};
  Json reference = settings_schema(Many::one);
  reference["properties"]["same_as"] = {
      {"type", "string"},
      {"enum", {"cell"}},
      {"description", "the cell's own config, with the other keys applied"}};
  reference["description"] = "the run that every cell should equal";
  Json axes = settings_schema(Many::list);
  axes["description"] = "keys with lists of values: every combination is a cell";
  axes["minProperties"] = 1;
  Json expectation = object_schema();
  expectation["properties"] = {{"when", rule}, {"verdict", verdicts}};
  expectation["required"] = {"verdict"};
  Json out;
  out["seeds"] = seeds_schema();
  out["reference"] = std::move(reference);
  out["axes"] = std::move(axes);
  out["exclude"] = list_schema(rule, "combinations that are left out");
  Json included = settings_schema(Many::one);
  included["minProperties"] = 1;
  included["properties"]["reference"] = {{"$ref", "#/definitions/settings"}};
  included["properties"]["reference"]["description"] = "further settings of this cell's reference";
  included["properties"]["seeds"] = out["seeds"];
  out["include"] =
      list_schema(std::move(included),
                  "further cells; an axis that a cell does not name takes its first value");
  out["power_controls"] = list_schema(rule, "cells that learn so differently that they must come out divergent");
  Json perturbation{{"$ref", "#/definitions/perturb"}};
  out["noise"] = list_schema(std::move(perturbation), "A/A pairs of the first reference: what they differ in");
  out["noise_of"] = list_schema(rule, "cells that get A/A pairs, too: each against itself, as the key noise says");
  out["expect"] =
      list_schema(std::move(expectation), "expected verdicts; the first rule that matches a cell holds");
  return out;
}

}  // namespace

Json seeds_schema() {
  const Json seed{{"type", "integer"}, {"minimum", 0}};
  const Json seed_list{{"type", "array"}, {"items", seed}, {"minItems", 1}, {"uniqueItems", true}};
  const Json seed_text{{"type", "string"}, {"pattern", "^( *[0-9]+ *(\\.\\.[0-9]+|( *, *[0-9]+)*) *|auto)$"}};
  return {{"anyOf", {seed, seed_list, seed_text}},
          {"description", "0..9 (both included), a list, one seed, or auto"}};
}

std::string config_schema() {
  const Matrix matrix;
  Json schema{{"$schema", "http://json-schema.org/draft-07/schema#"},
              {"title", "lockstep matrix"},
              {"type", "object"},
              {"required", {"name"}},
              {"additionalProperties", false},
              {"properties", settings_schema(Many::one)["properties"]},
              {"patternProperties", settings_schema(Many::one)["patternProperties"]}};
  for (const MatrixField& field : matrix_fields()) {
    const std::string key(field.spec.key);
    Json value = field_schema(field.spec, field.of(matrix));
    // A trainer's own key of that name stands in its place where this trainer is asked for.
    const auto own = std::ranges::find(user_keys(), key, &UserKey::key);
    if (own != user_keys().end()) value = {{"anyOf", {value, own->values.front()}}};
    add_property(schema, key, value);
  }
  // Some questions derive every cell's reference; the others need it given.
  Json derived = Json::array();
  std::string asked;
  for (const QuestionPlan* question : question_plans()) {
    asked += (asked.empty() ? "" : ", ") + std::string(question->help);
    if (question->references != References::given) derived.push_back(question->name);
  }
  schema["properties"]["question"]["description"] = asked;
  schema["anyOf"] = {{{"required", {"reference"}}},
                     {{"required", {"question"}}, {"properties", {{"question", {{"enum", derived}}}}}}};
  add_property(
      schema, "timing.layouts",
      list_schema({{"$ref", "#/definitions/layout"}}, "layouts that are timed, each alone on the machine"));
  for (const QuestionPlan* question : question_plans()) {
    if (question->keys == nullptr) continue;
    for (const QuestionKey& own : question->keys()) add_property(schema, std::string(own.key), own.schema());
  }
  const Json parts = sections();
  for (const auto& [key, part] : parts.items()) schema["properties"][key] = part;
  Json settings = settings_schema(Many::one);
  settings["minProperties"] = 1;
  schema["definitions"]["rule"] = settings_schema(Many::one_or_list);
  schema["definitions"]["settings"] = std::move(settings);
  for (const TrainerSpec* trainer : trainer_specs()) {
    for (const OpenGroup& group : trainer->open_groups)
      schema["definitions"][std::string(group.prefix) + "NAME"] = {{"anyOf", {{{"type", "string"}}, {{"type", "number"}}, {{"type", "boolean"}}}},
                                                                   {"description", group.help}};
  }
  for (const auto& [key, values] : user_keys()) {
    schema["definitions"][key] = values.size() == 1 ? values.front() : Json{{"anyOf", values}};
  }
  return schema.dump(2) + "\n";
}

}  // namespace lockstep
