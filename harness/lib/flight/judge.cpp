#include "harness/lib/flight/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace lockstep::flight {
namespace {

using ByRank = std::map<int, const Entry*>;

std::string list_of(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

/// "all_reduce grad.w float32 [3, 4]"
std::string call_of(const Entry& entry) {
  std::string text = entry.op;
  if (!entry.tag.empty()) text += " " + entry.tag;
  if (!entry.dtype.empty()) text += fmt::format(" {} [{}]", entry.dtype, fmt::join(entry.shape, ", "));
  if (entry.root >= 0) text += fmt::format(" from rank {}", entry.root);
  return text;
}

/// What a rank did last, as far as its record says.
std::string last_of(const Recorded& record) {
  if (record.entries.empty()) return "recorded nothing";
  const Entry& last = record.entries.back();
  return fmt::format("{} {} ({} {})", last.state == State::completed ? "left last" : "is in", last.op + (last.tag.empty() ? "" : " " + last.tag),
                     last.group, last.sequence);
}

/// The numbers of a group that every rank's record could hold: older ones may have been written over.
uint64_t first_comparable(const std::vector<Recorded>& records, const std::string& group) {
  uint64_t first = 1;
  for (const Recorded& record : records) {
    const bool whole = record.entries.empty() || record.entries.front().id == 0;
    const auto oldest = std::ranges::find(record.entries, group, &Entry::group);
    if (!whole && oldest != record.entries.end()) first = std::max(first, oldest->sequence);
  }
  return first;
}

std::optional<Finding> missing_in(const std::vector<Recorded>& records, const ByRank& entered, Finding found) {
  std::vector<int> there;
  std::string doing;
  for (const Recorded& record : records) {
    if (entered.contains(record.rank)) {
      there.push_back(record.rank);
      continue;
    }
    found.ranks.push_back(record.rank);
    doing += fmt::format("; rank {} {}", record.rank, last_of(record));
  }
  if (found.ranks.empty()) return std::nullopt;
  found.kind = Finding::Kind::missing;
  found.sentence = fmt::format("{}: {} {} not entered {} (number {}), which {} {}{}", found.group, list_of(found.ranks),
                               found.ranks.size() == 1 ? "has" : "have", call_of(*entered.begin()->second), found.sequence,
                               list_of(there), there.size() == 1 ? "has" : "have", doing);
  return found;
}

std::optional<Finding> mismatch_in(const ByRank& entered, Finding found) {
  std::map<std::string, std::vector<int>> calls;
  for (const auto& [rank, entry] : entered) calls[call_of(*entry)].push_back(rank);
  if (calls.size() < 2) return std::nullopt;
  const auto most = std::ranges::max_element(calls, [](const auto& a, const auto& b) {
    return a.second.size() != b.second.size() ? a.second.size() < b.second.size() : a.second.front() > b.second.front();
  });
  found.kind = Finding::Kind::mismatch;
  std::string others;
  for (const auto& [call, ranks] : calls) {
    if (call == most->first) continue;
    found.ranks.insert(found.ranks.end(), ranks.begin(), ranks.end());
    others += fmt::format("{}{} {} {}", others.empty() ? "" : "; ", list_of(ranks), ranks.size() == 1 ? "calls" : "call", call);
  }
  std::ranges::sort(found.ranks);
  found.sentence = fmt::format("{}: number {} is not the same call on all ranks: {} where {} {} {}", found.group, found.sequence,
                               others, list_of(most->second), most->second.size() == 1 ? "calls" : "call", most->first);
  return found;
}

std::optional<Finding> stuck_in(const ByRank& entered, Finding found) {
  for (const auto& [rank, entry] : entered) {
    if (entry->state != State::completed) found.ranks.push_back(rank);
  }
  if (found.ranks.empty()) return std::nullopt;
  found.kind = Finding::Kind::stuck;
  found.sentence = fmt::format("{}: all ranks have entered {} (number {}), and {} {} not left it", found.group,
                               call_of(*entered.begin()->second), found.sequence, list_of(found.ranks),
                               found.ranks.size() == 1 ? "has" : "have");
  return found;
}

/// Where the ranks of a group part first.
std::optional<Finding> first_in(const std::vector<Recorded>& records, const std::string& group, std::size_t& compared) {
  std::map<uint64_t, ByRank> numbers;
  const uint64_t from = first_comparable(records, group);
  for (const Recorded& record : records) {
    for (const Entry& entry : record.entries) {
      if (entry.group == group && entry.sequence >= from) numbers[entry.sequence][record.rank] = &entry;
    }
  }
  for (const auto& [number, entered] : numbers) {
    const Entry& one = *entered.begin()->second;
    const Finding blank{Finding::Kind::missing, group, number, one.op, one.tag, {}, ""};
    ++compared;
    if (auto found = mismatch_in(entered, blank)) return found;
    if (auto found = missing_in(records, entered, blank)) return found;
    if (auto found = stuck_in(entered, blank)) return found;
  }
  return std::nullopt;
}

int64_t began_ns(const std::vector<Recorded>& records, const Finding& finding) {
  int64_t earliest = 0;
  for (const Recorded& record : records) {
    for (const Entry& entry : record.entries) {
      const bool same = entry.group == finding.group && entry.sequence == finding.sequence;
      if (same && (earliest == 0 || entry.created_ns < earliest)) earliest = entry.created_ns;
    }
  }
  return earliest;
}

}  // namespace

Judgement judge(const std::vector<Recorded>& records) {
  Judgement judgement;
  std::set<std::string> groups;
  std::set<int> there;
  int world = 0;
  for (const Recorded& record : records) {
    world = std::max(world, record.world_size);
    there.insert(record.rank);
    for (const Entry& entry : record.entries) groups.insert(entry.group);
  }
  for (int rank = 0; rank < world; ++rank) {
    if (!there.contains(rank)) judgement.without_record.push_back(rank);
  }
  for (const std::string& group : groups) {
    if (auto found = first_in(records, group, judgement.collectives)) judgement.findings.push_back(std::move(*found));
  }
  // A call that differs is a mistake wherever it stands; who is missing may wait elsewhere because of it.
  std::ranges::stable_sort(judgement.findings, {}, [&](const Finding& finding) {
    return std::pair(finding.kind != Finding::Kind::mismatch, began_ns(records, finding));
  });
  return judgement;
}

std::vector<std::string> in_words(const Judgement& judgement) {
  std::vector<std::string> lines;
  for (const Finding& finding : judgement.findings) lines.push_back(finding.sentence);
  if (!judgement.without_record.empty()) lines.push_back(list_of(judgement.without_record) + " left no record");
  if (judgement.findings.empty())
    lines.push_back(fmt::format("All {} collectives on record agree, and every rank has left them.", judgement.collectives));
  return lines;
}

}  // namespace lockstep::flight
