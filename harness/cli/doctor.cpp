#include "harness/cli/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <ostream>

#include "harness/base/clean_text.h"
#include "harness/base/errors.h"
#include "harness/cli/commands.h"
#include "harness/cli/doctor/node_checks.h"
#include "harness/cli/doctor/nodes.h"
#include "harness/run/host.h"
#include "harness/run/identity.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/libraries.h"

namespace lockstep {
namespace {

const char* word_of(Check::State state) {
  switch (state) {
    case Check::State::ok:
      return "ok";
    case Check::State::note:
      return "note";
    case Check::State::failed:
      return "not ok";
  }
  return "";
}

const char* colour_of(Check::State state) {
  switch (state) {
    case Check::State::ok:
      return "32";
    case Check::State::note:
      return "33";
    case Check::State::failed:
      return "31";
  }
  return "";
}

}  // namespace

std::string checks_text(const std::vector<Check>& checks, bool colour) {
  std::size_t width = 0;
  for (const Check& check : checks) width = std::max(width, check.name.size());
  std::string text;
  for (const Check& check : checks) {
    std::string word = fmt::format("{:<6}", word_of(check.state));
    if (colour) word = fmt::format("\x1b[{}m{}\x1b[0m", colour_of(check.state), word);
    text += fmt::format("{}  {:<{}}  {}\n", word, check.name, width, clean_line(check.text));
  }
  return text + (fit_to_run(checks) ? "fit to run\n" : "not fit to run: see above\n");
}

std::string checks_json(const std::vector<Check>& checks) {
  nlohmann::json list = nlohmann::json::array();
  for (const Check& check : checks) {
    list.push_back({{"name", check.name}, {"state", word_of(check.state)}, {"text", check.text}});
  }
  const nlohmann::json json = {{"checks", list}, {"fit_to_run", fit_to_run(checks)}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

bool fit_to_run(const std::vector<Check>& checks) {
  return std::none_of(checks.begin(), checks.end(),
                      [](const Check& c) { return c.state == Check::State::failed; });
}

namespace {

int print(const std::vector<Check>& checks, const DoctorOptions& options, const Console& console) {
  console.out << (options.json ? clean_json(checks_json(checks)) : checks_text(checks, console.out_colour));
  return fit_to_run(checks) ? kExitAsExpected : kExitMachine;
}

/// The same command once on each node of this job, as a step of it. Returns only by throwing.
[[noreturn]] void become_step(const DoctorOptions& options, const Environment& environment) {
  const auto nodes = environment.find("SLURM_JOB_NUM_NODES");
  const std::string count = nodes == environment.end() ? "1" : nodes->second;
  std::vector<std::string> words{"srun", "--nodes=" + count, "--ntasks=" + count, "--ntasks-per-node=1", "--overlap", "--mem=0", "--cpu-bind=none", "--mpi=none",
                                 "--input=none", program_path(), "doctor", "--nodes", "--out", options.out};
  if (options.json) words.emplace_back("--json");
  std::vector<char*> arguments = pointers_to(words);
  ::execvp(arguments.front(), arguments.data());
  throw MachineError(fmt::format("doctor --nodes: srun cannot be started inside job {}: {}; in a container, bind Slurm's programs and munge's socket", batch_job(environment),
                                 std::strerror(errno)));
}

/// Which rank is this process, by whatever started it? Throws ConfigError.
RankEnvironment own_rank(const Environment& environment) {
  const Resolution found = resolve_rank_environment(environment, {});
  if (found.chosen) return *found.chosen;
  throw ConfigError(found.problems.empty()
                        ? std::string("doctor --nodes: this process is in no job; give it one: salloc -N2 lockstep doctor --nodes --out DIR, or mpirun -N 1 lockstep doctor "
                                      "--nodes --out DIR, or torchrun --no-python lockstep doctor --nodes --out DIR on each node")
                        : fmt::format("doctor --nodes: {}", fmt::join(found.problems, "; ")));
}

NodeReport own_report(const DoctorOptions& options) {
  const NodeFacts facts = see_node(options.out, rank_program_path(), false);
  const char* const of_slurm = std::getenv("SLURMD_NODENAME");
  NodeReport mine;
  mine.node = of_slurm != nullptr ? of_slurm : this_host().host;
  mine.driver = facts.driver;
  mine.settings = facts.settings;
  mine.checks = machine_checks(options.out);
  for (Check& check : node_checks(facts)) {
    if (check.name != "clocks") mine.checks.push_back(std::move(check));  // they are compared when all have met
  }
  return mine;
}

int doctor_of_nodes(const DoctorOptions& options, const Console& console) {
  const Environment environment = current_environment();
  if (!batch_job(environment).empty()) become_step(options, environment);
  const RankEnvironment rank = own_rank(environment);
  NodeReport mine = own_report(options);
  const std::string node = mine.node;
  try {
    const std::vector<NodeReport> reports = meet_nodes(options.out + "/.lockstep-doctor", rank, std::move(mine));
    return reports.empty() ? kExitAsExpected : print(checks_of_nodes(reports), options, console);
  } catch (const RendezvousError& error) {
    // Whoever waited in vain says so: rank 0 in its place among the checks, another where its node cannot be read by rank 0.
    std::vector<Check> checks{{Check::State::failed, "nodes", fmt::format("{}: {} Every node must see {}: give --out a folder that they share", node, error.what(), options.out)}};
    if (rank.rank == 0) return print(checks, options, console);
    console.err << clean_text(checks_text(checks, false));
    return kExitMachine;
  }
}

}  // namespace

int doctor_command(const DoctorOptions& options, const Console& console) {
  if (options.nodes) return doctor_of_nodes(options, console);
  std::vector<Check> checks = machine_checks(options.out);
  for (Check& check : node_checks(see_node(options.out, rank_program_path(), true))) checks.push_back(std::move(check));
  const std::string problem = problem_of_surroundings();
  checks.push_back(problem.empty() ? all_reduce_check(rank_program_path()) : Check{Check::State::failed, "surroundings", problem});
  return print(checks, options, console);
}

}  // namespace lockstep
