#include "harness/cli/session/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "harness/base/text.h"
#include "harness/plan/config/trainer_spec.h"
#include "reports/text.h"

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

/// One line of a run's event, without a line feed; empty for progress and for reuse, which are reported in
/// total.
static std::string event_line(const RunEvent& event) {
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
      (!console_.err_terminal && !console_.quiet) || event.kind == RunEvent::Kind::failed || event.kind == RunEvent::Kind::resumed || event.kind == RunEvent::Kind::slow ||
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
  if (!console_.err_terminal || console_.quiet) return;
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

namespace {

constexpr double kWorkBeforeForecast = 0.03;
constexpr int kWidestBar = 30;

/// The words behind the bar, the dispensable ones last.
std::vector<std::string> words_of(const ProgressState& state) {
  std::vector<std::string> words = {fmt::format("{}/{} runs", state.runs_done, state.runs)};
  if (state.failed > 0) words.push_back(fmt::format("{} failed", state.failed));
  if (state.work_done >= kWorkBeforeForecast && state.work_done < 1) {
    const double left =
        state.left_s >= 0 ? state.left_s : state.elapsed_s * (1 - state.work_done) / state.work_done;
    words.push_back("about " + duration_text(left) + " left");
  }
  words.push_back(fmt::format("{}/{} steps", with_commas(state.steps_done), with_commas(state.steps)));
  if (state.elapsed_s > 0.5) {
    words.push_back(fmt::format(
        "{} steps/s", with_commas(std::llround(static_cast<double>(state.steps_done) / state.elapsed_s))));
  }
  return words;
}

using Row = std::array<std::string, 5>;

std::vector<Row> rows_of(const ProgressView& view, std::size_t most) {
  std::vector<Row> rows{{"RUN", "RANKS", "STEP", "LEFT", ""}};
  const bool all = view.running.size() <= most;
  const std::size_t shown = all ? view.running.size() : most - 1;
  for (std::size_t i = 0; i < shown; ++i) {
    const RunningRow& row = view.running[i];
    rows.push_back({row.run, row.ranks, fmt::format("{}/{}", with_commas(row.step), with_commas(row.steps)),
                    duration_text(row.left_s), row.shown});
  }
  if (!all) rows.push_back({fmt::format("and {} more", view.running.size() - shown), "", "", "", ""});
  return rows;
}

std::string groups_line(const std::vector<ProgressGroup>& groups) {
  std::string line;
  for (const ProgressGroup& group : groups) {
    line += fmt::format("{}{} {}/{}", line.empty() ? "" : " · ", group.role, group.done, group.runs);
  }
  return line;
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
    if (!words.empty() && display_width(longer) > width) break;
    words = longer;
  }
  const int room = std::min(kWidestBar, width - display_width(words) - 3);  // two brackets and a space
  if (room < 8) return words;
  const int full = static_cast<int>(std::floor(std::clamp(state.work_done, 0.0, 1.0) * room));
  std::string bar;
  for (int i = 0; i < room; ++i) bar += i < full ? "█" : " ";
  return "[" + bar + "] " + words;
}

std::vector<std::string> progress_table(const ProgressView& view, int width, int height, bool colour) {
  constexpr int kLeastWidth = 50, kLeastHeight = 6, kBesideRuns = 3;  // head, groups, bar
  const std::string bar = progress_line(view.state, width);
  if (width < kLeastWidth || height < kLeastHeight || view.running.empty()) return {bar};
  // Half of the screen stays with what was there before.
  const int room = std::max(2, height / 2 - kBesideRuns);
  const std::vector<Row> rows = rows_of(view, static_cast<std::size_t>(room));
  std::array<int, 5> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  constexpr int kGap = 2;
  widths[0] = std::min(widths[0], width - (widths[1] + widths[2] + widths[3] + widths[4] + 5 * kGap));
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    std::string line = "  " + pad_right(shorten(row[0], std::max(1, widths[0])), widths[0]);
    for (std::size_t i = 1; i < row.size(); ++i) line += "  " + pad_right(row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    line = shorten(line, width);
    lines.push_back(colour && lines.empty() ? "\x1b[2m" + line + "\x1b[0m" : line);
  }
  lines.push_back(shorten("  " + groups_line(view.groups), width));
  lines.push_back(bar);
  return lines;
}

TimeLeft::TimeLeft(const Plan& plan, int slots) : slots_(std::max(1, slots)) {
  constexpr double kLeast_s = 1e-3;
  std::unordered_map<std::string, std::size_t> index;
  for (const PlannedRun& run : plan.runs) {
    if (run.reused) continue;
    Run own;
    own.estimate_s = std::max(run.estimate_s, kLeast_s);
    own.slots = run.exclusive ? slots_ : std::clamp(run.config.layout.world_size, 1, slots_);
    for (const std::string& need : run.needs) {
      if (const auto at = index.find(need); at != index.end()) own.needs.push_back(at->second);
    }
    index.emplace(run.id, runs_.size());
    runs_.push_back(std::move(own));
  }
}

void TimeLeft::progress(std::size_t run, double fraction, double elapsed_s) {
  runs_[run].fraction = std::max(runs_[run].fraction, std::clamp(fraction, 0.0, 1.0));
  runs_[run].elapsed_s = elapsed_s;
}

void TimeLeft::ended(std::size_t run, double elapsed_s, bool finished) {
  runs_[run].fraction = 1;
  runs_[run].elapsed_s = elapsed_s;
  runs_[run].lost = !finished;
}

double TimeLeft::work_done() const {
  double all = 0, done = 0;
  for (const Run& run : runs_) {
    all += run.estimate_s * run.slots;
    done += run.estimate_s * run.slots * run.fraction;
  }
  return all > 0 ? done / all : 1;
}

double TimeLeft::pace() const {
  double taken_s = 0, estimated_s = 0;
  for (const Run& run : runs_) {
    if (run.lost || run.fraction <= 0) continue;
    taken_s += run.elapsed_s;
    estimated_s += run.estimate_s * run.fraction;
  }
  return taken_s > 0 && estimated_s > 0 ? taken_s / estimated_s : 1;
}

double TimeLeft::run_left_s(std::size_t run) const {
  const Run& own = runs_[run];
  if (own.fraction >= 1) return 0;
  // A run's own pace, once known, predicts its end better than the pace of all.
  constexpr double kSeen = 0.1;
  if (own.fraction >= kSeen && own.elapsed_s > 0) return own.elapsed_s * (1 - own.fraction) / own.fraction;
  return own.estimate_s * (1 - own.fraction) * pace();
}

double TimeLeft::left_s() const {
  double slot_seconds = 0, longest = 0;
  std::vector<double> ends(runs_.size(), 0);
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    const Run& run = runs_[i];
    const double left = run.estimate_s * (1 - run.fraction);
    if (left <= 0) continue;
    slot_seconds += left * run.slots;
    double begin = 0;
    for (const std::size_t need : run.needs) begin = std::max(begin, ends[need]);
    ends[i] = begin + left;
    longest = std::max(longest, ends[i]);
  }
  return pace() * std::max(slot_seconds / slots_, longest);
}

