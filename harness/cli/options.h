#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "harness/cli/session/out_folder.h"

// The command line, parsed: one struct a command.

namespace lockstep {

/// Where what was found goes in the files of other tools; empty: nowhere.
struct ToolOutputs {
  std::string tensorboard, wandb;  ///< folders
  std::string chrome_trace;        ///< a file
};

struct RunOptions {
  MatrixSelection selection;
  bool fresh = false, dry_run = false, json = false;
  bool detach = false, quiet = false;
  ToolOutputs tools;
  std::string part;  ///< of an array of jobs, whose runs alone shall be done, and not judged; empty: none
};

struct PlanOptions {
  MatrixSelection selection;
  bool json = false;
  bool prepare = false;  ///< make the folders of the runs, with run.json, for others to start
};

/// Where what is said goes in each form; "-": to standard output, without the text; empty: nowhere.
struct Outputs {
  std::string html, md, json;
  ToolOutputs tools;
};

struct StatusOptions {
  std::string dir;
  Outputs outputs;
};

struct WaitOptions {
  std::string dir;
};

struct CheckpointsOptions {
  std::string dir;
  bool json = false;
};

struct CompareCommandOptions {
  std::string run_a, run_b;
  std::vector<std::string> expect;  ///< verdicts, as given: "identical,within_envelope"
  std::vector<std::string> repeats;
  std::string rule = "bits";  ///< bits, tost
  std::string metric;         ///< of the outcome; empty: as the matrices declare, like the next two
  std::optional<double> margin, alpha;
  int64_t steps = 0;    ///< the first so many are judged; 0: all of both runs
  bool across = false;  ///< cells of different questions too
  Outputs outputs;
};

struct ReportOptions {
  std::string dir;
  std::vector<std::string> formats;  ///< as given: "html,md"; empty: text
};

struct ListOptions {
  std::string what;  ///< scenarios, losses, mutants, metrics, configs; empty: all
  bool json = false;
};

struct DoctorOptions {
  std::string out = ".";  ///< folder that runs would be written to
  bool nodes = false;     ///< one process on each node of a job, and what is between them
  bool json = false;
};

struct ExplainOptions {
  std::string code;  ///< of a cause; empty: all codes
};

struct SchemaOptions {
  std::string of = "config";  ///< config, results
};

struct TraceOptions {
  std::string out;                    ///< folder of the traces
  std::string led_by;                 ///< folder of the run that leads this one; empty: of none
  std::string level, snapshots, every, steps;  ///< as given; empty: as the probe has it
  bool float64 = false, no_dropout = false, quiet = false;
  bool overwrite = false;             ///< removes the traces of an earlier run from `out`
  Outputs outputs;
  std::vector<std::string> command;
};

struct IssueOptions {
  std::string dir = "lockstep-check", to;  ///< of a check; where the small folder goes, empty: DIR/issue
};

struct CheckOptions {
  std::vector<std::string> command;  ///< of both sides; or
  std::string reference, run;        ///< of each, for a shell
  std::string folder;                ///< where they run; empty: here
  std::string ranks, steps = "8", out = "lockstep-check";
  int64_t rows = 24, accumulate = 1, seed = 0;
  bool same_layout = false;
  std::string vary;                  ///< accumulate
  std::string resumed, resume_with;  ///< the step before which a run is stopped and then resumed, or "half"; what resumes it, for a shell
  std::string acted;                 ///< log-probabilities of rollouts that are judged instead of runs
  std::vector<std::string> accept;   ///< differences that are meant
  double timeout_s = 60;
  std::string nodes;                 ///< "job", or this one of how many: 0/2
  bool as_written = false, fresh = false, quiet = false;
  bool kept = false;                 ///< nothing is started: `out` has what is judged
  Outputs outputs;
};

using CommandOptions = std::variant<RunOptions, PlanOptions, CompareCommandOptions, ReportOptions,
                                    ListOptions, StatusOptions, WaitOptions, CheckpointsOptions, DoctorOptions, ExplainOptions, SchemaOptions,
                                    TraceOptions, CheckOptions, IssueOptions>;

/// What to do, or with what status to end at once.
struct ParsedLine {
  std::optional<CommandOptions> command;
  int exit_code = 0;     ///< if there is no command
  std::string out, err;  ///< printed then: help, version, what is wrong
};

ParsedLine parse_command_line(int argc, const char* const* argv);

/// "commit 0123456789ab", with "+changes" if files that git tracks differed from it when this was built;
/// "unknown commit" outside a clone.
const char* build_commit();

// Lists of words as users give them on the command line.

/// The words of lists joined by commas, in order, each once.
std::vector<std::string> split_lists(const std::vector<std::string>& lists);

/// For a shell, but for the braces of placeholders, which are none's.
std::string command_of(const std::vector<std::string>& words);

/// "OPTION: MESSAGE; did you mean X?", X the nearest of `known` where one is near.
ConfigError unknown_word(const std::string& option, const std::string& message, std::string_view word,
                         const std::vector<std::string_view>& known);
/// Throws ConfigError, "OPTION: unknown WHAT 'word'; known are a, b, c; did you mean a?", unless `word` is
/// one of `known`.
void require_known(std::string_view word, const std::vector<std::string_view>& known,
                   const std::string& option, const std::string& what);

}  // namespace lockstep
