#include "harness/verdict/compare/replay.h"

#include <gmock/gmock.h>

#include "harness/verdict/config/canonical.h"
#include "harness/verdict/plan/read_matrix.h"
#include "harness/verdict/trace/reader.h"
#include "harness/verdict/trace/writer.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

void write_trace(const std::string& path, bool with_state) {
  TraceWriter writer(path, {"0123456789abcdef", 0, 1, "energy", TraceLevel::hash, "emulated"});
  const std::vector<float> values{1, 2, 3};
  const std::vector<int64_t> shape{3}, ids{4, 5};
  for (int64_t step = 0; step < 3; ++step) {
    writer.begin_step(step);
    if (with_state && step == 2) {
      writer.tensor(Phase::snapshot, "a.weight", {values.data(), DType::float32, shape, {}}, Sharing::replicated, {},
                    Keep::whole);
    }
    writer.samples(ids);
    writer.random("dropout", 7, 12);
    writer.scalar(Phase::loss, "loss", 0.5, Sharing::own);
    writer.end_step();
  }
  writer.finish();
}

TEST(KeepStep, CopiesStateRowsAndStreamsOfThatStepAlone) {
  const TempFolder folder;
  write_trace(folder / "from.trace", true);
  ASSERT_TRUE(keep_step(folder / "from.trace", 2, folder / "to.trace"));
  const Trace kept = read_trace(folder / "to.trace");
  ASSERT_EQ(kept.steps.size(), 1u);
  EXPECT_TRUE(kept.finished);
  EXPECT_EQ(kept.steps[0].step, 2);
  ASSERT_EQ(kept.steps[0].records.size(), 3u) << "the loss is no state";
  EXPECT_EQ(kept.steps[0].records[0].name, "a.weight");
  EXPECT_EQ(kept.steps[0].records[0].payload.size(), 12u);
  EXPECT_EQ(kept.steps[0].records[1].ids, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(kept.steps[0].records[2].stats.hash, 7u);
}

TEST(KeepStep, SaysThatNoStateWasKept) {
  const TempFolder folder;
  write_trace(folder / "from.trace", false);
  EXPECT_FALSE(keep_step(folder / "from.trace", 2, folder / "to.trace"));
  EXPECT_FALSE(keep_step(folder / "from.trace", 9, folder / "to.trace"));
}

TEST(ReplayConfig, IsReadBackAsTheSameCellAndReference) {
  const TempFolder folder;
  const Matrix matrix = parse_matrix(
      "# Which?\nname: some\nseeds: 3\nsteps: 40\ndata: {source: synthetic}\nreference: {layout: 1x24}\n"
      "axes: {layout: [8x3]}\nmutant: {name: grad_scale, factor: 3.7, step: 2}\n",
      "some.yaml", {});
  write_trace(folder / "rank-0.trace", true);
  write_text(folder / "replay.yaml", replay_config(matrix, matrix.cells[0], 2, true));
  const Matrix again = read_matrix(folder / "replay.yaml", {});
  ASSERT_EQ(again.cells.size(), 1u);
  EXPECT_EQ(again.forced_steps, std::vector<int64_t>{2});
  EXPECT_EQ(again.replay, folder / "rank-0.trace");
  EXPECT_TRUE(same_config(again.cells[0].config, matrix.cells[0].config));
  EXPECT_TRUE(same_config(again.cells[0].reference, matrix.cells[0].reference));
  EXPECT_THAT(replay_config(matrix, matrix.cells[0], 2, false), testing::Not(HasSubstr("replay: rank")));
}

}  // namespace
}  // namespace lockstep
