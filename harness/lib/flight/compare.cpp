#include "harness/lib/flight/compare.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "harness/lib/flight/words.h"

namespace lockstep::flight {
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

}  // namespace lockstep::flight
