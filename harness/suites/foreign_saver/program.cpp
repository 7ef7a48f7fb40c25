#include "harness/suites/foreign_saver/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/suites/foreign_saver/failures.h"
#include "harness/suites/foreign_saver/power_loss.h"

namespace lockstep::program {

namespace fs = std::filesystem;

namespace {

constexpr double kServerStart_s = 180;

std::string emptied_folder(const SuiteRun& run, int slot) {
  const std::string folder = fmt::format("{}/work/{}", run.out_dir, slot);
  make_empty(folder);
  return fs::canonical(folder).string();
}

std::vector<std::pair<std::string, std::string>> lines_of(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.emplace_back(fmt::format("line {}", lines.size() + 1), line);
  return lines;
}

/// Nothing if there is neither file nor folder.
std::optional<EndResult> end_result_of(const std::string& path) {
  std::error_code error;
  EndResult result;
  if (fs::is_regular_file(path, error)) {
    const FileText file = read_file(path);
    if (!file) return std::nullopt;
    result.parts = lines_of(file.text);
    return result;
  }
  if (!fs::is_directory(path, error)) return std::nullopt;
  for (fs::recursive_directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    if (!at->is_regular_file(error)) continue;
    result.parts.emplace_back(fs::relative(at->path(), path, error).string(),
                              long_hash_in_hex(read_file(at->path().string()).text));
  }
  std::ranges::sort(result.parts);
  return result;
}

}  // namespace

Bench::Bench(const ProgramConfig& config, const SuiteRun& run, int slot)
    : config_(config),
      run_(run),
      folder_(emptied_folder(run, slot)),
      out_(folder_ + "/out"),
      before_(folder_ + "/before"),
      resumed_(folder_ + "/resumed"),
      tracer_(folder_ + "/printed.log") {
  make_empty(out_);
  if (!config_.setup.empty()) {
    const TracedRun made = command(config_.setup, options());
    if (made.hung || made.exit_status != 0) {
      const std::string how =
          made.hung ? std::string("did not end in time") : fmt::format("ended with status {}", made.exit_status);
      throw ConfigError(fmt::format("program.setup {}: {}", how, last_line(printed())));
    }
  }
  copy_folder(out_, before_);
}

TraceOptions Bench::options() const {
  TraceOptions options;
  options.deadline_s = config_.deadline_s;
  options.grace_s = config_.grace_s;
  options.patience_s = config_.patience_s;
  options.stop_requested = run_.stop_requested;
  return options;
}

TracedRun Bench::command(const std::string& text, const TraceOptions& options) {
  const bool by_server = !config_.server.empty();
  const std::string filled = filled_in(text, {out_, resumed_ + "/result", config_.folder}, !by_server);
  const auto undisturbed = [&](TracedRun run) {
    const InjectedFault injected = options.intervention.injected;
    const bool kills = injected == InjectedFault::kill || injected == InjectedFault::kill_all;
    if (run.exit_status == 128 + SIGKILL && !run.hung && !kills) throw TrialDisturbed("a process of " + filled);
    return run;
  };
  if (!by_server) return undisturbed(tracer_.run(filled, options));
  if (!tracer_.has_server()) {
    const std::string problem = tracer_.start_server(filled_in(config_.server, {out_, resumed_ + "/result", config_.folder}, true), kServerStart_s);
    if (!problem.empty()) throw ConfigError("program.server: " + problem + ": " + last_line(printed()));
  }
  return undisturbed(tracer_.run_line(filled, options));
}

void Bench::empty() { make_empty(out_); }

void Bench::restore() {
  std::error_code error;
  fs::remove_all(out_, error);
  copy_folder(before_, out_);
}

TraceOptions Bench::watching(const Intervention& intervention) const {
  TraceOptions wanted = options();
  wanted.watched = out_;
  wanted.intervention = intervention;
  return wanted;
}

TracedRun Bench::save(const Intervention& intervention) { return command(config_.save, watching(intervention)); }

Recording Bench::record(const Intervention& intervention, bool with_files) {
  Recording recording;
  recording.out = out_;
  if (with_files) recording.before = read_folder(out_);
  recording.began_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  TraceOptions wanted = watching(intervention);
  wanted.whole = true;
  recording.run = command(config_.save, wanted);
  if (with_files) recording.after = read_folder(out_);
  return recording;
}

void Bench::resume(Observed& observed) {
  make_empty(resumed_);
  TracedRun run;
  if (!config_.resume.empty()) run = command(config_.resume, options());
  if (!config_.check.empty() && !run.hung) run = command(config_.check, options());
  observed.resume_hung = run.hung;
  observed.resume_status = run.exit_status;
  observed.said = last_line(printed());
  if (run.exit_status == 0 && !run.hung) observed.result = end_result_of(resumed_ + "/result");
}

namespace {

/// Words and numbers, and each other character by itself.
std::vector<std::string> tokens_of(const EndResult& result) {
  std::vector<std::string> tokens;
  for (const auto& [part, value] : result.parts) {
    tokens.push_back(part);
    bool in_word = false;
    for (const char c : value + "\n") {
      const bool is_word = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
      if (is_word && in_word)
        tokens.back() += c;
      else
        tokens.emplace_back(1, c);
      in_word = is_word;
    }
  }
  return tokens;
}

/// Does every word stand in an undisturbed result at that place, but not all of them in the same one?
bool is_mixed(const Expected& expected, const EndResult& result) {
  std::vector<std::vector<std::string>> known;
  for (const EndResult& each : expected.after) known.push_back(tokens_of(each));
  if (expected.before) known.push_back(tokens_of(*expected.before));
  const std::vector<std::string> found = tokens_of(result);
  const auto starts = [&](const std::vector<std::string>& each) {
    return found.size() <= each.size() && std::equal(found.begin(), found.end(), each.begin());
  };
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto has = [&](const std::vector<std::string>& each) { return i < each.size() && each[i] == found[i]; };
    if (std::ranges::none_of(known, has)) return false;
  }
  return std::ranges::none_of(known, starts);
}

CaseResult good(const char* outcome) { return {outcome, CaseVerdict::good, 1, "", {}}; }

CaseResult fault(const char* outcome, const std::string& failure, const std::string& then) {
  return {outcome, CaseVerdict::fault, 1, failure + ". " + then, {}};
}

std::string save_words(const Observed& observed) {
  if (observed.save_status == 0) return "the save command reported success";
  if (observed.save_status > 128) return fmt::format("the save command died of signal {}", observed.save_status - 128);
  return fmt::format("the save command ended with status {}", observed.save_status);
}

}  // namespace

