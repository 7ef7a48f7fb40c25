#pragma once
// Why two runs part: named from the evidence around the first divergence, or `unexplained`.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/verdict/compare/cause_inputs.h"
#include "harness/verdict/results/results.h"

namespace lockstep {

/// The cause of a divergence that lies outside its band. One rule answers with one code; where no rule fits,
/// or two that fit equally well contradict each other, the code is `unexplained` and the evidence tells what
/// was seen.
std::optional<Cause> name_cause(const CauseInputs& inputs);

/// The cause of a run that did not finish, from what the launcher and the header exchange said. Nothing if it
/// was stopped on request, or if nothing was wrong with its ranks. `ranks` of the run that failed.
std::optional<Cause> name_failure_cause(const Failure& failure, int ranks);

/// A cause at length: what `lockstep explain CODE` prints.
struct CausePage {
  std::string_view code;
  std::string_view family;  ///< samples, random, control, energies, loss, gradient, reduction, update, ...
  std::string_view what;    ///< one sentence
  std::string_view recognised;    ///< the formula or the evidence
  std::string_view wrong, right;  ///< a minimal example: a few lines of code each
  std::string_view remedy;        ///< one sentence
  std::string_view reports = {};  ///< public reports, "owner/repository#number, ..."
};

/// All codes, those of every trainer's own causes among them, family by family; `unexplained` last.
std::span<const CausePage> cause_pages();

/// Null if there is no such code.
const CausePage* find_cause_page(std::string_view code);

}  // namespace lockstep
