#include "harness/suites/checkpoint/saver/search.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "harness/base/errors.h"
#include "harness/base/text.h"
#include "harness/suites/engine/suite.h"
#include "harness/verdict/config/field.h"

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

}  // namespace

LOCKSTEP_WORDS(SearchKind, errors, "kill", "schedules", "power", "corruption", "errors")

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
  });
  const auto found = std::ranges::find(kMutants, name, &Mutant::name);
  LOCKSTEP_CHECK(found != kMutants.end(), "a mutant that is named stands in the table");
  return *found;
}

Trial mutant_trial(std::string_view name, std::string_view place, std::string_view harmless,
                     std::function<MutantFound()> search) {
  const Mutant& mutant = mutant_named(name);
  Trial planned;
  planned = {fmt::format("planted:{}", name), fmt::format("planted: {}", mutant.words), std::string(place), 1};
  planned.run = [&mutant, harmless = std::string(harmless), search = std::move(search)](Slot&) {
    MutantFound found = search();
    const std::string tried = with_commas(found.tried);
    CaseResult result;
    if (found.found && harmless.empty()) {
      result = {"planted, found: " + found.outcome, CaseVerdict::planted, 1,
                fmt::format("{}, as planted: found at number {} of those tried. {}", mutant.words, tried, found.sentence),
                std::move(found.timeline)};
    } else if (found.found) {
      result = {"planted, does harm", CaseVerdict::fault, 1,
                fmt::format("{}: it was to be harmless here ({}), and is not. {}", mutant.words, harmless, found.sentence),
                std::move(found.timeline)};
    } else if (harmless.empty()) {
      result = {"planted, not found", CaseVerdict::fault, 1,
                fmt::format("{}: planted, and none of {} shows it. The search is blind for it", mutant.words, tried), {}};
    } else {
      result = {"planted, harmless here", CaseVerdict::good, 1, "", {}};
    }
    return std::vector<CaseResult>{std::move(result)};
  };
  return planned;
}

}  // namespace lockstep::saver
