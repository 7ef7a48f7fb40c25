#include "harness/suites/sampling/trials.h"

#include <fmt/format.h>

namespace lockstep::sampling {

void judge_finding(Cases& cases, const sharding::Finding& finding, const std::string& of) {
  if (finding)
    cases.fault(finding.code, fmt::format("{}: {}", of, finding.sentence));
  else
    cases.good();
}

}  // namespace lockstep::sampling
