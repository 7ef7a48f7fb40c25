#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "harness/base/json.h"
#include "harness/lib/flight/dump.h"
#include "harness/lib/flight/judge.h"
#include "harness/lib/flight/ring.h"
#include "tests/support/program.h"
#include "tests/support/said.h"
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

/// Each finding's kind, ranks and number, and all words.
std::string text_of(const Judgement& judgement) {
  std::string text;
  for (const Finding& each : judgement.findings)
    text += fmt::format("{} of {} at {}. ",
                        each.kind == Finding::Kind::missing    ? "missing"
                        : each.kind == Finding::Kind::mismatch ? "mismatch"
                                                               : "message",
                        ranks_in_words(each.ranks), each.sequence);
  for (const std::string& line : in_words(judgement)) text += line + "\n";
  return text;
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

TEST(FlightJudge, NamesTheRankThatHasNotEnteredOrCallsSomethingElse) {
  support::Said said;
  const Entry third = call("all_reduce", "gradients of b", {3}, 3);
  said("not entered", text_of(judge(three_ranks({{third}, {}, {third}}))));
  said("another size", text_of(judge(three_ranks({{third}, {third}, {call("all_reduce", "gradients of b", {2}, 3)}}))));
  Records records = three_ranks({{}, {}, {}});
  said("all agree", text_of(judge(records)));
  records.read.erase(records.read.begin() + 1);
  said("no record of a rank", text_of(judge(records)));
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
  const auto [text, status] = output_of(python + " -m torch.distributed.flight_recorder.fr_trace " + (folder / "flight") + " 2>&1");
  EXPECT_EQ(status, 0) << text;
  EXPECT_THAT(text, HasSubstr("Not all ranks joining collective, sequence number: 4"));
  EXPECT_THAT(text, HasSubstr("missing ranks: {1}"));
  EXPECT_EQ(judge(read_records(folder / "flight")).findings[0].ranks, std::vector<int>{1});
}

constexpr double kBase = 200e6;

/// A run of `steps` whose memory is `at(step)`, and jumps about by half a megabyte.
std::optional<Leak> leak_of(int64_t steps, double (*at)(double step)) {
  MemorySeries series;
  for (int64_t step = 0; step < steps; ++step) {
    const double noise = 5e5 * unit_interval(mix64(static_cast<uint64_t>(step)));
    series.add(step, static_cast<int64_t>(kBase + at(static_cast<double>(step)) + noise));
  }
  return leak_in(series.steps(), series.bytes());
}

TEST(Memory, FindsALeakAndItsSize) {
  const auto leak = leak_of(5000, [](double step) { return 3e4 * step; });
  ASSERT_TRUE(leak);
  EXPECT_NEAR(leak->bytes_a_step, 3e4, 300);
}

TEST(Memory, IsSilentOnRunsThatFillUpAndStay) {
  EXPECT_FALSE(leak_of(5000, [](double) { return 0.0; }));
  EXPECT_FALSE(leak_of(5000, [](double step) { return step < 300 ? 3e5 * step : 9e7; })) << "it takes shape";
  EXPECT_FALSE(leak_of(5000, [](double step) { return step < 2500 ? 0.0 : 5e7; })) << "one larger batch";
  EXPECT_FALSE(leak_of(5000, [](double step) { return 2e7 * (static_cast<int64_t>(step) / 100 % 2); })) << "to and fro";
  EXPECT_FALSE(leak_of(30, [](double step) { return 3e6 * step; })) << "too short to say";
}

TEST(Memory, KeepsFewPointsOfALongRun) {
  MemorySeries series;
  for (int64_t step = 0; step < 100000; ++step) series.add(step, step);
  EXPECT_LE(series.steps().size(), 512U);
  EXPECT_GE(series.steps().size(), 256U);
  EXPECT_EQ(series.steps()[2] - series.steps()[1], series.steps()[1] - series.steps()[0]);
}

/// Three ranks, five sums each in "data" and one pass in "gradients", all left.
Records flight_of_three() {
  Records records;
  for (int rank = 0; rank < 3; ++rank) {
    Recorded record{rank, 3};
    for (uint64_t i = 0; i < 6; ++i) {
      Entry entry;
      entry.id = i;
      entry.group = i == 3 ? "gradients" : "data";
      entry.sequence = i < 3 ? i + 1 : i == 3 ? 1 : i;
      entry.op = "all_reduce";
      entry.tag = "gradients of w";
      entry.dtype = "Float";
      entry.shape = {4, 3};
      entry.step = static_cast<int64_t>(i / 2);
      entry.state = State::completed;
      record.entries.push_back(std::move(entry));
    }
    records.read.push_back(std::move(record));
  }
  return records;
}

Entry& fifth(Records& records, int rank) { return records.read[static_cast<std::size_t>(rank)].entries[4]; }

TEST(CompareFlights, NamesWhatDiffersAndWhereAndIsSilentOnEqualOnes) {
  support::Said said;
  const auto compared = [&](const char* what, const std::function<void(Records&)>& change) {
    Records b = flight_of_three();
    change(b);
    for (const bool turned : {false, true}) {
      const FlightComparison found =
          turned ? compare_flights(b, flight_of_three()) : compare_flights(flight_of_three(), b);
      std::string text = fmt::format("{} compared", found.compared);
      if (const auto& first = found.first)
        text += fmt::format(", {} on rank {}, {} {}, step {}", to_word(first->kind), first->rank, first->group,
                            first->sequence, first->step);
      for (const int rank : found.without_a) text += fmt::format(", rank {} not in a", rank);
      for (const int rank : found.without_b) text += fmt::format(", rank {} not in b", rank);
      said(std::string(what) + (turned ? ", turned" : ""), text);
    }
  };
  compared("equal", [](Records&) {});
  compared("operation", [](Records& b) { fifth(b, 1).op = "all_gather"; });
  compared("type", [](Records& b) { fifth(b, 1).dtype = "Double"; });
  compared("size", [](Records& b) { fifth(b, 1).shape = {4, 2}; });
  compared("root", [](Records& b) { fifth(b, 1).root = 1; });
  compared("purpose", [](Records& b) { fifth(b, 1).tag = "b"; });
  compared("state", [](Records& b) { fifth(b, 1).state = State::started; });
  compared("a rank lacks a call for which others wait", [](Records& b) {
    b.read[1].entries.resize(4);
    for (const int rank : {0, 2}) {
      fifth(b, rank).state = State::started;
      b.read[static_cast<std::size_t>(rank)].entries.resize(5);
    }
  });
  compared("a ring has written over its first", [](Records& b) {
    for (Recorded& record : b.read) record.entries.erase(record.entries.begin()), record.lost = 1;
  });
  compared("a record is missing", [](Records& b) { b.read.erase(b.read.begin() + 2); });
}
TEST(CompareFlights, ReadsPytorchsOwnRecords) {
  const std::string python = LOCKSTEP_PYTHON;
  if (python.empty()) GTEST_SKIP() << "no Python with the torch package of this LibTorch";
  const TempFolder folder;
  const std::string command = python + " -B " LOCKSTEP_PYTORCH_FLIGHT " " + folder.path() + " good wrong_size missing 2>/dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const auto good = read_records(folder / "good");
  const FlightComparison same = compare_flights(good, good);
  EXPECT_EQ(same.compared, 12U);
  EXPECT_FALSE(same.first);
  const auto size = compare_flights(good, read_records(folder / "wrong_size")).first;
  ASSERT_TRUE(size);
  EXPECT_EQ(size->kind, DivergenceKind::size);
  EXPECT_EQ(size->rank, 1);
  EXPECT_EQ(size->sequence, 3U);
  // Its fourth sum was its third: the fourth number is what it lacks.
  const auto missing = compare_flights(good, read_records(folder / "missing")).first;
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->kind, DivergenceKind::missing_call);
  EXPECT_EQ(missing->rank, 1);
  EXPECT_EQ(missing->sequence, 4U);
}

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;

