// What a snapshot of another run holds, and what it lacks.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "harness/trainers/comm/checked.h"
#include "harness/trainers/core/update.h"

namespace lockstep {
namespace {

std::vector<std::byte> bytes_of(const at::Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.nbytes());
  std::memcpy(bytes.data(), tensor.const_data_ptr(), bytes.size());
  return bytes;
}

class BufferedTask : public Task {
 public:
  BufferedTask() { parameters_.add("w", at::full({3}, 2.0F)); }
  ParameterList& parameters() override { return parameters_; }
  StepOutput forward(const StepInput&) override { return {}; }
  std::vector<NamedBuffer> buffers() override { return {{"buffer/old", old}, {"buffer/own", own}}; }
  std::map<std::string, double> evaluate(Evaluation, const Heartbeat&) override { return {}; }
  at::Tensor old = at::full({2}, 1.0F), own = at::full({2}, 5.0F);

 private:
  ParameterList parameters_;
};

TEST(UpdateLoad, ABufferThatTheOtherRunDoesNotKeepIsAsAtTheBeginning) {
  RunConfig config;
  const std::unique_ptr<Comm> comm = make_solo_comm();
  TraceWriter trace("", {"", 0, 1, "", TraceLevel::off, "real"});
  BufferedTask task;
  RankContext context;
  context.config = &config;
  context.comm = comm.get();
  context.trace = &trace;
  context.task = &task;
  Update update(context);
  Snapshot snapshot{{"w", bytes_of(at::full({3}, 7.0F))}, {"buffer/old", bytes_of(at::full({2}, 9.0F))}};
  for (int step = 0; step < 2; ++step) {
    update.load(snapshot);
    EXPECT_TRUE(task.parameters().tensors[0].detach().equal(at::full({3}, 7.0F)));
    EXPECT_TRUE(task.old.equal(at::full({2}, 9.0F)));
    EXPECT_TRUE(task.own.equal(at::full({2}, 5.0F))) << "whatever the step before made of it";
    task.own.fill_(6);
    task.old.fill_(6);
  }
  snapshot.erase("w");
  EXPECT_THROW(update.load(snapshot), std::runtime_error) << "without a parameter nothing can be computed";
}

}  // namespace
}  // namespace lockstep
