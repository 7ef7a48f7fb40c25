// A run goes on from each of its steps, once and twice in a row.

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>

#include "harness/base/errors.h"
#include "harness/lib/checkpoint/survey.h"
#include "harness/suites/checkpoint/trainer/experiment.h"
#include "harness/suites/checkpoint/trainer/judge.h"
#include "harness/verdict/config/trainer_spec.h"

namespace lockstep::restarts {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNames = "resume:names";
constexpr int64_t kResumeFurther = 10;  ///< steps that are compared with the run that was never stopped
constexpr int64_t kBetween = 3;   ///< steps between two stops in a row

class Resumes : public Experiment {
 public:
  explicit Resumes(const Subject& subject) : subject_(subject) {}

  std::vector<Trial> trials(Bench& bench) override {
    const int64_t steps = subject_.resume_steps + kBetween + kResumeFurther + 2;
    config_ = shaped(subject_.config, {2, steps, 1, static_cast<int>(steps) + 1, false, false});
    whole_ = reference(bench, "resumes", config_);
    std::vector<Trial> trials;
    for (int64_t step = 1; step <= subject_.resume_steps; ++step) {
      for (const int times : {1, 2}) {
        const std::string name = fmt::format("resume:step_{}:{}", step, times == 1 ? "once" : "twice");
        trials.push_back({name, times == 1 ? "resume" : "resume twice in a row", "every step", 0.6});
        planned_[name] = {step, times};
      }
    }
    trials.push_back({kNames, "names and pointers", "folder of checkpoints", 0.1});
    return trials;
  }

  std::vector<CaseResult> run(const Trial& trial, Bench& bench) const override {
    if (trial.name == kNames) return {named_right()};
    const auto [step, times] = planned_.at(trial.name);
    const std::string dir = stopped_at(step, bench);
    int64_t from = step;
    if (times == 2) {
      if (std::string problem = go_on(dir, from, from + kBetween, bench); !problem.empty())
        return {fault("resume fails", problem)};
      from = kept_in(dir).newest();
      if (from < step + kBetween - 1) {
        return {fault("lost work", fmt::format("stopped again after step {}, the newest checkpoint is of step {}",
                                               step + kBetween, from))};
      }
    }
    if (std::string problem = go_on(dir, from, from + kResumeFurther, bench); !problem.empty())
      return {fault("resume fails", problem)};
    const std::string difference = trace_difference_before(whole_, dir, config_.layout.world_size, from + kResumeFurther);
    if (!difference.empty())
      return {fault("other bits", fmt::format("a run that goes on at step {}: {}", from, difference))};
    return {good(fmt::format("{} further steps bit-equal", kResumeFurther))};
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements&) const override {
    return {{"steps at which a run was stopped", fmt::format("1 to {}, each once and twice in a row", subject_.resume_steps)},
            {"uninterrupted runs that agreed", "2 of 2, byte for byte"}};
  }

 private:
  /// Each checkpoint by its epoch and step, `latest` at the newest, and `best_model` at the best evaluation.
  CaseResult named_right() const {
    const std::string root = whole_ + "/checkpoints";
    const checkpoint::Survey found = checkpoint::survey(checkpoint::posix_storage(), root, true);
    if (static_cast<int64_t>(found.entries.size()) != config_.steps || !found.strangers.empty()) {
      return fault("other names", fmt::format("{} checkpoints and no stranger expected, found {} and {}", config_.steps,
                                              found.entries.size(), found.strangers.size()));
    }
    for (const checkpoint::Entry& entry : found.entries) {
      const auto epoch = entry.manifest.kinds.at(std::string(checkpoint::kind::sampler_epoch)).values.at("epoch").get<int64_t>();
      const std::string name = checkpoint::checkpoint_name(epoch, entry.manifest.step);
      if (entry.name != name) return fault("other names", fmt::format("{} expected, found {}", name, entry.name));
    }
    const auto points_to = [&](std::string_view pointer) {
      return checkpoint::read_pointer(checkpoint::posix_storage(), root, pointer).pointer.step;
    };
    if (points_to(checkpoint::kLatest) != config_.steps)
      return fault("latest is behind", fmt::format("step {} expected, found {}", config_.steps, points_to(checkpoint::kLatest)));
    if (const std::string problem = best_model_problem(whole_, config_); !problem.empty()) return fault("not the best", problem);
    return good("as documented");
  }

  struct Planned {
    int64_t step = 0;
    int times = 1;
  };

  /// What the uninterrupted run left when it had saved that step.
  std::string stopped_at(int64_t step, Bench& bench) const {
    std::string dir = bench.empty("run");
    fs::create_directories(dir + "/checkpoints");
    const std::string ending = fmt::format("_step_{}", step);
    for (const auto& entry : fs::directory_iterator(whole_ + "/checkpoints")) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("epoch_") && name.ends_with(ending))
        fs::copy(entry.path(), dir + "/checkpoints/" + name, fs::copy_options::recursive);
    }
    for (int rank = 0; rank < config_.layout.world_size; ++rank) fs::copy(trace_of(whole_, rank), trace_of(dir, rank));
    return dir;
  }

  /// Until every rank has finished that many steps; then all are killed. Returns what went wrong.
  std::string go_on(const std::string& dir, int64_t from, int64_t until, Bench& bench) const {
    const int64_t newest = kept_in(dir).newest();
    if (newest != from) return fmt::format("a checkpoint of step {} expected, the newest is of step {}", from, newest);
    bool reached = false;
    const Ended ended = bench.attempt(dir, config_, {}, [&](const Going& going) {
      // An evaluation is reported before its step ends.
      if (reached || going.fewest_steps() <= until) return;
      reached = true;
      going.signal_all(SIGKILL);
    });
    if (reached || ended.finished()) return "";
    return fmt::format("the run that goes on at step {} ends ({}): {}", from, ended.in_words(), result_of(dir, 0).error);
  }

  const Subject& subject_;
  RunConfig config_;
  std::string whole_;
  std::map<std::string, Planned> planned_;
};

}  // namespace

std::unique_ptr<Experiment> make_resumes(const Subject& subject) { return std::make_unique<Resumes>(subject); }

}  // namespace lockstep::restarts