/// A call of a program: whose members enter it in the program's order.
struct Call {
  std::string op;
  std::size_t group = 0;
  int from = 0, to = 0;  ///< of a message: numbers in the group
  uint64_t sequence = 0;
  std::vector<int> ranks = {};    ///< who enters it if nothing is wrong
  std::set<int> entered = {};
  bool is_message() const { return op == "message" || op == "batch"; }
  bool done() const { return entered.size() == ranks.size(); }
};

/// A program on some ranks with groups, as PyTorch's flight recorder would note it.
struct Program {
  int world = 2;
  bool gloo = false;
  std::vector<std::vector<int>> groups;
  std::vector<Call> calls;
  std::map<int, std::pair<std::size_t, json>> other_sizes;  ///< by rank: the call in which it brings another size

  /// Ranks enter call after call; a call that one of its ranks does not enter keeps the others. `gone`: a rank and the first call that it does not enter.
  void run(int gone = -1, std::size_t at = 0) {
    std::set<int> blocked;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (i == at && gone >= 0) blocked.insert(gone);
      for (const int rank : calls[i].ranks) {
        if (!blocked.contains(rank)) calls[i].entered.insert(rank);
      }
      if (!calls[i].done()) blocked.insert(calls[i].entered.begin(), calls[i].entered.end());
    }
  }

  json dump(int rank, std::size_t ring = SIZE_MAX) const {
    json entries = json::array();
    uint64_t id = 0;
    std::map<std::size_t, uint64_t> messages;
    const auto add = [&](std::size_t i, const std::string& name, const json& sizes, bool message, bool done) {
      const Call& call = calls[i];
      entries.push_back({{"record_id", id++}, {"process_group", {std::to_string(call.group), call.group == 0 ? "default_pg" : "undefined"}},
                         {"collective_seq_id", message ? 0 : call.sequence}, {"p2p_seq_id", message ? messages[call.group] : 0}, {"is_p2p", message},
                         {"profiling_name", (gloo ? "gloo:" : "nccl:") + name}, {"time_created_ns", 1000 * i + 1}, {"input_sizes", sizes},
                         {"input_dtypes", sizes.empty() ? json::array() : json::array({"Float"})}, {"output_sizes", sizes}, {"output_dtypes", {"Float"}},
                         {"state", done && !gloo ? "completed" : "scheduled"}, {"retired", done}});
    };
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const Call& call = calls[i];
      if (!call.entered.contains(rank)) continue;
      if (call.is_message()) {
        ++messages[call.group];
        const bool sends = groups[call.group][static_cast<std::size_t>(call.from)] == rank;
        const bool batch = call.op == "batch";
        add(i, sends ? "send " + std::to_string(call.from) + "->" + std::to_string(call.to) : "recv " + std::to_string(call.to) + "<-" + std::to_string(call.from),
            {{4}}, true, call.done() && !batch);
        if (batch) add(i, "coalesced", json::array(), true, call.done());
        continue;
      }
      json sizes = {{5, static_cast<int>(i)}};
      if (call.op == "all_to_all") sizes = {{rank + 1}};
      if (call.op == "barrier" || (call.op == "scatter" && rank != call.ranks.front())) sizes = json::array();
      if (const auto other = other_sizes.find(rank); other != other_sizes.end() && other->second.first == i) sizes = other->second.second;
      const bool together = call.op == "together";
      add(i, together ? "all_gather" : call.op, sizes, false, call.done() && !together);
      if (together) add(i, "broadcast", sizes, false, false), add(i, "coalesced", json::array(), false, call.done());
    }
    if (entries.size() > ring) entries.erase(entries.begin(), entries.end() - static_cast<std::ptrdiff_t>(ring));
    json said = json::object();
    if (gloo) said[""] = {{"name", ""}, {"desc", ""}, {"ranks", "[]"}};
    for (std::size_t i = 0; i < groups.size() && !gloo; ++i) {
      if (std::ranges::find(groups[i], rank) == groups[i].end()) continue;
      said[std::to_string(i)] = {{"name", std::to_string(i)}, {"desc", i == 0 ? "default_pg" : "undefined"}, {"ranks", json(groups[i]).dump()}};
    }
    return {{"version", "2.10"}, {"pg_config", said}, {"pg_status", json::object()}, {"entries", entries}};
  }

  Records records(std::size_t ring = SIZE_MAX) const {
    Records found;
    for (int rank = 0; rank < world; ++rank) found.read.push_back(recorded_from(from_pickle(to_pickle(dump(rank, ring))), rank));
    return found;
  }
};

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  int below(int bound) { return static_cast<int>(engine_() % static_cast<uint64_t>(bound)); }

 private:
  std::mt19937_64 engine_;
};

