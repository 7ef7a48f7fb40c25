#include "harness/suites/launchers/heard.h"

#include <algorithm>

#include "harness/suites/launchers/words.h"

namespace lockstep::launchers {

void Hearing::expect(const Asked& asked) {
  const std::lock_guard lock(mutex_);
  lines_.push_back({asked, 0, {}});
}

void Hearing::heard(const Asked& asked, const Heard& answer) {
  const std::lock_guard lock(mutex_);
  for (Line& line : lines_) {
    if (line.asked.question != asked.question || line.asked.launcher != asked.launcher) continue;
    ++line.placements;
    line.sum.processes += answer.processes;
    line.sum.wrong += answer.wrong;
    if (line.sum.first_wrong.empty()) line.sum.first_wrong = answer.first_wrong;
  }
}

void Hearing::heard_each(const std::string& launcher, std::vector<Said> said) {
  const std::lock_guard lock(mutex_);
  by_rank_[launcher] = std::move(said);
}

std::vector<SuiteTable> Hearing::tables() const {
  const std::lock_guard lock(mutex_);
  SuiteTable asked{"What processes took themselves for",
                        "Every process of every placement reads what its launcher would tell it. Wrong: another rank, world or local rank than it has, a GPU "
                        "that another of its node takes, or a rank where it is none. Planted mistakes are not counted here.",
                        {{"question", "", false}, {"told by", "", false}, {"placements", "", true}, {"processes", "", true}, {"wrong", "", true}},
                        {}, false};
  const bool any_wrong = std::ranges::any_of(lines_, [](const Line& line) { return line.sum.wrong > 0; });
  if (any_wrong) asked.columns.push_back({"the first that was wrong", "", false});
  std::vector<Line> lines = lines_;
  const auto question_of = [&](const Line& line) {
    return std::ranges::find_if(lines_, [&](const Line& each) { return each.asked.question == line.asked.question; }) - lines_.begin();
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
  std::size_t world = 0;
  for (const ExternalStart& launcher : launchers()) {
    const auto found = by_rank_.find(std::string(launcher.name));
    if (found == by_rank_.end()) continue;
    ranks.columns.push_back({std::string(launcher.name), "", false});
    world = std::max(world, found->second.size());
  }
  for (std::size_t rank = 0; rank < world; ++rank) {
    TableRow row{{std::to_string(rank)}};
    for (const ExternalStart& launcher : launchers()) {
      const auto found = by_rank_.find(std::string(launcher.name));
      if (found == by_rank_.end()) continue;
      const Said said = rank < found->second.size() ? found->second[rank] : Said{};
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
