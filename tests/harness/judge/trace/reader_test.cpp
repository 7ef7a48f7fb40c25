#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <charconv>
#include <cmath>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "harness/judge/trace/reader.h"
#include "harness/judge/trace/record.h"
#include "harness/judge/trace/writer.h"
#include "tests/support/said.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

/// A finished trace of `steps` steps as bytes.
std::string small_trace(int64_t steps) {
  TempFolder folder;
  TraceWriter writer(folder / "t", {"hash", 2, 5, "energy", TraceLevel::hash, "real"});
  const std::vector<float> values = {1, 2, 3};
  const std::vector<int64_t> shape = {3}, ids = {4, 5};
  for (int64_t step = 0; step < steps; ++step) {
    writer.begin_step(step);
    writer.samples(ids);
    writer.random("noise", 7, 8);
    writer.scalar(Phase::control, "lr", 0.1, Sharing::replicated);
    writer.tensor(Phase::parameters, "weight", {values.data(), DType::float32, shape, {}}, Sharing::own, {},
                  Keep::whole);
    writer.collective({"barrier", "", "control", "end", -1, DType::float32, {}, 1, 2});
    writer.end_step();
  }
  writer.finish();
  return read_text(folder / "t");
}

Trace parse(const std::string& bytes) {
  return read_trace_bytes(std::as_bytes(std::span(bytes.data(), bytes.size())), "mem");
}

std::string error_of(const std::string& bytes) {
  try {
    parse(bytes);
  } catch (const TraceError& error) {
    return error.what();
  }
  return "no error";
}

std::string framed(FrameType type, const std::string& payload) {
  std::string out;
  ByteSink sink(out);
  sink.raw(frame_head(static_cast<uint32_t>(payload.size()), type));
  sink.bytes(payload.data(), payload.size());
  sink.raw(static_cast<uint64_t>(XXH3_64bits(out.data(), out.size())));
  return out;
}

/// A trace without steps, without its end mark: frames can be added.
std::string only_header() {
  std::string bytes = small_trace(0);
  return bytes.substr(0, bytes.size() - framed(FrameType::end, std::string(1, '\0')).size());
}

std::string text_of_definition(const Definition& what) {
  std::string definition;
  ByteSink sink(definition);
  append_definition(sink, what);
  return definition;
}

/// The payload of a step whose one record is of that definition.
std::string step_with(const std::string& definition) {
  std::string payload;
  ByteSink out(payload);
  out.varint(0), out.varint(0), out.varint(1), out.varint(0), out.text(definition), out.raw(uint64_t{1});
  return payload;
}

TEST(TraceReader, RefusesWhatIsNoTrace) {
  support::Said said;
  said("nothing", error_of(""));
  said("JSON", error_of("{\"config\": {}}"));
  said("cut short", error_of("LSTR"));
  EXPECT_THROW(read_trace("/nonexistent/rank-0.trace"), TraceError);
  EXPECT_THROW(read_trace("/tmp"), TraceError);
  std::string bytes = small_trace(1);
  bytes[8] = 9;
  said("another version", error_of(bytes));
  said("bytes behind its end", error_of(small_trace(2) + "x"));
  bytes = small_trace(3);
  bytes[bytes.size() - 60] = static_cast<char>(~bytes[bytes.size() - 60]);  // inside the frame of step 2
  said("a damaged frame", error_of(bytes));
  const std::string prefix = only_header().substr(0, kFilePrefixBytes);
  for (const char* json : {"[1", R"({"config_hash":"","trainer":"","started_by":"","level":"hash","rank":3,"world_size":3})",
                           R"({"config_hash":"","trainer":"","started_by":"","level":"some","rank":0,"world_size":3})", R"({"config_hash":1})"})
    said(json, error_of(prefix + framed(FrameType::header, json)));
}
TEST(TraceReader, EveryDamagedByteIsNoticed) {
  const std::string bytes = small_trace(3);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    EXPECT_THROW(parse(damaged), TraceError) << "byte " << i;
  }
}

