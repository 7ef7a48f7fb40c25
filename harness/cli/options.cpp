#include "harness/cli/options.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <tuple>

#include "harness/base/text.h"
#include "harness/plan/config/field.h"
#include "harness/run/libraries.h"

namespace lockstep {

std::string command_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    const bool plain =
        word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%{}") ==
            std::string::npos &&
        !word.empty();
    text += (text.empty() ? "" : " ") + (plain ? word : shell_quoted(word));
  }
  return text;
}

std::vector<std::string> split_lists(const std::vector<std::string>& lists) {
  std::vector<std::string> words;
  for (const std::string& list : lists) {
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      std::string word = list.substr(begin, end - begin);
      begin = end + 1;
      if (!word.empty() && std::find(words.begin(), words.end(), word) == words.end())
        words.push_back(std::move(word));
    }
  }
  return words;
}

ConfigError unknown_word(const std::string& option, const std::string& message, std::string_view word,
                         const std::vector<std::string_view>& known) {
  return ConfigError(std::vector<ConfigProblem>{{option, 0, 0, message, std::string(nearest(word, known))}});
}

void require_known(std::string_view word, const std::vector<std::string_view>& known,
                   const std::string& option, const std::string& what) {
  if (std::ranges::find(known, word) != known.end()) return;
  throw unknown_word(option, fmt::format("unknown {} '{}'; known are {}", what, word, fmt::join(known, ", ")), word, known);
}

