#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/trainers/comm/comm.h"
#include "harness/trainers/core/task.h"

// Sums of floating-point numbers without rounding: no order of adding, and so no layout, can change them.

namespace lockstep {

/// What of a sum's digits is in use: [lowest, end).
struct DigitRange {
  int64_t lowest = 0, end = 0;
  bool empty() const { return lowest >= end; }
  /// The smallest range that holds both.
  DigitRange with(const DigitRange& other) const;
};

/// How the sums of all ranks are sent, so that they add up as integers: each block as integers of one unit, or as digits.
struct ExactForm {
  static constexpr uint8_t kDigits = 254, kNothing = 255;
  std::vector<uint8_t> units;  ///< by block: the place of the unit; or kDigits; or kNothing
  DigitRange range;            ///< of the blocks that are sent as digits
};

/// One sum of numbers of one type an element, kept as digits of 40 bits in signed 64-bit integers (Kulisch's long
/// accumulator). Up to 2^22 numbers an element, on all ranks together, leave no digit's 64 bits: they are added
/// as integers, in any order and in any grouping, and rounded once.
///
/// Elements stand in blocks. Float32 numbers of a block that are of like size, as a gradient's are, go without digits as long as they
/// can: into one 64-bit integer an element, a multiple of a power of two (the unit) that the block has in common. A place is the
/// exponent of a number's last bit above the lowest one that there is.
class ExactSum {
 public:
  static constexpr int64_t kBlock = 256;  ///< elements

  /// `dtype`: float32 or float64. Throws std::invalid_argument for others.
  ExactSum(int64_t elements, at::ScalarType dtype);

  int64_t elements() const { return elements_; }
  at::ScalarType dtype() const { return dtype_; }
  void clear();
  /// Elements [first, end) begin anew.
  void zero(int64_t first, int64_t end);

  /// Adds a contiguous tensor to the elements from `first` on. Its values must be finite: all_finite tells. It is fastest where
  /// what is added together begins at a block.
  void add(int64_t first, const at::Tensor& values);
  /// The same with a number: rounded to the sum's type first.
  void add(int64_t element, double value);

  /// [n] int64, n the same for every sum of as many elements: what ranks must know of each other's sums to agree on a form.
  at::Tensor description();
  /// That form, from the descriptions of all ranks' sums.
  static ExactForm form_of(std::span<const int64_t* const> descriptions, int64_t elements);
  /// Every block as all digits that a sum of that type has: a form that needs no description.
  static ExactForm digits_alone(int64_t elements, at::ScalarType dtype);
  /// Numbers that a sum has in that form.
  static int64_t size_of(const ExactForm& form, int64_t elements);
  /// The sum in that form, to be summed over ranks, into size_of numbers.
  void write(const ExactForm& form, int64_t* out);
  /// The inverse: replaces the sum. `sums` [size_of] int64 is the sum's from now on.
  void read(const ExactForm& form, const at::Tensor& sums);

  /// Writes the sums of the elements from `first` on into a contiguous tensor, each rounded once, to the nearest, ties to
  /// even; a sum of zeros is +0. Beyond the largest number it is infinite.
  void round_to(int64_t first, at::Tensor values);
  double rounded(int64_t element);

 private:
  struct Block {
    uint8_t unit = 0, top = 0;  ///< places: of the unit, and of the largest number
    uint8_t added = 0;          ///< numbers an element, at most; 0: the integers are zeros and have no unit
    DigitRange used;
    std::unique_ptr<int64_t[]> digits;  ///< [width, kBlock], once they are needed: numbers of like size touch the same few rows of memory
  };

  template <typename Float>
  void add_values(int64_t first, const Float* values, int64_t count);
  void add_in_units(Block& block, int64_t element, const float* values, int64_t count);
  template <typename Float, typename Skip>
  void add_digits(Block& block, int64_t offset, const Float* values, int64_t count, Skip skip);
  /// The block's integers become digits.
  void carry_over(Block& block, int64_t index);
  int64_t* digits_of(Block& block);
  template <typename Float>
  void round_block(Block& block, int64_t element, Float* out, int64_t count);
  template <typename Float>
  void round_values(int64_t first, Float* out, int64_t count);
  static bool has_integers(const ExactForm& form);
  int64_t size_of_block(int64_t block) const { return std::min(kBlock, elements_ - block * kBlock); }

  int64_t elements_;
  at::ScalarType dtype_;
  int64_t width_;  ///< digits of an element
  std::vector<Block> blocks_;
  at::Tensor integers_;  ///< [elements] int64; undefined in float64
};

/// False if an element is infinite or no number.
bool all_finite(const at::Tensor& values);

// Gradients and losses of single rows, summed over all rows of a step without rounding.

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
