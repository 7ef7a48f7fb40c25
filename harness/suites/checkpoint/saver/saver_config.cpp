#include "harness/suites/checkpoint/saver/saver_config.h"

#include <array>
#include <nlohmann/json.hpp>

#include "harness/suites/engine/section_schema.h"
#include "harness/verdict/config/field_schema.h"
#include "harness/verdict/config/ranges.h"
#include "harness/verdict/config/words.h"

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

}  // namespace lockstep::saver
