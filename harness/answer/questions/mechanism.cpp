#include "harness/answer/questions/mechanism.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "harness/answer/questions/question_judge.h"
#include "harness/answer/questions/sentences.h"
#include "harness/base/numbers.h"
#include "harness/judge/causes/acted.h"
#include "harness/judge/trace/record.h"

// What cells compute decides.

namespace lockstep::questions::mechanism {

const QuestionJudge& judge() {
  static const QuestionJudge kJudge{
      .verdict = &verdict_by_mechanism,
      .compare_untraced = &compare_results,
      .sentences = &mechanism_sentences,
  };
  return kJudge;
}

}  // namespace lockstep::questions::mechanism

namespace lockstep {
namespace {

/// Where a curve's values come from in a step: what comes first is named first.
Phase phase_of(const std::string& curve) {
  if (curve == "learning_rate") return Phase::control;
  if (curve == "gradient_norm") return Phase::gradient_norm;
  const bool evaluated = curve.starts_with("accuracy") || curve.starts_with("cross_entropy");
  return evaluated ? Phase::evaluation : Phase::loss;
}

class ResultComparison {
 public:
  void compare(int rank, const RankResult& reference, const RankResult& cell) {
    if (reference.parameters_hash.empty() || cell.parameters_hash.empty()) {
      throw std::runtime_error(
          fmt::format("rank {} left no fingerprint of its final parameters, and there is no trace", rank));
    }
    for (const auto& [name, series] : reference.curves) {
      if (const auto other = cell.curves.find(name); other != cell.curves.end())
        compare_curve(rank, name, series, other->second);
    }
    steps_ = std::max(steps_, std::min(reference.steps_done, cell.steps_done));
    for (const auto& [name, value] : reference.metrics) {
      const auto other = cell.metrics.find(name);
      if (other == cell.metrics.end()) continue;
      ++metrics_;
      if (!same_bits(value, other->second)) {
        differs({reference.steps_done, name_of(Phase::evaluation), rank, name, DivergenceKind::bits,
                 fmt::format("{:.17g}", value), fmt::format("{:.17g}", other->second), ""});
      }
    }
    if (reference.parameters_hash != cell.parameters_hash) {
      differs({reference.steps_done, name_of(Phase::parameters), rank, "final parameters", DivergenceKind::bits,
               reference.parameters_hash, cell.parameters_hash, ""});
    }
  }

  Mechanism verdict() const {
    Mechanism mechanism;
    mechanism.compared_steps = steps_;
    mechanism.verdict = first_ ? VerdictKind::divergent : VerdictKind::identical;
    const std::string what = fmt::format(
        "No trace was kept (trace: off): the final parameters' fingerprint, {} final metrics and {} values "
        "of curves were compared",
        metrics_, values_);
    if (!first_) {
      mechanism.sentence = what + ", all equal bit for bit.";
      return mechanism;
    }
    mechanism.first_divergence = first_;
    mechanism.first_divergence->sentence =
        fmt::format("At step {} {} of rank {} is {}, not {}", first_->step, first_->where, first_->rank,
                    first_->actual, first_->expected);
    mechanism.sentence = fmt::format("{}. {}.", what, mechanism.first_divergence->sentence);
    return mechanism;
  }

 private:
  void compare_curve(int rank, const std::string& name, const Series& reference, const Series& cell) {
    std::map<int64_t, double> expected;
    for (std::size_t i = 0; i < reference.steps.size(); ++i)
      expected[reference.steps[i]] = reference.values[i];
    for (std::size_t i = 0; i < cell.steps.size(); ++i) {
      const auto at = expected.find(cell.steps[i]);
      if (at == expected.end()) continue;
      ++values_;
      if (same_bits(at->second, cell.values[i])) continue;
      differs({at->first, name_of(phase_of(name)), rank, name, DivergenceKind::bits, fmt::format("{:.17g}", at->second),
               fmt::format("{:.17g}", cell.values[i]), ""});
    }
  }

  /// Keeps the first one: by step, then as a step goes, then by rank.
  void differs(Divergence found) {
    const auto order = [](const Divergence& each) {
      constexpr std::array kOrder = {Phase::control, Phase::loss, Phase::gradient_norm, Phase::parameters};
      const auto at =
          std::ranges::find(kOrder, each.phase, [](Phase phase) { return std::string(name_of(phase)); }) -
          kOrder.begin();
      return std::tuple(each.step, at, each.rank);
    };
    if (!first_ || order(found) < order(*first_)) first_ = std::move(found);
  }

  std::optional<Divergence> first_;
  int64_t steps_ = 0;
  int metrics_ = 0, values_ = 0;
};

}  // namespace

Mechanism compare_results(const std::string& reference_dir, const std::string& cell_dir, int world_size,
                          const RankResultReader& read) {
  ResultComparison comparison;
  for (int rank = 0; rank < world_size; ++rank) {
    const std::string name = fmt::format("/rank-{}.result.json", rank);
    comparison.compare(rank, read(reference_dir + name), read(cell_dir + name));
  }
  return comparison.verdict();
}

}  // namespace lockstep

// What a run's rollouts acted by decides.

namespace lockstep::questions::replay {

const QuestionJudge& judge() {
  static const QuestionJudge kJudge{.verdict = &verdict_by_mechanism,
                                    .judge_run = &judge_acted_run,
                                    .omits_references = true,
                                    .sentences = &mechanism_sentences};
  return kJudge;
}

}  // namespace lockstep::questions::replay

// What cells learn decides.

namespace lockstep::questions::outcome {

const QuestionJudge& judge() {
  static const QuestionJudge kJudge{
      .verdict = &verdict_by_outcome,
      .needs_pairs = true,
      .sentences = &outcome_sentences,
  };
  return kJudge;
}

}  // namespace lockstep::questions::outcome
