// Planted bugs in energies and in the loss.

#include "scenarios/mutants/table.h"

// One row is one bug; it is easier to read packed than with a line for each of its fields.
// clang-format off

namespace lockstep {
namespace {

constexpr MutantRow kLossRows[] = {
  // Energies.
  {{.name = "sample_content", .trainer = "energy",
    .help = "a row has the right id and another sample's content, at `step` alone",
    .draws = {.rank = true}, .phase = "energies", .causes = "sample-content"},
   LOCKSTEP_BUG(PlantedInEnergy,
     std::vector<int64_t> content(int64_t step, std::vector<int64_t> ids) override {
       if (strikes(step) && !ids.empty()) {
         ids.front() = ids.front() > 0 ? ids.front() - 1 : 1;
       }
       return ids;
     })},
  {{.name = "local_negatives", .trainer = "energy",
    .help = "only candidates of the rank itself, where those of all ranks were asked for",
    .report = "openai/CLIP#25", .phase = "energies", .causes = "local-negatives"},
   LOCKSTEP_BUG(WrongLoss,
     LossOutput forward(const LossInput& input) override {
       LossInput local = input;
       local.options.local = true;
       return right(local);
     })},
  {{.name = "negatives_missing", .trainer = "energy",
    .help = "candidates of the next rank are lost on a rank",
    .min_world = 3, .draws = {.rank = true}, .phase = "energies", .causes = "negatives-missing"},
   LOCKSTEP_BUG(WrongLoss,
     LossOutput forward(const LossInput& input) override {
       const Candidates candidates = in_batch_candidates(input);
       if (input.shared != nullptr) return without_next_rank(input, candidates);
       const auto all = static_cast<int64_t>(candidates.ids.size());
       const auto own = static_cast<int64_t>(input.ids.size());
       // The next rank's rows begin where this one's end; of the last rank the first rank's are next.
       const int64_t begin = candidates.offset + own < all ? candidates.offset + own : 0;
       const int64_t end = std::min(begin + std::max<int64_t>(own, 1), begin == 0 ? candidates.offset : all);
       std::vector<int64_t> kept, ids;
       for (int64_t column = 0; column < all; ++column) {
         if (column < begin || column >= end) {
           kept.push_back(column);
           ids.push_back(candidates.ids[static_cast<std::size_t>(column)]);
         }
       }
       const at::Tensor action =
           candidates.action_NA.index_select(0, at::tensor(at::ArrayRef<int64_t>(kept), at::kLong));
       const EncodedRows rows = input.model.encode_context();
       const at::Tensor energies = input.model.energies(rows, input.model.encode_action(action), ids, 0);
       return row_loss(input, energies, targets(input, candidates.offset - (begin == 0 ? end : 0)), ids);
     }
     /// In the order of the whole batch the next rank's rows stand between those of the others.
     LossOutput without_next_rank(const LossInput& input, const Candidates& candidates) {
       const int next = (input.comm.rank() + 1) % input.comm.world_size();
       std::vector<int64_t> kept, ids, place(candidates.ids.size(), 0);
       for (std::size_t column = 0; column < candidates.ids.size(); ++column) {
         place[column] = static_cast<int64_t>(kept.size());
         if (candidates.owners[column] == next) continue;
         kept.push_back(static_cast<int64_t>(column));
         ids.push_back(candidates.ids[column]);
       }
       const auto tensor_of = [](const std::vector<int64_t>& values) {
         return at::tensor(at::ArrayRef<int64_t>(values), at::kLong);
       };
       const at::Tensor action = candidates.action_NA.index_select(0, tensor_of(kept));
       const EncodedRows rows = input.model.encode_context();
       const at::Tensor energies = input.model.energies(rows, input.model.encode_action(action), ids, 0);
       return row_loss(input, energies, tensor_of(place).index_select(0, target_columns(input, candidates)), ids);
     })},
  {{.name = "candidates_misordered", .trainer = "energy",
    .help = "gathered candidates are shifted by one place from their ids",
    .report = "huggingface/sentence-transformers#3453", .settings = "dropout=0", .phase = "energies",
    .causes = "candidates-misordered"},
   LOCKSTEP_BUG(PlantedInEnergy,
     at::Tensor encoded_action(int64_t step, at::Tensor action) override {
       return acts(step) ? at::roll(action, 1, 0) : action;
     })},
  {{.name = "context_mask_ignored", .trainer = "energy",
    .help = "padding steps of a context are treated as real ones",
    .settings = "data.min_context=10", .phase = "energies", .causes = "mask-ignored"},
   LOCKSTEP_BUG(PlantedInEnergy,
     at::Tensor context_mask(int64_t step, at::Tensor mask) override {
       return acts(step) ? at::ones_like(mask) : mask;
     })},
  {{.name = "low_precision_candidates", .trainer = "energy",
    .help = "encoded candidates pass through bfloat16",
    .phase = "energies", .causes = "candidates-in-low-precision", .arithmetic = true},
   LOCKSTEP_BUG(PlantedInEnergy,
     at::Tensor encoded_action(int64_t step, at::Tensor action) override {
       return acts(step) ? action.to(at::kBFloat16).to(action.scalar_type()) : action;
     })},
  {{.name = "padding_unmasked", .trainer = "energy",
    .help = "zeros that pad short ranks for the gather stay candidates",
    .settings = "rows=unequal", .phase = "energies|loss", .causes = "padding-not-masked"},
   LOCKSTEP_BUG(WrongLoss,
     LossOutput forward(const LossInput& input) override {
       if (input.shared != nullptr) return with_padding(input, input.shared->candidates);
       const at::ArrayRef<int64_t> own(input.ids.data(), input.ids.size());
       const at::Tensor ids = at::tensor(own, at::kLong);
       const GatheredRows gathered =
           gather_rows(input.comm, {input.action_BA, ids}, input.step, "loss.candidates");
       const at::Tensor named = at::where(gathered.valid, gathered.columns[1], -1);
       const std::vector<int64_t> columns(named.const_data_ptr<int64_t>(),
                                          named.const_data_ptr<int64_t>() + named.numel());
       const EncodedRows rows = input.model.encode_context();
       const at::Tensor energies =
           input.model.energies(rows, input.model.encode_action(gathered.columns[0]), columns, 0);
       return row_loss(input, energies, targets(input, gathered.offset), columns);
     }
     /// Of a row in exact arithmetic, whose candidates were gathered before.
     LossOutput with_padding(const LossInput& input, const Candidates& candidates) {
       std::map<int, int64_t> of_rank;
       int64_t most = 0;
       for (const int owner : candidates.owners) most = std::max(most, ++of_rank[owner]);
       const int64_t padding = most * input.comm.world_size() - static_cast<int64_t>(candidates.ids.size());
       std::vector<int64_t> columns = candidates.ids;
       columns.insert(columns.end(), static_cast<std::size_t>(padding), -1);
       const at::Tensor action =
           at::cat({candidates.action_NA,
                    at::zeros({padding, candidates.action_NA.size(1)}, candidates.action_NA.options())}, 0);
       const EncodedRows rows = input.model.encode_context();
       const at::Tensor energies = input.model.energies(rows, input.model.encode_action(action), columns, 0);
       return row_loss(input, energies, target_columns(input, candidates), columns);
     })},
  {{.name = "message_flip", .trainer = "energy",
    .help = "flips bit `bit` of another rank's candidates on their way to a rank, at `step` alone",
    .draws = {.rank = true, .bit = true}, .phase = "collective|energies", .causes = "message-corrupted",
    .arithmetic = true},
   LOCKSTEP_BUG(DeliversOtherwise,
     at::Tensor all_gather(Comm& inner, const at::Tensor& tensor, std::string_view tag) override {
       at::Tensor all = inner.all_gather(tensor, tag);
       if (strikes(step()) && tag == "loss.candidates" && inner.world_size() > 1) {
         at::Tensor message = all.select(0, (inner.rank() + 1) % inner.world_size());
         if (run().precision == Precision::float64) {
           message = message.view({-1}).view(at::kDouble);
         }
         flip_first_element(message, config().bit);
       }
       return all;
     })},
  // Loss.
  {{.name = "label_offset", .trainer = "energy",
    .help = "labels count from 0 on every rank",
    .report = "modelscope/ms-swift#10069", .phase = "loss", .causes = "label-offset"},
   // Beyond the first rank, rows are drawn to the rows of rank 0.
   LOCKSTEP_BUG(WrongLoss,
     LossOutput forward(const LossInput& input) override {
       const Candidates candidates = in_batch_candidates(input);
       const EncodedRows rows = input.model.encode_context();
       const at::Tensor energies =
           input.model.energies(rows, input.model.encode_action(candidates.action_NA), candidates.ids, 0);
       return row_loss(input, energies, targets_of_rank_0(input, candidates), candidates.ids);
     })},
  {{.name = "loss_times_world", .trainer = "energy",
    .help = "the loss times the world size",
    .report = "lightonai/pylate#156", .phase = "loss", .causes = "loss-times-world"},
   LOCKSTEP_BUG(WrongLoss,
     LossOutput forward(const LossInput& input) override {
       LossOutput output = right(input);
       output.loss = output.loss * world();
       return output;
     })},
  {{.name = "loss_over_world", .trainer = "energy",
    .help = "the loss over the world size",
    .report = "lightly-ai/lightly#1977", .phase = "loss", .causes = "loss-over-world"},
   // The mean over ranks divides already.
   LOCKSTEP_BUG(WrongLoss,
     LossOutput forward(const LossInput& input) override {
       LossOutput output = right(input);
       output.loss = output.loss / world();
       return output;
     })},
  {{.name = "mean_of_means", .trainer = "energy",
    .help = "each rank averages over its own rows, of which there are unequal numbers",
    .report = "pytorch/pytorch#67253", .settings = "rows=unequal", .phase = "loss",
    .causes = "mean-of-means"},
   // A row of a small rank weighs more.
   LOCKSTEP_BUG(WrongLoss,
     LossOutput forward(const LossInput& input) override {
       LossOutput output = right(input);
       const auto rows = std::max(static_cast<double>(input.ids.size()) * static_cast<double>(run().accumulation), 1.0);
       // A row of unit weight counts total rows / ranks times what it counts in the mean over ranks.
       const double unit = input.shared != nullptr ? input.total_rows / world() : 1.0;
       output.loss = output.row_losses_B.sum() * unit / rows;
       return output;
     })},
  {{.name = "rows_left_out", .trainer = "energy",
    .help = "the last row of each rank falls out of the sum",
    .phase = "loss", .causes = "rows-left-out"},
   // It still counts in the number that the sum is divided by.
   LOCKSTEP_BUG(WrongLoss,
     LossOutput forward(const LossInput& input) override {
       LossOutput output = right(input);
       const int64_t rows = output.row_losses_B.numel();
       if (rows > 0 && input.end_row == static_cast<int64_t>(input.ids.size())) {
         output.loss = output.row_losses_B.narrow(0, 0, rows - 1).sum() * output.row_weight;
       }
       return output;
     })},
  {{.name = "temperature_applied_twice", .trainer = "energy",
    .help = "energies are divided by the temperature twice",
    .phase = "loss", .causes = "temperature-applied-twice"},
   // Once in the head, and once more in the loss.
   LOCKSTEP_BUG(PlantedInEnergy,
     at::Tensor temperature(int64_t step, at::Tensor tau) override { return acts(step) ? tau * tau : tau; })},
  // The sum of several losses, and its division.
  {{.name = "micro_steps_weighted_alike", .trainer = "classify",
    .help = "each micro-step's mean over its own time steps counts by its rows",
    .report = "verl-project/verl#5625", .settings = "accumulation=2", .phase = "loss",
    .causes = "micro-steps-weighted-alike",
    .beyond_exact = "rows have no micro-step there whose time steps could divide them"},
   LOCKSTEP_BUG(PlantedInClassify,
     double loss_weight(int64_t step, double weight, const DenominatorCounts& counts) override {
       const LossCounts& own = counts.micro_step;
       if (!acts(step) || own.valid_steps <= 0 || counts.rank.rows <= 0) {
         return weight;
       }
       return own.rows / counts.rank.rows / own.valid_steps;
     })},
  {{.name = "normalised_by_another_window",
    .help = "the loss is divided by the micro-steps of another window than that which is accumulated",
    .report = "huggingface/trl#6024", .settings = "accumulation=2", .min_world = 1, .phase = "loss",
    .causes = "normalised-by-another-window"},
   // Times k / m: k micro-steps are accumulated, and what they are divided by was counted over m = k + 1.
   LOCKSTEP_BUG(Planted,
     double loss_factor(int64_t step) override {
       const auto accumulated = static_cast<double>(run().accumulation);
       return acts(step) ? accumulated / (accumulated + 1) : 1;
     })},
  {{.name = "auxiliary_loss_over_world", .trainer = "classify",
    .help = "the second loss is divided by the world size before the mean over ranks",
    .report = "NVIDIA/Megatron-LM#3769", .settings = "auxiliary.weight=0.5", .phase = "loss",
    .causes = "auxiliary-loss-over-world"},
   LOCKSTEP_BUG(PlantedInClassify,
     at::Tensor auxiliary(int64_t step, at::Tensor losses_B) override {
       return acts(step) ? losses_B / world() : losses_B;
     })},
};

}  // namespace

void add_loss_mutants(std::vector<MutantRow>& rows) {
  rows.insert(rows.end(), std::begin(kLossRows), std::end(kLossRows));
}

}  // namespace lockstep
