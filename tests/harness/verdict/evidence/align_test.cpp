#include "harness/verdict/evidence/parts.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "harness/verdict/trace/writer.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

/// Names of the tensors that rank 0 has at each step, read with the memory of the step before last.
std::vector<std::string> names_in(const std::string& folder) {
  RunReader run(folder);
  std::vector<std::string> names;
  std::optional<StepOfRun> before, step;
  while (true) {
    std::swap(before, step);
    step = run.next(std::exchange(step, std::nullopt));
    if (!step) return names;
    for (const Record& record : step->ranks[0].records) names.push_back(record.name);
  }
}

void write(const std::string& folder, const std::vector<std::string>& names, const std::shared_ptr<const Declared>& declared) {
  TraceHeader header{"hash", 0, 1, "foreign", TraceLevel::hash, "test"};
  header.declared = declared;
  TraceWriter writer(folder + "/rank-0.trace", header);
  const std::vector<float> values = {1, 2};
  const std::vector<int64_t> shape = {2};
  for (int64_t step = 0; step < 5; ++step) {
    writer.begin_step(step);
    for (const std::string& name : names) writer.tensor(Phase::parameters, name, {values.data(), DType::float32, shape, {}}, Sharing::own);
    writer.end_step();
  }
  writer.finish();
}

TEST(RunReader, TakesPrefixesOffOnceWhateverMemoryAStepHas) {
  const TempFolder folder;
  auto declared = std::make_shared<Declared>();
  declared->strip_prefixes = {"a."};
  write(folder.path(), {"a.a.w", "b"}, declared);
  const std::vector<std::string> names = names_in(folder.path());
  ASSERT_EQ(names.size(), 10u);
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(names[i], i % 2 == 0 ? "a.w" : "b");
}

TEST(RunReader, TakesWrappersOffAtEachStep) {
  const TempFolder folder;
  write(folder.path(), {"module.w", "module.b"}, nullptr);
  const std::vector<std::string> names = names_in(folder.path());
  ASSERT_EQ(names.size(), 10u);
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(names[i], i % 2 == 0 ? "w" : "b");
}

}  // namespace
}  // namespace lockstep
