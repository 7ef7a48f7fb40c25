#include "harness/judge/evidence/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "harness/base/json.h"
#include "harness/base/numbers.h"

namespace lockstep {

int place_of(Phase phase, std::string_view name) {
  return place_of(phase) + (phase == Phase::parameters && name.starts_with("buffer/") ? 1 : 0);
}

int place_of(const Difference& difference) {
  return difference.place >= 0 ? difference.place : place_of(difference.phase, difference.divergence.where);
}

bool earlier(const Difference& x, const Difference& y) {
  if (x.divergence.step != y.divergence.step) return x.divergence.step < y.divergence.step;
  return place_of(x) < place_of(y);
}

Difference difference_at(const StepOfRun& run, Phase phase, int rank, const std::string& where, DivergenceKind kind,
                         const std::string& expected, const std::string& actual) {
  const int world_size = static_cast<int>(run.ranks.size());
  if (world_size == 1 && rank == kRankUnknown) rank = kAllRanks;
  Difference found{{run.step, name_of(phase), rank, where, kind, expected, actual, ""}, phase, kInfinity};
  found.divergence.sentence = fmt::format("They first differ at step {}, {}, {}: {}: {}.", run.step, name_of(phase),
                                          rank_text(rank, world_size), where, expected_found(expected, actual));
  return found;
}

namespace {

bool sends(const CollectiveRecord& it) { return it.op.starts_with("send") || it.op.starts_with("isend"); }
bool receives(const CollectiveRecord& it) { return it.op.starts_with("recv") || it.op.starts_with("irecv"); }

/// Where messages of one tag go from and to.
struct Way {
  int from = 0, to = 0;
  std::string tag;
  auto operator<=>(const Way&) const = default;
};

struct Traffic {
  std::vector<const Record*> sent, received;
};

LedgerFinding found_in(const std::string& code, int rank, const Record& record, const std::string& expected, const std::string& actual) {
  return {code, rank, record.name, expected, actual, "", place_of(Phase::loss) + 5};
}

std::string form_of(const CollectiveRecord& it) {
  std::string text = name_of(it.dtype);
  for (const int64_t extent : it.shape) text += fmt::format(" {}", extent);
  return text;
}

std::optional<LedgerFinding> fault_of(const Way& way, const Traffic& traffic) {
  const std::size_t both = std::min(traffic.sent.size(), traffic.received.size());
  for (std::size_t k = 0; k < both; ++k) {
    const CollectiveRecord &sent = traffic.sent[k]->collective, &got = traffic.received[k]->collective;
    const bool same_form = sent.dtype == got.dtype && sent.shape == got.shape;
    if (same_form && sent.hash_in == got.hash_out) continue;
    const char* code = same_form ? "message-corrupted" : sent.dtype != got.dtype ? "wrong-dtype" : "unexplained";
    LedgerFinding found = found_in(code, way.to, *traffic.received[k], same_form ? "in " + hex16(sent.hash_in) : form_of(sent),
                                   same_form ? "out " + hex16(got.hash_out) : form_of(got));
    found.evidence = fmt::format("message {} of rank {} to rank {}, \"{}\": sent {}, received {}", k + 1, way.from, way.to, way.tag,
                                 found.expected, found.actual);
    return found;
  }
  if (traffic.sent.size() == traffic.received.size()) return std::nullopt;
  const bool lost = traffic.sent.size() > both;
  const Record& alone = lost ? *traffic.sent[both] : *traffic.received[both];
  LedgerFinding found = found_in("collective-missing", lost ? way.to : way.from, alone, lost ? "a receive" : "a send", "nothing");
  found.evidence = fmt::format("rank {} {} message {} \"{}\" {} rank {}, which {} it", lost ? way.from : way.to, lost ? "sends" : "receives", both + 1,
                               way.tag, lost ? "to" : "from", lost ? way.to : way.from, lost ? "does not receive" : "does not send");
  return found;
}

std::optional<LedgerFinding> audit_pairs(const StepOfRun& step) {
  const int world_size = static_cast<int>(step.ranks.size());
  std::map<Way, Traffic> ways;
  std::vector<bool> any_sent(step.ranks.size(), false), any_received(step.ranks.size(), false);
  for (int rank = 0; rank < world_size; ++rank) {
    for (const Record& record : step.ranks[static_cast<std::size_t>(rank)].records) {
      const CollectiveRecord& it = record.collective;
      if (record.phase != Phase::collective || !is_between_two(it) || it.root < 0 || it.root >= world_size || it.root == rank) continue;
      if (sends(it)) {
        ways[{rank, it.root, it.tag}].sent.push_back(&record);
        any_sent[static_cast<std::size_t>(rank)] = true;
      } else {
        ways[{it.root, rank, it.tag}].received.push_back(&record);
        any_received[static_cast<std::size_t>(rank)] = true;
      }
    }
  }
  for (const auto& [way, traffic] : ways) {
    const bool known = any_sent[static_cast<std::size_t>(way.from)] && any_received[static_cast<std::size_t>(way.to)];
    if (auto fault = known ? fault_of(way, traffic) : std::nullopt) return fault;
  }
  return std::nullopt;
}

/// The k-th all_to_all of a group and tag: what goes in on all ranks together comes out.
std::optional<LedgerFinding> audit_exchanges(const StepOfRun& step) {
  struct Sum {
    uint64_t in = 0, out = 0;
    const Record* first = nullptr;
  };
  std::map<std::tuple<std::string, std::string, std::size_t>, Sum> exchanges;
  for (const StepRecords& rank : step.ranks) {
    std::map<std::pair<std::string, std::string>, std::size_t> seen;
    for (const Record& record : rank.records) {
      const CollectiveRecord& it = record.collective;
      if (record.phase != Phase::collective || it.op != "all_to_all") continue;
      Sum& sum = exchanges[{it.group, it.tag, seen[{it.group, it.tag}]++}];
      sum.in += it.hash_in;
      sum.out += it.hash_out;
      if (!sum.first) sum.first = &record;
    }
  }
  for (const auto& [which, sum] : exchanges) {
    if (sum.in == sum.out) continue;
    LedgerFinding found = found_in("message-corrupted", -1, *sum.first, "in " + hex16(sum.in), "out " + hex16(sum.out));
    found.evidence = fmt::format("{}: the pieces that ranks received are not those that they sent: {} in, {} out", sum.first->name,
                                 hex16(sum.in), hex16(sum.out));
    return found;
  }
  return std::nullopt;
}

}  // namespace

bool is_between_two(const CollectiveRecord& call) { return sends(call) || receives(call); }

std::optional<LedgerFinding> audit_messages(const StepOfRun& step) {
  if (auto found = audit_pairs(step)) return found;
  return audit_exchanges(step);
}

namespace {

using Ledger = std::vector<const Record*>;

using Groups = std::set<std::string, std::less<>>;

/// The rank's calls that `takes`, in their order.
template <class Takes>
Ledger calls_that(const StepRecords& rank, Takes takes) {
  Ledger ledger = records_of(rank, Phase::collective);
  std::erase_if(ledger, [&](const Record* each) { return !takes(each->collective); });
  return ledger;
}

/// Those in these groups.
Ledger ledger_of(const StepRecords& rank, const Groups& groups) {
  return calls_that(rank, [&](const CollectiveRecord& it) { return groups.contains(it.group); });
}

/// And of these the ones that are no messages between two ranks.
Ledger joint_ledger_of(const StepRecords& rank, const Groups& groups) {
  return calls_that(rank, [&](const CollectiveRecord& it) { return groups.contains(it.group) && !is_between_two(it); });
}

/// Ranks that talk to each other, and the groups that they do it in.
struct Members {
  std::vector<std::size_t> ranks;
  Groups groups;
};

/// Groups of that name hold all ranks even where one makes no call in them: that is a mistake, and not a smaller
/// group.
bool is_worlds(std::string_view group) {
  static const Groups kNames{"", "control", "data", "gradients", "loss", "world"};
  return kNames.contains(group);
}

/// The ranks that the header says are in the group; null if it does not.
const std::vector<int>* declared_group(const StepOfRun& step, const std::string& group) {
  if (!step.declared) return nullptr;
  const auto found = step.declared->groups.find(group);
  return found == step.declared->groups.end() ? nullptr : &found->second;
}

using Callers = std::map<std::string, std::set<std::size_t>>;

void note_callers(const StepOfRun& step, Callers& callers) {
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    for (const Record& record : step.ranks[rank].records) {
      if (record.phase == Phase::collective) callers[record.collective.group].insert(rank);
    }
  }
}

/// The world's groups together, whose calls every rank makes in one order; and each group of fewer ranks
/// (a tensor-parallel one, a pipeline stage) by itself. Who belongs to a group the header declares, or its calls at
/// this step and the one before tell.
std::vector<Members> members_of(const StepOfRun& step, const StepOfRun* before) {
  Callers callers;
  note_callers(step, callers);
  if (before && before->ranks.size() == step.ranks.size()) note_callers(*before, callers);
  for (auto& [group, ranks] : callers) {
    if (const std::vector<int>* declared = declared_group(step, group)) ranks = {declared->begin(), declared->end()};
  }
  std::vector<Members> all(1);
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) all.front().ranks.push_back(rank);
  for (const auto& [group, ranks] : callers) {
    const bool whole = is_worlds(group) && !declared_group(step, group);
    if (whole || ranks.size() == step.ranks.size()) {
      all.front().groups.insert(group);
    } else if (ranks.size() > 1) {
      all.push_back({{ranks.begin(), ranks.end()}, {group}});
    }
  }
  return all;
}

