// Planted bugs in the update, and in what keeps replicas equal.

#include "scenarios/mutants/table.h"

// One row is one bug; it is easier to read packed than with a line for each of its fields.
// clang-format off

namespace lockstep {
namespace {

constexpr MutantRow kUpdateRows[] = {
  // Update.
  {{.name = "clip_local_norm",
    .help = "reduced gradients are clipped by the norm of the rank's own ones",
    .report = "modelscope/twinkle#290", .settings = "clip_norm=0.05 optimizer=sgd", .phase = "parameters",
    .causes = "clip-on-local-norm"},
   // Replicas part.
   LOCKSTEP_BUG(Planted,
     at::Tensor sent_gradient(int64_t step, const std::string& parameter,
                              const at::Tensor& gradient) override {
       if (acts(step)) {
         local_[parameter] = gradient.clone();
       }
       return gradient;
     }
     double clip_norm(int64_t step, double total_norm) override {
       return acts(step) ? norm_of(local_) : total_norm;
     }
     std::map<std::string, at::Tensor> local_;)},
  {{.name = "clip_missing",
    .help = "gradients are not clipped",
    .settings = "clip_norm=0.05 optimizer=sgd", .min_world = 1, .phase = "parameters",
    .causes = "clip-missing"},
   LOCKSTEP_BUG(Planted,
     double clip_norm(int64_t step, double total_norm) override { return acts(step) ? -1 : total_norm; })},
  {{.name = "clip_twice_norm",
    .help = "the norm of reduced gradients is summed over the ranks again",
    .settings = "clip_norm=0.05 optimizer=sgd", .phase = "parameters", .causes = "clip-twice"},
   // They are reduced already, and so are clipped too hard.
   LOCKSTEP_BUG(Planted,
     double clip_norm(int64_t step, double total_norm) override {
       return acts(step) ? total_norm * std::sqrt(world()) : total_norm;
     })},
  {{.name = "weight_decay_twice",
    .help = "weight decay by the optimizer and by hand",
    .settings = "weight_decay=0.1", .min_world = 1, .phase = "parameters", .causes = "weight-decay-twice"},
   LOCKSTEP_BUG(Planted,
     void before_update(int64_t step, const TrainingState& state) override {
       if (acts(step)) {
         state.optimizer.config().weight_decay = 2 * run().weight_decay;
       }
     })},
  {{.name = "weight_decay_missing",
    .help = "weight decay does not reach the optimizer",
    .settings = "weight_decay=0.1", .min_world = 1, .phase = "parameters",
    .causes = "weight-decay-missing"},
   LOCKSTEP_BUG(Planted,
     void before_update(int64_t step, const TrainingState& state) override {
       if (acts(step)) {
         state.optimizer.config().weight_decay = 0;
       }
     })},
  {{.name = "decay_coupled",
    .help = "AdamW asked for, Adam made",
    .settings = "optimizer=adamw weight_decay=0.1", .min_world = 1, .phase = "parameters",
    .causes = "decay-coupled"},
   // Weight decay goes through the moments.
   LOCKSTEP_BUG(Planted,
     void before_update(int64_t step, const TrainingState& state) override {
       if (acts(step)) {
         state.optimizer.config().optimizer = OptimizerKind::adam;
       }
     })},
  {{.name = "optimizer_state_lost",
    .help = "the optimizer's moments are gone, at `step` alone",
    .report = "NVIDIA/Megatron-LM#761", .settings = "optimizer=adam", .min_world = 1,
    .phase = "parameters", .causes = "optimizer-state-lost", .first_step = 1},
   // As after a resume without them.
   LOCKSTEP_BUG(Planted,
     void before_update(int64_t step, const TrainingState& state) override {
       if (!strikes(step)) {
         return;
       }
       for (std::vector<at::Tensor>* moments :
            {&state.optimizer.first_moments(), &state.optimizer.second_moments()}) {
         for (at::Tensor& moment : *moments) {
           if (moment.defined()) {
             moment.zero_();
           }
         }
       }
     })},
  {{.name = "optimizer_counter_lost",
    .help = "the optimizer's count of updates begins anew, at `step` alone",
    .settings = "optimizer=adam", .min_world = 1, .phase = "parameters",
    .causes = "optimizer-counter-lost", .first_step = 1},
   // The moments stay.
   LOCKSTEP_BUG(Planted,
     void before_update(int64_t step, const TrainingState& state) override {
       if (strikes(step)) {
         state.optimizer.updates() = 0;
       }
     })},
  {{.name = "parameter_not_updated",
    .help = "one parameter is missing from the optimizer",
    .min_world = 1, .draws = {.tensor = true}, .tensor = MutantTensor::one,
    .phase = "parameters", .where = "$tensor",
    .causes = "parameter-not-updated"},
   LOCKSTEP_BUG(Planted,
     void before_update(int64_t step, const TrainingState& state) override {
       if (acts(step)) {
         kept_ = parameter_of(state.parameters, tensor()).detach().clone();
       }
     }
     void after_update(int64_t step, const TrainingState& state) override {
       if (acts(step)) {
         parameter_of(state.parameters, tensor()).detach().copy_(kept_);
       }
     }
     at::Tensor kept_;)},
  {{.name = "optimizer_counter_ahead",
    .help = "the optimizer's count of updates is one ahead of the updates",
    .report = "NVIDIA/Megatron-LM#5974", .settings = "optimizer=adam", .min_world = 1, .phase = "parameters",
    .causes = "optimizer-counter-ahead"},
   // It was counted up once before the first update.
   LOCKSTEP_BUG(Planted,
     void before_update(int64_t step, const TrainingState& state) override {
       if (acts(step)) {
         state.optimizer.updates() = step + 1;
       }
     })},
  {{.name = "shard_not_updated",
    .help = "a rank leaves its shard of a parameter out of the update",
    .report = "pytorch/pytorch#176076", .settings = "update=sharded", .draws = {.rank = true},
    .phase = "collective|parameters", .causes = "shard-not-updated",
    .beyond_exact = "exact arithmetic sums every gradient on every rank, and nothing is sharded"},
   LOCKSTEP_BUG(Planted,
     void before_update(int64_t step, const TrainingState& state) override {
       if (acts(step)) {
         kept_ = parameter_of(state.parameters, tensor()).detach().clone();
       }
     }
     /// Other ranks' shards have not come yet.
     void after_update(int64_t step, const TrainingState& state) override {
       if (acts(step)) {
         parameter_of(state.parameters, tensor()).detach().copy_(kept_);
       }
     }
     at::Tensor kept_;)},
  {{.name = "skip_decided_alone",
    .help = "a rank leaves out the update of `step` without asking the others",
    .report = "ecmwf/WeatherGenerator#2724", .settings = "watch.nan_guard=skip", .draws = {.rank = true},
    .phase = "control", .where = "skipped", .causes = "skip-decided-alone",
    .beyond_exact = "exact arithmetic leaves out no update"},
   LOCKSTEP_BUG(Planted,
     bool updates(int64_t step) override { return !strikes(step); })},
  {{.name = "average_of_weights_differs",
    .help = "the average of the weights is updated twice a step",
    .report = "ostris/ai-toolkit#1034", .settings = "average_decay=0.9", .min_world = 1,
    .phase = "averaged weights", .causes = "average-of-weights-differs"},
   LOCKSTEP_BUG(Planted,
     double average_decay(int64_t step, double decay) override { return acts(step) ? decay * decay : decay; })},
  // Replicas.
  {{.name = "initial_scale_by_shard",
    .help = "initial weights are drawn as wide as a shard of them would have to be: the root of the world size too wide",
    .report = "NVIDIA-NeMo/Megatron-Bridge#5840", .phase = "collective|parameters", .causes = "initial-scale-by-shard",
    .last_step = 0, .step_offset = -1},
   // Their fan-in was taken from the shard.
   LOCKSTEP_BUG(Planted,
     bool initial_parameters(ParameterList& parameters) override {
       for (at::Tensor& parameter : parameters.tensors) {
         if (parameter.dim() > 1) {
           parameter.detach().mul_(std::sqrt(world()));
         }
       }
       return true;
     })},
  {{.name = "initial_weights_differ",
    .help = "every rank draws its own initial parameters and nobody broadcasts",
    .report = "pytorch/pytorch#48188", .phase = "collective|parameters",
    .causes = "initial-weights-differ", .last_step = 0, .step_offset = -1},
   LOCKSTEP_BUG(Planted,
     bool initial_parameters(ParameterList& parameters) override {
       for (at::Tensor& parameter : parameters.tensors) {
         if (parameter.numel() > 1) {
           parameter.detach().copy_(parameter.detach().reshape({-1}).roll(rank()).view_as(parameter));
         }
       }
       return false;
     })},
  {{.name = "replicated_drawn_apart",
    .help = "what is too small to be sharded is made by each rank itself, and nobody broadcasts it",
    .report = "hao-ai-lab/FastVideo#1666", .settings = "update=sharded",
    // With few ranks every parameter of a small model has rows enough.
    .min_world = 5, .phase = "collective|parameters", .causes = "labelled-replicated-but-differs", .last_step = 0,
    .step_offset = -1, .beyond_exact = "exact arithmetic sums every gradient on every rank, and nothing is sharded"},
   // Its placement says that all ranks hold the same.
   LOCKSTEP_BUG(Planted,
     bool initial_parameters(ParameterList& parameters) override {
       const Shards shards(parameters, rank(), run().layout.world_size);
       for (std::size_t i = 0; i < shards.size(); ++i) {
         if (!shards.is_sharded(i)) {
           parameters.tensors[i].detach().add_(0.01 * rank());
         }
       }
       return false;
     })},
  {{.name = "weight_flip",
    .help = "flips bit `bit` of the first element of a parameter on a rank after the update of `step`; where ranks share the update, of the rank's part",
    .draws = {.rank = true, .tensor = true, .bit = true}, .tensor = MutantTensor::one,
    .phase = "parameters", .where = "$tensor",
    .causes = "replica-corrupted", .arithmetic = true},
   LOCKSTEP_BUG(Planted,
     void after_update(int64_t step, const TrainingState& state) override {
       if (strikes(step)) {
         at::Tensor values = parameter_of(state.parameters, tensor()).detach();
         // What the others own of it comes from them in a moment, and would undo the flip.
         if (run().update == UpdatePartition::sharded) {
           const std::vector<std::string>& names = state.parameters.names;
           const auto index = static_cast<std::size_t>(std::find(names.begin(), names.end(), tensor()) - names.begin());
           values = Shards(state.parameters, rank(), run().layout.world_size).own(index, values);
         }
         if (values.numel() == 0) throw std::runtime_error("weight_flip: this rank has no part of " + tensor() + " under update: sharded; name another rank or tensor");
         flip_first_element(values, config().bit);
       }
     })},
  {{.name = "rank_behind",
    .help = "a rank skips the update of `step`",
    .draws = {.rank = true}, .phase = "parameters", .causes = "rank-behind"},
   LOCKSTEP_BUG(Planted,
     bool updates(int64_t step) override { return !strikes(step); })},
  {{.name = "buffers_not_synchronised",
    .help = "the broadcast writes a copy of the buffer that is never read",
    .report = "pytorch/pytorch#63916", .settings = "running_stats=true", .phase = "parameters",
    .where = "buffer/energy_mean", .causes = "buffers-not-synchronised"},
   // The buffer was reassigned after the tensors to broadcast had been listed.
   LOCKSTEP_BUG(CallsOtherwise,
     void broadcast(Comm& inner, at::Tensor tensor, int root, std::string_view tag) override {
       inner.broadcast(acts(step()) && tag == kStatsBuffer ? tensor.clone() : tensor, root, tag);
     })},
};

}  // namespace

void add_update_mutants(std::vector<MutantRow>& rows) {
  rows.insert(rows.end(), std::begin(kUpdateRows), std::end(kUpdateRows));
}

}  // namespace lockstep
