#include "harness/jobs/orders/rewards/play.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>

#include "harness/base/hashing.h"
#include "harness/lib/rewards/bytes.h"

namespace lockstep::rewards {
namespace {

/// How long a function hangs: far beyond every deadline of a case.
constexpr std::chrono::seconds kHang{60};

/// Everything that ranks show of a step.
struct Shown {
  ShownRewards rewards;
  ShownAdvantages advantages;
  ShownWeights weights;
  ShownNormalizer normalizer;
  ShownRatio ratio;
  template <class Self, class Archive>
  static void fields(Self& s, Archive& a) {
    a(s.rewards, s.advantages, s.weights, s.normalizer, s.ratio);
  }
};

/// The reward function of a step; it owns what it uses.
ScoreFunction score_of(const Case& one, int64_t step) {
  const auto by_id = std::make_shared<std::map<int64_t, double>>();
  const Rows& rows = one.steps[static_cast<std::size_t>(step)].rows;
  for (std::size_t i = 0; i < rows.size(); ++i) (*by_id)[rows.ids[i]] = rows.rewards[i];
  const FaultKind fault = one.fault_step == step ? one.fault : FaultKind::none;
  return [by_id, fault](const std::vector<int64_t>& ids) {
    if (fault == FaultKind::throws) throw std::runtime_error("the reward model is out of memory");
    if (fault == FaultKind::hangs) std::promise<void>().get_future().wait_for(kHang);
    std::vector<double> values;
    for (const int64_t id : ids) values.push_back(by_id->at(id));
    if (fault == FaultKind::wrong_length && !values.empty()) values.pop_back();
    if (fault == FaultKind::not_a_number && !values.empty()) values.back() = std::numeric_limits<double>::quiet_NaN();
    return values;
  };
}

void put(ByteWriter& writer, const Statistics& statistics) {
  writer(statistics.count, statistics.mean, statistics.deviation);
}

class Player {
 public:
  Player(const Case& one, const PlayOptions& options, checkpoint::Group& group)
      : one_(one),
        options_(options),
        rank_(group.rank()),
        convention_(convention_of(one, options.plant, rank_)),
        exchange_(group, {one.root, one.deadline_s, one.score_deadline_s, convention_}),
        normalizer_(one.convention),
        broadcast_audit_(one.root),
        advantage_audit_({one.estimator, one.convention, one.beta}),
        normalizer_audit_(one.world) {
    // Another convention is a rank's own from its first exchange on.
    if (convention_ != one.convention) done_.acted_step = 0;
  }

  Played play() {
    for (std::size_t step = 0; step < one_.steps.size(); ++step) {
      step_ = static_cast<int64_t>(step);
      if (!take_step(one_.steps[step])) break;
    }
    done_.digest = hash_in_hex(all_.text() + done_.failure.code + done_.failure.sentence);
    done_.numbers = hash_in_hex(numbers_.text());
    ByteWriter kept;
    kept(normalizer_.state().merges, last_advantages_);
    kept.put(normalizer_.state().merged);
    done_.kept = hash_in_hex(kept.text());
    return std::move(done_);
  }

 private:
  static Convention convention_of(const Case& one, const Plant& plant, int rank) {
    Convention convention = one.convention;
    if (plant.mutant == nullptr || plant.mutant->protocol == nullptr || !plant.acts(rank, plant.step)) return convention;
    int64_t step = 0;
    Rows rows = rows_of(one.steps[static_cast<std::size_t>(plant.step)], rank);
    if (rows.ids.empty()) return convention;
    plant.mutant->protocol({one, rank, plant.step}, step, convention, rows);
    return convention;
  }

  const Mutant* mutant() const { return options_.plant.acts(rank_, step_) ? options_.plant.mutant : nullptr; }
  MutantPlace place() const { return {one_, rank_, step_}; }

  void acted(bool changed) {
    if (changed && done_.acted_step < 0) done_.acted_step = step_;
  }

  bool failed(const Failure& failure) {
    if (!failure) return false;
    done_.failure = failure;
    done_.failed_step = step_;
    return true;
  }

