#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <numbers>
#include <set>
#include <utility>
#include <vector>

#include "harness/judge/causes/gradient.h"
#include "harness/judge/causes/rules.h"
#include "scenarios/causes.h"
#include "scenarios/flow_rl/config.h"
#include "scenarios/flow_rl/rollout.h"

namespace lockstep {
namespace {

using namespace causes;

/// Groups of parameters by their place in the model; any other comes behind.
Role role_of(std::string_view group) {
  constexpr std::string_view kGroups[] = {"input", "hidden", "output"};
  return static_cast<Role>(std::ranges::find(kGroups, group) - std::begin(kGroups));
}

/// One number of a row in both runs.
struct Pair {
  Term term;
  double expected = 0, actual = 0;
};

/// The rows' terms in both runs, in the order of the rows' ids.
struct Terms {
  std::vector<AlignedRow> rows;
  double band = 0;

  bool differ(double a, double b) const { return !(std::abs(a - b) <= band); }
  static std::vector<Pair> of(const AlignedRow& row, TermKind kind) {
    std::vector<Pair> pairs;
    for (std::size_t c = 0; c < row.columns.size(); ++c) {
      const Term term = term_of(row.columns[c]);
      if (term.kind == kind) pairs.push_back({term, row.expected[c], row.actual[c]});
    }
    return pairs;
  }
  bool right(const AlignedRow& row, TermKind kind) const {
    const std::vector<Pair> pairs = of(row, kind);
    return !pairs.empty() && std::ranges::none_of(pairs, [&](const Pair& p) { return differ(p.expected, p.actual); });
  }
  bool all_right(std::initializer_list<TermKind> kinds) const {
    return std::ranges::all_of(rows, [&](const AlignedRow& row) {
      return std::ranges::all_of(kinds, [&](TermKind kind) { return right(row, kind); });
    });
  }
  /// The rollouts as they were made and acted.
  bool rollouts_right() const { return all_right({TermKind::chosen, TermKind::action, TermKind::success}); }
  bool rewards_right() const { return all_right({TermKind::reward, TermKind::cost}); }
};

std::optional<Terms> terms_in(const CauseInputs& inputs) {
  if (!inputs.forced || misses_scores(inputs)) return std::nullopt;
  Terms terms{aligned_rows(inputs), inputs.forced->score_band};
  if (terms.rows.empty() || !inputs.cell_config) return std::nullopt;
  std::ranges::stable_sort(terms.rows, {}, &AlignedRow::id);
  return terms;
}

std::string ranks_text(const std::set<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

/// The noise is the reference's, the actions are others, and the policy that is trained did not give them.
Answer stale_rollout_policy(const CauseInputs& inputs) {
  const auto terms = terms_in(inputs);
  if (!terms) return std::nullopt;
  std::set<int> wrong, others;
  double gap = 0;
  for (const AlignedRow& row : terms->rows) {
    const std::vector<Pair> chosen = Terms::of(row, TermKind::chosen), old = Terms::of(row, TermKind::old_log_pi);
    // A chunk that only one of both began has no noise there.
    const bool same_noise = std::ranges::none_of(chosen, [&](const Pair& p) {
      return p.expected != 0 && p.actual != 0 && terms->differ(p.expected, p.actual);
    });
    if (!same_noise || chosen.size() != old.size()) return std::nullopt;
    if (terms->right(row, TermKind::action)) {
      others.insert(row.rank);
      continue;
    }
    double apart = 0;
    for (std::size_t i = 0; i < chosen.size(); ++i) apart = std::max(apart, std::abs(chosen[i].actual - old[i].actual));
    if (!(apart > 4 * terms->band)) return std::nullopt;
    gap = std::max(gap, apart);
    wrong.insert(row.rank);
  }
  if (wrong.empty() || std::ranges::any_of(wrong, [&](int rank) { return others.contains(rank); })) return std::nullopt;
  return told("{}: the noise is the reference's, but every rollout has other actions, and the trained policy's "
              "log-probabilities of them differ from the recorded ones by up to {} nats",
              ranks_text(wrong), short_number(gap));
}

/// The noise and its order are the reference's, the actions are not, and every deviation that it was drawn with is one
/// factor larger.
Answer rollout_temperature(const CauseInputs& inputs) {
  const auto terms = terms_in(inputs);
  if (!terms || !inputs.cell_config) return std::nullopt;
  std::optional<double> offset;
  std::set<int> wrong;
  for (const AlignedRow& row : terms->rows) {
    for (const Pair& pair : Terms::of(row, TermKind::chosen)) {
      if (pair.expected == 0 || pair.actual == 0) continue;  // a chunk that only one of both began
      if (!terms->differ(pair.expected, pair.actual) && !wrong.contains(row.rank)) continue;
      if (terms->right(row, TermKind::action)) return std::nullopt;
      if (!offset) offset = pair.actual - pair.expected;
      if (terms->differ(pair.actual - pair.expected, *offset)) return std::nullopt;
      wrong.insert(row.rank);
    }
  }
  if (!offset) return std::nullopt;
  const double factor =
      std::exp(-*offset / static_cast<double>(flow_rl(*inputs.cell_config).policy.chunk * kActionNumbers));
  return told("{}: the rollout's log-probabilities of the same noise are off by {} nats each: its deviations are {} "
              "times as large",
              ranks_text(wrong), short_number(*offset), short_number(factor));
}

/// What is right up to the old log-probabilities.
bool is_right_before(const Terms& terms) { return terms.rollouts_right() && terms.rewards_right(); }

Answer old_log_pi_in_low_precision(const CauseInputs& inputs) {
  const auto terms = terms_in(inputs);
  if (!terms || !is_right_before(*terms) || terms->all_right({TermKind::old_log_pi})) return std::nullopt;
  double gap = 0;
  for (const AlignedRow& row : terms->rows) {
    for (const Pair& pair : Terms::of(row, TermKind::old_log_pi)) {
      const double wanted = rounded_to(pair.expected, 7), step = std::abs(pair.expected) * 0x1p-7;
      // At the middle between two, rounding of the term itself decides.
      const bool fits = !terms->differ(pair.actual, wanted) ||
                        (std::abs(pair.actual - pair.expected) <= step && pair.actual == rounded_to(pair.actual, 7));
      if (!fits) return std::nullopt;
      gap = std::max(gap, std::abs(pair.actual - pair.expected));
    }
  }
  return told("log-probabilities of the rollout are the reference's rounded to bfloat16, off by up to {} nats: the "
              "first ratio after a rollout is not 1",
              short_number(gap));
}

/// Does a function of a valid transition's expected log-probability give what was found, of every row?
bool trained_is(const Terms& terms, const std::function<double(const Pair&)>& predicted, double slack) {
  std::size_t seen = 0;
  for (const AlignedRow& row : terms.rows) {
    for (const Pair& pair : Terms::of(row, TermKind::log_pi)) {
      if (pair.expected == 0 && pair.actual == 0) continue;  // behind the episode's end
      const double wanted = predicted(pair);
      if (!(std::abs(pair.actual - wanted) <= slack * (terms.band + 1e-5 * std::abs(wanted)))) return false;
      ++seen;
    }
  }
  return seen > 0;
}

std::optional<Terms> wrong_in_training_alone(const CauseInputs& inputs) {
  auto terms = terms_in(inputs);
  if (!terms || !is_right_before(*terms) || !terms->all_right({TermKind::old_log_pi})) return std::nullopt;
  if (terms->all_right({TermKind::log_pi})) return std::nullopt;
  return terms;
}

/// Where a trained transition first parts from the rollout's: "row 17, chunk 0, transition 2".
std::string first_wrong(const Terms& terms) {
  for (const AlignedRow& row : terms.rows) {
    for (const Pair& pair : Terms::of(row, TermKind::log_pi)) {
      if (terms.differ(pair.expected, pair.actual)) {
        return fmt::format("first at sample {}, chunk {}, transition {}: {} instead of {}", row.id, pair.term.chunk,
                           pair.term.transition, short_number(pair.actual), short_number(pair.expected));
      }
    }
  }
  return "nowhere";
}

double numbers_of(const FlowConfig& flow) { return static_cast<double>(flow.chunk * kActionNumbers); }

Answer sigma_terms_missing(const CauseInputs& inputs) {
  const auto terms = wrong_in_training_alone(inputs);
  if (!terms) return std::nullopt;
  const FlowConfig& flow = flow_rl(*inputs.cell_config).policy;
  const auto without = [&](const Pair& pair) {
    return pair.expected + numbers_of(flow) * std::log(sigma_of(flow, static_cast<int>(pair.term.transition)));
  };
  if (!trained_is(*terms, without, 4)) return std::nullopt;
  return told("log pi of the update is the reference's without -log sigma of each number; {}", first_wrong(*terms));
}

/// A transition's log-probability if its Gaussian had another's deviation.
double with_sigma_of(const FlowConfig& flow, const Pair& pair, int other) {
  const double own = sigma_of(flow, static_cast<int>(pair.term.transition)), wrong = sigma_of(flow, other);
  const double root = 0.5 * std::log(2 * std::numbers::pi), numbers = numbers_of(flow);
  const double squares = -2 * (pair.expected + numbers * (std::log(own) + root));
  return -0.5 * squares * (own * own) / (wrong * wrong) - numbers * (std::log(wrong) + root);
}

Answer sigma_of_another_step(const CauseInputs& inputs) {
  const auto terms = wrong_in_training_alone(inputs);
  if (!terms) return std::nullopt;
  const FlowConfig& flow = flow_rl(*inputs.cell_config).policy;
  constexpr int kTransitions = FlowConfig::kTransitions;
  const double slack = 8 * std::pow(std::max(flow.sigma, flow.sigma_last) / std::min(flow.sigma, flow.sigma_last), 2);
  for (int shift = 1; shift < kTransitions; ++shift) {
    const auto other = [&](const Pair& pair) { return static_cast<int>((pair.term.transition + shift) % kTransitions); };
    if (!trained_is(*terms, [&](const Pair& pair) { return with_sigma_of(flow, pair, other(pair)); }, slack)) continue;
    return told("log pi of the update uses for each transition the deviation of the one {} further; {}", shift,
                first_wrong(*terms));
  }
  return std::nullopt;
}

Answer chain_drawn_again(const CauseInputs& inputs) {
  const auto terms = wrong_in_training_alone(inputs);
  if (!terms || sigma_terms_missing(inputs) || sigma_of_another_step(inputs)) return std::nullopt;
  std::size_t wrong = 0, all = 0;
  for (const AlignedRow& row : terms->rows) {
    for (const Pair& pair : Terms::of(row, TermKind::log_pi)) {
      if (pair.expected == 0) continue;
      ++all;
      wrong += terms->differ(pair.expected, pair.actual) ? 1 : 0;
    }
  }
  if (wrong * 10 < all * 9) return std::nullopt;
  return told("log pi of the rollout is the reference's, that of the update is another in {} of {} transitions and "
              "follows no other deviation: it is of another chain; {}",
              wrong, all, first_wrong(*terms));
}

/// The loss is the reference's and nothing depends on the parameters any more.
Answer log_pi_detached(const CauseInputs& inputs) {
  const auto gradients = local_of(inputs);
  if (!gradients || !gradients->signatures().all_fit(0)) return std::nullopt;
  return told("log-probabilities, advantages and the loss are the reference's, and all gradients are 0: the ratio is "
              "of log pi with itself, detached");
}

/// Row losses of some ranks are the reference's less the divergence's part, those of the others are the reference's.
Answer kl_left_out(const CauseInputs& inputs) {
  const auto terms = terms_in(inputs);
  if (!terms || !inputs.reference_config) return std::nullopt;
  const FlowRlConfig& wanted = flow_rl(*inputs.reference_config);
  std::map<int64_t, double> expected, kl;
  for (const RankLoss& rank : inputs.forced->reference.losses) {
    for (std::size_t row = 0; row < std::min(rank.row_ids.size(), rank.row_losses.size()); ++row)
      expected[rank.row_ids[row]] = rank.row_losses[row];
  }
  for (const AlignedRow& row : terms->rows)
    for (const Pair& pair : Terms::of(row, TermKind::kl)) kl[row.id] += wanted.kl * pair.expected / chunks_of(wanted.policy);
  std::set<int> without;
  double most = 0;
  for (std::size_t rank = 0; rank < inputs.forced->cell.losses.size(); ++rank) {
    const RankLoss& own = inputs.forced->cell.losses[rank];
    if (own.row_ids.size() != own.row_losses.size()) return std::nullopt;
    bool as_wanted = true, less = !own.row_ids.empty();
    for (std::size_t row = 0; row < own.row_ids.size(); ++row) {
      const auto it = expected.find(own.row_ids[row]);
      if (it == expected.end()) return std::nullopt;
      const double gap = it->second - own.row_losses[row], part = kl[own.row_ids[row]];
      const double slack = 1e-5 * std::max(1.0, std::abs(it->second)) + terms->band;
      as_wanted = as_wanted && std::abs(gap) <= slack;
      less = less && std::abs(gap - part) <= slack;
      most = std::max(most, part);
    }
    if (as_wanted) continue;
    if (!less) return std::nullopt;
    without.insert(static_cast<int>(rank));
  }
  if (without.empty()) return std::nullopt;
  return told("{}: every row loss is the reference's less {} times the divergence from the cloned policy, up to {}",
              ranks_text(without), short_number(wanted.kl), short_number(most));
}

constexpr Hypothesis kHypotheses[] = {
    {"stale-rollout-policy", kInScores, kScores | kOurs, kExact, stale_rollout_policy},
    {"rollout-temperature", kInScores, kScores | kOurs, kExact, rollout_temperature},
    {"old-log-pi-in-low-precision", kInScores, kScores | kOurs, kExact, old_log_pi_in_low_precision},
    {"sigma-terms-missing", kInScores, kScores | kOurs, kExact, sigma_terms_missing},
    {"sigma-of-another-step", kInScores, kScores | kOurs, kExact, sigma_of_another_step},
    {"chain-drawn-again", kInScores, kScores | kOurs, kFits, chain_drawn_again},
    {"kl-left-out", kInLoss | kInLocal, kScores | kConfigs | kOurs, kExact, kl_left_out},
    {"log-pi-detached", kInGradients, kLocal | kOurs, kExact, log_pi_detached},
};

constexpr CausePage kPages[] = {
    {"stale-rollout-policy", "energies", "Some ranks make rollouts with an older policy than the trained one.",
     "the noise is the reference's, the actions differ, and the trained policy gives them other log-probabilities "
     "than the "
     "rollout recorded",
     "rollouts = engine.generate(prompts)  # the engine has the previous step's weights",
     "engine.load_weights(model.state_dict())\nrollouts = engine.generate(prompts)",
     "Copy the weights to every rollout worker before a rollout, and compare their checksums.", ""},
    {"old-log-pi-in-low-precision", "energies", "Log-probabilities of the rollout were rounded to 16 bits.",
     "the rollout's log-probabilities are the reference's rounded to bfloat16", "old = engine.logprobs.bfloat16()",
     "with torch.no_grad():\n    old = model.log_prob(rollouts)",
     "Compute them again with the trained model, in its precision.", ""},
    {"log-pi-in-low-precision", "energies",
     "The update computes log-probabilities in 16 bits, and the rollout does not.",
     "recomputed in float64 they are the rollout's; recomputed in 16 bits they are the update's",
     "with torch.autocast(\"cuda\", torch.bfloat16):\n    logp = model.log_prob(rollouts)",
     "logp = model.log_prob(rollouts, logits_dtype=torch.float32)",
     "Compute logits and log-probabilities in float32 on both sides, or correct by the ratio of both.", ""},
    {"rollout-temperature", "energies",
     "The rollout samples at another temperature than the update computes log-probabilities at.",
     "the rollout's log-probabilities follow from the update's by one factor on the deviations, or on the logits",
     "logp = log_softmax(logits)", "logp = log_softmax(logits / temperature)",
     "Divide the logits by the sampler's temperature where log-probabilities are computed again.", ""},
    {"sigma-terms-missing", "energies", "The update's log-probabilities lack the terms of the deviations.",
     "the update's log-probabilities are the reference's plus log sigma of each number",
     "logp = -(x - mean) ** 2 / (2 * sigma ** 2)", "logp = Normal(mean, sigma).log_prob(x)",
     "Use one function for the log-probability of rollout and update.", ""},
    {"sigma-of-another-step", "energies", "A transition's log-probability uses another transition's deviation.",
     "the recorded terms follow from the deviation of a later transition",
     "logp = Normal(mean[k], sigma[k + 1]).log_prob(x)", "logp = Normal(mean[k], sigma[k]).log_prob(x)",
     "Store each transition's deviation with its noise.", ""},
    {"chain-drawn-again", "energies",
     "The update computes log-probabilities of another action chain than the one that was executed.",
     "the rollout's log-probabilities are right, and nearly all of the update's differ",
     "logp = policy.sample(obs).log_prob", "logp = policy.log_prob(obs, kept_chain)",
     "Store the chain's noise and positions with the rollout.", ""},
    {"kl-left-out", "loss", "Some ranks' losses lack the KL divergence from the reference policy.",
     "these ranks' row losses are the reference's without that term", "loss = -(ratio * advantage).mean()",
     "loss = -(ratio * advantage).mean() + kl_weight * kl.mean()",
     "Give the terms of the loss the same weights on every rank.", ""},
    {"log-pi-detached", "gradient", "The loss has the right value, but no gradient.",
     "log-probabilities and advantages are the reference's, but all gradients are 0",
     "ratio = torch.exp(logp.detach() - logp.detach())", "ratio = torch.exp(logp - logp.detach())",
     "Detach only the old log-probability.", ""},
};

std::span<const CausePage> pages() { return kPages; }
std::span<const Hypothesis> hypotheses() { return kHypotheses; }

std::pair<std::string_view, int64_t> acted_column(int64_t column) {
  const Term term = term_of(column);
  const int64_t t = term.chunk * FlowConfig::kTransitions + term.transition,
                again = static_cast<int64_t>(term.kind) - kFirstAgain;
  if (term.kind == TermKind::chosen) return {"acted", t};
  if (term.kind == TermKind::old_log_pi) return {"old", t};
  return {again >= 0 && again < std::ssize(kActedAgain) ? kActedAgain[again] : "", t};
}

DeclaredAdvantages advantages_of(const RunConfig& config) {
  const FlowRlConfig& own = flow_rl(config);
  return {way_of(own), own.group, own.cost_weight};
}

}  // namespace

const TrainerRules& flow_rl_cause_rules() {
  static_assert(column_of({TermKind::reward}) == kRewardColumn && column_of({TermKind::cost}) == kCostColumn &&
                column_of({TermKind::advantage}) == kAdvantageColumn);
  static constexpr TrainerRules kRules{.role_of = role_of,
                                       .hypotheses = hypotheses,
                                       .advantages = advantages_of,
                                       .acted_column = acted_column,
                                       .pages = pages};
  return kRules;
}

}  // namespace lockstep