/// What all ranks must say alike of a call; shapes may differ where rows do.
std::string call_text(const CollectiveRecord& it) {
  std::string text = it.op;
  if (!it.reduction.empty()) text += " " + it.reduction;
  if (!it.tag.empty()) text += " " + it.tag;
  if (it.root >= 0) text += fmt::format(" from rank {}", it.root);
  return text + " as " + name_of(it.dtype);
}

bool same_call(const Record* of_a, const Record* of_b) {
  const CollectiveRecord &a = of_a->collective, &b = of_b->collective;
  return a.op == b.op && a.reduction == b.reduction && a.tag == b.tag && a.root == b.root && a.dtype == b.dtype;
}

std::vector<std::string> calls_of(const Ledger& ledger) {
  std::vector<std::string> calls;
  for (const Record* each : ledger) calls.push_back(call_text(each->collective));
  return calls;
}

/// Buckets of gradients, in whatever group: how many there are the reducer decides, and their sums are judged by value.
bool reduces_gradients(const CollectiveRecord& it) { return it.group == "gradients" || it.op == "reduce_gradients"; }

/// Collectives of the loss come before the energies that are made from them; buckets where their phase
/// stands.
int place_in(const StepRecords& rank, const Record& record) {
  if (reduces_gradients(record.collective)) return place_of(Phase::collective);
  int place = place_of(Phase::control) + 5;
  for (const Record& each : rank.records) {
    if (&each == &record) break;
    if (each.phase == Phase::collective || each.phase == Phase::snapshot) continue;
    place = std::max(place, place_of(each.phase) + 5);
  }
  return place;
}

