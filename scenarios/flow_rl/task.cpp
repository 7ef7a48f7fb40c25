// The trainer flow_rl: rollouts as data, made of the parameters' exact values in plain loops of double; log-probabilities,
// loss and gradients by LibTorch in the run's precision.
//
// B = rows of a pass, T = chunks of an episode, K = transitions of a chunk's chain, C = numbers of a chunk.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "harness/base/json.h"
#include "harness/lib/data/sharding/control_guard.h"
#include "harness/plan/config/canonical.h"
#include "harness/trainers/comm/ledger.h"
#include "scenarios/flow_rl/config.h"
#include "scenarios/flow_rl/exchange.h"
#include "scenarios/flow_rl/policy.h"
#include "scenarios/flow_rl/tasks/tasks.h"
#include "scenarios/mutants/flow_rl_fault.h"
#include "scenarios/scenario.h"

namespace lockstep {
namespace {

constexpr uint32_t kRolloutPurpose = 16;     // of keyed streams, beside those of harness/trainers/core/streams.h
constexpr uint64_t kEvaluation = 0x6576616c;  // "eval"

/// A step's rollouts of this rank's rows, and what the whole batch made of them.
struct StepRollouts {
  int64_t step = -1;
  std::optional<StepRows> rows;
  std::vector<Episode> episodes;  ///< in the order of the step's ids
  std::vector<uint64_t> keys;     ///< of their noise
  ObservationScale scale;
  StepScores scores;
  double imbalance = 1;           ///< of the ranks that make rollouts, with rollouts tasks
};

/// Log-probabilities of a pass's rows.
struct PassTerms {
  at::Tensor log_pi_BTK, old_BTK, kl_BT;
};

class FlowRlTask : public Task {
 public:
  FlowRlTask(const RunConfig& config, const Cloned* cloned, Comm& comm, Mutant* mutant)
      : config_(config),
        own_(flow_rl(config)),
        comm_(comm),
        base_(stream_base(config.rank_seed, stream_seed(config), comm.rank())),
        model_(own_.policy, config.seed,
               computed_precision(config) == Precision::float64 ? at::kDouble : at::kFloat),
        sigmas_(sigmas_of(own_.policy)),
        cloned_success_(at::zeros({1}, at::kDouble)),
        fault_(dynamic_cast<FlowRlFault*>(mutant)) {
    const c10::NoGradGuard no_grad;
    if (cloned != nullptr) {
      for (std::size_t i = 0; i < cloned->parameters.size(); ++i) {
        model_.parameters().tensors[i].detach().copy_(cloned->parameters[i]);
      }
      running_.begin(cloned->seen);
      reference_running_.begin(cloned->seen);
      cloned_success_.fill_(cloned->success);
    }
    for (const at::Tensor& parameter : model_.parameters().tensors) {
      reference_.push_back(parameter.detach().clone());
      if (keeps_behaviour()) behaviour_.push_back(parameter.detach().clone());
    }
  }

  ParameterList& parameters() override { return model_.parameters(); }

  StepOutput forward(const StepInput& input) override {
    if (now_.step != input.step) roll_out_step(input);
    const auto all = static_cast<int64_t>(input.step_ids.size());
    const int64_t micro_steps = config_.oracle_world > 0 ? 1 : config_.accumulation;
    const int64_t first = input.micro_step * all / micro_steps + input.first_row;
    const Span rows{static_cast<std::size_t>(first), static_cast<std::size_t>(input.end_row - input.first_row)};
    const ChainTensors chains = chains_of(rows);
    const PassTerms terms = terms_of(input, rows, chains);
    StepOutput output;
    output.row_losses_B = row_losses(input.step, rows, chains, terms);
    const auto total = static_cast<double>(now_.rows->size());
    output.row_weight = input.exact || total == 0 ? 1 : comm_.world_size() / total;
    if (fault_ != nullptr && !input.exact && total > 0) {
      const WeightCounts counts{static_cast<double>(rows.count), static_cast<double>(all),
                                static_cast<double>(micro_steps), total};
      output.row_weight = fault_->row_weight(input.step, counts, output.row_weight);
    }
    if (input.exact) output.row_divisor = total > 0 ? total : 1;
    output.loss = output.row_losses_B.sum() * output.row_weight;
    if (input.exact && rows.count > 0) output.row_inputs = {input_hash(chains)};
    output.schedules = {{"deviations", schedule(input.step)}};
    describe(rows, chains, terms, output);
    add_scalars(input, rows, terms, output);
    return output;
  }

