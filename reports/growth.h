#pragma once
// Rules of the learning rate where the batch grows, and gradient noise scales, as text.

#include <string>

#include "harness/verdict/results/results.h"

namespace lockstep {

/// "best mean", "not shown to be worse", "shown to be worse", "not judged".
std::string standing_words(const Growth& growth, const Growth::Rule& rule);

/// "95 % interval": of the rules' differences; "interval" where looks left rules at levels of their own.
std::string rule_interval_name(const Growth& growth);
/// The rule's interval, with its level where rules differ in it; "—" without one.
std::string rule_interval_words(const Growth& growth, const Growth::Rule& rule, int decimals);

/// The rules as rows for the terminal, at most `width` columns wide; what they come to is growth.sentence.
std::string growth_text(const Growth& growth, int decimals, int width);

/// The noise scales as rows for the terminal; empty if none was taken.
std::string noise_scale_text(const Results& results, int width);

/// Both as Markdown, with the sentence.
std::string growth_markdown(const Results& results);

}  // namespace lockstep