bool is_whole_number(DType dtype) { return dtype == DType::int64 || dtype == DType::int32 || dtype == DType::boolean; }

/// See tags_of_other_exchanges.
bool is_other_exchange(const CollectiveRecord& expected, const CollectiveRecord& actual, bool one_program) {
  const auto adds = [](const CollectiveRecord& it) { return it.reduction == "sum" || it.reduction == "mean" || it.reduction == "avg"; };
  if (expected.op != actual.op || one_program) return expected.op != actual.op;
  if (expected.reduction != actual.reduction) return adds(expected) && adds(actual);
  return expected.root == actual.root && expected.dtype != actual.dtype && is_whole_number(expected.dtype) &&
         is_whole_number(actual.dtype);
}

/// How two calls of one tag differ: the code, or nothing if they do not.
std::string call_fault(const CollectiveRecord& expected, const CollectiveRecord& actual) {
  if (expected.op != actual.op || expected.reduction != actual.reduction) return "wrong-op";
  if (expected.root != actual.root) return "wrong-root";
  if (expected.dtype != actual.dtype) return "wrong-dtype";
  return "";
}

using CallsByTag = std::map<std::string, Ledger>;

CallsByTag by_tag(const Ledger& ledger) {
  CallsByTag calls;
  for (const Record* each : ledger) calls[each->collective.tag].push_back(each);
  return calls;
}

