#include "harness/suites/foreign_saver/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "harness/base/errors.h"
#include "harness/base/files.h"
#include "harness/base/hashing.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/suites/foreign_saver/failures.h"
#include "harness/suites/foreign_saver/judge.h"
#include "harness/suites/foreign_saver/power_loss.h"
#include "harness/suites/foreign_saver/recording.h"

namespace lockstep {
namespace program {
namespace {

/// What all trials share, fixed before the first one.
struct Reference {
  Expected expected;
  std::vector<std::string> writers;
  FailurePlan plan;
  Recording recording;                ///< of the first undisturbed save
  std::unique_ptr<PowerLoss> power;   ///< null: a power loss is not tried
  LeftDisks left;
  std::string unsteady;  ///< how two undisturbed saves of one writer differ; empty: they do not
};

/// The operations at which a failure was tried.
std::string tried_key(std::string_view failure) { return "tried " + std::string(failure); }
constexpr const char* kDisks = "disks";

/// Runs the program under ptrace on one slot.
class Player {
 public:
  Player(const ProgramConfig& config, const Reference& reference, const Slot& slot)
      : config_(config), reference_(reference), bench_(config, slot.run(), slot.number()) {}

  std::vector<CaseResult> run(const PlannedFailure& planned) {
    bench_.restore();
    const TracedRun saved = bench_.save(planned.intervention);
    if (saved.stuck) measured().add("stuck");
    for (const std::string& note : saved.notes) measured().keep("notes", note);
    if (planned.kind != nullptr && !saved.acted) return {not_reached(planned, saved)};
    if (planned.kind != nullptr)
      measured().keep(tried_key(planned.kind->row), fmt::format("{}:{}", planned.intervention.process, planned.intervention.index));
    Observed observed;
    observed.save_hung = saved.hung;
    observed.save_status = saved.exit_status;
    const InjectedFault injected = planned.intervention.injected;
    observed.may_lose = injected == InjectedFault::kill || injected == InjectedFault::kill_all || saved.exit_status != 0;
    // A held writer that the others waited for may have met their time limits: that is our doing.
    observed.must_succeed = (injected == InjectedFault::nothing || injected == InjectedFault::hold) && !saved.stuck;
    observed.undisturbed = planned.kind == nullptr && reference_.writers.size() == 1;
    if (!saved.hung) bench_.resume(observed);
    CaseResult result = judged(observed, planned.words);
    if (saves_again(injected) && (result.outcome == kWholeOld || result.outcome == kRefused)) result = saved_again(std::move(result), planned);
    if (result.verdict != CaseVerdict::good) result.timeline = timeline_of(saved, planned, reference_.writers);
    return {std::move(result)};
  }

  /// A resumption from what a power loss leaves.
  std::vector<CaseResult> run(const LeftDisk& disk) {
    const PowerLoss& power = power_here();
    if (!power.is_like(*reference_.power) || !power.unknown().empty())
      return {{"not reached", CaseVerdict::undecided, 1, "The save recorded anew did other operations; its order differs from run to run", {}}};
    write_folder(bench_.out(), power.files(disk));
    measured().keep(kDisks, disk.name);
    Observed observed;
    observed.may_lose = !disk.told;
    bench_.resume(observed);
    CaseResult result = judged(observed, power.words(disk));
    if (result.verdict != CaseVerdict::good) result.timeline = power.timeline(disk, reference_.writers);
    return {std::move(result)};
  }

 private:
  static CaseResult not_reached(const PlannedFailure& planned, const TracedRun& saved) {
    CaseResult result{"not reached", CaseVerdict::undecided, 1, "", {}};
    result.sentence =
        fmt::format("{}: the run came to {} in all, and that operation was not among them, or there was nothing to make fail; its order differs from run to "
                    "run",
                    planned.words, counted(static_cast<int64_t>(saved.operations.size()), "operation"));
    return result;
  }

  /// After a job that died as a whole, it is started again.
  bool saves_again(InjectedFault injected) const {
    return injected == (reference_.writers.size() > 1 ? InjectedFault::kill_all : InjectedFault::kill);
  }

  /// The same save once more, beside what the killed one left; `good`: what came of the killed one.
  CaseResult saved_again(CaseResult good, const PlannedFailure& planned) {
    Observed observed;
    const TracedRun saved = bench_.save({});
    observed.save_hung = saved.hung;
    observed.save_status = saved.exit_status;
    observed.may_lose = saved.exit_status != 0;
    observed.must_succeed = true;
    if (!saved.hung) bench_.resume(observed);
    CaseResult again = judged(observed, planned.words + ". Then the same save ran again, and nothing failed");
    return again.verdict == CaseVerdict::good ? std::move(good) : std::move(again);
  }

