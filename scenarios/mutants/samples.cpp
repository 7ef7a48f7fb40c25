// Planted bugs in the rows that a rank takes.

#include "scenarios/mutants/table.h"

// One row is one bug; it is easier to read packed than with a line for each of its fields.
// clang-format off

namespace lockstep {
namespace {

constexpr MutantRow kSamplesRows[] = {
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
   LOCKSTEP_BUG(Planted,
     std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& rows_of) override {
       return acts(step) ? rows_of(step, 0) : rows;
     })},
  {{.name = "shard_overlap",
    .help = "the last row of a rank is the first one of the next rank",
    .report = "huggingface/datasets#3423", .phase = "samples", .causes = "shards-overlap"},
   LOCKSTEP_BUG(Planted,
     std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& rows_of) override {
       const std::vector<int64_t> next = rows_of(step, (rank() + 1) % run().layout.world_size);
       if (acts(step) && !rows.empty() && !next.empty()) {
         rows.back() = next.front();
       }
       return rows;
     })},
  {{.name = "sample_dropped",
    .help = "one row of a rank is lost, at `step` alone",
    .draws = {.rank = true}, .phase = "samples", .causes = "sample-dropped"},
   LOCKSTEP_BUG(Planted,
     std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& /*rows_of*/) override {
       if (strikes(step) && !rows.empty()) {
         rows.pop_back();
       }
       return rows;
     })},
  {{.name = "sample_duplicated",
    .help = "a row of a rank occurs twice and displaces another, at `step` alone",
    .report = "pytorch/pytorch#25162", .draws = {.rank = true}, .phase = "samples",
    .causes = "sample-duplicated"},
   LOCKSTEP_BUG(Planted,
     std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& /*rows_of*/) override {
       if (strikes(step) && rows.size() > 1) {
         rows.back() = rows.front();
       }
       return rows;
     })},
  {{.name = "sample_replaced",
    .help = "one row holds a sample that the sampler did not give, at `step` alone",
    .report = "pytorch/torchtitan#4304", .draws = {.rank = true}, .phase = "samples",
    .causes = "sample-replaced"},
   LOCKSTEP_BUG(Planted,
     std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& rows_of) override {
       if (strikes(step) && !rows.empty()) {
         // A sample of a later step, which no rank has now.
         const std::vector<int64_t> later = rows_of(step + 1, rank());
         rows.front() = later.empty() ? rows.front() + 1 : later.back();
       }
       return rows;
     })},
  {{.name = "rank_behind_data",
    .help = "a rank's loader lags one step behind",
    .draws = {.rank = true}, .phase = "samples", .causes = "rank-behind-data", .first_step = 1},
   LOCKSTEP_BUG(Planted,
     std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& rows_of) override {
       return acts(step) && step > 0 ? rows_of(step - 1, rank()) : rows;
     })},
  {{.name = "sampler_seed_differs",
    .help = "a rank shuffles by another seed",
    .draws = {.rank = true}, .phase = "samples", .causes = "sampler-seed-differs"},
   // Its shard is cut from another order.
   LOCKSTEP_BUG(Planted,
     std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& rows_of) override {
       // Seed and epoch are added up for the shuffle: another epoch's order is another seed's.
       constexpr int64_t kOtherEpochs = 1009;
       return acts(step) ? rows_of(step + kOtherEpochs, rank()) : rows;
     })},
  {{.name = "global_batch_times_world",
    .help = "every rank takes as many rows as the whole batch has: world size times the rows a step",
    .report = "NVIDIA-NeMo/Automodel#1210", .phase = "samples", .causes = "global-batch-times-world"},
   // The batch of all ranks was given where that of one rank was meant.
   LOCKSTEP_BUG(Planted,
     std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& rows_of) override {
       if (!acts(step)) {
         return rows;
       }
       std::vector<int64_t> all;
       for (int64_t batch = 0; batch < run().layout.world_size; ++batch) {
         const std::vector<int64_t> more = rows_of(step * run().layout.world_size + batch, rank());
         all.insert(all.end(), more.begin(), more.end());
       }
       return all;
     })},
  {{.name = "position_lost",
    .help = "the loader begins the epoch again at `step`, as after a resumption without its position",
    .min_world = 1, .phase = "samples", .causes = "position-lost", .first_step = 2, .last_step = 5},
   LOCKSTEP_BUG(Planted,
     std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows, const RowsOf& rows_of) override {
       return acts(step) ? rows_of(step - config().step, rank()) : rows;
     })},
};

}  // namespace

void add_sample_mutants(std::vector<MutantRow>& rows) {
  rows.insert(rows.end(), std::begin(kSamplesRows), std::end(kSamplesRows));
}

}  // namespace lockstep
