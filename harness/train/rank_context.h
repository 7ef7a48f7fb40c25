#pragma once
// What one rank trains with, as every part of its loop sees it.

#include <functional>
#include <string>

#include "harness/comm/comm.h"
#include "harness/comm/ledger.h"
#include "harness/config/run_config.h"
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
  /// Where a rank's rows stand in a step's whole batch of so many rows as it is dealt; none: as equal rows are dealt.
  std::function<std::vector<int64_t>(int64_t all_rows, int rank)> positions_of = {};
  std::function<void(double)> show = {};      ///< takes the newest value of the trainer's shown metric, or none
  const CommunicationMeter* meter = nullptr;  ///< the ledger's, or none

  /// This rank's rows at a step, in order, as a fault may have changed them.
  std::vector<int64_t> rows(int64_t step) const { return rows(step, rows_of(step, rank)); }
  /// The same of rows that have been dealt already.
  std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows) const {
    return mutant == nullptr ? rows : mutant->rows(step, std::move(rows), rows_of);
  }
};

}  // namespace lockstep
