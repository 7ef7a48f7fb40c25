#pragma once

#include <string>
#include <vector>

#include "harness/answer/results/suite_results.h"

// What `lockstep check` says: one document for the terminal, a page, Markdown and JSON.

namespace lockstep {

enum class CheckMark { same, different, undecided, none };

struct CheckFact {
  CheckMark mark = CheckMark::none;
  std::string name, text;  ///< "gradients", "2.2 % off, most in fc1.weight"
};

struct CheckDocument {
  CheckMark verdict = CheckMark::undecided;
  std::string headline;              ///< "different from step 0: mean-of-means"
  std::vector<std::string> because;  ///< sentences, the most important first
  std::string fix;                   ///< empty: none is known
  std::vector<CheckFact> facts;      ///< in the order of a step
  std::string decide;                ///< the command that would decide what is open
  std::string again;                 ///< the command that repeats this
  std::string reference, run;        ///< in words: "1 rank", "3 ranks"
  std::string commands[2];           ///< as they were started
  std::vector<SuiteChart> charts;    ///< losses, and below them the gradients' differences
};

/// At most 12 lines; colour only where asked.
std::string check_text(const CheckDocument& document, bool colour, int width);
std::string check_markdown(const CheckDocument& document);
/// One offline page.
std::string check_page(const CheckDocument& document);

}  // namespace lockstep
