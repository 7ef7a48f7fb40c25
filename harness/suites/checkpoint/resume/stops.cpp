// A run is stopped at every step, once and twice, and resumed: it must have the bits of the run that went on. Then each
// kind of state is left out of the checkpoint, and the resumed run's records must tell which.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "harness/base/counted.h"
#include "harness/lib/checkpoint/state.h"
#include "harness/suites/checkpoint/resume/diagnosis.h"
#include "harness/suites/checkpoint/resume/resume_config.h"
#include "harness/suites/checkpoint/resume/segments.h"
#include "harness/suites/engine/suite.h"

namespace lockstep::resume {
namespace {

/// A lost kind may need that many steps to act: the next evaluation, or the next two updates.
constexpr int64_t kUntilItActs = 24;

enum class Again { no, at_once, a_step_later };

struct PlannedStop {
  Trial trial;
  int64_t stop = 0;
  Again again = Again::no;
  bool asynchronous = false, sharded = false;
  std::set<std::string, std::less<>> left_out = {};
};

/// The run that was never interrupted, twice, and its state at the stop.
struct Control {
  SegmentsDone run;
  std::vector<toy::RunEnd> at_stop;
  std::string problem;  ///< the two differ, or one failed
};

std::vector<std::string> kinds_of(const toy::Config& config) {
  std::vector<std::string> names;
  for (const auto& [name, section] : toy::Trainer(config, 0, 2).state().sections) names.push_back(name);
  return names;
}

std::string place_of(int64_t stop, const toy::Config& config) {
  const int64_t batches = (config.samples + config.batch_rows - 1) / config.batch_rows;
  const bool inside = stop % config.accumulate != 0, edge = stop % batches == 0;
  return std::string(inside ? "inside an accumulation" : "after an update") + (edge ? ", at an epoch's edge" : "");
}

/// Runs on one slot; keeps the undisturbed run of the last stop.
class StopPlayer {
 public:
  StopPlayer(const ResumeConfig& config, const toy::Config& toy) : config_(config), toy_(toy) {}

  std::vector<CaseResult> run(const PlannedStop& planned) {
    return {planned.left_out.empty() ? stopped(planned) : left_out(planned)};
  }

 private:
  static constexpr const char* kFailed = "failed";

  /// Trials of one stop follow each other, so the last one is kept.
  const Control& control_of(const toy::Config& toy, int64_t stop, int64_t until) {
    if (kept_stop_ != stop || kept_until_ != until) kept_ = make_control(toy, stop, until);
    kept_stop_ = stop;
    kept_until_ = until;
    return kept_;
  }

  Control make_control(const toy::Config& toy, int64_t stop, int64_t until) const {
    const int ranks = static_cast<int>(config_.ranks);
    const double deadline_s = config_.deadline_s;
    Control control;
    control.run = run_segments(toy, {{ranks, until}}, deadline_s);
    const SegmentsDone second = run_segments(toy, {{ranks, until}}, deadline_s);
    control.problem = control.run.problem + second.problem;
    if (!control.problem.empty()) return control;
    const int64_t step = first_difference(control.run.steps, second.steps, 1, until);
    const std::vector<std::string> ends = end_differences(control.run.last(), second.last());
    if (step >= 0) control.problem = fmt::format("two uninterrupted runs differ in step {}", step);
    if (step < 0 && !ends.empty()) control.problem = "two uninterrupted runs end differently: " + ends.front();
    const SegmentsDone to_stop = run_segments(toy, {{ranks, stop}}, deadline_s);
    control.problem += to_stop.problem;
    if (control.problem.empty()) control.at_stop = to_stop.last();
    return control;
  }

  std::vector<LostKind> diagnosed(const toy::Config& toy, const Control& control, int64_t stop,
                                  const Steps& steps) const {
    std::vector<toy::TrainerState> states;
    const int ranks = static_cast<int>(config_.ranks);
    for (int rank = 0; rank < ranks; ++rank)
      states.push_back(trainer_state_of(control.at_stop[static_cast<std::size_t>(rank)], toy, rank, ranks));
    Diagnosis diagnosis(toy, std::move(states));
    for (auto at = steps.upper_bound(stop); at != steps.end(); ++at) diagnosis.take(at->second);
    return diagnosis.lost();
  }

