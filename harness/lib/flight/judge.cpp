#include "harness/lib/flight/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "harness/base/text.h"

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

namespace {

/// A rank's calls of one group, by their numbers; from where on the record is whole.
struct Calls {
  std::map<uint64_t, const Entry*> by_number = {};
  uint64_t from = 1;
};

/// Of a group in which a record holds no call: who has lost its oldest entries may have lost those of any group.
Calls no_calls(const Recorded& record) { return {{}, record.lost == 0 ? 1 : UINT64_MAX}; }

std::map<std::string, Calls> calls_of(const Recorded& record) {
  std::map<std::string, Calls> groups;
  for (const Entry& entry : record.entries) {
    Calls& calls = groups.try_emplace(entry.group, no_calls(record)).first->second;
    calls.by_number.emplace(entry.sequence, &entry);
    if (record.lost > 0 && entry.id >= record.lost) calls.from = std::min(calls.from, entry.sequence);
  }
  return groups;
}

const char* word_of(State state) { return state == State::completed ? "has left it" : "has entered it, and not left it"; }

/// Nothing: the two are the same.
std::optional<Parting> parting_of(const Entry& a, const Entry& b) {
  Parting found{0, a.group, a.sequence, a.step, name_in_words(a), DivergenceKind::operation, call_in_words(a), call_in_words(b)};
  if (a.op != b.op)
    found.kind = DivergenceKind::operation;
  else if (a.dtype != b.dtype)
    found.kind = DivergenceKind::type;
  else if (a.shape != b.shape)
    found.kind = DivergenceKind::size;
  else if (a.root != b.root)
    found.kind = DivergenceKind::root;
  else if (a.tag != b.tag)
    found.kind = DivergenceKind::purpose;
  else if (a.state != b.state)
    std::tie(found.kind, found.expected, found.actual) = std::tuple(DivergenceKind::state, word_of(a.state), word_of(b.state));
  else
    return std::nullopt;
  return found;
}

Parting lone(const Entry& entry, bool in_a) {
  Parting found{0, entry.group, entry.sequence, entry.step, name_in_words(entry), in_a ? DivergenceKind::missing_call : DivergenceKind::extra_call,
                call_in_words(entry), "nothing"};
  if (!in_a) std::swap(found.expected, found.actual);
  return found;
}

int rank_of_kind(DivergenceKind kind) {
  if (kind == DivergenceKind::state) return 2;
  return kind == DivergenceKind::missing_call || kind == DivergenceKind::extra_call ? 1 : 0;
}

class Comparer {
 public:
  void rank(const Recorded& a, const Recorded& b) {
    const auto groups_a = calls_of(a), groups_b = calls_of(b);
    std::set<std::string> names;
    for (const auto* groups : {&groups_a, &groups_b}) {
      for (const auto& [name, calls] : *groups) names.insert(name);
    }
    for (const std::string& name : names) {
      const auto in_a = groups_a.find(name), in_b = groups_b.find(name);
      group(a.rank, in_a == groups_a.end() ? no_calls(a) : in_a->second, in_b == groups_b.end() ? no_calls(b) : in_b->second);
    }
  }
  std::optional<Parting> first() const { return first_; }
  std::size_t compared() const { return compared_; }

 private:
  void group(int rank, const Calls& a, const Calls& b) {
    const uint64_t from = std::max(a.from, b.from);
    std::set<uint64_t> numbers;
    for (const Calls* calls : {&a, &b}) {
      for (auto at = calls->by_number.lower_bound(from); at != calls->by_number.end(); ++at) numbers.insert(at->first);
    }
    for (const uint64_t number : numbers) {
      const auto in_a = a.by_number.find(number), in_b = b.by_number.find(number);
      const bool has_a = in_a != a.by_number.end(), has_b = in_b != b.by_number.end();
      if (has_a && has_b) ++compared_;
      const Entry& one = has_a ? *in_a->second : *in_b->second;
      auto parting = has_a && has_b ? parting_of(one, *in_b->second) : std::optional(lone(one, has_a));
      // Of calls made together under its oldest number a record may have lost the first.
      const bool may_be_cut = number == from && from > 1 && has_a && has_b;
      if (!may_be_cut || (parting && parting->kind == DivergenceKind::state)) note(rank, one, std::move(parting));
    }
  }

  void note(int rank, const Entry& entry, std::optional<Parting> parting) {
    if (!parting) return;
    const auto key = std::tuple(entry.id, rank_of_kind(parting->kind), rank);
    if (first_ && key >= key_) return;
    parting->rank = rank;
    key_ = key;
    first_ = std::move(parting);
  }

  std::optional<Parting> first_;
  std::tuple<uint64_t, int, int> key_;
  std::size_t compared_ = 0;
};

}  // namespace

FlightComparison compare_flights(const Records& a, const Records& b) {
  FlightComparison comparison;
  Comparer comparer;
  const auto lacks = [](const Records& records, int rank) {
    return std::ranges::find(records.read, rank, &Recorded::rank) == records.read.end() && std::ranges::find(records.unread, rank, &Unread::rank) == records.unread.end();
  };
  for (const Recorded& record : a.read) {
    if (lacks(b, record.rank)) comparison.without_b.push_back(record.rank);
    if (const auto other = std::ranges::find(b.read, record.rank, &Recorded::rank); other != b.read.end()) comparer.rank(record, *other);
  }
  for (const Recorded& record : b.read) {
    if (lacks(a, record.rank)) comparison.without_a.push_back(record.rank);
  }
  for (const Records* records : {&a, &b}) std::ranges::move(in_words(records->unread), std::back_inserter(comparison.unread));
  comparison.first = comparer.first();
  comparison.compared = comparer.compared();
  return comparison;
}

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