Program drawn_program(Draw& draw) {
  Program program;
  program.world = 2 + draw.below(7);
  program.gloo = draw.below(2) == 0;
  std::vector<int> all;
  for (int rank = 0; rank < program.world; ++rank) all.push_back(rank);
  program.groups.push_back(all);
  for (int more = draw.below(4); more > 0; --more) {
    std::vector<int> some;
    for (const int rank : all) {
      if (draw.below(2) == 0) some.push_back(rank);
    }
    if (some.size() > 1) program.groups.push_back(some);
  }
  const std::vector<std::string> ops = program.gloo ? std::vector<std::string>{"all_reduce", "all_gather", "broadcast", "scatter", "all_to_all", "barrier"}
                                                    : std::vector<std::string>{"all_reduce", "_reduce_scatter_base", "scatter", "all_to_all", "barrier", "together", "message", "batch"};
  std::map<std::size_t, uint64_t> sequence;
  for (int count = 4 + draw.below(20); count > 0; --count) {
    Call call{ops[static_cast<std::size_t>(draw.below(static_cast<int>(ops.size())))], static_cast<std::size_t>(draw.below(static_cast<int>(program.groups.size())))};
    const std::vector<int>& group = program.groups[call.group];
    call.ranks = group;
    if (call.is_message()) {
      call.from = draw.below(static_cast<int>(group.size()));
      call.to = (call.from + 1 + draw.below(static_cast<int>(group.size()) - 1)) % static_cast<int>(group.size());
      call.ranks = {group[static_cast<std::size_t>(call.from)], group[static_cast<std::size_t>(call.to)]};
    } else {
      call.sequence = ++sequence[call.group];
    }
    program.calls.push_back(call);
  }
  return program;
}

