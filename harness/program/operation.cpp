#include "harness/program/operation.h"

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

}  // namespace lockstep::program
