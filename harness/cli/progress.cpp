#include "harness/cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>

namespace lockstep {
namespace {

constexpr double kRepaintEvery_s = 0.1;
constexpr double kWorkBeforeForecast = 0.03;
constexpr int kWidestBar = 30;

std::string with_commas(int64_t n) {
  std::string digits = std::to_string(n);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

/// The words behind the bar, the dispensable ones last.
std::vector<std::string> words_of(const ProgressState& state) {
  std::vector<std::string> words = {fmt::format("{}/{} runs", state.runs_done, state.runs)};
  if (state.failed > 0) words.push_back(fmt::format("{} failed", state.failed));
  if (state.work_done >= kWorkBeforeForecast && state.work_done < 1) {
    const double left = state.elapsed_s * (1 - state.work_done) / state.work_done;
    words.push_back("about " + duration_text(left) + " left");
  }
  words.push_back(fmt::format("{}/{} steps", with_commas(state.steps_done), with_commas(state.steps)));
  if (state.elapsed_s > 0.5) {
    words.push_back(fmt::format(
        "{} steps/s", with_commas(std::llround(static_cast<double>(state.steps_done) / state.elapsed_s))));
  }
  return words;
}

/// Columns: "·" and "█" take several bytes and one column.
int columns_of(const std::string& text) {
  return static_cast<int>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string where_text(const RankFailure& failure) {
  std::string text = failure.rank >= 0 ? fmt::format("rank {}", failure.rank) : "";
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
  if (failure.step >= 0) add(fmt::format("after {} steps", failure.step));
  if (!failure.operation.empty()) add(failure.operation);
  return text.empty() ? "" : " (" + text + ")";
}

}  // namespace

std::string duration_text(double seconds) {
  const auto s = std::max<int64_t>(0, std::llround(seconds));
  if (s < 90) return fmt::format("{} s", s);
  if (s < 5400) return fmt::format("{} min {} s", s / 60, s % 60);
  return fmt::format("{} h {} min", s / 3600, s % 3600 / 60);
}

std::string progress_line(const ProgressState& state, int width) {
  std::string words;
  for (const std::string& word : words_of(state)) {
    const std::string longer = words.empty() ? word : words + " · " + word;
    if (!words.empty() && columns_of(longer) > width) break;
    words = longer;
  }
  const int room = std::min(kWidestBar, width - columns_of(words) - 3);  // two brackets and a space
  if (room < 8) return words;
  const int full = static_cast<int>(std::floor(std::clamp(state.work_done, 0.0, 1.0) * room));
  std::string bar;
  for (int i = 0; i < room; ++i) bar += i < full ? "█" : " ";
  return "[" + bar + "] " + words;
}

std::string event_line(const RunEvent& event) {
  switch (event.kind) {
    case RunEvent::Kind::started:
      return "started   " + event.run;
    case RunEvent::Kind::finished:
      return fmt::format("finished  {}  {:.1f} s", event.run, event.seconds);
    case RunEvent::Kind::failed:
      if (event.failure == nullptr) return "failed    " + event.run;
      if (event.failure->kind == "interrupted") return "stopped   " + event.run;
      return fmt::format("failed    {}  {}{}: {}", event.run, event.failure->kind, where_text(*event.failure),
                         event.failure->message);
    default:
      return "";
  }
}

Progress::Progress(const Plan& plan, const Console& console, std::function<double()> clock)
    : console_(console), clock_(std::move(clock)), started_(clock_()), painted_at_(started_) {
  for (const PlannedRun& run : plan.runs) {
    if (run.reused) continue;
    const int64_t steps = steps_to_run(run.config);
    const double estimate_s = std::max(run.estimate_s, 1e-3);
    runs_[run.id] = {estimate_s, steps, 0, 0};
    work_s_ += estimate_s;
    state_.steps += steps;
    ++state_.runs;
  }
}

Progress::~Progress() { finish(); }

void Progress::advance(Run& run, int64_t steps_done, double fraction) {
  steps_done = std::clamp<int64_t>(steps_done, run.steps_done, std::max(run.steps_done, run.steps));
  const double work = std::max(run.work_done_s, run.estimate_s * std::clamp(fraction, 0.0, 1.0));
  state_.steps_done += steps_done - run.steps_done;
  work_done_s_ += work - run.work_done_s;
  run.steps_done = steps_done;
  run.work_done_s = work;
  state_.work_done = work_s_ > 0 ? work_done_s_ / work_s_ : 1;
}

void Progress::on_event(const RunEvent& event) {
  const auto found = runs_.find(event.run);
  if (found == runs_.end()) return;
  Run& run = found->second;
  const bool ended = event.kind == RunEvent::Kind::finished || event.kind == RunEvent::Kind::failed;
  if (event.kind == RunEvent::Kind::progress) {
    advance(run, event.step,
            event.steps > 0 ? static_cast<double>(event.step) / static_cast<double>(event.steps) : 0);
  }
  if (event.kind == RunEvent::Kind::finished) {
    advance(run, run.steps, 1);
    ++state_.runs_done;
  }
  if (event.kind == RunEvent::Kind::failed) {
    advance(run, run.steps_done, 1);
    ++state_.failed;
  }
  // On a terminal the bar tells of starts and ends; a failure is worth a line that stays.
  const bool tell = !console_.err_terminal || event.kind == RunEvent::Kind::failed;
  const std::string line = tell ? event_line(event) : "";
  if (!line.empty()) {
    clear();
    console_.err << line << "\n" << std::flush;
  }
  repaint(ended && state_.runs_done + state_.failed == state_.runs);
}

void Progress::repaint(bool at_once) {
  if (!console_.err_terminal) return;
  const double now = clock_();
  if (painted_ && !at_once && now - painted_at_ < kRepaintEvery_s) return;
  state_.elapsed_s = now - started_;
  console_.err << "\r" << progress_line(state_, console_.err_width - 1) << "\x1b[K" << std::flush;
  painted_at_ = now;
  painted_ = true;
}

void Progress::clear() {
  if (!painted_) return;
  console_.err << "\r\x1b[K";
  painted_ = false;
}

void Progress::finish() {
  clear();
  console_.err << std::flush;
}

}  // namespace lockstep
