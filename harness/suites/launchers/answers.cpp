#include "harness/suites/launchers/answers.h"

#include <algorithm>

#include "harness/suites/launchers/words.h"

namespace lockstep::launchers {

namespace {

std::string key_of(const Asked& asked) { return asked.question + "\n" + asked.launcher; }

/// The answers to one question.
struct Line {
  Asked asked;
  int64_t placements = 0;
  Answer sum;
};

Line line_of(const Asked& asked, const Measurements& m) {
  const std::string key = key_of(asked);
  Line line{asked, m.count("placements " + key), {m.count("processes " + key), m.count("wrong " + key)}};
  const auto& first = m.entries("first wrong " + key);
  if (!first.empty()) line.sum.first_wrong = first.begin()->second.get<std::string>();
  return line;
}

}  // namespace

void Answers::answered(const Asked& asked, const Answer& answer) {
  const std::string key = key_of(asked);
  measured().add("placements " + key);
  measured().add("processes " + key, answer.processes);
  measured().add("wrong " + key, answer.wrong);
  if (!answer.first_wrong.empty() && measured().entries("first wrong " + key).empty()) measured().keep("first wrong " + key, "", answer.first_wrong);
}

void Answers::answered_by_rank(const std::string& launcher, const std::vector<Said>& said) {
  nlohmann::json all = nlohmann::json::array();
  for (const Said& each : said) all.push_back({each.words, each.wrong});
  measured().keep("by rank", launcher, std::move(all));
}

std::vector<SuiteTable> Answers::tables(const Measurements& m) const {
  std::vector<Line> lines;
  for (const Asked& each : asked_) lines.push_back(line_of(each, m));
  SuiteTable asked{"What processes took themselves for",
                        "Every process of every placement reads what its launcher would tell it. Wrong: another rank, world or local rank than it has, a GPU "
                        "that another of its node takes, or a rank where it is none. Planted mistakes are not counted here.",
                        {{"question", "", false}, {"told by", "", false}, {"placements", "", true}, {"processes", "", true}, {"wrong", "", true}},
                        {}, false};
  const bool any_wrong = std::ranges::any_of(lines, [](const Line& line) { return line.sum.wrong > 0; });
  if (any_wrong) asked.columns.push_back({"the first that was wrong", "", false});
  const auto question_of = [&](const Line& line) {
    return std::ranges::find(asked_, line.asked.question, &Asked::question) - asked_.begin();
  };
  std::ranges::stable_sort(lines, {}, question_of);
  for (const Line& line : lines) {
    if (line.placements == 0) continue;
    asked.rows.push_back({{line.asked.question, line.asked.launcher, std::to_string(line.placements), std::to_string(line.sum.processes),
                           std::to_string(line.sum.wrong)}, line.sum.wrong > 0 ? CaseVerdict::fault : CaseVerdict::good});
    if (any_wrong) asked.rows.back().cells.push_back(line.sum.first_wrong);
  }
  SuiteTable ranks{"Two nodes of eight ranks, rank by rank", "What each rank took itself for: its rank and the number of all, its local rank, its GPU.",
                        {{"rank", "", true}}, {}, false};
  const auto& by_rank = m.entries("by rank");
  std::size_t world = 0;
  for (const ExternalStart& launcher : launchers()) {
    const auto found = by_rank.find(std::string(launcher.name));
    if (found == by_rank.end()) continue;
    ranks.columns.push_back({std::string(launcher.name), "", false});
    world = std::max(world, found->second.size());
  }
  for (std::size_t rank = 0; rank < world; ++rank) {
    TableRow row{{std::to_string(rank)}};
    for (const ExternalStart& launcher : launchers()) {
      const auto found = by_rank.find(std::string(launcher.name));
      if (found == by_rank.end()) continue;
      Said said;
      if (rank < found->second.size()) said = {found->second[rank][0].get<std::string>(), found->second[rank][1].get<bool>()};
      if (said.wrong) row.verdict = CaseVerdict::fault;
      row.cells.push_back((said.wrong ? "✗ " : "") + said.words);
    }
    ranks.rows.push_back(std::move(row));
  }
  std::vector<SuiteTable> tables;
  if (!asked.rows.empty()) tables.push_back(std::move(asked));
  if (!ranks.rows.empty()) tables.push_back(std::move(ranks));
  return tables;
}

}  // namespace lockstep::launchers
