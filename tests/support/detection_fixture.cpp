#include "tests/support/results_fixture.h"
#include "tests/support/results_parts.h"

namespace lockstep {

using namespace fixture;

Results detection_results() {
  Results r = outcome_results();
  r.name = "mutants";
  r.config_file = "configs/mutants.yaml";
  r.question_text =
      "Which planted bugs are found, at which step, in which tensor, and are they named rightly?";
  r.question = "detection";
  r.rerun = "lockstep run configs/mutants.yaml";
  r.steps = 20;
  r.seeds = {0, 1, 2, 3, 4};
  r.cells.clear();
  r.references.clear();
  for (const char* name : {"flip_bit #0", "grad_scale #2", "clean #512"}) {
    CellResult trial;
    trial.scenario = name;
    trial.verdict = VerdictKind::divergent;
    trial.as_expected = false;
    trial.rerun = r.rerun + " --only '" + name + "'";
    r.cells.push_back(trial);
  }
  Detection& d = r.detection.emplace();
  d.detectors = {"samples", "random",  "control", "ledger",   "energies", "loss",
                 "local",   "reduced", "update",  "replicas", "failed"};
  d.loss_tolerance = 0.05;
  d.clean = 1000;
  d.false_alarms = 1;
  d.passed = false;
  d.rows = {{"flip_bit", "pytorch/pytorch#1", 5, 4, 4, 4, 4, 4, 0, 1, {0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0}},
            {"grad_scale", "", 5, 5, 5, 5, 5, 4, 1, 0, {0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0}},
            {"die", "", 5, 5, 5, 5, 5, 5, 0, 5, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5}},
            {"pairs", "", 30, 30, 30, 29, 29, 28, 0, 12, {1, 0, 2, 3, 4, 5, 6, 7, 2, 0, 0}}};
  const auto rate = [](const char* what, int64_t hits, int64_t of, Interval interval, double asked,
                       bool at_most, bool enough) {
    return DetectionRate{what, hits, of, interval, asked, at_most, enough};
  };
  d.rates = {rate("caught", 44, 45, {0.882, 0.999, 0.95}, 0.95, false, true),
             rate("of these at the exact step and place", 43, 44, {0.879, 0.999, 0.95}, 0.95, false, true),
             rate("named rightly", 41, 45, {0.788, 0.975, 0.95}, 0.9, false, true),
             rate("named wrongly", 1, 45, {0.001, 0.118, 0.95}, 0, true, false),
             rate("false alarms on clean pairs", 1, 1000, {0.00003, 0.0056, 0.95}, 0, true, false),
             rate("found by comparing loss curves", 18, 45, {0.257, 0.557, 0.95}, -1, false, true)};
  d.misses = {{"flip_bit #0", "missed", "flip_bit: step 4, rank 2, energy_head.key.weight, bit 20",
               "within_envelope; no cause", r.cells[0].rerun},
              {"grad_scale #2", "wrong cause", "grad_scale: step 7, action_encoder.in.weight, factor 3.7",
               "divergent at step 7, local gradients, action_encoder.in.weight; gradient-times-world",
               r.cells[1].rerun},
              {"clean #512", "false alarm", "nothing",
               "divergent at step 3, energies, <b>row</b> 7; no cause", r.cells[2].rerun}};
  r.summary = {};
  r.summary.cells = 1045;
  r.summary.as_expected = 1042;
  r.summary.runs = 2893;
  r.summary.exit_code = 1;
  r.summary.sentence =
      "The detectors do not meet their limits: named wrongly 1 of 45, where none is allowed; false alarms on clean pairs 1 of "
      "1000, where "
      "none may be.";
  return with_facts(std::move(r));
}

}  // namespace lockstep