class Audit {
 public:
  Audit(const StepOfRun& step, const AuditedBeside& beside, const Members& members)
      : step_(step), beside_(beside), members_(members) {
    for (const std::size_t rank : members.ranks) ledgers_.push_back(joint_ledger_of(step.ranks[rank], members.groups));
  }

  std::optional<LedgerFinding> first() const {
    if (auto found = unlike_calls()) return found;
    if (auto found = unlike_results()) return found;
    if (beside_.before && beside_.before->step >= 0) {
      if (auto found = other_calls(*beside_.before, false)) return found;
    }
    // Only the world's calls are those of a reference of any layout.
    if (!beside_.reference || members_.ranks.size() != step_.ranks.size()) return std::nullopt;
    // One process needs none of the calls that several make.
    if (step_.ranks.size() == 1 && beside_.reference->ranks.size() > 1) return std::nullopt;
    if (auto found = other_calls(*beside_.reference, true)) return found;
    return other_sequence(*beside_.reference);
  }

 private:
  LedgerFinding made(const std::string& code, int rank, const Record& record, std::size_t of_rank,
                     const std::string& expected, const std::string& actual) const {
    return {code, rank, record.name, expected, actual, "", place_in(step_.ranks[of_rank], record)};
  }

  /// The member whose calls the reference's ranks make, where they all make the same; else that whose calls most make; of two that differ the one that
  /// calls as it did before.
  std::size_t model_member() const {
    std::map<std::vector<std::string>, int> votes;
    for (const Ledger& ledger : ledgers_) ++votes[calls_of(ledger)];
    std::size_t best = 0;
    int most = 0;
    for (std::size_t k = 0; k < ledgers_.size(); ++k) {
      int count = 2 * votes[calls_of(ledgers_[k])];
      const std::size_t rank = members_.ranks[k];
      if (beside_.before && rank < beside_.before->ranks.size() &&
          calls_of(ledger_of(beside_.before->ranks[rank], members_.groups)) == calls_of(ledgers_[k])) {
        ++count;
      }
      if (reference_makes(calls_of(ledgers_[k]))) count += 2 * static_cast<int>(ledgers_.size()) + 2;
      if (count <= most) continue;
      most = count;
      best = k;
    }
    return best;
  }

  /// Do all ranks of a reference of the same layout make these calls?
  bool reference_makes(const std::vector<std::string>& calls) const {
    if (!beside_.reference || beside_.reference->ranks.size() != step_.ranks.size()) return false;
    return std::ranges::all_of(members_.ranks, [&](std::size_t rank) {
      return calls_of(joint_ledger_of(beside_.reference->ranks[rank], members_.groups)) == calls;
    });
  }

  bool all_alike() const {
    return std::ranges::all_of(
        ledgers_, [&](const Ledger& each) { return std::ranges::equal(each, ledgers_[0], same_call); });
  }

