#include "harness/verdict/plan/matrix_fields.h"

#include <algorithm>

#include "harness/verdict/config/catalogue.h"
#include "harness/verdict/config/ranges.h"
#include "harness/verdict/config/words.h"
#include "harness/verdict/plan/question.h"

namespace lockstep {

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
    MATRIX(name, kAny, "", "name of the matrix and of its folder under out/", Words::name),
    {{"question", kAny, "", "what is asked of the cells"}, question_of},
    MATRIX(primary.metric, kAny, "", "the metric that the outcome is judged by", Words::any, Setter::user,
           &metric_names),
    MATRIX(primary.margin, Range{1e-12, 1e12}, "units of the metric",
           "differences within ± margin count as equal"),
    MATRIX(primary.target, kMetricUnits, "units of the metric",
           "the value to reach, timed in steps; 0: none"),
    MATRIX(primary.alpha, Range{1e-9, 0.5, false, true}, "", "level of each of the two one-sided tests"),
    MATRIX(primary.test, kAny, "",
           "what decides: t, on the mean of normal differences; sign, on the median of differences of any shape"),
    MATRIX(band.repeats, Range{0, 64}, "runs",
           "0: float64 twins judge; 4 or more: a band that so many permuted repeats of the reference measure"),
    MATRIX(band.factor, Range{8, 1e12}, "", "the band is this times the largest difference over repeats"),
    MATRIX(band.floor, Range{1e-6, 1e12}, "", "c of the band's floor, c * epsilon * sum of |terms|"),
    MATRIX(band.exact, Range{0, 1}, "",
           "> 0: the band is this times the larger of |gradient| and |sum of |terms||, without repeats"),
    MATRIX(ranks, kAny, "",
           "auto: emulated ranks, certified by a prefix on real ones; or all emulated; or all real; fit: real where there is room for them"),
    MATRIX(certify_steps, kStep, "steps", "length of the real prefix of each cell, one seed a cell; 0: none"),
    MATRIX(certify.exact, kStep, "steps",
           "so many first steps of each cell and its reference in exact arithmetic, one seed; 0: none"),
    MATRIX(forced_steps, kStep, "steps",
           "steps at which gradients are compared at the reference's parameters; [] : none"),
    MATRIX(seeds_auto.first, Range{2, 10000}, "seeds", "`seeds: auto`: seeds at the first look"),
    MATRIX(seeds_auto.step, Range{1, 10000}, "seeds", "`seeds: auto`: seeds added at each further look"),
    MATRIX(seeds_auto.most, Range{2, 10000}, "seeds", "`seeds: auto`: seeds at the last look"),
    MATRIX(seeds_auto.budget_s, Range{0, 31536000}, "s",
           "`seeds: auto`: no look begins after this time; 0: no limit"),
    MATRIX(timing.steps, Range{2, 1e6}, "steps", "length of a timed run"),
    MATRIX(timing.repeats, Range{3, 1000}, "runs", "of each timed layout"),
    MATRIX(allow_no_negatives, kAny, "",
           "a cell may have no negatives at all, though nothing can be learned so"),
    MATRIX(launcher, kAny, "",
           "who starts real ranks: local, slurm, torchrun, openmpi, mpich, srun, each with options of its own, or external:COMMAND"),
    MATRIX(replay, kAny, "",
           "trace of a kept step: that step alone is computed, from the state that it holds", Words::path),
    MATRIX(allow_unequal_batch, kAny, "", "a cell's global batch may differ from its reference's"),
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
