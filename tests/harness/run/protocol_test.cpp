#include "harness/run/launchers/local/protocol.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <stdexcept>

namespace lockstep {
namespace {

TEST(Protocol, KeepsCommands) {
  ParentCommand start;
  start.op = ParentCommand::Op::start;
  start.run = "8x3 \"local\"\n";
  start.dir = "/out/runs/a";
  start.world_size = 8;
  start.processes = 8;
  start.command_started = 12.25;
  start.executed = true;
  const std::string line = to_line(start);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const ParentCommand read = command_from_line(line);
  EXPECT_EQ(read.run, start.run);
  EXPECT_EQ(read.dir, start.dir);
  EXPECT_EQ(read.processes, 8);
  EXPECT_TRUE(read.executed);
  EXPECT_EQ(read.command_started, 12.25);
  ParentCommand kill;
  kill.op = ParentCommand::Op::kill;
  kill.run = "a";
  kill.signal = 15;
  EXPECT_EQ(command_from_line(to_line(kill)).signal, 15);
  EXPECT_EQ(command_from_line(to_line(ParentCommand{})).op, ParentCommand::Op::quit);
}

TEST(Protocol, KeepsEvents) {
  const LauncherEvent started{LauncherEvent::Kind::started, "a", {4, 5, 6}, -1, 0, 0, {}};
  EXPECT_EQ(event_from_line(to_line(started)).pids, (std::vector<int>{4, 5, 6}));
  const LauncherEvent died{LauncherEvent::Kind::exit, "a", {}, 2, 0, 9, {}};
  EXPECT_EQ(event_from_line(to_line(died)).signal, 9);
  EXPECT_EQ(event_from_line(to_line(died)).rank, 2);
  const LauncherEvent left{LauncherEvent::Kind::exit, "a", {}, -1, 3, 0, {}};
  EXPECT_EQ(event_from_line(to_line(left)).code, 3);
  EXPECT_EQ(event_from_line(to_line(left)).rank, -1);
  const LauncherEvent refused{LauncherEvent::Kind::refused, "a", {}, -1, 0, 0, "fork: no\xff memory"};
  EXPECT_EQ(event_from_line(to_line(refused)).message.substr(0, 8), "fork: no");
  EXPECT_EQ(event_from_line(to_line(LauncherEvent{})).kind, LauncherEvent::Kind::ready);
}

TEST(Protocol, KeepsWhatARankOnAnotherHostReports) {
  HeartbeatNote note;
  note.step = 7;
  note.changes = 40;
  note.operation = "all_reduce grad";
  note.entered = {3, 9};
  note.resident_bytes = 1 << 20;
  note.shown = 5;
  note.process = {'T', "futex_wait"};
  note.times = {1.5, 0.25, 0.5};
  LauncherEvent event;
  event.kind = LauncherEvent::Kind::heartbeat;
  event.run = "a";
  event.rank = 2;
  event.heartbeat = note;
  ParentCommand command;
  command.op = ParentCommand::Op::heartbeat;
  command.run = "a";
  command.rank = 2;
  command.heartbeat = note;
  const LauncherEvent heard = event_from_line(to_line(event));
  EXPECT_EQ(heard.kind, LauncherEvent::Kind::heartbeat);
  EXPECT_EQ(command_from_line(to_line(command)).op, ParentCommand::Op::heartbeat);
  EXPECT_EQ(heard.rank, 2);
  EXPECT_EQ(command_from_line(to_line(command)).rank, 2);
  for (const HeartbeatNote& read : {heard.heartbeat, command_from_line(to_line(command)).heartbeat}) {
    EXPECT_EQ(read.step, 7);
    EXPECT_EQ(read.changes, 40U);
    EXPECT_EQ(read.operation, "all_reduce grad");
    EXPECT_EQ(read.entered, note.entered);
    EXPECT_EQ(read.resident_bytes, 1 << 20);
    EXPECT_EQ(read.shown, 5U);
    EXPECT_TRUE(read.process.stopped());
    EXPECT_EQ(read.times.without_core_s, 0.25);
    EXPECT_EQ(read.times.all_without_core_s, 0.5);
    EXPECT_EQ(read.process.waits_in, "futex_wait");
  }
  EXPECT_THROW(event_from_line(R"({"event":"beat","run":"a","rank":0,"step":1})"), std::runtime_error);
  LauncherEvent lost;
  lost.kind = LauncherEvent::Kind::node_lost;
  lost.message = "node n3 is gone";
  EXPECT_EQ(event_from_line(to_line(lost)).message, "node n3 is gone");
}

TEST(Protocol, RefusesWhatItDoesNotKnow) {
  for (const char* line :
       {"", "no json", "[1]", "{}", R"({"op":"jump"})", R"({"op":"start","run":"a"})",
        R"({"op":"kill","run":3,"signal":9})", R"({"op":"kill","run":"a","signal":"9"})",
        R"({"op":"start","run":"a","dir":"d","world":3,"processes":2,"executed":false,"command_started":0})",
        R"({"op":"start","run":"a","dir":"d","world":2,"processes":2,"executed":1,"command_started":0})"}) {
    EXPECT_THROW(command_from_line(line), std::runtime_error) << line;
  }
  for (const char* line :
       {"no json", "{}", R"({"event":"jump","run":"a"})", R"({"event":"exit","run":"a","rank":1})",
        R"({"event":"started","run":"a","pids":3})"}) {
    EXPECT_THROW(event_from_line(line), std::runtime_error) << line;
  }
}

TEST(LineSocket, JoinsAndPartsLines) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  LineSocket reader(ends[0]);
  EXPECT_TRUE(reader.receive());
  EXPECT_FALSE(reader.line());
  {
    LineSocket writer(ends[1]);
    EXPECT_TRUE(writer.send("one\ntw"));
    EXPECT_TRUE(reader.receive());
    EXPECT_EQ(reader.line(), "one");
    EXPECT_FALSE(reader.line());
    EXPECT_TRUE(writer.send("o\nthree\n"));
  }
  EXPECT_FALSE(reader.receive()) << "the writer has gone";
  EXPECT_EQ(reader.line(), "two");
  EXPECT_EQ(reader.line(), "three");
  EXPECT_FALSE(reader.send("anybody?\n"));
}

}  // namespace
}  // namespace lockstep
