#pragma once
// What the dynamic loader needs before a rank program can begin.

#include <string>
#include <vector>

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

/// What `words`, a program and its arguments, print on standard output in the environment of those variables; cut short where they
/// are silent for longer than `patience_ms`. Nothing is read from them on standard error.
std::string output_of(std::vector<std::string> words, std::vector<std::string> variables, int patience_ms);

/// Null-terminated pointers to the texts, as exec takes them.
std::vector<char*> pointers_to(std::vector<std::string>& texts);

}  // namespace lockstep
