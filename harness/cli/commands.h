#pragma once

#include <csignal>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/answer/results/suite_results.h"
#include "harness/base/text.h"
#include "harness/cli/doctor/node_facts.h"
#include "harness/cli/options.h"
#include "harness/cli/session/background.h"
#include "harness/cli/session/progress.h"

// One function a command: prints to the console and returns the exit code. They throw ConfigError,
// MachineError and TraceError; main turns those into exit codes.

namespace lockstep {

/// `command_started`: CLOCK_MONOTONIC seconds at which the process began, from which ranks count to their
/// first step.
int run_command(const RunOptions& options, const Console& console, double command_started);
int plan_command(const PlanOptions& options, const Console& console);
int compare_command(const CompareCommandOptions& options, const Console& console);
/// One command that starts what is needed and says whether two layouts of a trainer train the same: 0 the same, 1 different, 5 undecided; 3 or 4 where a
/// run died or hung.
int check_command(const CheckOptions& options, const Console& console);
/// Prints a text for a bug report, and makes the smallest folder that shows it.
int issue_command(const IssueOptions& options, const Console& console);
struct CheckDocument;
struct LedStep;
struct ResumedFindings;
/// What `check --resumed` found. `folder`: of the run that was stopped.
CheckDocument resumed_document(const ResumedFindings& found, const std::string& folder);
/// The steps that two runs have both; none where no two go together.
std::vector<LedStep> paired_steps(const std::string& reference, const std::string& run);
/// Two runs drawn: losses, and how far the gradients differ, by step. `first`: the first that differs, or -1.
std::vector<SuiteChart> charts_of(const std::vector<LedStep>& steps, int64_t first, bool led, const std::string& reference,
                                  const std::string& run);
/// Writes what was asked for: `text`, unless another form goes to standard output. `json`: empty: the document's.
void print_document(const CheckDocument& document, const std::string& json, const std::string& text,
                    const Outputs& asked, const Console& console);
/// A run of which other tools shall show something.
struct ToolSource {
  std::string name, folder;
  std::string reference = {};  ///< the folder of its reference's run
  std::string text = {};       ///< the verdict, in Markdown
};
/// Where W&B is not installed it says so. Throws TraceError.
void write_tools(const std::vector<ToolSource>& sources, const ToolOutputs& asked, const Console& console);
int report_command(const ReportOptions& options, const Console& console);
int list_command(const ListOptions& options, const Console& console);
int status_command(const StatusOptions& options, const Console& console);
int wait_command(const WaitOptions& options, const Console& console);
/// 0: every checkpoint that counts is whole to its last byte; 1: something is damaged, or a pointer names another than it should.
int checkpoints_command(const CheckpointsOptions& options, const Console& console);
int doctor_command(const DoctorOptions& options, const Console& console);
int explain_command(const ExplainOptions& options, const Console& console);
int schema_command(const SchemaOptions& options, const Console& console);
/// Runs somebody else's trainer with the probe switched on. Its status is not passed on: 3 if it failed, 7 if nothing was recorded.
int trace_command(const TraceOptions& options, const Console& console);

// What `list` shows.

struct ListedEntry {
  std::string name, help;
  std::string trainer = {};  ///< of a mutant: the only one that it fits
};

struct ListedKind {
  std::string kind;  ///< scenarios, losses, mutants, metrics, configs
  std::vector<ListedEntry> entries;
};

std::string list_text(const std::vector<ListedKind>& kinds);
std::string list_json(const std::vector<ListedKind>& kinds);

/// The YAML files of a folder by name, each with the question that its first line asks.
std::vector<ListedEntry> configs_in(const std::string& folder);

/// `configs` in the working folder, else that of the running program: in its prefix's share/lockstep if it is
/// installed, else the nearest one above it; empty if there is none.
std::string configs_folder();

/// The file that a command line means by `name`: the path itself if it is there; else `name`, with or without
/// "configs/" before it and ".yaml" behind it, in configs_folder(). As it was given if nothing is found.
std::string config_path(const std::string& name);

std::string checks_text(const std::vector<Check>& checks, bool colour);
std::string checks_json(const std::vector<Check>& checks);
bool fit_to_run(const std::vector<Check>& checks);

/// Cores, memory, threads, descriptors, programs, data, disk of `out`: what can be seen without starting anything.
std::vector<Check> machine_checks(const std::string& out);

/// Outcomes of suites that mean the same.
struct OutcomePage {
  std::string_view names;   ///< separated by "; "; one that ends with ": " stands for all that begin so
  std::string_view suites;  ///< that have it, separated by ", "
  std::string_view what;
  std::string_view next;  ///< what to do; empty: it is as it must be
};

/// Null: no suite has that outcome.
const OutcomePage* find_outcome_page(std::string_view outcome);

// Signals that end a command in order instead of at once.

/// Takes SIGINT, SIGTERM, SIGHUP and SIGUSR1 as long as it lives; one of them that was ignored stays so.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// 0; 1 after the first signal; 2 after a further SIGINT (Ctrl-C twice): end at once.
  static const volatile int* requested();
  /// The first that came; 0: none.
  static const volatile int* number();

 private:
  static constexpr std::size_t kCount = 4;
  struct sigaction before_[kCount];
};

// Where every exception of a command ends.

/// The exit status of `command`. What it throws is printed and becomes one: 2 for the user's mistakes, 7 for the machine's
/// and our own.
int guarded(const std::function<int()>& command, const Console& console);

}  // namespace lockstep
