#pragma once
// What one rank trains with, as every part of its loop sees it.

#include <functional>
#include <string>

#include "harness/trainers/comm/comm.h"
#include "harness/trainers/comm/ledger.h"
#include "harness/trainers/core/fault.h"
#include "harness/trainers/core/task.h"
#include "harness/verdict/config/run_config.h"
#include "harness/verdict/trace/rank_result.h"
#include "harness/verdict/trace/writer.h"

namespace lockstep {

struct RankContext {
  const RunConfig* config = nullptr;
  int rank = 0;
  Comm* comm = nullptr;  ///< the ledger's
  TraceWriter* trace = nullptr;
  Task* task = nullptr;
  Mutant* mutant = nullptr;  ///< or none
  RowsOf rows_of;            ///< as the sampler partitions them
  std::function<void(int64_t step, const std::string& operation)> heartbeat;
  std::function<double()> now_s;  ///< monotonic seconds

  RowsOf rows_ahead = {};  ///< as rows_of, for the thread that prepares rows: they share no state
  /// Where a rank's rows stand in a step's whole batch of so many rows as it is partitioned; none: as equal rows are partitioned.
  std::function<std::vector<int64_t>(int64_t all_rows, int rank)> positions_of = {};
  std::function<void(double)> show = {};      ///< takes the newest value of the trainer's shown metric, or none
  const CommunicationMeter* meter = nullptr;  ///< the ledger's, or none

  /// This rank's rows at a step, in order, as a fault may have changed them.
  std::vector<int64_t> rows(int64_t step) const { return rows(step, rows_of(step, rank)); }
  /// The same of rows that have been partitioned already.
  std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows) const {
    return mutant == nullptr ? rows : mutant->rows(step, std::move(rows), rows_of);
  }
};

}  // namespace lockstep
