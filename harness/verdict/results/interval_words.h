#pragma once
// Levels of intervals as people read them, the same in sentences and reports.

#include <string>

namespace lockstep {

/// "95 %" of 0.95, "99.9 %" of 0.999.
std::string level_words(double level);

}  // namespace lockstep
