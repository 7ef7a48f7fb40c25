#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "harness/answer/questions/question_judge.h"
#include "harness/answer/questions/trials.h"
#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/plan_history.h"

// The questions as the planner knows them.

namespace lockstep {

#define LOCKSTEP_DECLARE(name)    \
  namespace questions::name {     \
  const QuestionPlan& plan();     \
  }
#define LOCKSTEP_ENTRY(name) &questions::name::plan(),
LOCKSTEP_QUESTIONS(LOCKSTEP_DECLARE)

std::span<const QuestionPlan* const> question_plans() {
  static const std::array kPlans{LOCKSTEP_QUESTIONS(LOCKSTEP_ENTRY)};
  return kPlans;
}

#undef LOCKSTEP_DECLARE
#undef LOCKSTEP_ENTRY

std::span<const std::string_view> question_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for (const QuestionPlan* question : question_plans()) all.push_back(question->name);
    return all;
  }();
  return names;
}

const QuestionPlan* find_question(std::string_view name) {
  const auto plans = question_plans();
  const auto at = std::ranges::find(plans, name, &QuestionPlan::name);
  return at == plans.end() ? nullptr : *at;
}

const QuestionPlan& question_named(std::string_view name) {
  const QuestionPlan* found = find_question(name);
  LOCKSTEP_CHECK(found != nullptr, "a question that was read exists");
  return *found;
}

const QuestionPlan& asked_by(const Matrix& matrix) {
  const QuestionPlan& named = question_named(matrix.question);
  return matrix.of_command && named.of_command != nullptr ? named.of_command() : named;
}

std::string default_question() { return std::string(question_plans().front()->name); }

std::vector<std::any> question_sections() {
  std::vector<std::any> sections;
  for (const QuestionPlan* question : question_plans()) {
    if (question->section != nullptr) sections.push_back(question->section());
  }
  return sections;
}

const QuestionKey* find_question_key(std::string_view key) {
  for (const QuestionPlan* question : question_plans()) {
    if (question->keys == nullptr) continue;
    const auto keys = question->keys();
    if (const auto at = std::ranges::find(keys, key, &QuestionKey::key); at != keys.end()) return &*at;
  }
  return nullptr;
}

}  // namespace lockstep

// What `question: detection` asks of a config: which faults are planted, and how many trials are drawn.

