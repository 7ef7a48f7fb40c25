#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "harness/answer/results/results.h"

// What `lockstep check` and comparisons say: one document for the terminal, a page, Markdown and JSON.

namespace lockstep {

struct CheckDocument {
  Mark verdict = Mark::undecided;
  std::string headline;              ///< "different from step 0: mean-of-means"
  std::vector<std::string> because;  ///< sentences, the most important first
  std::string fix;                   ///< empty: none is known
  std::vector<Fact> facts;      ///< in the order of a step
  std::string decide;                ///< the command that would decide what is open
  std::string again;                 ///< the command that repeats this
  std::string more;                  ///< commands that show more
  std::string reference, run;        ///< in words: "1 rank", "3 ranks"
  std::string commands[2];           ///< as they were started
  std::vector<SuiteChart> charts;    ///< losses, and below them the gradients' differences
};

/// What a comparison found.
CheckDocument document_of(const Mechanism& mechanism);

/// Its verdict, sentences and facts.
nlohmann::json document_json(const CheckDocument& document);
/// Of what is said in lines: the first is the headline.
CheckDocument document_of(const std::string& text);

/// Why, how to fix it, what differs and what would decide, a line each.
std::vector<std::string> finding_lines(const CheckDocument& document);

/// At most 12 lines, the last of them a command; colour only where asked.
std::string check_text(const CheckDocument& document, bool colour, int width);
std::string check_markdown(const CheckDocument& document);
/// One offline page.
std::string check_page(const CheckDocument& document);

}  // namespace lockstep