  std::vector<NamedBuffer> buffers() override {
    std::vector<NamedBuffer> buffers{running_.buffer(), {"buffer/cloned_statistics", reference_running_.buffer().value},
                                     {"buffer/cloned_success", cloned_success_},
                                     costs_.buffer()};
    for (std::size_t i = 0; i < reference_.size(); ++i) {
      buffers.push_back({"buffer/cloned." + model_.parameters().names[i], reference_[i]});
      if (keeps_behaviour()) buffers.push_back({"buffer/rollout." + model_.parameters().names[i], behaviour_[i]});
    }
    return buffers;
  }

  void add_controls(int64_t step, sharding::Controls& controls) override {
    controls.add("copies_policy", keeps_behaviour() && step % own_.sync_policy_every == 0);
    controls.add("merge_due", (step + 1) % own_.sync_statistics_every == 0);
    if (now_.step >= 0) controls.add("success", rewards::moments_of(now_.scores.successes).mean);
    for (const NamedBuffer& buffer : buffers()) controls.add_hash(buffer.name, tensor_hash(view_of(buffer.value)));
  }

  void update_buffers() override {
    if (now_.step < 0) return;
    costs_.add(*now_.rows, now_.scores.steps);
    running_.add(now_.scores.seen, now_.scores.returns, (now_.step + 1) % own_.sync_statistics_every == 0);
  }

  std::map<std::string, double> evaluate(Evaluation kind, const Heartbeat&) override {
    const std::vector<Tried> tried =
        try_policy(own_, model_.plain(), running_.scale(), kEvaluation, own_.eval_episodes);
    std::map<std::string, double> metrics{{"success", 0}, {"return", 0}, {"cost", 0}};
    for (const Tried& one : tried) {
      const auto share = 1 / static_cast<double>(tried.size());
      metrics["success"] += one.success * share;
      metrics["return"] += one.reward * share;
      metrics["cost"] += one.cost * share;
      const auto task = static_cast<std::size_t>(one.task);
      metrics["success_" + std::string(manipulation::manipulation_tasks()[task].name)] = one.success;
    }
    if (kind == Evaluation::last) metrics["cloned_success"] = cloned_success_.item<double>();
    return metrics;
  }

 private:
  /// Of the step's rows.
  struct Span {
    std::size_t first = 0, count = 0;
  };

  bool keeps_behaviour() const { return own_.sync_policy_every > 1; }

  /// The policy that rollouts are made by, in the parameters' precision.
  FlowPolicy behaviour(int64_t step) const {
    const bool cloned = fault_ != nullptr && fault_->never_synchronised(step);
    if (!cloned && !keeps_behaviour()) return model_;
    return model_.with(cloned ? reference_ : behaviour_, model_.dtype());
  }

  /// Of a row of the whole batch. place: on this rank, by which its noise is keyed where it is not keyed by its episode.
  EpisodeKeys keys_of(int64_t step, std::size_t row, int64_t place) const {
    EpisodeKeys keys = now_.rows->keys(row);
    const int64_t who = config_.rank_seed == RankSeed::keyed ? now_.rows->id(row) : place;
    keys.noise = stream_row_key(base_, kRolloutPurpose, step, static_cast<uint64_t>(who));
    if (fault_ != nullptr) keys.noise = fault_->noise_key(step, keys.noise);
    return keys;
  }

