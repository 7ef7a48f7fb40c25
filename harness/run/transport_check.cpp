#include "harness/run/transport_check.h"

#include <unistd.h>

#include <algorithm>

#include "harness/base/errors.h"
#include "harness/run/libraries.h"
#include "harness/run/run_folder.h"

namespace lockstep {
namespace {

/// The first look at a driver's GPUs takes seconds.
constexpr int kPatience_ms = 60'000;

}  // namespace

std::string transport_problem(const std::string& rank_program, Transport transport, int ranks) {
  if (transport == Transport::gloo) return "";
  std::string said = output_of({rank_program, kTransportOption, std::string(word_of(transport)), std::to_string(ranks)}, rank_environment(), kPatience_ms);
  said.erase(said.find_last_not_of('\n') + 1);
  if (said == kTransportFine) return "";
  return said.empty() ? rank_program + " gave no answer when it was asked for its GPUs: `" + rank_program + " --transport " +
                            std::string(word_of(transport)) + " " + std::to_string(ranks) + "` shows why"
                      : said;
}

void require_transports(const Plan& plan, const std::string& rank_program, bool all, bool here) {
  std::vector<ConfigProblem> problems;
  for (const Transport transport : {Transport::nccl, Transport::gloo_cuda}) {
    int most = 1;
    for (const PlannedRun& run : plan.runs) {
      if (run.config.transport == transport && (all || !run.reused)) most = std::max(most, processes_of(run.config));
    }
    // A program that is not there, or cannot be loaded, is told by whoever starts it.
    if (most == 1 || ::access(rank_program.c_str(), X_OK) != 0 || !library_problem(rank_program).empty()) continue;
    const std::string problem = transport_problem(rank_program, transport, here ? most : 0);
    if (!problem.empty()) problems.push_back({plan.matrix.file, 0, 0, "backend " + std::string(word_of(transport)) + ": " + problem, ""});
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

}  // namespace lockstep
