#include "harness/suites/foreign_saver/operation.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

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

bool stands_already(const Operation& operation, const std::string& watched) {
  const bool makes = operation.kind == OperationKind::open || operation.kind == OperationKind::make_dir;
  struct stat facts {};
  return makes && ::lstat((watched + "/" + operation.path).c_str(), &facts) == 0;
}

bool needs_space(const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::open: return (operation.flags & O_CREAT) != 0;
    case OperationKind::write:
    case OperationKind::copy:
    case OperationKind::resize:
    case OperationKind::make_dir: return true;
    default: return false;
  }
}

}  // namespace lockstep::program