  /// Collective, at a step's first pass.
  void roll_out_step(const StepInput& input) {
    const c10::NoGradGuard no_grad;
    if (keeps_behaviour() && input.step % own_.sync_policy_every == 0) {
      for (std::size_t i = 0; i < behaviour_.size(); ++i) behaviour_[i].copy_(model_.parameters().tensors[i].detach());
    }
    now_ = {};
    now_.step = input.step;
    now_.rows.emplace(config_, comm_, input);
    now_.scale = running_.scale();
    if (own_.acted) {
      std::vector<at::Tensor>& weights = history_[input.step];
      for (const at::Tensor& parameter : model_.parameters().tensors) weights.push_back(parameter.detach().clone());
      std::erase_if(history_,
                    [&](const auto& each) { return each.first < input.step - own_.sync_policy_every - kMostBack; });
    }
    const PlainPolicy policy = behaviour(input.step).plain();
    const FlowConfig flow = fault_ == nullptr ? own_.policy : fault_->acted_flow(input.step, own_.policy);
    const std::vector<std::size_t>& own = now_.rows->own();
    const bool of_own_rows = own_.rollouts == RolloutsBy::rows;
    for (std::size_t row = 0; row < own.size(); ++row) {
      const EpisodeKeys keys = keys_of(input.step, own[row], static_cast<int64_t>(row));
      now_.keys.push_back(keys.noise);
      if (of_own_rows) now_.episodes.push_back(roll_out(flow, policy, now_.scale, keys));
    }
    if (!of_own_rows) {
      const RolloutPartition partition = partition_rollouts(own_, *now_.rows, costs_, comm_.world_size());
      const std::vector<std::size_t>& mine = partition.rows[static_cast<std::size_t>(comm_.rank())];
      std::vector<Episode> made;
      for (const std::size_t row : mine) {
        made.push_back(roll_out(flow, policy, now_.scale, keys_of(input.step, row, 0)));
      }
      now_.imbalance = partition.imbalance;
      now_.episodes = hand_over(comm_, input.step, own_.policy, *now_.rows, mine, made);
    }
    const double scale = own_.scale_returns ? running_.return_deviation() : 1;
    now_.scores = score_step(config_, comm_, input.step, *now_.rows, now_.episodes, scale, fault_);
  }

  /// What the policy sees of these rows. [B, T, O]
  at::Tensor seen_of(const Span& rows, const ObservationScale& scale) const {
    at::Tensor seen_BTO = at::empty({static_cast<int64_t>(rows.count), chunks_of(own_.policy), kObserved}, at::kDouble);
    double* seen = seen_BTO.mutable_data_ptr<double>();
    constexpr auto kSeen = static_cast<std::size_t>(kObserved);
    for (std::size_t row = 0; row < rows.count; ++row) {
      const Episode& episode = now_.episodes[rows.first + row];
      for (std::size_t t = 0; t < episode.valid.size(); ++t, seen += kSeen) {
        scale.normalise(std::span(episode.seen).subspan(t * kSeen, kSeen), {seen, kSeen});
      }
    }
    return seen_BTO;
  }

  ChainTensors chains_of(const Span& rows) const {
    const int64_t chunks = chunks_of(own_.policy), numbers = int64_t{own_.policy.chunk} * kActionNumbers;
    const auto count = static_cast<int64_t>(rows.count);
    ChainTensors chains{seen_of(rows, now_.scale),
                        at::empty({count, chunks, FlowConfig::kTransitions + 1, numbers}, at::kDouble),
                        at::empty({count, chunks}, at::kBool)};
    double* chain = chains.chain_BTKC.mutable_data_ptr<double>();
    bool* valid = chains.valid_BT.mutable_data_ptr<bool>();
    for (std::size_t row = 0; row < rows.count; ++row) {
      const Episode& episode = now_.episodes[rows.first + row];
      chain = std::copy(episode.chain.begin(), episode.chain.end(), chain);
      valid = std::copy(episode.valid.begin(), episode.valid.end(), valid);
    }
    return chains;
  }

  at::ScalarType pass_dtype() const {
    return computed_precision(config_) == Precision::bfloat16 ? at::kBFloat16 : model_.dtype();
  }

  /// Deviations of the transitions, as the trained policy is given them.
  std::vector<double> schedule(int64_t step) const { return fault_ == nullptr ? sigmas_ : fault_->schedule(step, sigmas_); }

  /// The policy before the update at the same rows and shapes as with gradient: at the first update of a rollout both are the
  /// same bits.
  PassTerms terms_of(const StepInput& input, const Span& rows, const ChainTensors& chains) const {
    PassTerms terms;
    const int64_t step = input.step;
    const FlowPolicy model = model_.with(model_.parameters().tensors, pass_dtype());
    ChainTensors trained = chains;
    std::vector<double> sigmas = schedule(step);
    if (fault_ != nullptr) {
      trained.chain_BTKC = fault_->trained_chains(step, chains.chain_BTKC);
      sigmas = fault_->trained_sigmas(step, sigmas);
    }
    at::Tensor means_BTKC = model.means(trained);
    if (input.as_terms) means_BTKC = input.as_terms(means_BTKC);
    terms.log_pi_BTK =
        log_transitions(means_BTKC, trained, sigmas, fault_ != nullptr && fault_->without_sigma(step));
    {
      const c10::NoGradGuard no_grad;
      const FlowPolicy old = keeps_behaviour() ? model_.with(behaviour_, pass_dtype()) : model;
      terms.old_BTK = log_transitions(old.means(chains), chains, sigmas_);
    }
    if (fault_ != nullptr) {
      terms.old_BTK = fault_->old_log_pi(step, terms.old_BTK);
      terms.log_pi_BTK = fault_->log_pi(step, terms.log_pi_BTK);
    }
    at::Tensor cloned_BTKC;
    {
      const c10::NoGradGuard no_grad;
      ChainTensors as_cloned = chains;
      as_cloned.seen_BTO = seen_of(rows, reference_running_.scale());
      cloned_BTKC = model_.with(reference_, pass_dtype()).means(as_cloned);
    }
    terms.kl_BT = divergence(own_.kl > 0 ? means_BTKC : means_BTKC.detach(), cloned_BTKC, chains, sigmas_);
    return terms;
  }

