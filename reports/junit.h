#pragma once

#include <string>

#include "harness/verdict/results/results.h"

namespace lockstep {

/// JUnit XML: the matrix is a test suite, each cell a test case. A verdict that is not expected is a
/// <failure> whose type is the verdict, a run that did not finish an <error>; what was expected passes, an
/// expected failure too. Figures stand in properties. Valid XML 1.0 whatever the results hold.
std::string junit_report(const Results& results);

}  // namespace lockstep
