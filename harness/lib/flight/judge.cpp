#include "harness/lib/flight/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "harness/lib/flight/words.h"

namespace lockstep::flight {
namespace {

using ByRank = std::map<int, const Entry*>;

/// A member of a group with a record, and its calls there.
struct Member {
  const Recorded* record = nullptr;
  std::vector<const Entry*> calls = {};
  uint64_t last = 0;  ///< the highest number
  void add(const Entry& entry) {
    calls.push_back(&entry);
    last = std::max(last, entry.sequence);
  }
  /// From which number on the record holds all the calls; nothing: it may have lost any of them.
  std::optional<uint64_t> whole_from() const {
    if (record->lost == 0) return 1;
    const auto oldest = std::ranges::find_if(calls, [&](const Entry* entry) { return entry->id >= record->lost; });
    return oldest == calls.end() ? std::nullopt : std::optional((*oldest)->sequence);
  }
};

/// Ranks that call together under one name.
struct Group {
  std::string name;
  std::vector<int> said = {};       ///< members by the records, in the group's order; empty: no record says them
  std::map<int, Member> ranks = {};
};

/// PyTorch's group of all ranks.
bool is_default(const std::string& group) { return group.ends_with(":default_pg"); }

const char* have(const std::vector<int>& ranks) { return ranks.size() == 1 ? "has" : "have"; }

/// What a rank did last, as far as its record says.
std::string last_of(const Recorded& record) {
  if (record.entries.empty()) return "recorded no collective";
  const Entry& last = record.entries.back();
  return fmt::format("{} {} ({} {})", last.state == State::completed ? "left last" : "is in", name_in_words(last),
                     name_in_words(last.group), last.sequence);
}

/// Do the ranks of a collective of this name bring tensors of one size and type? Those of a scatter or an all-to-all do not.
bool brings_alike(const std::string& op) {
  constexpr const char* kAlike[] = {"all_reduce", "allreduce", "all_gather", "allgather", "_all_gather_base", "_allgather_base",
                                    "broadcast", "reduce", "_reduce_scatter_base", "gather", "barrier"};
  return std::ranges::any_of(kAlike, [&](const char* name) { return op.starts_with(name); });
}

std::optional<Finding> missing_in(const Group& group, const ByRank& entered, Finding found) {
  std::vector<int> there;
  std::string doing;
  for (const auto& [rank, member] : group.ranks) {
    if (entered.contains(rank)) {
      there.push_back(rank);
      continue;
    }
    const std::optional<uint64_t> from = member.whole_from();
    if (!from || *from > found.sequence || member.last > found.sequence) continue;  // its record lacks the call; it may have made it
    found.ranks.push_back(rank);
    doing += fmt::format("; rank {} {}", rank, last_of(*member.record));
  }
  if (found.ranks.empty()) return std::nullopt;
  found.kind = Finding::Kind::missing;
  found.sentence = fmt::format("{}: {} {} not entered {} (number {}), which {} {}{}", name_in_words(group.name), ranks_in_words(found.ranks),
                               have(found.ranks), call_in_words(*entered.begin()->second), found.sequence,
                               ranks_in_words(there), have(there), doing);
  return found;
}

std::optional<Finding> mismatch_in(const Group& group, const ByRank& entered, Finding found) {
  std::map<std::string, std::vector<int>> calls;
  for (const auto& [rank, entry] : entered) {
    // The oldest number of a record that lost some: earlier calls made together with it may be among them.
    const Member& member = group.ranks.at(rank);
    if (member.record->lost > 0 && member.whole_from() == found.sequence) continue;
    calls[brings_alike(entry->op) ? call_in_words(*entry) : name_in_words(*entry)].push_back(rank);
  }
  if (calls.size() < 2) return std::nullopt;
  const auto most = std::ranges::max_element(calls, [](const auto& a, const auto& b) {
    return a.second.size() != b.second.size() ? a.second.size() < b.second.size() : a.second.front() > b.second.front();
  });
  found.kind = Finding::Kind::mismatch;
  std::string others;
  for (const auto& [call, ranks] : calls) {
    if (call == most->first) continue;
    found.ranks.insert(found.ranks.end(), ranks.begin(), ranks.end());
    others += fmt::format("{}{} {} {}", others.empty() ? "" : "; ", ranks_in_words(ranks), ranks.size() == 1 ? "calls" : "call", call);
  }
  std::ranges::sort(found.ranks);
  found.sentence = fmt::format("{}: number {} is not the same call on all ranks: {} where {} {} {}", name_in_words(found.group), found.sequence,
                               others, ranks_in_words(most->second), most->second.size() == 1 ? "calls" : "call", most->first);
  return found;
}

std::optional<Finding> stuck_in(const Group& group, const ByRank& entered, Finding found) {
  std::vector<int> there;
  for (const auto& [rank, entry] : entered) {
    there.push_back(rank);
    if (entry->state != State::completed) found.ranks.push_back(rank);
  }
  if (found.ranks.empty()) return std::nullopt;
  found.kind = Finding::Kind::stuck;
  const bool all = !group.said.empty() && group.said.size() == there.size();
  found.sentence = fmt::format("{}: {} {} entered {} (number {}), and {} {} not left it", name_in_words(group.name),
                               all ? "all ranks" : ranks_in_words(there), all ? "have" : have(there), call_in_words(*entered.begin()->second),
                               found.sequence, ranks_in_words(found.ranks), have(found.ranks));
  return found;
}

/// Who counts as a member where no record says it.
std::string counted_as_members(const Group& group) {
  if (!group.said.empty()) return "";
  if (is_default(group.name)) return " (no record says its members; it counts as the group of all ranks)";
  std::vector<int> users;
  for (const auto& [rank, member] : group.ranks) users.push_back(rank);
  return fmt::format(" (no record says its members; {} used it)", ranks_in_words(users));
}

/// Where the ranks of a group part first, and when that began.
std::optional<std::pair<int64_t, Finding>> first_in(const Group& group, std::size_t& compared) {
  std::map<uint64_t, ByRank> numbers;
  uint64_t from = 1;  // older numbers may have been written over in a record
  for (const auto& [rank, member] : group.ranks) from = std::max(from, member.whole_from().value_or(1));
  for (const auto& [rank, member] : group.ranks) {
    for (const Entry* entry : member.calls) {
      if (entry->sequence >= from) numbers[entry->sequence].emplace(rank, entry);  // of calls made together under one number the first
    }
  }
  for (const auto& [number, entered] : numbers) {
    const Entry& one = *entered.begin()->second;
    const Finding blank{Finding::Kind::missing, group.name, number, one.op, one.tag, {}, ""};
    ++compared;
    auto found = mismatch_in(group, entered, blank);
    if (!found) found = missing_in(group, entered, blank);
    if (!found) found = stuck_in(group, entered, blank);
    if (!found) continue;
    found->sentence += counted_as_members(group);
    const auto earliest = std::ranges::min_element(entered, {}, [](const auto& each) { return each.second->created_ns; });
    return std::pair(earliest->second->created_ns, std::move(*found));
  }
  return std::nullopt;
}

/// Groups by name. One name can stand for several groups if their members have nothing in common.
class Groups {
 public:
  Groups(const Records& records, std::vector<std::string>& notes) {
    std::map<std::string, std::set<std::vector<int>>> said;
    std::map<int, const Recorded*> by_rank;
    for (const Recorded& record : records.read) {
      by_rank[record.rank] = &record;
      for (const Entry& entry : record.entries) said[entry.group];
      for (const Message& message : record.messages) said[message.group];
    }
    for (const Recorded& record : records.read) {
      for (const auto& [name, members] : record.members) {
        if (const auto used = said.find(name); used != said.end()) used->second.insert(members);
      }
    }
    for (const auto& [name, lists] : said) {
      if (overlap(lists))
        notes.push_back(fmt::format("group {}: records say different members; its calls were not compared", name_in_words(name)));
      else
        make(name, lists, by_rank);
    }
    for (const Recorded& record : records.read) take_calls(record, notes);
  }