namespace lockstep::questions::detection {

const QuestionPlan& plan();

namespace {

constexpr Layout kReferenceLayout{1, 24};
#define DETECTION(member, ...)                                            \
  {                                                                       \
    {"detection." #member, __VA_ARGS__}, [](Matrix& m) -> FieldRef {              \
      return &section_of<DetectionConfig>(m).member;                           \
    }                                                                        \
  }
const std::array kFields{
    MatrixField DETECTION(pairs, Range{0, 10000}, "trials", "trials with two faults at once"),
    MatrixField DETECTION(clean, Range{0, 100000}, "trials", "trials without a fault"),
    MatrixField DETECTION(exact, Range{}, "",
        "each mutant's trials again as free runs in exact arithmetic, 8x3 against 1x24, in a column of their "
        "own; mutants that cannot act there are left out"),
    MatrixField DETECTION(steps, Range{2, 1000}, "steps",
        "length of a run; trials without a fault have 1 to this many steps"),
    MatrixField DETECTION(draw_seed, ranges::kSeed, "", "seed of everything that is drawn"),
};
#undef DETECTION

SchemaJson mutants_schema() {
  SchemaJson mutant{{"type", "string"}};
  for (const MutantEntry& entry : mutant_entries()) mutant["enum"].push_back(std::string(entry.name));
  const SchemaJson all{{"type", "string"}, {"enum", {"all"}}};
  return {{"anyOf", {all, {{"type", "array"}, {"items", mutant}, {"minItems", 1}, {"uniqueItems", true}}}},
          {"description", "faults that are planted, one at a time; `all`: those that can act in the trainer; default `all`"}};
}

const std::array kKeys{
    QuestionKey{.key = "detection.mutants",
                .read =
                    [](const Entry& entry, MatrixSource& source, Problems& problems) {
                      read_mutants(entry, section_of<DetectionConfig>(source.matrix), problems);
                    },
                .schema = &mutants_schema,
                .settable = true},
    QuestionKey{.key = "detection.seeds",
                .read =
                    [](const Entry& entry, MatrixSource& source, Problems& problems) {
                      read_seeds(entry.value, section_of<DetectionConfig>(source.matrix).seeds, problems);
                    },
                .schema = &seeds_schema,
                .settable = true},
    QuestionKey{.key = "detection.faults",
                .read =
                    [](const Entry& entry, MatrixSource& source, Problems& problems) {
                      section_of<DetectionConfig>(source.matrix).faults = read_own_faults(entry, spec_of(source.base), problems);
                    },
                .schema = &own_faults_schema},
};

/// Length, seeds, forced steps (all), no certification.
void finish(MatrixSource& source, Problems& problems) {
  constexpr std::array<std::string_view, 9> kNotOurs{"reference", "axes",           "exclude",
                                                     "include",   "power_controls", "expect",
                                                     "layout",    "steps",          "mutant.name"};
  for (const std::string_view key : kNotOurs) {
    // The reference's own keys have places, too.
    const bool of_reference = (key == "layout" || key == "steps") && source.places.contains("reference");
    if (!source.places.contains(key) || of_reference) continue;
    problems.add(source.place_of(key),
                 fmt::format("{} is not allowed in a detection matrix, which draws its trials{}", key,
                             key == "steps" ? "; give detection.steps" : ""));
    source.sound = false;
  }
  if (source.places.contains("detection.faults")) {
    problems.add(source.place_of("detection.faults"),
                 "detection.faults are planted by switches of a command (trainer: command); what is planted in lockstep's own trainers is detection.mutants");
  }
  Matrix& matrix = source.matrix;
  const DetectionConfig& own = section_of<DetectionConfig>(matrix);
  source.base.steps = own.steps;
  source.base.layout = kReferenceLayout;
  if (!source.set_keys.contains("seeds") && !source.places.contains("seeds")) matrix.seeds = own.seeds;
  // Every step is forced, so that the first one that differs is the one that is named.
  if (!source.places.contains("forced_steps")) {
    matrix.forced_steps.clear();
    for (int64_t step = 0; step < own.steps; ++step) matrix.forced_steps.push_back(step);
  }
  if (!source.places.contains("certify_steps")) matrix.certify_steps = 0;
}

std::string headline(const Matrix& matrix) {
  const DetectionConfig& own = section_of<DetectionConfig>(matrix);
  const std::string text =
      fmt::format("{}, each of 1 to {} steps", counted(static_cast<int64_t>(matrix.cells.size()), "trial"), own.steps);
  const std::string left_out = left_out_words(own.left_out);
  return left_out.empty() ? text : text + "; " + left_out;
}

/// Trials are many: "flip_bit" of "flip_bit #3", "1x24" of "1x24 #5d9e2c7a".
std::string line_of(const PlannedRun& run) {
  if (run.cell.find(" + ") != std::string::npos) return "pairs";
  return run.cell.substr(0, run.cell.rfind(" #"));
}

/// Of a command the axes are the trials, and nothing is drawn.
void finish_command(MatrixSource& source, Problems& problems) {
  const auto refuse = [&](std::string_view key, std::string_view why) {
    if (source.places.contains(key)) problems.add(source.place_of(key), fmt::format("{} {}", key, why));
  };
  for (const MatrixField& field : kFields) refuse(field.spec.key, "draws trials of lockstep's own trainers: a command's trials are the cells of its axes");
  refuse("detection.mutants", "are faults of lockstep's own trainers: detection.faults says what a command's switches plant");
  refuse("detection.seeds", "are of drawn trials: give a command's trials more seeds by seeds");
  for (const char* key : {"expect", "power_controls", "noise", "noise_of"})
    refuse(key, "is not allowed in a detection matrix: detection.faults says what is expected of each cell");
  if (source.places.contains("detection.faults")) return;
  problems.add(source.place_of("question"),
               "the detection of a command's faults needs detection.faults: what each of its switches plants, such as "
               "[{when: {env.MISTAKE: sum}, cause: loss-times-world}]");
}

std::string headline_of_command(const Matrix& matrix) {
  const auto clean = [&](const Cell& cell) { return planted_in(section_of<DetectionConfig>(matrix).faults, cell.config).empty(); };
  const std::ptrdiff_t quiet = std::ranges::count_if(matrix.cells, clean);
  return fmt::format("{}, {} with a planted fault and {} clean", counted(static_cast<int64_t>(matrix.cells.size()), "trial"),
                     static_cast<std::ptrdiff_t>(matrix.cells.size()) - quiet, quiet);
}

/// The same of faults that switches of a command plant.
const QuestionPlan& plan_of_command() {
  static const QuestionPlan kPlan = [] {
    QuestionPlan plan = questions::detection::plan();
    plan.references = References::given;
    plan.finish = &finish_command;
    plan.cells = [](MatrixSource& source, Problems& problems) {
      return own_fault_cells(source, section_of<DetectionConfig>(source.matrix).faults, problems);
    };
    plan.headline = &headline_of_command;
    plan.line_of = [](const PlannedRun& run) { return run.cell.substr(0, run.cell.rfind(" #")); };
    return plan;
  }();
  return kPlan;
}

void check_unasked(const MatrixSource& source, const std::vector<Cell>&, Problems& problems) {
  if (!source.places.contains("detection.faults")) return;
  problems.add(source.place_of("detection.faults"),
               fmt::format("detection.faults are what the question of detection looks for; the question is {}", source.matrix.question));
}

}  // namespace

const QuestionPlan& plan() {
  static const QuestionPlan kPlan{
      .name = "detection",
      .help = "which planted faults are found",
      .references = References::own,
      .of_command = &plan_of_command,
      .section = []() -> std::any { return DetectionConfig{}; },
      .fields = []() -> std::span<const MatrixField> { return kFields; },
      .keys = []() -> std::span<const QuestionKey> { return kKeys; },
      .finish = &finish,
      .cells = &detection_cells,
      .check_unasked = &check_unasked,
      .headline = &headline,
      .line_of = &line_of,
  };
  return kPlan;
}

}  // namespace lockstep::questions::detection

