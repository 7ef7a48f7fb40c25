// What a verdict, and a whole matrix, is called.

#include <fmt/format.h>

#include <algorithm>

#include "harness/answer/stats/controls.h"
#include "harness/base/text.h"
#include "reports/suite.h"
#include "reports/text.h"
#include "reports/words.h"

namespace lockstep {
namespace {

std::string missed_controls(const Results& results) {
  std::string text;
  for (const CellResult& cell : results.cells) {
    if (!is_missed_control(cell)) continue;
    const VerdictKind kind = cell.outcome && !cell.failure ? cell.outcome->verdict : cell.verdict;
    text += fmt::format("{}{} came out {}", text.empty() ? "Power control " : "; ", name_words(cell.scenario),
                        style_of(kind).words);
  }
  if (text.empty()) text = "A power control was not found to differ";
  return text +
         ". Until it is found to differ, no equivalence here means anything: use more seeds or steps, or a stronger "
         "control.";
}

std::string unexpected_cells(const Results& results) {
  std::string names;
  int count = 0;
  for (const CellResult& cell : results.cells) {
    if (is_as_expected(cell)) continue;
    const Cause* cause = cause_of(cell);
    if (++count <= 3) names += (names.empty() ? "" : ", ") + name_words(cell.scenario) + (cause ? " (" + clean_line(cause->code) + ")" : "");
  }
  if (count == 0) return "";
  if (count > 3) names += fmt::format(" and {} more", count - 3);
  return fmt::format("{} of {} not as expected: {}.", count, counted(static_cast<int64_t>(results.cells.size()), "cell"), names);
}

/// Does the matrix state what is expected of any of its cells, power controls apart?
bool states_expectations(const Results& results) {
  return std::ranges::any_of(results.cells, [](const CellResult& cell) { return !cell.power_control && !cell.expected.empty(); });
}

std::string as_expected_words(const Results& results) {
  const Summary& summary = results.summary;
  const int unstated = unstated_cells(results);
  const auto stated = static_cast<int>(results.cells.size()) - unstated;
  std::string text = !states_expectations(results) ? std::string("The config states no expectation of a cell, and none failed")
                     : unstated == 0               ? stated == 1 ? std::string("The one cell came out as the config expects")
                                                                   : fmt::format("All {} cells came out as the config expects", stated)
                                                   : fmt::format("{} came out as the config expects; it states no expectation of the other {}",
                                                                 counted(stated, "cell"), unstated);
  if (!summary.uncontrolled.empty()) {
    std::vector<std::string> names;
    for (const std::string& reference : summary.uncontrolled) names.push_back(name_words(reference));
    text += "; but " + uncontrolled_in_words(join_words(names), 2);
  }
  if (std::ranges::any_of(results.cells, [](const CellResult& cell) { return !cell.failed_saves.empty(); }))
    text += "; but saves of checkpoints failed";
  return text + ".";
}

}  // namespace

const VerdictStyle& style_of(VerdictKind kind) {
  static constexpr VerdictStyle kIdentical{"=", "identical", "ok"}, kWithin{"≈", "within envelope", "ok"},
      kEquivalent{"=", "equivalent", "ok"}, kDivergent{"≠", "divergent", "bad"},
      kInconclusive{"?", "inconclusive", "und"}, kFailed{"×", "failed", "fail"};
  switch (kind) {
    case VerdictKind::identical:
      return kIdentical;
    case VerdictKind::within_envelope:
      return kWithin;
    case VerdictKind::equivalent:
      return kEquivalent;
    case VerdictKind::divergent:
      return kDivergent;
    case VerdictKind::inconclusive:
      return kInconclusive;
    case VerdictKind::failed:
      return kFailed;
  }
  return kInconclusive;
}

bool is_missed_control(const CellResult& cell) {
  if (!cell.power_control) return false;
  // A control is judged by its outcome, whatever its mechanism or its certificate say.
  if (cell.failure || cell.verdict == VerdictKind::failed) return true;
  return (cell.outcome ? cell.outcome->verdict : cell.verdict) != VerdictKind::divergent;
}

int unstated_cells(const Results& results) {
  return static_cast<int>(std::ranges::count_if(results.cells, states_nothing));
}

bool states_nothing(const CellResult& cell) {
  return is_judged(cell) && !cell.power_control && cell.expected.empty() && cell.as_expected;
}

bool is_as_expected(const CellResult& cell) { return cell.as_expected && !is_missed_control(cell); }

std::string expected_words(const CellResult& cell) {
  if (cell.expected.empty()) return "any verdict but failed";
  std::vector<std::string_view> verdicts;
  for (const VerdictKind verdict : cell.expected) verdicts.push_back(style_of(verdict).words);
  return join_words(verdicts, "or");
}

Status status_of(const Results& results) {
  if (results.suite) return suite_status(results);
  const Summary& summary = results.summary;
  if (results.cells.empty() || summary.exit_code == 6) {
    return {"?", "und", "Nothing selected", "No cell was run, so nothing is judged."};
  }
  if (summary.exit_code == 7)
    return {"×", "fail", "Not judged", "lockstep or this machine failed."};
  if (summary.exit_code == 130) return {"×", "fail", "Interrupted", "Run the same command again to resume."};
  if (!summary.can_tell) return {"?", "bad", "Cannot tell", missed_controls(results)};
  if (summary.margin_refused && !summary.margin_text.empty())
    return {"×", "bad", "Margin refused", summary.margin_text};
  // For such a question rates decide, and the sentence says which fall short.
  if (results.detection && summary.exit_code == 0)
    return {"✓", "ok", "As expected", "All rates meet their limits."};
  if (results.detection && summary.exit_code == 1) return {"✗", "bad", "Not as expected", summary.sentence};
  const std::string unexpected = unexpected_cells(results);
  switch (summary.exit_code) {
    case 0:
      // A certificate states one for all its cases: certified.
      if (states_expectations(results) || results.certificate)
        return {"✓", "ok", "As expected", as_expected_words(results)};
      return {"•", "ctl", "Judged", as_expected_words(results)};
    case 1:
      return {"✗", "bad", "Not as expected", unexpected};
    case 3:
      return {"×", "fail", "A rank died", unexpected};
    case 4:
      return {"×", "fail", "A rank hung", unexpected};
    case 5:
      return {"?", "und", "Undecided", unexpected};
    default:
      return {"✗", "bad", fmt::format("Exit code {}", summary.exit_code), unexpected};
  }
}

}  // namespace lockstep
