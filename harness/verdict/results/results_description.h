#pragma once
// results.json described: for each struct of results.h one list of its keys. The writer, the reader and the
// schema are made from it, and nothing else says what stands in the document.
//
// To add a field:
//   1. a member in results.h, with its default and its `///` line;
//   2. a line in the struct's description (results_cells.cpp, results_matrix.cpp), where its key shall stand:
//        KEY(half_life, added(exact()), "Seeds until ..."),
//      Member and key, codec, help for the schema; {"key", &S::member, ...} where the two differ. The codec
//      may be left out but for a double, which is exact() if anybody compares it, number() if it may be NaN
//      or infinite, finite() otherwise. `added` lets documents that were written before the key be read;
//      without it kResultsSchemaVersion must rise.
//   3. `ci/golden --update` rewrites reports/results.schema.json; read the diff.
// A test counts the members of every struct, so that none is forgotten here.

#include "harness/verdict/plan/question.h"
#include "harness/verdict/results/results.h"
#include "harness/verdict/results/results_codec.h"

namespace lockstep::results_format {

using Row = std::pair<std::string, std::string>;

template <>
struct Usual<VerdictKind> {
  static Codec<VerdictKind> codec() { return words<VerdictKind>(verdict_names(), "verdict", "verdict"); }
};
template <>
struct Usual<OutcomeTest> {
  static Codec<OutcomeTest> codec() { return words<OutcomeTest>(outcome_test_names(), "test"); }
};
template <>
struct Usual<InterimEnd> {
  static Codec<InterimEnd> codec() { return words<InterimEnd>(interim_end_names(), "end of the looks"); }
};

template <>
struct Usual<CaseVerdict> {
  static Codec<CaseVerdict> codec() {
    return words<CaseVerdict>(case_verdict_names(), "verdict of a case", "case_verdict");
  }
};

/// The questions of matrices, then the word that stands where a suite asked.
inline std::span<const std::string_view> asked_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all(question_names().begin(), question_names().end());
    all.push_back(kSuiteQuestion);
    return all;
  }();
  return names;
}

/// A question by its name.
inline Codec<std::string> question_name() {
  return {[](const std::string& value) { return Json(value); },
          [](const Json& json, std::string& value) {
            value = asked_names()[index_of_word(json, asked_names(), "question")];
          },
          [](Definitions& definitions) { return schema_of_words(definitions, asked_names(), ""); }};
}

// Descriptions that both files use. Within a file, a description stands above its uses.
template <>
Object<Row> describe();
template <>
Object<Layout> describe();
template <>
Object<Interval> describe();
template <>
Object<GradientSignature> describe();
template <>
Object<MetricDifference> describe();
template <>
Object<StepCosts> describe();
template <>
Object<SuiteResult> describe();
template <>
Object<CellResult> describe();
template <>
Object<ReferenceResult> describe();
template <>
Object<Results> describe();

/// The part of an outcome that stands under a cell's key "statistics"; the rest is described<Outcome>().
const Object<Outcome>& statistics_of_an_outcome();

}  // namespace lockstep::results_format