std::string text_of(const StepRecords& step) {
  std::string text = std::to_string(step.step);
  for (const Record& record : step.records) {
    text += "\n" + std::to_string(record.step) + " " + name_of(record.phase) + " " + record.name + " " + testing::PrintToString(record.shape) + " " +
            std::to_string(record.stats.hash) + " " + std::to_string(record.stats.norm) + " " + std::to_string(record.value) + " " +
            testing::PrintToString(record.ids) + " " + std::to_string(record.payload.size()) + " " + std::to_string(record.has_stats) + " " +
            std::to_string(record.collective.hash_in) + " " + std::to_string(record.dot) + " " + std::to_string(static_cast<bool>(record.placement));
    if (!record.payload.empty()) text += std::to_string(std::to_integer<int>(record.payload.front()));
  }
  return text;
}

TEST(TraceReader, MakesTheSameRecordsInUsedMemory) {
  const TempFolder folder;
  // Steps with other records than the one before, with as many, in parts, and with a part of a tensor.
  for (const std::size_t part_bytes : {kMostPartBytes, std::size_t{60}}) {
    TraceWriter writer(folder / "t", {"hash", 0, 1, "foreign", TraceLevel::hash, "test"}, real_files(), part_bytes);
    const std::vector<int64_t> shape = {3}, whole = {9}, offset = {3};
    const Placement part{true, whole, offset};
    for (int64_t step = 0; step < 12; ++step) {
      const float value = static_cast<float>(step);
      const std::vector<float> values = {value, 2, -value};
      writer.begin_step(step);
      writer.samples(std::vector<int64_t>(static_cast<std::size_t>(step % 3), step));
      writer.random("noise", static_cast<uint64_t>(step), 8);
      writer.scalar(Phase::loss, "loss", 0.5 * value, Sharing::own);
      const std::string name = step % 4 == 1 ? "a longer name than fits into a string" : "b";
      TensorView view{values.data(), DType::float32, shape, {}};
      if (step % 5 == 4) view.placement = &part;
      writer.tensor(Phase::parameters, name, view, Sharing::own, step % 2 == 0 ? shape : std::vector<int64_t>{}, step % 3 == 0 ? Keep::whole : Keep::by_level);
      if (step > 6) writer.collective({"all_reduce", "sum", "", std::to_string(step % 2), -1, DType::float32, {3}, static_cast<uint64_t>(step), 2});
      writer.end_step();
    }
    writer.finish();
    TraceReader fresh(folder / "t"), reusing(folder / "t");
    StepRecords used;
    int64_t steps = 0;
    while (std::optional<StepRecords> step = fresh.next()) {
      std::optional<StepRecords> again = reusing.next(std::move(used));
      ASSERT_TRUE(again);
      EXPECT_EQ(text_of(*again), text_of(*step));
      used = std::move(*again);
      ++steps;
    }
    EXPECT_EQ(steps, 12);
    EXPECT_FALSE(reusing.next(std::move(used)));
    EXPECT_TRUE(reusing.finished());
  }
}

TEST(TraceProblem, IsNoneOfAWholeTraceOfItsRunAlone) {
  TempFolder folder;
  const std::string whole = small_trace(3), path = folder / "rank-0.trace";
  const Trace trace = parse(whole);
  const std::string hash = trace.header.config_hash;
  const int rank = trace.header.rank;
  write_text(path, whole);
  EXPECT_EQ(trace_problem(path, hash, rank), "");
  EXPECT_THAT(trace_problem(path, "another", rank), HasSubstr("with the config hash " + hash + ", where"));
  EXPECT_THAT(trace_problem(path, hash, rank + 1), HasSubstr("is of rank"));
  write_text(path, whole.substr(0, whole.size() - 3));
  EXPECT_THAT(trace_problem(path, hash, rank), HasSubstr(path + ": "));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x04);
    write_text(path, damaged);
    EXPECT_NE(trace_problem(path, hash, rank), "") << "byte " << i;
  }
}

