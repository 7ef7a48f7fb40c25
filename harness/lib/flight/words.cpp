#include "harness/lib/flight/words.h"

#include <fmt/format.h>

#include "harness/base/clean_text.h"

namespace lockstep::flight {
namespace {

constexpr std::size_t kMostNameBytes = 120;

std::string tensor_in_words(const std::string& dtype, const std::vector<int64_t>& shape) {
  return dtype.empty() ? "" : fmt::format(" {} [{}]", short_clean(dtype), fmt::join(shape, ", "));
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

std::string name_in_words(const Entry& entry) {
  return short_clean(entry.op, kMostNameBytes) + (entry.tag.empty() ? "" : " " + short_clean(entry.tag, kMostNameBytes));
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
