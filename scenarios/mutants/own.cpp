// Planted bugs in what a rank does by itself: its rows, its draws, its loss and its own gradients.

#include "scenarios/mutants/table.h"

// One row is one bug; it is easier to read packed than with a line for each of its fields.
// clang-format off

namespace lockstep {
namespace {

constexpr const char* kWholeBlock = "its loss is not a sum over rows";
constexpr const char* kNoMicroSteps = "each row is added by itself, and micro-steps leave no sums between";

constexpr MutantRow kOwnRows[] = {
  // Rows that a rank takes.
  {{.name = "set_epoch_forgotten",
    .help = "the sampler is not told the epoch: each has the order of the one before",
    .report = "pytorch/pytorch#31771", .phase = "samples", .causes = "set-epoch-forgotten",
    .at_epoch = true},
   LOCKSTEP_BUG(Planted,
     std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& rows_of) override {
       if (!acts(step)) {
         return rows;
       }
       const int64_t batches = batches_per_epoch(rows_of);
       const int64_t epoch = std::max<int64_t>(config().step - 1, 0) / batches;
       return step / batches > epoch ? rows_of(epoch * batches + step % batches, rank()) : rows;
     }
     /// A sample comes again in the first batch of the second epoch, or the first would have been longer.
     int64_t batches_per_epoch(const RowsOf& rows_of) {
       std::set<int64_t> seen;
       for (int64_t step = 0; batches_ == 0; ++step) {
         for (int rank = 0; rank < run().layout.world_size; ++rank) {
           for (const int64_t id : rows_of(step, rank)) {
             batches_ = seen.insert(id).second || batches_ > 0 ? batches_ : step;
           }
         }
       }
       return batches_;
     }
     int64_t batches_ = 0;)},
  {{.name = "shards_identical",
    .help = "every rank takes the shard of rank 0",
    .report = "huggingface/datasets#5360", .phase = "samples", .causes = "shards-identical"},
   // The sampler was not given the rank.
   LOCKSTEP_ROWS(rows = rows_of(step, 0);)},
  {{.name = "shard_overlap",
    .help = "the last row of a rank is the first one of the next rank",
    .report = "huggingface/datasets#3423", .phase = "samples", .causes = "shards-overlap"},
   LOCKSTEP_ROWS(
     const std::vector<int64_t> next = rows_of(step, (rank() + 1) % run().layout.world_size);
     if (!rows.empty() && !next.empty()) rows.back() = next.front();)},
  {{.name = "sample_dropped",
    .help = "one row of a rank is lost, at `step` alone",
    .draws = {.rank = true}, .phase = "samples", .causes = "sample-dropped"},
   LOCKSTEP_ROWS(if (strikes(step) && !rows.empty()) rows.pop_back();)},
  {{.name = "sample_duplicated",
    .help = "a row of a rank occurs twice and displaces another, at `step` alone",
    .report = "pytorch/pytorch#25162", .draws = {.rank = true}, .phase = "samples",
    .causes = "sample-duplicated"},
   LOCKSTEP_ROWS(if (strikes(step) && rows.size() > 1) rows.back() = rows.front();)},
  {{.name = "sample_replaced",
    .help = "one row holds a sample that the sampler did not give, at `step` alone",
    .report = "pytorch/torchtitan#4304", .draws = {.rank = true}, .phase = "samples",
    .causes = "sample-replaced"},
   LOCKSTEP_ROWS(
     if (strikes(step) && !rows.empty()) {
       // A sample of a later step, which no rank has now.
       const std::vector<int64_t> later = rows_of(step + 1, rank());
       rows.front() = later.empty() ? rows.front() + 1 : later.back();
     })},
  {{.name = "rank_behind_data",
    .help = "a rank's loader lags one step behind",
    .draws = {.rank = true}, .phase = "samples", .causes = "rank-behind-data", .first_step = 1},
   LOCKSTEP_ROWS(if (step > 0) rows = rows_of(step - 1, rank());)},
  {{.name = "sampler_seed_differs",
    .help = "a rank shuffles by another seed",
    .draws = {.rank = true}, .phase = "samples", .causes = "sampler-seed-differs"},
   // Its shard is cut from another order.
   LOCKSTEP_ROWS(
     // Seed and epoch are added up for the shuffle: another epoch's order is another seed's.
     constexpr int64_t kOtherEpochs = 1009;
     rows = rows_of(step + kOtherEpochs, rank());)},
  {{.name = "global_batch_times_world",
    .help = "every rank takes as many rows as the whole batch has: world size times the rows a step",
    .report = "NVIDIA-NeMo/Automodel#1210", .phase = "samples", .causes = "global-batch-times-world"},
   // The batch of all ranks was given where that of one rank was meant.
   LOCKSTEP_ROWS(
     rows.clear();
     for (int64_t batch = 0; batch < run().layout.world_size; ++batch) {
       const std::vector<int64_t> more = rows_of(step * run().layout.world_size + batch, rank());
       rows.insert(rows.end(), more.begin(), more.end());
     })},
  {{.name = "position_lost",
    .help = "the loader begins the epoch again at `step`, as after a resumption without its position",
    .min_world = 1, .phase = "samples", .causes = "position-lost", .first_step = 2, .last_step = 5},
   LOCKSTEP_ROWS(rows = rows_of(step - config().step, rank());)},
  // Random streams.
  {{.name = "same_noise", .trainer = "energy",
    .help = "one seed on all ranks and streams by place: ranks draw the same noise",
    .report = "huggingface/transformers#31412", .phase = "random", .where = "context_noise|dropout",
    .causes = "same-stream-on-all-ranks"},
   LOCKSTEP_BUG(PlantedInEnergy,
     const RandomStreams& streams(int64_t step, const RandomStreams& right) override {
       return acts(step) ? same_ : right;
     }
     const RandomStreams same_{RankSeed::same, run().seed, rank()};)},
  {{.name = "noise_by_rank", .trainer = "energy",
    .help = "streams of seed + rank, by place: draws depend on the layout",
    .report = "ecmwf/anemoi-core#595", .phase = "random", .where = "context_noise|dropout",
    .causes = "stream-keyed-by-rank"},
   LOCKSTEP_BUG(PlantedInEnergy,
     const RandomStreams& streams(int64_t step, const RandomStreams& right) override {
       return acts(step) ? by_rank_ : right;
     }
     const RandomStreams by_rank_{RankSeed::plus_rank, run().seed, rank()};)},
  {{.name = "extra_draws", .trainer = "energy",
    .help = "a rank draws four numbers more than it needs",
    .draws = {.rank = true}, .phase = "random", .where = "context_noise|dropout", .causes = "extra-draws"},
   // Everything behind them moves.
   LOCKSTEP_BUG(PlantedInEnergy,
     uint64_t row_key(int64_t step, Purpose /*purpose*/, uint64_t key) override {
       return acts(step) ? key + more_ : key;
     }
     uint64_t extra_draws(int64_t step, Purpose /*purpose*/) override { return acts(step) ? more_ : 0; }
     const uint64_t more_ = 4;)},
  {{.name = "dropout_off", .trainer = "energy",
    .help = "a replica left in evaluation mode: no dropout",
    .settings = "dropout=0.1", .draws = {.rank = true}, .phase = "random", .where = "dropout",
    .causes = "draws-missing"},
   LOCKSTEP_FROM_STEP(PlantedInEnergy, double, dropout, 0)},
  {{.name = "dropout_not_replayed", .trainer = "energy",
    .help = "the second of two passes over tiles draws masks of its own",
    .report = "luyug/GC-DPR#12", .settings = "tile_columns=2 dropout=0.1", .phase = "random",
    .where = "dropout replay", .causes = "dropout-not-replayed"},
   LOCKSTEP_FROM_STEP(PlantedInEnergy, uint64_t, replay_key, right + 1)},
  {{.name = "stream_not_advanced", .trainer = "energy",
    .help = "a rank's streams stay where they were at the step before",
    .report = "huggingface/accelerate#2016", .draws = {.rank = true}, .phase = "random",
    .where = "context_noise|dropout", .causes = "stream-not-advanced", .first_step = 1},
   LOCKSTEP_BUG(PlantedInEnergy,
     int64_t stream_step(int64_t step) override { return acts(step) ? config().step - 1 : step; })},
  {{.name = "masks_drawn_again", .trainer = "classify",
    .help = "the backward pass computes the hidden layer again with dropout masks of its own",
    .report = "allenai/OLMo-core#828", .settings = "activation_checkpointing=true dropout=0.1", .min_world = 1,
    .phase = "random", .where = "dropout", .causes = "masks-drawn-again"},
   // The state of the generator is not put back before the layer is computed again.
   LOCKSTEP_FROM_STEP(PlantedInClassify, uint64_t, recomputed_key, right + 1)},
  // Control values.
  {{.name = "scheduler_per_rank",
    .help = "the schedule is stepped once per rank instead of once per step",
    .report = "huggingface/accelerate#2142", .settings = "schedule=cosine",
    // Begun later, or with two ranks, it looks like a schedule that was shifted.
    .min_world = 3, .phase = "control", .where = "learning_rate",
    .causes = "scheduler-stepped-per-rank", .last_step = 0},
   LOCKSTEP_BUG(Planted,
     double learning_rate(int64_t step, double rate) override {
       if (!acts(step)) {
         return rate;
       }
       const int64_t stepped = config().step + (step - config().step + 1) * run().layout.world_size - 1;
       return lockstep::learning_rate(run(), std::min(stepped, run().steps));
     })},
  {{.name = "rate_linear",
    .help = "the learning rate times the world size, at the same rows a step",
    .report = "huggingface/diffusers#3954", .phase = "control", .where = "learning_rate",
    .causes = "rate-scaled-linear"},
   LOCKSTEP_FROM_STEP(Planted, double, learning_rate, right * world())},
  {{.name = "rate_sqrt",
    .help = "the learning rate times the root of the world size, at the same rows a step",
    .phase = "control", .where = "learning_rate", .causes = "rate-scaled-sqrt"},
   LOCKSTEP_FROM_STEP(Planted, double, learning_rate, right * std::sqrt(world()))},
  {{.name = "schedule_shifted",
    .help = "the schedule runs one step ahead",
    .settings = "schedule=cosine", .phase = "control", .where = "learning_rate",
    .causes = "schedule-shifted"},
   // It is stepped before the update instead of behind it.
   LOCKSTEP_FROM_STEP(Planted, double, learning_rate, lockstep::learning_rate(run(), step + 1))},
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
   LOCKSTEP_LOSS(
     LossInput local = input;
     local.options.local = true;
     return right(local);)},
  {{.name = "negatives_missing", .trainer = "energy",
    .help = "candidates of the next rank are lost on a rank",
    .min_world = 3, .draws = {.rank = true}, .phase = "energies", .causes = "negatives-missing"},
   LOCKSTEP_LOSS(
     const Candidates candidates = in_batch_candidates(input);
     const auto all = static_cast<int64_t>(candidates.ids.size()), own = static_cast<int64_t>(input.ids.size());
     // The next rank's rows begin where this one's end; of the last rank the first rank's are next. In the order of
     // the whole batch they stand between those of the others.
     const int next = (input.comm.rank() + 1) % input.comm.world_size();
     const int64_t begin = candidates.offset + own < all ? candidates.offset + own : 0;
     const int64_t end = std::min(begin + std::max<int64_t>(own, 1), begin == 0 ? candidates.offset : all);
     std::vector<int64_t> kept, ids, place;
     for (int64_t column = 0; column < all; ++column) {
       const auto at = static_cast<std::size_t>(column);
       place.push_back(static_cast<int64_t>(kept.size()));
       if (candidates.owners.empty() ? column >= begin && column < end : candidates.owners[at] == next) continue;
       kept.push_back(column);
       ids.push_back(candidates.ids[at]);
     }
     const auto tensor_of = [](const std::vector<int64_t>& values) {
       return at::tensor(at::ArrayRef<int64_t>(values), at::kLong);
     };
     const at::Tensor action = candidates.action_NA.index_select(0, tensor_of(kept));
     const EncodedRows rows = input.model.encode_context();
     const at::Tensor energies = input.model.energies(rows, input.model.encode_action(action), ids, 0);
     return row_loss(input, energies, tensor_of(place).index_select(0, target_columns(input, candidates)), ids);)},
  {{.name = "candidates_misordered", .trainer = "energy",
    .help = "gathered candidates are shifted by one place from their ids",
    .report = "huggingface/sentence-transformers#3453", .settings = "dropout=0", .phase = "energies",
    .causes = "candidates-misordered"},
   LOCKSTEP_FROM_STEP(PlantedInEnergy, at::Tensor, encoded_action, at::roll(right, 1, 0))},
  {{.name = "context_mask_ignored", .trainer = "energy",
    .help = "padding steps of a context are treated as real ones",
    .settings = "data.min_context=10", .phase = "energies", .causes = "mask-ignored"},
   LOCKSTEP_FROM_STEP(PlantedInEnergy, at::Tensor, context_mask, at::ones_like(right))},
  {{.name = "low_precision_candidates", .trainer = "energy",
    .help = "encoded candidates pass through bfloat16",
    .phase = "energies", .causes = "candidates-in-low-precision", .arithmetic = true},
   LOCKSTEP_FROM_STEP(PlantedInEnergy, at::Tensor, encoded_action, right.to(at::kBFloat16).to(right.scalar_type()))},
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
   LOCKSTEP_LOSS(
     const Candidates candidates = in_batch_candidates(input);
     const EncodedRows rows = input.model.encode_context();
     const at::Tensor energies =
         input.model.energies(rows, input.model.encode_action(candidates.action_NA), candidates.ids, 0);
     return row_loss(input, energies, targets_of_rank_0(input, candidates), candidates.ids);)},
  {{.name = "loss_times_world", .trainer = "energy",
    .help = "the loss times the world size",
    .report = "lightonai/pylate#156", .phase = "loss", .causes = "loss-times-world"},
   LOCKSTEP_LOSS(
     LossOutput output = right(input);
     output.loss = output.loss * world();
     return output;)},
  {{.name = "loss_over_world", .trainer = "energy",
    .help = "the loss over the world size",
    .report = "lightly-ai/lightly#1977", .phase = "loss", .causes = "loss-over-world"},
   // The mean over ranks divides already.
   LOCKSTEP_LOSS(
     LossOutput output = right(input);
     output.loss = output.loss / world();
     return output;)},
  {{.name = "mean_of_means", .trainer = "energy",
    .help = "each rank averages over its own rows, of which there are unequal numbers",
    .report = "pytorch/pytorch#67253", .settings = "rows=unequal", .phase = "loss",
    .causes = "mean-of-means"},
   // A row of a small rank weighs more.
   LOCKSTEP_LOSS(
     LossOutput output = right(input);
     const auto rows = std::max(static_cast<double>(input.ids.size()) * static_cast<double>(run().accumulation), 1.0);
     // A row of unit weight counts total rows / ranks times what it counts in the mean over ranks.
     const double unit = input.shared != nullptr ? input.total_rows / world() : 1.0;
     output.loss = output.row_losses_B.sum() * unit / rows;
     return output;)},
  {{.name = "rows_left_out", .trainer = "energy",
    .help = "the last row of each rank falls out of the sum",
    .phase = "loss", .causes = "rows-left-out"},
   // It still counts in the number that the sum is divided by.
   LOCKSTEP_LOSS(
     LossOutput output = right(input);
     const int64_t rows = output.row_losses_B.numel();
     if (rows > 0 && input.end_row == static_cast<int64_t>(input.ids.size())) {
       output.loss = output.row_losses_B.narrow(0, 0, rows - 1).sum() * output.row_weight;
     }
     return output;)},
  {{.name = "temperature_applied_twice", .trainer = "energy",
    .help = "energies are divided by the temperature twice",
    .phase = "loss", .causes = "temperature-applied-twice"},
   // Once in the head, and once more in the loss.
   LOCKSTEP_FROM_STEP(PlantedInEnergy, at::Tensor, temperature, right * right)},
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
   LOCKSTEP_FROM_STEP(PlantedInClassify, at::Tensor, auxiliary, right / world())},
  // A rank's own gradients.
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
   LOCKSTEP_GRADIENT(local_gradient, gradient * config().factor)},
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
   LOCKSTEP_LOSS(return full_block_loss(input, GatherBackward::none);)},
  {{.name = "own_slice", .trainer = "energy",
    .help = "the whole block, own slice put back in: encoders get 1 / world size",
    .report = "JohnGiorgi/DeCLUTR#212", .settings = "dropout=0", .phase = "local gradients",
    .causes = "gather-own-slice",
    .beyond_exact = kWholeBlock},
   LOCKSTEP_LOSS(return full_block_loss(input, GatherBackward::own_slice);)},
  {{.name = "own_slice_times_world", .trainer = "energy",
    .help = "the own slice put back in and the loss times the world size",
    // With two ranks nobody can tell it from a head that is counted twice.
    .report = "texttron/tevatron#143", .settings = "dropout=0", .min_world = 3, .phase = "local gradients",
    .causes = "gather-own-slice-times-world",
    .beyond_exact = kWholeBlock},
   // Right for encoders, wrong for everything else.
   LOCKSTEP_LOSS(
     LossOutput output = full_block_loss(input, GatherBackward::own_slice);
     scale_gradient(output, world());
     return output;)},
  {{.name = "gather_average", .trainer = "energy",
    .help = "a gather whose backward averages over ranks, under the row block",
    .report = "pytorch/pytorch#58005", .phase = "local gradients", .causes = "gather-averaged"},
   // The row block needs the sum.
   LOCKSTEP_LOSS(return row_block_loss(input, GatherBackward::average);)},
  {{.name = "candidates_detached", .trainer = "energy",
    .help = "a plain gather of encoded candidates, under the row block",
    .report = "HobbitLong/SupContrast#26", .phase = "local gradients", .causes = "candidates-detached"},
   // The action encoder gets no gradient.
   LOCKSTEP_LOSS(return row_block_loss(input, GatherBackward::none);)},
  {{.name = "sliced_backward", .trainer = "energy",
    .help = "a gather whose backward keeps the own slice, under the row block",
    .report = "lightly-ai/lightly#1528", .phase = "local gradients", .causes = "gather-backward-sliced"},
   // Pulls without the pushes of other ranks.
   LOCKSTEP_LOSS(return row_block_loss(input, GatherBackward::own_slice);)},
  {{.name = "head_counted_twice", .trainer = "energy",
    .help = "row and column blocks with the other side detached",
    .settings = "dropout=0", .phase = "local gradients", .causes = "head-counted-twice",
    .beyond_exact = kWholeBlock},
   // Encoders come out right, whatever stands in both blocks twice.
   LOCKSTEP_LOSS(
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
     return output;)},
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
   LOCKSTEP_FROM_STEP(PlantedInEnergy, at::Tensor, temperature, without_gradient(right))},
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
   LOCKSTEP_GRADIENT(local_gradient, -gradient)},
  {{.name = "gradient_times_world",
    .help = "local gradients times the world size although the loss is right",
    .report = "mlfoundations/open_clip#616", .tensor = MutantTensor::group,
    .phase = "local gradients", .causes = "gradient-times-world"},
   // As if to make up for a gather that was not there.
   LOCKSTEP_GRADIENT(local_gradient, gradient * world())},
  {{.name = "gradient_over_world",
    .help = "local gradients over the world size although the loss is right",
    .tensor = MutantTensor::group, .phase = "local gradients", .causes = "gradient-over-world"},
   // Their reduction is a mean already.
   LOCKSTEP_GRADIENT(local_gradient, gradient / world())},
  {{.name = "accumulation_not_scaled",
    .help = "micro-steps are added up without dividing by their number",
    .report = "huggingface/transformers#34191", .settings = "accumulation=2", .min_world = 3,
    .tensor = MutantTensor::group, .phase = "local gradients", .causes = "accumulation-not-scaled"},
   LOCKSTEP_GRADIENT(local_gradient, gradient * static_cast<double>(run().accumulation))},
  {{.name = "auxiliary_loss_detached", .trainer = "classify",
    .help = "the second loss enters the sum without its gradient",
    .report = "NVIDIA-NeMo/Automodel#1408", .settings = "auxiliary.weight=0.5", .min_world = 1,
    .phase = "local gradients", .causes = "auxiliary-loss-detached"},
   LOCKSTEP_FROM_STEP(PlantedInClassify, at::Tensor, auxiliary, without_gradient(right))},
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

void add_own_mutants(std::vector<MutantRow>& rows) {
  rows.insert(rows.end(), std::begin(kOwnRows), std::end(kOwnRows));
}

}  // namespace lockstep
