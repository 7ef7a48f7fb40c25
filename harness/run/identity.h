#pragma once
// Which programs, which LibTorch and which machine decide a run's bits.

#include <string>

#include "harness/verdict/plan/plan.h"

namespace lockstep {

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

}  // namespace lockstep
