#include "harness/verdict/trace/writer.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/base/errors.h"
#include "harness/verdict/trace/reader.h"
#include "tests/support/fake_files.h"
#include "tests/support/temp_folder.h"
#include "tests/support/trace_step.h"

namespace lockstep {
namespace {

using support::FakeFiles;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TraceHeader header_of(int rank, int world_size, TraceLevel level = TraceLevel::hash) {
  return {"0123456789abcdef", rank, world_size, "energy", level, "emulated"};
}

const std::vector<float> kValues = {1.5F, -2, 0.25F, 8, 0, 3};
const std::vector<int64_t> kShape = {2, 3};

TensorView view() { return {kValues.data(), DType::float32, kShape, {}}; }

/// Two steps with a record of each kind, whole or only hashed.
void write_steps(TraceWriter& writer) {
  for (int64_t step = 0; step < 2; ++step) {
    writer.begin_step(step);
    writer.samples(std::vector<int64_t>{1403, 7, -1});
    writer.random("dropout", 99, 432);
    writer.scalar(Phase::evaluation, "accuracy", std::nan("7"), Sharing::own);
    writer.tensor(Phase::local_gradients, "head.weight", view(), Sharing::own);
    writer.tensor(Phase::parameters, "head.weight", view(), Sharing::replicated);
    writer.tensor(Phase::scores, "energies", view(), Sharing::own, std::vector<int64_t>{5, 6}, Keep::whole);
    writer.collective({"broadcast", "", "data", "initial", 2, DType::float64, {3}, 17, 18});
    writer.collective({"barrier", "", "data", "", -1, DType::int64, {1}, 1, 2});
    writer.end_step();
  }
}

TEST(TraceWriter, CopiesWhatAReaderGivesByteForByte) {
  for (const TraceLevel level : {TraceLevel::hash, TraceLevel::stats, TraceLevel::full}) {
    for (const int rank : {0, 1}) {
      TempFolder folder;
      TraceWriter first(folder / "first", header_of(rank, 3, level));
      write_steps(first);
      first.finish();
      TraceWriter second(folder / "second", header_of(rank, 3, level));
      for (const StepRecords& step : read_trace(folder / "first").steps) second.copy(step);
      second.finish();
      EXPECT_EQ(read_text(folder / "second"), read_text(folder / "first"));
    }
  }
}

TEST(TraceWriter, WritesNothingWhileItPauses) {
  TempFolder folder;
  TraceWriter plain(folder / "plain", header_of(0, 1)), paused(folder / "paused", header_of(0, 1));
  paused.pause();
  EXPECT_FALSE(paused.enabled());
  write_steps(paused);
  paused.go_on();
  write_steps(paused);
  write_steps(plain);
  paused.finish();
  plain.finish();
  EXPECT_EQ(read_text(folder / "paused"), read_text(folder / "plain"));
}

TEST(TraceWriter, GivesBackEveryKindOfRecord) {
  TempFolder folder;
  CollectiveRecord reduce{"reduce_gradients", "mean",  "gradients", "bucket 2", -1,
                          DType::float32,     {20000}, 17,          18};
  TensorStats stats;
  {
    TraceWriter writer(folder / "t", header_of(1, 3));
    writer.begin_step(4);
    writer.samples(std::vector<int64_t>{1403, 7, -1});
    writer.random("dropout in head", 99, 432);
    writer.scalar(Phase::control, "lr", 1e-3, Sharing::replicated);
    stats = writer.tensor(Phase::local_gradients, "head.weight", view(), Sharing::own);
    writer.collective(reduce);
    writer.tensor(Phase::parameters, "head.weight", view(), Sharing::replicated);
    writer.tensor(Phase::scores, "energies", view(), Sharing::own, std::vector<int64_t>{5, 6}, Keep::whole);
    writer.end_step();
    writer.finish();
  }
  const Trace trace = read_trace(folder / "t");
  EXPECT_TRUE(trace.finished);
  EXPECT_EQ(trace.header.config_hash, "0123456789abcdef");
  EXPECT_EQ(trace.header.rank, 1);
  EXPECT_EQ(trace.valid_bytes, trace.file_bytes);
  ASSERT_EQ(trace.steps.size(), 1u);
  EXPECT_EQ(trace.steps[0].step, 4);
  const std::vector<Record>& records = trace.steps[0].records;
  ASSERT_EQ(records.size(), 7u);
  EXPECT_THAT(records[0].ids, ElementsAre(1403, 7, -1));
  EXPECT_EQ(records[1].stats.hash, 99u);
  EXPECT_EQ(records[1].value, 432);
  EXPECT_TRUE(records[2].is_scalar && records[2].replicated);
  EXPECT_EQ(records[2].value, 1e-3);
  TensorStats kept = stats;
  kept.norm = static_cast<float>(stats.norm);  // What a float32 tensor's norm is kept as.
  EXPECT_EQ(records[3].stats, kept);
  EXPECT_EQ(records[3].shape, kShape);
  EXPECT_EQ(records[4].collective, reduce);
  EXPECT_EQ(records[4].name, "reduce_gradients bucket 2");
  EXPECT_FALSE(records[5].has_stats);
  EXPECT_EQ(records[5].stats.hash, stats.hash);
  EXPECT_THAT(records[6].ids, ElementsAre(5, 6));
  ASSERT_EQ(records[6].payload.size(), kValues.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(records[6].payload.data(), kValues.data(), records[6].payload.size()), 0);
}

TEST(TraceWriter, SampleHashesOfStridedRanksAddUpToTheBatchOfOneProcess) {
  TempFolder folder;
  std::vector<int64_t> batch = {41, 2, 17, 900, 3, 5};
  uint64_t sum = 0, whole = 0;
  for (int rank = 0; rank < 3; ++rank) {
    TraceWriter writer(folder / "t", header_of(rank, 3));
    writer.begin_step(0);
    writer.samples(std::vector<int64_t>{batch[static_cast<std::size_t>(rank)],
                                        batch[static_cast<std::size_t>(rank) + 3]});
    writer.finish();
    sum += read_trace(folder / "t").steps.at(0).records.at(0).stats.hash;
  }
  TraceWriter writer(folder / "t", header_of(0, 1));
  writer.begin_step(0);
  writer.samples(batch);
  writer.finish();
  whole = read_trace(folder / "t").steps.at(0).records.at(0).stats.hash;
  EXPECT_EQ(sum, whole);
}

TEST(TraceWriter, AtLevelOffMakesNoFile) {
  TempFolder folder;
  TraceWriter writer(folder / "t", header_of(0, 1, TraceLevel::off));
  EXPECT_FALSE(writer.enabled());
  EXPECT_EQ(writer.level(), TraceLevel::off);
  writer.begin_step(0);
  EXPECT_EQ(writer.tensor(Phase::loss, "x", view(), Sharing::own, {}, Keep::whole), TensorStats{});
  writer.end_step();
  writer.finish();
  EXPECT_FALSE(std::filesystem::exists(folder / "t"));
}

TEST(TraceWriter, LevelsDecideWhatIsKept) {
  TempFolder folder;
  for (TraceLevel level : {TraceLevel::hash, TraceLevel::stats, TraceLevel::full}) {
    for (int rank : {0, 1}) {
      TraceWriter writer(folder / "t", header_of(rank, 2, level));
      writer.begin_step(0);
      writer.tensor(Phase::local_gradients, "own", view(), Sharing::own);
      writer.tensor(Phase::parameters, "shared", view(), Sharing::replicated);
      writer.tensor(Phase::snapshot, "kept", view(), Sharing::replicated, {}, Keep::whole);
      writer.finish();
      const Trace trace = read_trace(folder / "t");
      const std::vector<Record>& records = trace.steps.at(0).records;
      EXPECT_TRUE(records[0].has_stats);
      EXPECT_EQ(records[1].has_stats, rank == 0 || level != TraceLevel::hash);
      EXPECT_EQ(records[0].payload.empty(), level != TraceLevel::full);
      EXPECT_EQ(records[1].payload.empty(), level != TraceLevel::full);
      EXPECT_EQ(records[2].payload.empty(), rank != 0 && level != TraceLevel::full);
    }
  }
}

TEST(TraceWriter, AnExceptionLeavesTheStepAsFarAsItGot) {
  TempFolder folder;
  try {
    TraceWriter writer(folder / "t", header_of(0, 1));
    writer.begin_step(0);
    writer.scalar(Phase::control, "lr", 1, Sharing::replicated);
    writer.end_step();
    writer.begin_step(1);
    writer.scalar(Phase::control, "lr", 2, Sharing::replicated);
    throw std::runtime_error("a rank threw");
  } catch (const std::runtime_error&) {
  }
  const Trace trace = read_trace(folder / "t");
  EXPECT_FALSE(trace.finished);
  EXPECT_EQ(trace.steps.size(), 1u);
  ASSERT_TRUE(trace.partial.has_value());
  EXPECT_EQ(trace.partial->records.at(0).value, 2);
  EXPECT_EQ(trace.end, "ends inside step 1, which was left after 1 records (the last: control, lr)");
}

TEST(TraceWriter, NamesTheFileThatCannotBeWritten) {
  TempFolder folder;
  try {
    TraceWriter writer(folder / "missing/t", header_of(0, 1));
    FAIL() << "no error";
  } catch (const MachineError& error) {
    EXPECT_THAT(error.what(), HasSubstr("missing/t"));
  }
}

TEST(TraceWriter, NamesTheFileWhenTheDiskIsFull) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  try {
    TraceWriter writer("/dev/full", header_of(0, 1));
    FAIL() << "no error";
  } catch (const MachineError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/dev/full: cannot write the trace: No space left on device"));
  }
}

/// Writes that step, of one record.
void write_step(TraceWriter& writer, int64_t step) {
  writer.begin_step(step);
  writer.scalar(Phase::control, "lr", 1e-3, Sharing::replicated);
  writer.end_step();
}

TEST(TraceWriter, WritesAStepAtOnceAndSyncsNone) {
  TempFolder folder;
  FakeFiles files;
  TraceWriter writer(folder / "t", header_of(0, 1), files);
  write_step(writer, 0);
  write_step(writer, 1);
  writer.finish();
  EXPECT_THAT(files.operations, ElementsAre("replace t", HasSubstr("write "), HasSubstr("write "),
                                            HasSubstr("write "), HasSubstr("write "), "close t"));
}

TEST(TraceWriter, SaysWhichOperationFailedOnWhichFileAndWhy) {
  // Creating it, its header, a step, the end mark, closing it.
  const std::pair<std::size_t, const char*> wanted[] = {
      {0, "create"}, {1, "write"}, {2, "write"}, {3, "write"}, {4, "close"}};
  for (const auto& [at, doing] : wanted) {
    for (const int error : {ENOSPC, EIO}) {
      TempFolder folder;
      FakeFiles files;
      files.fail(at, error);
      try {
        TraceWriter writer(folder / "t", header_of(0, 1), files);
        write_step(writer, 0);
        writer.finish();
        ADD_FAILURE() << "no error from operation " << at;
      } catch (const MachineError& problem) {
        const std::string why = std::strerror(error);
        EXPECT_EQ(problem.what(), (folder / "t") + ": cannot " + doing + " the trace: " + why);
      }
      const bool is_open = at > 0;
      EXPECT_EQ(std::ranges::count(files.operations, "close t"), is_open ? 1 : 0) << at;
    }
  }
}

TEST(TraceWriter, GoesOnBehindShortAndInterruptedWrites) {
  TempFolder folder;
  FakeFiles files;
  files.most_bytes = 7;
  files.fail(3, EINTR, 2);
  TraceWriter writer(folder / "t", header_of(0, 1), files);
  write_step(writer, 0);
  writer.finish();
  TraceWriter whole(folder / "whole", header_of(0, 1));
  write_step(whole, 0);
  whole.finish();
  EXPECT_EQ(read_text(folder / "t"), read_text(folder / "whole"));
}

TEST(TraceWriter, AddsNothingToATraceThatCouldNotBeWritten) {
  TempFolder folder;
  FakeFiles files;
  files.fail(2, ENOSPC);
  {
    TraceWriter writer(folder / "t", header_of(0, 1), files);
    EXPECT_THROW(write_step(writer, 0), MachineError);
  }
  EXPECT_THAT(files.operations,
              ElementsAre("replace t", HasSubstr("write "), HasSubstr("write "), "close t"));
}

TEST(TraceWriter, WhatWasWrittenBeforeTheDiskFilledStaysReadable) {
  TempFolder folder;
  // A limit on file size fails a write as a full disk does, after some bytes went through.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small{3000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  bool failed = false;
  {
    TraceWriter writer(folder / "t", header_of(0, 1));
    try {
      for (int64_t step = 0; step < 1000; ++step) {
        writer.begin_step(step);
        writer.tensor(Phase::local_gradients, "own", view(), Sharing::own, {}, Keep::whole);
        writer.end_step();
      }
    } catch (const MachineError& error) {
      failed = true;
      EXPECT_THAT(error.what(), HasSubstr(folder / "t"));
    }
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_TRUE(failed);
  const Trace trace = read_trace(folder / "t");
  EXPECT_FALSE(trace.finished);
  EXPECT_GT(trace.steps.size(), 10u);
  EXPECT_THAT(trace.end, HasSubstr("cut short in the record after step"));
}

TEST(TraceWriter, EightRanksOfSixHundredStepsFitInFiveMegabytes) {
  TempFolder folder;
  uint64_t bytes = 0;
  for (int rank = 0; rank < 8; ++rank) {
    support::StepWriter step(folder / "t", header_of(rank, 8));
    for (int64_t i = 0; i < 600; ++i) step.write(i);
    step.finish();
    bytes += std::filesystem::file_size(folder / "t");
    EXPECT_TRUE(read_trace(folder / "t").finished);
  }
  RecordProperty("bytes", std::to_string(bytes));
  EXPECT_LE(bytes, 5'000'000u);
  EXPECT_GE(bytes, 2'000'000u) << "less than the hashes alone: the test does not write what it says";
}

TEST(TraceWriter, WritesALargeStepInPartsThatReadAsOne) {
  TempFolder folder;
  const auto write = [&](const std::string& path, std::size_t part_bytes) {
    TraceWriter writer(path, header_of(0, 1, TraceLevel::full), real_files(), part_bytes);
    for (const int64_t step : {0, 1, 2}) {
      writer.begin_step(step);
      writer.samples(std::vector<int64_t>{step, 7});
      for (const char* name : {"a", "b", "c"}) writer.tensor(Phase::local_gradients, name, view(), Sharing::own);
      for (const char* name : {"a", "b", "c"}) writer.tensor(Phase::reduced_gradients, name, view(), Sharing::replicated);
      writer.end_step();
    }
    writer.finish();
  };
  write(folder / "whole", kMostPartBytes);
  write(folder / "parts", 40);
  EXPECT_GT(std::filesystem::file_size(folder / "parts"), std::filesystem::file_size(folder / "whole"));
  const Trace whole = read_trace(folder / "whole"), parts = read_trace(folder / "parts");
  EXPECT_TRUE(parts.finished);
  ASSERT_EQ(parts.steps.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(parts.steps[i].step, whole.steps[i].step);
    ASSERT_EQ(parts.steps[i].records.size(), whole.steps[i].records.size());
    for (std::size_t k = 0; k < whole.steps[i].records.size(); ++k) {
      const Record &a = whole.steps[i].records[k], &b = parts.steps[i].records[k];
      EXPECT_TRUE(a.phase == b.phase && a.name == b.name && a.stats == b.stats && a.payload == b.payload && a.ids == b.ids);
    }
  }
  TraceReader norms(folder / "parts"), of_whole(folder / "whole");
  while (const auto expected = of_whole.next_gradient_norms()) {
    const auto found = norms.next_gradient_norms();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->ids, expected->ids);
    EXPECT_EQ(found->local_squared, expected->local_squared);
    EXPECT_EQ(found->reduced_squared, expected->reduced_squared);
    EXPECT_TRUE(found->has_local && found->has_reduced);
  }
}

TEST(TraceWriter, WritesAsManyPartsAsAStepHasRecords) {
  TempFolder folder;
  {
    TraceWriter writer(folder / "t", header_of(0, 1), real_files(), 1);
    writer.begin_step(0);
    for (int i = 0; i < 50'000; ++i) writer.scalar(Phase::control, "rate", i, Sharing::own);
    writer.end_step();
    writer.finish();
  }
  const Trace trace = read_trace(folder / "t");
  ASSERT_TRUE(trace.finished);
  ASSERT_EQ(trace.steps.at(0).records.size(), 50'000u);
  EXPECT_EQ(trace.steps[0].records.back().value, 49'999);
}

TEST(TraceWriter, LeavesThePartsOfAStepThatThrew) {
  TempFolder folder;
  {
    TraceWriter writer(folder / "t", header_of(0, 1, TraceLevel::full), real_files(), 40);
    writer.begin_step(5);
    for (const char* name : {"a", "b", "c"}) writer.tensor(Phase::local_gradients, name, view(), Sharing::own);
  }
  const Trace trace = read_trace(folder / "t");
  EXPECT_FALSE(trace.finished);
  ASSERT_TRUE(trace.partial);
  EXPECT_EQ(trace.partial->records.size(), 3u);
}

}  // namespace
}  // namespace lockstep