/// Is what a finding says of its ranks so in the program?
bool holds(const Program& program, const Finding& finding) {
  for (const Call& call : program.calls) {
    const std::string name = std::to_string(call.group) + (call.group == 0 ? ":default_pg" : "");
    if (name != finding.group || (finding.kind != Finding::Kind::message && (call.is_message() || call.sequence != finding.sequence))) continue;
    if (finding.kind == Finding::Kind::message && (!call.is_message() || call.done() || !call.entered.contains(finding.ranks[0]))) continue;
    return std::ranges::all_of(finding.ranks, [&](int rank) {
      const bool entered = call.entered.contains(rank), member = std::ranges::find(call.ranks, rank) != call.ranks.end();
      return finding.kind == Finding::Kind::missing ? member && !entered : finding.kind == Finding::Kind::mismatch || (entered && !call.done());
    });
  }
  return false;
}

TEST(FlightJudgeOfDrawnPrograms, NamesNoRankOfACleanOne) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Draw draw(seed);
    Program program = drawn_program(draw);
    program.run();
    for (const std::size_t ring : {SIZE_MAX, std::size_t{3}, std::size_t{8}}) {
      const Judgement judgement = judge(program.records(ring));
      EXPECT_TRUE(judgement.findings.empty() && judgement.notes.empty()) << "seed " << seed << ", ring " << ring << "\n"
                                                                         << text_of(judgement);
    }
  }
}

TEST(FlightJudgeOfDrawnPrograms, NamesTheRankThatStopsAndSaysNothingUntrue) {
  int named = 0, waits = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Draw draw(seed);
    Program program = drawn_program(draw);
    const int gone = draw.below(program.world);
    program.run(gone, static_cast<std::size_t>(draw.below(static_cast<int>(program.calls.size()))));
    for (const std::size_t ring : {SIZE_MAX, std::size_t{4}}) {
      const Judgement judgement = judge(program.records(ring));
      for (const Finding& finding : judgement.findings) EXPECT_TRUE(holds(program, finding)) << "seed " << seed << ", ring " << ring << ": " << finding.sentence;
      if (ring != SIZE_MAX) continue;
      // Where others wait in a collective of a group that is known to hold it, it is named.
      bool expected = false, found = false;
      for (const Call& call : program.calls) {
        const bool member = std::ranges::find(call.ranks, gone) != call.ranks.end();
        const bool known = !program.gloo || call.group == 0 || std::ranges::any_of(program.calls, [&](const Call& other) { return other.group == call.group && other.entered.contains(gone); });
        expected |= !call.is_message() && member && known && !call.done() && !call.entered.empty();
      }
      for (const Finding& finding : judgement.findings) found |= finding.kind == Finding::Kind::missing && std::ranges::find(finding.ranks, gone) != finding.ranks.end();
      EXPECT_EQ(expected, found) << "seed " << seed << ", rank " << gone << "\n" << text_of(judgement);
      named += found, waits += expected;
    }
  }
  EXPECT_EQ(named, waits);
  EXPECT_GT(waits, 300);
}

