#include "harness/suites/foreign_saver/program_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/base/nearest.h"
#include "harness/base/shell_word.h"
#include "harness/suites/engine/section_schema.h"
#include "harness/suites/foreign_saver/failures.h"
#include "harness/verdict/config/field_schema.h"
#include "harness/verdict/config/ranges.h"

namespace lockstep::program {
namespace {

constexpr std::string_view kFailures = "program.failures";
constexpr Range kSeconds{0.05, 86400};

#define PROGRAM(member, ...)                                                                     \
  Field<ProgramConfig> {                                                                         \
    {"program." #member, __VA_ARGS__}, [](ProgramConfig& c) -> FieldRef { return ref_to(c.member); } \
  }
const std::array kFields{
    PROGRAM(subject, {}, "", "what is tested, in a few words; empty: the save command"),
    PROGRAM(server, {}, "",
        "command that starts once per slot, prints `ready`, takes the commands save, resume and setup as lines "
        "and forks for each ({config}/savers/serve.py is one for PyTorch); empty: each command starts by itself"),
    PROGRAM(setup, {}, "",
        "command that prepares {out} before the save, for example an older checkpoint; empty: nothing does"),
    PROGRAM(save, {}, "",
        "command that saves into the folder {out}, under the tracer: for a shell, or a line for `program.server`; {config} is the "
        "folder of the config"),
    PROGRAM(resume, {}, "",
        "command that resumes from {out} and writes its end result to the file or folder {resume}; an error "
        "status means that nothing could be resumed. Required without `program.check`"),
    PROGRAM(check, {}, "",
        "command that replaces the comparison of end results: exit 0 if {out} (and {resume}) is whole; otherwise "
        "its last line says what is wrong"),
    PROGRAM(points, Range{0, 1e9}, "operations", "most operations at which each failure is tried, evenly spread; 0: all"),
    PROGRAM(power_loss, Range{0, 1e9}, "disks",
        "most disks, of those that a power loss may leave of the recorded save, from which a resumption is tried; 0: none"),
    PROGRAM(writers, Range{0, 4096}, "processes",
        "processes that must be seen to write, so that a silent rank is noticed; 0: any number"),
    PROGRAM(deadline_s, kSeconds, "s", "a command that takes longer is counted as hung"),
    PROGRAM(grace_s, kSeconds, "s", "time for processes that outlive the save command; then they are killed"),
    PROGRAM(patience_s, kSeconds, "s", "a held writer continues if nothing has moved for this long"),
};
#undef PROGRAM

std::vector<std::string_view> failure_names() {
  std::vector<std::string_view> names;
  for (const FailureKind& kind : failure_kinds()) names.push_back(kind.name);
  return names;
}

void read_failures(const Entry& entry, ProgramConfig& config, Problems& problems) {
  if (!entry.value.is_sequence() || entry.value.items.empty()) {
    problems.add(entry.place, "program.failures must be a list of failures");
    return;
  }
  const std::vector<std::string_view> names = failure_names();
  for (const YamlNode& item : entry.value.items) {
    if (find_failure_kind(item.text) != nullptr) {
      config.failures.push_back(item.text);
      continue;
    }
    std::string known;
    for (const std::string_view name : names) known += (known.empty() ? "" : ", ") + std::string(name);
    problems.add(item.place, fmt::format("unknown failure {}; known are {}", in_quotes(item.text), known),
                 nearest(item.text, names));
  }
}

/// Every {word} of a command must be a placeholder that it may have, and those that it needs must stand there.
void check_placeholders(const SuiteSource& source, std::string_view key, const std::string& command,
                        std::span<const std::string_view> needed, Problems& problems) {
  if (command.empty()) return;
  const Entry* entry = source.find(key);
  const Place place = entry != nullptr ? entry->place : source.place;
  for (const std::string_view each : needed) {
    if (command.find(each) == std::string::npos)
      problems.add(place, fmt::format("{} lacks the placeholder {}", key, each));
  }
}

}  // namespace

ProgramConfig read_program_config(const SuiteSource& source, Problems& problems) {
  ProgramConfig config;
  SuiteSource plain = source;
  if (const Entry* entry = source.find(kFailures); entry != nullptr) {
    read_failures(*entry, config, problems);
    std::erase_if(plain.entries, [](const Entry& each) { return each.key == kFailures; });
  }
  config.folder = std::filesystem::absolute(source.file).parent_path().string();
  read_fields<ProgramConfig>(plain, kFields, config, problems);
  if (config.save.empty()) problems.add(source.place, "program.save is missing: the command that saves into {out}");
  if (config.resume.empty() && config.check.empty())
    problems.add(source.place,
                 "program.resume is missing: the command that goes on from {out} and writes its end result to {resume}; or "
                 "give program.check");
  constexpr std::array<std::string_view, 1> kOut{"{out}"};
  constexpr std::array<std::string_view, 2> kBoth{"{out}", "{resume}"};
  check_placeholders(source, "program.setup", config.setup, kOut, problems);
  check_placeholders(source, "program.save", config.save, kOut, problems);
  check_placeholders(source, "program.resume", config.resume, kBoth, problems);
  check_placeholders(source, "program.check", config.check, kOut, problems);
  return config;
}

nlohmann::ordered_json program_schema() {
  const ProgramConfig defaults;
  SchemaJson schema = object_schema();
  schema["required"] = {"save"};
  add_fields(schema, kFields, defaults);
  SchemaJson names = SchemaJson::array();
  for (const std::string_view name : failure_names()) names.push_back(name);
  schema["properties"]["failures"] =
      list_schema({{"type", "string"}, {"enum", names}}, "failures that are tried; default all");
  return schema;
}

std::string filled_in(const std::string& command, const Filling& filling, bool for_shell) {
  const std::pair<std::string_view, const std::string*> all[] = {{"{out}", &filling.out}, {"{resume}", &filling.resume}, {"{config}", &filling.config}};
  ShellText shell;
  std::string plain;
  for (std::string_view rest = command; !rest.empty();) {
    const auto* const found = std::ranges::find_if(all, [&](const auto& each) { return rest.starts_with(each.first); });
    const bool any = found != std::end(all);
    const std::string_view taken = any ? std::string_view(*found->second) : rest.substr(0, 1);
    plain += taken;
    any ? shell.put(taken) : shell.add(taken);
    rest.remove_prefix(any ? found->first.size() : 1);
  }
  return for_shell ? shell.text() : plain;
}

}  // namespace lockstep::program
