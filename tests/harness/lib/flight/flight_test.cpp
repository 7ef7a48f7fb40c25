#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/lib/flight/dump.h"
#include "harness/lib/flight/judge.h"
#include "harness/lib/flight/ring.h"
#include "tests/support/temp_folder.h"

namespace lockstep::flight {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Entry call(const std::string& op, const std::string& tag, std::vector<int64_t> shape, uint64_t sequence) {
  Entry entry;
  entry.group = "data";
  entry.op = op;
  entry.tag = tag;
  entry.dtype = "Float";
  entry.shape = std::move(shape);
  entry.sequence = sequence;
  return entry;
}

/// Three ranks that have left two sums; `last` is what each enters then, nothing where it is empty.
Records three_ranks(const std::vector<std::vector<Entry>>& last) {
  Records records;
  for (int rank = 0; rank < 3; ++rank) {
    Recorded record{rank, 3};
    for (uint64_t i = 0; i < 2; ++i) {
      record.entries.push_back(call("all_reduce", "gradients of w", {4, 3}, i + 1));
      record.entries.back().id = i;
      record.entries.back().state = State::completed;
    }
    for (Entry entry : last[static_cast<std::size_t>(rank)]) {
      entry.id = record.entries.size();
      record.entries.push_back(entry);
    }
    records.read.push_back(std::move(record));
  }
  return records;
}

TEST(Ring, GivesBackTheLastEntriesOfARankThatStillWrites) {
  const TempFolder folder;
  Ring ring(folder / "flight-1.ring", 1, 3);
  for (uint64_t i = 0; i < kEntries + 5; ++i) {
    const uint64_t id = ring.enter(call("all_gather", "rows", {2}, i + 1));
    EXPECT_EQ(id, i);
    if (i + 1 < kEntries + 5) ring.leave(id);
  }
  const Recorded found = read_ring(folder / "flight-1.ring");
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.world_size, 3);
  ASSERT_EQ(found.entries.size(), kEntries);
  EXPECT_EQ(found.entries.front().sequence, 6U);
  EXPECT_EQ(found.entries.back().state, State::started);
  EXPECT_EQ(found.entries[3].state, State::completed);
  EXPECT_EQ(found.entries[3].tag, "rows");
  EXPECT_THROW(read_ring(folder / "none"), std::runtime_error);
}

TEST(Ring, KeepsEveryOperationsWholeName) {
  const TempFolder folder;
  Ring ring(folder / "flight-0.ring", 0, 3);
  for (const char* op : {"all_reduce", "all_gather", "broadcast", "barrier", "reduce_gradients"}) {
    ring.enter(call(op, "", {1}, 1));
    EXPECT_EQ(read_ring(folder / "flight-0.ring").entries.back().op, op);
  }
}

TEST(Pickle, GivesBackWhatWasWritten) {
  const json value = {{"a", {1, -2, 3.5, true, nullptr, "x"}}, {"big", -9007199254740993}, {"empty", json::object()}};
  EXPECT_EQ(from_pickle(to_pickle(value)), value);
}

TEST(Pickle, RefusesWhatIsCutShortOrCallsAnything) {
  const std::string whole = to_pickle({{"a", {1, 2}}});
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_THROW(from_pickle(whole.substr(0, length)), std::runtime_error) << length;
  EXPECT_THROW(from_pickle("cos\nsystem\n(S'true'\ntR."), std::runtime_error);
}

