#include "scenarios/command/spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>

#include "harness/base/clean_text.h"
#include "harness/base/counted.h"
#include "harness/base/nearest.h"
#include "harness/base/shell_word.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kArguments = "args.", kVariables = "env.", kRanks = "ranks", kOut = "out";

constexpr MetricSpec kMetrics[] = {
    {.name = "loss", .help = "the step's loss, as the probe saw it; mean over ranks", .higher_is_better = false, .shown = true,
     .train_words = "training loss"},
};
std::span<const MetricSpec> metrics() { return kMetrics; }

std::any section() { return CommandConfig{}; }

/// What stands for each placeholder in a run's command.
std::map<std::string, std::string, std::less<>> placeholders(const RunConfig& config, const std::string& run_dir) {
  std::map<std::string, std::string, std::less<>> all = {
      {std::string(kRanks), std::to_string(config.layout.world_size)},
      {"rows", std::to_string(config.layout.rows_per_rank)},
      {"global_rows", std::to_string(config.layout.global_batch())},
      {"seed", std::to_string(config.seed)},
      {"steps", std::to_string(config.steps)},
      {"layout", fmt::format("{}x{}", config.layout.world_size, config.layout.rows_per_rank)},
      {std::string(kOut), run_dir},
  };
  for (const auto& [key, value] : command_config(config).arguments) {
    if (!value.empty()) all[key.substr(kArguments.size())] = value;
  }
  return all;
}

/// Hands each {name} of the text to `found`, and what is between them to `kept`; a shell's ${name} and braces around anything else stay.
template <class Kept, class Found>
void each_placeholder(const std::string& text, Kept kept, Found found) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('}', at);
    const bool shells = at > 0 && text[at - 1] == '$';
    if (text[at] == '{' && !shells && end != std::string::npos && is_open_name(std::string_view(text).substr(at + 1, end - at - 1))) {
      found(text.substr(at + 1, end - at - 1));
      at = end + 1;
    } else {
      kept(std::string_view(text).substr(at++, 1));
    }
  }
}

void for_each_name(const std::string& text, const std::function<void(const std::string& name)>& found) {
  each_placeholder(text, [](std::string_view) {}, found);
}

/// The run's folder is one word of the shell's, whatever characters it has; an argument is as many as the config's author wrote.
std::string filled_for(const RunConfig& config, const std::string& text, const std::string& run_dir, bool for_shell) {
  const auto values = placeholders(config, run_dir);
  ShellText filled;
  each_placeholder(text, [&](std::string_view kept) { filled.add(kept); }, [&](const std::string& name) {
    const auto value = values.find(name);
    if (value == values.end())
      filled.add("{" + name + "}");
    else if (for_shell && name == kOut)
      filled.put(value->second);
    else
      filled.add(value->second);
  });
  return filled.text();
}

bool names(const std::string& text, std::string_view placeholder) {
  bool any = false;
  for_each_name(text, [&](const std::string& name) { any = any || name == placeholder; });
  return any;
}

void check_placeholders(const RunConfig& config, const char* key, const std::string& text, std::vector<KeyProblem>& problems) {
  const auto values = placeholders(config, "");
  std::vector<std::string_view> known;
  for (const auto& [name, value] : values) known.push_back(name);
  for_each_name(text, [&](const std::string& name) {
    if (!values.contains(name)) {
      const std::string_view near = nearest(name, known);
      problems.emplace_back(key, fmt::format("unknown placeholder {{{}}}{}; known are {{{}}} and the NAME of each args.NAME", name,
                                             near.empty() ? "" : fmt::format("; did you mean {{{}}}?", near), fmt::join(known, "}, {")));
    }
  });
}

/// Keys of the core that say something of a command's run. All others describe training that lockstep does itself.
bool applies(std::string_view key) {
  constexpr std::string_view kKeys[] = {"trainer", "layout", "ranks", "steps", "stop_after", "seed", "trace", "snapshot_steps", "timeout_s",
                                        "eval_every", "watch.step_s", "watch.evaluation_s", "watch.save_s", "watch.load_s", "watch.teardown_s",
                                        "watch.slow_s"};
  return std::ranges::find(kKeys, key) != std::end(kKeys);
}