namespace {

constexpr const char* kAbout =
    "Tests whether a distributed training run trains the same as its reference, and if not, where they first "
    "differ.";

std::string version_text() {
  const std::string libtorch = libtorch_version(rank_program_path());
  return std::string("lockstep ") + LOCKSTEP_VERSION + " (" + build_commit() + ", " +
         (libtorch.empty() ? "no lockstep-rank beside it" : "LibTorch " + libtorch) + ")";
}

CLI::Option* repeated(CLI::App* command, const std::string& name, std::vector<std::string>& values,
                      const std::string& help) {
  return command->add_option(name, values, help)->allow_extra_args(false);
}

CLI::Option* last_wins(CLI::Option* option) {
  return option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void add_outputs(CLI::App* command, Outputs& outputs) {
  last_wins(command->add_option("--html", outputs.html, "write a page; - is standard output"))->type_name("FILE");
  last_wins(command->add_option("--md", outputs.md, "write Markdown; - is standard output"))->type_name("FILE");
  last_wins(command->add_flag("--json{-}", outputs.json, "as JSON on standard output, or in a file with --json=FILE"));
}

void add_tools(CLI::App* command, ToolOutputs& tools) {
  last_wins(command->add_flag("--tensorboard{lockstep-tensorboard}", tools.tensorboard,
                              "curves by step and verdicts as TensorBoard events, in this folder or --tensorboard=FOLDER"));
  last_wins(command->add_flag("--wandb{lockstep-wandb}", tools.wandb,
                              "the same as offline runs of W&B, in this folder or --wandb=FOLDER"));
  last_wins(command->add_flag("--chrome-trace{lockstep-trace.json}", tools.chrome_trace,
                              "steps and collectives by rank for Perfetto or chrome://tracing, in this file or --chrome-trace=FILE"));
}

constexpr double kAnyMany = 1e9;

/// A number in a range, or the word; errors name it in words.
CLI::Validator between(double least, double most, bool whole = true, const std::string& word = "") {
  return CLI::Validator(
      [=](std::string& text) {
        double value = 0;
        const bool digits = text.find_first_not_of("0123456789") == std::string::npos;
        if (!word.empty() && text == word) return std::string();
        if ((digits || !whole) && parse_double(text, value) && value >= least && value <= most) return std::string();
        const std::string range = most == kAnyMany ? fmt::format("of at least {}", least) : fmt::format("from {} to {}", least, most);
        return fmt::format("must be {}a {} {}, not {}", word.empty() ? "" : word + " or ", whole ? "whole number" : "number", range, in_quotes(text));
      },
      "", "range");
}
CLI::Validator at_least_one(double most = kAnyMany) { return between(1, most); }

CLI::Validator one_of(std::vector<std::string_view> words) {
  return CLI::Validator(
      [words](std::string& text) {
        if (std::ranges::find(words, text) != words.end()) return std::string();
        const std::string_view near = nearest(text, words);
        return fmt::format("must be {}, not {}{}", join_words(words, "or"), in_quotes(text),
                           near.empty() ? "" : fmt::format("; did you mean {}?", near));
      },
      "", "word");
}

/// Whole numbers from 0 on, with commas between them.
const CLI::Validator& step_list() {
  static const CLI::Validator validator(
      [](std::string& text) {
        if (text == "none" || text == "auto") return std::string();
        for (std::size_t at = 0; at <= text.size();) {
          const std::size_t comma = std::min(text.find(',', at), text.size());
          int64_t step = -1;
          if (!parse_integer(text.substr(at, comma - at), step) || step < 0) return "must be steps such as 0,1,10, or none or auto, not " + in_quotes(text);
          at = comma + 1;
        }
        return std::string();
      },
      "", "steps");
  return validator;
}

void add_selection(CLI::App* command, MatrixSelection& selection) {
  command
      ->add_option("CONFIG", selection.config,
                   "YAML matrix: a file, or a name that `lockstep list configs` shows")
      ->required();
  repeated(command, "--set", selection.set, "set a config value, or replace an axis")
      ->type_name("KEY=VALUE");
  last_wins(command->add_option("--only", selection.only,
                                "cells: 'negatives==local', 'layout!=3x8 && lr_rule==none', or a name"))
      ->type_name("EXPR");
  last_wins(command->add_option("--seeds", selection.seeds, "0..9 or 1,4,7 instead of the config's"))
      ->type_name("A..B");
  last_wins(
      command->add_option("--out", selection.out, "folder of results (default: out/<name of the matrix>)"))
      ->type_name("DIR");
  last_wins(command->add_option("--jobs", selection.jobs,
                                "how many processes run at once (default: number of cores)"))
      ->type_name("N")
      ->check(at_least_one(4096));
  last_wins(command->add_option("--launcher", selection.launcher,
                                "launcher of real ranks: local, slurm, torchrun, openmpi, mpich, srun, or external:COMMAND"))
      ->type_name("WHO");
}

void add_quiet(CLI::App* command, bool& quiet) {
  command->add_flag("-q,--quiet", quiet, "no progress: what is found, and what is wrong");
}

CLI::App* add_run(CLI::App& app, RunOptions& options) {
  CLI::App* command = app.add_subcommand("run", "run a matrix, judge it, write the reports");
  add_selection(command, options.selection);
  command->add_flag("--fresh", options.fresh, "run everything selected again instead of reusing finished runs");
  command->add_flag("--dry-run", options.dry_run, "show what would run, and stop");
  add_quiet(command, options.quiet);
  command->add_flag("--json", options.json, "results.json on stdout instead of the table");
  add_tools(command, options.tools);
  command->add_flag("--detach", options.detach, "return at once; `lockstep status OUT` and `lockstep wait OUT` follow it");
  last_wins(command->add_option("--part", options.part, "set by --launcher 'slurm --array' for each of its tasks"))->type_name("A.T");
  return command;
}

CLI::App* add_plan(CLI::App& app, PlanOptions& options) {
  CLI::App* command =
      app.add_subcommand("plan", "show what would run, on what, for how long, and what is reused");
  add_selection(command, options.selection);
  command->add_flag("--json", options.json, "every run with its config, as JSON");
  command->add_flag("--prepare", options.prepare,
                    "also create the run folders, for `lockstep-rank --run FOLDER` under any launcher");
  return command;
}

CLI::App* add_compare(CLI::App& app, CompareCommandOptions& options) {
  CLI::App* command = app.add_subcommand(
      "compare", "first difference between two runs' traces; or a test whether two cells reach the same metric");
  command->add_option("RUN_A", options.run_a, "the reference: run folder, or OUT, OUT:CELL")
      ->required();
  command->add_option("RUN_B", options.run_b, "what to compare with the reference")->required();
  repeated(command, "--expect", options.expect, "verdicts that exit 0: identical,within_envelope,divergent")
      ->type_name("LIST");
  repeated(command, "--repeat", options.repeats,
           "run folder of a permuted repeat of RUN_A, to measure the tolerance")
      ->type_name("DIR");
  last_wins(command->add_option("--steps", options.steps, "compare only the first N steps"))
      ->type_name("N")
      ->check(at_least_one());
  last_wins(
      command->add_option("--rule", options.rule,
                          "bits: traces (default); tost: equivalence of outcomes, paired by seed"))
      ->type_name("RULE");
  last_wins(
      command->add_option("--metric", options.metric, "metric of the outcome (default: as declared)"))
      ->type_name("M");
  last_wins(command->add_option("--margin", options.margin, "in units of the metric (default: as declared)"))
      ->type_name("X");
  last_wins(command->add_option("--alpha", options.alpha,
                                "level of each one-sided test (default: as declared)"))
      ->type_name("A");
  command->add_flag("--across", options.across,
                    "also compare cells of different questions, and show how they differ");
  add_outputs(command, options.outputs);
  add_tools(command, options.outputs.tools);
  return command;
}

CLI::App* add_report(CLI::App& app, ReportOptions& options) {
  CLI::App* command = app.add_subcommand("report", "render the results of a finished matrix");
  command->add_option("DIR", options.dir, "folder with results.json")->required();
  repeated(command, "--format", options.formats, "html, md, json, junit, text; one goes to stdout, several into DIR (default: text)")->type_name("LIST");
  return command;
}

CLI::App* add_list(CLI::App& app, ListOptions& options) {
  CLI::App* command = app.add_subcommand("list", "list trainers, losses, planted faults, metrics, configs and causes");
  command->add_option("WHAT", options.what, "scenarios, losses, mutants, metrics, configs or causes (default: all but causes)");
  command->add_flag("--json", options.json, "as JSON");
  return command;
}

CLI::App* add_status(CLI::App& app, StatusOptions& options) {
  CLI::App* command = app.add_subcommand("status", "show the progress of a detached run or a Slurm job");
  command->add_option("OUT", options.dir, "folder of results")->required();
  add_outputs(command, options.outputs);
  return command;
}

CLI::App* add_wait(CLI::App& app, WaitOptions& options) {
  CLI::App* command = app.add_subcommand("wait", "wait for a detached run or a Slurm job; exit with its status");
  command->add_option("OUT", options.dir, "folder of results")->required();
  return command;
}

CLI::App* add_checkpoints(CLI::App& app, CheckpointsOptions& options) {
  CLI::App* command = app.add_subcommand("checkpoints", "list and verify the checkpoints of runs: which count, the newest, the best");
  command->add_option("DIR", options.dir, "folder of results, of a run, or of checkpoints")->required();
  command->add_flag("--json", options.json, "as JSON");
  return command;
}

CLI::App* add_doctor(CLI::App& app, DoctorOptions& options) {
  CLI::App* command =
      app.add_subcommand("doctor", "check whether this machine can run lockstep; ends with an all-reduce of two real ranks");
  last_wins(command->add_option("--out", options.out, "folder of results to check (default: the current one)"))->type_name("DIR");
  command->add_flag("--nodes", options.nodes,
                    "inside a job: check all its nodes, what is between them, and an all-reduce of all processes");
  command->add_flag("--json", options.json, "as JSON");
  return command;
}

CLI::App* add_explain(CLI::App& app, ExplainOptions& options) {
  CLI::App* command =
      app.add_subcommand("explain", "explain a cause: how it shows, an example, how to fix it");
  command->add_option("CODE", options.code, "a cause's code, or a folder of flight records (default: list all causes)");
  return command;
}

CLI::App* add_schema(CLI::App& app, SchemaOptions& options) {
  CLI::App* command = app.add_subcommand("schema", "print the JSON Schema of configs or of results.json");
  command->add_option("OF", options.of, "config or results (default: config)");
  return command;
}

CLI::App* add_trace(CLI::App& app, TraceOptions& options) {
  CLI::App* command = app.add_subcommand("trace", "run your own trainer's command, and record what it computes");
  last_wins(command->add_option("--out", options.out, "folder for the traces"))->type_name("DIR")->required();
  last_wins(command->add_option("--led-by", options.led_by, "folder of the run that it should equal: each step begins with the weights that it had there"))->type_name("DIR");
  last_wins(command->add_option("--steps", options.steps, "end after so many steps, or after these: 0,1,50; they keep all values"))->type_name("N|LIST")->check(step_list());
  command->add_flag("--float64", options.float64, "compute everything in float64");
  command->add_flag("--no-dropout", options.no_dropout, "without dropout");
  last_wins(command->add_option("--level", options.level, "how much of each tensor is kept: hash, stats or full"))
      ->type_name("LEVEL")
      ->check(one_of({"hash", "stats", "full"}));
  last_wins(command->add_option("--snapshots", options.snapshots, "steps that keep all values: 0,1,10, or none, or auto (as far as 64 MB a rank reach)"))
      ->type_name("LIST")
      ->check(step_list());
  last_wins(command->add_option("--every", options.every, "record every N-th step"))->type_name("N")->check(at_least_one());
  add_outputs(command, options.outputs);
  add_tools(command, options.outputs.tools);
  add_quiet(command, options.quiet);
  command->add_flag("--overwrite", options.overwrite, "remove the traces of an earlier run from the folder first");
  command->add_option("COMMAND", options.command, "what starts your trainer, after --: torchrun --nproc-per-node 8 train.py")->required();
  command->positionals_at_end();
  return command;
}

CLI::App* add_issue(CLI::App& app, IssueOptions& options) {
  CLI::App* command = app.add_subcommand("issue", "print a text for a bug report on a check, and make the smallest folder that shows it");
  command->add_option("DIR", options.dir, "folder of the check (default lockstep-check)");
  last_wins(command->add_option("--to", options.to, "where the small folder goes (default DIR/issue)"))->type_name("FOLDER");
  return command;
}

CLI::App* add_check(CLI::App& app, CheckOptions& options) {
  CLI::App* command = app.add_subcommand("check", "does your PyTorch trainer train the same on several ranks as on one? starts what is needed");
  last_wins(command->add_option("--ranks", options.ranks, "of the run, or of reference and run: 4 or 1,4 (default: 1 and the machine's cores or GPUs, at most 4)"))->type_name("LIST");
  last_wins(command->add_option("--rows", options.rows, "rows of a step, over all ranks; {batch} is each rank's (default 24)"))->type_name("N")->check(at_least_one());
  last_wins(command->add_option("--steps", options.steps, "how many steps are judged, or which: 0,1,50 (default 8)"))->type_name("N|LIST")->check(step_list());
  last_wins(command->add_option("--accumulate", options.accumulate, "micro-steps of the run: {accumulate}"))->type_name("N")->check(at_least_one(100'000));
  last_wins(command->add_option("--seed", options.seed, "{seed}"))->type_name("N");
  last_wins(command->add_option("--reference", options.reference, "what starts the reference, for a shell"))->type_name("CMD");
  last_wins(command->add_option("--run", options.run, "what starts the run, for a shell"))->type_name("CMD");
  command->add_flag("--same-layout", options.same_layout, "twice the same layout");
  last_wins(command->add_option("--vary", options.vary, "accumulate: the same ranks, with more micro-steps"))->type_name("WHAT");
  command->add_option("--resumed", options.resumed, "does a run that is stopped before step K (default: half) and resumed train as one that is not?")->type_name("K")->expected(0, 1)->default_str("half")->check(between(1, kAnyMany, true, "half"));
  last_wins(command->add_option("--resume-with", options.resume_with, "with --resumed: what resumes, for a shell (default: the same command)"))->type_name("CMD");
  CLI::Option* const acted =
      last_wins(command->add_option("--acted", options.acted,
                                    "instead of a command: log-probabilities as a rollout acted and as recomputed, a "
                                    "JSON object a line; - is standard input"))
          ->type_name("FILE");
  repeated(command, "--accept", options.accept, "a difference that is meant: batch-norm-local")->type_name("CODE");
  last_wins(command->add_option("--out", options.out, "folder of all that is kept (default lockstep-check)"))->type_name("DIR");
  command->add_flag("--kept", options.kept, "start nothing: judge the runs that --out holds (of lockstep issue)");
  last_wins(command->add_option("--timeout", options.timeout_s, "longest time without a step, in seconds (default 60)"))->type_name("S")->check(between(1, 86'400, false));
  command
      ->add_option("--nodes", options.nodes,
                   "started on each node: {ranks} are a node's. Which one this is says the job, or 0/2")
      ->type_name("K/N")
      ->expected(0, 1)
      ->default_str("job");
  command->add_flag("--as-written", options.as_written, "start every process as the command does, not from one that has imported its modules");
  add_quiet(command, options.quiet);
  command->add_flag("--fresh", options.fresh, "run again what is there");
  add_outputs(command, options.outputs);
  add_tools(command, options.outputs.tools);
  acted->excludes(command->add_option(
      "COMMAND", options.command,
      "what starts your trainer, after --: torchrun --nproc-per-node {ranks} train.py --batch {batch}"));
  command->positionals_at_end();
  return command;
}

/// Each command, with what its options are read into.
template <typename Options>
using Add = CLI::App* (*)(CLI::App& app, Options& options);
struct Commands {
  std::tuple<CheckOptions, RunOptions, PlanOptions, CompareCommandOptions, ReportOptions, ListOptions, StatusOptions,
             WaitOptions, CheckpointsOptions, DoctorOptions, ExplainOptions, SchemaOptions, TraceOptions, IssueOptions>
      options;
  std::optional<CommandOptions> chosen;

  template <typename Options>
  void add(CLI::App& app, Add<Options> add_to, const char* example, const char* page) {
    auto& own = std::get<Options>(options);
    CLI::App* command = add_to(app, own);
    command->footer(fmt::format("Example: lockstep {}\nMore: docs/{}", example, page));
    command->callback([this, &own] { chosen = own; });
  }
};

void add_all(CLI::App& app, Commands& commands) {
  commands.add(app, add_check, "check --ranks 4 -- torchrun --nproc-per-node {ranks} train.py --batch {batch}", "check.md");
  commands.add(app, add_run, "run smoke", "commands.md");
  commands.add(app, add_plan, "plan convergence --seeds 0..2", "commands.md");
  commands.add(app, add_compare, "compare A B", "commands.md");
  commands.add(app, add_report, "report out/smoke --format md", "report.md");
  commands.add(app, add_list, "list causes", "commands.md");
  commands.add(app, add_status, "status out/smoke", "commands.md");
  commands.add(app, add_wait, "wait out/smoke", "commands.md");
  commands.add(app, add_checkpoints, "checkpoints out/smoke", "checkpoint.md");
  commands.add(app, add_doctor, "doctor", "commands.md");
  commands.add(app, add_explain, "explain mean-of-means", "meaning.md");
  commands.add(app, add_schema, "schema results", "config.md");
  commands.add(app, add_issue, "issue lockstep-check", "check.md");
  commands.add(app, add_trace, "trace --out A -- torchrun --nproc-per-node 2 train.py", "probe.md");
}

std::vector<std::string_view> options_of(const CLI::App& command) {
  std::vector<std::string_view> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  return names;
}

/// What is wrong with the line, in our words: CLI11 says of a name no more than that it is none.
std::string problem_of(const CLI::App& app, const std::vector<std::string>& words, const CLI::ParseError& error) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (words.empty()) return "lockstep: no command; known are " + CLI::detail::join(names, ", ") + "\n";
  if (words.front().starts_with("-")) return fmt::format("lockstep: {}; lockstep --help lists commands\n", error.what());
  try {
    require_known(words.front(), {names.begin(), names.end()}, "lockstep", "command");
  } catch (const ConfigError& unknown) {
    return unknown.problems().front().text() + "\n";
  }
  const std::vector<std::string_view> known = options_of(*app.get_subcommand(words.front()));
  for (const std::string& word : words) {
    if (word == "--") break;
    const std::string_view name = std::string_view(word).substr(0, word.find('='));
    if (!name.starts_with("--") || std::ranges::find(known, name.substr(2)) != known.end()) continue;
    const std::string_view near = nearest(name.substr(2), known);
    return fmt::format("lockstep {0}: unknown option {1}{2}; lockstep {0} --help lists all\n", words.front(), name,
                       near.empty() ? "" : fmt::format("; did you mean --{}?", near));
  }
  return fmt::format("lockstep {0}: {1}; lockstep {0} --help lists all\n", words.front(), error.what());
}

/// For `eval "$(lockstep completion bash)"`, which zsh reads as well.
std::string completion_script(const CLI::App& app, bool of_zsh) {
  std::string names, cases;
  for (const CLI::App* command : app.get_subcommands({})) {
    names += " " + command->get_name();
    std::string words;
    for (const std::string_view name : options_of(*command)) words += fmt::format(" --{}", name);
    cases += fmt::format("    {}) words=\"{}\" ;;\n", command->get_name(), words.substr(1));
  }
  return fmt::format(R"SH({}_lockstep() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
  COMPREPLY=()
  [ "$COMP_CWORD" = 1 ] && words="{}"
  [ "$COMP_CWORD" != 1 ] && case "${{COMP_WORDS[1]}}" in
{}  esac
  local kind=""
  case "${{COMP_WORDS[1]}}:$word" in *:-*) ;; run:* | plan:*) kind=configs ;; explain:*) kind=causes ;; esac
  [ -n "$kind" ] && words="$(lockstep list $kind 2>/dev/null | awk '{{print $1}}')"
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _lockstep lockstep
)SH",
                     of_zsh ? "autoload -U +X bashcompinit && bashcompinit\n" : "", names.substr(1), cases);
}

}  // namespace

ParsedLine parse_command_line(int argc, const char* const* argv) {
  CLI::App app(kAbout, "lockstep");
  app.footer(kExitCodes);
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "help of all commands");
  app.set_version_flag("-V,--version", version_text);
  Commands commands;
  add_all(app, commands);
  std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words.front() == "help") {
    words.erase(words.begin());
    words.resize(std::min<std::size_t>(1, words.size()));
    words.emplace_back("--help");
  }
  if (words.size() == 2 && words[0] == "completion" && (words[1] == "bash" || words[1] == "zsh"))
    return {std::nullopt, 0, completion_script(app, words[1] == "zsh"), ""};
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    std::ostringstream out, err;
    const int code = app.exit(error, out, err);
    if (code == 0) return {std::nullopt, 0, out.str(), ""};
    return {std::nullopt, kExitUsage, "", problem_of(app, words, error)};
  }
  ParsedLine line;
  line.command = std::move(commands.chosen);
  return line;
}

}  // namespace lockstep
