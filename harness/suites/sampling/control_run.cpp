#include "harness/suites/sampling/control_run.h"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <vector>

#include "harness/base/hashing.h"
#include "harness/base/hex.h"
#include "harness/suites/engine/scheduler/scheduled_group.h"

namespace lockstep::sampling {
namespace {

using sharding::Controls;
using sharding::ControlVerdict;

constexpr int64_t kEpochSteps = 5, kMergeEvery = 3, kWrongMergeEvery = 4, kPatience = 5;
constexpr int kDrawsAStep = 7;
constexpr double kDeadline_s = 10;

/// Numbers as bits, so that they come back as they were.
std::string packed(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += hex16(std::bit_cast<uint64_t>(value));
  return text;
}

std::vector<double> unpacked(const std::string& text) {
  std::vector<double> values;
  for (std::size_t at = 0; at + 16 <= text.size(); at += 16)
    values.push_back(std::bit_cast<double>(from_hex16(std::string_view(text).substr(at, 16)).value_or(0)));
  return values;
}

/// One rank. What it decides from is merged, unless its mistake says otherwise.
class Rank {
 public:
  Rank(const ControlCase& each, int rank, scheduler::ScheduledGroup& guard_group, scheduler::ScheduledGroup& group)
      : case_(each), rank_(rank), guard_(guard_group, kDeadline_s), group_(group) {}

  /// False: it ends here, as its collective did.
  bool step() {
    if (makes(ControlMistake::leaves) && own_step_ == case_.at) return leave();
    if (case_.guarded) {
      verdict = guard_.check(step_, controls());
      if (!verdict) return false;
    }
    if (stop_ || own_step_ == case_.steps) return false;
    if (!take_gradient() || !merge()) return false;
    ++own_step_;
    // Counted twice: the step is done once.
    step_ += makes(ControlMistake::step_off) && own_step_ - 1 == case_.at ? 2 : 1;
    offset_ += kDrawsAStep + (makes(ControlMistake::offset_off) && own_step_ - 1 == case_.at ? 4 : 0);
    return true;
  }

  ControlVerdict verdict;
  std::string problem;
  bool left = false;
  double parameter() const { return parameters_[0] + parameters_[1]; }
  int64_t steps() const { return own_step_; }

 private:
  bool makes(ControlMistake mistake) const {
    if (case_.mistake != mistake || own_step_ < case_.at) return false;
    const bool everywhere =
        mistake == ControlMistake::rate_local_kl || mistake == ControlMistake::rate_local_success;
    return everywhere || rank_ == case_.victim;
  }

  double draw(uint64_t purpose) const { return unit_interval(keyed(case_.seed, purpose, rank_, own_step_)); }

  Controls controls() const {
    Controls all;
    const int64_t epoch = step_ / kEpochSteps + (makes(ControlMistake::epoch_off) ? 1 : 0);
    all.add("epoch", epoch);
    all.add("stop", stop_);
    all.driven_by("validation", validation_);
    all.add("learning_rate", rate_);
    all.driven_by("kl", kl_);
    all.driven_by("success", success_rate_);
    all.add("loss_scale", scale_);
    all.add("random_offset", offset_);
    all.add("success", success_);
    all.add("merge_due", step_ % merge_every() == 0);
    all.add("synchronises", !makes(ControlMistake::no_sync));
    all.add_hash("parameters",
                 keyed(std::bit_cast<uint64_t>(parameters_[0]), std::bit_cast<uint64_t>(parameters_[1])));
    return all;
  }

  int64_t merge_every() const {
    return makes(ControlMistake::merge_interval) ? kWrongMergeEvery : kMergeEvery;
  }

  bool gather(const std::string& label, const std::vector<double>& mine,
              std::vector<std::vector<double>>& all) {
    const checkpoint::Gathered gathered = group_.all_gather(label, packed(mine), kDeadline_s);
    problem = gathered.problem;
    for (const std::string& text : gathered.texts) all.push_back(unpacked(text));
    return problem.empty();
  }

  bool leave() {
    left = true;
    return false;
  }

  bool take_gradient() {
    const std::array<double, 2> own{draw(1) - 0.5, draw(2) - 0.5};
    std::array<double, 2> mean = own;
    if (!makes(ControlMistake::no_sync)) {
      std::vector<std::vector<double>> all;
      if (!gather("gradients", {own[0], own[1]}, all)) return false;
      mean = {0, 0};
      for (const auto& each : all) {
        mean[0] += each[0] / static_cast<double>(all.size());
        mean[1] += each[1] / static_cast<double>(all.size());
      }
    }
    if (makes(ControlMistake::own_gradient)) mean = own;
    for (std::size_t i = 0; i < mean.size(); ++i) parameters_[i] -= rate_ * mean[i];
    return true;
  }

