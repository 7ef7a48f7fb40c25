#pragma once

#include <string>

#include "harness/verdict/results/results.h"

namespace lockstep {

/// One offline page: no script, no request, drawings as static SVG, light and dark, printable. Equal results
/// give equal bytes. Every text of the results is escaped; the page is well-formed XML too.
std::string html_report(const Results& results);

}  // namespace lockstep
