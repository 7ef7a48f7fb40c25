// More evidence never gives a worse answer: every planted fault is judged with kinds of records left out.

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "harness/verdict/causes/name_cause.h"
#include "harness/verdict/compare/forced/forced.h"
#include "tests/support/planted_causes.h"
#include "tests/support/temp_folder.h"
#include "tests/support/whole.h"

namespace lockstep {
namespace {

using support::Planted;

constexpr unsigned kFree = support::kToyAll + 1;  // the free runs stand beside the forced ones
constexpr unsigned kEverything = 2 * kFree - 1;

constexpr int64_t kBehindAll = 1000;

struct Answer {
  int64_t step = kBehindAll;
  std::string code, told;
};

const std::vector<Planted>& faults() {
  static const std::vector<Planted> all = support::all_faults();
  return all;
}

/// By the fault's number among all.
class EvidenceSubsets : public ::testing::TestWithParam<std::size_t> {
 protected:
  Answer answer(const Planted& planted, unsigned evidence) {
    RunConfig config = support::toy_config();
    if (planted.config) planted.config(config);
    const RunConfig reference = support::alone(config);
    const TempFolder folder;
    ForcedInputs inputs;
    const auto write = [&](const char* name, const RunConfig& of, bool forced, const support::ToyFaults& faults) {
      support::toy_run(folder / name, of, forced, faults, "energy", evidence);
      return folder / name;
    };
    if (evidence & kFree) {
      inputs.reference_free = write("reference", reference, false, {});
      inputs.cell_free = write("cell", config, false, planted.faults);
    }
    inputs.forced_reference = write("forced-reference", reference, true, {});
    inputs.forced_cell = write("forced-cell", config, true, planted.faults);
    inputs.reference_config = &reference;
    inputs.cell_config = &config;
    const Mechanism result = judge_forced(inputs);
    return {result.first_divergence ? result.first_divergence->step : kBehindAll, result.cause ? result.cause->code : "",
            result.sentence};
  }
};

TEST_P(EvidenceSubsets, MoreOfItNeverGivesALaterStepOrTakesARightNameAway) {
  const Planted& planted = faults().at(GetParam());
  std::map<unsigned, Answer> answers;
  const auto of = [&](unsigned evidence) -> const Answer& {
    const auto known = answers.find(evidence);
    return known != answers.end() ? known->second : answers.emplace(evidence, answer(planted, evidence)).first->second;
  };
  // Sets that lack one kind, every fourth of a fault, or all sets, each compared with those with one of its kinds more.
  for (unsigned evidence = 0; evidence < kEverything; ++evidence) {
    const unsigned lacking = kEverything & ~evidence;
    if (!support::whole()) {
      if (std::popcount(lacking) > 1 || (static_cast<unsigned>(std::countr_zero(lacking)) + GetParam()) % 4 > 0) continue;
    }
    for (unsigned kind = 1; kind < kEverything; kind *= 2) {
      if (!(lacking & kind)) continue;
      const Answer &less = of(evidence), &more = of(evidence | kind);
      SCOPED_TRACE(fmt::format("without {:b}, then with {:b}:\n{}\n{}", lacking, kind, less.told, more.told));
      EXPECT_LE(more.step, less.step);
      if (less.code == planted.code) {
        EXPECT_EQ(more.code, planted.code);
      }
    }
  }
}

std::string name_of_fault(const testing::TestParamInfo<std::size_t>& number) {
  std::string name = fmt::format("{}_{}", number.param, faults()[number.param].name);
  std::ranges::replace_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

/// A half each, so that both run at once.
const std::size_t kMiddle = faults().size() / 2;
INSTANTIATE_TEST_SUITE_P(FirstHalf, EvidenceSubsets, testing::Range(std::size_t{0}, kMiddle), &name_of_fault);
INSTANTIATE_TEST_SUITE_P(SecondHalf, EvidenceSubsets, testing::Range(kMiddle, faults().size()), &name_of_fault);

}  // namespace
}  // namespace lockstep
