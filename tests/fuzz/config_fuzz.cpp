// Any bytes as a config: a matrix, or ConfigError, and nothing else.

#include <cstddef>
#include <cstdint>
#include <string>

#include "harness/base/errors.h"
#include "harness/verdict/config/canonical.h"
#include "harness/verdict/plan/matrix.h"
#include "harness/verdict/plan/plan.h"
#include "harness/verdict/plan/read_matrix.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  lockstep::Overrides overrides;
  // Lines behind a NUL are options, so that their readers are met too: the first is --only, the others are
  // --set.
  if (const std::size_t end = text.find('\0'); end != std::string::npos) {
    std::string rest = text.substr(end + 1);
    text.resize(end);
    overrides.only = rest.substr(0, rest.find('\n'));
    for (std::size_t at = rest.find('\n'); at != std::string::npos; at = rest.find('\n')) {
      rest.erase(0, at + 1);
      overrides.set.push_back(rest.substr(0, rest.find('\n')));
    }
  }
  try {
    lockstep::Matrix matrix = lockstep::parse_matrix(text, "fuzz.yaml", overrides);
    // Plans of a few hundred cells say as much as plans of a hundred thousand.
    if (matrix.cells.size() * matrix.seeds.size() > 300) return 0;
    const lockstep::Plan plan = lockstep::make_plan(matrix, "", {});
    for (const lockstep::PlannedRun& run : plan.runs) {
      // What was accepted must survive its own file.
      const std::string json = lockstep::canonical_json(run.config);
      const lockstep::RunConfig back = lockstep::run_config_from_json(json, "run.json");
      LOCKSTEP_CHECK(lockstep::canonical_json(back) == json, "a config must survive its own JSON");
    }
  } catch (const lockstep::ConfigError&) {
    return -1;
  }
  return 0;
}