TEST(TraceReader, ATraceCutAnywhereIsReadUpToTheLastWholeStep) {
  const std::string bytes = small_trace(3);
  const uint64_t first_step = only_header().size();
  std::size_t most_steps = 0;
  for (std::size_t length = first_step; length < bytes.size(); ++length) {
    const Trace trace = parse(bytes.substr(0, length));
    EXPECT_FALSE(trace.finished);
    EXPECT_LE(trace.valid_bytes, length);
    EXPECT_EQ(trace.file_bytes, length);
    if (trace.valid_bytes < length) {
      EXPECT_THAT(trace.end, HasSubstr("cut short in the record"));
    } else {
      EXPECT_THAT(trace.end, HasSubstr("without an end mark"));
    }
    EXPECT_GE(trace.steps.size(), most_steps);
    most_steps = trace.steps.size();
  }
  EXPECT_EQ(most_steps, 3u);
}

TEST(TraceReader, SaysHowManyBytesAreWhole) {
  const std::string bytes = small_trace(40);
  const std::string cut = bytes.substr(0, bytes.size() - 30);
  const Trace trace = parse(cut);
  EXPECT_EQ(trace.steps.size(), 39u);
  std::string whole = std::to_string(trace.valid_bytes), all = std::to_string(cut.size());
  ASSERT_EQ(whole.size(), 4u);
  EXPECT_EQ(trace.end, "cut short in the record after step 38: " + whole.insert(1, ",") + " of " +
                           all.insert(1, ",") + " bytes are whole");
}

TEST(TraceReader, BelievesNoLengthThatTheFrameDoesNotHold) {
  const std::string header = only_header(), all = small_trace(1), end = framed(FrameType::end, std::string(1, '\1'));
  const std::string step = all.substr(header.size(), all.size() - header.size() - end.size());
  EXPECT_EQ(parse(header + step + end).steps.size(), 1u);
  support::Said said;
  const auto read = [&](const char* what, const std::string& payload, const std::string& before = "") {
    said(what, error_of(header + before + framed(FrameType::step, payload)));
  };
  std::string again;
  ByteSink(again).varint(zigzag(0));
  again += '\1';
  read("a step again", again, step);
  read("a step that does not increase", std::string("\0\1", 2), framed(FrameType::step, std::string("\0\0\0", 3)));
  const std::string huge = "\xff\xff\xff\xff\xff\xff\xff\x7f";
  read("more records than the frame", std::string("\0\0", 2) + huge);
  read("an undefined sequence", std::string("\0\5", 2));
  read("an undefined record", std::string("\0\0\1\7", 4));
  read("a long definition", std::string("\0\0\1\0", 4) + huge);
  read("an unknown kind", std::string("\0\0\1\0\4", 5) + std::string(4, '\x7f'));
  read("nothing", "");
  read("a long number", std::string(11, '\xff'));
  const std::vector<int64_t> shape = {int64_t{1} << 40, int64_t{1} << 40};
  read("a huge shape",
       step_with(text_of_definition({.kind = RecordKind::tensor, .has_payload = true, .shape = shape, .name = "w"})));
}

TEST(TraceReader, ReadsStepByStep) {
  TempFolder folder;
  write_text(folder / "t", small_trace(2));
  TraceReader reader(folder / "t");
  EXPECT_EQ(reader.header().world_size, 5);
  EXPECT_EQ(reader.next()->step, 0);
  EXPECT_FALSE(reader.finished());
  EXPECT_EQ(reader.next()->step, 1);
  EXPECT_FALSE(reader.next().has_value());
  EXPECT_TRUE(reader.finished());
  EXPECT_FALSE(reader.next().has_value());
  TraceReader whole(folder / "t");
  whole.read_to_end();
  EXPECT_TRUE(whole.finished());
}

constexpr const char* kHeader =
    R"({"config_hash": "x", "rank": 0, "world_size": 4, "trainer": "t", "level": "full", "started_by": "p", "declared": )";

std::optional<TraceHeader> header_with(const std::string& declared, std::string* why = nullptr) {
  std::string problem;
  auto header = header_from_json(kHeader + declared + "}", problem);
  if (why) *why = problem;
  return header;
}