  CaseResult judged(const Observed& observed, const std::string& failure) const {
    return config_.check.empty() ? judge_save(reference_.expected, observed, failure) : judge_check(observed, failure);
  }

  /// Of a save into this slot's own folder, where files hold the folder's path.
  const PowerLoss& power_here() {
    if (bench_.out() == reference_.recording.out || !reference_.power->names_its_folder()) return *reference_.power;
    if (power_ == nullptr) {
      bench_.restore();
      recording_ = bench_.record({}, true);
      power_ = std::make_unique<PowerLoss>(recording_);
    }
    return *power_;
  }

  const ProgramConfig& config_;
  const Reference& reference_;
  Bench bench_;
  Recording recording_;
  std::unique_ptr<PowerLoss> power_;
};

class ProgramSuite : public Suite {
 public:
  explicit ProgramSuite(ProgramConfig config) : config_(std::move(config)) {}

  std::string subject() const override { return config_.subject.empty() ? config_.save : config_.subject; }

  /// The files that the commands name: a script that was changed makes other trials.
  std::string identity() const override {
    std::string all;
    for (const std::string* command : {&config_.server, &config_.setup, &config_.save, &config_.resume, &config_.check}) {
      const std::string filled = filled_in(*command, {"", "", config_.folder}, false);
      for (std::size_t begin = 0; begin < filled.size();) {
        const std::size_t end = std::min(filled.find_first_of(" \t\n;|&<>'\"", begin), filled.size());
        const std::string word = filled.substr(begin, end - begin);
        if (std::error_code error; std::filesystem::is_regular_file(word, error)) all += word + " " + hash_in_hex(read_file(word).text) + "\n";
        begin = end + 1;
      }
    }
    return all;
  }

  std::vector<std::string> plan() const override {
    std::vector<std::string> lines{"save: " + config_.save};
    if (!config_.server.empty()) lines.push_back("by a server that starts once a slot: " + config_.server);
    for (const FailureKind& kind : failure_kinds()) {
      const auto at = std::ranges::find(config_.failures, kind.name);
      if (config_.failures.empty() || at != config_.failures.end()) lines.push_back(fmt::format("{}: {}", kind.name, kind.help));
    }
    lines.push_back(fmt::format("at {} on files that an undisturbed save is seen to do",
                                config_.points == 0 ? std::string("every operation")
                                                    : fmt::format("{} of the operations, evenly spread,", config_.points)));
    if (config_.power_loss > 0)
      lines.push_back(fmt::format("power lost: at most {} of the disks that may be left of the recorded save, under three models of a "
                                  "file system", config_.power_loss));
    return lines;
  }

  std::vector<Trial> trials(const SuiteRun& run) override {
    if (const std::string problem = tracing_problem(); !problem.empty()) throw MachineError(problem);
    Bench bench(config_, run, 0);
    take_before(bench);
    const double started = monotonic_s();
    reference_.recording = undisturbed(bench, config_.power_loss > 0);
    const TracedRun& first = reference_.recording.run;
    const double trial_s = monotonic_s() - started;
    check_first(first);
    write_recording(first, run.out_dir);
    reference_.writers = writers_of(first.operations);
    if (config_.check.empty()) take_after(bench);
    describe(first);
    std::vector<Trial> trials;
    if (!reference_.unsteady.empty()) {
      notes_.emplace_back("Two undisturbed saves differ: no failure was tried, since its effect could not be told from that.");
      trials.push_back(found_before("none@1", unsteady(reference_.unsteady)));
    } else {
      if (collided_) {
        const std::string words = fmt::format("Nothing fails, and {} save together", counted(static_cast<int64_t>(reference_.writers.size()), "writer"));
        trials.push_back(found_before("none@0", config_.check.empty() ? judge_save(reference_.expected, *collided_, words) : judge_check(*collided_, words)));
      }
      add_failures(trials, trial_s);
      add_power_losses(trials, trial_s);
    }
    run.say(fmt::format("an undisturbed save does {} in {}; {} of {:.2g} s each",
                        counted(static_cast<int64_t>(first.operations.size()), "operation"),
                        counted(static_cast<int64_t>(reference_.writers.size()), "writer"),
                        counted(static_cast<int64_t>(trials.size()), "trial"), trial_s));
    return trials;
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    std::vector<std::pair<std::string, std::string>> facts = facts_;
    for (const Coverage& each : reference_.plan.coverage) {
      const std::size_t tried = m.entries(tried_key(each.failure)).size();
      const bool sampled = tried == each.planned && tried < each.fitting;
      facts.emplace_back(each.failure, fmt::format("{} of {} operations{}", tried, each.fitting, sampled ? ", an even sample" : ""));
    }
    if (reference_.power != nullptr && reference_.power->unknown().empty())
      facts.emplace_back("power lost", fmt::format("{} of {}{} disks", with_commas(static_cast<int64_t>(m.entries(kDisks).size())),
                                                   reference_.left.every ? "" : "more than ", with_commas(static_cast<int64_t>(reference_.left.all))));
    if (m.count("stuck") > 0)
      facts.emplace_back(
          "schedules that cannot occur",
          fmt::format("{}: the other writer waited for the held one, which went on first", m.count("stuck")));
    return facts;
  }

