// Planted bugs in what ranks exchange: collectives of the running statistics and the reduction of gradients.

#include "scenarios/mutants/table.h"

// One row is one bug; it is easier to read packed than with a line for each of its fields.
// clang-format off

namespace lockstep {
namespace {

constexpr const char* kSharded = "exact arithmetic sums every gradient on every rank, and nothing is sharded";

constexpr MutantRow kExchangeRows[] = {
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
   LOCKSTEP_BUG(Planted,
     void reduced_gradients(int64_t step, ParameterList& parameters, Comm& /*comm*/) override {
       for (at::Tensor& parameter : parameters.tensors) {
         if (acts(step)) {
           parameter.mutable_grad().mul_(world());
         }
       }
     })},
  {{.name = "mean_taken_twice",
    .help = "gradients are divided by the world size twice",
    .phase = "reduced gradients", .causes = "mean-taken-twice"},
   LOCKSTEP_BUG(Planted,
     void reduced_gradients(int64_t step, ParameterList& parameters, Comm& /*comm*/) override {
       for (at::Tensor& parameter : parameters.tensors) {
         if (acts(step)) {
           parameter.mutable_grad().div_(world());
         }
       }
     })},
  {{.name = "divided_by_wrong_world",
    .help = "the sum is divided by a world size with one rank more",
    .phase = "reduced gradients", .causes = "divided-by-wrong-world"},
   // The world size is from before a rank left.
   LOCKSTEP_BUG(Planted,
     void reduced_gradients(int64_t step, ParameterList& parameters, Comm& /*comm*/) override {
       for (at::Tensor& parameter : parameters.tensors) {
         if (acts(step)) {
           parameter.mutable_grad().mul_(world() / (world() + 1));
         }
       }
     })},
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
   LOCKSTEP_BUG(Planted,
     at::Tensor sent_gradient(int64_t step, const std::string& parameter,
                              const at::Tensor& gradient) override {
       return acts(step) && touches(parameter) ? at::zeros_like(gradient) : gradient;
     })},
  {{.name = "rank_counted_twice",
    .help = "a rank's contribution is added twice",
    .draws = {.rank = true}, .tensor = MutantTensor::group,
    .phase = "reduced gradients", .causes = "rank-counted-twice"},
   LOCKSTEP_BUG(Planted,
     at::Tensor sent_gradient(int64_t step, const std::string& parameter,
                              const at::Tensor& gradient) override {
       return acts(step) && touches(parameter) ? gradient * 2.0 : gradient;
     })},
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
};

}  // namespace

void add_exchange_mutants(std::vector<MutantRow>& rows) {
  rows.insert(rows.end(), std::begin(kExchangeRows), std::end(kExchangeRows));
}

}  // namespace lockstep