  /// Ranks that do not all make the same calls in the same order.
  std::optional<LedgerFinding> unlike_calls() const {
    if (all_alike()) return std::nullopt;
    const std::size_t member = model_member(), model = members_.ranks[member];
    const Ledger& expected = ledgers_[member];
    for (std::size_t k = 0; k < ledgers_.size(); ++k) {
      const std::size_t rank = members_.ranks[k];
      const Ledger& actual = ledgers_[k];
      const auto [want, have] = std::ranges::mismatch(expected, actual, same_call);
      if (want == expected.end() && have == actual.end()) continue;
      const Record *wanted = want == expected.end() ? nullptr : *want, *got = have == actual.end() ? nullptr : *have;
      std::string code = "collective-order";
      if (wanted && got && wanted->collective.tag == got->collective.tag) {
        code = call_fault(wanted->collective, got->collective);
      } else if (actual.size() < expected.size()) {
        code = "collective-missing";
      } else if (actual.size() > expected.size()) {
        code = "collective-extra";
      }
      const bool name_wanted = wanted != nullptr && code != "collective-extra";
      LedgerFinding found = made(
          code, static_cast<int>(rank), name_wanted ? *wanted : *got, name_wanted ? model : rank,
          wanted ? call_text(wanted->collective) : "nothing", got ? call_text(got->collective) : "nothing");
      found.evidence = fmt::format("call {} of the step is \"{}\" on rank {} and \"{}\" on rank {}",
                                   want - expected.begin() + 1, found.actual, rank, found.expected, model);
      return found;
    }
    return std::nullopt;
  }

  const Record* before_of(std::size_t rank, const Record& record, std::size_t occurrence) const {
    if (!beside_.before || rank >= beside_.before->ranks.size()) return nullptr;
    return nth_of(beside_.before->ranks[rank], record, occurrence);
  }

  /// The call of that name after so many others of it, or null.
  static const Record* nth_of(const StepRecords& rank, const Record& record, std::size_t occurrence) {
    Ledger calls = records_of(rank, Phase::collective);
    std::erase_if(calls, [&](const Record* each) { return each->name != record.name; });
    return occurrence < calls.size() ? calls[occurrence] : nullptr;
  }

  /// Results that are not alike on all ranks. Gradients' buckets are judged by value elsewhere.
  std::optional<LedgerFinding> unlike_results() const {
    std::map<std::string, std::size_t> occurrences;
    for (std::size_t i = 0; i < ledgers_[0].size(); ++i) {
      const CollectiveRecord& first = ledgers_[0][i]->collective;
      const std::size_t occurrence = occurrences[ledgers_[0][i]->name]++;
      if (first.op != "all_reduce" && first.op != "all_gather" && first.op != "broadcast") continue;
      auto [right, of_reference] = right_result(i, occurrence);
      const auto root = std::ranges::find(members_.ranks, static_cast<std::size_t>(std::max(first.root, 0)));
      const bool rooted = first.op == "broadcast" && first.root >= 0 && root != members_.ranks.end();
      if (rooted) {
        right = ledgers_[static_cast<std::size_t>(root - members_.ranks.begin())][i]->collective.hash_in;
      }
      if (auto stale = all_stale(i, occurrence)) return stale;
      if (is_several_groups(i)) continue;
      for (std::size_t k = 0; k < ledgers_.size(); ++k) {
        const std::size_t rank = members_.ranks[k];
        const Record& record = *ledgers_[k][i];
        const CollectiveRecord& it = record.collective;
        if (it.hash_out == right) continue;
        const Record* earlier = before_of(rank, record, occurrence);
        std::string code = "message-corrupted", why = "its result is neither that nor an earlier one";
        if (rooted && it.hash_out == it.hash_in) {
          code = "broadcast-not-received";
          why = "it still has its values from before the call";
        } else if (earlier && earlier->collective.hash_out == it.hash_out) {
          code = "stale-buffer";
          why = fmt::format("its result is that of step {}", beside_.before->step);
        }
        LedgerFinding found = made(code, static_cast<int>(rank), record, rank, "out " + hex16(right),
                                   "out " + hex16(it.hash_out));
        found.evidence = fmt::format(
            "{}: rank {} has {}; the result of {} is {}: {}", record.name, rank, hex16(it.hash_out),
            rooted         ? fmt::format("the root, rank {},", first.root)
            : of_reference ? "the reference"
                           : "most ranks",
            hex16(right), why);
        return found;
      }
    }
    return std::nullopt;
  }

