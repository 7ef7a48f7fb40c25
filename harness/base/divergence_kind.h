#pragma once
// How two runs, or two flight records, part at the first place where they do.

#include <array>
#include <cstddef>
#include <ostream>
#include <string_view>

namespace lockstep {

enum class DivergenceKind {
  bits,       ///< the same thing with other bits
  value,      ///< a value that is no rounding of the other's
  missing,    ///< one side has it, the other has not
  order,      ///< both have it, at another place of the order
  shape,      ///< another shape
  dtype,      ///< another element type
  band,       ///< outside the band of rounding
  reduction,  ///< a sum that its terms do not give
  update,     ///< parameters that their own gradient does not give
  clip,       ///< gradients that are not clipped as their own norm demands
  replica,    ///< ranks that should be alike differ
  // Of two flight records: another collective, element type, size, root or purpose; a call that only one has made; how far it came.
  operation,
  type,
  size,
  root,
  purpose,
  missing_call,
  extra_call,
  state,
};

/// As results.json writes them, in the order of the enumerators.
inline constexpr std::array<std::string_view, 19> kDivergenceKindWords{
    "bits",   "value",     "missing", "order", "shape", "dtype", "band",    "reduction",    "update",
    "clip", "replica", "operation", "type",    "size",  "root",  "purpose", "missing call", "extra call", "state"};

constexpr std::string_view to_word(DivergenceKind kind) { return kDivergenceKindWords[static_cast<std::size_t>(kind)]; }
inline std::ostream& operator<<(std::ostream& out, DivergenceKind kind) { return out << to_word(kind); }

}  // namespace lockstep
