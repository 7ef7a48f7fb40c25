#include "harness/lib/flight/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace lockstep::flight {
namespace {

/// A rank's calls of one group, by their numbers; from where on the record is whole.
struct Calls {
  std::map<uint64_t, const Entry*> by_number;
  uint64_t from = 1;
};

std::map<std::string, Calls> calls_of(const Recorded& record) {
  std::map<std::string, Calls> groups;
  for (const Entry& entry : record.entries) groups[entry.group].by_number[entry.sequence] = &entry;
  // Who has lost its oldest entries has lost those of every group; what a group lost is not said.
  const bool whole = record.entries.empty() || record.entries.front().id == 0;
  for (auto& [name, calls] : groups) {
    if (!whole) calls.from = calls.by_number.begin()->first;
  }
  return groups;
}

/// "all_reduce grad.w Float [4, 3]"
std::string words_of(const Entry& entry) {
  std::string text = entry.op;
  if (!entry.tag.empty()) text += " " + entry.tag;
  if (!entry.dtype.empty()) text += fmt::format(" {} [{}]", entry.dtype, fmt::join(entry.shape, ", "));
  if (entry.root >= 0) text += fmt::format(" from rank {}", entry.root);
  return text;
}

const char* word_of(State state) { return state == State::completed ? "has left it" : "has entered it, and not left it"; }

/// Nothing: the two are the same.
std::optional<Parting> parting_of(const Entry& a, const Entry& b) {
  Parting found{0, a.group, a.sequence, a.step, a.op, a.tag, DivergenceKind::operation, words_of(a), words_of(b)};
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
  Parting found{0, entry.group, entry.sequence, entry.step, entry.op, entry.tag, in_a ? DivergenceKind::missing_call : DivergenceKind::extra_call,
                words_of(entry), "nothing"};
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
      group(a.rank, in_a == groups_a.end() ? Calls{} : in_a->second, in_b == groups_b.end() ? Calls{} : in_b->second);
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
      note(rank, one, has_a && has_b ? parting_of(one, *in_b->second) : std::optional(lone(one, has_a)));
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

FlightComparison compare_flights(const std::vector<Recorded>& a, const std::vector<Recorded>& b) {
  FlightComparison comparison;
  Comparer comparer;
  for (const Recorded& record : a) {
    const auto other = std::ranges::find(b, record.rank, &Recorded::rank);
    if (other == b.end())
      comparison.without_b.push_back(record.rank);
    else
      comparer.rank(record, *other);
  }
  for (const Recorded& record : b) {
    if (std::ranges::find(a, record.rank, &Recorded::rank) == a.end()) comparison.without_a.push_back(record.rank);
  }
  comparison.first = comparer.first();
  comparison.compared = comparer.compared();
  return comparison;
}

}  // namespace lockstep::flight
