#include "harness/lib/rewards/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "harness/base/hashing.h"
#include "harness/base/numbers.h"
#include "harness/lib/rewards/bytes.h"

namespace lockstep::rewards {
namespace {

constexpr std::string_view kLabel = "rewards";

struct Packet {
  Header header;
  std::string payload;
  template <class Self, class Archive>
  static void fields(Self& s, Archive& a) {
    a(s.header, s.payload);
  }
};

struct ScoredPacket {
  std::string code, sentence;
  std::vector<int64_t> ids;
  std::vector<double> values;
  template <class Self, class Archive>
  static void fields(Self& s, Archive& a) {
    a(s.code, s.sentence, s.ids, s.values);
  }
};

/// Without what differs by rank: addresses in Gloo's words.
Failure of_group(const std::string& problem, int64_t step) {
  const std::string code = problem.find("no other rank gave") != std::string::npos ||
                                   problem.find("no sign of progress") != std::string::npos
                               ? "rank-silent"
                               : "rank-ended";
  const std::size_t end = problem.find("): ");
  return {code, fmt::format("step {}: {}", step, end == std::string::npos ? problem : problem.substr(0, end + 1))};
}

Failure unreadable(int rank, int64_t step) {
  return {"unreadable", fmt::format("step {}: what rank {} sent cannot be read", step, rank)};
}

std::string place_in_words(const Header& header) {
  return fmt::format("{} of step {}, exchange {}, {} elements of {}", header.operation, header.step, header.number,
                     header.count < 0 ? "its own" : std::to_string(header.count), header.dtype);
}

/// Does the row count, after masking?
bool counts(const Rows& rows, std::size_t i) {
  return rows.counted[i] != 0 && std::abs(rows.rewards[i]) <= kLargestReward && std::abs(rows.kl[i]) <= kLargestReward;
}

/// Rows, steps and groups of each micro-batch.
void partition(GatheredRows& gathered, std::size_t ranks) {
  std::map<std::pair<int, int64_t>, std::set<int64_t>> groups;
  std::set<int64_t> all;
  std::vector<std::set<int64_t>> by_rank(ranks);
  gathered.partitioned.by_rank.assign(ranks, {});
  for (std::size_t i = 0; i < gathered.rows.size(); ++i) {
    auto& micro_batches = gathered.partitioned.by_rank[static_cast<std::size_t>(gathered.ranks[i])];
    const auto micro = static_cast<std::size_t>(gathered.rows.micro[i]);
    if (micro_batches.size() <= micro) micro_batches.resize(micro + 1);
    if (!counts(gathered.rows, i)) continue;
    ++micro_batches[micro].rows;
    micro_batches[micro].valid_steps += gathered.rows.steps[i];
    groups[{gathered.ranks[i], gathered.rows.micro[i]}].insert(gathered.rows.groups[i]);
    by_rank[static_cast<std::size_t>(gathered.ranks[i])].insert(gathered.rows.groups[i]);
    all.insert(gathered.rows.groups[i]);
  }
  for (const auto& [place, ids] : groups) {
    gathered.partitioned.by_rank[static_cast<std::size_t>(place.first)][static_cast<std::size_t>(place.second)].groups =
        static_cast<int64_t>(ids.size());
  }
  gathered.partitioned.groups = static_cast<int64_t>(all.size());
  for (const std::set<int64_t>& each : by_rank) gathered.partitioned.rank_groups.push_back(static_cast<int64_t>(each.size()));
}

}  // namespace

Failure disagreement(std::span<const Header> by_rank) {
  const Header& most = most_frequent(by_rank);
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const Header& own = by_rank[rank];
    if (own == most) continue;
    Header same = own;
    same.agreed = most.agreed;
    if (same == most) {
      return {"convention-differs",
              fmt::format("step {}: rank {} has another convention, or other samples, than most ranks ({} and {})",
                          most.step, rank, own.agreed, most.agreed)};
    }
    // Of two ranks nobody can say who is wrong.
    const std::string others = by_rank.size() == 2 ? fmt::format("rank {}", 1 - rank) : "most ranks";
    return {"header-differs", fmt::format("step {}: rank {} is at {}, and {} at {}", most.step, rank, place_in_words(own),
                                          others, place_in_words(most))};
  }
  return {};
}

void Rows::append(const Rows& other, std::size_t i) {
  ids.push_back(other.ids[i]);
  groups.push_back(other.groups[i]);
  rewards.push_back(other.rewards[i]);
  kl.push_back(other.kl[i]);
  counted.push_back(other.counted[i]);
  steps.push_back(other.steps[i]);
  micro.push_back(other.micro[i]);
}

std::string Rows::ragged() const {
  const auto differs = [this](std::size_t size, const char* what) {
    return size == ids.size() ? "" : fmt::format("{} ids and {} {}", ids.size(), size, what);
  };
  for (const std::string& problem :
       {differs(groups.size(), "groups"), differs(rewards.size(), "rewards"), differs(kl.size(), "KL terms"),
        differs(counted.size(), "marks of rows that count"), differs(steps.size(), "numbers of steps"),
        differs(micro.size(), "micro-batches")}) {
    if (!problem.empty()) return problem;
  }
  const bool known = std::ranges::all_of(micro, [](int64_t each) { return each >= 0 && each < (1 << 20); });
  return known ? "" : "a micro-batch below 0, or beyond 2^20";
}

