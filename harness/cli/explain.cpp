#include "harness/cli/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <ostream>
#include <sstream>
#include <stdexcept>

#include "harness/base/clean_text.h"
#include "harness/base/errors.h"
#include "harness/base/nearest.h"
#include "harness/cli/commands.h"
#include "harness/cli/explain_topics.h"
#include "harness/flight/dump.h"
#include "harness/flight/judge.h"
#include "harness/launch/stacks.h"
#include "harness/rewards/failure.h"

namespace lockstep {
namespace {

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
  std::string text = fmt::format("{} ({})\n\n{}\n\nrecognised by\n{}", page.code, page.family, page.what,
                                 indented(page.recognised));
  if (names_world_size(page.recognised)) text += "    (W: world size; a number beside a group: gradient over the reference's)\n";
  if (!page.wrong.empty()) text += "\nwrong\n" + indented(page.wrong);
  if (!page.right.empty()) text += "\nright\n" + indented(page.right);
  text += fmt::format("\nwhat mends it\n{}", indented(page.remedy));
  if (!page.reports.empty())
    text += fmt::format("\npublic reports of it or its like\n{}", indented(page.reports));
  return text;
}

std::string explain_list() {
  std::size_t width = 0;
  for (const CausePage& page : cause_pages()) width = std::max(width, page.code.size());
  for (const rewards::Cause& cause : rewards::causes()) width = std::max(width, cause.code.size());
  std::string text;
  std::string_view family;
  for (const CausePage& page : cause_pages()) {
    if (page.family != family) text += fmt::format("{}{}\n", text.empty() ? "" : "\n", page.family);
    family = page.family;
    text += fmt::format("  {:<{}}  {}\n", page.code, width, page.what);
  }
  text += "\nrewards and advantages (configs/rewards.yaml)\n";
  for (const rewards::Cause& cause : rewards::causes()) text += fmt::format("  {:<{}}  {}\n", cause.code, width, cause.help);
  text += "\nhow it judges\n";
  for (const ExplainTopic& topic : explain_topics()) text += fmt::format("  {:<{}}  {}\n", topic.name, width, topic.what);
  return text;
}

std::string reward_cause_text(const rewards::Cause& cause) {
  return fmt::format(
      "{} (rewards and advantages)\n\n{}.\n\nrecognised by\n    what every rank shows after the exchange of a step: its rewards, "
      "statistics, advantages, weights, policy\n    hashes, held against one process's on the same rows "
      "(docs/rewards.md)\n\nsee it\n    lockstep run configs/rewards.yaml; a mutant's trial tells step, rank, "
      "element, expected and found\n",
      cause.code, cause.help);
}

namespace {

/// Of the folder of a run or of records: who is behind in what, by the flight records, lockstep's own or PyTorch's; and where ranks that
/// hung were.
int explain_folder(const std::string& folder, const Console& console) {
  constexpr int kExitParted = 1;
  namespace fs = std::filesystem;
  const fs::path path = fs::path(folder).has_filename() ? fs::path(folder) : fs::path(folder).parent_path();
  const bool of_records = path.filename() == "flight";
  const std::vector<KeptStacks> stacks = kept_stacks((of_records ? path.parent_path() : path).string());
  const std::string records_folder = fs::is_directory(path / "flight") ? (path / "flight").string() : folder;
  std::vector<flight::Recorded> records;
  try {
    records = flight::read_records(records_folder);
  } catch (const std::runtime_error& error) {
    if (stacks.empty()) throw ConfigError(std::string("explain: ") + error.what());
  }
  const flight::Judgement judgement = flight::judge(records);
  if (!records.empty()) {
    for (const std::string& line : flight::in_words(judgement)) console.out << line << "\n";
  }
  for (const KeptStacks& kept : stacks) console.out << fmt::format("rank {}: {} (all of it: {})\n", kept.rank, clean_line(kept.words), clean_line(kept.path));
  return judgement.findings.empty() && stacks.empty() ? kExitAsExpected : kExitParted;
}

}  // namespace

int explain_command(const ExplainOptions& options, const Console& console) {
  if (options.code.empty()) {
    console.out << explain_list();
    return kExitAsExpected;
  }
  const bool known_word = find_explain_topic(options.code) != nullptr || find_cause_page(options.code) != nullptr;
  if (!known_word && std::filesystem::is_directory(options.code)) return explain_folder(options.code, console);
  if (const ExplainTopic* topic = find_explain_topic(options.code)) {
    console.out << topic->text;
    return kExitAsExpected;
  }
  if (const auto found = std::ranges::find(rewards::causes(), options.code, &rewards::Cause::code);
      found != rewards::causes().end()) {
    console.out << reward_cause_text(*found);
    return kExitAsExpected;
  }
  std::vector<std::string_view> known;
  for (const rewards::Cause& cause : rewards::causes()) known.push_back(cause.code);
  for (const ExplainTopic& topic : explain_topics()) known.push_back(topic.name);
  for (const CausePage& page : cause_pages()) known.push_back(page.code);
  const CausePage* page = find_cause_page(options.code);
  // A hundred names in an error help nobody: only the nearest is said.
  if (!page) {
    const std::string_view near = nearest(options.code, known);
    ConfigProblem problem;
    problem.message = fmt::format("explain: neither a cause nor a topic is called '{}'; lockstep explain lists all", options.code);
    problem.suggestion = std::string(near);
    throw ConfigError(std::vector{problem});
  }
  console.out << explain_text(*page);
  return kExitAsExpected;
}

}  // namespace lockstep