  const std::map<std::string, std::vector<Group>>& all() const { return groups_; }
  /// That in which a rank calls; null: it is not known.
  const Group* of(const std::string& name, int rank) const {
    const auto found = groups_.find(name);
    if (found == groups_.end()) return nullptr;
    const auto its = std::ranges::find_if(found->second, [&](const Group& group) { return group.ranks.contains(rank); });
    return its == found->second.end() ? nullptr : &*its;
  }

 private:
  static bool overlap(const std::set<std::vector<int>>& lists) {
    std::set<int> seen;
    std::size_t count = 0;
    for (const std::vector<int>& list : lists) {
      if (lists.size() > 1) seen.insert(list.begin(), list.end());
      count += list.size();
    }
    return lists.size() > 1 && seen.size() < count;
  }

  void make(const std::string& name, const std::set<std::vector<int>>& lists, const std::map<int, const Recorded*>& by_rank) {
    for (const std::vector<int>& list : lists) {
      Group& group = groups_[name].emplace_back(name, list);
      for (const int rank : list) {
        if (const auto found = by_rank.find(rank); found != by_rank.end()) group.ranks[rank].record = found->second;
      }
    }
    if (!lists.empty()) return;
    Group& group = groups_[name].emplace_back(name);
    for (const auto& [rank, record] : by_rank) {
      if (is_default(name)) group.ranks[rank].record = record;
    }
  }

  void take_calls(const Recorded& record, std::vector<std::string>& notes) {
    std::set<std::string> strange;
    for (const Entry& entry : record.entries) {
      const auto found = groups_.find(entry.group);
      if (found == groups_.end()) continue;
      if (found->second.front().said.empty()) found->second.front().ranks[record.rank].record = &record;  // who uses it counts as a member
      const auto group = std::ranges::find_if(found->second, [&](const Group& each) { return each.ranks.contains(record.rank); });
      if (group == found->second.end())
        strange.insert(entry.group);
      else
        group->ranks[record.rank].add(entry);
    }
    for (const std::string& name : strange)
      notes.push_back(fmt::format("group {}: rank {} calls there and is not among its members; its calls were not compared", name_in_words(name), record.rank));
  }

