#include "harness/lib/rewards/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <future>
#include <limits>
#include <stdexcept>
#include <thread>

#include "harness/lib/checkpoint/group.h"
#include "harness/lib/rewards/bytes.h"

namespace lockstep::rewards {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kRanks = 3;

/// Runs `rank` on each of three threads.
void on_ranks(const std::function<void(int, RewardExchange&)>& rank, const ExchangeOptions& options = {}) {
  checkpoint::ThreadRendezvous meeting(kRanks);
  std::vector<std::jthread> threads;
  for (int at = 0; at < kRanks; ++at) {
    threads.emplace_back([&, at] {
      const std::unique_ptr<checkpoint::Group> group = meeting.group(at);
      RewardExchange exchange(*group, options);
      rank(at, exchange);
    });
  }
}

ExchangeOptions with_root(int root) {
  ExchangeOptions options;
  options.root = root;
  options.deadline_s = 10;
  return options;
}

std::vector<double> halves(const std::vector<int64_t>& ids) {
  std::vector<double> values;
  for (const int64_t id : ids) values.push_back(static_cast<double>(id) / 2);
  return values;
}

Rows row(int64_t id, int64_t group, double reward) { return {{id}, {group}, {reward}, {0}, {1}, {2}, {0}}; }

TEST(RewardExchange, TiesRewardsToSamplesWhateverTheirOrder) {
  std::vector<Received> received(kRanks);
  int calls = 0;
  on_ranks(
      [&](int rank, RewardExchange& exchange) {
        const std::vector<int64_t> ids = rank == 0 ? std::vector<int64_t>{8, 2, 6} : std::vector<int64_t>{2, 6, 8};
        received[static_cast<std::size_t>(rank)] = exchange.rewards(5, ids, [&](const auto& asked) {
          ++calls;
          return halves(asked);
        });
      },
      with_root(1));
  EXPECT_THAT(received[0].values, ElementsAre(4, 1, 3));
  EXPECT_THAT(received[2].values, ElementsAre(1, 3, 4));
  EXPECT_EQ(calls, 1);
}

/// The failure that all three ranks have.
Failure failure_of(const ScoreFunction& score, double score_deadline_s = 0) {
  std::vector<Failure> failures(kRanks);
  ExchangeOptions options = with_root(1);
  options.score_deadline_s = score_deadline_s;
  on_ranks([&](int rank, RewardExchange& exchange) {
    failures[static_cast<std::size_t>(rank)] = exchange.rewards(7, {4, 5}, score).failure;
  }, options);
  for (const Failure& failure : failures) EXPECT_EQ(failure.sentence, failures[0].sentence);
  return failures[0];
}

TEST(RewardExchange, TellsAllRanksHowTheRewardFunctionFailed) {
  const Failure threw = failure_of([](const auto&) -> std::vector<double> { throw std::runtime_error("out of memory"); });
  EXPECT_EQ(threw.code, "score-threw");
  EXPECT_EQ(threw.sentence, "step 7, rank 1: the reward function threw: out of memory");
  EXPECT_EQ(failure_of([](const auto&) { return std::vector<double>{1}; }).code, "score-length");
  const Failure nan = failure_of([](const auto&) { return std::vector<double>{1, std::nan("")}; });
  EXPECT_EQ(nan.code, "score-not-finite");
  EXPECT_THAT(nan.sentence, HasSubstr("gave nan for sample 5 (element 1)"));
}

TEST(RewardExchange, LeavesAFunctionThatHangs) {
  const auto never = std::make_shared<std::promise<void>>();
  const Failure hung = failure_of(
      [never](const auto&) {
        never->get_future().wait();
        return std::vector<double>{};
      },
      0.05);
  EXPECT_EQ(hung.code, "score-hung");
  never->set_value();
}

TEST(RewardExchange, GathersUnevenRowsInTheOrderOfSamples) {
  std::vector<GatheredRows> gathered(kRanks);
  on_ranks([&](int rank, RewardExchange& exchange) {
    Rows mine;
    if (rank == 2) mine = row(7, 1, 0.5);
    if (rank == 2) mine.append(row(1, 0, 0.25), 0);
    if (rank == 0) mine = row(4, 1, 2);
    gathered[static_cast<std::size_t>(rank)] = exchange.rows(0, mine);
  });
  for (const GatheredRows& each : gathered) {
    EXPECT_EQ(each.failure.sentence, "");
    EXPECT_THAT(each.rows.ids, ElementsAre(1, 4, 7));
    EXPECT_THAT(each.ranks, ElementsAre(2, 0, 2));
    EXPECT_EQ(each.partitioned.groups, 2);
    EXPECT_EQ(each.partitioned.by_rank[2][0], (Counts{2, 4, 2}));
    EXPECT_TRUE(each.partitioned.by_rank[1].empty());
  }
}

TEST(RewardExchange, RefusesASampleOfTwoRanks) {
  on_ranks([&](int, RewardExchange& exchange) {
    const GatheredRows gathered = exchange.rows(3, row(4, 0, 1));
    EXPECT_EQ(gathered.failure.code, "id-repeats");
    EXPECT_EQ(gathered.failure.sentence, "step 3: sample 4 comes from rank 0 and from rank 1");
  });
}

TEST(RewardExchange, NamesTheRankThatIsElsewhere) {
  on_ranks([&](int rank, RewardExchange& exchange) {
    const GatheredMoments gathered = exchange.moments(rank == 2 ? 16 : 17, {});
    EXPECT_EQ(gathered.failure.code, "header-differs");
    EXPECT_THAT(gathered.failure.sentence, HasSubstr("rank 2 is at merge of step 16"));
  });
}

TEST(RewardExchange, NamesTheRankWithAnotherConvention) {
  checkpoint::ThreadRendezvous meeting(kRanks);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<checkpoint::Group> group = meeting.group(rank);
      ExchangeOptions options;
      options.convention.ddof = rank == 1 ? 1 : 0;
      RewardExchange exchange(*group, options);
      const Failure failure = exchange.rows(2, {}).failure;
      EXPECT_EQ(failure.code, "convention-differs");
      EXPECT_THAT(failure.sentence, HasSubstr("rank 1 has another convention"));
    });
  }
}

