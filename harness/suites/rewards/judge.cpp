#include "harness/suites/rewards/judge.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/suites/rewards/emulated.h"

namespace lockstep::rewards {
namespace {

CaseResult fault(std::string outcome, const Case& one, const std::string& sentence) {
  return {std::move(outcome), CaseVerdict::fault, 1, in_words(one) + ": " + sentence};
}

/// The first rank whose answer differs from rank 0's; -1: none.
template <class Ranks, class Same>
int first_other(const Ranks& by_rank, const Same& same) {
  for (std::size_t rank = 1; rank < by_rank.size(); ++rank) {
    if (!same(by_rank[0], by_rank[rank])) return static_cast<int>(rank);
  }
  return -1;
}

std::string finished_how(const std::string& failure, bool refused) {
  if (!failure.empty()) return "refused by all: the reward function gave what is not finite";
  return refused ? "a step refused by all, the others taken" : "every bit the same";
}

std::vector<TimelineStep> timeline_of(const Case& one, const Plant& plant, int64_t last) {
  std::vector<TimelineStep> steps;
  const std::string who = plant.mutant->all_ranks ? "all ranks" : fmt::format("rank {}", plant.rank);
  for (int64_t step = 0; step <= last; ++step) {
    steps.push_back({fmt::format("rank {}", one.root), fmt::format("step {}: scores and sends the rewards", step), ""});
    if (step == plant.step) steps.push_back({who, std::string(plant.mutant->help), "planted"});
    steps.push_back({"all ranks", fmt::format("step {}: advantages, weights, merge and ratio are shown and audited", step),
                     step == last ? "named" : ""});
  }
  return steps;
}

}  // namespace

CaseResult judge_case(const Case& one, const std::vector<Played>& by_rank, double ulp, Distances& far) {
  const Played& first = by_rank.front();
  const int other = first_other(by_rank, [](const Played& a, const Played& b) { return a.digest == b.digest; });
  if (other > 0) return fault("ranks differ", one, fmt::format("rank {} has other bits than rank 0", other));
  const std::string expected = expected_failure(one);
  if (first.failure.code != expected)
    return fault("failed", one, fmt::format("expected {}, found {}", expected.empty() ? "no failure" : expected,
                                            first.failure ? first.failure.sentence : "no failure"));
  if (!first.findings.empty()) return fault("false alarm", one, first.findings.front().sentence);
  if (!expected.empty()) return {finished_how(expected, false), CaseVerdict::good, 1, ""};
  if (const auto alone = play_emulated(in_one_process(one)); alone.front().numbers != first.numbers)
    return fault("depends on the layout", one, "one process has other bits");
  const Distances here = distances(one, first.steps);
  if (!here.problem.empty()) return fault("not what one process has", one, here.problem);
  if (std::max({here.mean_ulp, here.deviation_ulp, here.advantage_ulp}) > ulp) {
    return fault("far from one process", one,
                 fmt::format("mean {:.2f} ulp (condition {:.3g}), deviation {:.2f} ulp (condition {:.3g}), advantages {:.2f} ulp "
                             "of max|r| / sigma; at most {:g}",
                             here.mean_ulp, here.mean_condition, here.deviation_ulp, here.deviation_condition,
                             here.advantage_ulp, ulp));
  }
  widen(far, here);
  const bool refused = std::ranges::any_of(first.steps, [](const StepNumbers& step) { return !step.refused.empty(); });
  return {finished_how("", refused), CaseVerdict::good, 1, ""};
}

CaseResult judge_real(const Case& one, const std::vector<Answer>& by_rank, const Answer& emulated) {
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const Answer& found = by_rank[rank];
    if (found.digest == emulated.digest && found.code == emulated.code && found.kept == emulated.kept) continue;
    return fault("ranks differ", one,
                 fmt::format("rank {} has other bits than emulated ranks ({}{})", rank, found.code, found.sentence));
  }
  return {finished_how(emulated.code, false), CaseVerdict::good, 1, ""};
}

CaseResult judge_mutant(const Case& one, const Plant& plant, const std::vector<Answer>& by_rank) {
  const Answer& told = by_rank.front();
  const std::string name(plant.mutant->name);
  const int other = first_other(by_rank, [](const Answer& a, const Answer& b) { return a.code == b.code && a.sentence == b.sentence; });
  if (other > 0)
    return fault("ranks were told differently", one,
                 fmt::format("{}: rank 0 was told '{}' and rank {} '{}'", name, told.sentence, other, by_rank[static_cast<std::size_t>(other)].sentence));
  int64_t acted = -1;
  for (const Answer& each : by_rank) {
    if (each.acted >= 0 && (acted < 0 || each.acted < acted)) acted = each.acted;
  }
  if (acted < 0 && told.code.empty()) return {"changed no bit", CaseVerdict::good, 1, ""};
  if (told.code.empty()) return fault("not found", one, fmt::format("{} acted from step {} on", name, acted));
  const std::vector<TimelineStep> timeline = timeline_of(one, plant, told.step);
  const auto result = [&](std::string outcome, CaseVerdict verdict) {
    return CaseResult{std::move(outcome), verdict, 1, fmt::format("{}: {}", name, told.sentence), timeline};
  };
  const bool among = std::ranges::find(told.also, plant.mutant->cause) != told.also.end();
  if (told.code != plant.mutant->cause && !among) return result("named wrongly", CaseVerdict::fault);
  if (told.step != acted) return result("named too late", CaseVerdict::fault);
  if (told.findings > 1) return result("named, and something besides", CaseVerdict::fault);
  if (!told.also.empty()) return result("named at its first step, as one of several that fit", CaseVerdict::planted);
  return result("named at its first step", CaseVerdict::planted);
}

std::string expected_code(FaultKind fault) {
  switch (fault) {
    case FaultKind::throws: return "score-threw";
    case FaultKind::hangs: return "score-hung";
    case FaultKind::wrong_length: return "score-length";
    case FaultKind::not_a_number: return "score-not-finite";
    case FaultKind::rank_ends: return "rank-ended";
    case FaultKind::rank_hangs: return "rank-silent";
    case FaultKind::none: break;
  }
  return "";
}

CaseResult judge_fault(const Case& one, const std::vector<Answer>& by_rank, const std::string& before) {
  const bool by_itself = one.fault == FaultKind::rank_ends || one.fault == FaultKind::rank_hangs;
  std::string told;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (by_itself && static_cast<int>(rank) == one.fault_rank) continue;
    const Answer& found = by_rank[rank];
    if (found.code != expected_code(one.fault) || found.step != one.fault_step)
      return fault("another error", one, fmt::format("{}: rank {} has '{}' in step {}; expected {}", name_of(one.fault), rank,
                                                     found.sentence, found.step, expected_code(one.fault)));
    if (!by_itself && !told.empty() && told != found.sentence)
      return fault("told differently", one, fmt::format("{}: rank {} has '{}', another '{}'", name_of(one.fault), rank, found.sentence, told));
    told = found.sentence;
    if (found.kept != before)
      return fault("half updated", one, fmt::format("{}: rank {} does not hold what it held before the step", name_of(one.fault), rank));
  }
  return {"all left with the same error, nothing changed", CaseVerdict::good, 1, ""};
}

}  // namespace lockstep::rewards