TEST(DeclaredHeader, IsReadFromTheHeaderAndWrittenBack) {
  support::Said said;
  for (const char* text : {R"({
    "strip_prefixes": ["engine."], "clip_norm": 0.5, "accumulation": 2, "global_batch": 16, "base_rate": 0.1,
    "precision": "bfloat16", "gradient_reduction": "sum",
    "optimizer": {"name": "adamw", "betas": [0.8, 0.99], "weight_decay": 0.1},
    "parameters": [{"prefix": "head.", "role": "score head", "rate_factor": 10, "weight_decay": 0}, {"prefix": ""}],
    "groups": {"tensor 0": [0, 1]}, "replicas": [[0, 2], [1, 3]]})",
                           R"({"streams": {"process/dropout": "rank", "sampler": "same", "masks": "sample"}, "average_decay": 0.875})", "{}"}) {
    const auto header = header_with(text);
    ASSERT_TRUE(header && header->declared);
    const std::string written = to_json(*header->declared).dump();
    said(replaced(text, "\n", " "), written);
    EXPECT_EQ(to_json(*header_with(written)->declared).dump(), written);
    if (header->declared->parameters.empty()) continue;
    EXPECT_EQ(entry_of(header->declared->parameters, "head.weight")->role, "score head");
    EXPECT_EQ(entry_of(header->declared->parameters, "body.weight")->rate_factor, 1);
  }
  std::string why;
  const auto silent = header_from_json(
      R"({"config_hash": "x", "rank": 0, "world_size": 1, "trainer": "t", "level": "hash", "started_by": "p"})", why);
  ASSERT_TRUE(silent);
  EXPECT_EQ(silent->declared, nullptr);
}
TEST(DeclaredHeader, RefusesWhatIsNoDeclaration) {
  support::Said said;
  for (const char* text :
       {"[]", R"({"clip_norm": -1})", R"({"accumulation": 0})", R"({"precision": "fp8"})",
        R"({"groups": {"a": [4]}})", R"({"groups": {"a": [1, 1]}})", R"({"replicas": [[]]})",
        R"({"optimizer": {}})", R"({"parameters": [{"role": "x"}]})", R"({"strip_prefixes": [3]})",
        R"({"clipnorm": 1})", R"({"optimizer": {"name": "adam", "beta": [0.9, 0.99]}})",
        R"({"replicas": [[0, 1], [1, 2, 3]]})", R"({"replicas": [[0, 1]]})", R"({"streams": ["dropout"]})",
        R"({"streams": {"dropout": "ranks"}})", R"({"streams": {"dropout": 1}})", R"({"average_decay": -0.5})",
        R"({"average_decay": "0.9"})", R"({"averages_decay": 0.9})"}) {
    std::string why;
    EXPECT_FALSE(header_with(text, &why)) << text;
    said(text, why);
  }
}

// Placements of parts and dot products of parts of gradients, as the writer puts them and the reader gives them back.

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

