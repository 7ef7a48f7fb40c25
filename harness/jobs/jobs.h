#pragma once
// What a process of a run does: its run.json has a section that names the job, and the table in jobs.cpp has a line for each.
//
// To add a job: a function below, in a file beside this one, and a line in the table. A job that throws is written down
// for all of them alike: rank-<r>.result.json says "failed" and why.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "harness/jobs/rank_task.h"

namespace lockstep {

/// The jobs. `run`: all of run.json. Each returns the exit status, having written rank-<r>.result.json; or throws.
int train_job(const RankTask& task, const nlohmann::json& run);
/// Before the ranks are forked: makes what they share.
void prepare_train_job(const nlohmann::json& run);
int all_reduce_job(const RankTask& task, const nlohmann::json& run);
int faults_job(const RankTask& task, const nlohmann::json& run);

/// Does the job of the run in `task.run_dir`. Returns the exit status of the process.
int run_job(const RankTask& task);
/// Prepares it. Throws where run.json cannot be read.
void prepare_job(const std::string& run_dir);

/// Ends the process of a rank that has finished its job: threads and connections of Gloo end with it.
[[noreturn]] void end_rank(const RankTask& task, int world_size);

/// What was thrown, without the stack that LibTorch adds.
std::string message_of(const std::exception& error);

}  // namespace lockstep