TEST(FlightJudgeOfDrawnPrograms, NamesTheRankThatBringsAnotherSize) {
  int planted = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Draw draw(seed);
    Program program = drawn_program(draw);
    program.run();
    for (std::size_t i = 0; i < program.calls.size(); ++i) {
      const Call& call = program.calls[i];
      if ((call.op != "all_reduce" && call.op != "_reduce_scatter_base") || call.ranks.size() < 3) continue;
      const int rank = call.ranks.back();
      program.other_sizes[rank] = {i, {{77}}};
      const Judgement judgement = judge(program.records());
      ASSERT_EQ(judgement.findings.size(), 1U) << "seed " << seed << "\n" << text_of(judgement);
      EXPECT_EQ(judgement.findings[0].kind, Finding::Kind::mismatch);
      EXPECT_THAT(judgement.findings[0].ranks, ElementsAre(rank)) << "seed " << seed << "\n" << text_of(judgement);
      ++planted;
      break;
    }
  }
  EXPECT_GT(planted, 50);
}

/// Four ranks that have left one sum.
Program one_sum(bool gloo = false) {
  Program program;
  program.world = 4;
  program.gloo = gloo;
  program.groups = {{0, 1, 2, 3}, {0, 2}};
  program.calls = {{"all_reduce", 0, 0, 0, 1, {0, 1, 2, 3}}};
  return program;
}

TEST(FlightJudge, SaysWhoCountsAsAMemberWhereNoRecordSaysIt) {
  Program program = one_sum(true);
  program.calls.push_back({"all_reduce", 1, 0, 0, 1, {0, 2}});
  program.calls.push_back({"all_reduce", 1, 0, 0, 2, {0, 2}});
  program.run(2, 2);
  EXPECT_THAT(in_words(judge(program.records())), Contains(AllOf(HasSubstr("1: rank 2 has not entered all_reduce"), HasSubstr("(no record says its members; ranks 0, 2 used it)"))));
  program = one_sum(true);
  program.run(3, 0);
  EXPECT_THAT(in_words(judge(program.records())), Contains(AllOf(HasSubstr("rank 3 has not entered"), HasSubstr("counts as the group of all ranks"))));
}

TEST(FlightJudge, SaysWhichCallsTwoRanksWaitInThatAreNotEachOthers) {
  Program program = one_sum();
  program.run();
  json sender = program.dump(0), receiver = program.dump(1);
  for (auto [dump, name] : {std::pair(&sender, "nccl:send 0->1"), std::pair(&receiver, "nccl:recv 1<-2")}) {
    json call = dump->at("entries")[0];
    call.update({{"record_id", 1}, {"is_p2p", true}, {"p2p_seq_id", 1}, {"profiling_name", name}, {"state", "started"}, {"retired", false}});
    dump->at("entries").push_back(call);
  }
  Records records = program.records();
  records.read[0] = recorded_from(sender, 0);
  records.read[1] = recorded_from(receiver, 1);
  const Judgement judgement = judge(records);
  EXPECT_THAT(in_words(judgement),
              ElementsAre("0:default_pg: rank 0 has not left send 0->1 Float [5, 0]; rank 1 has no such receive pending: it has not left recv 1<-2 Float [5, 0]",
                          "0:default_pg: rank 1 has not left recv 1<-2 Float [5, 0]; rank 2 has no such send pending: it left last all_reduce (0:default_pg 1)"));
}

