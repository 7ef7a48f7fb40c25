#include "harness/cli/session/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <thread>

#include "harness/base/clean_text.h"
#include "harness/verdict/config/trainer_spec.h"

namespace lockstep {
namespace {

constexpr double kRepaintEvery_s = 0.1;

std::string where_text(const RankFailure& failure) {
  std::string text = failure.rank >= 0 ? fmt::format("rank {}", failure.rank) : "";
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
  if (failure.step >= 0) add(fmt::format("after {} steps", failure.step));
  if (!failure.operation.empty()) add(failure.operation);
  return text.empty() ? "" : " (" + text + ")";
}

int slots_or_cores(int slots) {
  return slots > 0 ? slots : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

std::string ranks_of(const RunConfig& config) {
  if (config.layout.world_size == 1) return "1 process";
  return fmt::format("{} {}", config.layout.world_size, config.backend == Backend::gloo ? "real" : "emulated");
}

/// Forced runs of all kinds, and both of an exact pair, are one to whoever waits for them.
std::string group_of(RunRole role) {
  switch (role) {
    case RunRole::forced_reference:
    case RunRole::forced_cell:
    case RunRole::forced_twin:
    case RunRole::certify_forced:
      return "forced";
    case RunRole::exact_reference:
    case RunRole::exact_cell:
      return "exact";
    default:
      return name_of(role);
  }
}

}  // namespace

std::string event_line(const RunEvent& event) {
  switch (event.kind) {
    case RunEvent::Kind::started:
      return "started   " + event.run;
    case RunEvent::Kind::resumed:
      return "resuming  " + event.run + "  from its newest checkpoint";
    case RunEvent::Kind::finished:
      return fmt::format("finished  {}  {:.1f} s", event.run, event.seconds);
    case RunEvent::Kind::failed:
      if (event.failure == nullptr) return "failed    " + event.run;
      if (event.failure->kind == FailureKind::interrupted) return "stopped   " + event.run;
      return fmt::format("failed    {}  {}{}: {}", event.run, to_word(event.failure->kind), where_text(*event.failure),
                         event.failure->message);
    case RunEvent::Kind::requeued:
      return fmt::format("again     {}  {}{}: {}", event.run, to_word(event.failure->kind), where_text(*event.failure), event.failure->message);
    case RunEvent::Kind::slow:
      return fmt::format("slow      {}{}: {}", event.run, where_text(*event.failure), event.failure->message);
    case RunEvent::Kind::unsaved:
      return fmt::format("unsaved   {}: checkpoints: {}", event.run, event.failure->message);
    case RunEvent::Kind::node_lost:
      return "lost      " + event.failure->message;
    case RunEvent::Kind::stray:
      return fmt::format("ignored   the launcher reported {}, which is not running", event.run);
    default:
      return "";
  }
}

Progress::Progress(const Plan& plan, const Console& console, std::function<double()> clock, int slots)
    : console_(console),
      clock_(std::move(clock)),
      started_(clock_()),
      painted_at_(started_),
      time_left_(plan, slots_or_cores(slots)) {
  for (const PlannedRun& planned : plan.runs) {
    if (planned.reused) continue;
    const std::string role = group_of(planned.role);
    auto& groups = view_.groups;
    const auto group =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.role == role; });
    Run run;
    run.planned = &planned;
    run.group = static_cast<std::size_t>(group - groups.begin());
    run.steps = steps_to_run(planned.config);
    if (group == groups.end()) groups.push_back({role, 0, 0});
    ++groups[run.group].runs;
    index_.emplace(planned.id, runs_.size());
    view_.state.steps += run.steps;
    ++view_.state.runs;
    runs_.push_back(run);
  }
}

Progress::~Progress() { finish(); }

void Progress::advance(Run& run, int64_t steps_done) {
  steps_done = std::clamp<int64_t>(steps_done, run.steps_done, std::max(run.steps_done, run.steps));
  view_.state.steps_done += steps_done - run.steps_done;
  run.steps_done = steps_done;
}

