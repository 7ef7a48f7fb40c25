#include "harness/suites/launchers/launchers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <array>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/text.h"
#include "harness/suites/engine/kinds.h"
#include "harness/suites/engine/suite.h"
#include "harness/suites/launchers/answers.h"
#include "harness/suites/launchers/words.h"
#include "harness/verdict/config/field.h"

namespace lockstep {
namespace launchers {
namespace {

struct LaunchersConfig {
  int64_t most_nodes = 4;
  int64_t most_ranks_a_node = 8;
  bool planted = true;
};

#define LAUNCHERS(member, ...)                                                                          \
  Field<LaunchersConfig> {                                                                              \
    {"launchers." #member, __VA_ARGS__}, [](LaunchersConfig& c) -> FieldRef { return ref_to(c.member); } \
  }
constexpr Range kNodes{1, 128}, kRanks{1, 64};
const std::array kFields{
    LAUNCHERS(most_nodes, kNodes, "nodes", "every number of nodes from 1 to this one"),
    LAUNCHERS(most_ranks_a_node, kRanks, "ranks", "every number of ranks on a node from 1 to this one"),
    LAUNCHERS(planted, {}, "", "also plant the usual mistakes, each of which must be refused or named"),
};
#undef LAUNCHERS

constexpr int kDevices = 8;  ///< GPUs of a machine, of which a job may have been given some

std::vector<Placement> placements(const LaunchersConfig& config, bool uneven_too) {
  std::vector<Placement> all;
  for (int nodes = 1; nodes <= config.most_nodes; ++nodes) {
    for (int ranks = 1; ranks <= config.most_ranks_a_node; ++ranks) {
      Placement even{std::vector<int>(static_cast<std::size_t>(nodes), ranks)};
      all.push_back(even);
      if (!uneven_too || nodes == 1 || ranks == 1) continue;
      even.ranks_of_node.back() = 1;  // the last node takes what is left
      all.push_back(even);
      even.ranks_of_node.front() = ranks + 1;
      all.push_back(std::move(even));
    }
  }
  return all;
}

const ExternalStart& launcher_named(std::string_view name) { return *std::ranges::find(launchers(), name, &ExternalStart::name); }
const ExternalStart& torchrun() { return launcher_named("torchrun"); }

/// What is wrong with what a rank was mistaken for; empty: nothing.
std::string wrong(const Resolution& found, std::string_view launcher, const Placement& placement, int rank, bool one_a_node) {
  if (!found.chosen) return fmt::format("no rank: {}", fmt::join(found.problems, "; "));
  const RankEnvironment& c = *found.chosen;
  if (c.name != launcher) return fmt::format("reads {}'s", c.name);
  if (c.rank != rank || c.world != placement.world()) return fmt::format("reads rank {} of {}", c.rank, c.world);
  if (!one_a_node && c.local_rank != placement.local_rank_of(rank))
    return fmt::format("reads local rank {}, not {}", c.local_rank, placement.local_rank_of(rank));
  return "";
}

/// "9/16, 1, GPU 1".
std::string reading_of(const Resolution& found, int device) {
  if (!found.chosen) return "no rank";
  return fmt::format("{}/{}, {}, GPU {}", found.chosen->rank, found.chosen->world, found.chosen->local_rank, device);
}

/// One placement, and who tells its processes which rank they are.
struct Case {
  const Asked& asked;
  std::string_view launcher;  ///< whose words must be taken
  const Placement& placement;
  bool one_a_node = false;
};

/// Every rank of the placement; the first that is mistaken for another is the fault.
std::vector<Said> check(Cases& cases, Answers& answers, const Case& of, const std::function<Environment(const Placement&, int)>& says) {
  const Placement& placement = of.placement;
  std::set<std::pair<int, int>> devices;  // node and GPU
  std::vector<Said> all;
  Answer answer{placement.world(), 0};
  std::string outcome;
  for (int rank = 0; rank < placement.world(); ++rank) {
    const Resolution found = resolve_rank_environment(says(placement, rank), {});
    const std::string words = wrong(found, of.launcher, placement, rank, of.one_a_node);
    std::string sentence;
    if (!words.empty()) sentence = fmt::format("{}, {}: rank {} is {}", of.launcher, in_words(placement), rank, words);
    const int device = found.chosen ? device_of(found.chosen->local_rank, std::nullopt, kDevices) : -1;
    if (words.empty() && !of.one_a_node && placement.local_rank_of(rank) < kDevices && !devices.emplace(placement.node_of(rank), device).second)
      sentence = fmt::format("{}, {}: rank {} takes GPU {}, as another of its node does", of.launcher, in_words(placement), rank, device);
    all.push_back({reading_of(found, device), !sentence.empty()});
    if (sentence.empty()) continue;
    ++answer.wrong;
    if (!answer.first_wrong.empty()) continue;
    answer.first_wrong = sentence;
    outcome = words.empty() ? "a GPU twice" : "another rank";
  }
  answers.answered(of.asked, answer);
  if (answer.wrong == 0)
    cases.good();
  else
    cases.fault(outcome, answer.first_wrong);
  return all;
}

std::string one_word(std::string_view name) {
  std::string word(name);
  std::erase(word, ' ');
  return word;
}

/// `run` gets what is asked, too.
Trial planned(std::string name, Answers& answers, const Asked& asked, std::function<void(Cases&, const Asked&)> run) {
  answers.expect(asked);
  Trial planned;
  planned = {std::move(name), asked.question, asked.launcher, 0.05};
  planned.run = [run = std::move(run), asked](Slot&) {
    Cases cases;
    run(cases, asked);
    return cases.take();
  };
  return planned;
}

/// The GPU of the machine that index `device` is to a process which sees `visible` of them.
int physical(int device, const std::vector<int>& visible) {
  return device >= 0 && device < static_cast<int>(visible.size()) ? visible[static_cast<std::size_t>(device)] : -1;
}

std::vector<int> devices_from(int first, int count) {
  std::vector<int> devices;
  for (int k = 0; k < count; ++k) devices.push_back(first + k);
  return devices;
}

void check_devices(Cases& cases, Answers& answers, const Asked& asked) {
  for (int given = 1; given <= kDevices; ++given) {
    for (int first = 0; first + given <= kDevices; ++first) {
      const std::vector<int> of_job = devices_from(first, given);
      std::set<int> taken;
      Answer answer{given, 0};
      const auto fault = [&](std::string sentence) {
        ++answer.wrong;
        if (answer.first_wrong.empty()) answer.first_wrong = sentence;
        cases.fault("another GPU", std::move(sentence));
      };
      for (int local = 0; local < given; ++local) {
        taken.insert(physical(device_of(local, fmt::format("{}", fmt::join(of_job, ",")), kDevices), of_job));
        // A launcher that binds: the rank sees its own alone.
        const std::vector<int> own{first + local};
        if (physical(device_of(local, std::to_string(own[0]), kDevices), own) != own[0])
          fault(fmt::format("local rank {} was given GPU {} alone and takes another", local, own[0]));
      }
      if (taken == std::set<int>(of_job.begin(), of_job.end()))
        cases.good();
      else
        fault(fmt::format("{} ranks with GPUs {} take {}", given, fmt::join(of_job, ","), fmt::join(taken, ",")));
      answers.answered(asked, answer);
    }
  }
}

std::vector<Trial> trials_of_two(const LaunchersConfig& config, Answers& answers) {
  std::vector<Trial> all;
  all.push_back(planned("both:torchrun-in-step", answers, {"two that agree", "torchrun on each node of a Slurm step"},
                        [&config, &answers](Cases& cases, const Asked& asked) {
                          for (const Placement& placement : placements(config, false)) check(cases, answers, {asked, "torchrun", placement}, torchrun_inside_step);
                        }));
  all.push_back(planned("both:hooks", answers, {"two that agree", "a container's hooks set Open MPI's and torchrun's"},
                        [&config, &answers](Cases& cases, const Asked& asked) {
                          for (const Placement& placement : placements(config, true)) {
                            check(cases, answers, {asked, "torchrun", placement}, [](const Placement& p, int rank) {
                              Environment both = torchrun().says(p, rank);
                              both.merge(launcher_named("Open MPI").says(p, rank));
                              return both;
                            });
                          }
                        }));
  return all;
}

void check_batch_script(Cases& cases, Answers& answers, const Asked& asked, const Placement& placement) {
  const Resolution found = resolve_rank_environment(batch_script(placement), {});
  if (!found.chosen && found.problems.empty()) {
    cases.good();
    answers.answered(asked, {1, 0});
    return;
  }
  std::string sentence = fmt::format("a batch script of {} is mistaken for a rank", in_words(placement));
  answers.answered(asked, {1, 1, sentence});
  cases.fault("mistaken for a rank", std::move(sentence));
}

std::vector<Trial> clean_trials(const LaunchersConfig& config, Answers& answers) {
  std::vector<Trial> all;
  for (const ExternalStart& launcher : launchers()) {
    all.push_back(planned(one_word(launcher.name) + ":every-placement", answers, {"every launcher", std::string(launcher.name)},
                          [&config, &answers, &launcher](Cases& cases, const Asked& asked) {
                            for (const Placement& placement : placements(config, !launcher.one_a_node)) {
                              if (launcher.one_a_node && placement.ranks_of_node.front() != 1) continue;
                              check(cases, answers, {asked, launcher.name, placement, launcher.one_a_node}, launcher.says);
                            }
                          }));
    if (launcher.one_a_node) continue;
    all.push_back(planned(one_word(launcher.name) + ":two-of-eight", answers, {"two nodes of eight ranks", std::string(launcher.name)},
                          [&answers, &launcher](Cases& cases, const Asked& asked) {
                            const Placement placement{{8, 8}};
                            answers.answered_by_rank(asked.launcher, check(cases, answers, {asked, launcher.name, placement}, launcher.says));
                          }));
  }
  for (Trial& each : trials_of_two(config, answers)) all.push_back(std::move(each));
  all.push_back(planned("none:batch-script", answers, {"no rank", "a batch script without a step"}, [&config, &answers](Cases& cases, const Asked& asked) {
    for (const Placement& placement : placements(config, true)) check_batch_script(cases, answers, asked, placement);
  }));
  all.push_back(planned("devices:given", answers, {"devices", "by local rank, among those that it may see"},
                        [&answers](Cases& cases, const Asked& asked) { check_devices(cases, answers, asked); }));
  return all;
}

/// Two launchers of which the second says something else. `add`: large enough that neither could have started the other on each node.
void plant_conflicts(const LaunchersConfig& config, MutationCheck& check, const char* variable, int add) {
  for (const Placement& placement : placements(config, true)) {
    for (int rank = 0; rank < placement.world(); ++rank) {
      Environment both = torchrun().says(placement, rank), other = launcher_named("Slurm step").says(placement, rank);
      other[variable] = std::to_string(std::atoi(other[variable].c_str()) + add);
      if (variable == std::string("SLURM_PROCID")) other["SLURM_STEP_NUM_TASKS"] = std::to_string(placement.world() + add);
      both.merge(other);
      const Resolution found = resolve_rank_environment(both, {});
      check.saw(found.chosen || found.problems.empty() ? "" : "refused", found.problems.empty() ? "" : found.problems.front());
    }
  }
}

/// torchrun's variables without one of them.
void plant_halves(const LaunchersConfig& config, MutationCheck& check) {
  for (const Placement& placement : placements(config, false)) {
    for (const char* without : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
      Environment half = torchrun().says(placement, 0);
      half.erase(without);
      const Resolution found = resolve_rank_environment(half, {});
      const std::string words = fmt::format("{}", fmt::join(found.problems, "; "));
      check.saw(!found.chosen && words.find(without) != std::string::npos ? "refused" : "", words);
    }
  }
}

/// A job was given some of the machine's GPUs; its program deletes the variable that says which.
void plant_deleted_devices(MutationCheck& check) {
  for (int given = 1; given < kDevices; ++given) {
    for (int first = 1; first + given <= kDevices; ++first) {
      const std::vector<int> of_job = devices_from(first, given), of_machine = devices_from(0, kDevices);
      for (int local = 0; local < given; ++local) {
        const int kept = physical(device_of(local, fmt::format("{}", fmt::join(of_job, ",")), kDevices), of_job);
        const int taken = physical(device_of(local, std::nullopt, kDevices), of_machine);
        if (taken == kept) continue;
        const bool anothers = taken < first || taken >= first + given;
        check.saw("another GPU", fmt::format("the job was given GPUs {}; without CUDA_VISIBLE_DEVICES local rank {} takes GPU {}, {}",
                                            fmt::join(of_job, ","), local, taken,
                                            anothers ? "which is not the job's" : "which is another rank's"));
      }
    }
  }
}

/// A program with a number of processes written into it, under launchers that have another.
void plant_written_world(const LaunchersConfig& config, MutationCheck& check) {
  constexpr int kWritten = 8;
  for (const Placement& placement : placements(config, true)) {
    // With as many nodes the number could be meant of those, each of which starts its own ranks.
    if (placement.world() == kWritten || placement.nodes() == kWritten) continue;
    const Resolution found = resolve_rank_environment(torchrun().says(placement, 0), {"--rank", "0", "--world", std::to_string(kWritten)});
    check.saw(found.chosen || found.problems.empty() ? "" : "refused", found.problems.empty() ? "" : found.problems.front());
  }
}

std::vector<Trial> planted_trials(const LaunchersConfig& config) {
  return {planted_trial("other-rank", "two launchers name different ranks", "torchrun's and Slurm's variables", 0.1, {"refused"},
                        [&config](MutationCheck& check) { plant_conflicts(config, check, "SLURM_PROCID", 1); }),
          planted_trial("other-world", "two launchers name different numbers of ranks", "torchrun's and Slurm's variables", 0.1, {"refused"},
                        [&config](MutationCheck& check) { plant_conflicts(config, check, "SLURM_STEP_NUM_TASKS", 101); }),
          planted_trial("half", "a launcher says half of what it must", "torchrun's variables", 0.1, {"refused"},
                        [&config](MutationCheck& check) { plant_halves(config, check); }),
          planted_trial("deleted-devices", "the program deletes CUDA_VISIBLE_DEVICES", "a job with some of a machine's GPUs", 0.1,
                        {"another GPU"}, plant_deleted_devices),
          planted_trial("written-world", "the number of processes is written into the program", "8, and torchrun starts others", 0.1,
                        {"refused"}, [&config](MutationCheck& check) { plant_written_world(config, check); })};
}

class LaunchersSuite final : public Suite {
 public:
  explicit LaunchersSuite(const LaunchersConfig& config) : config_(config) {}
  std::string subject() const override { return "which rank each process takes itself for by its launcher's words, and which GPU"; }
  std::vector<std::string> plan() const override {
    return {fmt::format("{} placements of ranks on up to {}, as {} launchers say them", placements(config_, true).size(),
                        counted(config_.most_nodes, "node"), launchers().size())};
  }
  std::vector<Trial> trials(const SuiteRun&) override {
    answers_.emplace();
    std::vector<Trial> all = clean_trials(config_, *answers_);
    if (config_.planted) std::ranges::move(planted_trials(config_), std::back_inserter(all));
    return all;
  }
  std::vector<SuiteTable> tables(const Measurements& m) const override { return answers_ ? answers_->tables(m) : std::vector<SuiteTable>{}; }
  std::vector<std::string> notes(const Measurements&) const override {
    return {"Launchers are not run here: their variables are written as their documentation and runs of them have them. What they do where they are "
            "installed, the tests of launching see."};
  }

 private:
  const LaunchersConfig config_;
  std::optional<Answers> answers_;  ///< of the trials that are planned
};

std::unique_ptr<Suite> make(const SuiteSource& source, Problems& problems) {
  const std::size_t before = problems.size();
  LaunchersConfig config;
  read_fields<LaunchersConfig>(source, kFields, config, problems);
  if (problems.size() != before) return nullptr;
  return std::make_unique<LaunchersSuite>(config);
}

nlohmann::ordered_json schema() {
  const LaunchersConfig defaults;
  SchemaJson schema = object_schema();
  add_fields(schema, kFields, defaults);
  return schema;
}

}  // namespace
}  // namespace launchers

const SuiteKind& launchers_suite() {
  static const SuiteKind kKind{"launchers", "which rank and which GPU each process of a job takes, by the words of every launcher",
                                    &launchers::make, &launchers::schema, "starters"};
  return kKind;
}

}  // namespace lockstep