  std::map<std::string, std::vector<Group>> groups_;
};

/// The rank at the other end of a message; -1: it is not known.
int peer_of(const Message& message, const Group* group) {
  const int number = message.sends ? message.to : message.from;
  if (group == nullptr || number < 0) return -1;
  if (group->said.empty()) return is_default(group->name) ? number : -1;
  return static_cast<std::size_t>(number) < group->said.size() ? group->said[static_cast<std::size_t>(number)] : -1;
}

/// What the rank at the other end of a message does.
std::string other_end(const Message& message, const Group* group) {
  const int peer = peer_of(message, group);
  if (peer < 0) return "no record says which rank is at the other end";
  const auto other = group->ranks.find(peer);
  if (other == group->ranks.end()) return fmt::format("the record of rank {} was not read", peer);
  const Message* first = nullptr;
  for (const Message& theirs : other->second.record->messages) {
    if (theirs.state == State::completed) continue;
    const bool counterpart = theirs.group == message.group && theirs.sends != message.sends && theirs.from == message.from && theirs.to == message.to;
    if (counterpart) return fmt::format("rank {} has not left {}", peer, call_in_words(theirs));
    if (first == nullptr) first = &theirs;
  }
  return fmt::format("rank {} has no such {} pending: it {}", peer, message.sends ? "receive" : "send",
                     first != nullptr ? "has not left " + call_in_words(*first) : last_of(*other->second.record));
}

/// Messages that ranks have not left: of each rank and group the first, behind which the others wait.
std::vector<Finding> pending_messages(const Records& records, const Groups& groups) {
  constexpr std::size_t kMostGroupsOfARank = 8;
  std::vector<Finding> findings;
  for (const Recorded& record : records.read) {
    std::set<std::string> told;
    for (const Message& message : record.messages) {
      if (message.state == State::completed || told.size() == kMostGroupsOfARank || !told.insert(message.group).second) continue;
      Finding found{Finding::Kind::message, message.group, 0, message.sends ? "send" : "recv", "", {record.rank}, ""};
      found.sentence = fmt::format("{}: rank {} has not left {}; {}", name_in_words(message.group), record.rank, call_in_words(message),
                                   other_end(message, groups.of(message.group, record.rank)));
      findings.push_back(std::move(found));
    }
  }
  return findings;
}

}  // namespace

Judgement judge(const Records& records) {
  Judgement judgement;
  judgement.ranks = records.read.size();
  judgement.notes = in_words(records.unread);
  std::set<int> there;
  int world = 0;
  for (const Recorded& record : records.read) {
    world = std::max({world, record.world_size, record.rank + 1});
    there.insert(record.rank);
    judgement.without_members |= record.members.empty();
  }
  for (const Unread& unread : records.unread) there.insert(unread.rank);
  for (int rank = 0; rank < world; ++rank) {
    if (!there.contains(rank)) judgement.without_record.push_back(rank);
  }
  const Groups groups(records, judgement.notes);
  std::vector<std::pair<int64_t, Finding>> began;
  for (const auto& [name, several] : groups.all()) {
    for (const Group& group : several) {
      if (auto found = first_in(group, judgement.collectives)) began.push_back(std::move(*found));
    }
  }
  // A call that differs is a mistake wherever it stands; who is missing may wait elsewhere because of it.
  std::ranges::stable_sort(began, {}, [](const auto& each) { return std::pair(each.second.kind != Finding::Kind::mismatch, each.first); });
  for (auto& [ns, finding] : began) judgement.findings.push_back(std::move(finding));
  std::ranges::move(pending_messages(records, groups), std::back_inserter(judgement.findings));
  return judgement;
}

std::vector<std::string> in_words(const Judgement& judgement) {
  std::vector<std::string> lines;
  for (const Finding& finding : judgement.findings) lines.push_back(finding.sentence);
  if (judgement.findings.empty() && judgement.collectives == 0)
    lines.push_back("No collective is on record: nothing was compared.");
  else if (judgement.findings.empty())
    lines.push_back(fmt::format("All {} collectives on record agree, and {} left them.{}", judgement.collectives,
                                judgement.clean() ? "every rank has" : fmt::format("the {} ranks whose records were read have", judgement.ranks),
                                judgement.without_members ? " Gloo's records hold no sends and receives: these were not looked at." : ""));
  if (!judgement.without_record.empty()) lines.push_back(ranks_in_words(judgement.without_record) + " left no record");
  lines.insert(lines.end(), judgement.notes.begin(), judgement.notes.end());
  return lines;
}

}  // namespace lockstep::flight
