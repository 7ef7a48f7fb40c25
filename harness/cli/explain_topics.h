#pragma once
// How lockstep judges, at length: what `explain` tells besides causes.

#include <span>
#include <string_view>

namespace lockstep {

struct ExplainTopic {
  std::string_view name;
  std::string_view what;  ///< one line
  std::string_view text;
};

std::span<const ExplainTopic> explain_topics();
/// Null if there is none of that name.
const ExplainTopic* find_explain_topic(std::string_view name);

}  // namespace lockstep