  /// Everything that is decided from statistics.
  bool merge() {
    const double own_kl = 0.04 * draw(3), own_validation = draw(4);
    // Now and then the rank beside the victim overflows.
    const bool own_overflow = own_step_ % 6 == case_.at % 6 && rank_ == (case_.victim + 1) % case_.ranks;
    std::vector<std::vector<double>> all;
    if (!gather("statistics", {own_kl, own_validation, own_overflow ? 1.0 : 0.0}, all)) return false;
    double kl = 0, validation = 0;
    bool overflow = false;
    for (const auto& each : all) {
      kl += each[0] / static_cast<double>(all.size());
      validation += each[1] / static_cast<double>(all.size());
      overflow = overflow || each[2] != 0;
    }
    own_successes_ += draw(6);  // The share of an episode's goals that was reached.
    ++own_episodes_;
    if (step_ % merge_every() == 0 && !merge_successes()) return false;
    decide_rate(makes(ControlMistake::rate_local_kl) ? own_kl : kl);
    decide_stop(makes(ControlMistake::stop_alone) ? own_validation : validation);
    scale_ = (makes(ControlMistake::scale_off) ? own_overflow : overflow) ? scale_ / 2 : scale_ + 1;
    return true;
  }

  bool merge_successes() {
    std::vector<std::vector<double>> all;
    if (!gather("successes", {own_successes_, own_episodes_}, all)) return false;
    double successes = 0, episodes = 0;
    for (const auto& each : all) {
      successes += each[0];
      episodes += each[1];
    }
    success_ = successes;
    success_rate_ = successes / episodes;
    return true;
  }

  /// Adaptive by the KL, and lower where most episodes succeed.
  void decide_rate(double kl) {
    kl_ = kl;
    if (makes(ControlMistake::rate_local_success)) success_rate_ = own_successes_ / own_episodes_;
    if (kl > 0.03) rate_ /= 1.5;
    if (kl < 0.01) rate_ *= 1.5;
    if (success_rate_ > 0.5) rate_ *= 0.99;
  }

  void decide_stop(double validation) {
    validation_ = validation;
    if (validation < best_validation_) {
      best_validation_ = validation;
      since_best_ = 0;
    } else if (++since_best_ >= kPatience) {
      stop_ = true;
    }
  }

  const ControlCase& case_;
  int rank_;
  sharding::ControlGuard guard_;
  scheduler::ScheduledGroup& group_;
  int64_t own_step_ = 0, step_ = 0, offset_ = 0, since_best_ = 0;
  double rate_ = 1e-3, kl_ = 0, validation_ = 0, best_validation_ = 1e9, scale_ = 1024;
  double own_successes_ = 0, own_episodes_ = 0, success_ = 0, success_rate_ = 0;
  bool stop_ = false;
  std::array<double, 2> parameters_{0.5, -0.25};
};

}  // namespace

std::span<const ControlRow> control_rows() {
  using enum ControlMistake;
  static constexpr auto kRows = std::to_array<ControlRow>({
      {stop_alone, "stop_alone", "one rank stops early by its own validation", "stop_from_local_validation",
       1},
      {epoch_off, "epoch_off", "one rank is an epoch further", "epoch_differs", 0},
      {rate_local_kl, "rate_local_kl", "each rank sets its learning rate from its own KL",
       "learning_rate_from_local_kl", 1, true},
      {rate_local_success, "rate_local_success", "each rank sets its learning rate from its own successes",
       "learning_rate_from_local_success", 1, true},
      {step_off, "step_off", "one rank counts a step twice", "step_differs", 1},
      {offset_off, "offset_off", "one rank draws four numbers more", "random_offset_differs", 1},
      {scale_off, "scale_off", "one rank sets its loss scale by its own overflow", "loss_scale_differs", 1},
      {merge_interval, "merge_interval", "one rank merges successes every 4 steps, the others every 3",
       "merge_due_differs", 0},
      {no_sync, "no_sync", "one rank leaves out the gradients' collective", "synchronises_differs", 0},
      {own_gradient, "own_gradient", "one rank applies its own gradient", "parameters_differs", 1},
      {leaves, "leaves", "one rank's process ends", "group_broken", 0},
  });
  return kRows;
}

ControlEnd run_control(const ControlCase& each) {
  scheduler::Scheduler scheduler(each.ranks);
  scheduler::Meeting guards(scheduler, 0, each.ranks), trainers(scheduler, 0, each.ranks);
  std::vector<std::unique_ptr<scheduler::ScheduledGroup>> guard_groups, groups;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < each.ranks; ++rank) {
    guard_groups.push_back(std::make_unique<scheduler::ScheduledGroup>(guards, rank));
    groups.push_back(std::make_unique<scheduler::ScheduledGroup>(trainers, rank));
    ranks.push_back(std::make_unique<Rank>(each, rank, *guard_groups.back(), *groups.back()));
  }
  scheduler.run([&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    while (ranks[at]->step()) {
    }
    // A rank that is through lives on, so that the others, if they are not, wait for it.
    if (!ranks[at]->left && ranks[at]->problem.empty() && !each.guarded) scheduler.hang(rank);
    guard_groups[at]->end();
    groups[at]->end();
  });
  ControlEnd end;
  end.stalled = scheduler.stalled();
  const Rank* first = nullptr;
  for (const auto& rank : ranks) {
    if (rank->left) continue;
    if (first == nullptr) first = rank.get();
    end.told_alike = end.told_alike && rank->verdict.sentence == first->verdict.sentence;
    if (!rank->verdict && end.verdict) end.verdict = rank->verdict;
    if (end.problem.empty()) end.problem = rank->problem;
    end.replicas_equal = end.replicas_equal && rank->parameter() == first->parameter();
  }
  if (first != nullptr) {
    end.parameter = first->parameter();
    end.steps = first->steps();
  }
  return end;
}

}  // namespace lockstep::sampling
