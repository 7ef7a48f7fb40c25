#pragma once
// Parts of the ranks' gradients, by micro-step and by named loss, and what the reduced gradient would be if it were made of them in
// another way.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/verdict/causes/cause.h"

namespace lockstep::causes {

/// One rank's gradient in parts; every tensor of its gradient has every part, or the part adds nothing to it.
struct RankParts {
  std::vector<std::string> names;                           ///< in their order: "micro 0", "micro 1", ...
  std::vector<std::vector<const GradientPart*>> gradients;  ///< by those names
};

/// The parts whose names begin with that word ("micro ", "loss "), by rank; empty where they were not recorded.
std::vector<RankParts> parts_of(const ForcedValues& values, std::string_view kind);

/// The sum of values of parts, each with its factor, as a gradient; nothing where values of one were not kept.
std::optional<std::vector<NamedTensor>> weighed(const RankParts& parts, std::span<const double> factors);

/// The mean over ranks (their sum, if that is the reduction) of gradients by rank.
std::vector<NamedTensor> reduced_of(const std::vector<std::vector<NamedTensor>>& by_rank, bool by_sum);

/// Is every tensor of `gradients` what `expected` has, within `room` times its band of the judgement? False where one lacks a tensor.
bool agree(const std::vector<NamedTensor>& expected, const std::vector<NamedTensor>& gradients, const GradientJudgement& judgement, double room);

}  // namespace lockstep::causes
