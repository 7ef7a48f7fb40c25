#pragma once
// How much of a difference rounding explains where the reference was computed twice: in its own precision, and in
// float64 (its twin). docs/meaning.md says why these figures.

#include <map>
#include <string>

#include "harness/compare/forced/values.h"

namespace lockstep {

/// Of two twins: do they mean the same? Of a run and its twin: does it round as the reference does?
enum class TwinQuestion { meaning, arithmetic };

/// Bounds of one step, from the reference's values g, its twin's g64 and the sizes t of what that twin added up (term_size), with
/// e = |g - g64| (2-norms), T the norm of all tensors' t and u the epsilon in which the reference computes:
///
///   meaning     1e-12 * max(|g64|, t) + 1e-14 * T + 64 * (2^-52 / u) * e
///   arithmetic  16 * e + n * u * (8 * max(|g64|, t) + 4 * T), n = 4 for a single number, whose e may be small by chance;
///               else 1
///
/// The second part of the first is for gradients that are zero by symmetry, whose terms are; the third for gradients
/// that cancel within a row, of which e * 2^-52 / u is the rounding in float64. Other values likewise, with their size in
/// place of t and without T.
class TwinBounds {
 public:
  TwinBounds(TwinQuestion question, const ForcedValues& reference, const ForcedValues& twin);

  TwinQuestion question() const { return question_; }
  /// Of a gradient; of a tensor that the reference lacks 0.
  double of_gradient(const std::string& name) const;
  /// `largest`: of the scores' absolute values.
  double of_scores(double largest) const { return bound({scores_, largest}, 0); }
  double of_loss(double size) const { return bound({loss_, size, true}, 0); }
  /// No less than what the bounds of all gradients together leave open.
  double of_gradient_norm(double size) const;
  double of_buffer(const std::string& name, double size) const;

 private:
  struct Value {
    double own = 0, size = 0;
    bool single = false;  ///< one number
  };
  double bound(const Value& value, double whole) const;

  TwinQuestion question_;
  double epsilon_, whole_ = 0;
  std::map<std::string, Value> gradients_, buffers_;
  double scores_ = 0, loss_ = 0, gradient_norm_ = 0;  ///< how far the reference's lie from its twin's
};

}  // namespace lockstep
