#include "harness/suites/rewards/reward_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "harness/verdict/config/field.h"

namespace lockstep::rewards {
namespace {

constexpr Range kSeconds{0.05, 3600};
constexpr Range kSmall{0, 1e6};
constexpr std::string_view kConvention = "rewards.convention.", kRanks = "rewards.ranks", kGroup = "rewards.group_size";

#define REWARDS(key, member, ...)                                                                   \
  Field<RewardsConfig> {                                                                            \
    {"rewards." key, __VA_ARGS__}, [](RewardsConfig& c) -> FieldRef { return ref_to(c.member); } \
  }
const std::array kFields{
    REWARDS("seed", seed, Range{0, 1e15}, "",
        "seed of the cases: each follows from it, from its own number and from the number of ranks"),
    REWARDS("ranks", ranks, Range{1, 64}, "ranks",
        "numbers of ranks, among which the cases are divided evenly; default `[1, 2, 3, 4, 8]`"),
    REWARDS("cases", cases, Range{1, 1e7}, "", "random cases on emulated ranks"),
    REWARDS("real_cases", real_cases, Range{0, 1e6}, "",
        "random cases on real Gloo ranks that stay up, run on emulated ranks as well; 0: no real ranks, also not "
        "for faults and mutants"),
    REWARDS("mutants", mutants, {}, "", "also plant mistakes, each of which must be named"),
    REWARDS("mutant_cases", mutant_cases, Range{1, 1e4}, "", "cases of each mistake on each number of emulated ranks"),
    REWARDS("faults", faults, {}, "",
        "also try reward functions that throw, hang, give too few rewards or NaN, and ranks that end or hang"),
    REWARDS("rows", rows, Range{0, 4096}, "rows", "rows per rank in each step of a random case; 0: drawn, from none to 64"),
    REWARDS("group_size", group_size, Range{0, 4096}, "rows",
        "rows of each group, only with `rewards.rows`; must divide the rows of all ranks; 0: drawn, from 1 to 8"),
    REWARDS("convention.ddof", convention.ddof, Range{0, 1}, "", "the variance divides by rows - ddof"),
    REWARDS("convention.epsilon", convention.epsilon, kSmall, "",
        "added to the deviation, or to the variance under the root"),
    REWARDS("convention.epsilon_place", convention.epsilon_place, {}, "",
        "place of epsilon: `outside` or `inside` the root"),
    REWARDS("convention.floor", convention.floor, kSmall, "", "smallest deviation or variance that is divided by; 0: none"),
    REWARDS("convention.floor_place", convention.floor_place, {}, "", "what the floor applies to"),
    REWARDS("convention.non_finite", convention.non_finite, {}, "", "what happens to rewards that are NaN or infinite"),
    REWARDS("convention.group_of_one", convention.group_of_one, {}, "", "advantage of a group of one row"),
    REWARDS("ulp", ulp, Range{0, 1e6}, "ulp",
        "largest error of mean, deviation and advantages, against one process in 34 digits"),
    REWARDS("deadline_s", deadline_s, kSeconds, "s", "a rank that gives no sign for this long is counted as hung"),
    REWARDS("score_deadline_s", score_deadline_s, kSeconds, "s",
        "a reward function that gives no answer for this long is counted as hung; below `rewards.deadline_s`"),
};
#undef REWARDS

Place place_of(const SuiteSource& source, std::string_view key) {
  const Entry* const entry = source.find(key);
  return entry == nullptr ? source.place : entry->place;
}

/// `convention: {ddof: 1}` as `convention.ddof: 1`.
SuiteSource with_convention_spread(const SuiteSource& source, Problems& problems) {
  SuiteSource spread = source;
  spread.entries.clear();
  for (const Entry& entry : source.entries) {
    if (entry.key != "rewards.convention") {
      spread.entries.push_back(entry);
    } else if (!entry.value.is_map()) {
      problems.add(entry.place, "rewards.convention must be a map of keys");
    } else {
      for (std::size_t i = 0; i < entry.value.keys.size(); ++i) {
        const YamlNode& key = entry.value.keys[i];
        spread.entries.push_back({std::string(kConvention) + key.text, key.place, entry.value.items[i]});
      }
    }
  }
  for (std::size_t i = 0; i < spread.entries.size(); ++i) {
    const auto& key = spread.entries[i].key;
    if (std::ranges::count(spread.entries.begin(), spread.entries.begin() + static_cast<std::ptrdiff_t>(i), key, &Entry::key) > 0)
      problems.add(spread.entries[i].place, fmt::format("duplicate key '{}': it is given with and without its group", key));
  }
  return spread;
}

void check(const SuiteSource& source, const RewardsConfig& config, Problems& problems) {
  if (config.ranks.empty()) problems.add(place_of(source, kRanks), "rewards.ranks: at least one number of ranks");
  if (config.group_size > 0 && config.rows == 0)
    problems.add(place_of(source, kGroup), "rewards.group_size: groups of one size need a number of rows; set rewards.rows");
  for (const int64_t ranks : config.ranks) {
    if (config.group_size == 0 || config.rows == 0 || ranks * config.rows % config.group_size == 0) continue;
    problems.add(place_of(source, kGroup),
                 fmt::format("rewards.group_size: groups of {} do not divide the {} rows of {} ranks", config.group_size,
                             ranks * config.rows, ranks));
  }
  if (config.score_deadline_s >= config.deadline_s) {
    problems.add(place_of(source, "rewards.score_deadline_s"),
                 fmt::format("rewards.score_deadline_s: must be below rewards.deadline_s ({:g} s), or the other ranks give up "
                             "before the reward function does",
                             config.deadline_s));
  }
}

}  // namespace

CaseRules RewardsConfig::rules(int world) const {
  return {static_cast<uint64_t>(seed), world, rows, group_size, given, convention, deadline_s, score_deadline_s};
}

RewardsConfig read_rewards_config(const SuiteSource& given, Problems& problems) {
  RewardsConfig config;
  const SuiteSource source = with_convention_spread(given, problems);
  read_fields<RewardsConfig>(source, kFields, config, problems);
  config.given = std::ranges::any_of(source.entries, [](const Entry& entry) { return entry.key.starts_with(kConvention); });
  check(source, config, problems);
  return config;
}

nlohmann::ordered_json rewards_schema() {
  const RewardsConfig defaults;
  SchemaJson schema = object_schema();
  for (const auto& field : kFields) {
    const std::string key(field.spec.key.substr(std::string_view("rewards.").size()));
    add_property(schema, key, field_schema(field.spec, field.of(defaults)));
  }
  return schema;
}

}  // namespace lockstep::rewards
