#pragma once
// What a loss divides by, and over which rows that is counted: ranks with different numbers of rows agree with one process
// only for some of these, and the others are off by a factor that has a name.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::rewards {

/// What is counted.
enum class Denominator { rows, valid_steps, groups, constant };
/// Where: in the whole batch, in the rank's rows, or in each micro-batch of an accumulation.
enum class Scope { global, local, micro };
std::span<const std::string_view> words_of(Denominator);
std::span<const std::string_view> words_of(Scope);

/// Of one micro-batch, or of a batch.
struct Counts {
  int64_t rows = 0, valid_steps = 0, groups = 0;
  bool operator==(const Counts&) const = default;
};

/// How a batch lies on ranks and micro-batches.
struct Partitioned {
  std::vector<std::vector<Counts>> by_rank;  ///< by rank, then by micro-batch; a rank may have none
  /// Groups of the whole batch, which may be split over ranks; 0: the sum of the parts.
  int64_t groups = 0;
  double constant = 1;  ///< for a batch of all ranks
  /// Groups of each rank, which may be split over its micro-batches; empty: the sums of the parts.
  std::vector<int64_t> rank_groups = {};
};

/// Weight of one term (a row, a step, a group's mean) in the loss of a rank's micro-batch such that gradients that are
/// summed over micro-batches and averaged over ranks are those of sum(terms) / D of one process, if the scope is global.
/// Local: 1 / D of the rank. Micro: 1 / (micro-batches * D of the micro-batch). 0 where there is nothing to divide by.
double weight_of(Denominator denominator, Scope scope, const Partitioned& partitioned, int rank, int micro);

/// What the gradient of a term of that micro-batch is, against one process: weight / ranks * D of the batch. 1 everywhere:
/// the layout does not matter.
double factor_of(Denominator denominator, Scope scope, const Partitioned& partitioned, int rank, int micro);

/// Are all factors of places that have rows 1, to 4 ulp?
bool independent_of_layout(Denominator denominator, Scope scope, const Partitioned& partitioned);

/// "8.00", "1/8", "0.625". Whole numbers and their inverses up to 4096 are told as such.
std::string factor_in_words(double factor);

/// The batch's own denominator.
double whole(Denominator denominator, const Partitioned& partitioned);

}  // namespace lockstep::rewards
