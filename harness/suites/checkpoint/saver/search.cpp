#include "harness/suites/checkpoint/saver/search.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "harness/base/text.h"
#include "harness/plan/config/field.h"
#include "harness/suites/engine/suite.h"

namespace lockstep::saver {
namespace {

constexpr Range kCount{0, 1e9}, kRanks{1, 16};

#define SAVER(member, ...)                                                                   \
  Field<SaverConfig> {                                                                       \
    {"saver." #member, __VA_ARGS__}, [](SaverConfig& c) -> FieldRef { return ref_to(c.member); } \
  }
const std::array kFields{
    SAVER(search, {}, "", "what saves are subjected to"),
    SAVER(world_sizes, kRanks, "ranks",
        "numbers of ranks that save; `schedules` and `corruption` have their own; default `[1, 2, 4, 8]`"),
    SAVER(points, kCount, "points",
        "most points of each scene and number of ranks, evenly spread; for `power` most moments of a save, for "
        "`corruption` most trials of each file and kind; 0: all"),
    SAVER(process_points, kCount, "points", "for `kill`: most points with ranks that are processes of their own; 0: all"),
    SAVER(planted, {}, "", "also plant the usual mistakes of savers, each of which must be found"),
};
#undef SAVER

/// A mistake that searches plant to see it found.
struct Mutant {
  std::string_view name, words;
  checkpoint::Planted planted;
};
const Mutant& mutant_named(std::string_view name) {
  static const auto kMutants = std::to_array<Mutant>({
      {"one_file_name", "all ranks write one file name", {.one_file_name = true}},
      {"shared_temporary_name", "every try has the same temporary name", {.shared_temporary_name = true}},
      {"no_lock", "nothing keeps a second process out", {.no_lock = true}},
      {"shared_name_no_lock", "one temporary name for all tries, and nothing keeps a second process out",
       {.shared_temporary_name = true, .no_lock = true}},
      {"rename_before_data", "the folder has its final name before its data", {.rename_before_data = true}},
      {"latest_before_commit", "latest is advanced before the commit", {.latest_before_commit = true}},
      {"delete_before_commit", "older ones go before the commit", {.delete_before_commit = true}},
      {"exists_per_rank", "each rank asks the disk by itself whether the step was saved", {.exists_per_rank = true}},
      {"no_data_sync", "no fsync of files", {.no_data_sync = true}},
      {"no_folder_sync", "no fsync of folders", {.no_folder_sync = true}},
      {"skipped_begin", "ranks do not wait for each other at 'begin'", {.skipped_gather = "begin"}},
      {"skipped_written", "ranks do not wait for each other at 'written'", {.skipped_gather = "written"}},
      {"skipped_renamed", "ranks do not wait for each other at 'renamed'", {.skipped_gather = "renamed"}},
      {"skipped_committed", "ranks do not wait for each other at 'committed'", {.skipped_gather = "committed"}},
      {"skipped_finished", "ranks do not wait for each other at 'finished'", {.skipped_gather = "finished"}},
      {"sealed_damage", "seals that fit damaged values", {}},
  });
  const auto found = std::ranges::find(kMutants, name, &Mutant::name);
  LOCKSTEP_CHECK(found != kMutants.end(), "a mutant that is named stands in the table");
  return *found;
}

/// Which search plants it, where, and why it does no harm there; empty: it must be found.
struct Planting {
  SearchKind search;
  std::string_view mutant, harmless;
  Names among;
};
const std::vector<Planting>& plantings() {
  using enum SearchKind;
  const Names scenes{"over_older", "same_step", "retention", "leftovers"};
  const Names power_scenes{"over_older", "retention", "same_step"}, runs{"two_same_step", "two_steps"};
  static const std::vector<Planting> kAll{
      {kill, "one_file_name", "", scenes},
      {kill, "rename_before_data", "", scenes},
      {kill, "latest_before_commit", "", scenes},
      {kill, "delete_before_commit", "", {"retention"}},
      {kill, "exists_per_rank", "", {"same_step"}},
      {kill, "skipped_written", "", scenes},
      {kill, "skipped_committed", "", scenes},
      {kill, "no_data_sync", "a kill leaves the pages to the system; a power loss shows it", {"over_older"}},
      {kill, "no_folder_sync", "a kill leaves the names to the system; a power loss shows it", {"over_older"}},
      {schedules, "no_lock", "", runs},
      {schedules, "shared_name_no_lock", "", runs},
      {schedules, "shared_temporary_name", "the lock keeps every other run out", runs},
      {schedules, "one_file_name", "", {"ranks_of_two"}},
      {schedules, "exists_per_rank", "", {"ranks_and_run"}},
      {schedules, "skipped_begin", "", {"ranks_of_two"}},
      {schedules, "skipped_written", "", {"ranks_of_two"}},
      {schedules, "skipped_renamed", "without an error or an end every rank comes to the same manifest", {"ranks_of_two"}},
      {schedules, "skipped_committed", "without an end or an error rank 0 commits in any case", {"ranks_of_two"}},
      {schedules, "skipped_finished", "without an error there is nothing to tell after the commit", {"ranks_of_two"}},
      {power, "no_data_sync", "", power_scenes},
      {power, "no_folder_sync", "", power_scenes},
      {power, "latest_before_commit", "", power_scenes},
      {corruption, "sealed_damage", "", {}},
      {errors, "skipped_begin", "", {"retention"}},
      {errors, "skipped_written", "", {"retention"}},
      {errors, "skipped_renamed", "", {"retention"}},
      {errors, "skipped_committed", "", {"retention"}},
      {errors, "skipped_finished", "", {"retention"}},
  };
  return kAll;
}

std::string_view place_of(SearchKind search) {
  switch (search) {
    case SearchKind::schedules: return "any schedule";
    case SearchKind::power: return "any disk";
    case SearchKind::corruption: return "any field";
    default: return "any operation";
  }
}

CaseResult case_of(const Tried& tried) {
  const Judgement& judgement = tried.judgement;
  CaseResult result{judgement.outcome, judgement.verdict(), 1, "", {}};
  if (!judgement.fault) return result;
  result.sentence = tried.words() + ". " + judgement.found;
  if (tried.timeline) result.timeline = tried.timeline();
  return result;
}

/// Tries that ended alike are one case; of faults the first few are told one by one.
Trial trial_of(const Choice& choice) {
  constexpr int kMostTold = 3;
  Trial trial{choice.name, choice.failure, choice.place, choice.estimate_s};
  trial.run = [play = choice.play](Slot&) {
    std::vector<CaseResult> cases;
    int told = 0;
    play([&](const Tried& tried) {
      const Judgement& judgement = tried.judgement;
      if ((!judgement.fault || told >= kMostTold) && count_alike(cases, judgement.outcome, judgement.verdict())) return true;
      cases.push_back(case_of(tried));
      if (judgement.fault) ++told;
      return true;
    });
    return cases;
  };
  return trial;
}

/// The first try that shows the mistake. `any`: that a save merely fails is less than what else a later one may show.
MutantFound first_shown(const std::vector<Choice>& choices, bool any) {
  MutantFound found;
  int64_t tried = 0;
  bool done = false;
  for (std::size_t i = 0; i < choices.size() && !done; ++i) {
    choices[i].play([&](const Tried& one) {
      ++tried;
      if (one.judgement.verdict() != CaseVerdict::fault) return true;
      done = any || one.judgement.outcome != "save failed";
      if (!found.found || done) found = {true, tried, case_of(one)};
      return !done;
    });
  }
  if (!found.found) found.tried = tried;
  return found;
}

}  // namespace

LOCKSTEP_WORDS(SearchKind, errors, "kill", "schedules", "power", "corruption", "errors")

Trial mutant_trial(std::string_view name, std::string_view place, std::string_view harmless,
                   std::function<MutantFound()> search) {
  const Mutant& mutant = mutant_named(name);
  Trial planned{fmt::format("planted:{}", name), fmt::format("planted: {}", mutant.words), std::string(place), 1};
  planned.run = [&mutant, harmless = std::string(harmless), search = std::move(search)](Slot&) {
    Measurements apart;  // what is counted is the saver as it is
    const MeasuredTrial measures(apart);
    MutantFound found = search();
    CaseResult result = std::move(found.shown);
    if (found.found && harmless.empty()) {
      result.outcome = "planted, found: " + result.outcome;
      result.verdict = CaseVerdict::planted;
      result.sentence = fmt::format("{}, as planted: found at number {} of those tried. {}", mutant.words,
                                    with_commas(found.tried), result.sentence);
    } else if (found.found) {
      result.outcome = "planted, does harm";
      result.sentence = fmt::format("{}: it was to be harmless here ({}), and is not. {}", mutant.words, harmless, result.sentence);
    } else if (harmless.empty()) {
      result = {"planted, not found", CaseVerdict::fault, 1,
                fmt::format("{}: planted, and none of {} shows it. The search is blind for it", mutant.words,
                            with_commas(found.tried)), {}};
    } else {
      result = {"planted, harmless here", CaseVerdict::good, 1, "", {}};
    }
    return std::vector<CaseResult>{std::move(result)};
  };
  return planned;
}

std::vector<Trial> Search::trials(const SuiteRun& run) {
  std::vector<Trial> all;
  for (const Planting& each : plantings()) {
    if (!config_.planted || each.search != config_.search) continue;
    all.push_back(mutant_trial(each.mutant, place_of(each.search), each.harmless, [this, &each] {
      return first_shown(choices_of(mutant_named(each.mutant).planted, each.among), each.search != SearchKind::schedules);
    }));
  }
  for (const Choice& choice : choices(run)) all.push_back(trial_of(choice));
  run.say(fmt::format("{} trials", with_commas(static_cast<int64_t>(all.size()))));
  return all;
}

namespace {

SaverConfig read_saver_config(const SuiteSource& source, Problems& problems) {
  SaverConfig config;
  read_fields<SaverConfig>(source, kFields, config, problems);
  if (source.find("saver.search") == nullptr)
    problems.add(source.place, "saver.search is missing: kill, schedules, power, corruption or errors");
  if (config.world_sizes.empty()) problems.add(source.place, "saver.world_sizes: at least one number of ranks expected");
  return config;
}

nlohmann::ordered_json saver_schema() {
  const SaverConfig defaults;
  SchemaJson schema = object_schema();
  schema["required"] = {"search"};
  add_fields(schema, kFields, defaults);
  return schema;
}

std::unique_ptr<Suite> make(const SuiteSource& source, Problems& problems) {
  const SaverConfig config = read_saver_config(source, problems);
  constexpr std::array kMakers{&make_kill_search, &make_schedule_search, &make_power_search, &make_corruption_search,
                               &make_error_search};
  return kMakers[static_cast<std::size_t>(config.search)](config);
}

}  // namespace
}  // namespace lockstep::saver

namespace lockstep {

const SuiteKind& saver_suite() {
  static const SuiteKind kKind{
      "saver", "the library that saves and loads checkpoints, under kills, schedules, power losses, corruption and errors",
      &saver::make, &saver::saver_schema};
  return kKind;
}

}  // namespace lockstep