namespace {

int width_of(int descriptor, int otherwise) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : otherwise;
}

int height_of(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_row : 0;
}

bool colour_of(int descriptor) {
  return colour_wanted(::isatty(descriptor) != 0, std::getenv("NO_COLOR"), std::getenv("CLICOLOR_FORCE"),
                       std::getenv("TERM"));
}

}  // namespace

std::ostream& Console::news() const {
  static std::ostream nowhere(nullptr);
  return quiet ? nowhere : err;
}

bool colour_wanted(bool is_terminal, const char* no_color, const char* clicolor_force, const char* term) {
  const auto is_set = [](const char* value) { return value != nullptr && *value != '\0'; };
  if (is_set(no_color)) return false;
  if (is_set(clicolor_force) && std::string_view(clicolor_force) != "0") return true;
  return is_terminal && !(is_set(term) && std::string_view(term) == "dumb");
}

Console process_console() {
  Console console{std::cout, std::cerr};
  console.out_colour = colour_of(STDOUT_FILENO);
  console.err_colour = colour_of(STDERR_FILENO);
  const char* term = std::getenv("TERM");
  console.err_terminal =
      ::isatty(STDERR_FILENO) != 0 && !(term != nullptr && std::string_view(term) == "dumb");
  console.out_width = ::isatty(STDOUT_FILENO) != 0 ? width_of(STDOUT_FILENO, 80) : 0;
  console.err_width = width_of(STDERR_FILENO, 80);
  console.err_height = height_of(STDERR_FILENO);
  return console;
}

}  // namespace lockstep
