#include "scenarios/energy/judging.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "scenarios/energy/adaptive.h"
#include "scenarios/energy/config.h"

namespace lockstep {
namespace {

/// Candidates of a row that come with the batch.
int64_t rows_as_candidates(const RunConfig& config) {
  const Negatives negatives = resolved_negatives(config);
  if (negatives == Negatives::layer) return 0;
  const int rows = negatives == Negatives::local ? config.layout.rows_per_rank : config.layout.global_batch();
  return rows / std::max<int64_t>(1, config.accumulation);
}

/// losses/hard.cpp.
int64_t taken_candidates(const RunConfig& config, int64_t candidates) {
  return energy(config).loss == "hard" ? std::max<int64_t>(1, candidates / 4) : 0;
}

}  // namespace

ScoreSpec energy_scores() {
  return {.record = "energies", .column = "negative", .own_columns = 1, .buffers_are_means = true, .taken = &taken_candidates};
}

std::string energy_other_objective(const RunConfig& config, const RunConfig& reference) {
  const int64_t own = rows_as_candidates(config), expected = rows_as_candidates(reference);
  if (own == expected && resolved_negatives(config) == resolved_negatives(reference)) return "";
  return fmt::format("a row has {} rows among its candidates where the reference has {}", own, expected);
}

std::string energy_noise_scale_caveat(const RunConfig& config) {
  const Negatives negatives = resolved_negatives(config);
  if (negatives == Negatives::global || negatives == Negatives::mixed) {
    return fmt::format(
        "The theory does not apply: rows are scored against the rows of all ranks, so a rank's gradient of "
        "its {} "
        "rows is no estimate of what the objective of {} rows would give, and ranks are not independent.",
        config.layout.rows_per_rank, config.layout.global_batch());
  }
  if (negatives == Negatives::local) {
    const int64_t rows = config.layout.rows_per_rank / std::max<int64_t>(1, config.accumulation);
    return fmt::format(
        "Holds only for more or fewer {} of {} rows: these rows are each other's negatives, so a different "
        "number of them is a different objective.",
        config.accumulation > 1 ? "micro-steps" : "ranks", rows);
  }
  return energy(config).layer.as_written
             ? "Holds roughly: one shuffle serves all rows of a rank, and predictions are not detached."
             : "";
}

bool energy_rows_may_not_count(const RunConfig& config) { return energy(config).invalid_rows > 0; }

}  // namespace lockstep
