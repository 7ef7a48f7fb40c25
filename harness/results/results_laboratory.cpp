// What results.json says of a laboratory.

#include "harness/results/results_description.h"

// The member's own spelling is its key.
#define KEY(member, ...) {#member, &S::member __VA_OPT__(, ) __VA_ARGS__}

namespace lockstep::results_format {

template <>
Object<LaboratoryCount> describe() {
  using S = LaboratoryCount;
  return {"laboratory_count", "Cases of one failure at one kind of place that ended alike.",
          {KEY(failure, "What was done to the subject."), KEY(place, "Where: a kind of operation, on a rank."),
           KEY(outcome), KEY(verdict), KEY(cases, at_least(1))}};
}

template <>
Object<TimelineStep> describe() {
  using S = TimelineStep;
  return {"timeline_step", "What one rank, process or thread did.",
          {KEY(actor), KEY(operation), KEY(mark, "What was done to it there; empty: nothing.")}};
}

template <>
Object<LaboratoryFinding> describe() {
  using S = LaboratoryFinding;
  return {"laboratory_finding", "A case that came out wrong, or undecided.",
          {KEY(trial, "Its name, as --only takes it."), KEY(failure), KEY(place), KEY(outcome), KEY(verdict),
           KEY(sentence), KEY(timeline, "In the order in which it happened; empty: there is none to show."),
           KEY(replay, "The command that runs this trial again.")}};
}

template <>
Object<LaboratoryResult> describe() {
  using S = LaboratoryResult;
  return {"laboratory",
          "Trials of a library or of a program under failures; only where the config names a laboratory.",
          {KEY(kind), KEY(subject), KEY(trials, at_least(0)),
           KEY(cases, at_least(0), "That the trials held: one trial may hold many."), KEY(faults, at_least(0)),
           KEY(undecided, at_least(0)), KEY(seconds, finite()), KEY(table), KEY(findings),
           KEY(findings_left_out, at_least(0), "Found and counted in the table, but not listed."), KEY(facts),
           KEY(notes, "What could not be seen.")}};
}

}  // namespace lockstep::results_format
