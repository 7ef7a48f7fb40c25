#pragma once
// The columns of a table, whatever format it is written in.

#include <string>
#include <utility>

namespace lockstep {

struct Column {
  Column(std::string text) : head(std::move(text)) {}
  Column(const char* text) : head(text) {}
  std::string head;
  bool numbers = false;  ///< they are aligned to the right
};

inline Column numbers(std::string head) {
  Column column(std::move(head));
  column.numbers = true;
  return column;
}

}  // namespace lockstep
