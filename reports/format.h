#pragma once

#include <span>
#include <string>
#include <string_view>

#include "harness/verdict/results/results.h"

namespace lockstep {

struct ReportFormat {
  std::string_view name;
  std::string_view file_name;  ///< where `lockstep run` leaves it; empty: nowhere
  std::string_view help;
};

/// html, md, json, junit, text.
std::span<const ReportFormat> report_formats();

/// The results in one format. Throws std::invalid_argument that lists the formats if `format` is none of
/// them.
std::string render(const Results& results, const std::string& format);

}  // namespace lockstep