std::vector<KeyProblem> command_problems(const RunConfig& config, const CheckedFor&) {
  const CommandConfig& own = command_config(config);
  std::vector<KeyProblem> problems;
  if (own.command.find_first_not_of(" \t") == std::string::npos)
    problems.emplace_back("command", "command is missing: it starts your trainer, such as torchrun --nproc-per-node {ranks} train.py");
  check_placeholders(config, "command", own.command, problems);
  check_placeholders(config, "metrics_from", own.metrics_from, problems);
  for (const auto& [key, value] : own.arguments) {
    const std::string name = key.substr(kArguments.size());
    if (!value.empty() && !names(own.command, name) && !names(own.metrics_from, name))
      problems.emplace_back(key, fmt::format("{} has no effect: the command has no placeholder {{{}}}", key, name));
  }
  for (const auto& [key, value] : own.variables) {
    if (key.starts_with("env.LOCKSTEP_")) problems.emplace_back(key, fmt::format("{} is set by lockstep itself", key));
  }
  static const RunConfig defaults(command_spec());
  for (const RunField& field : core_fields()) {
    if (applies(field.spec.key) || equal(field.of(config), field.of(defaults))) continue;
    problems.emplace_back(field.spec.key, fmt::format("{} is a setting of lockstep's own trainers: give your command its own option", field.spec.key));
  }
  if (config.trace == TraceLevel::off) problems.emplace_back("trace", "a command is judged by its traces: trace must be hash, stats or full");
  return problems;
}

DataFacts inspect_sources(const RunConfig& config) {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  return {{kAny, kAny, kAny}, sources_of(command_config(config)).hash};
}

std::string data_words(const RunConfig& config) {
  const CommandSources sources = sources_of(command_config(config));
  constexpr double kKilo = 1000;
  return fmt::format("reuse depends on the command, its env and {} ({:.0f} kB) of {}{}", counted(static_cast<int64_t>(sources.files.size()), "source file"),
                     static_cast<double>(sources.bytes) / kKilo, fmt::join(sources.folders, ", "),
                     sources.all ? "" : "; there are more: name what matters of them in files");
}

CommandLine command_line(const RunConfig& config, const std::string& run_dir) {
  const CommandConfig& own = command_config(config);
  CommandLine line;
  line.shell = filled_for(config, own.command, run_dir, true);
  line.folder = own.folder;
  line.starts_ranks = names(own.command, kRanks);
  for (const auto& [key, value] : own.variables) {
    if (!value.empty()) line.variables.emplace_back(key.substr(kVariables.size()), value);
  }
  if (!own.metrics_from.empty()) line.metrics_from = (fs::path(own.folder) / filled_for(config, own.metrics_from, run_dir, false)).lexically_normal().string();
  line.against = own.against;
  return line;
}

/// Without a folder of its own a command runs in the config's; one that is given starts there, too.
void take_config_folder(RunConfig& base, const std::string& folder) {
  std::string& own = command_config(base).folder;
  own = (own.empty() ? fs::path(folder) : fs::absolute(own)).lexically_normal().string();
}

void leave_out_places(RunConfig& config) { command_config(config).folder.clear(); }

bool read_reference(RunConfig& config, const std::string& reference_run) {
  CommandConfig& own = command_config(config);
  if (own.replay) own.against = reference_run;
  return own.replay;
}

std::string how_to_get_samples(const RunConfig&, std::string_view) { return ""; }
std::optional<SampleCounts> counted_samples(const RunConfig&) { return std::nullopt; }
std::vector<ModelParameter> parameters(const RunConfig&, int64_t) { return {}; }
std::string objective(const RunConfig&) { return "command"; }

/// A process of Python with PyTorch and a small model; what a model takes beyond that nobody has said.
RunCosts costs(const RunConfig&) {
  RunCosts costs;
  costs.data_bytes = 250e6;
  return costs;
}

}  // namespace

const TrainerSpec& command_spec() {
  static const TrainerSpec kSpec{
      .name = "command",
      .help = "a program of your own, started by a command and recorded by the probe",
      .fields = &command_fields,
      .section = &section,
      .open_groups = command_groups(),
      .problems = &command_problems,
      .inspect_data = &inspect_sources,
      .counted_samples = &counted_samples,
      .how_to_get_samples = &how_to_get_samples,
      .parameters = &parameters,
      .costs = &costs,
      .metrics = &metrics,
      .shown_metric = "loss",
      .objective = &objective,
      .command = &command_line,
      .take_config_folder = &take_config_folder,
      .leave_out_places = &leave_out_places,
      .read_reference = &read_reference,
      .data_words = &data_words,
  };
  return kSpec;
}

}  // namespace lockstep