  std::vector<Segment> segments_of(const PlannedStop& planned, int64_t until) const {
    const int ranks = static_cast<int>(config_.ranks);
    std::vector<Segment> segments{{ranks, planned.stop, planned.asynchronous}};
    if (planned.again != Again::no)
      segments.push_back({ranks, planned.stop + (planned.again == Again::a_step_later ? 1 : 0), planned.asynchronous});
    segments.push_back({ranks, until});
    return segments;
  }

  CaseResult stopped(const PlannedStop& planned) {
    toy::Config toy = toy_;
    toy.shard_parameters = planned.sharded;
    const int64_t resumed_at = planned.stop + (planned.again == Again::a_step_later ? 1 : 0);
    const int64_t until = resumed_at + config_.after;
    const Control& control = control_of(toy_, resumed_at, until);
    if (!control.problem.empty()) return {"controls differ", CaseVerdict::undecided, 1, control.problem};
    const SegmentsDone seen = run_segments(toy, segments_of(planned, until), config_.deadline_s);
    if (!seen.problem.empty()) return {kFailed, CaseVerdict::fault, 1, seen.problem};
    const int64_t step = first_difference(control.run.steps, seen.steps, 1, until);
    const std::vector<std::string> ends = end_differences(control.run.last(), seen.last());
    measured().add("steps", config_.after);
    const std::vector<LostKind> lost = diagnosed(toy, control, resumed_at, seen.steps);
    if (step < 0 && ends.empty() && lost.empty()) return {"same bits", CaseVerdict::good, 1, ""};
    if (step < 0 && ends.empty())
      return {"false alarm", CaseVerdict::fault, 1, "every bit is the same, and yet: " + lost.front().sentence};
    std::string sentence =
        fmt::format("a run stopped after step {} and resumed parts from the uninterrupted one", planned.stop);
    sentence += step < 0 ? " in its state at step " + std::to_string(until) : fmt::format(" in step {}", step);
    for (const LostKind& each : lost) sentence += fmt::format("; step {}: {}", each.step, each.sentence);
    if (!ends.empty()) sentence += "; at the end: " + ends.front();
    return {"other bits", CaseVerdict::fault, 1, sentence, timeline_of(planned, step, until)};
  }

  CaseResult left_out(const PlannedStop& planned) {
    const int64_t until = planned.stop + kUntilItActs;
    const Control& control = control_of(toy_, planned.stop, until);
    if (!control.problem.empty()) return {"controls differ", CaseVerdict::undecided, 1, control.problem};
    toy::Config broken = toy_;
    broken.planted.left_out = planned.left_out;
    const SegmentsDone seen = run_segments(broken, segments_of(planned, until), config_.deadline_s);
    if (!seen.problem.empty()) return {kFailed, CaseVerdict::fault, 1, seen.problem};
    const int64_t acts = first_difference(control.run.steps, seen.steps, planned.stop + 1, until);
    const std::vector<LostKind> lost = diagnosed(toy_, control, planned.stop, seen.steps);
    const bool same_end = end_differences(control.run.last(), seen.last()).empty();
    if (acts < 0 && lost.empty() && !same_end)
      return {"shows later", CaseVerdict::undecided, 1,
              fmt::format(
                  "{} left out of the checkpoint of step {}: not a bit of the records differs up to step {}, and the "
                  "states do",
                  fmt::join(planned.left_out, " and "), planned.stop, until)};
    CaseResult result = judged(planned, lost, acts, those_that_act(planned, control, lost, seen));
    if (result.verdict != CaseVerdict::good) result.timeline = timeline_of(planned, acts, until);
    return result;
  }

  /// The kinds left out that make a difference: those that were named, and of the others those without which the run
  /// has other bits.
  std::set<std::string, std::less<>> those_that_act(const PlannedStop& planned, const Control& control,
                                                    const std::vector<LostKind>& lost, const SegmentsDone& seen) const {
    std::set<std::string, std::less<>> acting = changed_since_start(planned, control);
    if (planned.left_out.size() == 1) return acting;
    const int64_t until = planned.stop + kUntilItActs;
    for (const std::string& kind : planned.left_out) {
      if (std::ranges::find(lost, kind, &LostKind::kind) != lost.end()) continue;
      toy::Config others = toy_;
      others.planted.left_out = planned.left_out;
      others.planted.left_out.erase(kind);
      const SegmentsDone without = run_segments(others, segments_of(planned, until), config_.deadline_s);
      if (without.problem.empty() && first_difference(without.steps, seen.steps, 1, until) < 0) acting.erase(kind);
    }
    return acting;
  }

