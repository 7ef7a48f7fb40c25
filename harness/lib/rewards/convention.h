#pragma once
// How a deviation is made of rewards, and how it divides: at least five ways are in use, and none is the right one. A run
// says which is its own, and everything that judges it holds it to that.

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::rewards {

/// Where the epsilon stands: sqrt(variance) + epsilon, or sqrt(variance + epsilon).
enum class EpsilonPlace { outside, inside };
/// What the floor holds up: max(deviation, floor), or sqrt(max(variance, floor)); before the epsilon in both.
enum class FloorPlace { deviation, variance };
/// What a NaN or an infinity does: the step is refused on all ranks, or the row counts nowhere.
enum class NonFinite { refuse, mask };
/// What a group of one row gets, by which nothing can be said of a deviation: advantage 0, or its raw reward.
enum class GroupOfOne { zero, raw };

/// Their words, in the order of the enumerators.
std::span<const std::string_view> words_of(EpsilonPlace);
std::span<const std::string_view> words_of(FloorPlace);
std::span<const std::string_view> words_of(NonFinite);
std::span<const std::string_view> words_of(GroupOfOne);

struct Convention {
  int ddof = 0;  ///< the variance divides by count - ddof; 0: of a population, 1: Bessel's
  double epsilon = 0;
  EpsilonPlace epsilon_place = EpsilonPlace::outside;
  double floor = 1e-4;  ///< 0: none
  FloorPlace floor_place = FloorPlace::deviation;
  NonFinite non_finite = NonFinite::refuse;
  GroupOfOne group_of_one = GroupOfOne::zero;
  bool operator==(const Convention&) const = default;
};

/// What divides an advantage, of a variance >= 0: floor, epsilon and root where the convention has them.
double deviation_of(double variance, const Convention& convention);

/// "population deviation, floor 0.0001 under the deviation, what is not finite is refused".
std::string in_words(const Convention& convention);

/// Keys of a convention in a config, in the struct's order: "ddof", "epsilon", "epsilon_place", ...
nlohmann::ordered_json to_json(const Convention& convention);
/// What a JSON object says, over the defaults. Problems: (key, what is wrong), all of them; unknown keys and words are
/// told with the nearest valid one.
Convention convention_from_json(const nlohmann::json& json, std::vector<std::pair<std::string, std::string>>& problems);
/// What is wrong with the values, by key: ddof 0 or 1; epsilon and floor finite and at least 0.
std::vector<std::pair<std::string, std::string>> problems_of(const Convention& convention);
/// Where two conventions differ, in words; empty: nowhere. "ddof is 1 and should be 0".
std::vector<std::string> differences(const Convention& found, const Convention& expected);

}  // namespace lockstep::rewards
