#include "harness/plan/matrix_fields.h"

#include <algorithm>
#include <array>

#include "harness/config/catalogue.h"
#include "harness/config/ranges.h"

namespace lockstep {

WordList words_of(Question) { return question_names(); }

WordList words_of(RanksPolicy) {
  static constexpr auto kWords = std::to_array<std::string_view>({"auto", "emulated", "real"});
  return kWords;
}

namespace {

using namespace ranges;

std::vector<std::string_view> metric_names() {
  std::vector<std::string_view> names;
  for (const CatalogueEntry& entry : catalogue_metrics()) names.push_back(entry.name);
  return names;
}

// The member's own spelling is its key.
#define MATRIX(member, ...)                                                       \
  {                                                                               \
    {#member, __VA_ARGS__}, [](Matrix& m) -> FieldRef { return ref_to(m.member); } \
  }
const MatrixField kMatrixFields[] = {
    MATRIX(name, kAny, "", "name of the matrix and of its folder under out/", Words::name),
    MATRIX(question, kAny, "",
           "are the same numbers computed, does it learn the same, are losses exact, which planted faults "
           "are found, "
           "what of what was told holds, do the tests keep their promises"),
    MATRIX(primary.metric, kAny, "", "the metric that the outcome is judged by", Words::any, Setter::user,
           &metric_names),
    MATRIX(primary.margin, Range{1e-12, 1e12}, "units of the metric",
           "differences within ± margin count as equal"),
    MATRIX(primary.target, kMetricUnits, "units of the metric",
           "the value that runs are timed to, in steps; 0: none"),
    MATRIX(primary.alpha, Range{1e-9, 0.5, false, true}, "", "level of each of the two one-sided tests"),
    MATRIX(band.repeats, Range{4, 64}, "runs",
           "permuted repeats of the reference that measure the rounding band"),
    MATRIX(band.factor, Range{8, 1e12}, "", "the band is this times the largest difference over repeats"),
    MATRIX(band.floor, Range{1e-6, 1e12}, "", "c of the band's floor, c * epsilon * sum of |terms|"),
    MATRIX(band.exact, Range{0, 1}, "",
           "> 0: the band is this times the larger of |gradient| and |sum of |terms||, without repeats"),
    MATRIX(ranks, kAny, "",
           "auto: emulated ranks, certified by a prefix on real ones; or all emulated; or all real"),
    MATRIX(certify_steps, kStep, "steps", "length of the real prefix of each cell, one seed a cell; 0: none"),
    MATRIX(forced_steps, kStep, "steps",
           "steps at which gradients are compared at the reference's parameters; [] : none"),
    MATRIX(detection.pairs, Range{0, 10000}, "trials", "of a detection matrix: with two mutants at once"),
    MATRIX(detection.clean, Range{0, 100000}, "trials", "of a detection matrix: without a mutant"),
    MATRIX(detection.steps, Range{2, 1000}, "steps",
           "length of a detection matrix's runs; clean ones have 1 to so many"),
    MATRIX(detection.draw_seed, kSeed, "", "what a detection matrix draws follows from it"),
    MATRIX(seeds_auto.first, Range{2, 10000}, "seeds", "of `seeds: auto`: at the first look"),
    MATRIX(seeds_auto.step, Range{1, 10000}, "seeds", "of `seeds: auto`: added from look to look"),
    MATRIX(seeds_auto.most, Range{2, 10000}, "seeds", "of `seeds: auto`: at the last look"),
    MATRIX(seeds_auto.budget_s, Range{0, 31536000}, "s",
           "of `seeds: auto`: no look is begun after so long; 0: no limit"),
    MATRIX(timing.steps, Range{2, 1e6}, "steps", "length of a timed run"),
    MATRIX(timing.repeats, Range{3, 1000}, "runs", "of each timed layout"),
    MATRIX(calibration.draws, Range{100, 1e8}, "draws", "synthetic comparisons of each kind"),
    MATRIX(calibration.comparisons, Range{20, 1e6}, "comparisons", "drawn from the pool of runs"),
    MATRIX(calibration.pairs, Range{2, 1000}, "pairs", "of each comparison"),
    MATRIX(calibration.draw_seed, kSeed, "", "what is drawn follows from it"),
    MATRIX(allow_no_negatives, kAny, "",
           "a cell may have no negatives at all, though nothing can be learned so"),
    MATRIX(replay, kAny, "",
           "trace of a kept step: that step alone is computed, from the state that it holds", Words::path),
    MATRIX(allow_unequal_batch, kAny, "", "a cell may have another global batch than its reference"),
};
#undef MATRIX

}  // namespace

std::span<const MatrixField> matrix_fields() { return kMatrixFields; }

const MatrixField* find_matrix_field(std::string_view key) {
  const auto at = std::ranges::find_if(kMatrixFields, [key](const MatrixField& field) { return field.spec.key == key; });
  return at != std::end(kMatrixFields) ? &*at : nullptr;
}

}  // namespace lockstep
