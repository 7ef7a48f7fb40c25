// Planted bugs in what ranks exchange, in the update and in what keeps replicas equal, and those by which a run ends.

#include "scenarios/mutants/table.h"

// One row is one bug; it is easier to read packed than with a line for each of its fields.
// clang-format off

namespace lockstep {
namespace {

constexpr const char* kSharded = "exact arithmetic sums every gradient on every rank, and nothing is sharded";
constexpr const char* kGatheredBefore = "candidates are gathered once per micro-step, before the row losses that it changes";

constexpr MutantRow kSharedRows[] = {
  // Collectives of the running statistics.
  {{.name = "wrong_root",
    .help = "the buffer comes from a rank that has not updated it",
    .settings = "running_stats=true", .phase = "collective", .where = "broadcast stats.buffer",
    .causes = "wrong-root"},
   LOCKSTEP_BUG(CallsOtherwise,
     void broadcast(Comm& inner, at::Tensor tensor, int root, std::string_view tag) override {
       const bool wrong = acts(step()) && tag == kStatsBuffer && inner.world_size() > 1;
       inner.broadcast(tensor, wrong ? root + 1 : root, tag);
     })},
  {{.name = "wrong_op",
    .help = "the largest value where the sum was meant",
    .report = "openai/baselines#727", .settings = "running_stats=true", .phase = "collective",
    .where = "all_reduce stats.energy", .causes = "wrong-op"},
   LOCKSTEP_BUG(CallsOtherwise,
     void all_reduce_sum(Comm& inner, at::Tensor tensor, std::string_view tag) override {
       if (acts(step()) && tag == kStatsSum) {
         inner.all_reduce_max(tensor, tag);
       } else {
         inner.all_reduce_sum(tensor, tag);
       }
     })},
  {{.name = "wrong_dtype",
    .help = "statistics kept in float64 are summed in float32",
    .settings = "running_stats=true", .phase = "collective", .where = "all_reduce stats.energy",
    .causes = "wrong-dtype"},
   LOCKSTEP_BUG(CallsOtherwise,
     void all_reduce_sum(Comm& inner, at::Tensor tensor, std::string_view tag) override {
       if (!acts(step()) || tag != kStatsSum) {
         inner.all_reduce_sum(tensor, tag);
         return;
       }
       const at::Tensor narrow = tensor.to(at::kFloat);
       inner.all_reduce_sum(narrow, tag);
       tensor.copy_(narrow);
     })},
  {{.name = "collective_order",
    .help = "the buffer is broadcast before the sum that it is updated from",
    .settings = "running_stats=true", .phase = "collective",
    .where = "broadcast stats.buffer|all_reduce stats.energy", .causes = "collective-order"},
   LOCKSTEP_BUG(CallsOtherwise,
     void all_reduce_sum(Comm& inner, at::Tensor tensor, std::string_view tag) override {
       if (acts(step()) && tag == kStatsSum) {
         waiting_ = tensor;
       } else {
         inner.all_reduce_sum(tensor, tag);
       }
     }
     void broadcast(Comm& inner, at::Tensor tensor, int root, std::string_view tag) override {
       inner.broadcast(tensor, root, tag);
       if (tag == kStatsBuffer && waiting_.defined()) {
         inner.all_reduce_sum(std::exchange(waiting_, {}), kStatsSum);
       }
     }
     at::Tensor waiting_;)},
  {{.name = "collective_missing",
    .help = "the sum over ranks is left out",
    .settings = "running_stats=true", .phase = "collective",
    .where = "all_reduce stats.energy|broadcast stats.buffer", .causes = "collective-missing"},
   // The buffer is made from the rows of rank 0.
   LOCKSTEP_BUG(CallsOtherwise,
     void all_reduce_sum(Comm& inner, at::Tensor tensor, std::string_view tag) override {
       if (!acts(step()) || tag != kStatsSum) {
         inner.all_reduce_sum(tensor, tag);
       }
     })},
  {{.name = "collective_extra",
    .help = "the buffer is broadcast twice",
    .settings = "running_stats=true", .phase = "collective", .where = "broadcast stats.buffer",
    .causes = "collective-extra"},
   LOCKSTEP_BUG(CallsOtherwise,
     void broadcast(Comm& inner, at::Tensor tensor, int root, std::string_view tag) override {
       inner.broadcast(tensor, root, tag);
       if (acts(step()) && tag == kStatsBuffer) {
         inner.broadcast(tensor, root, tag);
       }
     })},
  {{.name = "stale_buffer",
    .help = "a rank reads the result that a sum had at the step before",
    .settings = "running_stats=true", .draws = {.rank = true}, .phase = "collective",
    .where = "all_reduce stats.energy", .causes = "stale-buffer", .first_step = 1},
   LOCKSTEP_BUG(DeliversOtherwise,
     void all_reduce_sum(Comm& inner, at::Tensor tensor, std::string_view tag) override {
       inner.all_reduce_sum(tensor, tag);
       if (tag != kStatsSum) {
         return;
       }
       const at::Tensor before = std::exchange(last_, tensor.clone());
       if (acts(step()) && before.defined()) {
         tensor.copy_(before);
       }
     }
     at::Tensor last_;)},
  {{.name = "broadcast_not_received",
    .help = "the last rank keeps what it had before the broadcast",
    .settings = "running_stats=true", .phase = "collective", .where = "broadcast stats.buffer",
    .causes = "broadcast-not-received stale-buffer"},
   LOCKSTEP_BUG(DeliversOtherwise,
     void broadcast(Comm& inner, at::Tensor tensor, int root, std::string_view tag) override {
       const bool lost = acts(step()) && tag == kStatsBuffer && inner.rank() == inner.world_size() - 1;
       inner.broadcast(lost ? tensor.clone() : tensor, root, tag);
     })},
  // Reduction of gradients.
  {{.name = "past_the_reducer",
    .help = "the forward pass bypasses the wrapper: gradients are not reduced",
    .report = "jingyaogong/minimind#853", .phase = "collective|reduced gradients",
    .causes = "gradient-not-reduced"},
   // Every rank keeps its own gradients.
   LOCKSTEP_BUG(Planted,
     bool reduces(int64_t step) override { return !acts(step); })},
  {{.name = "parameter_not_reduced",
    .help = "one parameter is not registered with the reducer",
    .report = "pytorch/pytorch#69031", .draws = {.tensor = true}, .tensor = MutantTensor::one,
    .phase = "reduced gradients",
    .where = "$tensor", .causes = "parameter-not-reduced"},
   // Every rank keeps its own gradient of it.
   LOCKSTEP_BUG(Planted,
     at::Tensor sent_gradient(int64_t step, const std::string& parameter,
                              const at::Tensor& gradient) override {
       if (acts(step) && parameter == tensor()) {
         local_ = gradient.clone();
       }
       return gradient;
     }
     void reduced_gradients(int64_t step, ParameterList& parameters, Comm& /*comm*/) override {
       if (acts(step)) {
         parameter_of(parameters, tensor()).mutable_grad().copy_(local_);
       }
     }
     at::Tensor local_;)},
  {{.name = "gradient_sum",
    .help = "gradients are summed over the ranks and not divided",
    .report = "pytorch/pytorch#19540", .phase = "reduced gradients", .causes = "gradient-sum-not-mean"},
   LOCKSTEP_REDUCED(gradient.mul_(world());)},
  {{.name = "mean_taken_twice",
    .help = "gradients are divided by the world size twice",
    .phase = "reduced gradients", .causes = "mean-taken-twice"},
   LOCKSTEP_REDUCED(gradient.div_(world());)},
  {{.name = "divided_by_wrong_world",
    .help = "the sum is divided by a world size with one rank more",
    .phase = "reduced gradients", .causes = "divided-by-wrong-world"},
   // The world size is from before a rank left.
   LOCKSTEP_REDUCED(gradient.mul_(world() / (world() + 1));)},
  {{.name = "clip_before_reduction",
    .help = "every rank clips its own gradients before they are reduced",
    .settings = "clip_norm=0.05 optimizer=sgd", .phase = "reduced gradients",
    .causes = "clip-before-reduction"},
   // No process of the whole batch can do the like.
   LOCKSTEP_BUG(ReducedByHand,
     void prepare(const std::map<std::string, at::Tensor>& local) override {
       factor_ = std::min(1.0, run().clip_norm / (norm_of(local) + 1e-6));
     }
     at::Tensor to_send(const at::Tensor& local) override { return local * factor_; }
     at::Tensor reduce(const at::Tensor& all_V) override { return all_V.mean(0); }
     double factor_ = 1;)},
  {{.name = "wrong_gradient_op",
    .help = "the reduction takes the largest value instead of the mean",
    .phase = "reduced gradients", .causes = "wrong-reduction-op"},
   LOCKSTEP_BUG(ReducedByHand,
     at::Tensor reduce(const at::Tensor& all_V) override { return all_V.amax(0); })},
  {{.name = "low_precision_reduction",
    .help = "gradients are sent, and arrive, as bfloat16",
    .phase = "reduced gradients", .causes = "reduced-in-low-precision", .arithmetic = true},
   LOCKSTEP_BUG(ReducedByHand,
     at::Tensor to_send(const at::Tensor& local) override {
       return local.to(at::kBFloat16).to(local.scalar_type());
     }
     at::Tensor reduce(const at::Tensor& all_V) override {
       return all_V.mean(0).to(at::kBFloat16).to(all_V.scalar_type());
     })},
  {{.name = "stale_gradient",
    .help = "a rank sends the gradients of the step before",
    .draws = {.rank = true}, .phase = "reduced gradients", .causes = "stale-gradient", .first_step = 1},
   LOCKSTEP_BUG(Planted,
     at::Tensor sent_gradient(int64_t step, const std::string& parameter,
                              const at::Tensor& gradient) override {
       const at::Tensor before = std::exchange(last_[parameter], gradient.clone());
       return acts(step) && before.defined() ? before : gradient;
     }
     std::map<std::string, at::Tensor> last_;)},
  {{.name = "gradient_message_flip",
    .help = "flips bit `bit` of the first element of a reduced gradient on a rank, at `step` alone",
    .draws = {.rank = true, .tensor = true, .bit = true}, .tensor = MutantTensor::one,
    .phase = "reduced gradients", .where = "$tensor",
    .causes = "message-corrupted", .arithmetic = true},
   LOCKSTEP_BUG(Planted,
     void reduced_gradients(int64_t step, ParameterList& parameters, Comm& /*comm*/) override {
       if (strikes(step)) {
         flip_first_element(parameter_of(parameters, tensor()).mutable_grad(), config().bit);
       }
     })},
  {{.name = "buckets_swapped", .trainer = "energy",
    .help = "two reduced gradients of equal shape are swapped",
    .phase = "reduced gradients", .where = "energy_head.query.weight|energy_head.key.weight",
    .causes = "buckets-swapped"},
   LOCKSTEP_BUG(Planted,
     void reduced_gradients(int64_t step, ParameterList& parameters, Comm& /*comm*/) override {
       if (acts(step)) {
         at::Tensor& query = parameter_of(parameters, "energy_head.query.weight").mutable_grad();
         at::Tensor& key = parameter_of(parameters, "energy_head.key.weight").mutable_grad();
         const at::Tensor kept = query.clone();
         query.copy_(key);
         key.copy_(kept);
       }
     })},
  {{.name = "rank_missing",
    .help = "zeros stand in for a rank's contribution",
    .draws = {.rank = true}, .tensor = MutantTensor::group,
    .phase = "reduced gradients", .causes = "rank-missing"},
   LOCKSTEP_GRADIENT(sent_gradient, at::zeros_like(gradient))},
  {{.name = "rank_counted_twice",
    .help = "a rank's contribution is added twice",
    .draws = {.rank = true}, .tensor = MutantTensor::group,
    .phase = "reduced gradients", .causes = "rank-counted-twice"},
   LOCKSTEP_GRADIENT(sent_gradient, gradient * 2.0)},
  {{.name = "gradients_not_zeroed",
    .help = "gradients of the step before are not cleared, and new ones are added",
    .phase = "reduced gradients", .causes = "gradients-not-zeroed", .first_step = 1},
   LOCKSTEP_BUG(Planted,
     bool zeroes_gradients(int64_t step) override { return !acts(step); })},
  // What is left out of the reduction.
  {{.name = "last_micro_step_not_reduced",
    .help = "the last micro-step's gradient is added after the reduction: it stays the rank's own",
    .report = "microsoft/DeepSpeed#7985", .settings = "accumulation=2", .phase = "reduced gradients",
    .causes = "last-micro-step-not-reduced", .beyond_exact = "each row is added by itself, and no micro-step is the last one"},
   LOCKSTEP_BUG(Planted,
     at::Tensor local_gradient(int64_t step, const std::string& parameter,
                               const at::Tensor& gradient) override {
       if (acts(step)) {
         last_[parameter] = gradient.clone();
       }
       return gradient;
     }
     at::Tensor sent_gradient(int64_t step, const std::string& parameter,
                              const at::Tensor& gradient) override {
       return acts(step) ? gradient - last_.at(parameter) : gradient;
     }
     void reduced_gradients(int64_t step, ParameterList& parameters, Comm& /*comm*/) override {
       for (std::size_t i = 0; acts(step) && i < parameters.tensors.size(); ++i) {
         parameters.tensors[i].mutable_grad().add_(last_.at(parameters.names[i]));
       }
     }
     std::map<std::string, at::Tensor> last_;)},
  {{.name = "one_use_not_reduced", .trainer = "classify",
    .help = "a parameter is used by two losses, and its gradient from one of them is added after the reduction",
    .report = "microsoft/DeepSpeed#8224", .settings = "auxiliary.weight=0.5", .phase = "reduced gradients",
    .where = "mixer.weight", .causes = "one-use-not-reduced",
    .beyond_exact = "each row has one gradient of both uses"},
   LOCKSTEP_BUG(Planted,
     void before_step(int64_t /*step*/) override { own_ = at::Tensor(); }
     bool takes_terms(int64_t step) override { return acts(step); }
     void term_gradient(int64_t step, const std::string& term, const std::string& parameter,
                        const at::Tensor& gradient) override {
       if (acts(step) && term == "reconstruction" && parameter == tensor()) {
         own_ = own_.defined() ? own_ + gradient : gradient.clone();
       }
     }
     at::Tensor sent_gradient(int64_t /*step*/, const std::string& parameter,
                              const at::Tensor& gradient) override {
       return own_.defined() && parameter == tensor() ? gradient - own_ : gradient;
     }
     void reduced_gradients(int64_t /*step*/, ParameterList& parameters, Comm& /*comm*/) override {
       if (own_.defined()) {
         parameter_of(parameters, tensor()).mutable_grad().add_(own_);
       }
     }
     at::Tensor own_;)},
  {{.name = "norm_of_own_shard",
    .help = "each rank takes the norm of its own shards for that of the whole gradient",
    .report = "pytorch/pytorch#170862", .settings = "update=sharded clip_norm=0.05 optimizer=sgd",
    .phase = "collective|gradient norm", .causes = "norm-of-own-shard", .beyond_exact = kSharded},
   LOCKSTEP_BUG(Planted,
     double norm_of_shards(int64_t step, const SquaredNorms& squares, double norm) override {
       return acts(step) ? std::sqrt(squares.own_shards + squares.replicated) : norm;
     })},
  {{.name = "replicated_counted_in_norm",
    .help = "what every rank holds whole is summed over the ranks in the norm",
    .report = "NVIDIA-NeMo/RL#3788", .settings = "update=sharded clip_norm=0.05 optimizer=sgd", .min_world = 5,
    .phase = "collective|gradient norm", .causes = "replicated-counted-in-norm", .beyond_exact = kSharded},
   LOCKSTEP_BUG(Planted,
     double norm_of_shards(int64_t step, const SquaredNorms& squares, double norm) override {
       return acts(step) ? std::sqrt(squares.all_shards + world() * squares.replicated) : norm;
     })},
  // The end of a run.
  {{.name = "stall",
    .help = "the rank stops making progress at `step`: tests the detection of hangs",
    .min_world = 1, .draws = {.rank = true}, .phase = "failed", .causes = "rank-hung"},
   // A deadlock, a frozen file system, a stopped process.
   LOCKSTEP_BUG(Planted,
     void before_step(int64_t step) override {
       while (strikes(step)) {
         pause();
       }
     })},
  {{.name = "throw",
    .help = "the rank throws an exception at `step`",
    .min_world = 1, .draws = {.rank = true}, .phase = "failed", .causes = "rank-threw"},
   LOCKSTEP_BUG(Planted,
     void before_step(int64_t step) override {
       if (strikes(step)) {
         throw std::runtime_error("planted: this rank throws at step " + std::to_string(step));
       }
     })},
  {{.name = "die",
    .help = "the rank kills itself with SIGKILL at `step`",
    .min_world = 1, .draws = {.rank = true}, .phase = "failed", .causes = "rank-died"},
   // As the system kills a rank when memory runs out: no handler, no last word.
   LOCKSTEP_BUG(Planted,
     void before_step(int64_t step) override {
       if (strikes(step)) {
         raise(SIGKILL);
       }
     })},
  {{.name = "gather_shape", .trainer = "energy",
    .help = "a rank sends actions of another shape",
    .report = "Lightning-AI/pytorch-lightning#7773", .draws = {.rank = true}, .phase = "failed",
    .causes = "shapes-differ",
    .beyond_exact = kGatheredBefore},
   LOCKSTEP_LOSS(
     LossInput other = input;
     other.action_BA = input.action_BA.narrow(1, 0, input.action_BA.size(1) - 1);
     return right(other);)},
  {{.name = "gather_dtype", .trainer = "energy",
    .help = "a rank sends actions of another type",
    .report = "huggingface/accelerate#134", .draws = {.rank = true}, .phase = "failed",
    .causes = "dtype-differs",
    .beyond_exact = kGatheredBefore},
   LOCKSTEP_LOSS(
     LossInput other = input;
     other.action_BA = input.action_BA.to(run().precision == Precision::float64 ? at::kFloat : at::kDouble);
     return right(other);)},
  {{.name = "gather_step", .trainer = "energy",
    .help = "a rank is a step ahead of the others",
    .draws = {.rank = true}, .phase = "failed", .causes = "step-differs",
    .beyond_exact = kGatheredBefore},
   LOCKSTEP_LOSS(
     LossInput other = input;
     ++other.step;
     return right(other);)},
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
   LOCKSTEP_FROM_STEP(Planted, double, clip_norm, -1)},
  {{.name = "clip_twice_norm",
    .help = "the norm of reduced gradients is summed over the ranks again",
    .settings = "clip_norm=0.05 optimizer=sgd", .phase = "parameters", .causes = "clip-twice"},
   // They are reduced already, and so are clipped too hard.
   LOCKSTEP_FROM_STEP(Planted, double, clip_norm, right * std::sqrt(world()))},
  {{.name = "weight_decay_twice",
    .help = "weight decay by the optimizer and by hand",
    .settings = "weight_decay=0.1", .min_world = 1, .phase = "parameters", .causes = "weight-decay-twice"},
   LOCKSTEP_UPDATE(state.optimizer.config().weight_decay = 2 * run().weight_decay;)},
  {{.name = "weight_decay_missing",
    .help = "weight decay does not reach the optimizer",
    .settings = "weight_decay=0.1", .min_world = 1, .phase = "parameters",
    .causes = "weight-decay-missing"},
   LOCKSTEP_UPDATE(state.optimizer.config().weight_decay = 0;)},
  {{.name = "decay_coupled",
    .help = "AdamW asked for, Adam made",
    .settings = "optimizer=adamw weight_decay=0.1", .min_world = 1, .phase = "parameters",
    .causes = "decay-coupled"},
   // Weight decay goes through the moments.
   LOCKSTEP_UPDATE(state.optimizer.config().optimizer = OptimizerKind::adam;)},
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
   LOCKSTEP_BUG(KeptFromUpdate)},
  {{.name = "optimizer_counter_ahead",
    .help = "the optimizer's count of updates is one ahead of the updates",
    .report = "NVIDIA/Megatron-LM#5974", .settings = "optimizer=adam", .min_world = 1, .phase = "parameters",
    .causes = "optimizer-counter-ahead"},
   // It was counted up once before the first update.
   LOCKSTEP_UPDATE(state.optimizer.updates() = step + 1;)},
  {{.name = "shard_not_updated",
    .help = "a rank leaves its shard of a parameter out of the update",
    .report = "pytorch/pytorch#176076", .settings = "update=sharded", .draws = {.rank = true},
    .phase = "collective|parameters", .causes = "shard-not-updated",
    .beyond_exact = kSharded},
   // Other ranks' shards have not come yet when it is put back.
   LOCKSTEP_BUG(KeptFromUpdate)},
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
   LOCKSTEP_FROM_STEP(Planted, double, average_decay, right * right)},
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
    .step_offset = -1, .beyond_exact = kSharded},
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

void add_shared_mutants(std::vector<MutantRow>& rows) {
  rows.insert(rows.end(), std::begin(kSharedRows), std::end(kSharedRows));
}

}  // namespace lockstep
