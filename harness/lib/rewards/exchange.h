#pragma once
// What ranks tell each other of rewards, each time by one gather: a header that all must agree on before anything is used,
// then doubles as bytes. What is reduced is reduced once, in the order of sample ids, on every rank alike: hence the same
// bits on every rank, and for every way of partitioning the rows.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/group.h"
#include "harness/lib/rewards/advantages.h"
#include "harness/lib/rewards/denominators.h"
#include "harness/lib/rewards/failure.h"
#include "harness/lib/rewards/score_call.h"

namespace lockstep::rewards {

/// Where a rank is: all must say the same.
struct Header {
  std::string operation;  ///< "rewards", "rows", "merge"
  int64_t step = 0;
  int64_t number = 0;      ///< of this exchange, counted by the rank from 0
  int64_t count = -1;      ///< of elements, where all have as many; -1: each its own
  std::string dtype = "float64";
  std::string agreed = {};  ///< hash of what else must be the same: convention, set of samples
  template <class Self, class Archive>
  static void fields(Self& s, Archive& a) {
    a(s.operation, s.step, s.number, s.count, s.dtype, s.agreed);
  }
  bool operator==(const Header&) const = default;
};
/// Who differs from what most ranks say (of a tie, from the lowest rank among the largest parties). Code
/// `header-differs`, or `convention-differs` if only what is agreed differs.
Failure disagreement(std::span<const Header> by_rank);

/// Rows of one rank, or of all. Every list has one element a row.
struct Rows {
  std::vector<int64_t> ids, groups;
  std::vector<double> rewards;
  std::vector<double> kl;  ///< goes with the rewards, or ranks would subtract other rows' terms
  std::vector<uint8_t> counted;
  std::vector<int64_t> steps;  ///< valid steps of each row
  std::vector<int64_t> micro;  ///< micro-batch of the accumulation, from 0
  template <class Self, class Archive>
  static void fields(Self& s, Archive& a) {
    a(s.ids, s.groups, s.rewards, s.kl, s.counted, s.steps, s.micro);
  }
  std::size_t size() const { return ids.size(); }
  /// Adds row `i` of `other`.
  void append(const Rows& other, std::size_t i);
  /// "7 ids and 6 rewards": empty if all lists have one length.
  std::string ragged() const;
};

struct ExchangeOptions {
  int root = 0;
  double deadline_s = 60;
  double score_deadline_s = 0;  ///< shorter than deadline_s, or the others give up first
  Convention convention = {};
};

struct Received {
  std::vector<double> values;  ///< by this rank's ids
  Failure failure;
};

struct GatheredRows {
  Rows rows;                ///< of all ranks, by ascending id
  std::vector<int> ranks;   ///< of each row
  Partitioned partitioned;              ///< rows, steps and groups by rank and micro-batch; rows that do not count, or are masked, left out
  Failure failure;          ///< id-repeats, rows-ragged, ...
};

struct GatheredMoments {
  std::vector<Moments> by_rank;
  Failure failure;
};

struct GatheredTexts {
  std::vector<std::string> by_rank;
  Failure failure;
};

class RewardExchange {
 public:
  RewardExchange(checkpoint::Group& group, ExchangeOptions options);

  /// Rewards of `ids`, the same samples on every rank in any order, scored on the root alone. If the function throws,
  /// hangs, gives another number of rewards or (where the convention refuses it) NaN, every rank has that failure.
  Received rewards(int64_t step, const std::vector<int64_t>& ids, const ScoreFunction& score);
  /// Rows of all ranks, also of those that have none.
  GatheredRows rows(int64_t step, const Rows& mine);
  /// Moments of all ranks, by rank.
  GatheredMoments moments(int64_t step, const Moments& mine);
  /// Bytes of all ranks, by rank, for an audit.
  GatheredTexts shown(int64_t step, const std::string& mine);

  int64_t number() const { return number_; }
  const ExchangeOptions& options() const { return options_; }

 private:
  GatheredTexts exchange(Header header, const std::string& payload);

  checkpoint::Group& group_;
  ExchangeOptions options_;
  int64_t number_ = 0;
};

/// Which of the gathered rows are this rank's, in ascending order of ids.
std::vector<std::size_t> rows_of_rank(const GatheredRows& gathered, int rank);

/// Rewards less beta times KL, by row.
std::vector<double> penalised(const Rows& rows, double beta);

}  // namespace lockstep::rewards
