// What results.json says of a whole matrix: each question's own tables, the summary, the document itself.

#include <fmt/format.h>

#include "harness/verdict/results/results_description.h"

// The member's own spelling is its key.
#define KEY(member, ...) {#member, &S::member __VA_OPT__(, ) __VA_ARGS__}

namespace lockstep::results_format {

template <>
Object<Growth::Rule> describe() {
  using S = Growth::Rule;
  return {
      "growth_rule", "One rule of the learning rate, and the paired difference of its cell to the reference.",
      with_part({KEY(cell),
                 KEY(rule),
                 KEY(exponent, exact()),
                 KEY(verdict),
                 KEY(n, added(whole<int>(0)), "Pairs; 0: none, or not known.")},
                &S::difference)};
}

template <>
Object<Growth> describe() {
  using S = Growth;
  return {"growth",
          "Rules of the learning rate from one layout to another: which trains best, and the exponent of "
          "the rate in the batch, predicted and measured.",
          {KEY(reference), KEY(from), KEY(to), KEY(from_batch), KEY(to_batch), KEY(rules),
           KEY(best, "Empty: none was judged."),
           KEY(not_worse, "Other rules that no rule is shown to be better than (all pairs, paired by seed, Holm)."),
           KEY(noise_batch, exact()), KEY(predicted_exponent, exact()), KEY(predicted_interval),
           KEY(measured_exponent, exact()), KEY(measured_interval), KEY(caveat), KEY(sentence),
           KEY(n, added(whole<int>(0)), "Seeds that all judged rules share; 0: not known."),
           KEY(samples_ratio, added(exact()), "Samples that a cell's runs saw over those of the reference's.")}};
}

template <>
Object<TimingRow> describe() {
  using S = TimingRow;
  return {"timing_row",
          "One layout in one group. Figures are NaN where no run finished, and speed-up where the group has "
          "no layout of one rank.",
          {KEY(group, one_of({kEqualBatch, kEqualRows})),
           {"world_size", &S::layout, &Layout::world_size, at_least(1)},
           {"rows_per_rank", &S::layout, &Layout::rows_per_rank, at_least(1)},
           KEY(runs, at_least(0), "That finished."),
           KEY(step_seconds, exact()),
           {"smallest_seconds", &S::interval, &Interval::low, exact()},
           {"largest_seconds", &S::interval, &Interval::high, exact()},
           KEY(rows_per_second, exact()), KEY(speed_up, exact()), KEY(efficiency, exact()),
           KEY(communication_share, exact()),
           {"smallest_speed_up", &S::speed_up_range, &Interval::low, added(exact()),
            "The slowest run against the fastest of one rank."},
           {"largest_speed_up", &S::speed_up_range, &Interval::high, added(exact())},
           {"smallest_share", &S::share_range, &Interval::low, added(exact()), "Of communication."},
           {"largest_share", &S::share_range, &Interval::high, added(exact())},
           {"received_bytes", &S::bytes, exact()},
           KEY(activation_bytes, exact()), KEY(weight_bytes, exact()),
           KEY(crowded, "More ranks than cores.")},
          // From the smallest to the largest run: that holds all of them.
      [](S& row) { row.interval.level = 1; }};
}

template <>
Object<Timing> describe() {
  using S = Timing;
  return {"timing",
          "How fast layouts are on real ranks, each run alone on the machine; present if the matrix times "
          "layouts.",
          {KEY(cores, at_least(1)), KEY(processor),
           KEY(sentence, "What the cores of this machine let be seen, and which runs failed."),
           KEY(rows)}};
}

template <>
Object<CertificateRow> describe() {
  using S = CertificateRow;
  return {"certificate_row",
          "One loss at one number of ranks: the worst of its cases, and what a step costs.",
          {KEY(loss), KEY(world_size, at_least(0)), KEY(cases, at_least(1)), KEY(certified, at_least(0)),
           KEY(worst, exact()), KEY(worst_cell), KEY(worst_step), KEY(worst_group), KEY(costs),
           KEY(time_to_local, number())}};
}

template <>
Object<Certificate> describe() {
  using S = Certificate;
  return {"certificate",
          "Losses against their plain references in one process; allowed is exact * max(|g_ref|, t), with t "
          "the size of the terms that are added up.",
          {KEY(exact, number()), KEY(steps), KEY(rows)}};
}

template <>
Object<DetectionRate> describe() {
  using S = DetectionRate;
  return {"detection_rate", "",
          {KEY(what), KEY(hits, at_least(0)), KEY(of, at_least(0)), KEY(interval),
           {"asked", nullable(finite()),
            [](const S& r) { return r.asked < 0 ? std::nullopt : std::optional(r.asked); },
            [](S& r, std::optional<double> asked) { r.asked = asked.value_or(-1); },
            "The smallest share of hits required, or with at_most the largest allowed; null: none.",
            &S::asked},
           KEY(at_most), KEY(enough)}};
}

template <>
Object<DetectionRow> describe() {
  using S = DetectionRow;
  return {"detection_row",
          "The trials of one mutant, or of all pairs; exact ones and causes are counted among the caught.",
          {KEY(mutant),
           KEY(report, "The public report that it stands for, or empty."),
           KEY(trials), KEY(caught), KEY(exact_step), KEY(exact_place), KEY(exact), KEY(right_cause),
           KEY(wrong_cause),
           KEY(place_asked, added(usual<bool>()), "false: where the fault must show was not said, so that any place counts as exact."),
           KEY(by_loss_curve),
           KEY(first_found, "By detector: trials whose fault it was the first to show."),
           KEY(exact_trials, added(whole<int>(0)), "Trials beside these, free runs in exact arithmetic."),
           KEY(exact_found, added(whole<int>(0)), "Those that showed the fault at its step and place.")}};
}

template <>
Object<DetectionMiss> describe() {
  using S = DetectionMiss;
  return {"detection_miss", "",
          {KEY(cell),
           KEY(wrong,
               "missed, another step, another place, not named, wrong cause, false alarm or never acted"),
           KEY(planted), KEY(said), KEY(rerun)}};
}

template <>
Object<LeftOutMutant> describe() {
  using S = LeftOutMutant;
  return {"left_out_mutant", "", {KEY(mutant), KEY(reason, "Why it cannot act here.")}};
}

template <>
Object<Detection> describe() {
  using S = Detection;
  return {"detection",
          "Which planted faults were found and named, and what clean pairs raised; only for the question of "
          "detection.",
          {KEY(passed, "Every rate is enough."),
           KEY(loss_tolerance, finite(),
               "Relative difference beyond which loss curves count as different."),
           KEY(clean, at_least(0), "Pairs without a planted fault."),
           KEY(false_alarms, at_least(0)), KEY(rates), KEY(detectors),
           {"mutants", &S::rows},
           KEY(misses),
           KEY(left_out, added(usual<std::vector<LeftOutMutant>>()), "Mutants that cannot act here, which no rate counts.")},
          [](S& d) {
        for (const DetectionRow& row : d.rows) {
          if (row.first_found.size() != d.detectors.size())
            throw Unreadable("the row of " + row.mutant + " has not one count a detector");
        }
      }};
}

template <>
Object<DeclaredChange> describe() {
  using S = DeclaredChange;
  return {"declared_change", "Something that was declared otherwise when runs were first planned.",
          {KEY(what, "margin, metric, alpha, test, question or target"), KEY(was), KEY(is),
           KEY(runs, at_least(1), "That were planned so.")}};
}

template <>
Object<Declaration> describe() {
  using S = Declaration;
  return {"declaration",
          "Of the runs that outcomes are judged from: was what defines the judgement declared before they ran? "
          "Runs that are neither `before` nor `changed` have no record.",
          {KEY(runs, at_least(0)), KEY(before, at_least(0), "First planned under what is declared now."),
           KEY(changed, at_least(0), "First planned under something else."), KEY(changes)}};
}

template <>
Object<Summary> describe() {
  using S = Summary;
  return {"summary", "",
          {KEY(sentence, "The report's first line."),
           KEY(exit_code, at_least(0)),
           KEY(can_tell, "false: a power control was not divergent"),
           KEY(margin_refused, "true: the margin exceeds half of the effect that a power control shows"),
           KEY(margin_text), KEY(cells, at_least(0)), KEY(as_expected, at_least(0)),
           KEY(failed, at_least(0)), KEY(undecided, at_least(0)), KEY(power_controls, at_least(0)),
           KEY(power_controls_caught, at_least(0)), KEY(runs, at_least(0)), KEY(runs_reused, at_least(0)),
           KEY(sentences, added(usual<std::vector<std::string>>()),
               "What `sentence` says, one by one, the most important first."),
           KEY(uncontrolled, added(usual<std::vector<std::string>>()),
               "References of cells that were called equivalent though neither a power control nor another cell "
               "of theirs came out "
               "divergent.")}};
}

template <>
Object<Primary> describe() {
  using S = Primary;
  return {"", "",
          {KEY(metric), KEY(margin, exact()), KEY(target, exact()), KEY(alpha, exact()),
           KEY(test, added(usual<OutcomeTest>()), "What decides: t, or the sign test.")}};
}

template <>
Object<Results> describe() {
  using S = Results;
  return {"", "Everything that is known after a matrix has run.",
          {KEY(schema_version, constant(kResultsSchemaVersion)), KEY(name), KEY(config_file), KEY(question, question_name()),
           KEY(question_text), KEY(primary), KEY(steps, at_least(0)), KEY(seeds), KEY(summary),
           {"verdicts", &S::cells},
           KEY(references), KEY(certificate), KEY(provenance), KEY(rerun),
           KEY(growth, if_any(usual<std::vector<Growth>>())), KEY(timing, if_any(usual<Timing>())),
           KEY(declaration, if_any(usual<Declaration>())),
           KEY(detection, if_any(usual<Detection>())),
           {"laboratory", &S::suite, if_any(usual<SuiteResult>())}}};
}

}  // namespace lockstep::results_format
