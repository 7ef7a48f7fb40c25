#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "harness/base/errors.h"
#include "harness/lib/data/series.h"
#include "scenarios/energy/dataset.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

/// Whatever the bytes: either a sound set of series or a ConfigError with problems that have a text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const lockstep::SeriesSet set =
        lockstep::parse_ts(std::string(reinterpret_cast<const char*>(data), size), "fuzz.ts");
    require(set.channels > 0 && !set.series.empty());
    require(set.labels.empty() || set.labels.size() == set.series.size());
    for (const auto& series : set.series) {
      require(!series.empty() && series.size() % static_cast<std::size_t>(set.channels) == 0);
      for (const float value : series) require(std::isfinite(value));
    }
    return 0;
  } catch (const lockstep::ConfigError& error) {
    require(!error.problems().empty() && error.problems().size() <= 21);
    for (const auto& problem : error.problems()) {
      require(!problem.message.empty() && problem.line >= 0 && problem.column >= 0);
      require(problem.message.find('\n') == std::string::npos &&
              problem.message.find('\0') == std::string::npos);
    }
    return -1;
  }
}
