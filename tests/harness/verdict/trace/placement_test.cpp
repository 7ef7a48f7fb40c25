// Placements of parts and dot products of parts of gradients, as the writer puts them and the reader gives them back.

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include "harness/verdict/trace/format.h"
#include "harness/verdict/trace/reader.h"
#include "harness/verdict/trace/trace_error.h"
#include "harness/verdict/trace/writer.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

const std::vector<float> kValues{1.5F, -2, 0.25F, 8, 0, 3}, kGradient{1, 2, 3, 4, 5, 6};
const std::vector<int64_t> kShape{2, 3};

TraceHeader header_of(TraceLevel level) { return {"hash", 1, 3, "theirs", level, "other"}; }

/// What a reader gives of one step.
std::vector<Record> written(TraceLevel level, const std::function<void(TraceWriter&)>& write) {
  TempFolder folder;
  TraceWriter writer(folder / "t", header_of(level));
  writer.begin_step(0);
  write(writer);
  writer.end_step();
  writer.finish();
  return read_trace(folder / "t").steps.at(0).records;
}

TensorView placed(const Placement& placement) { return {kValues.data(), DType::float32, kShape, {}, nullptr, &placement}; }

TEST(Placements, ComeBackAsTheyWereWritten) {
  const Placement rows{true, {5, 3}, {2, 0}}, columns{true, {2, 8}, {0, 4}}, replicated{false, {2, 3}, {0, 0}};
  const auto records = written(TraceLevel::hash, [&](TraceWriter& writer) {
    for (const auto& [name, placement] : {std::pair("rows", &rows), {"columns", &columns}, {"replicated", &replicated}})
      writer.tensor(Phase::parameters, name, placed(*placement), Sharing::own);
    writer.tensor(Phase::parameters, "unplaced", {kValues.data(), DType::float32, kShape, {}}, Sharing::own);
  });
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(*records[0].placement, rows);
  EXPECT_EQ(*records[1].placement, columns);
  EXPECT_EQ(*records[2].placement, replicated);
  EXPECT_EQ(records[3].placement, nullptr);
  EXPECT_EQ(records[0].hashed, Hashed::rows);
  EXPECT_EQ(records[3].hashed, Hashed::whole);
}

TEST(Placements, GiveRowsTheirPositionsInTheWhole) {
  const Placement at_2{true, {5, 3}, {2, 0}}, at_0{true, {5, 3}, {0, 0}};
  const std::vector<int64_t> positions{2, 3};
  const auto records = written(TraceLevel::hash, [&](TraceWriter& writer) {
    writer.tensor(Phase::parameters, "a", placed(at_2), Sharing::own);
    writer.tensor(Phase::parameters, "b", placed(at_0), Sharing::own);
  });
  EXPECT_EQ(records[0].stats.hash, tensor_hash({kValues.data(), DType::float32, kShape, positions}));
  EXPECT_NE(records[1].stats.hash, records[0].stats.hash);
}

TEST(Placements, OfATensorWithoutDimensionsAreEmpty) {
  const Placement none{false, {}, {}};
  const auto records = written(TraceLevel::full, [&](TraceWriter& writer) {
    writer.tensor(Phase::parameters, "scale", {kValues.data(), DType::float32, {}, {}, nullptr, &none}, Sharing::own);
  });
  ASSERT_TRUE(records[0].placement);
  EXPECT_TRUE(records[0].placement->whole.empty());
  EXPECT_EQ(records[0].hashed, Hashed::whole);
}

TEST(Placements, AnEmptyPartIsAPart) {
  const Placement behind{true, {5, 3}, {5, 0}};
  const std::vector<int64_t> none{0, 3};
  const auto records = written(TraceLevel::full, [&](TraceWriter& writer) {
    writer.tensor(Phase::parameters, "w", {kValues.data(), DType::float32, none, {}, nullptr, &behind}, Sharing::own);
  });
  EXPECT_EQ(*records[0].placement, behind);
  EXPECT_EQ(records[0].stats.hash, 0u);
}

TEST(DotProducts, AreThoseWithTheLocalGradient) {
  const auto records = written(TraceLevel::hash, [&](TraceWriter& writer) {
    writer.tensor(Phase::gradient_parts, "micro 0/w", {kValues.data(), DType::float32, kShape, {}, kGradient.data()}, Sharing::own);
    writer.tensor(Phase::gradient_parts, "micro 1/w", {kValues.data(), DType::float32, kShape, {}}, Sharing::own);
  });
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].dot, 1.5 - 4 + 0.75 + 32 + 0 + 18);
  EXPECT_TRUE(std::isnan(records[1].dot)) << "none was kept";
}

TEST(DotProducts, StandBesidePlacementsIdsAndValues) {
  const Placement rows{true, {5, 3}, {2, 0}};
  const std::vector<int64_t> ids{7, 8};
  const auto records = written(TraceLevel::full, [&](TraceWriter& writer) {
    TensorView view = placed(rows);
    view.dot_with = kGradient.data();
    writer.tensor(Phase::gradient_parts, "loss balance/w", view, Sharing::own, ids);
    writer.scalar(Phase::loss, "loss", 2.5, Sharing::own);
  });
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(*records[0].placement, rows);
  EXPECT_EQ(records[0].dot, 48.25);
  EXPECT_EQ(records[0].ids, ids);
  EXPECT_EQ(records[0].payload.size(), kValues.size() * sizeof(float));
  EXPECT_EQ(records[1].value, 2.5) << "what follows stands where it belongs";
}

