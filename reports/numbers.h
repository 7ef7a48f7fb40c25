#pragma once
// Numbers as people read them, the same in every format.

#include <cstdint>
#include <string>
#include <vector>

#include "harness/verdict/results/interval.h"
#include "harness/verdict/results/results.h"

namespace lockstep {

/// Decimals that show a tenth of `unit`'s leading digit: 3 for a margin of 0.03.
int decimals_for(double unit);

/// "+0.006", "−0.094"; zero is "+0.000" whatever its sign; "not a number", "+infinite".
std::string signed_number(double value, int decimals);

/// Four significant digits: "0.433", "1.2e-07".
std::string compact_number(double value);

/// "[−0.114, −0.074]".
std::string interval_words(const Interval& interval, int decimals);

/// "−0.347, 95 % interval [−0.360, −0.334], 10 paired seeds": the primary difference of an outcome.
std::string figures_words(const Outcome& outcome, int decimals);

/// How much of the tolerance was used: "0 % of tolerance" (0), "19 % of tolerance", "8.6e+04 ×
/// tolerance".
std::string band_words(double band_used, std::string_view of = "tolerance");
/// The same of a mechanism.
std::string used_words(const Mechanism& mechanism);

/// The same for a table: "0", "19 %", "8.6e+04 ×".
std::string band_share(double band_used);

/// "0.93", "> 0.999", "< 0.001"; of power and of p.
std::string probability_words(double p);

/// "0–9", "0, 2, 5".
std::string seeds_words(const std::vector<int64_t>& seeds);

/// Share of the band that one group used: difference / band; infinite if the band is 0 and the difference is
/// not.
double share_of_band(const GradientSignature& signature);

}  // namespace lockstep
