// TEST DOUBLE of harness/plan. Linked only while that room has no sources of its own (see
// tests/harness/judge); delete it once it has.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/plan/plan.h"

namespace lockstep {

const char* name_of(VerdictKind kind) {
  static constexpr const char* kNames[] = {"identical", "within_envelope", "equivalent",
                                           "divergent", "inconclusive",    "failed"};
  return kNames[static_cast<int>(kind)];
}

const char* name_of(Question question) {
  return question == Question::mechanism ? "mechanism" : "outcome";
}

std::string canonical_json(const RunConfig& c) {
  return nlohmann::json{{"layout", fmt::format("{}x{}", c.layout.world_size, c.layout.rows_per_rank)},
                        {"seed", c.seed},
                        {"steps", c.steps},
                        {"lr_scale", c.lr_scale},
                        {"negatives", c.negatives == Negatives::local ? "local" : "global"},
                        {"ranks", c.ranks == RankKind::real ? "real" : "emulated"},
                        {"data", {{"stride", c.data.stride}}}}
      .dump();
}

std::string config_hash(const RunConfig& config) {
  return fmt::format("{:016x}", std::hash<std::string>{}(canonical_json(config)));
}

const PlannedRun* find_run(const Plan& plan, const std::string& cell, RunRole role, int64_t seed) {
  for (const PlannedRun& run : plan.runs) {
    const bool free = role == RunRole::cell || role == RunRole::reference;
    if (run.cell == cell && run.role == role && (!free || run.config.seed == seed)) return &run;
  }
  return nullptr;
}

}  // namespace lockstep