// What `question: certificate` asks of a config: gradients at a few steps, in float64, without a reference of the
// user's.

namespace lockstep::questions::certificate {
namespace {

/// A wrong loss can look nearly right at first and not after training: gradients are compared at both ends.
void finish(MatrixSource& source, Problems& problems) {
  constexpr int64_t kLastStep = 60;
  constexpr double kExact = 1e-12;
  if (source.reference_given) {
    problems.add(source.place_of("reference"),
                 "the question certificate derives the reference of each cell: remove it");
  }
  const auto is_given = [&source](std::string_view key) { return source.places.contains(key); };
  RunConfig& base = source.base;
  if (!is_given("precision")) base.precision = Precision::float64;
  if (!is_given("steps")) base.steps = kLastStep + 1;
  if (!is_given("forced_steps")) source.matrix.forced_steps = {0, kLastStep};
  source.matrix.certify_steps = 0;
  if (source.matrix.band.exact == 0) source.matrix.band.exact = kExact;
}

void check(const MatrixSource& source, const std::vector<Cell>&, Problems& problems) {
  if (source.matrix.seeds.size() > 1) {
    problems.add(source.place_of("seeds"),
                 "a certificate takes one seed");
  }
  if (source.matrix.forced_steps.empty()) {
    problems.add(source.place_of("forced_steps"),
                 "a certificate compares gradients: it needs at least one forced step");
  }
}

std::string headline(const Matrix& matrix) {
  return fmt::format("{} within {:g} of their plain references",
                     counted(static_cast<int64_t>(matrix.cells.size()), "cell"), matrix.band.exact);
}

}  // namespace

const QuestionPlan& plan() {
  static const QuestionPlan kPlan{
      .name = "certificate",
      .help = "are losses exact",
      .trains = false,
      .references = References::plain,
      .finish = &finish,
      .check = &check,
      .headline = &headline,
  };
  return kPlan;
}

}  // namespace lockstep::questions::certificate

// What `question: mechanism` asks of a config: nothing but cells and their reference.

namespace lockstep::questions::mechanism {

const QuestionPlan& plan() {
  static const QuestionPlan kPlan{
      .name = "mechanism",
      .help = "are the same numbers computed",
      .compares_results = true,
      .takes_replay = true,
  };
  return kPlan;
}

}  // namespace lockstep::questions::mechanism

// What `question: replay` asks of a config: a trainer with rollouts, and every step's log-probabilities whole.

namespace lockstep::questions::replay {
namespace {

constexpr const char* kKey = "acted";

void finish(MatrixSource& source, Problems& problems) {
  if (source.reference_given) problems.add(source.place_of("reference"), "the question replay compares each run with its own rollouts: remove the reference");
  if (source.matrix.seeds.size() > 1) problems.add(source.place_of("seeds"), "the question replay takes one seed");
  source.base.trace = TraceLevel::full;
  source.matrix.forced_steps.clear();
  source.matrix.certify_steps = 0;
  const RunField* const field = find_field(spec_of(source.base), kKey);
  if (field != nullptr) return void(*std::get<bool*>(field->of(source.base)) = true);
  problems.add(source.place_of("question"),
               fmt::format("the trainer {} makes no rollouts that replay could ask about; of one of your own ask lockstep check --acted",
                           spec_of(source.base).name));
}

}  // namespace

const QuestionPlan& plan() {
  static const QuestionPlan kPlan{
      .name = "replay",
      .help = "does the trainer compute the log-probabilities that its rollouts acted by",
      .references = References::own,
      .finish = &finish,
  };
  return kPlan;
}

}  // namespace lockstep::questions::replay

// What `question: outcome` asks of a config: a metric with a margin, power controls, and seeds, which may be added
// look by look.

namespace lockstep::questions::outcome {

const QuestionPlan& plan() {
  static const QuestionPlan kPlan{
      .name = "outcome",
      .help = "does it learn the same",
      .of_several_seeds = true,
      .by_outcome = true,
  };
  return kPlan;
}

}  // namespace lockstep::questions::outcome
