#include "harness/run/rank_environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include "harness/base/text.h"

namespace lockstep {
namespace {

/// Steps of Slurm's own have numbers up here: the batch script, an interactive shell, external processes.
constexpr long kFirstSpecialStep = 0xfffffff0L;

bool number_of(const std::string& text, int& value) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && at == end && value >= 0;
}

std::string upto_colon(const std::string& text) { return text.substr(0, text.rfind(':')); }

/// Takes variables for one rank environment, and keeps what was found, what lacks and what is wrong.
class Reading {
 public:
  Reading(const Environment& environment, const char* name) : environment_(environment) { seen_.rank_environment.name = name; }

  bool has(const char* variable) const { return environment_.contains(variable); }
  bool any_of(std::span<const char* const> variables) const {
    return std::any_of(variables.begin(), variables.end(), [this](const char* each) { return has(each); });
  }

  /// Nothing, or the text of the first of these that is set.
  std::string text(std::initializer_list<const char*> variables) {
    for (const char* variable : variables) {
      const auto found = environment_.find(variable);
      if (found == environment_.end()) continue;
      seen_.variables.push_back(found->first + "=" + found->second);
      return found->second;
    }
    return "";
  }

  void may(int& value, std::initializer_list<const char*> variables) { number(value, variables, false); }
  void must(int& value, std::initializer_list<const char*> variables) { number(value, variables, true); }
  void must_say(std::string& value, std::initializer_list<const char*> variables) {
    value = text(variables);
    if (value.empty()) seen_.lacks.push_back(*variables.begin());
  }

  RankEnvironment& rank_environment() { return seen_.rank_environment; }
  RankEnvironmentSeen done() {
    const RankEnvironment& c = seen_.rank_environment;
    if (c.world == 0) seen_.wrong.push_back("a world of 0 ranks");
    if (c.world > 0 && c.rank >= c.world)
      seen_.wrong.push_back(fmt::format("rank {} of a world of {}: the last one is {}", c.rank, c.world, c.world - 1));
    if (c.local_world > 0 && c.local_rank >= c.local_world)
      seen_.wrong.push_back(fmt::format("local rank {} of {} on its node", c.local_rank, c.local_world));
    return std::move(seen_);
  }

 private:
  void number(int& value, std::initializer_list<const char*> variables, bool needed) {
    const std::string found = text(variables);
    if (found.empty()) {
      if (needed) seen_.lacks.push_back(*variables.begin());
      return;
    }
    if (!number_of(found, value)) {
      value = -1;
      seen_.wrong.push_back(seen_.variables.back() + " is no whole number from 0 up");
    }
  }

