#pragma once
// Which cells of two folders are compared with each other, and whether they may be.

#include <string>
#include <vector>

#include "harness/verdict/evidence/same_question.h"

namespace lockstep {

struct ArmPair {
  Arm reference, cell;
  std::vector<QuestionDifference> differences;  ///< reported; --across compares all the same
};

struct MatchedArms {
  std::vector<ArmPair> pairs;
  std::vector<std::string> alone;  ///< cells that one side has alone, in words
};

/// One arm against one, whatever their names; else by name. Throws ConfigError if a single arm has no
/// partner of its name among several, or if both are the same runs.
MatchedArms match_arms(std::vector<Arm> reference, std::vector<Arm> cell);

/// Fills the pairs' differences. Unless `across`, throws ConfigError that lists them all and the cells
/// without a partner.
void require_same_question(MatchedArms& matched, const Given& given, bool across);

/// Throws ConfigError that lists the seeds that one side lacks.
void require_paired_seeds(const std::vector<ArmPair>& pairs);

/// "data.stride is 2 against 4".
std::string difference_text(const QuestionDifference& difference);
}  // namespace lockstep
