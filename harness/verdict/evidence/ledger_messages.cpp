#include "harness/verdict/evidence/ledger_messages.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "harness/base/hex.h"
#include "harness/verdict/evidence/difference.h"

namespace lockstep {
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
  LedgerFinding found{code, rank, record.name, expected, actual, "", place_of(Phase::loss) + 5};
  return found;
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

}  // namespace lockstep