TEST(Bytes, ComeBackAsTheyWere) {
  const Rows rows = row(-3, 9, std::numeric_limits<double>::infinity());
  Rows read;
  ASSERT_TRUE(from_bytes(to_bytes(rows), read));
  EXPECT_EQ(read.ids, rows.ids);
  EXPECT_EQ(read.rewards, rows.rewards);
}

TEST(Bytes, AreRefusedWhenCutLongOrForged) {
  const std::string bytes = to_bytes(row(1, 2, 3));
  Rows read;
  for (std::size_t length = 0; length < bytes.size(); ++length) EXPECT_FALSE(from_bytes(bytes.substr(0, length), read)) << length;
  EXPECT_FALSE(from_bytes(bytes + "x", read));
  std::string forged = bytes;
  forged[6] = '\x7f';  // a list longer than any memory
  EXPECT_FALSE(from_bytes(forged, read));
}

TEST(Poison, SaysWhoseItIs) {
  Poisoned whose;
  ASSERT_TRUE(is_poison(poison(5, 17), whose));
  EXPECT_EQ(whose.rank, 5);
  EXPECT_EQ(whose.step, 17);
  EXPECT_TRUE(std::isnan(poison(5, 17)));
  EXPECT_FALSE(is_poison(std::numeric_limits<double>::quiet_NaN(), whose));
  EXPECT_FALSE(is_poison(0.5, whose));
}

TEST(Findings, OfOneCauseBecomeOne) {
  std::vector<Finding> findings;
  add(findings, {"zeros", {"stale-buffer"}, 3, {1}, "first"});
  add(findings, {"stale-buffer", {}, 3, {2}, "second"});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].code, "stale-buffer");
  EXPECT_THAT(findings[0].ranks, ElementsAre(1, 2));
  EXPECT_EQ(findings[0].sentence, "second");
  add(findings, {"zeros", {}, 3, {0}, "third"});
  EXPECT_EQ(findings.size(), 2u);
}

}  // namespace
}  // namespace lockstep::rewards