  bool misbehaved() {
    const bool by_rank = one_.fault == FaultKind::rank_ends || one_.fault == FaultKind::rank_hangs;
    if (!by_rank || one_.fault_step != step_ || one_.fault_rank != rank_) return false;
    if (options_.misbehave) options_.misbehave(one_.fault);
    done_.left = true;
    return true;
  }

  bool take_step(const CaseStep& step) {
    Shown shown;
    Rows mine = rows_of(step, rank_);
    if (!take_rewards(step, shown.rewards, mine)) return false;
    if (misbehaved()) return false;
    StepNumbers numbers;
    if (!take_advantages(mine, shown, numbers)) return false;
    const bool taken = numbers.refused.empty();
    if (taken) {
      weigh(step, numbers.partitioned, shown.weights);
      take_ratio(mine, shown.ratio);
    }
    if (!take_normalizer(step, mine, taken, shown.normalizer)) return false;
    numbers.normalizer = normalizer_.state().merged;
    if (taken) last_advantages_ = numbers.advantages.values;
    const bool goes_on = audit(shown);
    remember(numbers);
    done_.steps.push_back(std::move(numbers));
    return goes_on;
  }

  bool take_rewards(const CaseStep& step, ShownRewards& shown, Rows& mine) {
    shown.step = step_;
    shown.root = one_.root;
    shown.ids = step.rows.ids;
    // Ranks have their samples in orders of their own.
    std::ranges::rotate(shown.ids, shown.ids.begin() + (shown.ids.empty() ? 0 : rank_ % static_cast<int>(shown.ids.size())));
    shown.held.assign(shown.ids.size(), poison(rank_, step_));
    const ScoreFunction score = score_of(one_, step_);
    const auto calls = std::make_shared<int64_t>(0);
    const auto source = std::make_shared<std::vector<double>>();
    int64_t said_step = step_;
    if (mutant() != nullptr && mutant()->protocol != nullptr) {
      Convention same = one_.convention;
      mutant()->protocol(place(), said_step, same, mine);
      acted(true);
    }
    const Received received = exchange_.rewards(said_step, shown.ids, [calls, source, score](const std::vector<int64_t>& ids) {
      ++*calls;
      *source = score(ids);
      return *source;
    });
    if (failed(received.failure)) return false;
    shown.held = received.values;
    shown.scored = *calls;
    shown.source = *source;
    shown.broadcasts = 1;
    if (mutant() != nullptr && mutant()->rewards != nullptr && !shown.ids.empty()) {
      const std::string right = to_bytes(shown);
      RewardsSeam seam{place(), shown, held_before_, score};
      mutant()->rewards(seam);
      acted(right != to_bytes(shown));
    }
    held_before_ = shown.held;
    std::map<int64_t, double> by_id;
    for (std::size_t i = 0; i < std::min(shown.ids.size(), shown.held.size()); ++i) by_id[shown.ids[i]] = shown.held[i];
    for (std::size_t i = 0; i < mine.size(); ++i) mine.rewards[i] = by_id[mine.ids[i]];
    return true;
  }

  bool take_advantages(const Rows& mine, Shown& shown, StepNumbers& numbers) {
    GatheredRows all = exchange_.rows(step_, mine);
    if (failed(all.failure)) return false;
    numbers.ids = all.rows.ids;
    numbers.values = penalised(all.rows, one_.beta);
    numbers.advantages = advantages_of({numbers.values, all.rows.groups, all.rows.counted}, one_.estimator, one_.convention);
    numbers.counted = screen(numbers.values, all.rows.counted, one_.convention).counted;
    numbers.refused = numbers.advantages.problem;
    numbers.partitioned = all.partitioned;
    numbers.partitioned.constant = one_.constant;
    shown.advantages.step = step_;
    shown.advantages.rows = mine;
    shown.advantages.problem = numbers.refused;
    if (!numbers.refused.empty()) return true;
    std::map<int64_t, double> by_id;
    for (std::size_t i = 0; i < all.rows.size(); ++i) by_id[all.rows.ids[i]] = numbers.advantages.values[i];
    for (const int64_t id : mine.ids) shown.advantages.advantages.push_back(by_id.at(id));
    shown.advantages.count = numbers.advantages.batch.count;
    shown.advantages.mean = numbers.advantages.batch.mean;
    shown.advantages.deviation = numbers.advantages.batch.deviation;
    if (mutant() != nullptr && mutant()->advantages != nullptr && !mine.ids.empty()) {
      const std::string right = to_bytes(shown.advantages);
      AdvantagesSeam seam{place(), all, shown.advantages, statistics_before_ ? &*statistics_before_ : nullptr};
      mutant()->advantages(seam);
      acted(right != to_bytes(shown.advantages));
    }
    statistics_before_ = numbers.advantages.batch;
    return true;
  }

