#pragma once
// The training loop of one rank, and the forced loop that computes gradients at another run's parameters.

#include <functional>
#include <memory>
#include <string>

#include "harness/comm/comm.h"
#include "harness/comm/ledger.h"
#include "harness/plan/run_config.h"
#include "harness/trace/rank_result.h"
#include "harness/trace/writer.h"
#include "harness/train/fault.h"
#include "harness/train/task.h"

namespace lockstep {

struct RankContext {
  const RunConfig* config = nullptr;
  int rank = 0;
  Comm* comm = nullptr;  ///< the ledger's
  TraceWriter* trace = nullptr;
  Task* task = nullptr;
  Mutant* mutant = nullptr;  ///< or none
  RowsOf rows_of;            ///< as the sampler deals them
  std::function<void(int64_t step, const std::string& operation)> beat;
  std::function<double()> now_s;  ///< monotonic seconds

  RowsOf rows_ahead = {};  ///< as rows_of, for the thread that prepares rows: they share no state
  const CommunicationMeter* meter = nullptr;  ///< the ledger's, or none

  /// This rank's rows at a step, in order, as a fault may have changed them.
  std::vector<int64_t> rows(int64_t step) const { return rows(step, rows_of(step, rank)); }
  /// The same of rows that have been dealt already.
  std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows) const {
    return mutant == nullptr ? rows : mutant->rows(step, std::move(rows), rows_of);
  }
};

/// Trains config->steps steps (or stop_after). Fills curves, metrics and timing of `result`.
void train(const RankContext& context, RankResult& result);

/// At each of config->forced.steps: loads the snapshot of `trace_path` (rank 0's trace of the run that
/// training came from), computes and reduces the gradients there, updates, and keeps all of it whole. With
/// forced.repeat > 0 rows are permuted, and taken in parts if it is even; with repeat 0 in one process the
/// sums of |row contributions| are kept too. Throws std::runtime_error if a snapshot is missing.
void compute_forced(const RankContext& context, const std::string& trace_path, RankResult& result);

}  // namespace lockstep
