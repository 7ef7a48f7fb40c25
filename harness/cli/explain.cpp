#include "harness/cli/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <optional>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "harness/base/errors.h"
#include "harness/base/text.h"
#include "harness/cli/commands.h"
#include "harness/cli/outcomes.h"
#include "harness/lib/flight/dump.h"
#include "harness/lib/flight/judge.h"
#include "harness/run/process_state.h"

namespace lockstep {
namespace {

/// How lockstep judges, at length: what `explain` tells besides causes.
struct ExplainTopic {
  std::string_view name;
  std::string_view what;  ///< one line
  std::string_view text;
};

constexpr auto kTopics = std::to_array<ExplainTopic>({
    {"meaning", "Float64 twins: tell rounding from a different computation.",
     R"(At each forced step both sides load the same parameters, optimizer state, batch and random draws, and compute twice, each
with its own code, layout and reduction: as configured, and in float64. The float64 computation is the run's twin.

  meaning      compares the two twins, per tensor:
                   |g_cell - g| <= 1e-12 max(|g|, t) + 1e-14 T + 64 (2^-52 / u) e
               t: size of the terms that are summed to the tensor (one per logit and row); T: that of all tensors; e: distance
               of the reference from its own twin (at least that of its worst forced step, relative to t); u: the epsilon of
               the run's precision. A factor of 1.0000000001 on one tensor is found at the first forced step.
  arithmetic   compares a run with its own twin, which has the same ranks, rows and tensors:
                   |g_32 - g_64| <= 16 e + n u (8 max(|g|, t) + 4 T),  n = 4 for a single number, else 1
               This finds narrowed types and flipped bits, which do not occur in float64.

guaranteed       at a forced step, for every layout: a different computation is reported, and a difference in rounding alone
                 is not. The verdict says which of the two comparisons failed.
not guaranteed   what happens between forced steps; the result of further training; runs that lockstep did not make, which
                 have no twin (compare --repeat measures their tolerance).

`lockstep explain exact` describes the comparison without a tolerance. docs/meaning.md has the reasons, and a picture.
)"},
    {"exact", "Exact arithmetic: layouts that cannot change a bit.",
     R"(With `arithmetic: exact` each row's loss and gradient is computed separately, at shapes that no layout changes, and sums over
rows and ranks are integer sums that are rounded once. Two runs of one objective agree bit for bit at every step, for all
layouts; the first bit that differs is a finding, with step, phase, row and sample id, rank and tensor.

guaranteed       on one machine type and build, layouts of one objective give the same bits: any number of ranks, unequal
                 and empty ones, accumulation, emulated and real. A difference is not rounding.
not guaranteed   it is not your trainer's arithmetic: PyTorch's Reducer does not run, so its own faults are not found
                 (comparing emulated with real ranks in native arithmetic finds them). Objectives that depend on the layout,
                 such as local negatives, differ. Statistics over rows (norm) are refused.

With `trace: full` the runs keep their values, from which the cause of a difference is named, as at a forced step.
`certify: {exact: 100}` adds the first 100 steps of each cell in exact arithmetic to any matrix. At one layout, native and exact
arithmetic differ by rounding alone: configs/rounding.yaml shows how far that drives a run.
)"},
});

/// Null if there is none of that name.
const ExplainTopic* find_explain_topic(std::string_view name) {
  const auto found = std::ranges::find(kTopics, name, &ExplainTopic::name);
  return found == kTopics.end() ? nullptr : &*found;
}

std::string indented(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::string out;
  for (std::string line; std::getline(lines, line);) out += "    " + line + "\n";
  return out;
}

/// W as a word of a formula.
bool names_world_size(std::string_view text) {
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  for (std::size_t at = text.find('W'); at != std::string_view::npos; at = text.find('W', at + 1)) {
    const bool begins = at == 0 || !is_letter(text[at - 1]);
    if (begins && (at + 1 == text.size() || !is_letter(text[at + 1]))) return true;
  }
  return false;
}

}  // namespace

std::string explain_text(const CausePage& page) {
  std::string text = fmt::format("{} ({})\n\n{}\n\nhow it shows\n{}", page.code, page.family, page.what,
                                 indented(page.recognised));
  if (names_world_size(page.recognised)) text += "    (W is the world size, the number of ranks.)\n";
  if (!page.wrong.empty()) text += "\nwrong\n" + indented(page.wrong);
  if (!page.right.empty()) text += "\nright\n" + indented(page.right);
  text += fmt::format("\nhow to fix it\n{}", indented(page.remedy));
  if (!page.reports.empty())
    text += fmt::format("\nsimilar public reports\n{}", indented(page.reports));
  return text;
}

/// All codes with their first sentence, family by family.
static std::string explain_list() {
  std::size_t width = 0;
  for (const CausePage& page : cause_pages()) width = std::max(width, page.code.size());
  std::string text;
  std::string_view family;
  for (const CausePage& page : cause_pages()) {
    if (page.family != family) text += fmt::format("{}{}\n", text.empty() ? "" : "\n", page.family);
    family = page.family;
    text += fmt::format("  {:<{}}  {}\n", page.code, width, page.what);
  }
  text += "\nverdicts of cells, and outcomes of suites\n";
  for (const OutcomePage& page : outcome_pages()) {
    if (page.suites.empty() || !page.next.empty()) text += fmt::format("  {}\n", page.names);
  }
  text += "\nhow lockstep judges\n";
  for (const ExplainTopic& topic : kTopics) text += fmt::format("  {:<{}}  {}\n", topic.name, width, topic.what);
  return text;
}

namespace {

/// Of the folder of a run or of records: who is behind in what, by the flight records, lockstep's own or PyTorch's; and where ranks that
/// hung were.
int explain_folder(const std::string& folder, const Console& console) {
  namespace fs = std::filesystem;
  const fs::path path = fs::path(folder).has_filename() ? fs::path(folder) : fs::path(folder).parent_path();
  const bool of_records = path.filename() == "flight";
  const std::vector<KeptStacks> stacks = kept_stacks((of_records ? path.parent_path() : path).string());
  std::error_code unknown;
  const std::string records_folder = fs::is_directory(path / "flight", unknown) ? (path / "flight").string() : folder;
  std::optional<flight::Judgement> judgement;
  try {
    judgement = flight::judge(flight::read_records(records_folder));
  } catch (const std::runtime_error& error) {
    if (stacks.empty()) throw ConfigError(std::string("explain: ") + error.what());
  }
  if (judgement) {
    for (const std::string& line : flight::in_words(*judgement)) console.out << clean_line(line) << "\n";
  }
  for (const KeptStacks& kept : stacks) console.out << fmt::format("rank {}: {} (all of it: {})\n", kept.rank, clean_line(kept.words), clean_line(kept.path));
  if (!stacks.empty() || !judgement->findings.empty()) return kExitUnexpected;
  return judgement->clean() ? kExitAsExpected : kExitUndecided;
}

}  // namespace

int explain_command(const ExplainOptions& options, const Console& console) {
  if (options.code.empty()) {
    console.out << explain_list();
    return kExitAsExpected;
  }
  std::error_code unknown;
  const bool known_word = find_explain_topic(options.code) != nullptr || find_cause_page(options.code) != nullptr;
  if (!known_word && std::filesystem::is_directory(options.code, unknown)) return explain_folder(options.code, console);
  if (const ExplainTopic* topic = find_explain_topic(options.code)) {
    console.out << topic->text;
    return kExitAsExpected;
  }
  if (const CausePage* page = find_cause_page(options.code)) {
    console.out << explain_text(*page);
    return kExitAsExpected;
  }
  if (const OutcomePage* outcome = find_outcome_page(options.code)) {
    console.out << outcome_text(*outcome);
    return kExitAsExpected;
  }
  std::vector<std::string_view> known;
  for (const ExplainTopic& topic : kTopics) known.push_back(topic.name);
  for (const CausePage& page : cause_pages()) known.push_back(page.code);
  // A hundred names in an error help nobody: only the nearest is said.
  const std::string_view near = nearest(options.code, known);
  ConfigProblem problem;
  problem.message = fmt::format("explain: there is no cause, topic, verdict or outcome '{}'; lockstep explain lists all", options.code);
  problem.suggestion = std::string(near);
  throw ConfigError(std::vector{problem});
}

}  // namespace lockstep
