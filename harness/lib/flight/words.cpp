#include "harness/lib/flight/words.h"

#include <fmt/format.h>

#include "harness/base/clean_text.h"

namespace lockstep::flight {
namespace {

std::string tensor_in_words(const std::string& dtype, const std::vector<int64_t>& shape) {
  return dtype.empty() ? "" : fmt::format(" {} [{}]", name_in_words(dtype), fmt::join(shape, ", "));
}

}  // namespace

std::string ranks_in_words(const std::vector<int>& ranks) {
  constexpr std::size_t kMostParts = 16;
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  std::size_t parts = 0;
  for (std::size_t i = 0; i < ranks.size(); ++parts) {
    if (parts == kMostParts) return text + fmt::format(" and {} more", ranks.size() - i);
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last < i + 2) last = i;  // two neighbours are two
    text += fmt::format("{} {}", parts > 0 ? "," : "", ranks[i]);
    if (last > i) text += fmt::format(" to {}", ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string name_in_words(std::string_view name) {
  constexpr std::size_t kMostBytes = 120;
  if (name.size() <= kMostBytes) return clean_line(name);
  std::size_t end = kMostBytes;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) --end;  // no character is cut in two
  return clean_line(name.substr(0, end)) + "...";
}

std::string name_in_words(const Entry& entry) {
  return name_in_words(entry.op) + (entry.tag.empty() ? "" : " " + name_in_words(entry.tag));
}

std::string call_in_words(const Entry& entry) {
  const std::string text = name_in_words(entry) + tensor_in_words(entry.dtype, entry.shape);
  return entry.root >= 0 ? text + fmt::format(" from rank {}", entry.root) : text;
}

std::string call_in_words(const Message& message) {
  const std::string ends = message.sends ? fmt::format("send {}->{}", message.from, message.to) : fmt::format("recv {}<-{}", message.to, message.from);
  return ends + tensor_in_words(message.dtype, message.shape);
}

}  // namespace lockstep::flight