  /// May the name stand for several groups, as that of a mesh's dimension does? Then ranks that differ do so in company.
  bool is_several_groups(std::size_t i) const {
    const std::string& group = ledgers_[0][i]->collective.group;
    if (is_worlds(group) || declared_group(step_, group)) return false;
    std::map<uint64_t, std::size_t> holders;
    for (const Ledger& ledger : ledgers_) ++holders[ledger[i]->collective.hash_out];
    return std::ranges::all_of(holders, [](const auto& each) { return each.second > 1; });
  }

  struct RightResult {
    uint64_t hash = 0;
    bool of_reference = false;
  };

  /// The result of a call that ranks do not agree on: the reference's if one holds it, else that of most. What a rank still
  /// holds from before has no vote, but where so few elements may come out as before by chance: there it loses a tie alone.
  RightResult right_result(std::size_t i, std::size_t occurrence) const {
    constexpr int64_t kTellingElements = 16;
    const Record* expected = beside_.reference ? nth_of(beside_.reference->ranks[0], *ledgers_[0][i], occurrence) : nullptr;
    struct Votes {
      int all = 0, fresh = 0;
    };
    std::map<uint64_t, Votes> votes;
    for (std::size_t k = 0; k < ledgers_.size(); ++k) {
      const CollectiveRecord& it = ledgers_[k][i]->collective;
      if (expected && expected->collective.hash_out == it.hash_out) return {it.hash_out, true};
      const Record* earlier = before_of(members_.ranks[k], *ledgers_[k][i], occurrence);
      const bool old = earlier && earlier->collective.hash_out == it.hash_out;
      Votes& vote = votes[it.hash_out];
      ++vote.all;
      if (!old) ++vote.fresh;
    }
    const bool few = elements_of(ledgers_[0][i]->collective.shape) < kTellingElements;
    const auto weight = [few](const auto& each) {
      const Votes& vote = each.second;
      return few ? 2 * vote.all + (vote.fresh > 0 ? 1 : 0) : vote.fresh;
    };
    return {std::ranges::max_element(votes, {}, weight)->first, false};
  }

  /// All ranks hold the result of the step before. Other inputs may have the same sum, as counts of rows often do; but what all
  /// ranks of a reference made something else of, bit for bit the same on each, has another.
  std::optional<LedgerFinding> all_stale(std::size_t i, std::size_t occurrence) const {
    if (!beside_.reference || beside_.reference->ranks.size() != step_.ranks.size()) return std::nullopt;
    bool input_changed = false;
    for (std::size_t k = 0; k < ledgers_.size(); ++k) {
      const Record& record = *ledgers_[k][i];
      const CollectiveRecord& it = record.collective;
      if (it.op == "broadcast") return std::nullopt;
      const Record* earlier = before_of(members_.ranks[k], record, occurrence);
      const Record* expected = nth_of(beside_.reference->ranks[members_.ranks[k]], record, occurrence);
      if (!earlier || earlier->collective.hash_out != it.hash_out) return std::nullopt;
      if (!expected || expected->collective.hash_in != it.hash_in || expected->collective.hash_out == it.hash_out) {
        return std::nullopt;
      }
      input_changed = input_changed || earlier->collective.hash_in != it.hash_in;
    }
    if (!input_changed) return std::nullopt;
    const Record& record = *ledgers_[0][i];
    LedgerFinding found = made("stale-buffer", -1, record, 0, "a result of this step's inputs",
                               "out " + hex16(record.collective.hash_out) + ", as before");
    found.evidence = fmt::format("the inputs of {} changed since step {} and equal the reference's on every rank, but its result did not change "
                                 "on any, and is not the reference's",
                                 record.name, beside_.before->step);
    return found;
  }

