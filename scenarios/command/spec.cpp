#include "scenarios/command/spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/run_config.h"

// The table of the trainer command: one line a key. A test counts the struct's members, so that none is forgotten here.

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
    COMMAND(led, kAny, "",
            "runs of cells are led by their reference's: `forced_steps` begin with the weights and moments that it had there"),
    COMMAND(metrics_from, kAny, "",
            "a log that the run leaves and whose metrics are judged: `.csv` or `.jsonl` with a column `step`, or TensorBoard's events (a file or "
            "their folder); placeholders as in `command`, from `folder` on; empty: what `lockstep_probe.metric` recorded"),
    COMMAND(led_by, kAny, "", "run that leads this one", Words::any, kPlanner),
    COMMAND(recorded, kAny, "", "what the probe is asked for, such as `STEPS=8 PRECISION=float64`", Words::any, kPlanner),
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

static std::span<const RunField> command_fields() { return kCommandFields; }
static std::span<const OpenGroup> command_groups() { return kGroups; }

const CommandConfig& command_config(const RunConfig& config) { return own_settings<CommandConfig>(config, "command"); }
CommandConfig& command_config(RunConfig& config) { return own_settings<CommandConfig>(config, "command"); }

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFiles = 2000;
constexpr uint64_t kMostBytes = uint64_t{32} << 20;

bool is_source(const fs::path& file) {
  constexpr std::array<std::string_view, 18> kEnds = {".py",  ".pyi", ".pyx", ".sh",  ".bash", ".yaml", ".yml", ".toml", ".cfg",
                                                      ".ini", ".json", ".c",  ".cc", ".cpp",  ".cu",   ".cuh", ".h",    ".hpp"};
  return std::ranges::find(kEnds, file.extension().string()) != kEnds.end();
}

/// Folders of results, caches, environments and version control change without changing what is trained.
bool is_passed_over(const fs::path& folder) {
  constexpr std::array<std::string_view, 8> kNames = {"__pycache__", "node_modules", "site-packages", "out", "outputs", "build", "wandb", "lightning_logs"};
  const std::string name = folder.filename().string();
  std::error_code error;
  return name.starts_with('.') || std::ranges::find(kNames, name) != kNames.end() || fs::exists(folder / "pyvenv.cfg", error) ||
         fs::exists(folder / "matrix.json", error) || fs::exists(folder / "check.json", error) || fs::exists(folder / "rank-0.trace", error);
}

/// Folders of the files that the command's words name; without any, the folder that it runs in.
std::set<fs::path> script_folders(const CommandConfig& command) {
  std::set<fs::path> folders;
  std::istringstream words(command.command);
  for (std::string word; words >> word;) {
    std::erase_if(word, [](char c) { return c == '"' || c == '\''; });
    const fs::path path = (fs::path(command.folder) / word).lexically_normal();
    std::error_code error;
    if (is_source(path) && fs::is_regular_file(path, error)) folders.insert(path.parent_path());
  }
  if (folders.empty()) folders.insert(fs::path(command.folder));
  return folders;
}

class Sources {
 public:
  void add_folder(const fs::path& folder) {
    found_.folders.push_back(folder.string());
    std::vector<fs::path> files;
    std::error_code error;
    fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error);
    for (const fs::recursive_directory_iterator end; !error && at != end; at.increment(error)) {
      std::error_code unknown;
      if (at->is_directory(unknown)) {
        if (is_passed_over(at->path())) at.disable_recursion_pending();
      } else if (is_source(at->path()) && at->is_regular_file(unknown)) {
        files.push_back(at->path());
      }
      if (files.size() > 10 * kMostFiles) break;
    }
    std::ranges::sort(files);
    for (const fs::path& file : files) add_file(file, file.lexically_relative(folder).string(), false);
  }

  void add_listed(const CommandConfig& command) {
    std::istringstream patterns(command.files);
    for (std::string pattern; patterns >> pattern;) {
      const std::string whole = (fs::path(command.folder) / pattern).string();
      glob_t matches{};
      const int status = ::glob(whole.c_str(), 0, nullptr, &matches);
      const std::vector<std::string> paths(matches.gl_pathv, matches.gl_pathv + (status == 0 ? matches.gl_pathc : 0));
      ::globfree(&matches);
      if (paths.empty()) throw ConfigError(fmt::format("files: there is no {}", whole));
      for (const std::string& path : paths) add_file(path, fs::path(path).lexically_relative(command.folder).string(), true);
    }
  }

  CommandSources done() {
    found_.hash = hash_in_hex(content_);
    return std::move(found_);
  }

 private:
  void add_file(const fs::path& path, const std::string& name, bool listed) {
    if (std::ranges::find(found_.files, path.string()) != found_.files.end()) return;
    std::error_code error;
    const uint64_t bytes = fs::file_size(path, error);
    if (!listed && (found_.files.size() >= kMostFiles || found_.bytes + bytes > kMostBytes)) {
      found_.all = false;
      return;
    }
    const FileText file = read_file(path.string());
    if (!file) throw ConfigError(fmt::format("{} {}", path.string(), file.problem));
    content_ += name + "\n" + hash_in_hex(file.text) + "\n";
    found_.bytes += file.text.size();
    found_.files.push_back(path.string());
  }

  CommandSources found_;
  std::string content_;
};

}  // namespace

/// Throws ConfigError if the folder or a listed file is not there.
static CommandSources sources_of(const CommandConfig& command) {
  std::error_code error;
  if (!fs::is_directory(command.folder, error)) throw ConfigError(fmt::format("folder: there is no folder {}", command.folder));
  Sources sources;
  for (const fs::path& folder : script_folders(command)) sources.add_folder(folder);
  sources.add_listed(command);
  return sources.done();
}

namespace {

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

}  // namespace

void for_each_placeholder(const std::string& command, const std::function<void(const std::string& name)>& found) {
  each_placeholder(command, [](std::string_view) {}, found);
}

bool names_placeholder(const std::string& command, std::string_view placeholder) {
  bool any = false;
  for_each_placeholder(command, [&](const std::string& name) { any = any || name == placeholder; });
  return any;
}

namespace {

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

void check_placeholders(const RunConfig& config, const char* key, const std::string& text, std::vector<KeyProblem>& problems) {
  const auto values = placeholders(config, "");
  std::vector<std::string_view> known;
  for (const auto& [name, value] : values) known.push_back(name);
  for_each_placeholder(text, [&](const std::string& name) {
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
    if (!value.empty() && !names_placeholder(own.command, name) && !names_placeholder(own.metrics_from, name))
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
  line.starts_ranks = names_placeholder(own.command, kRanks);
  for (const auto& [key, value] : own.variables) {
    if (!value.empty()) line.variables.emplace_back(key.substr(kVariables.size()), value);
  }
  if (!own.metrics_from.empty()) line.metrics_from = (fs::path(own.folder) / filled_for(config, own.metrics_from, run_dir, false)).lexically_normal().string();
  line.led_by = own.led_by;
  std::istringstream asked(own.recorded);
  for (std::string word; asked >> word;) line.probe.emplace_back("LOCKSTEP_" + word.substr(0, word.find('=')), word.substr(word.find('=') + 1));
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
  if (own.led) own.led_by = reference_run;
  return own.led;
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