void Progress::end(std::size_t i, bool finished, double now) {
  Run& run = runs_[i];
  time_left_.ended(i, run.going ? now - run.started_at : 0, finished && run.going);
  if (finished) advance(run, run.steps);
  ++(finished ? view_.state.runs_done : view_.state.failed);
  if (finished) ++view_.groups[run.group].done;
  run.going = false;
  std::erase(going_, i);
}

void Progress::on_event(const RunEvent& event) {
  const auto found = index_.find(event.run);
  if (event.kind == RunEvent::Kind::stray || event.kind == RunEvent::Kind::node_lost) {
    say(event);
    return;
  }
  if (found == index_.end()) return;
  const std::size_t i = found->second;
  Run& run = runs_[i];
  const double now = clock_();
  const bool ended = event.kind == RunEvent::Kind::finished || event.kind == RunEvent::Kind::failed;
  if (event.kind == RunEvent::Kind::started) {
    run.started_at = now;
    run.going = true;
    going_.push_back(i);
  }
  if (event.kind == RunEvent::Kind::progress) {
    advance(run, event.step);
    if (event.shown) run.shown = fmt::format("{} {:.3g}", spec_of(run.planned->config).shown_metric, *event.shown);
    const double steps = static_cast<double>(event.steps), step = static_cast<double>(event.step);
    time_left_.progress(i, steps > 0 ? step / steps : 0, run.going ? now - run.started_at : 0);
  }
  if (event.kind == RunEvent::Kind::requeued) {
    run.going = false;
    std::erase(going_, i);
  }
  if (ended) end(i, event.kind == RunEvent::Kind::finished, now);
  view_.state.work_done = time_left_.work_done();
  // On a terminal the table tells of starts and ends; a failure is worth a line that stays.
  const bool tell =
      !console_.err_terminal || event.kind == RunEvent::Kind::failed || event.kind == RunEvent::Kind::resumed || event.kind == RunEvent::Kind::slow ||
                    event.kind == RunEvent::Kind::requeued || event.kind == RunEvent::Kind::unsaved;
  if (tell) say(event);
  repaint(ended && view_.state.runs_done + view_.state.failed == view_.state.runs);
}

void Progress::say(const RunEvent& event) {
  const std::string line = clean_line(event_line(event));
  if (line.empty()) return;
  clear();
  console_.err << line << "\n" << std::flush;
}

void Progress::fill_view(double now) {
  view_.state.elapsed_s = now - started_;
  view_.state.left_s = time_left_.left_s();
  view_.running.clear();
  for (const std::size_t i : going_) {
    const Run& run = runs_[i];
    view_.running.push_back({run.planned->id, ranks_of(run.planned->config), run.steps_done, run.steps,
                             time_left_.run_left_s(i), run.shown});
  }
}

void Progress::repaint(bool at_once) {
  if (!console_.err_terminal) return;
  const double now = clock_();
  if (painted_lines_ > 0 && !at_once && now - painted_at_ < kRepaintEvery_s) return;
  fill_view(now);
  const std::vector<std::string> lines =
      progress_table(view_, console_.err_width - 1, console_.err_height, console_.err_colour);
  std::string text = "\r";
  if (painted_lines_ > 1) text += fmt::format("\x1b[{}A", painted_lines_ - 1);
  for (std::size_t i = 0; i < lines.size(); ++i) text += (i > 0 ? "\n" : "") + lines[i] + "\x1b[K";
  if (painted_lines_ > lines.size()) text += "\x1b[J";  // what the longer table before had below
  console_.err << text << std::flush;
  painted_at_ = now;
  painted_lines_ = lines.size();
}

void Progress::clear() {
  if (painted_lines_ == 0) return;
  if (painted_lines_ > 1) {
    console_.err << fmt::format("\r\x1b[{}A\x1b[J", painted_lines_ - 1);
  } else {
    console_.err << "\r\x1b[K";
  }
  painted_lines_ = 0;
}

void Progress::finish() {
  clear();
  console_.err << std::flush;
}

}  // namespace lockstep