TEST(FlightJudge, SaysWhatWasNotLookedAt) {
  Program program = one_sum();
  program.run();
  Records records = program.records();
  records.unread.push_back({2, "flight/rank_2", "the pickle is cut short (at byte 7)"});
  records.read.erase(records.read.begin() + 2);
  EXPECT_THAT(in_words(judge(records)), ElementsAre("All 1 collectives on record agree, and the 3 ranks whose records were read have left them.",
                                                    "flight/rank_2: the pickle is cut short (at byte 7); nothing is said of rank 2"));
  records.unread.clear();
  EXPECT_THAT(in_words(judge(records)), ElementsAre(Not(HasSubstr("every rank")), "rank 2 left no record"));
  program.calls.clear();
  const Judgement nothing = judge(program.records());
  EXPECT_THAT(in_words(nothing), ElementsAre("No collective is on record: nothing was compared."));
  EXPECT_FALSE(nothing.clean());
}

TEST(FlightJudge, ComparesNoGroupWhoseMembersAreInDoubt) {
  Program program = one_sum();
  program.run(1, 0);
  Records records = program.records();
  records.read[3].members["0:default_pg"] = {0, 1, 2};
  EXPECT_THAT(in_words(judge(records)), Contains(HasSubstr("group 0:default_pg: records say different members")));
  EXPECT_TRUE(judge(records).findings.empty());
}

TEST(FlightJudge, ShowsNamesCleanAndListsShort) {
  Program program = one_sum();
  program.run(1, 0);
  Records records = program.records();
  for (Recorded& record : records.read) {
    record.members.clear();
    for (int rank = 0; rank < 1'000'000; ++rank) record.members["\x1b]0;x\x07\nbad\xe2\x80\xae"].push_back(rank);
    for (Entry& entry : record.entries) entry.group = "\x1b]0;x\x07\nbad\xe2\x80\xae", entry.op = std::string(100'000, 'x') + "\x1b[31m";
    record.world_size = 1'000'000;
  }
  for (const std::string& line : in_words(judge(records))) {
    EXPECT_LT(line.size(), 1000U);
    EXPECT_THAT(line, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\n")), Not(HasSubstr("\xe2\x80\xae"))));
  }
  EXPECT_THAT(in_words(judge(records)), Contains("ranks 4 to 999999 left no record"));
}

TEST(RanksInWords, AreShort) {
  EXPECT_EQ(ranks_in_words({3}), "rank 3");
  EXPECT_EQ(ranks_in_words({0, 1, 3, 4, 5, 7}), "ranks 0, 1, 3 to 5, 7");
  std::vector<int> even;
  for (int rank = 0; rank < 100; rank += 2) even.push_back(rank);
  EXPECT_THAT(ranks_in_words(even), HasSubstr("28, 30 and 34 more"));
}

TEST(FlightRecords, RefuseByNameWhatTheyDoNotUnderstandAndJudgeTheRest) {
  Program program = one_sum();
  program.run();
  support::Said said;
  const std::pair<const char*, void (*)(json&)> damages[] = {
      {"another version", [](json& dump) { dump["version"] = "9.9"; }},
      {"no version", [](json& dump) { dump.erase("version"); }},
      {"members cut short", [](json& dump) { dump["pg_config"]["0"]["ranks"] = "[0, 1,"; }},
      {"members that are none", [](json& dump) { dump["pg_config"]["0"]["ranks"] = "[-1]"; }},
      {"a number that is none", [](json& dump) { dump["entries"][0]["collective_seq_id"] = "x"; }},
      {"an entry that is none", [](json& dump) { dump["entries"][0] = {1, 2}; }},
      {"a group that is none", [](json& dump) { dump["entries"][0]["process_group"] = 7; }},
      {"sizes that are none", [](json& dump) { dump["entries"][0]["input_sizes"] = {{"a"}}; }},
      {"no entries", [](json& dump) { dump.erase("entries"); }},
      {"a config that is none", [](json& dump) { dump["pg_config"] = 3; }},
  };
  for (const auto& [what, damage] : damages) {
    const TempFolder folder;
    for (int rank = 0; rank < 4; ++rank) {
      json dump = program.dump(rank);
      if (rank == 2) damage(dump);
      std::ofstream(folder / ("rank_" + std::to_string(rank)), std::ios::binary) << (rank == 1 ? dump.dump() : to_pickle(dump));
    }
    said(what, replaced(text_of(judge(read_records(folder.path()))), folder.path(), "DIR"));
  }
}

}  // namespace
}  // namespace lockstep::flight
