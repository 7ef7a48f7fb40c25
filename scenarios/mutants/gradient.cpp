// Planted bugs in a rank's own gradients.

#include "scenarios/mutants/table.h"

// One row is one bug; it is easier to read packed than with a line for each of its fields.
// clang-format off

namespace lockstep {
namespace {

constexpr const char* kWholeBlock = "its loss is not a sum over rows";
constexpr const char* kNoMicroSteps = "each row is added by itself, and micro-steps leave no sums between";

constexpr MutantRow kGradientRows[] = {
  {{.name = "flip_bit",
    .help = "flips bit `bit` of the first element of a local gradient, at `step` alone",
    .min_world = 1, .draws = {.rank = true, .tensor = true, .bit = true}, .tensor = MutantTensor::one,
    .phase = "local gradients",
    .where = "$tensor", .causes = "bit-flip", .arithmetic = true},
   // Silent corruption in its smallest form.
   LOCKSTEP_BUG(Planted,
     at::Tensor local_gradient(int64_t step, const std::string& parameter,
                               const at::Tensor& gradient) override {
       if (!strikes(step) || (!config().tensor.empty() && config().tensor != parameter)) {
         return gradient;
       }
       at::Tensor flipped = gradient.clone();
       flip_first_element(flipped, config().bit);
       return flipped;
     })},
  {{.name = "grad_scale",
    .help = "multiplies local gradients by `factor`, from `step` on",
    .min_world = 1, .draws = {.tensor = true, .factor = true}, .tensor = MutantTensor::group,
    .phase = "local gradients",
    .where = "$tensor", .causes = "gradient-times-world gradient-over-world "
              "sign-flipped unexplained"},
   // The world size multiplied in once too often, or a loss that was not averaged.
   LOCKSTEP_BUG(Planted,
     at::Tensor local_gradient(int64_t step, const std::string& parameter,
                               const at::Tensor& gradient) override {
       // `tensor` may name one parameter, or a whole group by its prefix.
       if (step < config().step || !parameter.starts_with(config().tensor)) {
         return gradient;
       }
       return gradient * config().factor;
     })},
  {{.name = "nan_gradient",
    .help = "the first element of a local gradient is not a number, at `step` alone",
    .min_world = 1, .draws = {.rank = true, .tensor = true}, .tensor = MutantTensor::one,
    .phase = "local gradients",
    .where = "$tensor", .causes = "non-finite"},
   LOCKSTEP_BUG(Planted,
     at::Tensor local_gradient(int64_t step, const std::string& parameter,
                               const at::Tensor& gradient) override {
       if (!strikes(step) || parameter != tensor()) {
         return gradient;
       }
       at::Tensor broken = gradient.clone(at::MemoryFormat::Contiguous);
       broken.view({-1}).narrow(0, 0, 1).fill_(std::numeric_limits<double>::quiet_NaN());
       return broken;
     })},
  {{.name = "gather_without_gradient", .trainer = "energy",
    .help = "the whole block over plainly gathered encodings: encoders learn nothing",
    .report = "facebookresearch/SLIP#31", .settings = "dropout=0", .phase = "local gradients",
    .causes = "gather-without-gradient",
    .beyond_exact = kWholeBlock},
   // The gather has no backward.
   LOCKSTEP_BUG(WrongLoss,
     LossOutput forward(const LossInput& input) override {
       return full_block_loss(input, GatherBackward::none);
     })},
  {{.name = "own_slice", .trainer = "energy",
    .help = "the whole block, own slice put back in: encoders get 1 / world size",
    .report = "JohnGiorgi/DeCLUTR#212", .settings = "dropout=0", .phase = "local gradients",
    .causes = "gather-own-slice",
    .beyond_exact = kWholeBlock},
   LOCKSTEP_BUG(WrongLoss,
     LossOutput forward(const LossInput& input) override {
       return full_block_loss(input, GatherBackward::own_slice);
     })},
  {{.name = "own_slice_times_world", .trainer = "energy",
    .help = "the own slice put back in and the loss times the world size",
    // With two ranks nobody can tell it from a head that is counted twice.
    .report = "texttron/tevatron#143", .settings = "dropout=0", .min_world = 3, .phase = "local gradients",
    .causes = "gather-own-slice-times-world",
    .beyond_exact = kWholeBlock},
   // Right for encoders, wrong for everything else.
   LOCKSTEP_BUG(WrongLoss,
     LossOutput forward(const LossInput& input) override {
       LossOutput output = full_block_loss(input, GatherBackward::own_slice);
       scale_gradient(output, world());
       return output;
     })},
  {{.name = "gather_average", .trainer = "energy",
    .help = "a gather whose backward averages over ranks, under the row block",
    .report = "pytorch/pytorch#58005", .phase = "local gradients", .causes = "gather-averaged"},
   // The row block needs the sum.
   LOCKSTEP_BUG(WrongLoss,
     LossOutput forward(const LossInput& input) override {
       return row_block_loss(input, GatherBackward::average);
     })},
  {{.name = "candidates_detached", .trainer = "energy",
    .help = "a plain gather of encoded candidates, under the row block",
    .report = "HobbitLong/SupContrast#26", .phase = "local gradients", .causes = "candidates-detached"},
   // The action encoder gets no gradient.
   LOCKSTEP_BUG(WrongLoss,
     LossOutput forward(const LossInput& input) override {
       return row_block_loss(input, GatherBackward::none);
     })},
  {{.name = "sliced_backward", .trainer = "energy",
    .help = "a gather whose backward keeps the own slice, under the row block",
    .report = "lightly-ai/lightly#1528", .phase = "local gradients", .causes = "gather-backward-sliced"},
   // Pulls without the pushes of other ranks.
   LOCKSTEP_BUG(WrongLoss,
     LossOutput forward(const LossInput& input) override {
       return row_block_loss(input, GatherBackward::own_slice);
     })},
  {{.name = "head_counted_twice", .trainer = "energy",
    .help = "row and column blocks with the other side detached",
    .settings = "dropout=0", .phase = "local gradients", .causes = "head-counted-twice",
    .beyond_exact = kWholeBlock},
   // Encoders come out right, whatever stands in both blocks twice.
   LOCKSTEP_BUG(WrongLoss,
     LossOutput forward(const LossInput& input) override {
       const GatheredBlock block = gather_encoded(input, GatherBackward::none, true);
       const at::Tensor energies = input.model.energies(block.rows, block.action_ND, block.ids, 0);
       LossOutput output = row_loss(input, energies, targets(input, block.offset), block.ids);
       // Column block: everybody's rows against the own candidates, weighted with what the softmax of each
       // row gives.
       const at::Tensor all =
           in_loss_precision(input.model.energies(block.contexts, block.action_ND, block.ids, 0).detach());
       const at::Tensor tau = input.model.temperature();
       const at::Tensor weight = at::softmax(-all / tau.detach(), 1) - at::eye(all.size(0), all.options());
       const auto own = static_cast<int64_t>(input.ids.size());
       const at::Tensor column =
           in_loss_precision(input.model.energies(block.contexts, block.own_bD, input.ids, block.offset));
       const at::Tensor own_weight = weight.narrow(1, block.offset, own);
       const at::Tensor sum = (own_weight * (-column / tau)).sum() * output.row_weight;
       output.loss = output.loss + (sum - sum.detach());
       return output;
     })},
  {{.name = "temperature_reduced_twice", .trainer = "energy",
    .help = "the temperature's gradient is summed by hand, then averaged with the others",
    .phase = "local gradients", .where = "temperature.log_tau", .causes = "temperature-reduced-twice"},
   LOCKSTEP_BUG(Planted,
     std::unique_ptr<Comm> above_ledger(std::unique_ptr<Comm> comm) override {
       comm_ = comm.get();
       return comm;
     }
     at::Tensor local_gradient(int64_t step, const std::string& parameter,
                               const at::Tensor& gradient) override {
       if (!acts(step) || parameter != "temperature.log_tau") {
         return gradient;
       }
       at::Tensor sum = gradient.clone();
       comm_->all_reduce_sum(sum, "temperature.gradient");
       return sum;
     }
     Comm* comm_ = nullptr;)},
  {{.name = "temperature_detached", .trainer = "energy",
    .help = "the temperature enters the loss without its gradient",
    .phase = "local gradients", .where = "temperature.log_tau", .causes = "temperature-detached"},
   LOCKSTEP_BUG(PlantedInEnergy,
     at::Tensor temperature(int64_t step, at::Tensor tau) override {
       return acts(step) ? without_gradient(tau) : tau;
     })},
  {{.name = "context_detached", .trainer = "energy",
    .help = "encoded contexts enter the loss without their gradient",
    .phase = "local gradients", .where = "context_encoder", .causes = "context-detached"},
   LOCKSTEP_BUG(PlantedInEnergy,
     EncodedRows encoded_context(int64_t step, EncodedRows rows) override {
       for (at::Tensor& tensor : rows.tensors) {
         if (acts(step) && tensor.is_floating_point()) {
           tensor = without_gradient(tensor);
         }
       }
       return rows;
     })},
  {{.name = "candidates_not_detached", .trainer = "energy",
    .help = "predictions that serve as negatives keep their gradient",
    .settings = "negatives=layer", .phase = "local gradients", .where = "action_head|context_encoder",
    .causes = "candidates-not-detached"},
   // The action head is trained to predict badly.
   LOCKSTEP_BUG(PlantedInEnergy,
     at::Tensor explicit_candidates(int64_t step, at::Tensor candidates,
                                    const std::vector<at::Tensor>& predictions) override {
       if (!acts(step)) {
         return candidates;
       }
       std::vector<at::Tensor> columns = candidates.unbind(1);
       const std::vector<int64_t> layers = negative_layers(energy(run()).layer, static_cast<int>(predictions.size()));
       for (std::size_t k = 0; k < layers.size(); ++k) {
         columns[k] = predictions[static_cast<std::size_t>(layers[k])];
       }
       return at::stack(columns, 1);
     })},
  {{.name = "sign_flipped",
    .help = "all gradients have the wrong sign",
    .min_world = 1, .tensor = MutantTensor::group, .phase = "local gradients", .causes = "sign-flipped"},
   LOCKSTEP_BUG(Planted,
     at::Tensor local_gradient(int64_t step, const std::string& parameter,
                               const at::Tensor& gradient) override {
       return acts(step) && touches(parameter) ? -gradient : gradient;
     })},
  {{.name = "gradient_times_world",
    .help = "local gradients times the world size although the loss is right",
    .report = "mlfoundations/open_clip#616", .tensor = MutantTensor::group,
    .phase = "local gradients", .causes = "gradient-times-world"},
   // As if to make up for a gather that was not there.
   LOCKSTEP_BUG(Planted,
     at::Tensor local_gradient(int64_t step, const std::string& parameter,
                               const at::Tensor& gradient) override {
       return acts(step) && touches(parameter) ? gradient * world() : gradient;
     })},
  {{.name = "gradient_over_world",
    .help = "local gradients over the world size although the loss is right",
    .tensor = MutantTensor::group, .phase = "local gradients", .causes = "gradient-over-world"},
   // Their reduction is a mean already.
   LOCKSTEP_BUG(Planted,
     at::Tensor local_gradient(int64_t step, const std::string& parameter,
                               const at::Tensor& gradient) override {
       return acts(step) && touches(parameter) ? gradient / world() : gradient;
     })},
  {{.name = "accumulation_not_scaled",
    .help = "micro-steps are added up without dividing by their number",
    .report = "huggingface/transformers#34191", .settings = "accumulation=2", .min_world = 3,
    .tensor = MutantTensor::group, .phase = "local gradients", .causes = "accumulation-not-scaled"},
   LOCKSTEP_BUG(Planted,
     at::Tensor local_gradient(int64_t step, const std::string& parameter,
                               const at::Tensor& gradient) override {
       const auto micro_steps = static_cast<double>(run().accumulation);
       return acts(step) && touches(parameter) ? gradient * micro_steps : gradient;
     })},
  {{.name = "auxiliary_loss_detached", .trainer = "classify",
    .help = "the second loss enters the sum without its gradient",
    .report = "NVIDIA-NeMo/Automodel#1408", .settings = "auxiliary.weight=0.5", .min_world = 1,
    .phase = "local gradients", .causes = "auxiliary-loss-detached"},
   LOCKSTEP_BUG(PlantedInClassify,
     at::Tensor auxiliary(int64_t step, at::Tensor losses_B) override {
       return acts(step) ? without_gradient(losses_B) : losses_B;
     })},
  {{.name = "only_last_micro_step",
    .help = "gradients are zeroed before each micro-step: the last one's alone are left",
    .report = "allenai/open-instruct#1498", .settings = "accumulation=2", .min_world = 1,
    .phase = "local gradients", .causes = "only-last-micro-step", .beyond_exact = kNoMicroSteps},
   LOCKSTEP_BUG(Planted,
     bool keeps_micro_steps(int64_t step) override { return !acts(step); })},
  {{.name = "accumulated_in_low_precision",
    .help = "gradients of micro-steps are added up in bfloat16",
    .settings = "accumulation=2", .min_world = 1, .phase = "local gradients",
    .causes = "accumulated-in-low-precision", .arithmetic = true, .beyond_exact = kNoMicroSteps},
   LOCKSTEP_BUG(Planted,
     void before_step(int64_t /*step*/) override { sums_.clear(); }
     at::Tensor local_gradient(int64_t step, const std::string& parameter,
                               const at::Tensor& gradient) override {
       if (!acts(step)) {
         return gradient;
       }
       // What is added to the sum so far makes of it the rounded sum.
       at::Tensor& sum = sums_[parameter];
       const at::Tensor before = sum.defined() ? sum : at::zeros_like(gradient);
       sum = (before + gradient).to(at::kBFloat16).to(gradient.scalar_type());
       return sum - before;
     }
     std::map<std::string, at::Tensor> sums_;)},
};

}  // namespace

void add_gradient_mutants(std::vector<MutantRow>& rows) {
  rows.insert(rows.end(), std::begin(kGradientRows), std::end(kGradientRows));
}

}  // namespace lockstep