TEST(Placements, AndDotProductsAreCopiedByteForByte) {
  TempFolder folder;
  const Placement rows{true, {5, 3}, {2, 0}}, replicated{false, {2, 3}, {0, 0}};
  for (const TraceLevel level : {TraceLevel::hash, TraceLevel::stats, TraceLevel::full}) {
    TraceWriter first(folder / "first", header_of(level)), second(folder / "second", header_of(level));
    for (int64_t step = 0; step < 2; ++step) {
      first.begin_step(step);
      TensorView view = placed(rows);
      view.dot_with = kGradient.data();
      first.tensor(Phase::gradient_parts, "micro 0/w", view, Sharing::own);
      first.tensor(Phase::parameters, "w", placed(replicated), Sharing::replicated);
      first.end_step();
    }
    first.finish();
    for (const StepRecords& step : read_trace(folder / "first").steps) second.copy(step);
    second.finish();
    EXPECT_EQ(read_text(folder / "second"), read_text(folder / "first"));
  }
}

// --- what no writer of ours makes ---

std::string framed(FrameType type, const std::string& payload) {
  std::string out;
  ByteSink sink(out);
  sink.raw(frame_head(static_cast<uint32_t>(payload.size()), type));
  sink.bytes(payload.data(), payload.size());
  sink.raw(static_cast<uint64_t>(XXH3_64bits(out.data(), out.size())));
  return out;
}

std::string error_of(const std::string& definition) {
  std::string bytes(kTraceMagic, sizeof kTraceMagic), step;
  ByteSink(bytes).raw(kTraceVersion);
  bytes += framed(FrameType::header, header_to_json(header_of(TraceLevel::hash)));
  ByteSink out(step);
  out.varint(0), out.varint(0), out.varint(1), out.varint(0), out.text(definition), out.raw(uint64_t{1});
  bytes += framed(FrameType::step, step);
  try {
    read_trace_bytes(std::as_bytes(std::span(bytes.data(), bytes.size())), "mem");
  } catch (const TraceError& error) {
    return error.what();
  }
  return "no error";
}

std::string definition_of(const Placement& placement, const std::vector<int64_t>& shape = kShape) {
  std::string definition;
  ByteSink sink(definition);
  Definition what;
  what.kind = RecordKind::tensor;
  what.phase = Phase::parameters;
  what.name = "w";
  what.shape = shape;
  what.placement = &placement;
  append_definition(sink, what);
  return definition;
}

TEST(Placements, ThatAreImpossibleAreRefused) {
  EXPECT_EQ(error_of(definition_of({true, {5, 3}, {3, 0}})), "no error") << "the last rows";
  const int64_t huge = int64_t{1} << 62;
  for (const Placement& wrong : {Placement{true, {5, 3}, {4, 0}}, {true, {1, 3}, {0, 0}}, {true, {5, 3}, {-1, 0}}, {true, {5, 3}, {6, 0}}, {true, {5, 2}, {0, 0}},
                                 {true, {huge, 3}, {huge, 0}}}) {
    EXPECT_THAT(error_of(definition_of(wrong)), HasSubstr("a part that does not lie inside its tensor")) << wrong.whole[0] << " " << wrong.offset[0];
  }
  EXPECT_THAT(error_of(definition_of({true, {huge, 8}, {0, 0}})), HasSubstr("impossible shape"));
  EXPECT_THAT(error_of(definition_of({false, {4, 3}, {0, 0}})), HasSubstr("does not lie inside")) << "what is replicated is whole";
}

TEST(Placements, OfAnUnknownKindAreRefused) {
  std::string definition = definition_of({true, {5, 3}, {2, 0}});
  const std::size_t kind = definition.size() - 5;  // one byte, and two numbers of one byte for each of two dimensions
  ASSERT_EQ(definition[kind], 1);
  definition[kind] = 2;
  EXPECT_THAT(error_of(definition), HasSubstr("a placement of an unknown kind"));
}

TEST(Placements, CutShortAreRefused) {
  const std::string whole = definition_of({true, {5, 3}, {2, 0}});
  for (std::size_t left = 1; left <= 5; ++left) EXPECT_NE(error_of(whole.substr(0, whole.size() - left)), "no error") << left;
}

TEST(DotProducts, WithoutStatisticsAreRefused) {
  std::string definition;
  ByteSink sink(definition);
  Definition what;
  what.kind = RecordKind::tensor;
  what.phase = Phase::gradient_parts;
  what.name = "micro 0/w";
  what.shape = kShape;
  what.has_dot = true;
  append_definition(sink, what);
  EXPECT_THAT(error_of(definition), HasSubstr("a dot product without statistics"));
}

}  // namespace
}  // namespace lockstep