  at::Tensor advantages(const Span& rows, at::ScalarType dtype) const {
    std::vector<double> values;
    for (std::size_t row = 0; row < rows.count; ++row) {
      values.push_back(now_.scores.advantages[now_.rows->own()[rows.first + row]]);
    }
    return at::tensor(at::ArrayRef<double>(values), at::kDouble).to(dtype);
  }

  /// Mean over an episode's chunks of -advantage * ratio, clipped where a rollout may be of an older policy, and of the
  /// divergence. [B]
  at::Tensor row_losses(int64_t step, const Span& rows, const ChainTensors& chains, const PassTerms& terms) const {
    const at::Tensor advantage_B1 = advantages(rows, terms.log_pi_BTK.scalar_type()).unsqueeze(1);
    const at::Tensor ratio_BT = (terms.log_pi_BTK - terms.old_BTK).sum(2).exp();
    at::Tensor gain_BT = ratio_BT * advantage_B1;
    if (keeps_behaviour()) {
      gain_BT = at::minimum(gain_BT, ratio_BT.clamp(1 - own_.clip, 1 + own_.clip) * advantage_B1);
    }
    const auto chunks = static_cast<double>(chunks_of(own_.policy));
    at::Tensor losses_B = at::where(chains.valid_BT, gain_BT, 0.0).sum(1) / -chunks;
    const double weight = fault_ == nullptr ? own_.kl : fault_->kl_weight(step, own_.kl);
    if (weight > 0) losses_B = losses_B + terms.kl_BT.sum(1) * (weight / chunks);
    return losses_B;
  }

  static int64_t input_hash(const ChainTensors& chains) {
    uint64_t hash = 0;
    for (const at::Tensor& part : {chains.seen_BTO, chains.chain_BTKC, chains.valid_BT}) {
      hash = keyed(hash, tensor_hash(view_of(part.contiguous())));
    }
    return static_cast<int64_t>(hash);
  }

  /// The record of terms, and the streams that were drawn from.
  void describe(const Span& rows, const ChainTensors& chains, const PassTerms& terms, StepOutput& output) const {
    std::vector<int64_t> columns;
    const auto name = [&](TermKind kind, int64_t chunks, int64_t transitions) {
      for (int64_t t = 0; t < chunks; ++t) {
        for (int64_t k = 0; k < transitions; ++k) columns.push_back(column_of({kind, t, k}));
      }
    };
    const int64_t chunks = chunks_of(own_.policy), transitions = FlowConfig::kTransitions;
    name(TermKind::chosen, chunks, transitions);
    name(TermKind::action, chunks, 1);
    for (const TermKind kind : {TermKind::reward, TermKind::cost, TermKind::success}) name(kind, 1, 1);
    name(TermKind::old_log_pi, chunks, transitions);
    name(TermKind::log_pi, chunks, transitions);
    name(TermKind::kl, chunks, 1);
    name(TermKind::advantage, 1, 1);
    const auto wide = [](const at::Tensor& values) { return values.detach().to(at::kDouble).flatten(1); };
    const at::Tensor rolled = at::empty({static_cast<int64_t>(rows.count), chunks * (transitions + 1) + 3}, at::kDouble);
    double* out = rolled.mutable_data_ptr<double>();
    for (std::size_t row = 0; row < rows.count; ++row) out = write_rollout(rows.first + row, out);
    std::vector<at::Tensor> blocks{rolled, wide(terms.old_BTK), wide(terms.log_pi_BTK), wide(terms.kl_BT),
                                   advantages(rows, at::kDouble).unsqueeze(1)};
    if (own_.acted) {
      for (const at::Tensor& each : acted_again(rows, chains, terms)) blocks.push_back(wide(each));
      for (int64_t i = 0; i < std::ssize(kActedAgain); ++i)
        name(static_cast<TermKind>(kFirstAgain + i), chunks, transitions);
    }
    output.records.push_back({Phase::scores, "terms", at::cat(blocks, 1), "columns", columns});
    uint64_t draws = 0;
    for (std::size_t row = 0; row < rows.count; ++row) draws += now_.episodes[rows.first + row].draws;
    output.streams.push_back(
        {"rollout", stream_fingerprint(std::span(now_.keys).subspan(rows.first, rows.count)), draws});
  }