  const Environment& environment_;
  RankEnvironmentSeen seen_;
};

using Seen = std::optional<RankEnvironmentSeen>;

/// HOST:PORT, or the path of a file.
void set_rendezvous(RankEnvironment& rank_environment, const std::string& text) {
  const std::size_t colon = text.rfind(':');
  int port = 0;
  if (colon != std::string::npos && text.find('/') == std::string::npos && number_of(text.substr(colon + 1), port)) {
    rank_environment.address = upto_colon(text);
    rank_environment.port = port;
  } else {
    rank_environment.file = text;
  }
}

Seen of_lockstep(const Environment& environment) {
  Reading read(environment, "lockstep");
  // The world's size alone belongs to Kubernetes, which does not say it.
  if (!read.any_of(std::array{"LOCKSTEP_RANK_ID", "LOCKSTEP_LOCAL_RANK"})) return std::nullopt;
  RankEnvironment& c = read.rank_environment();
  read.must(c.rank, {"LOCKSTEP_RANK_ID"});
  read.must(c.world, {"LOCKSTEP_WORLD_SIZE"});
  read.may(c.local_rank, {"LOCKSTEP_LOCAL_RANK"});
  read.may(c.local_world, {"LOCKSTEP_LOCAL_WORLD_SIZE"});
  read.may(c.node, {"LOCKSTEP_NODE"});
  if (const std::string place = read.text({"LOCKSTEP_RENDEZVOUS"}); !place.empty()) set_rendezvous(c, place);
  c.start = read.text({"LOCKSTEP_START"});
  return read.done();
}

Seen of_torchrun(const Environment& environment) {
  Reading read(environment, "torchrun");
  if (!read.any_of(std::array{"RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"})) return std::nullopt;
  RankEnvironment& c = read.rank_environment();
  read.must(c.rank, {"RANK"});
  read.must(c.world, {"WORLD_SIZE"});
  // Some platforms set RANK and WORLD_SIZE of nodes: without a local rank they are not torchrun's.
  read.must(c.local_rank, {"LOCAL_RANK"});
  read.may(c.local_world, {"LOCAL_WORLD_SIZE"});
  read.may(c.node, {"GROUP_RANK"});
  read.must_say(c.address, {"MASTER_ADDR"});
  read.must(c.port, {"MASTER_PORT"});
  int restarts = 0;
  read.may(restarts, {"TORCHELASTIC_RESTART_COUNT"});
  c.restarts = std::max(restarts, 0);
  c.start = fmt::format("{} {}:{} {}", read.text({"TORCHELASTIC_RUN_ID"}), c.address, c.port, c.restarts);
  return read.done();
}

bool in_step(const Environment& environment) {
  const auto step = environment.find("SLURM_STEP_ID");
  if (step == environment.end() || !environment.contains("SLURM_PROCID")) return false;
  long number = 0;
  const char* const end = step->second.data() + step->second.size();
  const auto [at, error] = std::from_chars(step->second.data(), end, number);
  return error == std::errc() && at == end && number >= 0 && number < kFirstSpecialStep;
}

Seen of_slurm(const Environment& environment) {
  if (!in_step(environment)) return std::nullopt;
  Reading read(environment, "Slurm step");
  RankEnvironment& c = read.rank_environment();
  read.must(c.rank, {"SLURM_PROCID"});
  // Of the step first: SLURM_NTASKS may be the job's.
  read.must(c.world, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"});
  read.may(c.local_rank, {"SLURM_LOCALID"});
  read.may(c.node, {"SLURM_NODEID"});
  c.local_world = tasks_of_node(read.text({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}), c.node);
  c.address = first_host(read.text({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}));
  int restarts = 0;
  read.may(restarts, {"SLURM_RESTART_COUNT"});
  c.restarts = std::max(restarts, 0);
  c.start = fmt::format("{}.{} {}", read.text({"SLURM_JOB_ID", "SLURM_JOBID"}), read.text({"SLURM_STEP_ID"}), c.restarts);
  return read.done();
}

Seen of_open_mpi(const Environment& environment) {
  Reading read(environment, "Open MPI");
  if (!read.any_of(std::array{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"})) return std::nullopt;
  RankEnvironment& c = read.rank_environment();
  read.must(c.rank, {"OMPI_COMM_WORLD_RANK"});
  read.must(c.world, {"OMPI_COMM_WORLD_SIZE"});
  read.may(c.local_rank, {"OMPI_COMM_WORLD_LOCAL_RANK"});
  read.may(c.local_world, {"OMPI_COMM_WORLD_LOCAL_SIZE"});
  int process = -1;
  read.may(process, {"PMIX_RANK"});
  c.start = read.text({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  RankEnvironmentSeen seen = read.done();
  if (process >= 0 && process != c.rank)
    seen.wrong.push_back(fmt::format("PMIX_RANK={} is another rank than OMPI_COMM_WORLD_RANK={}", process, c.rank));
  return seen;
}

Seen of_pmi(const Environment& environment) {
  Reading read(environment, "PMI");
  const bool pmix_alone = read.has("PMIX_RANK") && !read.has("OMPI_COMM_WORLD_RANK") && !in_step(environment);
  if (!pmix_alone && !read.any_of(std::array{"PMI_RANK", "PMI_SIZE"})) return std::nullopt;
  RankEnvironment& c = read.rank_environment();
  read.must(c.rank, {"PMI_RANK", "PMIX_RANK"});
  read.must(c.world, {"PMI_SIZE"});
  read.may(c.local_rank, {"MPI_LOCALRANKID"});
  read.may(c.local_world, {"MPI_LOCALNRANKS"});
  c.start = read.text({"PMI_ID", "PMIX_NAMESPACE"});
  return read.done();
}

Seen of_kubernetes(const Environment& environment) {
  Reading read(environment, "Kubernetes");
  if (!read.has("JOB_COMPLETION_INDEX")) return std::nullopt;
  RankEnvironment& c = read.rank_environment();
  int index = -1, job = 0, completions = -1;
  read.must(index, {"JOB_COMPLETION_INDEX"});
  read.must(c.world, {"LOCKSTEP_WORLD_SIZE"});
  if (read.has("LOCKSTEP_JOB_INDEX")) {  // a JobSet of several jobs: each counts its pods from 0
    read.must(job, {"LOCKSTEP_JOB_INDEX"});
    read.must(completions, {"LOCKSTEP_JOB_COMPLETIONS"});
  }
  c.rank = index < 0 ? -1 : std::max(job, 0) * std::max(completions, 0) + index;
  c.local_rank = 0;  // a pod is a node of its own
  c.local_world = 1;
  c.node = c.rank;
  c.start = read.text({"JOBSET_RESTART_ATTEMPT"});
  return read.done();
}

struct Known {
  const char* name;
  Seen (*read)(const Environment&);
};
constexpr Known kKnown[] = {{"lockstep", of_lockstep}, {"torchrun", of_torchrun}, {"Slurm step", of_slurm},
                            {"Open MPI", of_open_mpi}, {"PMI", of_pmi},           {"Kubernetes", of_kubernetes}};

/// What the command line says, as variables, so that one reader does.
struct Spoken {
  std::optional<RankEnvironmentSeen> rank_environment;
  std::string only;
  std::vector<std::string> problems;
};

Spoken spoken(const std::vector<std::string>& arguments) {
  static const std::map<std::string, const char*> kOptions = {{"--rank", "LOCKSTEP_RANK_ID"},
                                                              {"--world", "LOCKSTEP_WORLD_SIZE"},
                                                              {"--local-rank", "LOCKSTEP_LOCAL_RANK"},
                                                              {"--rendezvous", "LOCKSTEP_RENDEZVOUS"}};
  Spoken said;
  Environment as_variables;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto option = kOptions.find(arguments[i]);
    if (option == kOptions.end() && arguments[i] != "--environment" && arguments[i] != "--contract") continue;  // the second: its name until 0.1
    if (i + 1 == arguments.size()) {
      said.problems.push_back(arguments[i] + " needs a value");
      break;
    }
    const std::string& value = arguments[++i];
    if (option != kOptions.end()) {
      as_variables[option->second] = value;
      continue;
    }
    said.only = value;
    const std::vector<std::string> names = rank_environment_names();
    if (std::find(names.begin(), names.end(), value) != names.end()) continue;
    const std::vector<std::string_view> views(names.begin(), names.end());
    const std::string near(nearest(value, views));
    said.problems.push_back(fmt::format("--environment '{}' is unknown{}; known are {}", value,
                                        near.empty() ? "" : "; did you mean '" + near + "'?", fmt::join(names, ", ")));
  }
  if (as_variables.empty()) return said;
  if (auto seen = of_lockstep(as_variables)) {
    seen->rank_environment.name = "command line";
    said.rank_environment = std::move(seen);
  } else {
    said.problems.push_back("--world and --rendezvous go with --rank");
  }
  return said;
}

bool differ(int a, int b) { return a >= 0 && b >= 0 && a != b; }

/// One process of `outer` on each node has started the ranks of `inner` there: torchrun or mpirun under srun.
bool stands_inside(const RankEnvironment& inner, const RankEnvironment& outer) {
  return inner.local_world > 1 && inner.world == outer.world * inner.local_world &&
         inner.rank / inner.local_world == outer.rank;
}

bool agree(const RankEnvironment& a, const RankEnvironment& b) {
  if (a.rank == b.rank && a.world == b.world)
    return !differ(a.local_rank, b.local_rank) && !differ(a.local_world, b.local_world);
  return stands_inside(a, b) || stands_inside(b, a);
}

/// What the chosen one leaves open and another says of the same ranks.
void fill(RankEnvironment& chosen, const RankEnvironment& other) {
  if (chosen.world != other.world) return;
  for (int RankEnvironment::* field : {&RankEnvironment::local_rank, &RankEnvironment::local_world, &RankEnvironment::node})
    if (chosen.*field < 0) chosen.*field = other.*field;
  if (chosen.address.empty() && chosen.file.empty()) {
    chosen.address = other.address;
    chosen.port = other.port;
  }
}

std::string half_text(const RankEnvironmentSeen& seen) {
  std::string text = fmt::format("{} is half a rank environment: it says {}", seen.rank_environment.name, fmt::join(seen.variables, ", "));
  if (!seen.lacks.empty()) text += fmt::format("; missing: {}", fmt::join(seen.lacks, ", "));
  if (!seen.wrong.empty()) text += fmt::format("; {}", fmt::join(seen.wrong, "; "));
  return text;
}

}  // namespace

Environment current_environment() {
  Environment result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

std::vector<std::string> rank_environment_names() {
  std::vector<std::string> names;
  for (const Known& known : kKnown) names.emplace_back(known.name);
  return names;
}

Resolution resolve_rank_environment(const Environment& environment, const std::vector<std::string>& arguments) {
  Resolution result;
  Spoken said = spoken(arguments);
  result.problems = std::move(said.problems);
  if (said.rank_environment) result.seen.push_back(*std::move(said.rank_environment));
  for (const Known& known : kKnown) {
    if (auto seen = known.read(environment)) result.seen.push_back(*std::move(seen));
  }
  const auto counts = [&](const RankEnvironmentSeen& seen) {
    return said.only.empty() || seen.rank_environment.name == said.only || seen.rank_environment.name == "command line";
  };
  const RankEnvironmentSeen* first = nullptr;
  for (const RankEnvironmentSeen& seen : result.seen) {
    if (!counts(seen)) continue;
    // A rank environment with a value that is none is a mistake, whoever else is there.
    if (!seen.wrong.empty()) result.problems.push_back(half_text(seen));
    if (!seen.whole()) continue;
    if (first == nullptr) {
      first = &seen;
    } else if (!agree(first->rank_environment, seen.rank_environment)) {
      result.problems.push_back(fmt::format("{} says rank {} of {}, and {} says rank {} of {}", first->rank_environment.name,
                                            first->rank_environment.rank, first->rank_environment.world, seen.rank_environment.name,
                                            seen.rank_environment.rank, seen.rank_environment.world));
    }
  }
  for (const RankEnvironmentSeen& seen : result.seen) {
    if (!counts(seen) || seen.lacks.empty() || !seen.wrong.empty()) continue;
    (first == nullptr ? result.problems : result.notes).push_back(half_text(seen));
  }
  if (const std::string job = batch_job(environment); !job.empty()) {
    result.notes.push_back(fmt::format("inside Slurm job {}, and in no step of it: SLURM_PROCID and SLURM_NTASKS are the "
                                       "batch script's, and make no rank", job));
  }
  if (first == nullptr && !said.only.empty() && result.problems.empty())
    result.problems.push_back(fmt::format("--environment '{}': nothing of it is set", said.only));
  if (first == nullptr || !result.problems.empty()) return result;
  result.chosen = first->rank_environment;
  for (const RankEnvironmentSeen& seen : result.seen) {
    if (counts(seen) && seen.whole()) fill(*result.chosen, seen.rank_environment);
  }
  return result;
}

std::string rank_environment_table(const Resolution& resolution) {
  const auto or_dash = [](int value) { return value < 0 ? std::string("-") : std::to_string(value); };
  std::string text = fmt::format("  {:<13} {:>5} {:>6} {:>6} {:>5}  {}\n", "environment", "rank", "world", "local", "node", "seen");
  for (const RankEnvironmentSeen& seen : resolution.seen) {
    const RankEnvironment& c = seen.rank_environment;
    text += fmt::format("  {:<13} {:>5} {:>6} {:>6} {:>5}  {}\n", c.name, or_dash(c.rank), or_dash(c.world),
                        or_dash(c.local_rank), or_dash(c.node), fmt::join(seen.variables, " "));
  }
  return text;
}

std::string batch_job(const Environment& environment) {
  const auto job = environment.find("SLURM_JOB_ID");
  if (job == environment.end() || in_step(environment)) return "";
  return job->second;
}

bool is_rank_variable(std::string_view variable) {
  constexpr std::array<std::string_view, 13> kNames = {"RANK",        "WORLD_SIZE",    "LOCAL_RANK",   "LOCAL_WORLD_SIZE", "GROUP_RANK",
                                                       "MASTER_ADDR", "MASTER_PORT",   "SLURM_PROCID", "SLURM_LOCALID",    "SLURM_NODEID",
                                                       "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "JOB_COMPLETION_INDEX"};
  constexpr std::array<std::string_view, 15> kBeginnings = {"PET_",  "TORCHELASTIC_", "OMPI_COMM_WORLD_", "OMPI_MCA_ess_", "OMPI_MCA_orte_",
                                                           "OMPI_UNIVERSE_", "OMPI_APP_",       "PMIX_",         "PMI_",  "ROLE_",
                                                           "GROUP_WORLD", "SLURM_STEP", "SLURM_TASK_", "LOCKSTEP_RANK_", "LOCKSTEP_LOCAL_"};
  const auto begins = [variable](std::string_view beginning) { return variable.starts_with(beginning); };
  return std::find(kNames.begin(), kNames.end(), variable) != kNames.end() ||
         std::any_of(kBeginnings.begin(), kBeginnings.end(), begins);
}

std::string first_host(const std::string& list) {
  const std::size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || (comma != std::string::npos && comma < bracket)) return list.substr(0, comma);
  const std::size_t end = list.find_first_of(",-]", bracket);
  if (end == std::string::npos) return list;
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1);
}

int tasks_of_node(const std::string& list, int index) {
  if (index < 0) return -1;
  std::size_t at = 0;
  while (at < list.size()) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    const std::string item = list.substr(at, comma - at);
    const std::size_t times = item.find("(x");
    int tasks = 0, nodes = 1;
    if (!number_of(item.substr(0, times), tasks)) return -1;
    if (times != std::string::npos && !number_of(item.substr(times + 2, item.size() - times - 3), nodes)) return -1;
    if (index < nodes) return tasks;
    index -= nodes;
    at = comma + 1;
  }
  return -1;
}

int device_of(int local_rank, const std::optional<std::string>& visible, int devices_of_machine) {
  int count = devices_of_machine;
  if (visible) {
    // CUDA stops reading at the first entry that is none.
    count = 0;
    std::size_t at = 0;
    while (at < visible->size()) {
      const std::size_t comma = std::min(visible->find(',', at), visible->size());
      const std::string item = visible->substr(at, comma - at);
      if (item.empty() || item[0] == '-') break;
      ++count;
      at = comma + 1;
    }
  }
  if (count <= 0) return -1;
  return std::max(local_rank, 0) % count;
}

}  // namespace lockstep
