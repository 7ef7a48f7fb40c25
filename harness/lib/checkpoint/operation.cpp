#include "harness/lib/checkpoint/operation.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

namespace lockstep::checkpoint {

std::string_view name_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::create:
      return "create";
    case OperationKind::write:
      return "write";
    case OperationKind::sync:
      return "sync";
    case OperationKind::close:
      return "close";
    case OperationKind::rename:
      return "rename";
    case OperationKind::sync_folder:
      return "sync folder";
    case OperationKind::make_folder:
      return "make folder";
    case OperationKind::unlink:
      return "unlink";
    case OperationKind::remove_folder:
      return "remove folder";
    case OperationKind::list:
      return "list";
    case OperationKind::open:
      return "open";
    case OperationKind::read:
      return "read";
    case OperationKind::stat:
      return "stat";
    case OperationKind::lock:
      return "lock";
    case OperationKind::gather:
      return "gather";
  }
  return "unknown";
}

std::string in_words(const Operation& operation) {
  const std::string_view name = name_of(operation.kind);
  switch (operation.kind) {
    case OperationKind::write:
      return fmt::format("write {} bytes at {} of {}", operation.bytes.size(), operation.offset,
                         operation.path);
    case OperationKind::read:
      return fmt::format("read {} at {}", operation.path, operation.offset);
    case OperationKind::rename:
      return fmt::format("rename {} to {}", operation.path, operation.to);
    case OperationKind::gather:
      return fmt::format("gather '{}'", operation.path);
    default:
      return fmt::format("{} {}", name, operation.path);
  }
}

Intervention Recorder::before(const Operation& operation) {
  return next_ == nullptr ? Intervention{} : next_->before(operation);
}

void Recorder::after(const Operation& operation, std::error_code error) {
  {
    const std::lock_guard lock(mutex_);
    Done& done = done_.emplace_back(Done{operation, std::string(operation.bytes), error});
    done.operation.bytes = done.bytes;
  }
  if (next_ != nullptr) next_->after(operation, error);
}

Intervention SignalAt::before(const Operation& operation) {
  if (operation.number == number_) ::kill(::getpid(), signal_);
  return {};
}

}  // namespace lockstep::checkpoint
