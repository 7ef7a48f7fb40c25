#include "harness/suites/engine/scheduler/process.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

namespace lockstep::scheduler {
namespace {

using checkpoint::Intervention;
using checkpoint::Operation;
using checkpoint::OperationKind;

std::error_code gone() { return {EIO, std::generic_category()}; }

bool takes_room(OperationKind kind) {
  return kind == OperationKind::create || kind == OperationKind::write || kind == OperationKind::make_folder;
}

bool changes(OperationKind kind) {
  switch (kind) {
    case OperationKind::list:
    case OperationKind::open:
    case OperationKind::read:
    case OperationKind::stat:
    case OperationKind::close:
    case OperationKind::gather:
    case OperationKind::sync:
    case OperationKind::sync_folder:
      return false;
    default:
      return true;
  }
}

}  // namespace

std::string_view name_of(std::error_code error) {
  switch (error.value()) {
    case ENOSPC:
      return "ENOSPC";
    case EDQUOT:
      return "EDQUOT";
    case EIO:
      return "EIO";
    case EINTR:
      return "EINTR";
    case EROFS:
      return "EROFS";
    case EACCES:
      return "EACCES";
    default:
      return "an error";
  }
}

void ScheduledProcess::end() {
  ended_ = true;
  if (group_ != nullptr) group_->end();
}

void ScheduledProcess::note(const Operation& operation, std::error_code error, std::string mark) {
  if (!play_.notes_wanted) return;
  Note& note = play_.notes.emplace_back(Note{index_, operation, operation.bytes.size(), "", error, std::move(mark)});
  if (play_.bytes_wanted) note.bytes = operation.bytes;
  note.operation.bytes = {};
}

Intervention ScheduledProcess::before(const Operation& operation) {
  if (ended_) return {.error = gone()};
  for (std::size_t i = 0; i < play_.preemptions.size(); ++i) {
    const Preemption& preemption = play_.preemptions[i];
    if (preemption.process != index_ || preemption.at != operation.number || play_.preempted[i]) continue;
    play_.preempted[i] = true;
    note(operation, {}, fmt::format("held before it; process {} goes on", preemption.to));
    play_.scheduler.give_way(index_, preemption.to, preemption.soon);
    if (ended_) return {.error = gone()};
  }
  count_ = operation.number + 1;
  if (kinds_.size() < static_cast<std::size_t>(count_)) kinds_.resize(static_cast<std::size_t>(count_));
  kinds_[static_cast<std::size_t>(operation.number)] = operation.kind;
  if (script_.injected == InjectedFault::nothing || operation.number < script_.at)
    return {.left_out = play_.syncs_left_out && is_sync(operation.kind)};
  return injected(operation);
}

Intervention ScheduledProcess::injected(const Operation& operation) {
  const bool here = operation.number == script_.at;
  if (here) acted_ = true;
  switch (script_.injected) {
    case InjectedFault::nothing:
      return {};
    case InjectedFault::end:
    case InjectedFault::end_all:
      note(operation, {}, "killed before it");
      if (script_.injected == InjectedFault::end) end();
      for (ScheduledProcess* each : job_) each->end();
      return {.error = gone()};
    case InjectedFault::end_within:
      if (!here) return {};
      if (operation.kind == OperationKind::gather && group_ != nullptr) {
        mark_ = fmt::format("killed within: {} others have its text", script_.reach);
        note(operation, {}, mark_);
        group_->end_within(script_.reach);
        ended_ = true;
        return {};
      }
      ends_after_ = true;
      mark_ = "killed within: half of it is done";
      return {.most_bytes = operation.bytes.size() / 2};
    case InjectedFault::fail:
    case InjectedFault::fail_done:
      if (!here) return {};
      mark_ = fmt::format("fails with {}{}", name_of(script_.error), script_.injected == InjectedFault::fail_done ? ", and was done" : "");
      return {.error = script_.error, .performed = script_.injected == InjectedFault::fail_done};
    case InjectedFault::fail_onward:
      if (!takes_room(operation.kind)) return {};
      mark_ = fmt::format("fails with {}", name_of(script_.error));
      return {.error = script_.error};
    case InjectedFault::fail_folder:
      if (!changes(operation.kind)) return {};
      mark_ = fmt::format("fails with {}", name_of(script_.error));
      return {.error = script_.error};
    case InjectedFault::shorten:
      if (!here) return {};
      mark_ = "takes one byte";
      return {.most_bytes = 1};
    case InjectedFault::slow:
      if (operation.kind == OperationKind::gather) return {};
      mark_ = fmt::format("takes {:g} s", script_.seconds);
      play_.scheduler.advance(index_, script_.seconds);
      return {};
    case InjectedFault::hang:
      if (!here) return {};
      note(operation, {}, "never returns");
      play_.scheduler.hang(index_);
      end();
      return {.error = gone()};
  }
  return {};
}

void ScheduledProcess::after(const Operation& operation, std::error_code error) {
  if (ended_) return;
  if (operation.kind == OperationKind::gather && operation.path == "committed" && !error) play_.committed.push_back(index_);
  note(operation, error, std::move(mark_));
  mark_.clear();
  if (!ends_after_) return;
  end();
}

std::vector<TimelineStep> timeline_of(const std::vector<Note>& notes, const std::vector<std::string>& processes) {
  std::vector<TimelineStep> steps;
  for (const Note& note : notes) {
    checkpoint::Operation operation = note.operation;
    std::string words = in_words(operation);
    if (operation.kind == checkpoint::OperationKind::write)
      words = fmt::format("write {} bytes at {} of {}", note.size, operation.offset, operation.path);
    std::string mark = note.mark;
    if (mark.empty() && note.error) mark = note.error.message();
    steps.push_back({processes.at(static_cast<std::size_t>(note.process)), words, mark});
  }
  return steps;
}

}  // namespace lockstep::scheduler