RewardExchange::RewardExchange(checkpoint::Group& group, ExchangeOptions options)
    : group_(group), options_(std::move(options)) {}

GatheredTexts RewardExchange::exchange(Header header, const std::string& payload) {
  header.number = number_;
  checkpoint::Gathered all = group_.all_gather(std::string(kLabel), to_bytes(Packet{header, payload}), options_.deadline_s);
  if (!all) return {{}, of_group(all.problem, header.step)};
  GatheredTexts texts;
  std::vector<Header> headers;
  for (std::size_t rank = 0; rank < all.texts.size(); ++rank) {
    Packet packet;
    if (!from_bytes(all.texts[rank], packet)) return {{}, unreadable(static_cast<int>(rank), header.step)};
    headers.push_back(std::move(packet.header));
    texts.by_rank.push_back(std::move(packet.payload));
  }
  texts.failure = disagreement(headers);
  if (!texts.failure) ++number_;
  return texts;
}

Received RewardExchange::rewards(int64_t step, const std::vector<int64_t>& ids, const ScoreFunction& score) {
  ScoredPacket mine;
  if (group_.rank() == options_.root) {
    const bool refuse = options_.convention.non_finite == NonFinite::refuse;
    ScoreOutcome outcome = call_score(score, ids, {options_.score_deadline_s, refuse});
    mine = {outcome.failure.code, outcome.failure.sentence, ids, std::move(outcome.values)};
  }
  std::vector<int64_t> sorted = ids;
  std::ranges::sort(sorted);
  Header header{"rewards", step, 0, static_cast<int64_t>(ids.size()), "float64", hash_in_hex(to_bytes(sorted))};
  const GatheredTexts texts = exchange(header, to_bytes(mine));
  if (texts.failure) return {{}, texts.failure};
  ScoredPacket scored;
  if (!from_bytes(texts.by_rank.at(static_cast<std::size_t>(options_.root)), scored)) return {{}, unreadable(options_.root, step)};
  if (!scored.code.empty())
    return {{}, {scored.code, fmt::format("step {}, rank {}: {}", step, options_.root, scored.sentence)}};
  // Tied to ids, not to places: a rank may hold its samples in another order.
  std::map<int64_t, double> by_id;
  for (std::size_t i = 0; i < scored.ids.size(); ++i) by_id[scored.ids[i]] = scored.values[i];
  Received received;
  for (const int64_t id : ids) received.values.push_back(by_id.at(id));
  return received;
}

GatheredRows RewardExchange::rows(int64_t step, const Rows& mine) {
  GatheredRows gathered;
  const Header header{"rows", step, 0, -1, "float64", hash_in_hex(to_json(options_.convention).dump())};
  const GatheredTexts texts = exchange(header, to_bytes(mine));
  gathered.failure = texts.failure;
  if (gathered.failure) return gathered;
  std::vector<Rows> by_rank(texts.by_rank.size());
  std::vector<std::pair<int64_t, std::pair<int, std::size_t>>> order;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (!from_bytes(texts.by_rank[rank], by_rank[rank])) {
      gathered.failure = unreadable(static_cast<int>(rank), step);
    } else if (const std::string ragged = by_rank[rank].ragged(); !ragged.empty()) {
      gathered.failure = {"rows-ragged", fmt::format("step {}: rank {} has {}", step, rank, ragged)};
    }
    if (gathered.failure) return gathered;
    for (std::size_t i = 0; i < by_rank[rank].size(); ++i)
      order.push_back({by_rank[rank].ids[i], {static_cast<int>(rank), i}});
  }
  std::ranges::sort(order);
  for (const auto& [id, place] : order) {
    if (!gathered.rows.ids.empty() && gathered.rows.ids.back() == id) {
      gathered.failure = {"id-repeats", fmt::format("step {}: sample {} comes from rank {} and from rank {}", step, id,
                                                    gathered.ranks.back(), place.first)};
      return gathered;
    }
    gathered.rows.append(by_rank[static_cast<std::size_t>(place.first)], place.second);
    gathered.ranks.push_back(place.first);
  }
  partition(gathered, by_rank.size());
  return gathered;
}

GatheredMoments RewardExchange::moments(int64_t step, const Moments& mine) {
  GatheredMoments gathered;
  const GatheredTexts texts = exchange({"merge", step, 0, -1, "float64", ""}, to_bytes(mine));
  gathered.failure = texts.failure;
  for (std::size_t rank = 0; rank < texts.by_rank.size() && !gathered.failure; ++rank) {
    if (!from_bytes(texts.by_rank[rank], gathered.by_rank.emplace_back()))
      gathered.failure = unreadable(static_cast<int>(rank), step);
  }
  return gathered;
}

GatheredTexts RewardExchange::shown(int64_t step, const std::string& mine) {
  return exchange({"audit", step, 0, -1, "bytes", ""}, mine);
}

std::vector<std::size_t> rows_of_rank(const GatheredRows& gathered, int rank) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < gathered.ranks.size(); ++i) {
    if (gathered.ranks[i] == rank) places.push_back(i);
  }
  return places;
}

std::vector<double> penalised(const Rows& rows, double beta) {
  std::vector<double> values = rows.rewards;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] -= beta * rows.kl[i];
  return values;
}

}  // namespace lockstep::rewards
