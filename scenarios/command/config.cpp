// The table of the trainer command: one line a key. A test counts the struct's members, so that none is forgotten here.

#include "scenarios/command/config.h"

#include "harness/verdict/config/own_settings.h"
#include "harness/verdict/config/ranges.h"

namespace lockstep {
namespace {

using namespace ranges;

// The member's own spelling is its key.
#define COMMAND(member, ...)                                                                            \
  {                                                                                                     \
    {#member, __VA_ARGS__}, [](RunConfig& c) -> FieldRef { return ref_to(command_config(c).member); } \
  }
const RunField kCommandFields[] = {
    COMMAND(command, kAny, "",
            "what starts your trainer, for /bin/sh. Placeholders: `{ranks}`, `{rows}` (rows of a rank), `{global_rows}`, `{seed}`, `{steps}`, "
            "`{layout}`, `{out}` (the run's folder, as one word of the shell) and `{NAME}` of each `args.NAME`, as it is. With `{ranks}` the command starts its ranks itself; "
            "without it lockstep starts it once for each rank, with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and "
            "MASTER_PORT"),
    COMMAND(folder, kAny, "", "where the command runs; default the config's folder", Words::path),
    COMMAND(files, kAny, "",
            "further files whose contents decide whether a run is reused: paths and patterns (`vocab.txt data/*.json`), from `folder` on"),
    COMMAND(replay, kAny, "",
            "runs of cells also replay steps of their reference, from the states that this kept before `forced_steps`; the probe must be able to"),
    COMMAND(metrics_from, kAny, "",
            "a log that the run leaves and whose metrics are judged: `.csv` or `.jsonl` with a column `step`, or TensorBoard's events (a file or "
            "their folder); placeholders as in `command`, from `folder` on; empty: what `lockstep_probe.metric` recorded"),
    COMMAND(against, kAny, "", "run of the reference whose states are replayed", Words::any, kPlanner),
};
#undef COMMAND

FieldRef text_at(std::map<std::string, std::string>& texts, std::string_view key, bool make) {
  static std::string nothing;  // read, and never written
  const auto found = texts.find(std::string(key));
  if (found != texts.end()) return &found->second;
  return make ? &texts[std::string(key)] : &nothing;
}

constexpr OpenGroup kGroups[] = {
    {"env.", "a variable of the command's environment; \"\": not set",
     [](RunConfig& c, std::string_view key, bool make) { return text_at(command_config(c).variables, key, make); }},
    {"args.", "the value of the placeholder `{NAME}` in the command",
     [](RunConfig& c, std::string_view key, bool make) { return text_at(command_config(c).arguments, key, make); }},
};

}  // namespace

std::span<const RunField> command_fields() { return kCommandFields; }
std::span<const OpenGroup> command_groups() { return kGroups; }

const CommandConfig& command_config(const RunConfig& config) { return own_settings<CommandConfig>(config, "command"); }
CommandConfig& command_config(RunConfig& config) { return own_settings<CommandConfig>(config, "command"); }

}  // namespace lockstep
