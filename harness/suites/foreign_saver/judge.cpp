#include "harness/suites/foreign_saver/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <csignal>
#include <filesystem>

#include "harness/base/errors.h"
#include "harness/base/files.h"
#include "harness/base/hashing.h"
#include "harness/base/text.h"

namespace lockstep::program {

namespace fs = std::filesystem;

namespace {

constexpr double kServerStart_s = 180;

std::string emptied_folder(const SuiteRun& run, int slot) {
  const std::string folder = fmt::format("{}/work/{}", run.out_dir, slot);
  make_empty(folder);
  return fs::canonical(folder).string();
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

std::vector<std::pair<std::string, std::string>> lines_of(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.emplace_back(fmt::format("line {}", lines.size() + 1), text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

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