  /// The kinds left out whose state at the stop is another than at the start: the others lose nothing.
  std::set<std::string, std::less<>> changed_since_start(const PlannedStop& planned, const Control& control) const {
    std::set<std::string, std::less<>> changed;
    const int ranks = static_cast<int>(config_.ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      const checkpoint::State start = toy::Trainer(toy_, rank, ranks).state();
      for (const std::string& kind : planned.left_out) {
        checkpoint::State one, other;
        one.sections[kind] = *start.find(kind);
        other.sections[kind] = *control.at_stop[static_cast<std::size_t>(rank)].state.find(kind);
        if (!checkpoint::state_differences(one, other).empty()) changed.insert(kind);
      }
    }
    return changed;
  }

  CaseResult judged(const PlannedStop& planned, const std::vector<LostKind>& lost, int64_t acts,
                    const std::set<std::string, std::less<>>& acting) {
    std::set<std::string, std::less<>> named;
    std::string told;
    for (const LostKind& each : lost) {
      named.insert(each.kind);
      told += fmt::format("{}step {}: {}", told.empty() ? "" : "; ", each.step, each.sentence);
    }
    const std::string without =
        fmt::format("{} left out of the checkpoint of step {}", fmt::join(planned.left_out, " and "), planned.stop);
    if (acts < 0 && named.empty())
      return acting.empty() ? CaseResult{"nothing to lose yet", CaseVerdict::good, 1, ""}
                            : CaseResult{"made no difference", CaseVerdict::good, 1, ""};
    const int64_t first = lost.empty() ? -1 : std::ranges::min(lost, {}, &LostKind::step).step;
    if (named.empty())
      return {"not found", CaseVerdict::fault, 1,
              fmt::format("{}: the run parts in step {}, and no kind of state was named", without, acts)};
    if (!std::ranges::includes(planned.left_out, named) || first != acts)
      return {"named wrongly", CaseVerdict::fault, 1,
              fmt::format("{}: the run parts in step {}; told was: {}", without, acts, told)};
    if (named != acting)
      return {"one of them not found", CaseVerdict::fault, 1, fmt::format("{}: told was only: {}", without, told)};
    for (const LostKind& each : lost) measured().keep("left out " + each.kind, fmt::format("{:08}", each.step), each.sentence);
    if (planned.left_out.size() == 1) return {"named, in the first step where it acts", CaseVerdict::good, 1, ""};
    return {named.size() == planned.left_out.size() ? "named, each" : "one named, the other made no difference",
            CaseVerdict::good, 1, ""};
  }

  std::vector<TimelineStep> timeline_of(const PlannedStop& planned, int64_t step, int64_t until) const {
    std::vector<TimelineStep> timeline;
    int64_t at = 0;
    for (const Segment& segment : segments_of(planned, until)) {
      timeline.push_back(
          {"run", at == 0 ? "begins at step 0" : fmt::format("resumes from the checkpoint of step {}", at), ""});
      if (step > at && step <= segment.until) timeline.push_back({"run", fmt::format("takes step {}", step), "other bits"});
      timeline.push_back({"run", fmt::format("ends after step {}", segment.until), segment.until == until ? "" : "saved"});
      at = segment.until;
    }
    return timeline;
  }

  const ResumeConfig& config_;
  const toy::Config& toy_;
  int64_t kept_stop_ = -1, kept_until_ = -1;
  Control kept_;
};

class Stops : public Suite {
 public:
  explicit Stops(const ResumeConfig& config) : config_(config) { toy_.seed = static_cast<uint64_t>(config.seed); }

  std::string subject() const override {
    return fmt::format("a toy run of {}, stopped and resumed", counted(config_.ranks, "rank"));
  }

  std::vector<std::string> plan() const override {
    std::vector<std::string> lines{
        fmt::format("stopped at every step from 1 to {}, once, twice at one step, and again a step later",
                    config_.stops),
        fmt::format("{} after each compared bit for bit with two uninterrupted runs", counted(config_.after, "step"))};
    if (config_.mutants)
      lines.push_back(fmt::format("at every stop each of {} left out of the checkpoint, at {} every two of them",
                                  counted(static_cast<int64_t>(kinds_of(toy_).size()), "kind"),
                                  fmt::join(config_.pair_stops, " and ")));
    return lines;
  }