  void weigh(const CaseStep& step, const Partitioned& partitioned, ShownWeights& shown) {
    shown.step = step_;
    const auto& parts = partitioned.by_rank[static_cast<std::size_t>(rank_)];
    for (std::size_t part = 0; part < parts.size(); ++part) {
      shown.micro.push_back({parts[part].rows, parts[part].valid_steps, parts[part].groups, parts[part].rows + step.filtered,
                             weight_of(one_.denominator, one_.scope, partitioned, rank_, static_cast<int>(part))});
    }
    groups_ = partitioned.groups;
    rank_groups_ = partitioned.rank_groups;
    if (mutant() == nullptr || mutant()->weights == nullptr || shown.micro.empty()) return;
    const std::string right = to_bytes(shown);
    WeightsSeam seam{place(), partitioned, shown};
    mutant()->weights(seam);
    acted(right != to_bytes(shown));
  }

  void take_ratio(const Rows& mine, ShownRatio& shown) {
    ChainPolicy policy;
    policy.drift += 0.01 * static_cast<double>(step_);
    const Rollout rollout = roll_out(policy, one_.sigmas, mine.ids, one_.chain, one_.key + static_cast<uint64_t>(step_));
    ChainPolicy moved = policy;
    moved.drift += 0.125;
    const std::vector<double> probe = log_probs(moved, rollout.sigmas, rollout);
    shown = {step_, one_.chain.length, one_.chain.dims, mine.ids, policy.hash(), policy.hash(), rollout.sigmas,
             rollout.sigmas, action_hashes(rollout), action_hashes(rollout), rollout.log_probs,
             log_probs(policy, rollout.sigmas, rollout), {}, static_cast<int64_t>(mine.size()),
             static_cast<int64_t>(mine.size())};
    for (std::size_t i = 0; i < probe.size(); ++i) shown.probe.push_back(std::exp(probe[i] - rollout.log_probs[i]));
    if (mutant() == nullptr || mutant()->ratio == nullptr || mine.ids.empty()) return;
    const std::string right = to_bytes(shown);
    RatioSeam seam{place(), policy, rollout, shown};
    mutant()->ratio(seam);
    acted(right != to_bytes(shown));
  }

  bool take_normalizer(const CaseStep& step, const Rows& mine, bool taken, ShownNormalizer& shown) {
    NormalizerState state = normalizer_.state();
    Moments sent = state.delta;
    bool merges = step.merges && taken;
    const Moments resumed = state.merged;
    seam(NormalizerSeam::Moment::resumed, state, sent, merges, {}, resumed);
    normalizer_.restore(state);
    shown.step = step_;
    shown.before = state.merged;
    if (taken) {
      const std::vector<double> rows = counted_values(mine.rewards, mine.counted);
      shown.added = moments_of(counted_values(rows, screen(rows, {}, one_.convention).counted));
      normalizer_.add(rows);
      seam(NormalizerSeam::Moment::merging, state, sent, merges, {}, resumed);
    }
    state = normalizer_.state();
    sent = state.delta;
    seam(NormalizerSeam::Moment::sending, state, sent, merges, {}, resumed);
    shown.sent = sent;
    if (merges) {
      const Moments before = normalizer_.state().merged;
      const GatheredMoments all = exchange_.moments(step_, sent);
      if (failed(all.failure)) return false;
      normalizer_.merge_deltas(all.by_rank);
      state = normalizer_.state();
      seam(NormalizerSeam::Moment::merged, state, sent, merges, all.by_rank, before);
      normalizer_.restore(state);
    }
    shown.merged = merges;
    shown.merges = normalizer_.state().merges;
    shown.after = normalizer_.state().merged;
    return true;
  }

