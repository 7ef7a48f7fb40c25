#include <algorithm>
#include <cmath>

#include "harness/base/numbers.h"
#include "tests/support/results_fixture.h"
#include "tests/support/results_parts.h"

namespace lockstep {

using namespace fixture;

Results certificate_results() {
  Results r = frame();
  r.name = "losses";
  r.config_file = "configs/losses.yaml";
  r.question_text = "Does every loss have the gradient of its plain reference in one process?";
  r.question = "certificate";
  r.steps = 61;
  r.seeds = {0};
  r.rerun = "lockstep run configs/losses.yaml";
  const auto judged = [](const std::string& name, bool exact) {
    CellResult c = cell(name, exact ? VerdictKind::within_envelope : VerdictKind::divergent,
                        {VerdictKind::within_envelope, VerdictKind::identical});
    c.as_expected = exact;
    c.certification = {};
    c.config = config(name.substr(0, 3), "global", "none", "1", "keyed");
    c.costs = StepCosts{192, 4608, 0.0042};
    c.rerun = "lockstep run configs/losses.yaml --only 'name == \"" + name + "\"'";
    c.mechanism = within(exact ? 0.004 : 0);
    c.mechanism->band_measured = false;
    c.mechanism->forced = {forced(0, exact ? 1 : 3, exact ? 2e-16 : 0.02, exact ? 0.004 : 8e11),
                           forced(60, exact ? 1 : 3, exact ? 4e-16 : 0.4, exact ? 0.002 : 9e11)};
    if (exact) return c;
    c.mechanism->verdict = VerdictKind::divergent;
    c.mechanism->first_divergence =
        Divergence{0,
                   "reduced gradients",
                   -1,
                   "group context encoder",
                   DivergenceKind::band,
                   "the reference's gradient",
                   "3 times it",
                   "step 0, reduced gradients: group context encoder: 3 times the reference's"};
    c.mechanism->sentence = "Not certified: " + c.mechanism->first_divergence->sentence + ".";
    return c;
  };
  CellResult broken = judged("8x3 global loss=sigmoid", true);
  broken.verdict = VerdictKind::failed;
  broken.as_expected = false;
  broken.costs.reset();
  broken.mechanism.reset();
  broken.failure = Failure{"8x3-global-s0-forced-1f2e3d4c",
                           FailureKind::threw,
                           2,
                           0,
                           "all_gather loss.header",
                           "rank 2 holds float32 where rank 0 holds float64",
                           {}};
  r.cells = {judged("3x8 global", true), judged("3x8 global rows=unequal", true),
             judged("3x8 global loss=symmetric", false), broken};
  const GradientSignature good{"temperature", 1, 1, 3.1e-16, 2.4e-15, 6e-13};
  const GradientSignature bad{"context encoder", 3, 0.92, 0.4, 0.5, 6e-13};
  r.certificate = Certificate{
      1e-12,
      {0, 60},
      {{"infonce global", 3, 2, 2, 0.004, "3x8 global", 60, good, {192, 4608, 0.0042}, 1.18},
       {"infonce global", 8, 1, 0, kNaN, "", 0, {}, {kNaN, kNaN, kNaN}, kNaN},
       {"symmetric global", 3, 1, 0, 9e11, "3x8 global loss=symmetric", 60, bad, {192, 5376, 0.0051}, kNaN}}};
  r.summary = summarize(r, 12, 3,
                        "3x8 global loss=symmetric does not compute the same as its plain reference: the "
                        "context encoder's gradient is 3 times it.");
  return with_facts(std::move(r));
}

}  // namespace lockstep
