#pragma once
// Gradients and losses of single rows, summed over all rows of a step without rounding.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "harness/trainers/comm/comm.h"
#include "harness/trainers/core/exact_sum.h"
#include "harness/trainers/core/parameters.h"

namespace lockstep {

/// Which row it is.
struct RowName {
  int64_t step = 0;
  int64_t position = 0;   ///< in the whole batch
  int64_t sample_id = 0;
};

/// The sums of one step. Rows are added by their ranks; `exchange` makes them those of all ranks.
class ExactRows {
 public:
  explicit ExactRows(const ParameterList& parameters);

  using Scalars = std::vector<std::pair<std::string, double>>;

  void begin_step();
  /// Adds a row: its gradients in the parameters' order (undefined: zeros), its loss, and numbers beside it, the same
  /// names of every row. What is not finite is not added but remembered, for `exchange` to tell.
  void add(const RowName& row, const std::vector<at::Tensor>& gradients, double loss, const Scalars& scalars);

  /// Names of the numbers beside a row's loss: a rank without rows has them too.
  void name_scalars(const Scalars& scalars);

  /// Hashes of each row's whole gradient, in the order of adding.
  const std::vector<int64_t>& row_hashes() const { return row_hashes_; }
  /// Sums over the rows of the hashes of each parameter's gradient: those of ranks add up.
  const std::vector<int64_t>& tensor_hashes() const { return tensor_hashes_; }
  void hash_rows(bool on) { hashes_ = on; }

  /// Of each parameter the sum of its gradients, rounded once, over `divisor`. They lie in one piece of memory.
  std::vector<at::Tensor> gradients(double divisor);
  /// Replaces what this rank adds to that sum.
  void replace(std::size_t parameter, const at::Tensor& gradient);
  double loss() { return scalars_.rounded(0); }
  /// The mean over the rows of each number that stood beside a row's loss.
  Scalars scalar_means();

  /// Collective: sums over all ranks, as integers. `gradients` false: those stay the rank's own. Throws
  /// std::runtime_error on every rank, before anything is summed, if a rank's row is not finite: it says step, row,
  /// sample and tensor.
  void exchange(Comm& comm, int64_t step, bool gradients);
  /// Rows of all ranks, after `exchange`.
  int64_t rows() const { return rows_; }

 private:
  struct Bad {
    RowName row;
    int64_t what = -1;  ///< index of a parameter; behind these the loss and the scalars; -1: none
  };

  void note_bad(const RowName& row, int64_t what);
  void require_finite(const std::vector<const int64_t*>& headers) const;

  const ParameterList& parameters_;
  std::vector<int64_t> first_;  ///< of each parameter's elements
  ExactSum gradients_, scalars_;  ///< scalars: the loss, then the numbers beside it
  std::vector<std::string> names_;
  std::vector<int64_t> row_hashes_, tensor_hashes_;
  bool hashes_ = false;
  Bad bad_;
  int64_t rows_ = 0;
};

}  // namespace lockstep
