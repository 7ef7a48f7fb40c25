#include "harness/lib/rewards/convention.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/base/text.h"

namespace lockstep::rewards {
namespace {

using Problems = std::vector<std::pair<std::string, std::string>>;

constexpr std::array<std::string_view, 2> kEpsilonPlaces{"outside", "inside"};
constexpr std::array<std::string_view, 2> kFloorPlaces{"deviation", "variance"};
constexpr std::array<std::string_view, 2> kNonFinite{"refuse", "mask"};
constexpr std::array<std::string_view, 2> kGroupsOfOne{"zero", "raw"};
constexpr std::array<std::string_view, 7> kKeys{"ddof",        "epsilon",    "epsilon_place", "floor",
                                                "floor_place", "non_finite", "group_of_one"};

template <class Choice>
std::string word(Choice choice) {
  return std::string(words_of(choice)[static_cast<std::size_t>(choice)]);
}

template <class Choice>
void read_word(const nlohmann::json& json, const char* key, Choice& choice, Problems& problems) {
  if (!json.contains(key)) return;
  const auto words = words_of(choice);
  const std::string said = json[key].is_string() ? json[key].get<std::string>() : json[key].dump();
  const auto found = std::ranges::find(words, said);
  if (found != words.end())
    choice = static_cast<Choice>(found - words.begin());
  else
    problems.emplace_back(key, fmt::format("'{}' is not {}", said, join_words(words, "or")));
}

void read_number(const nlohmann::json& json, const char* key, double& number, Problems& problems) {
  if (!json.contains(key)) return;
  if (json[key].is_number())
    number = json[key].get<double>();
  else
    problems.emplace_back(key, "is a number");
}

}  // namespace

std::span<const std::string_view> words_of(EpsilonPlace) { return kEpsilonPlaces; }
std::span<const std::string_view> words_of(FloorPlace) { return kFloorPlaces; }
std::span<const std::string_view> words_of(NonFinite) { return kNonFinite; }
std::span<const std::string_view> words_of(GroupOfOne) { return kGroupsOfOne; }

double deviation_of(double variance, const Convention& convention) {
  if (convention.floor_place == FloorPlace::variance) variance = std::max(variance, convention.floor);
  if (convention.epsilon_place == EpsilonPlace::inside) variance += convention.epsilon;
  double deviation = std::sqrt(variance);
  if (convention.floor_place == FloorPlace::deviation) deviation = std::max(deviation, convention.floor);
  if (convention.epsilon_place == EpsilonPlace::outside) deviation += convention.epsilon;
  return deviation;
}

std::string in_words(const Convention& convention) {
  std::string text = convention.ddof == 0 ? "population deviation" : "Bessel's deviation";
  if (convention.floor > 0) text += fmt::format(", floor {:g} under the {}", convention.floor, word(convention.floor_place));
  if (convention.epsilon > 0) {
    text += fmt::format(", epsilon {:g} {} the root", convention.epsilon, word(convention.epsilon_place));
  }
  text += convention.non_finite == NonFinite::refuse ? ", what is not finite is refused" : ", what is not finite is masked";
  return text + (convention.group_of_one == GroupOfOne::raw ? ", a group of one keeps its raw reward" : "");
}

nlohmann::ordered_json to_json(const Convention& convention) {
  return {{"ddof", convention.ddof},
          {"epsilon", convention.epsilon},
          {"epsilon_place", word(convention.epsilon_place)},
          {"floor", convention.floor},
          {"floor_place", word(convention.floor_place)},
          {"non_finite", word(convention.non_finite)},
          {"group_of_one", word(convention.group_of_one)}};
}

Convention convention_from_json(const nlohmann::json& json, Problems& problems) {
  Convention convention;
  if (!json.is_object()) {
    problems.emplace_back("", "a convention is an object of keys");
    return convention;
  }
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::find(kKeys, key) != kKeys.end()) continue;
    const std::vector<std::string_view> known(kKeys.begin(), kKeys.end());
    const std::string near(nearest(key, known));
    problems.emplace_back(key, near.empty() ? "unknown key" : fmt::format("unknown key; did you mean {}?", near));
  }
  if (json.contains("ddof")) {
    if (json["ddof"].is_number_integer() && (json["ddof"] == 0 || json["ddof"] == 1))
      convention.ddof = json["ddof"].get<int>();
    else
      problems.emplace_back("ddof", "is 0 (of a population) or 1 (Bessel's)");
  }
  read_number(json, "epsilon", convention.epsilon, problems);
  read_number(json, "floor", convention.floor, problems);
  read_word(json, "epsilon_place", convention.epsilon_place, problems);
  read_word(json, "floor_place", convention.floor_place, problems);
  read_word(json, "non_finite", convention.non_finite, problems);
  read_word(json, "group_of_one", convention.group_of_one, problems);
  for (auto& problem : problems_of(convention)) problems.push_back(std::move(problem));
  return convention;
}

Problems problems_of(const Convention& convention) {
  Problems problems;
  if (convention.ddof != 0 && convention.ddof != 1) problems.emplace_back("ddof", "is 0 (of a population) or 1 (Bessel's)");
  const auto refuse = [&](const char* key, double value) {
    if (!std::isfinite(value) || value < 0) problems.emplace_back(key, "is finite and at least 0");
  };
  refuse("epsilon", convention.epsilon);
  refuse("floor", convention.floor);
  return problems;
}

std::vector<std::string> differences(const Convention& found, const Convention& expected) {
  const nlohmann::ordered_json a = to_json(found), b = to_json(expected);
  std::vector<std::string> told;
  for (const auto& [key, value] : b.items()) {
    if (a[key] != value) told.push_back(fmt::format("{} is {} and should be {}", key, a[key].dump(), value.dump()));
  }
  return told;
}

}  // namespace lockstep::rewards
