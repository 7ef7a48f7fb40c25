// What was found, in the files of other tools.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <ostream>

#include "harness/base/files.h"
#include "harness/base/text.h"
#include "harness/cli/commands.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/led.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/lib/flight/dump.h"
#include "harness/run/probe.h"
#include "reports/tools.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Losses, gradients' norms by rank, largest over smallest, and how far it lies from its reference.
ToolRun tool_run_of(const ToolSource& source) {
  ToolRun made{source.name, {}, {}};
  if (!source.text.empty()) made.texts["verdict"] = source.text;
  const auto add = [&](const std::string& tag, int64_t step, double value) {
    if (std::isfinite(value) && step >= 0) made.scalars[tag][step] = value;
  };
  if (flight::holds_records(source.folder)) return made;
  RunReader run(source.folder);
  while (const std::optional<StepOfRun> step = run.next()) {
    add("loss", step->step, mean_loss(*step).value_or(kNaN));
    for (const Phase phase : {Phase::local_gradients, Phase::reduced_gradients}) {
      const std::string name = name_of(phase);
      std::vector<double> norms;
      for (std::size_t rank = 0; rank < step->ranks.size(); ++rank) {
        norms.push_back(causes::norm_of(step->ranks[rank], phase));
        if (norms.back() > 0) add(fmt::format("norm of {}/rank {}", name, rank), step->step, norms.back());
      }
      const auto [least, most] = std::ranges::minmax_element(norms);
      if (norms.size() > 1 && *least > 0)
        add(fmt::format("norm of {}/largest over smallest", name), step->step, *most / *least);
    }
  }
  if (source.reference.empty()) return made;
  for (const LedStep& step : paired_steps(source.reference, source.folder)) {
    add("difference from the reference/gradients", step.step, step.gradients);
    add("difference from the reference/loss", step.step, std::abs(step.loss - step.expected_loss));
  }
  return made;
}

std::string call_words(const std::string& op, const std::string& tag) { return tag.empty() ? op : op + " " + tag; }

/// By flight records, which have times; else what the traces have, one after the other.
void add_calls(const ToolSource& source, std::vector<ToolCall>& calls) {
  const std::string own = source.folder + "/flight", flights = fs::is_directory(own) ? own : source.folder;
  if (flight::holds_records(flights)) {
    const flight::Records records = flight::read_records(flights);
    int64_t begun = INT64_MAX;
    for (const flight::Recorded& rank : records.read)
      for (const flight::Entry& entry : rank.entries) begun = std::min(begun, entry.created_ns);
    for (const flight::Recorded& rank : records.read) {
      for (const flight::Entry& entry : rank.entries) {
        const int64_t took = std::max<int64_t>(entry.completed_ns - entry.created_ns, 0);
        calls.push_back({source.name, call_words(entry.op, entry.tag), entry.group, rank.rank, entry.step,
                         static_cast<double>(entry.created_ns - begun) / 1e3, static_cast<double>(took) / 1e3});
      }
    }
    return;
  }
  const std::string name = source.name + " (no times: a microsecond is a call)";
  RunReader run(source.folder);
  double begin = 0;
  while (const std::optional<StepOfRun> step = run.next()) {
    double end = begin + 1;
    for (std::size_t rank = 0; rank < step->ranks.size(); ++rank) {
      const std::size_t first = calls.size();
      const std::string words = step->step < 0 ? "before the first step" : fmt::format("step {}", step->step);
      calls.push_back({name, words, "", static_cast<int>(rank), step->step, begin, 1});
      for (const Record& record : step->ranks[rank].records) {
        if (record.phase != Phase::collective) continue;
        const CollectiveRecord& call = record.collective;
        calls.push_back({name, call_words(call.op, call.tag), call.group, static_cast<int>(rank), step->step,
                         begin + calls[first].us, 1});
        calls[first].us += 1;
      }
      calls[first].us += 1;
      end = std::max(end, begin + calls[first].us);
    }
    begin = end;
  }
}

/// By W&B itself: the format of its files is its own.
void write_wandb(const std::vector<ToolRun>& runs, const std::string& folder, const Console& console) {
  fs::create_directories(folder);
  const std::string log = folder + "/lockstep.json";
  write_file_atomically(log, tool_json(runs));
  const std::string command = fmt::format("PYTHONPATH={}\"${{PYTHONPATH:+:$PYTHONPATH}}\" python3 -m lockstep_probe.wandb {} {} >&2",
                                          shell_quoted(find_probe()), shell_quoted(log), shell_quoted(folder));
  if (std::system(command.c_str()) != 0)
    console.err << clean_line(
                       "lockstep: --wandb: no runs were written (is wandb installed?); what they would hold is in " +
                       log)
                << "\n";
}

void write_asked(const std::vector<ToolSource>& sources, const ToolOutputs& asked, const Console& console) {
  std::vector<ToolRun> runs;
  std::vector<ToolCall> calls;
  for (const ToolSource& source : sources) {
    if (!asked.tensorboard.empty() || !asked.wandb.empty()) runs.push_back(tool_run_of(source));
    if (!asked.chrome_trace.empty()) add_calls(source, calls);
  }
  const auto now = static_cast<double>(std::time(nullptr));
  for (const ToolRun& run : runs) {
    if (asked.tensorboard.empty()) break;
    const std::string folder = asked.tensorboard + "/" + replaced(run.name, "/", "-");
    fs::create_directories(folder);
    write_file_atomically(folder + "/events.out.tfevents.0000000000.lockstep", tensorboard_events(run, now));
  }
  if (!asked.wandb.empty()) write_wandb(runs, asked.wandb, console);
  if (!asked.chrome_trace.empty()) write_file_atomically(asked.chrome_trace, chrome_trace(calls));
}

}  // namespace

std::vector<LedStep> paired_steps(const std::string& reference, const std::string& run) {
  try {
    return led_steps(reference, run);
  } catch (const std::runtime_error&) {
    return {};
  }
}

void write_tools(const std::vector<ToolSource>& sources, const ToolOutputs& asked, const Console& console) {
  if (asked.tensorboard.empty() && asked.wandb.empty() && asked.chrome_trace.empty()) return;
  try {
    write_asked(sources, asked, console);
  } catch (const std::runtime_error& error) {
    // What was found stays so.
    console.err << clean_line(fmt::format("lockstep: no files of other tools: {}", error.what())) << "\n";
  }
}

}  // namespace lockstep
