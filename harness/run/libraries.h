#pragma once

#include <string>
#include <vector>

#include "harness/plan/matrix/plan.h"

// What the dynamic loader needs before a rank program can begin.

namespace lockstep {

/// The environment of rank programs: ours, with the thread counts pinned that libraries read while they load,
/// and $LOCKSTEP_LIBTORCH, a folder of LibTorch's libraries, first where the loader looks.
std::vector<std::string> rank_environment();

/// Shared libraries that the loader does not find for `program` in the environment of ranks; asks the loader,
/// which starts nothing. Empty where the loader cannot be asked: the start will show what is missing.
std::vector<std::string> missing_libraries(const std::string& program);

/// Why `program` cannot be loaded and what to do next; empty if every library is there.
std::string library_problem(const std::string& program);

/// The folder that the loader takes `program`'s LibTorch from; empty: it needs none, or the loader cannot be asked.
std::string libtorch_folder(const std::string& program);

/// Which build of LibTorch lies in `folder`: "CPU build 2.13.0+cpu", "CUDA build" where it does not say its version.
std::string libtorch_flavour(const std::string& folder);

/// The path of a program as execvp finds it; empty if it does not.
std::string find_program(const std::string& name);

/// How a program ended: its exit status, 128 + a signal's number, 127 where it could not be started; and what it printed.
struct Reply {
  int status = 127;
  std::string text;  ///< without the last line's end
};
enum class Errors { left_out, with_the_rest };
/// Runs `words`, a program and its arguments, in the environment of those variables (none: ours); it is ended where it prints nothing for longer than
/// `patience_ms` (-1: never).
Reply answer_of(std::vector<std::string> words, std::vector<std::string> variables, int patience_ms, Errors errors = Errors::left_out);

/// Null-terminated pointers to the texts, as exec takes them.
std::vector<char*> pointers_to(std::vector<std::string>& texts);

// Which programs, which LibTorch and which machine decide a run's bits.

/// Path of the running program; where /proc is not mounted, by the name that it was started with.
std::string program_path();

/// `share/lockstep` of the prefix under whose `bin` the running program is installed; empty if it is not
/// installed.
std::string share_folder();

/// Path of lockstep-rank: $LOCKSTEP_RANK if set, else beside the running program. It need not exist.
std::string rank_program_path();

/// The LibTorch that `rank_program` was linked with: the first line of what the build wrote to
/// `rank_program`.version, which stands beside it or in its prefix's share/lockstep; empty if there is none.
std::string libtorch_version(const std::string& rank_program);

/// The commit that `rank_program` was built from: the second line there. It is no part of the program, so
/// that a commit which does not change the program does not invalidate finished runs.
std::string commit_of_rank_program(const std::string& rank_program);

/// Vendor and family of the processor, the vector instruction sets that it offers, and the variables of the
/// environment that make ATen or MKL choose among them.
std::string instruction_sets();

/// 16 hex digits of the file's content. Throws MachineError if it cannot be read.
std::string hash_of_file(const std::string& path);

/// Identity of runs started now with `rank_program`; `data_hash` as harness/lib/data gives it. What plans and
/// judges is no part of it: a run sees its config and the rank program alone. Where there is no rank program
/// this one stands in for it, so that `plan` works where nothing can run. Throws MachineError on unreadable
/// programs.
BuildIdentity current_identity(const std::string& rank_program, const std::string& data_hash);

// Before anything starts: can this host's ranks meet over what the plan's real runs ask for?

/// `lockstep-rank --transport nccl 8`: can 8 ranks of this host meet over it? And what it prints where they can.
inline constexpr const char* kTransportOption = "--carrier";
inline constexpr const char* kTransportFine = "transport: fine";

/// Asks so of each transport of the plan's real runs, those that are reused left out (`all`: too), with the ranks of the largest one.
/// `here`: they all start on this host; else other hosts may have GPUs that this one lacks, and the plugin alone is required. Throws ConfigError.
void require_transports(const Plan& plan, const std::string& rank_program, bool all, bool here);

}  // namespace lockstep
