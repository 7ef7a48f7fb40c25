// What `lockstep check` and others say, in the forms that were asked for; and of a run that its trainer has resumed.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <ostream>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/cli/commands.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/led.h"
#include "reports/check.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct LostState {
  std::string_view name, what, fix;
};

/// Of states that have no page of their own.
constexpr LostState kStates[] = {
    {"weights", "The resumed run begins with other weights than the stopped one ended with.",
     "load the whole state_dict with strict=True, in the type that it was trained in"},
    {"buffers", "The resumed run begins with other buffers.",
     "save and load the model's state_dict: it has the buffers; those with persistent=False are yours to save"},
    {"scaler", "The GradScaler begins with its first scale.",
     "save scaler.state_dict() and load it before the first step"},
    {"averages", "The average of the weights is not the one that was saved.",
     "save the averaged model's state_dict, and load it after the weights"},
    {"declared averages", "The average of the weights is not the one that was saved.",
     "save the averaged model's state_dict, and load it after the weights"},
    {"rows", "The resumed run takes other rows.",
     "restore the sampler's epoch and the generator that shuffles before the loader is asked, then move it to its "
     "place"},
    {"contents", "The same rows hold other values, such as augmentations that a loader's workers draw.",
     "draw them from a seed made of epoch and row, or let the loader restore its workers' seeds"},
    {"generators", "Random generators are not where they were.",
     "save torch.get_rng_state(), random.getstate() and numpy.random.get_state() of each rank, and set them when the "
     "loader is at its place"},
};

std::string fix_of(const LedItem& item) {
  if (const CausePage* page = item.code.empty() ? nullptr : find_cause_page(item.code))
    return std::string(page->remedy);
  const auto* const state = std::ranges::find(kStates, item.name, &LostState::name);
  return state == std::end(kStates) ? "" : std::string(state->fix);
}

std::string what_of(const LedItem& item) {
  if (const CausePage* page = item.code.empty() ? nullptr : find_cause_page(item.code)) return std::string(page->what);
  const auto* const state = std::ranges::find(kStates, item.name, &LostState::name);
  return state == std::end(kStates) ? "" : std::string(state->what);
}

bool has_saved(const std::string& folder) {
  constexpr std::string_view kOurs[] = {"rank-", "run.json", "done", "command.log", "heartbeat", "python-stacks"};
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (std::ranges::none_of(kOurs, [&](std::string_view own) { return name.starts_with(own); })) return true;
  }
  return false;
}

}  // namespace