  /// The world's calls of these tags.
  Ledger calls_of_tags(const StepRecords& rank, const std::set<std::string>& tags) const {
    return calls_that(rank, [&](const CollectiveRecord& it) {
      return tags.contains(it.tag) && !is_between_two(it) &&
             (is_worlds(it.group) || members_.groups.contains(it.group));
    });
  }

  /// Tags of the reference's collectives, but for those of gradients and those that the ranks exchange in a way of their own.
  std::set<std::string> tags_to_hold(const StepOfRun& other) const {
    const Ledger theirs = calls_that(
        other.ranks[0], [](const CollectiveRecord& it) { return !is_between_two(it) && !reduces_gradients(it); });
    std::set<std::string> tags;
    for (const Record* each : theirs) tags.insert(each->collective.tag);
    for (const std::string& tag : tags_of_other_exchanges(theirs, ledgers_[0], beside_.one_program)) tags.erase(tag);
    return tags;
  }

  /// Collectives of the loss that the reference has too, in another number or order. Another program than the reference's may
  /// need others: its own step before must have made the reference's.
  std::optional<LedgerFinding> other_sequence(const StepOfRun& other) const {
    const std::set<std::string> tags = tags_to_hold(other);
    const Ledger wanted = calls_of_tags(other.ranks[0], tags), got = calls_of_tags(step_.ranks[members_.ranks[0]], tags);
    const auto tag = [](const Record* each) -> const std::string& { return each->collective.tag; };
    const auto made_in = [&](const StepOfRun* step, std::size_t rank) {
      return step && step->step >= 0 &&
             std::ranges::equal(wanted, calls_of_tags(step->ranks[rank], tags), {}, tag, tag);
    };
    const bool made_before = made_in(beside_.before, members_.ranks[0]) &&
                             (!beside_.reference_before || made_in(beside_.reference_before, 0));
    if (!beside_.one_program && !made_before) return std::nullopt;
    const auto [want, have] = std::ranges::mismatch(wanted, got, {}, tag, tag);
    if (want == wanted.end() && have == got.end()) return std::nullopt;
    const auto text = [](const Ledger& calls, auto at) {
      return at == calls.end() ? "nothing" : call_text((*at)->collective);
    };
    const std::string code = got.size() < wanted.size()   ? "collective-missing"
                             : got.size() > wanted.size() ? "collective-extra"
                                                          : "collective-order";
    const Record& told = got.size() < wanted.size() || have == got.end() ? **want : **have;
    LedgerFinding found{code, -1, told.name, text(wanted, want), text(got, have), "", place_of(Phase::control) + 5};
    found.evidence = fmt::format("all ranks: call {} of those that the reference makes is \"{}\", in the reference \"{}\"",
                                 want - wanted.begin() + 1, found.actual, found.expected);
    return found;
  }

  /// Calls of one tag that another step or run made otherwise, the k-th of a tag against the k-th. Where the tag has another
  /// number of calls there (buckets are rebuilt after the first step), calls are compared only if all of a side's are alike:
  /// else nothing tells which belong together, and the tag is left to other_sequence.
  std::optional<LedgerFinding> other_calls(const StepOfRun& other, bool is_reference) const {
    const CallsByTag own = by_tag(ledgers_[0]),
                     theirs = by_tag(
                         calls_that(other.ranks[0], [](const CollectiveRecord& it) { return !is_between_two(it); }));
    std::map<std::string, std::size_t> taken;
    for (const Record* record : ledgers_[0]) {
      const std::string& tag = record->collective.tag;
      const auto found_tag = theirs.find(tag);
      const std::size_t k = taken[tag]++;
      if (found_tag == theirs.end()) continue;
      const bool paired = found_tag->second.size() == own.at(tag).size();
      if (!paired && !(is_uniform(found_tag->second) && is_uniform(own.at(tag)))) continue;
      const CollectiveRecord& expected = found_tag->second[paired ? k : 0]->collective;
      const std::string code = call_fault(expected, record->collective);
      if (code.empty()) continue;
      if (is_reference && (is_other_exchange(expected, record->collective, beside_.one_program) || same_result(expected, record->collective))) continue;
      if (code == "wrong-root" && !tells_the_root(other, is_reference)) continue;
      LedgerFinding found = made(code, -1, *record, 0, call_text(expected), call_text(record->collective));
      found.evidence = fmt::format("all ranks call \"{}\", {} has \"{}\"", found.actual,
                                   is_reference ? "the reference" : "the previous step", found.expected);
      return found;
    }
    return std::nullopt;
  }