  std::vector<Trial> trials(const SuiteRun&) override {
    planned_.clear();
    for (int64_t stop = 1; stop <= config_.stops; ++stop) plan_stops(stop);
    for (int64_t stop = 1; stop <= config_.stops && config_.mutants; ++stop) {
      for (const std::string& kind : kinds_of(toy_)) plan_left_out(stop, {kind}, "one kind is left out");
    }
    for (const int64_t stop : config_.mutants ? config_.pair_stops : std::vector<int64_t>()) plan_pairs(stop);
    std::vector<Trial> trials;
    for (const PlannedStop& each : planned_) {
      trials.push_back(each.trial);
      trials.back().run = [this, &each](Slot& slot) { return slot.keep<StopPlayer>([&] { return StopPlayer(config_, toy_); }).run(each); };
    }
    return trials;
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    std::vector<std::pair<std::string, std::string>> facts;
    if (m.count("steps") > 0)
      facts.emplace_back("steps after a resumption, compared bit for bit",
                         fmt::format("{}, {} after each", with_commas(m.count("steps")), config_.after));
    std::vector<std::string> kinds = kinds_of(toy_);
    const std::size_t all = kinds.size();
    std::erase_if(kinds, [&](const std::string& kind) { return m.entries("left out " + kind).empty(); });
    if (kinds.empty()) return facts;
    std::ranges::sort(kinds);
    facts.emplace_back("kinds of state left out and named", fmt::format("{} of {}", kinds.size(), all));
    for (const std::string& kind : kinds) {
      const auto& [step, sentence] = *m.entries("left out " + kind).begin();  // the earliest
      const std::string words = checkpoint::words_of(kind);
      facts.emplace_back("left out: " + words,
                         fmt::format("{} (step {})", sentence.get<std::string>().substr(words.size() + 2), std::stoll(step)));
    }
    return facts;
  }

  std::vector<std::string> notes(const Measurements&) const override {
    return {
        "The toy trainer's sums over rows and ranks are of whole numbers, so that stops inside an update cannot "
        "round "
        "otherwise; that a trainer's own sums do so is not shown here."};
  }

 private:
  static constexpr double kEstimate_s = 0.03;

  void plan_stops(int64_t stop) {
    struct Way {
      const char *name, *words;
      Again again;
    };
    for (const Way& way :
         {Way{"once", "stopped once", Again::no}, Way{"again", "stopped, and again at once", Again::at_once},
          Way{"later", "stopped, and again a step later", Again::a_step_later}}) {
      for (const bool asynchronous : {false, true}) {
        PlannedStop planned;
        planned.stop = stop;
        planned.again = way.again;
        planned.asynchronous = planned.sharded = asynchronous;
        planned.trial = {fmt::format("stop@{}:{}{}", stop, way.name, asynchronous ? "-async" : ""),
                         fmt::format("{}, saved {}", way.words, asynchronous ? "asynchronously, sharded" : "whole"),
                         place_of(stop, toy_), kEstimate_s};
        planned_.push_back(std::move(planned));
      }
    }
  }

  void plan_left_out(int64_t stop, std::set<std::string, std::less<>> kinds, const char* failure) {
    PlannedStop planned;
    planned.stop = stop;
    const std::string place =
        kinds.size() == 1 ? checkpoint::words_of(*kinds.begin()) : fmt::format("any two, stop at step {}", stop);
    planned.trial = {fmt::format("lost@{}:{}", stop, fmt::join(kinds, "+")), fmt::format("mutant: {}", failure), place,
                     kEstimate_s};
    planned.left_out = std::move(kinds);
    planned_.push_back(std::move(planned));
  }

  void plan_pairs(int64_t stop) {
    const std::vector<std::string> kinds = kinds_of(toy_);
    for (std::size_t one = 0; one < kinds.size(); ++one) {
      for (std::size_t other = one + 1; other < kinds.size(); ++other)
        plan_left_out(stop, {kinds[one], kinds[other]}, "two kinds are left out");
    }
  }

  ResumeConfig config_;
  toy::Config toy_;
  std::vector<PlannedStop> planned_;
};

}  // namespace

std::unique_ptr<Suite> make_stops(const ResumeConfig& config) { return std::make_unique<Stops>(config); }

}  // namespace lockstep::resume