TEST(Pickle, RefusesWhatIsDeepOrStandsForMoreThanItHolds) {
  const std::string deep = "\x80\x02" + std::string(2'000'000, ']') + std::string(1'999'999, 'a') + ".";
  EXPECT_THROW(from_pickle(deep), std::runtime_error);
  std::string doubling("\x80\x02)q\0", 5);
  for (char i = 0; i < 60; ++i) doubling += std::string{'h', i, 'h', i, '\x86', 'q', static_cast<char>(i + 1)};
  EXPECT_THROW(from_pickle(doubling + "."), std::runtime_error);
  std::string text("\x80\x02X\0\0\x10\0", 7);  // a MiB of text, ten thousand times
  text += std::string(1 << 20, 'x') + std::string("q\0(", 3);
  for (int i = 0; i < 10'000; ++i) text += std::string("h\0", 2);
  EXPECT_THROW(from_pickle(text + "l."), std::runtime_error);
  EXPECT_THROW(from_pickle(std::string("\x80\x02]q\0h\0a.", 9)), std::runtime_error);  // a list that holds itself
}

TEST(FlightJudge, NamesTheRankThatHasNotEnteredWhatTheOthersWaitIn) {
  const Entry third = call("all_reduce", "gradients of b", {3}, 3);
  const Judgement judgement = judge(three_ranks({{third}, {}, {third}}));
  ASSERT_EQ(judgement.findings.size(), 1U);
  EXPECT_EQ(judgement.findings[0].kind, Finding::Kind::missing);
  EXPECT_EQ(judgement.findings[0].ranks, std::vector<int>{1});
  EXPECT_EQ(judgement.findings[0].sequence, 3U);
  EXPECT_THAT(judgement.findings[0].sentence, HasSubstr("rank 1 has not entered all_reduce gradients of b Float [3] (number 3)"));
}

TEST(FlightJudge, NamesTheRankThatCallsSomethingElse) {
  const Entry third = call("all_reduce", "gradients of b", {3}, 3);
  const Judgement judgement = judge(three_ranks({{third}, {third}, {call("all_reduce", "gradients of b", {2}, 3)}}));
  ASSERT_EQ(judgement.findings.size(), 1U);
  EXPECT_EQ(judgement.findings[0].kind, Finding::Kind::mismatch);
  EXPECT_EQ(judgement.findings[0].ranks, std::vector<int>{2});
}

TEST(FlightJudge, IsSilentWhereAllAgree) {
  const Judgement judgement = judge(three_ranks({{}, {}, {}}));
  EXPECT_TRUE(judgement.findings.empty());
  EXPECT_THAT(in_words(judgement)[0], HasSubstr("All 2 collectives"));
}

TEST(FlightJudge, SaysWhichRanksLeftNoRecord) {
  Records records = three_ranks({{}, {}, {}});
  records.read.erase(records.read.begin() + 1);
  EXPECT_THAT(in_words(judge(records)), testing::Contains("rank 1 left no record"));
}

TEST(FlightRecords, ComeBackFromPytorchsSchema) {
  const std::vector<Recorded> records = three_ranks({{call("all_gather", "rows", {3}, 3)}, {}, {}}).read;
  for (const Recorded& record : records) {
    const Recorded back = recorded_from(from_pickle(to_pickle(dump_of(record))), record.rank);
    EXPECT_EQ(back.entries, record.entries);
    EXPECT_EQ(back.world_size, 3);
  }
  EXPECT_EQ(dump_of(records[0]).at("entries").at(0).at("profiling_name"), "gloo:all_reduce");
  EXPECT_EQ(dump_of(records[0], "nccl").at("entries").at(0).at("profiling_name"), "nccl:all_reduce");
}

/// What a command prints, and its exit status.
std::pair<std::string, int> output_of(const std::string& command) {
  std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string text;
  char block[512];
  while (std::fgets(block, sizeof block, pipe) != nullptr) text += block;
  return {text, ::pclose(pipe)};
}

TEST(FlightRecords, AreOpenedByPytorchsAnalyser) {
  const std::string python = LOCKSTEP_PYTHON;
  if (python.empty()) GTEST_SKIP() << "no Python with the torch package of this LibTorch";
  const TempFolder folder;
  std::filesystem::create_directories(folder / "flight");
  const Entry third = call("all_reduce", "gradients of b", {3}, 3);
  Entry pass = call("reduce_gradients", "", {94344}, 1), barrier = call("barrier", "saved", {}, 3);
  pass.group = "gradients";
  pass.dtype = "bytes";
  pass.state = State::completed;
  barrier.dtype.clear();
  barrier.state = State::completed;
  barrier.group = "data";
  for (Recorded record : three_ranks({{pass, barrier}, {pass, barrier}, {pass, barrier}}).read) {
    if (record.rank != 1) {
      Entry last = third;
      last.sequence = 4;
      last.id = record.entries.size();
      record.entries.push_back(last);
    }
    std::ofstream file(folder / "flight/rank_" + std::to_string(record.rank), std::ios::binary);
    file << to_pickle(dump_of(record));
  }
  const auto [text, status] = output_of(python + " -m torch.distributed.flight_recorder.fr_trace " + (folder / "flight"));
  EXPECT_EQ(status, 0) << text;
  EXPECT_THAT(text, HasSubstr("Not all ranks joining collective, sequence number: 4"));
  EXPECT_THAT(text, HasSubstr("missing ranks: {1}"));
  EXPECT_EQ(judge(read_records(folder / "flight")).findings[0].ranks, std::vector<int>{1});
}

}  // namespace
}  // namespace lockstep::flight
