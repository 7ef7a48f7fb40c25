#include "harness/suites/foreign_saver/bench.h"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <filesystem>

#include "harness/base/errors.h"

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

}  // namespace lockstep::program