TEST(Placements, OfATensorWithoutDimensionsAreEmptyAndAnEmptyPartIsAPart) {
  const Placement none{false, {}, {}}, behind{true, {5, 3}, {5, 0}};
  const std::vector<int64_t> no_rows{0, 3};
  const auto records = written(TraceLevel::full, [&](TraceWriter& writer) {
    writer.tensor(Phase::parameters, "scale", {kValues.data(), DType::float32, {}, {}, nullptr, &none}, Sharing::own);
    writer.tensor(Phase::parameters, "w",
                  {kValues.data(), DType::float32, no_rows, {}, nullptr, &behind}, Sharing::own);
  });
  ASSERT_TRUE(records[0].placement);
  EXPECT_TRUE(records[0].placement->whole.empty());
  EXPECT_EQ(records[0].hashed, Hashed::whole);
  EXPECT_EQ(*records[1].placement, behind);
  EXPECT_EQ(records[1].stats.hash, 0u);
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

// --- what no writer of ours makes ---

std::string problem_of(const std::string& definition) {
  return error_of(only_header() + framed(FrameType::step, step_with(definition)));
}

std::string definition_of(const Placement& placement) {
  return text_of_definition({.kind = RecordKind::tensor, .phase = Phase::parameters, .placement = &placement,
                             .shape = kShape, .name = "w"});
}

TEST(Placements, ThatAreImpossibleAreRefused) {
  EXPECT_EQ(problem_of(definition_of({true, {5, 3}, {3, 0}})), "no error") << "the last rows";
  const int64_t huge = int64_t{1} << 62;
  for (const Placement& wrong : {Placement{true, {5, 3}, {4, 0}}, {true, {1, 3}, {0, 0}}, {true, {5, 3}, {-1, 0}}, {true, {5, 3}, {6, 0}}, {true, {5, 2}, {0, 0}},
                                 {true, {huge, 3}, {huge, 0}}}) {
    EXPECT_THAT(problem_of(definition_of(wrong)), HasSubstr("a part that does not lie inside its tensor")) << wrong.whole[0] << " " << wrong.offset[0];
  }
  EXPECT_THAT(problem_of(definition_of({true, {huge, 8}, {0, 0}})), HasSubstr("impossible shape"));
  EXPECT_THAT(problem_of(definition_of({false, {4, 3}, {0, 0}})), HasSubstr("does not lie inside")) << "what is replicated is whole";
}

TEST(Placements, OfAnUnknownKindAreRefused) {
  std::string definition = definition_of({true, {5, 3}, {2, 0}});
  const std::size_t kind = definition.size() - 5;  // one byte, and two numbers of one byte for each of two dimensions
  ASSERT_EQ(definition[kind], 1);
  definition[kind] = 2;
  EXPECT_THAT(problem_of(definition), HasSubstr("a placement of an unknown kind"));
}

TEST(Placements, CutShortAreRefused) {
  const std::string whole = definition_of({true, {5, 3}, {2, 0}});
  for (std::size_t left = 1; left <= 5; ++left) EXPECT_NE(problem_of(whole.substr(0, whole.size() - left)), "no error") << left;
}

TEST(DotProducts, WithoutStatisticsAreRefused) {
  const Definition what{.kind = RecordKind::tensor, .phase = Phase::gradient_parts, .has_dot = true,
                        .shape = kShape, .name = "micro 0/w"};
  EXPECT_THAT(problem_of(text_of_definition(what)), HasSubstr("a dot product without statistics"));
}

// The hashes that docs/trace.md describes, computed from the page alone, are those of this build.

DType dtype_named(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(kLastDType); ++i) {
    if (name == name_of(static_cast<DType>(i))) return static_cast<DType>(i);
  }
  throw std::invalid_argument(name);
}

std::vector<uint8_t> bytes_of(const std::string& hex) {
  std::vector<uint8_t> bytes(hex.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, bytes[i], 16);
  }
  return bytes;
}

TEST(Conformance, TensorsHaveTheHashesOfThePage) {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/tests/conformance/vectors.json");
  const nlohmann::json vectors = nlohmann::json::parse(file);
  ASSERT_GE(vectors.size(), 16u);
  for (const nlohmann::json& each : vectors) {
    const std::vector<uint8_t> bytes = bytes_of(each["bytes"]);
    const auto shape = each["shape"].get<std::vector<int64_t>>();
    const auto positions = each.value("positions", std::vector<int64_t>{});
    uint64_t expected = 0;
    const auto text = each["hash"].get<std::string>();
    std::from_chars(text.data(), text.data() + text.size(), expected, 16);
    EXPECT_EQ(tensor_stats({bytes.data(), dtype_named(each["dtype"]), shape, positions}).hash, expected) << each.dump();
  }
}

TEST(Conformance, HalfPrecisionNumbersAreThoseOfIeee754) {
  EXPECT_EQ(value_of_float16(0x3c00), 1);
  EXPECT_EQ(value_of_float16(0xc000), -2);
  EXPECT_EQ(value_of_float16(0x7bff), 65504);
  EXPECT_EQ(value_of_float16(0x0001), 0x1p-24);
  EXPECT_EQ(value_of_float16(0x0400), 0x1p-14);
  EXPECT_TRUE(std::isinf(value_of_float16(0xfc00)));
  EXPECT_TRUE(std::isnan(value_of_float16(0x7e00)));
}

}  // namespace
}  // namespace lockstep
