#include "harness/suites/foreign_saver/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/base/atomic_file.h"
#include "harness/base/hex.h"

namespace lockstep::program {
namespace {

constexpr int64_t kBefore = 10, kAfter = 8;

std::string mark_of(InjectedFault injected) {
  switch (injected) {
    case InjectedFault::kill: return "killed before it";
    case InjectedFault::kill_all: return "all killed before it";
    case InjectedFault::fail:
    case InjectedFault::fail_space: return "made to fail";
    case InjectedFault::shorten: return "cut short";
    case InjectedFault::hold: return "held before it";
    case InjectedFault::nothing: break;
  }
  return "";
}

}  // namespace

std::string process_words(const std::string& process, const std::vector<std::string>& writers) {
  const auto at = std::ranges::find(writers, process);
  return at == writers.end() ? "process " + process : fmt::format("writer {}", at - writers.begin());
}

void write_recording(const TracedRun& run, const std::string& out_dir) {
  std::string lines, data;
  for (const Operation& operation : run.operations) {
    nlohmann::ordered_json line{{"number", operation.number},
                                {"process", operation.process},
                                {"index", operation.index},
                                {"kind", name_of(operation.kind)},
                                {"call", operation.call},
                                {"path", operation.path}};
    if (!operation.to.empty()) line["to"] = operation.to;
    if (operation.kind == OperationKind::open) line["flags"] = operation.flags;
    if (operation.offset >= 0) line["offset"] = operation.offset;
    if (operation.bytes >= 0) line["bytes"] = operation.bytes;
    line["result"] = operation.result;
    const bool writes = operation.kind == OperationKind::write || operation.kind == OperationKind::copy;
    if (writes && operation.result > 0 && !operation.data.empty()) {
      const std::string written = operation.data.substr(0, static_cast<std::size_t>(operation.result));
      line["data_at"] = data.size();
      line["data_xxh3"] = hash_in_hex(written);
      data += written;
    }
    lines += line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }
  write_file_atomically(out_dir + "/operations.jsonl", lines);
  write_file_atomically(out_dir + "/operations.data", data);
}

std::vector<TimelineStep> timeline_of(const TracedRun& run, const PlannedFailure& planned,
                                      const std::vector<std::string>& writers) {
  std::vector<TimelineStep> steps;
  const Operation* held = nullptr;
  const int64_t last = std::max(run.acted_at, run.released_at) + kAfter;
  for (const Operation& operation : run.operations) {
    if (held != nullptr && operation.number == run.released_at)
      steps.push_back({process_words(held->process, writers), words_of(*held), "goes on"});
    if (operation.number < run.acted_at - kBefore || operation.number > last) continue;
    const bool here = operation.number == run.acted_at && planned.kind != nullptr;
    steps.push_back({process_words(operation.process, writers), words_of(operation),
                     here ? mark_of(planned.intervention.injected) : operation.result < 0 ? "failed" : ""});
    if (here && planned.intervention.injected == InjectedFault::hold) held = &operation;
  }
  if (held != nullptr && run.released_at > static_cast<int64_t>(run.operations.size()))
    steps.push_back({process_words(held->process, writers), words_of(*held), "goes on"});
  return steps;
}

}  // namespace lockstep::program
