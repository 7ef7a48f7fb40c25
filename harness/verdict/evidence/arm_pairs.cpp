#include "harness/verdict/evidence/arm_pairs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

bool are_same_runs(const Arm& a, const Arm& b) {
  std::error_code error;
  return a.name == b.name && std::filesystem::equivalent(a.place, b.place, error);
}

std::string names_of(const std::vector<Arm>& arms) {
  std::vector<std::string> names;
  for (const Arm& arm : arms) names.push_back(arm.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

const Arm* named(const std::vector<Arm>& arms, const std::string& name) {
  const auto found = std::ranges::find(arms, name, &Arm::name);
  return found == arms.end() ? nullptr : &*found;
}

const Arm& partner_of(const Arm& arm, const std::vector<Arm>& among) {
  if (const Arm* found = named(among, arm.name)) return *found;
  throw ConfigError(fmt::format("{}: which cell is to be compared with {}? It has {}; name one: {}:CELL",
                                among.front().place, title_of(arm), names_of(among), among.front().place));
}

std::string seeds_alone(const Arm& arm, const Arm& other) {
  std::vector<int64_t> seeds;
  for (const auto& [seed, run] : arm.runs) {
    if (!other.runs.contains(seed)) seeds.push_back(seed);
  }
  return seeds.empty() ? "" : fmt::format("{} ({} alone)", fmt::join(seeds, ", "), title_of(arm));
}

}  // namespace

MatchedArms match_arms(std::vector<Arm> reference, std::vector<Arm> cell) {
  MatchedArms matched;
  if (reference.size() == 1 && cell.size() == 1) {
    matched.pairs.push_back({reference.front(), cell.front(), {}});
  } else if (reference.size() == 1) {
    matched.pairs.push_back({reference.front(), partner_of(reference.front(), cell), {}});
  } else if (cell.size() == 1) {
    matched.pairs.push_back({partner_of(cell.front(), reference), cell.front(), {}});
  } else {
    for (const Arm& arm : reference) {
      if (const Arm* partner = named(cell, arm.name)) {
        matched.pairs.push_back({arm, *partner, {}});
      } else {
        matched.alone.push_back("the cell " + title_of(arm) + " has no counterpart of the same name");
      }
    }
    for (const Arm& arm : cell) {
      if (!named(reference, arm.name))
        matched.alone.push_back("the cell " + title_of(arm) + " has no counterpart of the same name");
    }
  }
  for (const ArmPair& pair : matched.pairs) {
    if (are_same_runs(pair.reference, pair.cell)) {
      throw ConfigError(fmt::format("{}: both sides are the same runs; name two cells: OUT:CELL",
                                    title_of(pair.reference)));
    }
  }
  return matched;
}

void require_same_question(MatchedArms& matched, const Given& given, bool across) {
  std::vector<ConfigProblem> problems;
  for (ArmPair& pair : matched.pairs) {
    pair.differences = question_differences(pair.reference, pair.cell, given);
    for (const QuestionDifference& difference : pair.differences) {
      problems.push_back({fmt::format("{} against {}", title_of(pair.cell), title_of(pair.reference)), 0, 0,
                          "different question: " + difference_text(difference), ""});
    }
  }
  for (const std::string& alone : matched.alone) problems.push_back({"compare", 0, 0, alone, ""});
  if (matched.pairs.empty()) {
    problems.push_back({"compare", 0, 0, "no cell of either side has a counterpart of the same name on the other",
                                         ""});
    throw ConfigError(problems);
  }
  if (across || problems.empty()) return;
  problems.push_back(
      {"compare", 0, 0, "--across compares them anyway, and shows how they differ", ""});
  throw ConfigError(problems);
}

void require_paired_seeds(const std::vector<ArmPair>& pairs) {
  std::vector<ConfigProblem> problems;
  for (const ArmPair& pair : pairs) {
    for (const std::string& alone :
         {seeds_alone(pair.reference, pair.cell), seeds_alone(pair.cell, pair.reference)}) {
      if (!alone.empty())
        problems.push_back(
            {"compare", 0, 0,
             "seeds without a partner: " + alone + "; a paired comparison needs both runs of each seed", ""});
    }
    for (const Arm* arm : {&pair.reference, &pair.cell}) {
      if (!arm->missing.empty())
        problems.push_back(
            {title_of(*arm), 0, 0,
             fmt::format("the runs of seeds {} no longer exist", fmt::join(arm->missing, ", ")), ""});
    }
  }
  if (!problems.empty()) throw ConfigError(problems);
}

std::string difference_text(const QuestionDifference& difference) {
  return fmt::format("{} is {} against {}", difference.what, difference.b.empty() ? "empty" : difference.b,
                     difference.a.empty() ? "empty" : difference.a);
}

}  // namespace lockstep