  void seam(NormalizerSeam::Moment moment, NormalizerState& state, Moments& sent, bool& merges,
            std::span<const Moments> by_rank, const Moments& before) {
    if (moment == NormalizerSeam::Moment::resumed && step_ == one_.resumes_before) {
      // Saved and read again, as a checkpoint would.
      ByteWriter saved;
      saved(state.merged, state.delta, state.merges);
      ByteReader reader(saved.text());
      reader(state.merged, state.delta, state.merges);
    }
    if (mutant() == nullptr || mutant()->normalizer == nullptr) return;
    const bool merged_anyway = merges;
    const Moments right_state = state.merged, right_sent = sent;
    NormalizerSeam place_of{moment, place(), state, sent, merges, by_rank, before};
    mutant()->normalizer(place_of);
    acted(merges != merged_anyway || state.merged != right_state || sent != right_sent);
  }

  /// Shows the step to all, and looks at what all show. False: something is wrong.
  bool audit(const Shown& mine) {
    const GatheredTexts texts = exchange_.shown(step_, to_bytes(mine));
    if (failed(texts.failure)) return false;
    std::vector<ShownRewards> rewards;
    std::vector<ShownAdvantages> advantages;
    std::vector<ShownWeights> weights;
    std::vector<ShownNormalizer> normalizers;
    std::vector<ShownRatio> ratios;
    for (std::size_t rank = 0; rank < texts.by_rank.size(); ++rank) {
      Shown shown;
      if (!from_bytes(texts.by_rank[rank], shown)) return !failed({"unreadable", "what a rank showed cannot be read"});
      rewards.push_back(std::move(shown.rewards));
      advantages.push_back(std::move(shown.advantages));
      weights.push_back(std::move(shown.weights));
      normalizers.push_back(std::move(shown.normalizer));
      ratios.push_back(std::move(shown.ratio));
    }
    const bool taken = mine.advantages.problem.empty();
    std::vector<Finding> all = broadcast_audit_.step(rewards);
    // What follows from wrong rewards is no second finding.
    const auto join = [&all](std::vector<Finding> more) { all.insert(all.end(), more.begin(), more.end()); };
    if (all.empty()) join(advantage_audit_.step(advantages));
    if (taken) join(audit_weights(weights, {one_.denominator, one_.scope, groups_, one_.constant, rank_groups_}));
    if (all.empty()) join(normalizer_audit_.step(normalizers));
    if (taken) join(audit_ratio(ratios));
    if (all.empty()) return true;
    done_.found_step = step_;
    done_.findings = std::move(all);
    return false;
  }

  void remember(const StepNumbers& numbers) {
    ByteWriter step;
    step(numbers.refused, numbers.ids, numbers.advantages.values, numbers.advantages.group_ids);
    put(step, numbers.advantages.batch);
    for (const Statistics& group : numbers.advantages.by_group) put(step, group);
    numbers_(step.text());
    all_(step.text());
    all_.put(numbers.normalizer);
    for (int rank = 0; rank < one_.world && numbers.refused.empty(); ++rank) {
      for (std::size_t part = 0; part < numbers.partitioned.by_rank[static_cast<std::size_t>(rank)].size(); ++part)
        all_.put(weight_of(one_.denominator, one_.scope, numbers.partitioned, rank, static_cast<int>(part)));
    }
    for (const Finding& finding : done_.findings) all_(finding.code, finding.also, finding.ranks, finding.sentence);
  }

  const Case& one_;
  const PlayOptions& options_;
  int rank_;
  Convention convention_;
  RewardExchange exchange_;
  RunningNormalizer normalizer_;
  BroadcastAudit broadcast_audit_;
  AdvantageAudit advantage_audit_;
  NormalizerAudit normalizer_audit_;
  int64_t step_ = 0, groups_ = 0;
  std::vector<int64_t> rank_groups_;
  std::vector<double> held_before_, last_advantages_;
  std::optional<Statistics> statistics_before_;
  ByteWriter all_, numbers_;
  Played done_;
};

}  // namespace

Played play(const Case& one, const PlayOptions& options, checkpoint::Group& group) {
  return Player(one, options, group).play();
}

}  // namespace lockstep::rewards
