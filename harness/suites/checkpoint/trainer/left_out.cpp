// A kind of state that a save leaves out, or that a load does not put back: the run must say which. And what becomes of a
// run in which nobody looks: which kinds its further bits stand on.

#include <fmt/format.h>

#include <array>
#include <csignal>
#include <map>

#include "harness/base/errors.h"
#include "harness/lib/checkpoint/sampler_position.h"
#include "harness/lib/checkpoint/survey.h"
#include "harness/suites/checkpoint/trainer/experiment.h"
#include "harness/suites/checkpoint/trainer/judge.h"

namespace lockstep::restarts {
namespace {

constexpr int64_t kLeftOutSteps = 80, kLeftOutEvery = 2, kLeftOutFurther = 6;
/// What a load holds against the config and puts nowhere: between two steps it is always the same.
constexpr std::array<std::string_view, 3> kDerived{checkpoint::kind::accumulation, checkpoint::kind::sampler_permutation,
                                                   checkpoint::kind::cached_controls};

class LeftOut : public Experiment {
 public:
  explicit LeftOut(const Subject& subject) : subject_(subject) {}

  std::vector<Trial> trials(Bench& bench) override {
    // Long enough to be in the second epoch, where the sampler's epoch counts.
    config_ = shaped(subject_.config, {2, kLeftOutSteps, kLeftOutEvery, 3, false, false});
    whole_ = reference(bench, "left_out-whole", config_);
    before_ = bench.empty("left_out");
    saved_after(before_, {}, bench, 0);
    std::vector<Trial> trials;
    for (const auto& [kind, entry] : newest_in(before_).kinds) {
      add("not saved", kind, trials);
      const bool same_anyway = std::ranges::find(kDerived, kind) != kDerived.end() ||
                               (kind == checkpoint::kind::best_metric && entry.values.value("step", -1) < 0);
      if (!same_anyway) {
        add("not put back", kind, trials);
        add("not put back, nobody looks", kind, trials);
      }
      ++kinds_;
    }
    return trials;
  }

  std::vector<CaseResult> run(const Trial& trial, Bench& bench) const override {
    const auto& [how, kind] = planned_.at(trial.name);
    std::string dir;
    Planted planted;
    if (how == "not saved") {
      planted.not_saved = kind;
      dir = bench.empty("run");
      saved_after(dir, planted, bench, kLeftOutEvery);
      planted = {};
    } else {
      dir = bench.copy(before_, "run");
      planted.not_restored = kind;
    }
    if (how == "not put back, nobody looks") return {unnoticed(kind, planted, dir, bench)};
    const int64_t newest = kept_in(dir).newest();
    const Ended ended = bench.attempt(dir, config_, planted, [newest](const Going& going) {
      if (going.most_steps() > newest) going.signal_all(SIGKILL);  // it has taken the state, and trains
    });
    const std::string words = checkpoint::words_of(kind), said = result_of(dir, 0).error;
    if (said.find(words + ":") != std::string::npos) return {good("refused, named")};
    if (said.empty())
      return {fault("silent", fmt::format("{} was {}, and the run went on ({})", words, how, ended.in_words()))};
    return {fault("another name", fmt::format("{} was {}; the run says: {}", words, how, said))};
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements&) const override {
    return {{"kinds of state that the trainer saves", std::to_string(kinds_)}};
  }

 private:
  struct Planned {
    std::string how, kind;
  };

  CaseResult unnoticed(const std::string& kind, Planted planted, const std::string& dir, Bench& bench) const {
    planted.unchecked = true;
    const int64_t until = kept_in(dir).newest() + kLeftOutFurther;
    const Ended ended = bench.attempt(dir, config_, planted, [until](const Going& going) {
      if (going.fewest_steps() > until) going.signal_all(SIGKILL);
    });
    if (const std::string said = result_of(dir, 0).error; !said.empty())
      return {"undecided", CaseVerdict::undecided, 1,
              fmt::format("{}: {} ({})", checkpoint::words_of(kind), said, ended.in_words())};
    const std::string difference = trace_difference_before(whole_, dir, 2, until);
    return good(difference.empty() ? std::string("same bits") : "other bits");
  }

  void add(const std::string& how, const std::string& kind, std::vector<Trial>& trials) {
    const char* const word = how == "not saved" ? "not_saved" : how == "not put back" ? "not_put_back" : "unnoticed";
    std::string name = fmt::format("left_out:{}:{}", word, kind);
    trials.push_back({name, how, checkpoint::words_of(kind), 0.5});
    planned_[name] = {how, kind};
  }

  checkpoint::Manifest newest_in(const std::string& dir) const {
    checkpoint::Survey found = checkpoint::survey(checkpoint::posix_storage(), dir + "/checkpoints", true);
    for (checkpoint::Entry& entry : found.entries) {
      if (entry.standing == checkpoint::Standing::whole) return entry.manifest;
    }
    throw ConfigError("a run of the trainer leaves no checkpoint: " + result_of(dir, 0).error);
  }

  /// Ends the run when a checkpoint stands; with `steps` 0 when one of the second epoch does.
  void saved_after(const std::string& dir, const Planted& planted, Bench& bench, int64_t steps) const {
    bench.attempt(dir, config_, planted, [&](const Going& going) {
      const int64_t reached = going.fewest_steps();
      if (reached <= kLeftOutEvery || (steps > 0 && reached <= steps)) return;
      if (steps == 0 && reached < config_.steps - 1 && newest_in(dir).epoch == 0) return;
      going.signal_all(SIGKILL);
    });
  }

  const Subject& subject_;
  RunConfig config_;
  std::string whole_, before_;
  std::map<std::string, Planned> planned_;
  int64_t kinds_ = 0;
};

}  // namespace

std::unique_ptr<Experiment> make_left_out(const Subject& subject) { return std::make_unique<LeftOut>(subject); }

}  // namespace lockstep::restarts
