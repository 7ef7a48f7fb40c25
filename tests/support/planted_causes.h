#pragma once
// One planted fault for each cause, as a small edit of the toy run.

#include <functional>
#include <string>
#include <vector>

#include "harness/judge/compare/compared.h"
#include "tests/support/made_run.h"

namespace lockstep::support {

struct Planted {
  std::string name, code, phase, where;  ///< where: empty for any
  int64_t step = 0;
  std::function<void(RunConfig&)> config;
  ToyFaults faults;
};

/// Three ranks of two rows, cosine schedule.
RunConfig toy_config();
/// The same rows in one process.
RunConfig alone(RunConfig config);

/// Free and forced runs of both configs, which must outlive the result, in a folder. `faults` act in the cell's.
ForcedInputs toy_runs(const std::string& folder, const RunConfig& reference, const RunConfig& config,
                      const ToyFaults& faults, const std::string& trainer = "energy",
                      const std::string& reference_trainer = "energy");

/// Multiplies the local gradients of a group, of every rank.
void scale(ToyStep& it, const std::string& group, float factor);
ToyFaults on_local(ToyFault fault);
ToyFaults on_samples(ToyFault fault);
float flipped(float value, int bit);

/// The fault from step 1 on.
ToyFault late(const ToyFault& fault);

std::vector<Planted> sample_faults();
std::vector<Planted> stream_and_rate_faults();
std::vector<Planted> all_faults();

}  // namespace lockstep::support
