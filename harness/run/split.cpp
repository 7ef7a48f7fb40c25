#include "harness/run/split.h"

#include <algorithm>
#include <iterator>

#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/run/launchers/command/launcher.h"
#include "harness/run/launchers/external/launcher.h"
#include "harness/run/launchers/local/launcher.h"
#include "harness/run/launchers/slurm/agents.h"
#include "harness/run/libraries.h"
#include "harness/run/probe.h"
#include "harness/run/rank_environment.h"

namespace lockstep {
namespace {

constexpr double kTurn_s = 0.02;  ///< while both have runs neither is waited for longer

}  // namespace

SplitLauncher::SplitLauncher(Make make_single, Make make_ranks)
    : single_{std::move(make_single), nullptr}, ranks_{std::move(make_ranks), nullptr} {}

Launcher& SplitLauncher::Half::get() {
  if (launcher == nullptr) {
    launcher = make();
    made_at = monotonic_s();
  }
  return *launcher;
}

void SplitLauncher::start(const RankStart& what) {
  if (what.processes == 1) of_one_process_.insert(what.run);
  (what.processes == 1 ? single_ : ranks_).get().start(what);
}

void SplitLauncher::stop(const std::string& run, int signal) {
  Half& half = of_one_process_.contains(run) ? single_ : ranks_;
  if (half.launcher != nullptr) half.launcher->stop(run, signal);
}

void SplitLauncher::take(Half& half, double wait_s, std::vector<LauncherEvent>& events) {
  if (half.launcher == nullptr) return;
  for (LauncherEvent& event : half.launcher->poll(wait_s)) {
    if (event.kind == LauncherEvent::Kind::ready)
      half.ready = true;
    else
      events.push_back(std::move(event));
  }
  if (!half.ready && monotonic_s() - half.made_at > kLoadDeadline_s)
    throw MachineError("the rank program has not loaded within " + std::to_string(static_cast<int>(kLoadDeadline_s)) + " s");
}

std::vector<LauncherEvent> SplitLauncher::poll(double wait_s) {
  std::vector<LauncherEvent> events;
  if (!told_ready_) {
    told_ready_ = true;
    events.emplace_back();
    return events;
  }
  const bool both = single_.launcher != nullptr && ranks_.launcher != nullptr;
  const double until = monotonic_s() + std::max(wait_s, 0.0);
  do {
    const double left_s = std::max(0.0, until - monotonic_s());
    take(single_, both ? std::min(left_s, kTurn_s) : left_s, events);
    take(ranks_, both ? 0 : left_s, events);
  } while (both && events.empty() && monotonic_s() < until);
  return events;
}

void SplitLauncher::shut_down(double deadline_s) {
  for (Half* half : {&single_, &ranks_})
    if (half->launcher != nullptr) half->launcher->shut_down(deadline_s);
}

std::function<std::unique_ptr<Launcher>()> command_launcher_maker(const LauncherChoice& choice) {
  if (choice.kind == LauncherChoice::Kind::slurm)
    throw ConfigError("launcher slurm: a command is started by local, torchrun, openmpi, mpich or srun; or it starts its own job and waits for it");
  std::vector<std::string> before;
  if (choice.kind == LauncherChoice::Kind::external) {
    // Up to where lockstep's own rank program would stand.
    const auto end = std::ranges::find(choice.words, "{rank_program}");
    if (end == choice.words.end()) throw ConfigError("launcher " + choice.name + ": lacks the word {rank_program}, in whose place the command stands");
    before.assign(choice.words.begin(), end);
    if (find_program(before.front()).empty()) throw ConfigError("launcher " + choice.name + ": there is no program " + before.front());
    before.front() = find_program(before.front());
  }
  return [probe = find_probe(), before] { return std::make_unique<CommandLauncher>(probe, before); };
}

std::function<std::unique_ptr<Launcher>()> launcher_maker(const LauncherChoice& choice, const std::string& rank_program,
                                                          const std::string& out_dir) {
  if (choice.kind == LauncherChoice::Kind::slurm) {
    const int nodes = nodes_of_job(current_environment());
    if (nodes == 0) throw ConfigError("launcher slurm: this process is in no job of Slurm");
    const Reach reach = is_whole_job(current_environment()) ? Reach::this_host : Reach::all_hosts;
    return [rank_program, out_dir, nodes, reach] {
      return std::make_unique<AgentLauncher>(rank_program, agents_by_srun(nodes), nodes, out_dir, reach);
    };
  }
  if (choice.kind != LauncherChoice::Kind::external) return nullptr;
  std::string install;
  for (const NamedLauncher& launcher : named_launchers())
    if (launcher.name == choice.name) install = launcher.install;
  if (find_program(choice.words.front()).empty()) {
    throw ConfigError("launcher " + choice.name + ": there is no program " + choice.words.front() +
                      (install.empty() ? "" : "; " + install));
  }
  return [rank_program, words = choice.words, install] {
    const auto local = [rank_program] { return std::make_unique<LocalLauncher>(rank_program); };
    const auto ranks = [rank_program, words, install] { return std::make_unique<ExternalLauncher>(rank_program, words, install); };
    return std::make_unique<SplitLauncher>(local, ranks);
  };
}

}  // namespace lockstep
