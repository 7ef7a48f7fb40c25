#pragma once
// What a collective took, in the columns of nccl-tests.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/suites/engine/suite.h"

namespace lockstep::collectives {

/// Every collective that is tried.
std::span<const std::string_view> collective_names();
bool reduces(std::string_view collective);
bool has_root(std::string_view collective);

/// What a link must carry for each byte of the size, as nccl-tests reckons (its doc/PERFORMANCE.md): all-reduce 2 (V - 1) / V; all-gather,
/// reduce-scatter, all-to-all, gather and scatter (V - 1) / V; broadcast, reduce and sending 1. Size: of the larger of what a rank
/// brings and what it gets.
double bus_factor(std::string_view collective, int world);

struct Row {
  std::string collective;
  int world = 0;
  int64_t bytes = 0, count = 0;
  double seconds = 0;    ///< of one call: the slowest rank's mean
  int64_t wrong = 0;     ///< elements, of all ranks
  std::string refused;   ///< why the backend does not offer it; empty: it does
  double algbw() const;  ///< 10^9 bytes a second
  double busbw() const;
};
/// One number of ranks and size of all-reduce, over groups whose threads are as lockstep makes them and as PyTorch does.
struct ThreadsRow {
  int world = 0;
  int64_t bytes = 0;
  double seconds = 0, pytorch_s = 0;  ///< of one call: the slowest rank's mean, the median of several rounds
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ThreadsRow, world, bytes, seconds, pytorch_s)
SuiteTable threads_table(std::span<const ThreadsRow> rows);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Row, collective, world, bytes, count, seconds, wrong, refused)

/// A table of all rows with a heading, columns apart by tabs: collective, ranks, size, count, type, redop, root, time (us), algbw, busbw (GB/s), #wrong.
std::string table(std::span<const Row> rows);

/// A line for each collective, with the time of its smallest and the bus bandwidth of its largest size by number of ranks; then, folded, a
/// table for each with every size, in the same columns as the text. Rows: by collective, number of ranks and size.
std::vector<SuiteTable> tables(std::span<const Row> rows);

/// Bus bandwidth against size, and time against size: a panel for each collective that has sizes, a line for each number of ranks.
std::vector<SuiteChart> charts(std::span<const Row> rows);

}  // namespace lockstep::collectives
