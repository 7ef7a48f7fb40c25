#pragma once
// What all batch scripts for Slurm have in common.

#include <string>
#include <vector>

namespace lockstep {

/// Job name, output, requeuing, each of `options`, and the change into this folder. Output is appended to OUT/job.log. Throws ConfigError
/// where Slurm has no way to write what a name or path holds.
std::string batch_head(const std::string& out_dir, const std::string& name, const std::vector<std::string>& options);

/// Runs `command`, hands SIGTERM and SIGUSR1 on to it, waits for its end; then `$status` is its exit status.
std::string batch_command(const std::string& command);

}  // namespace lockstep
