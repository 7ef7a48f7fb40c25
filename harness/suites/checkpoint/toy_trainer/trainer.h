#pragma once
// One rank of the toy trainer: steps, and the state from which they go on.

#include <functional>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/group.h"
#include "harness/lib/checkpoint/loader.h"
#include "harness/lib/checkpoint/sampler_position.h"
#include "harness/lib/checkpoint/state.h"
#include "harness/suites/checkpoint/toy_trainer/config.h"
#include "harness/suites/checkpoint/toy_trainer/parts.h"
#include "harness/suites/checkpoint/toy_trainer/record.h"

namespace lockstep::toy {

/// Everything that the coming steps depend on, one member or more for each kind of harness/lib/checkpoint/state.h.
struct TrainerState {
  std::vector<float> parameters;
  std::vector<float> first, second;  ///< moments of this rank's slice
  int64_t updates = 0;               ///< the optimizer's
  Scheduler scheduler;
  int64_t micro = 0;                  ///< steps since the last update
  std::vector<int64_t> accumulated;   ///< this rank's gradient of them, in kUnit
  int64_t accumulated_rows = 0;       ///< this rank's
  bool accumulated_overflow = false;  ///< on this rank
  checkpoint::SamplerPosition sampler;
  int64_t dropout = 0;  ///< rows that dropout was drawn for, all ranks together
  Generator noise, jitter;
  Patience patience;
  LossScale loss_scale;
  std::vector<float> averaged;
  Normaliser normaliser;
  Controls controls;
  double cached_base_rate = 0;  ///< the schedule's own copy of the rate that people set
};

struct StepOptions {
  double deadline_s = 60;
  int tells = 0;  ///< what this rank tells the others beside; all get the greatest
  std::function<void()> on_evaluation = {};
};
struct StepDone {
  StepRecord record;
  int heard = 0;        ///< the greatest that a rank told
  std::string problem;  ///< a rank is gone; the step was not taken
};

class Trainer {
 public:
  Trainer(Config config, int rank, int ranks);

  /// One micro-batch of all ranks. Every sum over rows and ranks is one of whole numbers, so its bits depend neither on
  /// their order nor on the number of ranks.
  StepDone step(checkpoint::Group& group, const StepOptions& options);
  int64_t steps() const { return steps_; }
  int64_t epoch() const { return now_.sampler.epoch; }
  /// No evaluation was the best for too long.
  bool out_of_patience() const { return now_.patience.left <= 0; }
  /// The last step evaluated, and it was the best one so far.
  bool just_improved() const { return just_improved_; }
  const TrainerState& now() const { return now_; }

  /// For a save: views and copies, valid until the next step.
  checkpoint::State state() const;
  /// What this rank trains with: the parameters whole, and no planted mistake of the save.
  checkpoint::State whole_state() const;
  /// For a load: the kinds, forms and slices that this rank needs.
  checkpoint::State expected() const;
  /// Goes on from a checkpoint. Where the number of ranks was another, each rank takes for itself: rank 0 the sum of
  /// all half-accumulated gradients, the others none; rank r the generator of rank r mod V of the V that saved, mixed
  /// with r / V unless that is 0.
  void restore(const checkpoint::LoadOutcome& loaded);

 private:
  struct Batch {
    int64_t begin = 0, rows = 0;  ///< places of the epoch's order
    std::vector<int64_t> mine;    ///< places of this rank
    std::vector<int64_t> sums;    ///< of this rank: loss, rows, inputs' sums and squares
  };
  Batch next_batch() const;
  void forward(Batch& batch, StepRecord& record);
  std::string update(checkpoint::Group& group, double deadline_s, const std::vector<int64_t>& sums, StepRecord& record);
  void evaluate(StepRecord& record);
  void advance_sampler(int64_t rows);
  const std::vector<int64_t>& order() const;
  checkpoint::Slice slice() const { return checkpoint::even_slice(kParameters, rank_, ranks_); }

  Config config_;
  int rank_, ranks_;
  int64_t steps_ = 0;
  bool just_improved_ = false;
  TrainerState now_;
  mutable std::vector<int64_t> order_;  ///< of the epoch
  mutable int64_t order_seed_ = -1, order_epoch_ = -1;
};

/// A fresh run's state on one rank.
TrainerState initial_state(const Config& config, int rank, int ranks);
/// A state as checkpoints have it; what `config` leaves out is not in it.
checkpoint::State to_checkpoint(const TrainerState& now, const Config& config, int rank, int ranks);
/// Takes from a checkpoint what it holds; the rest of `now` stays.
void from_checkpoint(const checkpoint::LoadOutcome& loaded, const Config& config, int rank, int ranks,
                     TrainerState& now);

/// Row i of a step's dropout: what it keeps of each hidden unit, and the bits that it comes from.
uint64_t dropout_bits(uint64_t seed, int64_t row);

}  // namespace lockstep::toy