  std::vector<std::string> notes(const Measurements& m) const override {
    std::vector<std::string> notes = notes_;
    std::set<std::string> seen = seen_;
    for (const auto& [note, there] : m.entries("notes")) seen.insert(note);
    notes.insert(notes.end(), seen.begin(), seen.end());
    notes.emplace_back(config_.power_loss > 0
                           ? "What a power loss may leave follows from the recorded operations under three models of a file system: an ordered "
                             "journal that flushes on rename, an ordered journal, and POSIX at its least. A write is torn at no more than three places."
                           : "A killed process leaves what it wrote in the page cache: what a power loss would take was not tried "
                             "(program.power_loss is 0).");
    return notes;
  }

 private:
  /// Resumed from nothing, and from what stands there before the save.
  void take_before(Bench& bench) {
    if (!config_.check.empty()) return;
    Observed fresh, before;
    bench.empty();
    bench.resume(fresh);
    reference_.expected.fresh = fresh.result;
    bench.restore();
    bench.resume(before);
    reference_.expected.before = before.result;
    reference_.expected.had_before = !config_.setup.empty() && before.result;
    if (!config_.setup.empty() && !before.result)
      throw ConfigError("program.resume refuses what program.setup made: " + before.said);
  }

  /// A save without a failure. Where its writers collide by themselves, one in which they come one after the other; if the first one was
  /// called a success and cannot be resumed, that is a finding.
  Recording undisturbed(Bench& bench, bool with_files) {
    bench.restore();
    Recording recording = bench.record({}, with_files);
    Observed observed = resumed(bench, recording.run);
    const std::vector<std::string> writers = writers_of(recording.run.operations);
    if (!is_whole(observed) && writers.size() > 1 && !recording.run.hung) {
      Recording ordered = in_order(bench, writers.front(), writers.back(), with_files);
      if (ordered.run.exit_status == 0) {
        if (observed.save_status == 0) collided_ = std::move(observed);
        recording = std::move(ordered);
        observed = resumed(bench, recording.run);
      }
    }
    const TracedRun& run = recording.run;
    if (run.hung || run.exit_status != 0) {
      const std::string how =
          run.hung ? std::string("did not end in time") : fmt::format("ended with status {}", run.exit_status);
      throw ConfigError(fmt::format("program.save {} without a failure: {}", how, last_line(bench.printed())));
    }
    if (!is_whole(observed)) {
      throw ConfigError(fmt::format("{} refuses an undisturbed save (status {}): {}",
                                    config_.check.empty() ? "program.resume" : "program.check", observed.resume_status,
                                    observed.resume_status == 0 ? "it wrote nothing to {resume}" : observed.said));
    }
    if (observed.result) add_after(*observed.result);
    return recording;
  }

  static Observed resumed(Bench& bench, const TracedRun& saved) {
    Observed observed;
    observed.save_hung = saved.hung;
    observed.save_status = saved.exit_status;
    if (!saved.hung && saved.exit_status == 0) bench.resume(observed);
    return observed;
  }

  bool is_whole(const Observed& observed) const {
    if (observed.save_hung || observed.save_status != 0 || observed.resume_hung || observed.resume_status != 0) return false;
    return !config_.check.empty() || observed.result.has_value();
  }

  /// The first writer stands before its first operation until the other one has ended.
  static Recording in_order(Bench& bench, const std::string& held, const std::string& rival, bool with_files) {
    bench.restore();
    return bench.record({InjectedFault::hold, held, 1, 0, rival}, with_files);
  }

  void add_after(const EndResult& result) {
    std::vector<EndResult>& after = reference_.expected.after;
    if (std::ranges::find(after, result) == after.end()) after.push_back(result);
  }

  void check_first(const TracedRun& first) const {
    if (first.operations.empty())
      throw ConfigError("program.save wrote nothing below {out} that the tracer saw; does it save there?");
    const auto writers = static_cast<int64_t>(writers_of(first.operations).size());
    if (config_.writers > 0 && writers != config_.writers)
      throw ConfigError(fmt::format("program.writers: {} expected, {} seen", counted(config_.writers, "writer"), writers));
  }

