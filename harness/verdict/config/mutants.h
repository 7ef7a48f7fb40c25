#pragma once
// The planted bugs as data: what each is, where it shows, and how it must be named. Torch-free; the tables
// in scenarios/mutants have the entries, each beside the code of its bug.

#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

/// What a trial of a mutant draws from its seed; the rest stays as MutantConfig's defaults.
struct MutantDraws {
  bool rank = false;    ///< one rank, else all act
  bool step = true;     ///< the first (or only) step at which it acts
  bool tensor = false;  ///< one parameter
  bool bit = false;
  bool factor = false;
};

/// What `mutant.tensor` may name: nothing | one parameter | every parameter whose name begins so.
enum class MutantTensor { none, one, group };

struct MutantEntry {
  std::string_view name;
  std::string_view trainer = {};  ///< the only one that it fits, as it changes its parts; empty: any
  std::string_view help;          ///< one line
  std::string_view report = {};  ///< public report that it stands for, "owner/repository#number", or empty
  /// Settings that the run and its reference need for it to show, "key=value key=value".
  std::string_view settings = {};
  int min_world = 2;  ///< fewest ranks with which it shows
  MutantDraws draws = {};
  MutantTensor tensor = MutantTensor::none;
  /// name_of(Phase) of the first place where it shows, several separated by "|"; "failed" if the run ends by
  /// it. Empty, of a user's own fault: any.
  std::string_view phase = {};
  /// The tensor, stream, control value or collective that must be named: "$tensor" the drawn one, "" any of
  /// that phase, else a text that the named place must begin with; several are separated by "|".
  std::string_view where = {};
  std::string_view causes =
      {};  ///< codes that name it rightly, separated by spaces; "unexplained" where none may fit
  int64_t first_step = 0;  ///< the earliest step at which it may begin (it needs a step before it, say: 1)
  int64_t last_step =
      1000000;              ///< the latest step at which it may begin (it shows only at the start, say: 0)
  int64_t step_offset = 0;  ///< how many steps after it begins it shows
  /// It changes bits or types and not what is meant: a float64 twin computes without it.
  bool arithmetic = false;
  /// Why it cannot act on a run in exact arithmetic; empty: it can.
  std::string_view beyond_exact = {};
  bool at_epoch = false;  ///< it shows at the first step of the next epoch (at or after the step), not before
};

/// All mutants but "none", in the order in which a step reaches them; defined where the tables are.
std::span<const MutantEntry> mutant_entries();

/// Null if there is none of that name.
const MutantEntry* find_mutant(std::string_view name);

}  // namespace lockstep