  /// In the order of kActedAgain, [B, T, K] each; 0 where there is none.
  std::vector<at::Tensor> acted_again(const Span& rows, const ChainTensors& chains, const PassTerms& terms) const {
    const c10::NoGradGuard no_grad;
    const int64_t synchronised = now_.step - now_.step % own_.sync_policy_every;
    const std::vector<at::Tensor>& declared = keeps_behaviour() ? behaviour_ : model_.parameters().tensors;
    const auto at_weights = [&](const std::vector<at::Tensor>& weights, at::ScalarType dtype) {
      return log_transitions(model_.with(weights, dtype).means(chains), chains, sigmas_);
    };
    const at::Tensor means_BTKC = model_.with(declared, at::kDouble).means(chains);
    const auto with = [&](const std::vector<double>& sigmas, bool without = false) {
      return log_transitions(means_BTKC, chains, sigmas, without);
    };
    std::vector<at::Tensor> all{now_.step == synchronised ? terms.log_pi_BTK.detach() : terms.old_BTK, with(sigmas_)};
    for (int back = 1; back <= kMostBack; ++back) {
      const auto kept = history_.find(synchronised - back);
      all.push_back(kept == history_.end() ? at::zeros_like(all[1]) : at_weights(kept->second, at::kDouble));
    }
    all.push_back(at_weights(reference_, at::kDouble));
    constexpr int kPoints = FlowConfig::kTransitions;
    for (const int points : {kPoints - 1, kPoints + 1, 2 * kPoints}) {
      std::vector<double> sigmas;
      for (int k = 0; k < kPoints; ++k) {
        const double place = std::min(static_cast<double>(k * (kPoints - 1)) / (points - 1), kPoints - 1.0);
        const auto below = static_cast<std::size_t>(place), above = std::min(below + 1, sigmas_.size() - 1);
        sigmas.push_back(sigmas_[below] + (place - static_cast<double>(below)) * (sigmas_[above] - sigmas_[below]));
      }
      all.push_back(with(sigmas));
    }
    for (int shift = 1; shift < kPoints; ++shift) {
      std::vector<double> sigmas = sigmas_;
      std::ranges::rotate(sigmas, sigmas.begin() + shift);
      all.push_back(with(sigmas));
    }
    all.push_back(with(sigmas_, true));
    const auto first = [&](const at::Tensor& values) {
      return values.to(at::kDouble).select(2, 0).masked_select(chains.valid_BT);
    };
    const double factor = temperature(first(chosen_of(rows)), first(all[0]), first(all[1]));
    std::vector<double> warm = sigmas_;
    for (double& sigma : warm) sigma *= factor;
    all.push_back(with(warm));
    for (const at::ScalarType narrow : {at::kBFloat16, at::kHalf}) all.push_back(at_weights(declared, narrow));
    return all;
  }

  /// [B, T, K] as the rollouts drew them.
  at::Tensor chosen_of(const Span& rows) const {
    std::vector<double> chosen;
    for (std::size_t row = 0; row < rows.count; ++row) {
      const Episode& episode = now_.episodes[rows.first + row];
      chosen.insert(chosen.end(), episode.chosen.begin(), episode.chosen.end());
    }
    const int64_t count = static_cast<int64_t>(rows.count), chunks = chunks_of(own_.policy);
    return at::tensor(at::ArrayRef<double>(chosen), at::kDouble).reshape({count, chunks, FlowConfig::kTransitions});
  }

  /// The factor on the deviations by which the first transitions of two chunks follow from `right`: of the rollout, or
  /// else of the update.
  static double temperature(const at::Tensor& chosen, const at::Tensor& updated, const at::Tensor& right) {
    if (right.numel() == 0) return 1;
    const at::Tensor side = (chosen - right).abs().max().item<double>() > 1e-9 ? chosen : updated;
    const at::Tensor low = right.argmin(), high = right.argmax();
    const double inverse = ((side[high] - side[low]) / (right[high] - right[low])).item<double>();
    return inverse > 0 ? 1 / std::sqrt(inverse) : 1;
  }