CheckDocument resumed_document(const ResumedFindings& found, const std::string& folder) {
  CheckDocument document;
  document.reference = "the whole run";
  document.run = "the resumed run";
  const auto broken = std::ranges::find(found.items, Mark::different, &LedItem::state);
  document.verdict = Mark::different;
  if (found.anew) {
    const bool saved = has_saved(folder);
    document.headline = "did not resume: begins with the start weights";
    document.fix =
        saved ? "load the checkpoint that is in {out}; if another command resumes, give it by --resume-with"
              : fmt::format(
                    "save into {{out}} sooner: before step {} nothing was saved there; or stop later, with --resumed K",
                    found.stopped);
  } else if (!found.lost.empty()) {
    const LedItem& first = *found.find(found.lost.front());
    document.headline = fmt::format("resumed otherwise at step {}: {}", found.begins,
                                    first.code.empty() ? first.name + " lost" : first.code);
    if (found.lost.size() == 1) document.because = {what_of(first)};
    document.fix = fix_of(first);
    for (std::size_t i = 1; i < std::min<std::size_t>(found.lost.size(), 3); ++i)
      document.because.push_back(fmt::format("{} too: {}", found.lost[i], fix_of(*found.find(found.lost[i]))));
  } else if (broken != found.items.end()) {
    document.headline = fmt::format("resumed otherwise from step {}: {}", broken->first, broken->name);
    document.because = {
        "All states that are seen agree; what follows from them does not: the program holds something else that it "
        "does not save."};
  } else {
    const LedItem* rows = found.find("rows");
    const bool open =
        found.steps == 0 || found.unseeded || (found.chance >= 0 && rows && rows->state == Mark::none);
    document.verdict = open ? Mark::undecided : Mark::same;
    document.headline =
        found.steps == 0 ? "undecided: the resumed run has made no whole step"
        : open           ? found.unseeded ? "undecided: the program begins with other weights each time"
                                          : "undecided: the program takes other rows each time"
               : fmt::format("resumed the same: {} from step {} on", counted(found.steps, "step"), found.begins);
    if (open && found.steps > 0)
      document.fix = "give the program a seed, so that two of its runs begin alike and take the same rows";
  }
  if (!found.anew && found.begins < found.stopped)
    document.because.push_back(
        fmt::format("It begins at step {}, the newest checkpoint's, where the run was stopped before step {}.",
                    found.begins, found.stopped));
  if (found.chance >= 0)
    document.because.push_back(
        fmt::format("Two runs of this program differ by themselves from step {} ({}): states are compared, and not "
                    "what the steps compute.",
                    found.chance, found.chance_text));
  std::vector<std::string> follow;
  for (const LedItem& item : found.items) {
    // What follows from a lost state takes one line.
    const bool follows = !found.lost.empty() && item.state == Mark::different &&
                         std::ranges::find(found.lost, item.name) == found.lost.end();
    if (follows) follow.push_back(fmt::format("{} from step {}", item.name, item.first));
    if (follows) continue;
    if (found.anew && item.state != Mark::different) continue;
    document.facts.push_back({item.state, item.name, item.text});
  }
  if (!follow.empty()) document.facts.push_back({Mark::different, "what follows", join_words(follow)});
  return document;
}

std::vector<SuiteChart> charts_of(const std::vector<LedStep>& steps, int64_t first, bool led,
                                  const std::string& reference, const std::string& run) {
  const ChartAxis step{"step", "", false};
  const char *of_loss = "of each step, each run from its own weights", *of_gradients = "relative to the reference's";
  if (led) of_loss = "of each step, in float64, from equal weights";
  if (led) of_gradients = "relative to the reference's; below 1e-12 they are the same";
  SuiteChart losses{"Loss", of_loss, step, {"loss", "", false}, false, {}, {}};
  SuiteChart gradients{"Difference of gradients", of_gradients, step, {"difference", "", true}, false, {}, {}};
  ChartSeries a{reference, CaseVerdict::good, {}}, b{run, CaseVerdict::good, {}},
      off{"before clipping", CaseVerdict::good, {}};
  for (const LedStep& step : steps) {
    const auto x = static_cast<double>(step.step);
    if (std::isfinite(step.expected_loss)) a.points.push_back({x, step.expected_loss});
    if (std::isfinite(step.loss)) b.points.push_back({x, step.loss});
    if (std::isfinite(step.gradients)) off.points.push_back({x, std::max(step.gradients, 1e-17)});
  }
  losses.panels = {{"", {a, b}}};
  gradients.panels = {{"", {off}}};
  if (first >= 0) losses.marks = gradients.marks = {{"first difference", static_cast<double>(first)}};
  return {losses, gradients};
}

void print_document(const CheckDocument& document, const std::string& json, const std::string& text,
                    const Outputs& asked, const Console& console) {
  bool said = false;
  const auto write = [&](const std::string& path, const auto& form) {
    if (path == "-")
      console.out << form(), said = true;
    else if (!path.empty())
      write_file_atomically(path, form());
  };
  write(asked.html, [&] { return clean_text(check_page(document)); });
  write(asked.md, [&] { return clean_text(check_markdown(document)); });
  write(asked.json, [&] { return clean_json(json.empty() ? document_json(document).dump(2) + "\n" : json); });
  if (!said) console.out << text;
}

}  // namespace lockstep
