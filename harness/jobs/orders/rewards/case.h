#pragma once
// Random cases of a training step's way from samples to loss weights, keyed by seed and number: the same on every rank, in
// every process, for every number of jobs.

#include <cstdint>
#include <string>
#include <vector>

#include "harness/lib/rewards/advantages.h"
#include "harness/lib/rewards/chain.h"
#include "harness/lib/rewards/denominators.h"
#include "harness/lib/rewards/exchange.h"

namespace lockstep::rewards {

/// What the rewards of a case look like.
enum class RewardKind { normal, constant, near_constant, large_mean, sparse_binary, heavy_tails, infinite, not_a_number, kl_not_a_number };
std::string_view name_of(RewardKind kind);

/// How a case's reward function or one of its ranks fails.
enum class FaultKind { none, throws, hangs, wrong_length, not_a_number, rank_ends, rank_hangs };
std::string_view name_of(FaultKind kind);

struct CaseStep {
  Rows rows;               ///< of all ranks, by ascending id; the rewards are what the root scores
  std::vector<int> ranks;  ///< of each row
  bool merges = false;     ///< normalisers merge at this step's end
  int64_t filtered = 0;    ///< of each micro-batch: rows that a filter took out before
};

struct Case {
  uint64_t key = 0;
  int64_t number = 0;
  int world = 1;
  RewardKind kind = RewardKind::normal;
  Convention convention = {};
  Estimator estimator = Estimator::global;
  Denominator denominator = Denominator::rows;
  Scope scope = Scope::global;
  double constant = 1;
  double beta = 0;
  int root = 0;
  int64_t resumes_before = -1;  ///< step before which normalisers are saved and restored; -1: none
  std::vector<CaseStep> steps;
  std::vector<double> sigmas;  ///< of the chain
  ChainShape chain = {};
  FaultKind fault = FaultKind::none;
  int64_t fault_step = 0;
  int fault_rank = 0;
  double score_deadline_s = 0, deadline_s = 20;
};

/// A case of anything: empty ranks, groups of one, every kind of reward.
Case make_case(uint64_t seed, int64_t number, int world);

/// A case in which mistakes show: ranks of different means, uneven and not empty, groups split over ranks, padded rows, several
/// micro-batches, three steps.
Case make_telling_case(uint64_t seed, int64_t number, int world);

/// The same rows in one process.
Case in_one_process(const Case& all);

/// Rows of one rank in a step, in its own order, without rewards.
Rows rows_of(const CaseStep& step, int rank);

/// "V=3, normal, global, rows of global": for people.
std::string in_words(const Case& one);

}  // namespace lockstep::rewards
