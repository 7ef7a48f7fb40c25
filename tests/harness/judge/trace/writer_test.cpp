#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/judge/trace/reader.h"
#include "harness/judge/trace/record.h"
#include "harness/judge/trace/writer.h"
#include "tests/support/fake_files.h"
#include "tests/support/said.h"
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

/// What a reader gives of what `write` writes.
Trace trace_of(const TraceHeader& header, const std::function<void(TraceWriter&)>& write,
               std::size_t part_bytes = kMostPartBytes) {
  const TempFolder folder;
  TraceWriter writer(folder / "t", header, real_files(), part_bytes);
  write(writer);
  writer.finish();
  return read_trace(folder / "t");
}

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
    const Placement rows{true, {5, 3}, {2, 0}}, replicated{false, {2, 3}, {0, 0}};
    writer.tensor(Phase::gradient_parts, "micro 0/w",
                  {kValues.data(), DType::float32, kShape, {}, kValues.data(), &rows}, Sharing::own);
    writer.tensor(Phase::parameters, "w",
                  {kValues.data(), DType::float32, kShape, {}, nullptr, &replicated}, Sharing::replicated);
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
  CollectiveRecord reduce{"reduce_gradients", "mean",  "gradients", "bucket 2", -1,
                          DType::float32,     {20000}, 17,          18};
  TensorStats stats;
  const Trace trace = trace_of(header_of(1, 3), [&](TraceWriter& writer) {
    writer.begin_step(4);
    writer.samples(std::vector<int64_t>{1403, 7, -1});
    writer.random("dropout in head", 99, 432);
    writer.scalar(Phase::control, "lr", 1e-3, Sharing::replicated);
    stats = writer.tensor(Phase::local_gradients, "head.weight", view(), Sharing::own);
    writer.collective(reduce);
    writer.tensor(Phase::parameters, "head.weight", view(), Sharing::replicated);
    writer.tensor(Phase::scores, "energies", view(), Sharing::own, std::vector<int64_t>{5, 6}, Keep::whole);
    writer.end_step();
  });
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
  const auto hash_of = [](int rank, int world_size, const std::vector<int64_t>& ids) {
    const Trace trace = trace_of(header_of(rank, world_size), [&](TraceWriter& writer) {
      writer.begin_step(0);
      writer.samples(ids);
    });
    return trace.steps.at(0).records.at(0).stats.hash;
  };
  EXPECT_EQ(hash_of(0, 3, {41, 900}) + hash_of(1, 3, {2, 3}) + hash_of(2, 3, {17, 5}),
            hash_of(0, 1, {41, 2, 17, 900, 3, 5}));
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
  for (TraceLevel level : {TraceLevel::hash, TraceLevel::stats, TraceLevel::full}) {
    for (int rank : {0, 1}) {
      const Trace trace = trace_of(header_of(rank, 2, level), [](TraceWriter& writer) {
        writer.begin_step(0);
        writer.tensor(Phase::local_gradients, "own", view(), Sharing::own);
        writer.tensor(Phase::parameters, "shared", view(), Sharing::replicated);
        writer.tensor(Phase::snapshot, "kept", view(), Sharing::replicated, {}, Keep::whole);
      });
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
  const auto problem = [](const std::string& path) {
    return support::thrown_by([&] { TraceWriter writer(path, header_of(0, 1)); });
  };
  EXPECT_THAT(problem(folder / "missing/t"), HasSubstr("missing/t"));
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  EXPECT_THAT(problem("/dev/full"), HasSubstr("/dev/full: cannot write the trace: No space left on device"));
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
      const auto write = [&] {
        TraceWriter writer(folder / "t", header_of(0, 1), files);
        write_step(writer, 0);
        writer.finish();
      };
      EXPECT_EQ(support::thrown_by(write), (folder / "t") + ": cannot " + doing + " the trace: " + std::strerror(error))
          << at;
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
  const auto write = [](TraceWriter& writer) {
    for (const int64_t step : {0, 1, 2}) {
      writer.begin_step(step);
      writer.samples(std::vector<int64_t>{step, 7});
      for (const char* name : {"a", "b", "c"}) writer.tensor(Phase::local_gradients, name, view(), Sharing::own);
      for (const char* name : {"a", "b", "c"}) writer.tensor(Phase::reduced_gradients, name, view(), Sharing::replicated);
      writer.end_step();
    }
  };
  const TraceHeader header = header_of(0, 1, TraceLevel::full);
  const Trace whole = trace_of(header, write), parts = trace_of(header, write, 40);
  EXPECT_GT(parts.file_bytes, whole.file_bytes);
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
}

TEST(TraceWriter, WritesAsManyPartsAsAStepHasRecords) {
  const auto write = [](TraceWriter& writer) {
    writer.begin_step(0);
    for (int i = 0; i < 50'000; ++i) writer.scalar(Phase::control, "rate", i, Sharing::own);
    writer.end_step();
  };
  const Trace trace = trace_of(header_of(0, 1), write, 1);
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

std::vector<float> random_floats(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

TensorStats stats_of(const std::vector<float>& values) {
  const std::vector<int64_t> shape = {std::ssize(values)};
  return tensor_stats({values.data(), DType::float32, shape, {}});
}

// The hash and the statistics again, in the plainest way and from the description alone.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

struct PlainKeys {
  std::vector<uint64_t> mask, key;
  PlainKeys() {
    uint64_t state = 0x6c6f636b73746570ULL;
    auto next = [&] {
      uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
      return z ^ (z >> 31);
    };
    for (int i = 0; i < 1024; ++i) {
      mask.push_back(next() >> 32);
      key.push_back(next() | 1);
    }
  }
};

TensorStats plain_stats(const std::vector<float>& values) {
  static const PlainKeys keys;
  TensorStats stats;
  double lanes[16] = {};
  bool any = false;
  const uint64_t tensor_key = mix(mix(0 + 0x7472616365ULL) + values.size() + 0x9e3779b97f4a7c15ULL);
  for (std::size_t start = 0; start < values.size(); start += 1024) {
    uint64_t sum = 0;
    for (std::size_t i = 0; i < 1024 && start + i < values.size(); ++i) {
      const float value = values[start + i];
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      sum += (bits ^ keys.mask[i]) * keys.key[i];
      if (!std::isfinite(value)) {
        ++stats.nonfinite;
        continue;
      }
      lanes[i % 16] += static_cast<double>(value) * value;
      stats.min = any ? std::min<double>(stats.min, value) : value;
      stats.max = any ? std::max<double>(stats.max, value) : value;
      any = true;
    }
    stats.hash += mix(sum + mix(tensor_key) + start / 1024 * 0x9e3779b97f4a7c15ULL);
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  stats.norm = std::sqrt(lanes[0]);
  return stats;
}

TEST(TensorStats, AgreesWithThePlainDescriptionAtEveryLength) {
  for (std::size_t count : {1, 2, 3, 7, 15, 16, 17, 31, 100, 1023, 1024, 1025, 2048, 5000}) {
    const std::vector<float> values = random_floats(count, static_cast<unsigned>(count));
    EXPECT_EQ(stats_of(values), plain_stats(values)) << count;
  }
}

TEST(TensorStats, AgreesWithThePlainDescriptionWhereValuesAreNotFinite) {
  std::vector<float> values = random_floats(3000, 3);
  values[5] = std::numeric_limits<float>::infinity();
  values[2047] = -std::numeric_limits<float>::infinity();
  values[2999] = std::numeric_limits<float>::quiet_NaN();
  values[3] = std::copysign(std::numeric_limits<float>::quiet_NaN(), -1.0F);
  const TensorStats stats = stats_of(values);
  EXPECT_EQ(stats, plain_stats(values));
  EXPECT_EQ(stats.nonfinite, 4u);
  EXPECT_TRUE(std::isfinite(stats.norm));
}

TEST(TensorStats, HasTheSameBitsOnEveryInstructionSet) {
  if (!detail::has_avx2()) GTEST_SKIP() << "this processor has no AVX2";
  std::vector<float> values = random_floats(20011, 4);
  for (int round = 0; round < 2; ++round) {
    for (DType dtype : {DType::float32, DType::float64, DType::int64, DType::bfloat16, DType::boolean, DType::float16,
                        DType::int32}) {
      const std::vector<int64_t> shape = {7, static_cast<int64_t>(20011 * 4 / 7 / size_of(dtype))};
      const std::vector<int64_t> positions = {3, 11, 19, 2, 0, 40, 41};
      for (bool by_rows : {false, true}) {
        const TensorView view{values.data(), dtype, shape,
                              by_rows ? std::span<const int64_t>(positions) : std::span<const int64_t>()};
        const TensorStats portable = detail::tensor_stats_portable(view),
                          avx2 = detail::tensor_stats_avx2(view);
        EXPECT_EQ(portable.hash, avx2.hash);
        EXPECT_EQ(portable.hash, tensor_hash(view));
        EXPECT_EQ(std::memcmp(&portable.norm, &avx2.norm, sizeof(double)), 0) << name_of(dtype);
        EXPECT_EQ(std::memcmp(&portable.min, &avx2.min, sizeof(double)), 0);
        EXPECT_EQ(std::memcmp(&portable.max, &avx2.max, sizeof(double)), 0);
        EXPECT_EQ(portable.nonfinite, avx2.nonfinite);
      }
    }
    values[77] = std::numeric_limits<float>::quiet_NaN();
  }
}

TEST(TensorStats, EverySingleBitChangesTheHash) {
  std::vector<float> values = random_floats(1100, 5);
  std::set<uint64_t> seen = {stats_of(values).hash};
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (int bit = 0; bit < 32; ++bit) {
      const float kept = values[i];
      uint32_t bits = 0;
      std::memcpy(&bits, &kept, sizeof bits);
      bits ^= 1u << bit;
      std::memcpy(&values[i], &bits, sizeof bits);
      EXPECT_TRUE(seen.insert(stats_of(values).hash).second) << i << " " << bit;
      values[i] = kept;
    }
  }
}

TEST(TensorStats, SeesOrderPositionShapeAndType) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const std::vector<float> swapped = {1, 3, 2, 4, 5, 6};
  const std::vector<float> zeros(6, 0.0F);
  EXPECT_NE(stats_of(values).hash, stats_of(swapped).hash);
  const std::vector<int64_t> flat = {6}, tall = {3, 2}, wide = {2, 3}, one = {1}, two = {2};
  const uint64_t a = tensor_stats({values.data(), DType::float32, flat, {}}).hash;
  const uint64_t b = tensor_stats({values.data(), DType::float32, tall, {}}).hash;
  const uint64_t c = tensor_stats({values.data(), DType::float32, wide, {}}).hash;
  EXPECT_EQ((std::set<uint64_t>{a, b, c}).size(), 3u);
  std::set<uint64_t> of_zero;
  for (DType dtype : {DType::float32, DType::float64, DType::int64, DType::bfloat16, DType::boolean, DType::float16,
                        DType::int32}) {
    of_zero.insert(tensor_stats({zeros.data(), dtype, one, {}}).hash);
  }
  EXPECT_EQ(of_zero.size(), 7u);
  EXPECT_NE(tensor_stats({zeros.data(), DType::float32, one, {}}).hash,
            tensor_stats({zeros.data(), DType::float32, two, {}}).hash);
}

TEST(TensorStats, HashesOfRowShardsAddUpToTheWhole) {
  const int64_t rows = 24, columns = 1500;
  const std::vector<float> values = random_floats(rows * columns, 6);
  std::vector<int64_t> all(rows);
  for (int64_t i = 0; i < rows; ++i) all[static_cast<std::size_t>(i)] = i;
  const std::vector<int64_t> whole_shape = {rows, columns};
  const uint64_t whole = tensor_stats({values.data(), DType::float32, whole_shape, all}).hash;
  uint64_t sum = 0, misplaced = 0;
  for (int64_t rank = 0; rank < 8; ++rank) {
    std::vector<float> shard;
    std::vector<int64_t> positions, wrong;
    for (int64_t k = 0; k < 3; ++k) {
      const int64_t row = k * 8 + rank;
      shard.insert(shard.end(), values.begin() + row * columns, values.begin() + (row + 1) * columns);
      positions.push_back(row);
      wrong.push_back(rank * 3 + k);
    }
    const std::vector<int64_t> shape = {3, columns};
    sum += tensor_stats({shard.data(), DType::float32, shape, positions}).hash;
    misplaced += tensor_stats({shard.data(), DType::float32, shape, wrong}).hash;
  }
  EXPECT_EQ(sum, whole);
  EXPECT_NE(misplaced, whole);
}

TEST(TensorStats, KnowsNormAndExtremesOfEveryType) {
  const std::vector<int64_t> shape = {3};
  const std::vector<double> doubles = {3e200, -4e200, 0};
  const TensorStats large = tensor_stats({doubles.data(), DType::float64, shape, {}});
  EXPECT_DOUBLE_EQ(large.norm, 5e200);
  EXPECT_EQ(large.min, -4e200);
  const std::vector<int64_t> integers = {-3, 4, 0};
  const TensorStats whole = tensor_stats({integers.data(), DType::int64, shape, {}});
  EXPECT_EQ(whole.norm, 5);
  EXPECT_EQ(whole.max, 4);
  const std::vector<uint16_t> brains = {0x4040, 0xc080, 0x7f80};  // 3, -4, infinity
  const TensorStats half = tensor_stats({brains.data(), DType::bfloat16, shape, {}});
  EXPECT_EQ(half.norm, 5);
  EXPECT_EQ(half.nonfinite, 1u);
  const std::vector<uint8_t> flags = {1, 0, 1};
  EXPECT_EQ(tensor_stats({flags.data(), DType::boolean, shape, {}}).norm, std::sqrt(2.0));
}

TEST(TensorStats, OfNothingOrNoFiniteValueIsZero) {
  const std::vector<int64_t> empty = {0, 4}, scalar = {};
  EXPECT_EQ(tensor_stats({nullptr, DType::float32, empty, {}}), TensorStats{});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const TensorStats stats = tensor_stats({&nan, DType::float32, scalar, {}});
  EXPECT_EQ(stats.nonfinite, 1u);
  EXPECT_EQ(stats.norm, 0);
  EXPECT_EQ(stats.min, 0);
}

RankResult sample_result() {
  RankResult result;
  result.rank = 2;
  result.world_size = 8;
  result.config_hash = "c0ffee";
  result.data_hash = "da7a";
  result.status = "failed";
  result.error = "a \"quoted\" error\n\xff";
  result.phase = "train";
  result.steps_done = 17;
  result.train_seconds = 1.25;
  result.faults_acted = {"second_mutant"};
  result.transport = "nccl";
  result.certified_by = "band";
  result.metrics = {{"accuracy_24", 0.1 + 0.2},
                    {"nan", std::numeric_limits<double>::quiet_NaN()},
                    {"low", -std::numeric_limits<double>::infinity()}};
  result.curves["loss"] = {{0, 1, 2}, {3.178, std::numeric_limits<double>::infinity(), 1e-300}};
  return result;
}

TEST(RankResult, ComesBackBitForBitAndHasNoNullForWhatJsonCannotSay) {
  TempFolder folder;
  support::Said said;
  RankResult result = sample_result();
  for (const char* name : {"plain", "with checkpoints"}) {
    write_rank_result(folder / "r", result);
    const RankResult back = read_rank_result(folder / "r");
    write_rank_result(folder / "again", back);
    EXPECT_EQ(read_text(folder / "again"), read_text(folder / "r"));
    const auto document = nlohmann::json::parse(read_text(folder / "r"));
    said(name, document.value("checkpoints", document).dump(1));
    for (const auto& [metric, value] : result.metrics)
      EXPECT_EQ(std::bit_cast<uint64_t>(back.metrics.at(metric)), std::bit_cast<uint64_t>(value)) << metric;
    EXPECT_EQ(back.curves.at("loss").values, result.curves.at("loss").values);
    EXPECT_EQ(back.checkpoints.any(), std::string(name) != "plain");
    result.checkpoints = {{10, 20}, 0.5, {"epoch_0_step_30 was not saved"}, 10, "epoch_0_step_10", {"latest is behind"},
                          15,       0.25};
  }
}

TEST(RankResult, RefusesWhatIsNoneAndEveryChangedDigitByName) {
  TempFolder folder;
  support::Said said(folder.path());
  const auto read = [&](const std::string& what, const std::string& text) {
    write_text(folder / "r", text);
    said(what, support::thrown_by([&] { read_rank_result(folder / "r"); }));
  };
  said("none", support::thrown_by([&] { read_rank_result(folder / "none"); }));
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  said("a FIFO", support::thrown_by([&] { read_rank_result(folder / "fifo"); }));
  for (const char* text : {R"({"schema_version": 1, "rank": )", R"({"schema_version": 7})", R"({"schema_version": 1})"})
    read(text, text);
  read("nested", std::string(100000, '[') + std::string(100000, ']'));
  write_rank_result(folder / "r", sample_result());
  const std::string text = read_text(folder / "r");
  nlohmann::json json = nlohmann::json::parse(text);
  json["metrics"]["accuracy_24"]["bits"] = "3fd333333333333x";
  seal(json);
  read("bits that are none", json.dump());
  for (const std::string digits : {"3fd3333333333334", "17", "1.25", "1e-300", "c0ffee"}) {
    std::string damaged = text;
    damaged.at(text.find(digits)) = digits[0] == '3' ? '2' : '9';
    read("changed " + digits, damaged);
  }
  json.erase("checksum");
  read("no checksum", json.dump());
}
TEST(RankResult, SaysWhyItCannotBeWritten) {
  TempFolder folder;
  support::FakeFiles files;
  files.fail(1, ENOSPC);
  EXPECT_EQ(support::thrown_by([&] { write_rank_result(folder / "r", sample_result(), files); }),
            (folder / "r") + ": cannot write: No space left on device");
}

}  // namespace
}  // namespace lockstep