  /// Every end result that an undisturbed save may have: that of a second one must be known, unless its writers race; then
  /// each order of two writers, one after the other, counts.
  void take_after(Bench& bench) {
    undisturbed(bench, false);
    const std::vector<EndResult> natural = reference_.expected.after;
    std::vector<EndResult> serial;
    for (const std::string& first : reference_.writers) {
      for (const std::string& rival : reference_.writers) {
        if (first == rival || reference_.writers.size() > kMostOrdered) continue;
        const TracedRun run = in_order(bench, first, rival, false).run;
        if (run.stuck || run.hung || !run.acted || run.exit_status != 0) continue;
        Observed observed;
        bench.resume(observed);
        const bool is_new = observed.result && std::ranges::find(serial, *observed.result) == serial.end();
        if (is_new) serial.push_back(*observed.result);
      }
    }
    if (!serial.empty()) {
      reference_.expected.after = serial;
      facts_.emplace_back("end results of writers one after the other", std::to_string(serial.size()));
    } else if (natural.size() > 1) {
      reference_.unsteady = difference(natural.front(), natural.back());
    }
    const std::vector<EndResult>& after = reference_.expected.after;
    if (reference_.expected.before && std::ranges::find(after, *reference_.expected.before) != after.end())
      notes_.emplace_back(
          "The end result is the same whether the new save or the old one was resumed: lost work cannot be seen; let "
          "program.resume write which step it began at.");
  }

  /// What was found before the first trial.
  static Trial found_before(const std::string& name, CaseResult found) {
    Trial trial{name, "none", "anywhere", 0};
    trial.run = [found = std::move(found)](Slot&) { return std::vector{found}; };
    return trial;
  }

  void add_failures(std::vector<Trial>& trials, double trial_s) {
    reference_.plan = plan_failures(reference_.recording.run.operations, {config_.failures, config_.points, trial_s});
    for (const PlannedFailure& planned : reference_.plan.failures) {
      trials.push_back(planned.trial);
      trials.back().run = [this, &planned](Slot& slot) { return player(slot).run(planned); };
    }
  }

  void add_power_losses(std::vector<Trial>& trials, double trial_s) {
    if (config_.power_loss == 0) return;
    reference_.power = std::make_unique<PowerLoss>(reference_.recording);
    reference_.recording.after = {};
    if (const std::set<std::string>& unknown = reference_.power->unknown(); !unknown.empty()) {
      const std::string more = unknown.size() > 1 ? fmt::format(" (and {} more)", unknown.size() - 1) : "";
      trials.push_back({"power@all", "power lost", "anywhere", 0, [why = *unknown.begin() + more](Slot&) {
                          return std::vector<CaseResult>{{"not judged", CaseVerdict::undecided, 1,
                              "What a power loss may leave does not follow from what was recorded: " + why, {}}};
                        }});
      return;
    }
    reference_.left = reference_.power->disks(static_cast<std::size_t>(config_.power_loss));
    for (const LeftDisk& disk : reference_.left.disks) {
      const std::vector<Operation>& operations = reference_.recording.run.operations;
      const std::string place = disk.told ? "after the save" : fmt::format("before {}", name_of(operations[disk.moment].kind));
      trials.push_back({"power@" + disk.name, fmt::format("power lost, {}", words_of(disk.model)), place, trial_s / 2,
                        [this, &disk](Slot& slot) { return player(slot).run(disk); }});
    }
  }

  Player& player(Slot& slot) {
    return slot.keep<Player>([&] { return Player(config_, reference_, slot); });
  }

  void describe(const TracedRun& first) {
    std::string each;
    for (std::size_t i = 0; i < reference_.writers.size(); ++i) {
      const std::string& writer = reference_.writers[i];
      const auto count = std::ranges::count(first.operations, writer, &Operation::process);
      each += fmt::format("{}writer {} ({}): {}", each.empty() ? "" : ", ", i, first.programs.at(writer), count);
    }
    facts_.emplace_back("operations of an undisturbed save", fmt::format("{} ({})", first.operations.size(), each));
    seen_.insert(first.notes.begin(), first.notes.end());
  }

  static constexpr std::size_t kMostOrdered = 3;
  ProgramConfig config_;
  Reference reference_;
  std::vector<std::pair<std::string, std::string>> facts_;
  std::vector<std::string> notes_;
  std::set<std::string> seen_;  ///< notes of the undisturbed save
  std::optional<Observed> collided_;  ///< of a save without a failure whose writers disturbed each other unnoticed
};

std::unique_ptr<Suite> make(const SuiteSource& source, Problems& problems) {
  return std::make_unique<ProgramSuite>(read_program_config(source, problems));
}

}  // namespace
}  // namespace program

const SuiteKind& program_suite() {
  static const SuiteKind kKind{
      "program", "a program that saves, run under ptrace with a failure at one operation on files", &program::make,
      &program::program_schema};
  return kKind;
}

}  // namespace lockstep
