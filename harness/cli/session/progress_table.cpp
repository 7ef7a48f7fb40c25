#include "harness/cli/session/progress_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "harness/base/counted.h"
#include "reports/text.h"

namespace lockstep {
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

}  // namespace lockstep
