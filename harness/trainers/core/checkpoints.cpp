#include "harness/trainers/core/checkpoints.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "harness/base/clock.h"
#include "harness/base/errors.h"
#include "harness/base/hex.h"
#include "harness/lib/checkpoint/names.h"
#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/trace/reader.h"

namespace lockstep {
namespace {

checkpoint::SaveOptions save_options(const RankContext& context, const CheckpointSetup& setup) {
  checkpoint::SaveOptions options;
  options.root = setup.root;
  options.config_hash = setup.config_hash;
  options.keep_last = context.config->checkpoint.keep;
  options.deadline_s = context.config->timeout_s;
  options.planted = setup.mistakes;
  return options;
}

const MetricSpec* metric_of(const RunConfig& config, const std::string& name) {
  for (const MetricSpec& metric : spec_of(config).metrics()) {
    if (metric.name == name) return &metric;
  }
  return nullptr;
}

}  // namespace

Checkpoints::Checkpoints(const RankContext& context, const CheckpointSetup& setup, Update& update, RankResult& result)
    : context_(context),
      setup_(setup),
      update_(update),
      result_(result),
      config_(context.config->checkpoint),
      deadline_s_(context.config->timeout_s),
      metric_(config_.best.empty() ? std::string(spec_of(*context.config).shown_metric) : config_.best),
      preemption_(*setup.signals, {.grace_s = config_.grace_s}),
      saver_(save_options(context, setup), *setup.storage, *setup.saving) {
  if (const MetricSpec* metric = metric_of(*context.config, metric_)) higher_is_better_ = metric->higher_is_better.value_or(true);
}

Checkpoints::~Checkpoints() = default;

TrainingParts Checkpoints::parts(BestEvaluation& best) {
  return {context_, update_, setup_.sampler, counters_, best, metric_, result_};
}

int64_t Checkpoints::find() {
  context_.heartbeat(0, "load");
  const checkpoint::State expected = training_state(parts(best_), false);
  checkpoint::LoadOptions options;
  options.root = setup_.root;
  options.config_hash = setup_.config_hash;
  options.expected = &expected;
  options.fresh_start = setup_.fresh_start;
  options.deadline_s = deadline_s_;
  loaded_ = checkpoint::load(options, *setup_.storage, *setup_.saving);
  CheckpointsOfRank& told = result_.checkpoints;
  told.remarks = loaded_.refused;
  told.remarks.insert(told.remarks.end(), loaded_.remarks.begin(), loaded_.remarks.end());
  if (!loaded_) throw std::runtime_error("no checkpoint can be gone on from: " + loaded_.problem);
  if (loaded_.loaded == checkpoint::Loaded::fresh) return 0;
  told.resumed_at = loaded_.manifest.step;
  told.resumed_from = loaded_.name;
  return loaded_.manifest.step;
}

void Checkpoints::restore() {
  lockstep::restore(parts(best_), loaded_, {setup_.not_restored, setup_.unchecked});
  loaded_.state = {};
  loaded_.of_ranks.clear();
  last_saved_ = result_.checkpoints.resumed_at;
  if (last_saved_ == 0) return;
  std::vector<std::string>& remarks = result_.checkpoints.remarks;
  if (best_.step >= 0 && loaded_.best_step != best_.step) {
    remarks.push_back(c10::str("the checkpoint of the best evaluation so far, step ", best_.step,
                               ", is not whole in this folder: best_model will name the best of those that stand or come"));
    best_ = {};
  }
  for (const std::string& left : saver_.finish_earlier()) remarks.push_back(left);
}

/// Returns why steps are missing, if the first missing one, `next`, is not `begin`.
std::string Checkpoints::copy_trace(int64_t begin, int64_t& next) {
  try {
    TraceReader earlier(setup_.trace);
    const TraceHeader& header = earlier.header();
    if (header.config_hash != result_.config_hash || header.world_size != result_.world_size)
      return setup_.trace + " is of another config or number of ranks";
    while (next < begin) {
      const std::optional<StepRecords> step = earlier.next();
      if (!step) return earlier.end();
      if (step->step < 0) continue;  // initial parameters, which this attempt has written
      context_.trace->copy(*step);
      next = step->step + 1;
    }
    return "";
  } catch (const TraceError& error) {
    return error.what();
  }
}

void Checkpoints::take_over_trace(int64_t begin) {
  if (!context_.trace->enabled()) return;
  int64_t next = 0;
  if (begin > 0) {
    const std::string problem = copy_trace(begin, next);
    if (next < begin) {
      result_.checkpoints.remarks.push_back(
          c10::str("the trace lacks steps ", next, " to ", begin - 1, " of the run: ", problem));
    }
  }
  std::error_code error;
  std::filesystem::rename(setup_.new_trace, setup_.trace, error);
  if (error) throw MachineError(setup_.trace + ": cannot be replaced: " + error.message());
}

bool Checkpoints::stops_at_begin() {
  if (!agree(result_.checkpoints.resumed_at, false)) return false;
  stop(result_.checkpoints.resumed_at);
  return true;
}

/// Each rank tells the signal that it got, rank 0 the metric that it alone measured. True: the run is to stop.
bool Checkpoints::agree(int64_t done, bool evaluated) {
  std::string mine = std::to_string(preemption_.tells());
  if (evaluated && context_.rank == 0) {
    const auto curve = result_.curves.find(metric_);
    if (curve != result_.curves.end() && curve->second.steps.back() == done)
      mine += " " + hex16(std::bit_cast<uint64_t>(curve->second.values.back()));
  }
  const checkpoint::Gathered all = setup_.agreeing->all_gather("after step " + std::to_string(done), mine, deadline_s_);
  if (!all) throw std::runtime_error("the ranks could not agree after step " + std::to_string(done) +
                                     ", lost its peer: " + all.problem);
  int signal = 0;
  for (const std::string& text : all.texts) {
    int number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    signal = std::max(signal, number);
  }
  const std::size_t space = all.texts[0].find(' ');
  if (space != std::string::npos)
    evaluated_ = {std::bit_cast<double>(from_hex16(all.texts[0].substr(space + 1)).value_or(0)), done};
  return preemption_.heard(signal);
}

bool Checkpoints::after_step(int64_t done, bool evaluated, bool last) {
  counters_ = {counters_.rate + 1, counters_.samples + 1, counters_.draws + 1};
  const bool stops = agree(done, evaluated) && !last;
  if (stops || checkpoint::due(done, config_.every)) save(done);
  if (stops) stop(done);
  return stops;
}

/// Is there an evaluation of this very state, better than that of every state that was saved?
bool Checkpoints::is_best_now(int64_t done) const {
  if (evaluated_.step != done || evaluated_.value != evaluated_.value) return false;
  return best_.step < 0 || (higher_is_better_ ? evaluated_.value > best_.value : evaluated_.value < best_.value);
}

void Checkpoints::save(int64_t done) {
  const double began_s = monotonic_s();
  context_.heartbeat(done, "save");
  // Only what was saved can be the best that is saved.
  note(saver_.wait());
  const bool is_best = is_best_now(done);
  candidate_ = is_best ? evaluated_ : best_;
  checkpoint::State state = training_state(parts(candidate_), config_.sharded);
  if (!setup_.not_saved.empty()) state.sections.erase(setup_.not_saved);
  const checkpoint::SaveRequest request{setup_.sampler.position_at(counters_.samples).epoch, done, is_best};
  if (config_.async && preemption_.agreed() == 0)
    saver_.save_async(request, state);
  else
    note(saver_.save(request, state));
  result_.checkpoints.seconds += monotonic_s() - began_s;
}

void Checkpoints::note(const std::optional<checkpoint::SaveOutcome>& outcome) {
  if (!outcome) return;
  if (!*outcome) {
    std::fprintf(stderr, "rank %d: %s\n", context_.rank, outcome->problem.c_str());
    result_.checkpoints.problems.push_back(outcome->problem);
    return;
  }
  best_ = candidate_;
  last_saved_ = checkpoint::parse_entry_name(outcome->name).step;
  result_.checkpoints.saved.push_back(last_saved_);
  for (const std::string& remark : outcome->remarks)
    result_.checkpoints.remarks.push_back(c10::str("after step ", last_saved_, " was saved: ", remark));
}

void Checkpoints::stop(int64_t done) {
  result_.checkpoints.stop_signal = preemption_.agreed();
  result_.checkpoints.stop_seconds = config_.grace_s - preemption_.left_s();
  const std::string kept = last_saved_ == done && done > 0 ? c10::str("saved as step ", done)
                           : last_saved_ > 0             ? c10::str("the newest checkpoint is of step ", last_saved_)
                                                         : std::string("nothing was saved");
  result_.error = c10::str("stopped by signal ", preemption_.agreed(), " (SIG", ::sigabbrev_np(preemption_.agreed()),
                           ") after step ", done, ": ", kept);
}

void Checkpoints::finish() {
  note(saver_.wait());
  if (config_.required && !result_.checkpoints.problems.empty())
    throw std::runtime_error("checkpoint.required: " + problem_words(result_.checkpoints));
}

}  // namespace lockstep
