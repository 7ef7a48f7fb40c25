#include "harness/suites/foreign_saver/operation.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <array>

namespace lockstep::program {

std::string_view name_of(OperationKind kind) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"open", "write", "copy", "resize", "sync", "close", "rename", "remove", "make_dir", "map"});
  return kNames[static_cast<std::size_t>(kind)];
}

std::string words_of(const Operation& operation) {
  std::string text = operation.call;
  if (!operation.path.empty()) text += " " + operation.path;
  if (!operation.to.empty()) text += " to " + operation.to;
  if (operation.bytes >= 0)
    text += operation.kind == OperationKind::resize ? fmt::format(", length {}", operation.bytes)
                                                    : fmt::format(", {} bytes", operation.bytes);
  if (operation.offset >= 0) text += fmt::format(" at {}", operation.offset);
  return text;
}

bool stands_already(const Operation& operation) {
  const bool makes = operation.kind == OperationKind::make_dir || (operation.flags & O_EXCL) != 0;
  return makes && operation.existed;
}

bool needs_space(const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::open: return (operation.flags & O_CREAT) != 0 && !operation.existed;
    case OperationKind::make_dir: return !operation.existed;
    case OperationKind::write:
    case OperationKind::copy:
    case OperationKind::resize: return true;
    default: return false;
  }
}

}  // namespace lockstep::program