  double* write_rollout(std::size_t row, double* out) const {
    const Episode& episode = now_.episodes[row];
    out = std::copy(episode.chosen.begin(), episode.chosen.end(), out);
    const auto numbers = static_cast<std::size_t>(own_.policy.chunk * kActionNumbers);
    for (std::size_t t = 0; t < episode.valid.size(); ++t) {
      double sum = 0;
      const double* actions = episode.chain.data() + ((t + 1) * (FlowConfig::kTransitions + 1) - 1) * numbers;
      for (std::size_t c = 0; c < numbers; ++c) sum += actions[c];
      *out++ = sum / static_cast<double>(numbers);
    }
    const std::size_t place = now_.rows->own()[row];
    *out++ = now_.scores.rewards[place];
    *out++ = now_.scores.costs[place];
    *out++ = now_.scores.successes[place];
    return out;
  }

  void add_scalars(const StepInput& input, const Span& rows, const PassTerms& terms, StepOutput& output) const {
    const StepScores& scores = now_.scores;
    const auto mean = [](const std::vector<double>& values) { return rewards::moments_of(values).mean; };
    const rewards::Moments of_rewards = rewards::moments_of(scores.rewards);
    const auto count = static_cast<double>(std::max<int64_t>(of_rewards.count, 1));
    output.scalars = {{"train_success", mean(scores.successes)},
                      {"reward_mean", of_rewards.mean},
                      {"reward_deviation", std::sqrt(of_rewards.m2 / count)},
                      {"cost_mean", mean(scores.costs)}};
    if (!input.exact) {
      output.scalars.emplace_back("flipped_signs", scores.flipped);
      if (own_.rollouts == RolloutsBy::tasks) output.scalars.emplace_back("rollout_imbalance", now_.imbalance);
    }
    const at::Tensor ratio_BT = (terms.log_pi_BTK.detach() - terms.old_BTK).to(at::kDouble).sum(2).exp();
    const at::Tensor apart = terms.old_BTK.to(at::kDouble) - chosen_of(rows);
    const auto largest = [](const at::Tensor& values) {
      return values.numel() == 0 ? 0.0 : values.abs().max().item<double>();
    };
    output.scalars.emplace_back("kl", terms.kl_BT.numel() == 0 ? 0.0 : terms.kl_BT.detach().to(at::kDouble).mean().item<double>());
    output.scalars.emplace_back("ratio_gap", largest(ratio_BT - 1));
    output.scalars.emplace_back("log_pi_gap", largest(apart));
  }

  const RunConfig& config_;
  const FlowRlConfig own_;
  Comm& comm_;
  const uint64_t base_;  ///< of this rank's streams
  FlowPolicy model_;
  const std::vector<double> sigmas_;
  std::vector<at::Tensor> reference_;  ///< the cloned policy
  std::map<int64_t, std::vector<at::Tensor>> history_;  ///< weights by the update that they begin, with `acted`
  std::vector<at::Tensor> behaviour_;  ///< the policy that rollouts are made by; empty: the trained one
  RunningStatistics running_, reference_running_;
  at::Tensor cloned_success_;
  TaskCosts costs_;
  FlowRlFault* fault_;  ///< or none
  StepRollouts now_;
};

class FlowRlScenario : public Scenario {
 public:
  void prepare(const RunConfig& config) override {
    const DataFacts facts = spec_of(config).inspect_data(config);
    samples_ = facts.samples.train;
    data_hash_ = facts.hash;
    // A run that begins from another's state takes all of it from there.
    if (!config.forced.on() && config.resume_from.empty()) cloned_ = clone_expert(config);
  }
  int64_t samples() const override { return samples_; }
  std::string data_hash() const override { return data_hash_; }
  std::unique_ptr<Task> make_task(const RunConfig& config, Comm& comm, Mutant* mutant) override {
    return std::make_unique<FlowRlTask>(config, cloned_ ? &*cloned_ : nullptr, comm, mutant);
  }

 private:
  int64_t samples_ = 0;
  std::string data_hash_;
  std::optional<Cloned> cloned_;
};

}  // namespace

std::unique_ptr<Scenario> make_flow_rl_scenario() { return std::make_unique<FlowRlScenario>(); }

}  // namespace lockstep
