// What the tracer sees of programs, and what it does to them.

#include "harness/suites/foreign_saver/tracer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>

#include "tests/harness/suites/foreign_saver/support.h"

namespace lockstep::program {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Where ptrace is refused, every test of this program says so.
class PtraceIsAllowed : public testing::Environment {
 public:
  void SetUp() override {
    if (const std::string problem = tracing_problem(); !problem.empty()) GTEST_SKIP() << problem;
  }
};
const testing::Environment* const kPtrace = testing::AddGlobalTestEnvironment(new PtraceIsAllowed);

TEST(Tracer, SeesStreamsVectorsMappingsThreadsForksAndPrograms) {
  const SavingFolder folder;
  const TracedRun run = folder.run("exec " + kSaver + " every_way save " + folder.out() + " 2");
  EXPECT_EQ(run.exit_status, 0);
  EXPECT_THAT(calls_of(run),
              ElementsAre("openat stdio", "write stdio", "close stdio", "openat vectors", "pwritev vectors",
                          "ftruncate vectors", "mmap vectors", "msync vectors", "close vectors", "openat thread",
                          "write thread", "write thread", "write thread", "close thread", "openat child", "write child",
                          "write child", "write child", "close child", "openat executed", "close executed", "write executed",
                          "mkdir folder", "rmdir folder", "link stdio>linked", "symlink >symbolic", "unlink linked",
                          "rename thread>renamed"));
  EXPECT_THAT(run.notes, Contains(HasSubstr("mapped shared")));
  const Operation& vectors = run.operations[4];
  EXPECT_EQ(vectors.offset, 4);
  EXPECT_EQ(vectors.bytes, 6);
  EXPECT_EQ(vectors.data, "onetwo");
  EXPECT_EQ(vectors.result, 6);
}

TEST(Tracer, NumbersOperationsByProcessThreadsIncluded) {
  const SavingFolder folder;
  const TracedRun run = folder.run("exec " + kSaver + " every_way save " + folder.out() + " 2");
  for (const Operation& operation : run.operations) {
    const std::string expected = operation.path == "child" ? "0.1" : operation.path == "executed" ? "0.2" : "0";
    EXPECT_EQ(operation.process, expected) << operation.path;
  }
  EXPECT_EQ(run.operations.back().number, static_cast<int64_t>(run.operations.size()));
  EXPECT_EQ(run.operations.back().index, 20) << "those of its children are their own";
}

TEST(Tracer, SeesAStaticProgramAlike) {
  const SavingFolder a, b;
  const TracedRun shared = a.run(kSaver + " every_way save " + a.out() + " 2");
  const TracedRun fixed = b.run(kStaticSaver + " every_way save " + b.out() + " 2");
  EXPECT_EQ(calls_of(shared), calls_of(fixed));
}

TEST(Tracer, SeesAShellsRedirections) {
  const SavingFolder folder;
  const TracedRun run = folder.run("cd " + folder.out() + " && echo a > one && echo b >> one && mv one two");
  EXPECT_EQ(folder.text("two"), "a\nb\n");
  // A shell opens a file, moves the descriptor to standard output and closes the first one.
  ASSERT_EQ(run.operations.size(), 7U) << testing::PrintToString(calls_of(run));
  EXPECT_EQ(run.operations[5].offset, 2) << "it was appended";
  EXPECT_EQ(run.operations[6].to, "two");
}

TEST(Tracer, CountsNothingOutsideTheFolderAndNoReading) {
  const SavingFolder folder;
  std::ofstream(folder.out() + "/there") << "x";
  const TracedRun run = folder.run("cat " + folder.out() + "/there > " + folder.root() + "/elsewhere");
  EXPECT_THAT(run.operations, IsEmpty());
  EXPECT_EQ(run.exit_status, 0);
}

TEST(Tracer, KillsBeforeTheOperationTakesPlace) {
  const SavingFolder folder;
  const TracedRun run =
      folder.run("exec " + kSaver + " in_place save " + folder.out() + " 2", {InjectedFault::kill, "0", 2, 0, ""});
  EXPECT_TRUE(run.acted);
  EXPECT_EQ(run.exit_status, 128 + SIGKILL);
  EXPECT_TRUE(std::filesystem::exists(folder.out() + "/state"));
  EXPECT_EQ(folder.text("state"), "");
}

TEST(Tracer, FailsOneOperationWithAnError) {
  const SavingFolder folder;
  const TracedRun run =
      folder.run("exec " + kSaver + " in_place save " + folder.out() + " 2", {InjectedFault::fail, "0", 3, ENOSPC, ""});
  EXPECT_EQ(run.exit_status, 2) << "the saver says so";
  EXPECT_EQ(run.operations[2].result, -ENOSPC);
  EXPECT_EQ(folder.text("state").size(), 701U);
}

TEST(Tracer, ClosesTheFileWhoseCloseFails) {
  const SavingFolder folder;
  const TracedRun run = folder.run("exec " + kSaver + " in_place save " + folder.out() + " 2", {InjectedFault::fail, "0", 6, EIO, ""});
  EXPECT_EQ(run.operations.back().call, "close");
  EXPECT_EQ(run.exit_status, 2);
  EXPECT_EQ(folder.text("state").size(), 3 * 701U);
}

TEST(Tracer, KeepsTheDiskFullFromAnOperationOn) {
  const SavingFolder folder;
  const std::string save = kSaver + " in_place save " + folder.out() + " 2";
  const TracedRun run = folder.run(save + "; " + save, {InjectedFault::fail_space, "0.1", 3, 0, ""});
  int refused = 0;
  for (const Operation& operation : run.operations) {
    if (operation.call == "write" && operation.number >= run.acted_at) {
      EXPECT_EQ(operation.result, -ENOSPC);
      ++refused;
    }
  }
  EXPECT_EQ(refused, 2) << "the first save's second write, the second save's first";
  EXPECT_EQ(folder.text("state").size(), 0U) << "the second save emptied what the first had begun";
}

TEST(Tracer, WritesHalfAndTheSaverWritesTheRest) {
  const SavingFolder folder;
  const TracedRun run = folder.run("exec " + kSaver + " in_place save " + folder.out() + " 2", {InjectedFault::shorten, "0", 2, 0, ""});
  EXPECT_EQ(run.exit_status, 0);
  EXPECT_EQ(run.operations[1].result, 350);
  EXPECT_EQ(folder.text("state").size(), 3 * 701U);
  EXPECT_EQ(run.operations.size(), 7U) << "one write more than it planned";
}

TEST(Tracer, HoldsAWriterUntilAnotherHasEnded) {
  const SavingFolder folder;
  const std::string save = kSaver + " in_place save " + folder.out() + " ";
  const TracedRun run = folder.run(save + "2 & " + save + "3; wait", {InjectedFault::hold, "0.1", 3, 0, "0.2"});
  EXPECT_TRUE(run.acted);
  EXPECT_FALSE(run.stuck);
  int64_t rivals_last = 0;
  for (const Operation& operation : run.operations) {
    if (operation.process == "0.2") rivals_last = operation.number;
  }
  EXPECT_EQ(run.released_at, rivals_last + 1);
  std::string order;
  for (const Operation& operation : run.operations) order += operation.process.back();
  EXPECT_EQ(order.substr(0, 2) == "11" || order.substr(0, 3) == "121" || order.substr(0, 3) == "211", true) << order;
  EXPECT_EQ(folder.text("state").find("step 3"), 0U) << "the rival emptied the file and wrote its first block last";
}

TEST(Tracer, LetsAHeldWriterGoOnWhereItsRivalWaitsForIt) {
  const SavingFolder folder;
  const std::string save = kSaver + " in_place save " + folder.out() + " ";
  const std::string fifo = folder.root() + "/fifo";
  const TracedRun run = folder.run(
      "mkfifo " + fifo + "; { " + save + "2; echo > " + fifo + "; } & { read x < " + fifo + "; " + save + "3; }; wait",
      {InjectedFault::hold, "0.2.1", 1, 0, "0.3"});
  EXPECT_TRUE(run.acted) << testing::PrintToString(calls_of(run));
  EXPECT_TRUE(run.stuck);
  EXPECT_FALSE(run.hung);
}

TEST(Tracer, EndsWhatDoesNotEndByItsDeadline) {
  const SavingFolder folder;
  Tracer tracer(folder.log());
  TraceOptions options = folder.options();
  options.deadline_s = 0.2;
  const TracedRun run = tracer.run("mkfifo " + folder.root() + "/f; read x < " + folder.root() + "/f", options);
  EXPECT_TRUE(run.hung);
}

TEST(Tracer, RunsManyCommandsOfOneServer) {
  const SavingFolder folder;
  Tracer tracer(folder.log());
  const std::string server = "printf 'ready\\n'; while read a b c d; do \"$a\" \"$b\" save \"$c\" \"$d\"; done";
  ASSERT_EQ(tracer.start_server(server, 20), "");
  for (int step = 1; step < 4; ++step) {
    const TracedRun run = tracer.run_line(kSaver + " in_place " + folder.out() + " " + std::to_string(step), folder.options());
    EXPECT_EQ(run.exit_status, 0);
    EXPECT_EQ(run.operations.size(), 6U);
    EXPECT_EQ(run.operations.front().process, "0");
    EXPECT_THAT(folder.text("state"), HasSubstr("step " + std::to_string(step)));
  }
  EXPECT_TRUE(tracer.has_server());
}

TEST(Tracer, SaysThatAServerEndedEarly) {
  const SavingFolder folder;
  Tracer tracer(folder.log());
  EXPECT_THAT(tracer.start_server("echo no such thing >&2", 20), HasSubstr("ended before"));
  EXPECT_THAT(tracer.printed(), HasSubstr("no such thing"));
}

}  // namespace
}  // namespace lockstep::program
