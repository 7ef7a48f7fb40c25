#include "harness/lib/rewards/broadcast_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <utility>

namespace lockstep::rewards {
namespace {

/// What a rank should hold, and what might stand there instead.
struct Held {
  int rank = 0;
  int64_t step = 0;
  const ShownRewards& shown;
  const std::vector<double>& expected;  ///< by its ids
  std::span<const ShownRewards> by_rank;
  int root = 0;
  int64_t last_step = -1;
  const std::vector<double>& last;
};

double narrowed_to_bfloat16(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return std::bit_cast<float>((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
}

bool all_poison_of(std::span<const double> values, int& rank) {
  Poisoned whose;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!is_poison(values[i], whose) || (i > 0 && whose.rank != rank)) return false;
    rank = whose.rank;
  }
  return !values.empty();
}

bool is_constant(std::span<const double> values) {
  return std::ranges::all_of(values, [&](double value) { return same_bits(value, values.front()); });
}

template <class Map>
bool is_mapped(const Held& held, const Map& map) {
  for (std::size_t i = 0; i < held.expected.size(); ++i) {
    if (!same_bits(held.shown.held[i], map(held.expected[i]))) return false;
  }
  return true;
}

/// A cause that fits, with the end of its sentence.
using Fit = std::optional<std::string>;

Fit never_came(const Held& held) {
  int whose = -1;
  if (!all_poison_of(held.shown.held, whose) || whose != held.rank || held.shown.root == held.rank) return {};
  return fmt::format("still holds what stood there before: no broadcast reached it ({} in this step)", held.shown.broadcasts);
}

Fit from_another_rank(const Held& held) {
  int whose = -1;
  const bool poisoned = all_poison_of(held.shown.held, whose);
  if (poisoned && whose == held.rank && held.shown.root == held.rank && held.rank != held.root)
    return fmt::format("takes itself for the root and has no rewards: the root is rank {}", held.root);
  if (poisoned && whose != held.rank)
    return fmt::format("holds the buffer of rank {}, which has no rewards: the root is rank {}", whose, held.root);
  for (std::size_t rank = 0; rank < held.by_rank.size(); ++rank) {
    const ShownRewards& other = held.by_rank[rank];
    if (static_cast<int>(rank) == held.root || static_cast<int>(rank) == held.rank || other.source.empty()) continue;
    if (other.ids == held.shown.ids && same_bits(other.source, held.shown.held))
      return fmt::format("holds what rank {} has scored: the root is rank {}", rank, held.root);
  }
  return {};
}

Fit of_an_earlier_step(const Held& held) {
  if (held.last_step < 0 || held.last.empty()) return {};
  Poisoned whose;
  for (std::size_t i = 0; i < held.shown.held.size(); ++i) {
    // Where that step had fewer samples, nothing was there before.
    const bool earlier = i < held.last.size() ? same_bits(held.shown.held[i], held.last[i]) : is_poison(held.shown.held[i], whose);
    if (!earlier) return {};
  }
  return fmt::format("has the rewards of step {} at step {}: a stale buffer", held.last_step, held.step);
}

Fit first_part_alone(const Held& held) {
  std::size_t came = 0;
  while (came < held.expected.size() && same_bits(held.shown.held[came], held.expected[came])) ++came;
  if (came == 0 || came == held.expected.size()) return {};
  Poisoned whose;
  for (std::size_t i = came; i < held.expected.size(); ++i) {
    const bool earlier = i < held.last.size() && same_bits(held.shown.held[i], held.last[i]);
    if (!is_poison(held.shown.held[i], whose) && !earlier && held.shown.held[i] != 0) return {};
  }
  return fmt::format("got the first {} of {} rewards; from sample {} on none came ({})", came, held.expected.size(),
                     held.shown.ids[came], number_in_words(held.shown.held[came]));
}

Fit in_another_order(const Held& held) {
  const auto sorted = [](std::vector<double> values) {
    std::ranges::sort(values, {}, [](double value) { return std::bit_cast<uint64_t>(value); });
    return values;
  };
  if (!same_bits(sorted(held.shown.held), sorted(held.expected))) return {};
  std::size_t first = 0;
  while (same_bits(held.shown.held[first], held.expected[first])) ++first;
  std::size_t from = 0;
  while (!same_bits(held.expected[from], held.shown.held[first])) ++from;
  return fmt::format("has all rewards in another order: sample {} got the one of sample {}", held.shown.ids[first],
                     held.shown.ids[from]);
}

Fit one_for_all(const Held& held) {
  if (held.expected.size() < 2 || !is_constant(held.shown.held) || is_constant(held.expected)) return {};
  Poisoned whose;
  if (is_poison(held.shown.held.front(), whose) || held.shown.held.front() == 0) return {};
  const auto found = std::ranges::find_if(held.expected, [&](double value) { return same_bits(value, held.shown.held.front()); });
  if (found == held.expected.end()) return {};
  return fmt::format("has the reward of sample {} for all {} samples: one element was expanded",
                     held.shown.ids[static_cast<std::size_t>(found - held.expected.begin())], held.expected.size());
}

Fit as_float32(const Held& held) {
  if (!is_mapped(held, [](double value) { return static_cast<double>(static_cast<float>(value)); })) return {};
  return "has every reward rounded to float32";
}

Fit as_bfloat16(const Held& held) {
  if (!is_mapped(held, narrowed_to_bfloat16)) return {};
  return "has every reward rounded to bfloat16";
}

Fit its_own(const Held& held) {
  if (held.shown.source.empty() || held.rank == held.root || !same_bits(held.shown.held, held.shown.source)) return {};
  return "holds what it has scored itself";
}

Fit only_zeros(const Held& held) {
  if (!std::ranges::all_of(held.shown.held, [](double value) { return value == 0; })) return {};
  return "holds zeros that nobody replaced";
}

struct Question {
  const char* code;
  Fit (*fits)(const Held& held);
};
constexpr Question kQuestions[] = {
    {"no-broadcast", never_came},     {"wrong-root", from_another_rank}, {"scored-here", its_own},
    {"zeros", only_zeros},            {"stale-buffer", of_an_earlier_step}, {"partial-batch", first_part_alone},
    {"order-lost", in_another_order}, {"expanded", one_for_all},         {"narrowed-float32", as_float32},
    {"narrowed-bfloat16", as_bfloat16},
};

Finding named(const Held& held) {
  Finding finding{"", {}, held.step, {held.rank}, ""};
  for (const Question& question : kQuestions) {
    const Fit fit = question.fits(held);
    if (!fit) continue;
    if (!finding.code.empty()) {
      finding.also.emplace_back(question.code);
      continue;
    }
    finding.code = question.code;
    finding.sentence = fmt::format("step {}: rank {} {}", held.step, held.rank, *fit);
  }
  std::size_t first = 0;
  while (same_bits(held.shown.held[first], held.expected[first])) ++first;
  if (finding.code.empty()) {
    finding.code = "reward-differs";
    finding.sentence = fmt::format("step {}: rank {} holds other rewards than the root", held.step, held.rank);
  }
  finding.sentence += fmt::format("; sample {} (element {}): expected {}, found {}", held.shown.ids[first], first,
                                  number_in_words(held.expected[first]), number_in_words(held.shown.held[first]));
  return finding;
}

}  // namespace

std::vector<Finding> BroadcastAudit::step(std::span<const ShownRewards> by_rank) {
  std::vector<Finding> findings;
  const ShownRewards& root = by_rank[static_cast<std::size_t>(root_)];
  std::map<int64_t, double> by_id;
  for (std::size_t i = 0; i < root.source.size() && i < root.ids.size(); ++i) by_id[root.ids[i]] = root.source[i];
  for (std::size_t at = 0; at < by_rank.size(); ++at) {
    const int rank = static_cast<int>(at);
    const ShownRewards& shown = by_rank[at];
    const auto tell = [&](const char* code, const std::string& text) {
      add(findings, {code, {}, root.step, {rank}, fmt::format("step {}: rank {} {}", root.step, rank, text)});
    };
    if (shown.step != root.step) {
      tell("header-differs", fmt::format("is at step {} and the root at step {}", shown.step, root.step));
      continue;
    }
    if (shown.held.size() != shown.ids.size()) {
      tell("other-length", fmt::format("holds {} rewards for {} samples", shown.held.size(), shown.ids.size()));
      continue;
    }
    std::vector<double> expected;
    for (const int64_t id : shown.ids) {
      const auto found = by_id.find(id);
      expected.push_back(found == by_id.end() ? poison(root_, root.step) : found->second);
    }
    last_.resize(by_rank.size());
    const std::vector<double> last = std::exchange(last_[at], expected);
    if (!same_bits(shown.held, expected))
      add(findings, named({rank, root.step, shown, expected, by_rank, root_, last_step_, last}));
    else if (rank != root_ && shown.scored > 0)
      tell("scored-here", fmt::format("called the reward function {} times, which is the root's to call", shown.scored));
    else if (shown.root != root_)
      tell("wrong-root", fmt::format("takes rank {} for the root, which is rank {}", shown.root, root_));
    if (shown.broadcasts > 1)
      tell("broadcast-twice", fmt::format("took part in {} broadcasts of the same rewards", shown.broadcasts));
  }
  last_step_ = root.step;
  return findings;
}

}  // namespace lockstep::rewards
