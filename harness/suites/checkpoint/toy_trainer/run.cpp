#include "harness/suites/checkpoint/toy_trainer/run.h"

#include <csignal>
#include <memory>
#include <optional>
#include <thread>

#include "harness/base/errors.h"
#include "harness/lib/checkpoint/socket_group.h"

namespace lockstep::toy {

using checkpoint::Group;
using checkpoint::SaveOutcome;
using checkpoint::SaveRequest;

namespace {

class Run {
 public:
  Run(const RunOptions& options, checkpoint::Storage& storage, Group& training, Group& saving,
      const PreemptionSignals* signals)
      : options_(options),
        storage_(storage),
        training_(training),
        saving_(saving),
        signals_(signals),
        trainer_(options.config, training.rank(), training.size()) {
    if (signals != nullptr) preemption_.emplace(*signals, PreemptionOptions{.grace_s = options.grace_s});
  }

  RunEnd go() {
    at(Phase::start);
    end_.problem = load();
    if (end_.problem.empty()) train();
    end_.ended_at = trainer_.steps();
    end_.state = trainer_.whole_state();
    return std::move(end_);
  }

 private:
  void at(Phase phase) const {
    if (options_.on_phase) options_.on_phase(phase, trainer_.steps());
  }

  std::string load() {
    const checkpoint::State expected = trainer_.expected();
    checkpoint::LoadOptions from;
    from.root = options_.root;
    from.config_hash = "light";
    from.expected = &expected;
    from.fresh_start = true;
    from.deadline_s = options_.deadline_s;
    const checkpoint::LoadOutcome loaded = checkpoint::load(from, storage_, saving_);
    end_.refused = loaded.refused;
    if (loaded.loaded == checkpoint::Loaded::refused) return loaded.problem;
    if (loaded.loaded == checkpoint::Loaded::loaded) trainer_.restore(loaded);
    end_.began_at = trainer_.steps();
    return "";
  }

  /// Has this rank alone decided to end? A planted mistake.
  bool stops_alone() const {
    return options_.config.planted.stops_alone && signals_ != nullptr && signals_->first() != 0;
  }

  void train() {
    checkpoint::SaveOptions saves;
    saves.root = options_.root;
    saves.config_hash = "light";
    saves.keep_last = options_.keep_last;
    saves.deadline_s = options_.deadline_s;
    checkpoint::Saver saver(saves, storage_, saving_);
    while (trainer_.steps() < options_.until && !trainer_.out_of_patience() && end_.problem.empty()) {
      if (stops_alone()) {
        end_.exit_code = 128 + signals_->first();
        return;
      }
      if (step()) return end_preempted(saver);
      if (end_.problem.empty() && trainer_.steps() < options_.until &&
          checkpoint::due(trainer_.steps(), options_.save_every))
        save(saver);
    }
    if (end_.problem.empty() && options_.save_last) {
      save_last(saver);
    } else if (const std::optional<SaveOutcome> last = saver.wait()) {
      take(*last);
    }
  }

  /// True: the run is to end after this step.
  bool step() {
    at(Phase::step);
    StepOptions how;
    how.deadline_s = options_.deadline_s;
    how.on_evaluation = [this] { at(Phase::evaluation); };
    if (preemption_ && !options_.config.planted.stops_alone) how.tells = preemption_->tells();
    const StepDone done = trainer_.step(training_, how);
    end_.problem = done.problem;
    if (!done.problem.empty()) return false;
    if (options_.on_step) options_.on_step(done.record);
    return preemption_ && preemption_->heard(done.heard);
  }

  SaveRequest request() const { return {trainer_.epoch(), trainer_.steps(), trainer_.just_improved()}; }

  void take(const SaveOutcome& outcome) {
    if (!outcome && end_.problem.empty()) end_.problem = outcome.problem;
    if (outcome && options_.on_committed) options_.on_committed(outcome);
  }

  void save(checkpoint::Saver& saver) {
    at(Phase::save);
    if (options_.asynchronous) {
      if (const std::optional<SaveOutcome> earlier = saver.save_async(request(), trainer_.state())) take(*earlier);
    } else {
      take(saver.save(request(), trainer_.state()));
    }
    at(Phase::saved);
  }

  void save_last(checkpoint::Saver& saver) {
    at(Phase::last_save);
    if (!options_.asynchronous) return take(saver.save(request(), trainer_.state()));
    if (const std::optional<SaveOutcome> earlier = saver.save_async(request(), trainer_.state())) take(*earlier);
    if (const std::optional<SaveOutcome> last = saver.wait()) take(*last);
  }

  void end_preempted(checkpoint::Saver& saver) {
    if (options_.config.planted.default_on_second) {
      for (const int number : {SIGTERM, SIGUSR1}) std::signal(number, SIG_DFL);
    }
    at(Phase::last_save);
    take(save_before_exit(saver, request(), trainer_.state()));
    end_.in_grace = preemption_->left_s() > 0;
    end_.exit_code = preemption_->exit_code();
  }

  const RunOptions& options_;
  checkpoint::Storage& storage_;
  Group &training_, &saving_;
  const PreemptionSignals* signals_;
  Trainer trainer_;
  std::optional<Preemption> preemption_;
  RunEnd end_;
};

}  // namespace

RunEnd run_rank(const RunOptions& options, checkpoint::Storage& storage, Group& training, Group& saving,
                const PreemptionSignals* signals) {
  return Run(options, storage, training, saving, signals).go();
}

std::vector<RunEnd> run_threads(const RunOptions& options, int ranks, checkpoint::Storage& storage,
                                const std::function<void(int, const StepRecord&)>& on_step) {
  const auto training = checkpoint::make_socket_groups(ranks), saving = checkpoint::make_socket_groups(ranks);
  std::vector<RunEnd> ends(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    threads.emplace_back([&, rank] {
      RunOptions own = options;
      if (on_step) own.on_step = [&, rank](const StepRecord& record) { on_step(static_cast<int>(rank), record); };
      ends[rank] = run_rank(own, storage, *training[rank], *saving[rank], nullptr);
      training[rank]->close();
      saving[rank]->close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

}  // namespace lockstep::toy
