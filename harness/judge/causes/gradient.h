#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/judge/causes/rules.h"

// Parts of the ranks' gradients, by micro-step and by named loss, and what the reduced gradient would be if it were made of them in
// another way.

namespace lockstep::causes {

/// One rank's gradient in parts; every tensor of its gradient has every part, or the part adds nothing to it.
struct RankParts {
  std::vector<std::string> names;                           ///< in their order: "micro 0", "micro 1", ...
  std::vector<std::vector<const GradientPart*>> gradients;  ///< by those names
};

/// The parts whose names begin with that word ("micro ", "loss "), by rank; empty where they were not recorded.
std::vector<RankParts> parts_of(const ForcedValues& values, std::string_view kind);

/// The sum of values of parts, each with its factor, as a gradient; nothing where values of one were not kept.
std::optional<std::vector<NamedTensor>> weighed(const RankParts& parts, std::span<const double> factors);

/// The mean over ranks (their sum, if that is the reduction) of gradients by rank.
std::vector<NamedTensor> reduced_of(const std::vector<std::vector<NamedTensor>>& by_rank, bool by_sum);

/// The gradient with `factor` times more of a part.
std::vector<NamedTensor> with_more(std::vector<NamedTensor> gradient, const std::vector<NamedTensor>& part, double factor);

/// |actual - factor * expected|, of equal sizes.
double apart(const std::vector<double>& actual, double factor, const std::vector<double>& expected);

/// Is every tensor of `gradients` what `expected` has, within `room` times its band of the judgement? False where one lacks
/// a tensor.
bool agree(const std::vector<NamedTensor>& expected, const std::vector<NamedTensor>& gradients,
           const GradientJudgement& judgement, double room);

// The gradients of the divergence's step and the reference's (before the reduction the mean over ranks of the local
// ones), and which closed forms relate them, by groups of parameters, within the band.

class Signatures;

/// The inputs that it points into must outlive it.
struct StepGradients {
  const ForcedEvidence* evidence = nullptr;
  const GradientJudgement* judgement = nullptr;
  const TrainerRules* rules = nullptr;
  std::vector<NamedTensor> mean;
  int world = 1;
  const Declared* declared = nullptr;  ///< of a trainer that is not ours
  Signatures signatures() const;
  std::string text() const;
};

/// Gradients of a cell beside the reference's, tensor by tensor, each with its band.
class Signatures {
 public:
  /// The evidence must outlive it. Tensors that the judgement does not know are left out; a gradient that the cell lacks
  /// is 0, with the widest band of the others. Roles are what the traces' header declares (null: nothing), or else the
  /// trainer's rules say. Where neither does, a role has no tensors.
  explicit Signatures(const StepGradients& of);

  /// Does every tensor of the role equal `factor` times the reference's, within (1 + |factor|) bands? True if
  /// the role has no tensors.
  bool fits(Role role, double factor) const { return lacks(role, [&](const Pair& it) { return !it.fits(factor); }); }
  /// The same of all tensors, and far enough from 1 to be told from rounding.
  bool all_fit(double factor) const;
  /// Is there a tensor of the role whose reference is well above its band, so that a factor can be told?
  bool tells(Role role) const { return !lacks(role, &Pair::tells); }
  bool has(Role role) const { return !lacks(role, [](const Pair&) { return true; }); }
  /// Does at least one tensor of the role lie outside the band for every factor (the least residual too large)?
  bool some_factor_fits_not(Role role) const { return !lacks(role, &Pair::no_factor_fits); }
  /// Do all of them?
  bool no_factor_fits(Role role) const {
    return has(role) && lacks(role, [](const Pair& it) { return !it.no_factor_fits(); });
  }
  /// Do the tensors outside their bands all belong to one role without being all of it, and is each `factor`
  /// times the reference's? False where roles are not known: a part cannot be told from the whole then.
  bool part_of_a_role_fits(double factor) const;
  /// Does the role's gradient lie inside its band?
  bool inside(Role role) const { return fits(role, 1); }
  /// Is the reference's gradient of the role nothing but rounding?
  bool zero_in_reference(Role role) const {
    return lacks(role, [](const Pair& it) { return norm(*it.reference) > it.band; });
  }

 private:
  struct Pair {
    std::optional<Role> role;
    const std::vector<double>* reference;
    std::vector<double> cell;
    double band;
    bool fits(double factor) const;
    bool tells() const;
    bool no_factor_fits() const;
  };
  /// Has the role no tensor of that kind?
  template <typename Is>
  bool lacks(Role role, const Is& is) const {
    for (const Pair& each : tensors_)
      if (each.role == role && std::invoke(is, each)) return false;
    return true;
  }
  std::vector<Pair> tensors_;
};
inline Signatures StepGradients::signatures() const { return Signatures(*this); }

/// The one factor that every gradient was multiplied by before the optimizer took it; nothing if they have several.
std::optional<double> applied_factor(const ForcedValues& cell);

/// Is the cell's loss `factor` times the reference's, with the latter far enough from 0? False unless the
/// divergence lies in the loss.
bool loss_is(const CauseInputs& inputs, double factor);

/// Is what differs a gradient that the reference has and the cell does not, in its local ones or, so that it is first
/// seen there, in its reduced ones? Then every wrong gradient that lacks may be one of 0.
bool lacks_a_gradient(const CauseInputs& inputs);

/// The local ones; nothing unless the divergence lies in them, and they are known.
std::optional<StepGradients> local_of(const CauseInputs& inputs);

template <auto rule>
constexpr Rule of_local = given<local_of, rule>;

/// The gradients that a wrong loss made: the local ones, or the reduced ones where local ones were not kept.
/// Nothing without forced runs.
std::optional<StepGradients> gradients_of(const CauseInputs& inputs);

}  // namespace lockstep::causes
