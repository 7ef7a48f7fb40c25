// Mistakes of running normalisers.

#include <array>

#include "harness/jobs/orders/rewards/mutants.h"

namespace lockstep::rewards {
namespace {

using Moment = NormalizerSeam::Moment;

void own_rows_alone(NormalizerSeam& seam) {
  if (seam.moment != Moment::merged) return;
  seam.state.merged = merge(seam.before, seam.by_rank[static_cast<std::size_t>(seam.at.rank)]);
}

void totals(NormalizerSeam& seam) {
  if (seam.moment == Moment::sending) seam.sent = merge(seam.state.merged, seam.state.delta);
}

void squares_alone(NormalizerSeam& seam) {
  if (seam.moment != Moment::merged) return;
  double squares = seam.before.m2, sum = static_cast<double>(seam.before.count) * seam.before.mean;
  int64_t count = seam.before.count;
  for (const Moments& each : seam.by_rank) {
    squares += each.m2;
    sum += static_cast<double>(each.count) * each.mean;
    count += each.count;
  }
  seam.state.merged = {count, sum / static_cast<double>(count), squares};
}

void forgotten(NormalizerSeam& seam) {
  if (seam.moment == Moment::resumed && seam.at.step == seam.at.one.resumes_before) seam.state = {};
}

void not_this_time(NormalizerSeam& seam) {
  if (seam.moment == Moment::merged) seam.state.merged = seam.before;
}

void kept_out(NormalizerSeam& seam) {
  if (seam.moment == Moment::merging) seam.merges = false;
}

void too_early(NormalizerSeam& seam) {
  if (seam.moment == Moment::merging) seam.merges = true;
}

void once_more(NormalizerSeam& seam) {
  if (seam.moment != Moment::merged) return;
  for (const Moments& each : seam.by_rank) seam.state.merged = merge(seam.state.merged, each);
}

void dropped_rows(NormalizerSeam& seam) {
  if (seam.moment == Moment::sending) seam.sent = {};
}

void resumes(Case& one) { one.resumes_before = 1; }
void merges_at_the_end(Case& one) {
  for (CaseStep& step : one.steps) step.merges = false;
  one.steps.back().merges = true;
}

constexpr Mutant row(std::string_view name, std::string_view cause, std::string_view help, bool all_ranks,
                     void (*act)(NormalizerSeam&), void (*prepare)(Case&) = nullptr) {
  Mutant mutant{name, "normalizer", cause, help, 2, all_ranks, prepare};
  mutant.normalizer = act;
  return mutant;
}

constexpr std::array kNormalizerMutants{
    row("normalizer_local", "normalizer-local", "each rank merges its own rows alone", true, own_rows_alone),
    row("totals_resent", "history-counted-again", "totals are sent, not what came since the last merge", true, totals),
    row("squares_alone", "normalizer-between-missing", "squares are added without what lies between the means", true, squares_alone),
    row("not_seeded", "normalizer-not-seeded", "a resumed normaliser begins anew", true, forgotten, resumes),
    row("not_seeded_one", "normalizer-not-seeded", "one rank's resumed normaliser begins anew", false, forgotten, resumes),
    row("merge_skipped", "header-differs", "one rank leaves a merge out", false, kept_out),
    row("merged_early", "header-differs", "one rank merges more often than the others", false, too_early, merges_at_the_end),
    row("merge_lost", "merge-skipped", "one rank takes part in the merge and keeps its old state", false, not_this_time),
    row("merged_twice", "merged-twice", "what came is merged twice", true, once_more),
    row("delta_lost", "delta-lost", "one rank's rows are cleared before they are sent", false, dropped_rows),
};

}  // namespace

std::span<const Mutant> normalizer_mutants() { return kNormalizerMutants; }

}  // namespace lockstep::rewards
