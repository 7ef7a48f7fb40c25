#pragma once
// Mistakes that are planted to be found: each is one row, acts on one rank or on all from one step on, and has the cause that
// must be named. Nothing here is known to the audits.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "harness/jobs/orders/rewards/case.h"
#include "harness/lib/rewards/advantage_audit.h"
#include "harness/lib/rewards/broadcast_audit.h"
#include "harness/lib/rewards/normalizer_audit.h"
#include "harness/lib/rewards/ratio_audit.h"
#include "harness/lib/rewards/weight_audit.h"

namespace lockstep::rewards {

/// Where a mistake acts.
struct MutantPlace {
  const Case& one;
  int rank = 0;
  int64_t step = 0;
};

/// After the broadcast; `shown` holds what is right.
struct RewardsSeam {
  MutantPlace at;
  ShownRewards& shown;
  const std::vector<double>& before;  ///< what the rank held in the step before
  const ScoreFunction& score;
};

/// After the advantages.
struct AdvantagesSeam {
  MutantPlace at;
  const GatheredRows& all;
  ShownAdvantages& shown;
  const Statistics* before;  ///< of the step before; null: none
};

/// After the weights.
struct WeightsSeam {
  MutantPlace at;
  const Partitioned& partitioned;
  ShownWeights& shown;
};

/// Around a normaliser's step.
struct NormalizerSeam {
  enum class Moment { resumed, sending, merging, merged } moment = Moment::resumed;
  MutantPlace at;
  NormalizerState& state;
  Moments& sent;    ///< sending: what goes to the others
  bool& merges;     ///< merging: does the rank merge in this step?
  std::span<const Moments> by_rank;  ///< merged: of all ranks
  const Moments& before;             ///< merged: the state before the merge, which `state` has behind it
};

/// After rollout and update.
struct RatioSeam {
  MutantPlace at;
  const ChainPolicy& policy;
  const Rollout& rollout;
  ShownRatio& shown;
};

struct Mutant {
  std::string_view name;
  std::string_view family;  ///< "broadcast", "advantages", "weights", "normalizer", "ratio", "protocol"
  std::string_view cause;   ///< of causes(): what must be named
  std::string_view help;
  int least_ranks = 2;
  bool all_ranks = false;  ///< else one rank makes the mistake
  void (*prepare)(Case&) = nullptr;  ///< turns a telling case into one in which it shows
  void (*rewards)(RewardsSeam&) = nullptr;
  void (*advantages)(AdvantagesSeam&) = nullptr;
  void (*weights)(WeightsSeam&) = nullptr;
  void (*normalizer)(NormalizerSeam&) = nullptr;
  void (*ratio)(RatioSeam&) = nullptr;
  /// Before an exchange: the step that the rank takes this for, its convention, and its rows.
  void (*protocol)(MutantPlace at, int64_t& step, Convention& convention, Rows& rows) = nullptr;
};

/// All of them, family by family.
const std::vector<Mutant>& mutants();
std::span<const Mutant> broadcast_mutants();
std::span<const Mutant> advantage_mutants();
std::span<const Mutant> weight_mutants();
std::span<const Mutant> normalizer_mutants();
std::span<const Mutant> ratio_mutants();
std::span<const Mutant> protocol_mutants();

/// A mistake in a run.
struct Plant {
  const Mutant* mutant = nullptr;  ///< null: none
  int rank = 0;                    ///< the one that makes it, unless all do
  int64_t step = 1;                ///< the first
  bool acts(int on_rank, int64_t on_step) const {
    return mutant != nullptr && on_step >= step && (mutant->all_ranks || on_rank == rank);
  }
};

}  // namespace lockstep::rewards