std::string difference(const EndResult& expected, const EndResult& found) {
  const auto shown = [](const EndResult& result, std::size_t i) {
    constexpr std::size_t kMost = 60;
    return i < result.parts.size() ? result.parts[i].first + ": " + in_quotes(result.parts[i].second.substr(0, kMost))
                                   : std::string("nothing");
  };
  for (std::size_t i = 0; i < std::max(expected.parts.size(), found.parts.size()); ++i) {
    if (i >= expected.parts.size() || i >= found.parts.size() || expected.parts[i] != found.parts[i])
      return fmt::format("expected {}, found {}", shown(expected, i), shown(found, i));
  }
  return "no difference";
}

CaseResult unsteady(const std::string& differs) {
  return fault("unsteady", "Nothing fails, and two saves of the same state were resumed to different end results",
               differs + ". The save may take what the training still changes (a torn snapshot); if the end result holds times, seeds "
                         "or paths, leave them out of it");
}

std::string last_line(const std::string& text) {
  constexpr std::size_t kMost = 300;
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) return "";
  const std::size_t before = text.find_last_of('\n', end);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return clean_line(text.substr(begin, std::min(end + 1 - begin, kMost)));
}

namespace {

CaseResult judge_state(const Expected& expected, const Observed& observed, const std::string& failure) {
  if (observed.save_hung) return fault("hang", failure, "The save command did not end within its deadline");
  if (observed.resume_hung) return fault("hang", failure, "The resume command did not end within its deadline");
  if (!observed.result) {
    const std::string said = fmt::format("the resume command ended with status {}{}", observed.resume_status,
                                         observed.said.empty() ? "" : ", \"" + observed.said + "\"");
    if (expected.had_before)
      return fault("torn", failure, fmt::format("A checkpoint that could be resumed stood there before; now {}", said));
    if (!observed.may_lose) return fault("lost work", failure, fmt::format("Although {}, {}", save_words(observed), said));
    return good(kRefused);
  }
  const EndResult& result = *observed.result;
  if (std::ranges::find(expected.after, result) != expected.after.end()) return good("whole, new");
  const bool is_before = expected.before && result == *expected.before;
  if (is_before && observed.may_lose) return good(kWholeOld);
  if (is_before)
    return fault("lost work", failure, fmt::format("Although {}, the resumption begins at what stood there before",
                                                   save_words(observed)));
  if (expected.fresh && result == *expected.fresh)
    return fault("lost work", failure, "A checkpoint stood there before; the resumption begins anew without a word");
  const std::string differs = difference(expected.after.front(), result);
  if (observed.undisturbed) return unsteady(differs);
  if (is_mixed(expected, result))
    return fault("mixed", failure, fmt::format("The resumption took parts of two saves: {}", differs));
  return fault("silent", failure, fmt::format("The resumption took damaged data without a word: {}", differs));
}

}  // namespace

CaseResult judge_save(const Expected& expected, const Observed& observed, const std::string& failure) {
  CaseResult state = judge_state(expected, observed, failure);
  if (state.verdict != CaseVerdict::good || !observed.must_succeed || observed.save_status == 0) return state;
  return fault("save failed", failure, fmt::format("Nothing was made to fail, and {}", save_words(observed)));
}

CaseResult judge_check(const Observed& observed, const std::string& failure) {
  if (observed.save_hung) return fault("hang", failure, "The save command did not end within its deadline");
  if (observed.resume_hung) return fault("hang", failure, "The check did not end within its deadline");
  if (observed.resume_status == 0) return good("whole");
  return fault("torn", failure, fmt::format("The check ended with status {}{}", observed.resume_status,
                                            observed.said.empty() ? "" : ", \"" + observed.said + "\""));
}

}  // namespace lockstep::program

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

  Facts facts(const Measurements& m) const override {
    Facts facts = facts_;
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
  Facts facts_;
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