  /// Does that step say from which rank a call must come? In other programs parameters have owners, who send what they have updated: one in a process
  /// alone, others on more ranks, and others where another parameter has a gradient.
  bool tells_the_root(const StepOfRun& other, bool is_reference) const {
    return beside_.one_program || (is_reference && other.ranks.size() == step_.ranks.size());
  }

  static bool same_result(const CollectiveRecord& expected, const CollectiveRecord& actual) {
    return expected.hash_out == actual.hash_out && expected.dtype == actual.dtype && expected.root == actual.root;
  }

  static bool is_uniform(const Ledger& calls) {
    return std::ranges::all_of(calls, [&](const Record* each) { return same_call(each, calls[0]); });
  }

  const StepOfRun& step_;
  const AuditedBeside& beside_;
  const Members& members_;
  std::vector<Ledger> ledgers_;  ///< by member
};

}  // namespace

std::set<std::string> tags_of_other_exchanges(const std::vector<const Record*>& expected, const std::vector<const Record*>& actual,
                                              bool one_program) {
  const CallsByTag calls = by_tag(expected);
  std::map<std::string, std::size_t> taken;
  std::set<std::string> tags;
  for (const Record* each : actual) {
    const std::string& tag = each->collective.tag;
    const auto found = calls.find(tag);
    const std::size_t k = taken[tag]++;
    if (found == calls.end() || k >= found->second.size()) continue;
    if (is_other_exchange(found->second[k]->collective, each->collective, one_program)) tags.insert(tag);
  }
  return tags;
}

bool is_updated_by_some(const StepOfRun& step) {
  const auto skips = [](const StepRecords& rank) {
    const Record* skipped = find_record(rank, Phase::control, "skipped");
    return skipped && skipped->value != 0;
  };
  const auto skipping = std::ranges::count_if(step.ranks, skips);
  return skipping > 0 && skipping < std::ssize(step.ranks);
}

std::optional<LedgerFinding> audit_ledger(const StepOfRun& step, const AuditedBeside& beside) {
  std::optional<LedgerFinding> first;
  if (!beside.one_program && is_updated_by_some(step)) return first;
  const auto keep_earlier = [&](std::optional<LedgerFinding> found) {
    if (found && (!first || found->place < first->place)) first = std::move(found);
  };
  for (const Members& members : members_of(step, beside.before)) keep_earlier(Audit(step, beside, members).first());
  keep_earlier(audit_messages(step));
  return first;
}

Difference ledger_difference(const LedgerFinding& finding, const StepOfRun& run) {
  const std::string& code = finding.code;
  const bool count = code == "collective-missing" || code == "collective-extra";
  const DivergenceKind kind = code == "collective-order"  ? DivergenceKind::order
                              : count                     ? DivergenceKind::missing
                              : code.starts_with("wrong") ? DivergenceKind::value
                                                          : DivergenceKind::bits;
  Difference found =
      difference_at(run, Phase::collective, finding.rank, finding.name, kind, finding.expected, finding.actual);
  found.place = finding.place;
  return found;
}

}  // namespace lockstep
