#pragma once
// What a run's traces say of its samples and its random draws: audits over all ranks and steps.

#include <string>
#include <vector>

namespace lockstep {

/// The answer to one question about the traces.
struct AuditAnswer {
  bool yes = false;
  std::string figures;  ///< what was seen, in words; where the answer is no, the first place
};

/// Every row of every step, from all ranks: sample ids as the trainers wrote them.
struct SampleLedger {
  std::vector<std::vector<std::vector<int64_t>>> ids;  ///< [step][rank] in order
};

/// Throws TraceError, and std::runtime_error if ranks tell of different numbers of steps.
SampleLedger read_samples(const std::string& run_dir, int world_size);

/// Does each step take the same samples as the other run's, whichever rank has them?
AuditAnswer same_samples(const SampleLedger& run, const SampleLedger& other);
/// Have all ranks equally many rows at every step?
AuditAnswer equal_counts(const SampleLedger& run);
/// Is no sample seen twice within an epoch, by whichever rank? Epochs are found as the runs of steps without
/// a repeated sample; all but the last must be equally long.
AuditAnswer each_sample_once(const SampleLedger& run);
/// Has the second epoch another order than the first?
AuditAnswer reshuffled(const SampleLedger& run);

/// Random streams of all ranks: what each step drew, by stream.
struct DrawLedger {
  struct Draw {
    std::string stream;
    uint64_t fingerprint = 0;
  };
  std::vector<std::vector<std::vector<Draw>>> draws;  ///< [step][rank]
};

/// Throws as read_samples.
DrawLedger read_draws(const std::string& run_dir, int world_size);

/// Do no two ranks draw the same numbers at any step?
AuditAnswer ranks_draw_apart(const DrawLedger& run);
/// Do no two (run, rank) of these runs draw the same numbers at the same step? Runs differ in their seeds.
AuditAnswer runs_draw_apart(const std::vector<DrawLedger>& runs, const std::vector<int64_t>& seeds);

}  // namespace lockstep
