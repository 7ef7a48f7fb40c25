#include <gmock/gmock.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/launchers/local/protocol.h"
#include "harness/run/launchers/slurm/agents.h"
#include "tests/support/temp_folder.h"
#include "tests/support/whole.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

Arrival rank(int number, int world) {
  RankEnvironment rank_environment;
  rank_environment.name = "test";
  rank_environment.rank = number;
  rank_environment.world = world;
  Arrival mine = introduce(rank_environment);
  mine.build = "b";
  mine.isa = "i";
  return mine;
}

std::vector<Met> meet_all(const std::string& folder, std::vector<Arrival> ranks, const std::string& store = "") {
  std::vector<std::future<Met>> meetings;
  for (Arrival& each : ranks)
    meetings.push_back(std::async(std::launch::async, [&folder, each, &store] { return meet(folder, each, store, 20); }));
  std::vector<Met> met;
  for (auto& each : meetings) met.push_back(each.get());
  return met;
}

TEST(ListeningSocket, TakesTheFirstFreePortOfTheRange) {
  int anywhere = 0;
  const int probe = listening_socket(anywhere);
  const std::string range = std::to_string(anywhere) + "-" + std::to_string(anywhere + 3);
  ASSERT_EQ(::setenv("LOCKSTEP_PORTS", range.c_str(), 1), 0);
  int port = 0;
  const int next = listening_socket(port);
  EXPECT_GT(port, anywhere) << "that one is taken";
  EXPECT_LE(port, anywhere + 3);
  ASSERT_EQ(::setenv("LOCKSTEP_PORTS", (std::to_string(anywhere) + "-" + std::to_string(anywhere)).c_str(), 1), 0);
  EXPECT_THAT([] { int none = 0; listening_socket(none); }, ThrowsMessage<MachineError>(HasSubstr("is free on")));
  for (const char* wrong : {"20000", "0-5", "30-20", "1-70000", "1-2x"}) {
    ASSERT_EQ(::setenv("LOCKSTEP_PORTS", wrong, 1), 0);
    EXPECT_THAT([] { int none = 0; listening_socket(none); }, ThrowsMessage<MachineError>(HasSubstr("is no range of ports; write it as 20000-20099"))) << wrong;
  }
  ::unsetenv("LOCKSTEP_PORTS");
  ::close(probe);
  ::close(next);
}

TEST(Meeting, GivesAllRanksTheSameStart) {
  const TempFolder folder;
  const auto met = meet_all(folder.path(), {rank(0, 3), rank(1, 3), rank(2, 3)});
  for (const Met& each : met) {
    EXPECT_EQ(each.start, met[0].start);
    EXPECT_TRUE(each.one_host);
    EXPECT_FALSE(each.tcp) << "one host meets by a file";
    EXPECT_EQ(each.host, "127.0.0.1");
  }
}

TEST(Meeting, TakesNothingThatAnEarlierStartHasLeft) {
  const TempFolder folder;
  const auto first = meet_all(folder.path(), {rank(0, 3), rank(1, 3), rank(2, 3)});
  const auto second = meet_all(folder.path(), {rank(0, 3), rank(1, 3), rank(2, 3)});
  EXPECT_NE(first[0].start, second[0].start);
  for (const Met& each : second) EXPECT_EQ(each.start, second[0].start);
}

TEST(Meeting, IsAtRankZerosOwnAddressWhereHostsDiffer) {
  const TempFolder folder;
  std::vector<Arrival> ranks = {rank(0, 2), rank(1, 2)};
  ranks[0].address = "10.0.0.1";
  ranks[0].host = "a";
  ranks[1].host = "b";
  ranks[1].machine = "another";
  const std::vector<Met> met = meet_all(folder.path(), ranks);
  for (const Met& each : met) {
    EXPECT_FALSE(each.one_host);
    EXPECT_TRUE(each.tcp);
    EXPECT_EQ(each.host, "10.0.0.1");
    EXPECT_EQ(each.port, met[0].port);
  }
  // 127.0.0.2 stands for another host: what listens for this one alone is not there.
  std::string problem;
  const int there = connected_within("127.0.0.2", met[0].port, 5, problem);
  EXPECT_GE(there, 0) << problem;
  ::close(there);
  ::close(met[0].listening);
  EXPECT_FALSE(meet_all(folder.path(), {rank(0, 1)}, "file")[0].tcp);
}

TEST(Meeting, ListensForThisHostAloneWhereAllRanksAreThereAndNotAtAllWhereTheyMeetByAFile) {
  const TempFolder folder, other;
  const Met met = meet_all(folder.path(), {rank(0, 2), rank(1, 2)}, "tcp")[0];
  std::string problem;
  const int there = connected_within("127.0.0.1", met.port, 5, problem);
  EXPECT_GE(there, 0) << problem;
  EXPECT_LT(connected_within("127.0.0.2", met.port, 5, problem), 0);
  ::close(there);
  ::close(met.listening);
  EXPECT_LT(meet_all(other.path(), {rank(0, 2), rank(1, 2)})[0].listening, 0);
}

TEST(Meeting, TakesAFileWithAFieldOfAnotherTypeForNone) {
  const TempFolder folder;
  for (const char* text : {R"({"nonce": 5})", R"({"nonce": "n", "pid": "x"})", R"({"nonce": "n", "rank": 4294967296})", R"({"nonce": "n", "host": []})"}) {
    write_text(start_file(folder.path(), 1), text);
    EXPECT_EQ(read_arrival(folder.path(), 1).nonce, "") << text;
  }
  write_text(start_file(folder.path(), 1), R"({"nonce": "n", "pid": 7})");
  EXPECT_EQ(read_arrival(folder.path(), 1).pid, 7);
}

TEST(Meeting, TellsContainersOfOneNameFromOneHost) {
  const TempFolder folder;
  std::vector<Arrival> ranks = {rank(0, 2), rank(1, 2)};
  ranks[0].address = "10.0.0.1";
  ranks[1].machine += " of another container";
  for (const Met& each : meet_all(folder.path(), ranks)) {
    EXPECT_FALSE(each.one_host);
    EXPECT_TRUE(each.tcp);
  }
  const TempFolder other;
  std::vector<Arrival> renamed = {rank(0, 2), rank(1, 2)};
  renamed[1].host = "its other name";
  EXPECT_TRUE(meet_all(other.path(), renamed)[1].one_host);
}

TEST(Meeting, EndsForAllWhenARankLeaves) {
  const TempFolder folder;
  auto first = std::async(std::launch::async, [&] { return meet(folder.path(), rank(0, 3), "", 60); });
  auto second = std::async(std::launch::async, [&] { return meet(folder.path(), rank(1, 3), "", 60); });
  const Met left = meet(folder.path(), rank(2, 3), "", 60, [](const Met& answer) { return "cannot reach " + answer.ranks.front().rank_environment; });
  EXPECT_EQ(left.ranks[2].problem, "cannot reach test");
  EXPECT_THAT([&] { first.get(); },
              ThrowsMessage<RendezvousError>(AllOf(HasSubstr("rank 2 (process "), HasSubstr("has left: cannot reach test"))));
  EXPECT_THAT([&] { second.get(); }, ThrowsMessage<RendezvousError>(HasSubstr("has left: cannot reach test")));
  // What it left is nobody's problem when they start again.
  for (const Met& each : meet_all(folder.path(), {rank(0, 3), rank(1, 3), rank(2, 3)})) EXPECT_FALSE(each.start.empty());
}

TEST(Meeting, NamesTheRanksThatDoNotCome) {
  const TempFolder folder;
  EXPECT_THAT([&] { meet(folder.path(), rank(0, 3), "", 0.05); },
              ThrowsMessage<RendezvousError>(AllOf(HasSubstr("ranks of 3 did not come in time: ranks 1, 2."), HasSubstr(folder.path()))));
  const TempFolder other;
  EXPECT_THAT([&] { meet(other.path(), rank(2, 3), "", 0.05); },
              ThrowsMessage<RendezvousError>(HasSubstr("rank 0 did not come in time")));
}

TEST(Meeting, NamesTwoProcessesOfOneRank) {
  const TempFolder folder;
  auto first = std::async(std::launch::async, [&] { return meet(folder.path(), rank(1, 3), "", 20); });
  while (read_arrival(folder.path(), 1).nonce.empty()) std::this_thread::yield();
  Arrival twin = rank(1, 3);
  twin.nonce = "another";
  auto second = std::async(std::launch::async, [&] { return meet(folder.path(), twin, "", 0.5); });
  EXPECT_THAT([&] { first.get(); }, ThrowsMessage<RendezvousError>(HasSubstr("two processes are rank 1: process ")));
  EXPECT_THROW(second.get(), RendezvousError);
}

TEST(Meeting, TellsRankZeroOfARankThatCameTwice) {
  const TempFolder folder;
  auto zero = std::async(std::launch::async, [&] { return meet(folder.path(), rank(0, 3), "", 60); });
  while (read_arrival(folder.path(), 0).nonce.empty()) std::this_thread::yield();
  auto first = std::async(std::launch::async, [&] { return meet(folder.path(), rank(1, 3), "", 60); });
  while (read_arrival(folder.path(), 1).nonce.empty()) std::this_thread::yield();
  auto second = std::async(std::launch::async, [&] { return meet(folder.path(), rank(1, 3), "", 60); });
  EXPECT_THAT([&] { zero.get(); }, ThrowsMessage<RendezvousError>(HasSubstr("two processes are rank 1: process ")));
  EXPECT_THROW(first.get(), RendezvousError);
  EXPECT_THROW(second.get(), RendezvousError);
  const TempFolder other;
  auto one = std::async(std::launch::async, [&] { return meet(other.path(), rank(0, 3), "", 60); });
  while (read_arrival(other.path(), 0).nonce.empty()) std::this_thread::yield();
  EXPECT_THAT([&] { meet(other.path(), rank(0, 3), "", 60); }, ThrowsMessage<RendezvousError>(HasSubstr("two processes are rank 0: process ")));
  EXPECT_THAT([&] { one.get(); }, ThrowsMessage<RendezvousError>(HasSubstr("two processes are rank 0: process ")));
}

TEST(Meeting, LeavesOutARankOfAnotherAttempt) {
  const TempFolder folder;
  Arrival left_behind = rank(1, 2);
  left_behind.attempt = "first";
  EXPECT_THROW(meet(folder.path(), left_behind, "", 0.01), RendezvousError);
  Arrival zero = rank(0, 2), one = rank(1, 2);
  zero.attempt = one.attempt = "second";
  EXPECT_THAT([&] { meet(folder.path(), zero, "", 0.05); }, ThrowsMessage<RendezvousError>(HasSubstr("did not come in time: rank 1.")));
  const std::vector<Met> met = meet_all(folder.path(), {zero, one});
  EXPECT_EQ(met[0].start, met[1].start);
}

TEST(Meeting, WaitsNoLongerThanItIsToldForARankThatDoesNotAnswer) {
  const TempFolder folder;
  EXPECT_THROW(meet(folder.path(), rank(1, 2), "", 0.01), RendezvousError);  // it came, and is gone
  const double begun = monotonic_s();
  EXPECT_THAT([&] { meet(folder.path(), rank(0, 2), "", 0.01); }, ThrowsMessage<RendezvousError>(HasSubstr("did not answer in time: rank 1.")));
  EXPECT_LT(monotonic_s() - begun, 10);
}

TEST(Meeting, EndsForAProcessThatShallLeave) {
  const TempFolder folder;
  EXPECT_THAT([&] { meet(folder.path(), rank(1, 2), "", 60, nullptr, [] { throw std::runtime_error("left behind"); }); },
              ThrowsMessage<std::runtime_error>("left behind"));
}

TEST(Meeting, NamesWhatDiffersBetweenRanks) {
  Arrival first = rank(0, 2), other = rank(1, 2);
  EXPECT_EQ(difference_of_identity(first, other), "");
  other.build = "c";
  other.isa = "j";
  EXPECT_THAT(difference_of_identity(first, other), AllOf(HasSubstr("rank 0 runs the build b and rank 1 the build c"),
                                                         HasSubstr("rank 0 computes on i and rank 1 on j"), HasSubstr("--mixed")));
}

TEST(Meeting, SaysWhatToTryWhereRankZeroCannotBeReached) {
  Met met;
  met.ranks = {rank(0, 2), rank(1, 2)};
  met.host = "127.0.0.1";
  const int listening = listening_socket(met.port);
  EXPECT_EQ(unreachable_text(met, met.ranks[1], 5), "");
  ::close(listening);
  EXPECT_THAT(unreachable_text(met, met.ranks[1], 5), AllOf(HasSubstr("Connection refused"), HasSubstr("Set LOCKSTEP_ADDRESS")));
}

// What peers may do to lockstep: the ports that it opens, by those who know the key and by those who do not. Each seed is one sequence of lines.

constexpr double kPatience_s = 20;

std::unique_ptr<LineSocket> connected(int port) {
  std::string problem;
  const int there = connected_within("127.0.0.1", port, 5, problem);
  EXPECT_GE(there, 0) << problem;
  return std::make_unique<LineSocket>(there, 0.01);
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

std::size_t open_files() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

int mode_of(const std::string& path) {
  struct stat is {};
  EXPECT_EQ(::stat(path.c_str(), &is), 0) << path;
  return static_cast<int>(is.st_mode & 0777);
}

LauncherEvent event_of(LauncherEvent::Kind kind, int rank) {
  LauncherEvent event{.kind = kind, .run = "a", .rank = rank};
  event.pids = {1, 2};
  event.heartbeat.changes = 2;
  event.heartbeat.process = {'R', ""};
  return event;
}

/// Lines as a peer says them, and what becomes of them: bytes lost, doubled and changed, numbers and types that nobody says, lines without an end.
class Nonsense {
 public:
  explicit Nonsense(unsigned seed) : random_(seed) {}

  std::string line(std::string text) {
    for (int changes = below(4); changes > 0 && !text.empty(); --changes) change(text);
    if (below(20) == 0) text += std::string(static_cast<std::size_t>(below(1 << 12)), 'A');
    return below(50) == 0 ? text : text + "\n";
  }
  int below(int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random_); }

 private:
  void change(std::string& text) {
    static const std::vector<std::string> kValues = {"1073741824", "-1", "-2147483648", "18446744073709551615", "1e308", "1.5", "null", "true", "\"x\"", "[]", "{}",
                                                     "[[[[\"x\"]]]]", "[1,\"x\"]", "{\"a\":1}", "", "NaN", "\"\\ud800\"", "9"};
    const std::size_t at = static_cast<std::size_t>(below(static_cast<int>(text.size())));
    switch (below(5)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.erase(at, static_cast<std::size_t>(below(20)));
        break;
      case 2:
        text.insert(at, text.substr(static_cast<std::size_t>(below(static_cast<int>(text.size()))), static_cast<std::size_t>(below(40))));
        break;
      default: {
        // A field's value.
        const std::size_t colon = text.find(':', at);
        if (colon == std::string::npos) return;
        const std::size_t end = text.find_first_of(",}", colon);
        text.replace(colon + 1, end == std::string::npos ? end : end - colon - 1, kValues[static_cast<std::size_t>(below(static_cast<int>(kValues.size())))]);
      }
    }
  }
  std::mt19937 random_;
};

TEST(Secrets, AreTheKernelsAndAreComparedWhole) {
  const std::string one = random_hex();
  EXPECT_EQ(one.size(), 32U);
  EXPECT_NE(one, random_hex());
  EXPECT_TRUE(same_secret(one, one));
  EXPECT_FALSE(same_secret(one.substr(1), one));
  EXPECT_FALSE(same_secret("", ""));
  std::string other = one;
  other.back() = other.back() == '0' ? '1' : '0';
  EXPECT_FALSE(same_secret(other, one));
}

TEST(Door, HearsFewStrangersAtOnceAndNoneForLong) {
  Door door(Reach::this_host);
  const std::size_t before = open_files();
  std::vector<std::unique_ptr<LineSocket>> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connected(door.port()));
  EXPECT_TRUE(door.look(100).empty());
  EXPECT_EQ(open_files() - before, 100U + 64U) << "the others wait in the kernel";
  for (const double now : {106, 112, 118, 124}) EXPECT_TRUE(door.look(now).empty());
  EXPECT_EQ(open_files() - before, 100U) << "all were hung up on";
}

TEST(Door, LetsInWhoKnowsTheKeyThoughStrangersCrowdIt) {
  Door door(Reach::this_host);
  std::vector<std::unique_ptr<LineSocket>> silent;
  for (int i = 0; i < 80; ++i) silent.push_back(connected(door.port()));
  const auto rank = connected(door.port());
  rank->send("{\"key\": \"" + door.key() + "\", \"rank\": 1}\nmore\n");
  std::vector<Door::Guest> guests;
  for (double now = 100; guests.empty() && now < 140; ++now) guests = door.look(now);
  ASSERT_EQ(guests.size(), 1U);
  EXPECT_THAT(guests[0].hello, HasSubstr("\"rank\": 1"));
  EXPECT_EQ(guests[0].socket->line(), "more");
}

TEST(Door, TakesNoMoreOfAStrangerThanAHelloHas) {
  Door door(Reach::this_host);
  const auto flood = connected(door.port());
  int sent = 0;
  while (sent < 1000 && flood->send(std::string(4096, 'A'))) {
    EXPECT_TRUE(door.look(100).empty());
    ++sent;
  }
  EXPECT_LT(sent, 100) << "it was hung up on after 16 KiB";
}

TEST(Door, IsOnThisHostAloneUntilItIsOpened) {
  Door door(Reach::this_host);
  std::string problem;
  EXPECT_LT(connected_within("127.0.0.2", door.port(), 5, problem), 0);
  EXPECT_TRUE(door.open_to_hosts());
  EXPECT_FALSE(door.open_to_hosts());
  const int there = connected_within("127.0.0.2", door.port(), 5, problem);
  EXPECT_GE(there, 0) << problem;
  ::close(there);
}

TEST(LineSocket, EndsWithLinesThatDoNotEndAndPeersThatTakeNothing) {
  Door door(Reach::this_host);
  const auto rank = connected(door.port());
  rank->send("{\"key\": \"" + door.key() + "\"}\n");
  std::vector<Door::Guest> guests;
  while (guests.empty()) guests = door.look(100);
  bool heard = true;
  for (const double until = monotonic_s() + kPatience_s; heard && monotonic_s() < until;) {
    rank->send(std::string(1 << 16, 'A'));
    heard = guests[0].socket->receive();
  }
  EXPECT_FALSE(heard);
  EXPECT_FALSE(guests[0].socket->line());
  const auto deaf = connected(door.port());
  bool taken = true;
  for (int i = 0; taken && i < 1000; ++i) taken = deaf->send(std::string(1 << 20, 'B'));
  EXPECT_FALSE(taken) << "nobody reads it";
}

class DeskUnderNonsense : public testing::TestWithParam<unsigned> {};

TEST_P(DeskUnderNonsense, GoesOnAndHearsItsRank) {
  const TempFolder folder;
  HeartbeatFile::create(folder / kHeartbeatFile, 3);
  HeartbeatServer server;
  server.expect({"a", folder.path(), 3, 3});
  const Watcher watcher = *read_watcher(folder.path());
  EXPECT_EQ(mode_of(folder / "watcher.json"), 0600);
  const auto rank = connected(watcher.port);
  rank->send(desk_line(watcher, 1));
  Nonsense nonsense(GetParam());
  const int64_t before = resident_bytes();
  const std::size_t files = open_files();
  std::vector<std::string> said = {desk_line(watcher, 2), "{\"key\":\"x\",\"node\":5}\n", R"({"run":"a","rank":2})", "\n"};
  for (const auto kind : {LauncherEvent::Kind::heartbeat, LauncherEvent::Kind::exit, LauncherEvent::Kind::started}) said.push_back(to_line(event_of(kind, 2)));
  uint64_t changes = 0, heard = 0;
  for (int peer = 0; peer < 200; ++peer) {
    const auto stranger = connected(watcher.port);
    if (nonsense.below(2) == 0) stranger->send(desk_line(watcher, 2));
    for (int line = 0; line < 50; ++line) {
      const std::string& text = said[static_cast<std::size_t>(nonsense.below(static_cast<int>(said.size())))];
      if (!stranger->send(nonsense.line(text.substr(0, text.size() - 1)))) break;
    }
    LauncherEvent event = event_of(LauncherEvent::Kind::heartbeat, 1);
    event.heartbeat.changes = changes += 2;
    ASSERT_TRUE(rank->send(to_line(event)));
    for (const double until = monotonic_s() + kPatience_s; heard < changes && monotonic_s() < until;) {
      for (const LauncherEvent& each : server.look(monotonic_s())) {
        ASSERT_EQ(each.kind, LauncherEvent::Kind::heartbeat);
        ASSERT_TRUE(each.rank == 1 || each.rank == 2) << each.rank;
        if (each.rank == 1) heard = each.heartbeat.changes;
      }
    }
    ASSERT_EQ(heard, changes);
  }
  EXPECT_LT(resident_bytes() - before, 16 << 20);
  server.look(monotonic_s() + 100);
  EXPECT_LE(open_files(), files + 2);
}

INSTANTIATE_TEST_SUITE_P(Seeds, DeskUnderNonsense, testing::ValuesIn(support::whole_or(std::vector{1U}, std::vector{1U, 2U, 3U})));

/// Agents that this test is: what should start them says where, and with which key.
class Agents {
 public:
  explicit Agents(int count) : launcher_(LOCKSTEP_BINARY_DIR "/bin/fake_rank", {"sh", "-c", "echo {place} {key} $$ > " + (folder_ / "said") + "; exec sleep 1000"}, count, folder_.path()) {
    for (const double until = monotonic_s() + kPatience_s; starter_ == 0 && monotonic_s() < until;) std::istringstream(read_text(folder_ / "said")) >> place_ >> file_ >> starter_;
  }
  ~Agents() { ::kill(starter_, SIGKILL); }
  Agents(const Agents&) = delete;
  Agents& operator=(const Agents&) = delete;
  std::unique_ptr<LineSocket> comes(const std::string& node) {
    auto socket = connected(port());
    AgentHello hello = introduce_agent(key_in_file(file_));
    hello.node = node;
    hello.build = "b";
    hello.slots = 2;
    socket->send(to_line(hello));
    return socket;
  }
  int port() const { return std::stoi(place_.substr(place_.rfind(':') + 1)); }
  const std::string& key_file() const { return file_; }
  AgentLauncher& launcher() { return launcher_; }

 private:
  const TempFolder folder_;
  AgentLauncher launcher_;
  std::string place_, file_;
  pid_t starter_ = 0;
};

TEST(AgentKeys, StandInAFileOfThisUserAloneThatGoesWithLockstep) {
  std::string file;
  {
    Agents agents(1);
    file = agents.key_file();
    EXPECT_EQ(mode_of(file), 0600);
    EXPECT_EQ(key_in_file(file).size(), 32U);
  }
  EXPECT_EQ(key_in_file(file), "");
}

class AgentsUnderNonsense : public testing::TestWithParam<unsigned> {};

TEST_P(AgentsUnderNonsense, LoseWhoSaysItAndNobodyElse) {
  Nonsense nonsense(GetParam());
  int64_t before = 0;
  const int rounds = support::whole_or(10, 100);
  for (int round = 0; round < rounds; ++round) {
    Agents agents(2);
    const auto honest = agents.comes("n1"), other = agents.comes("n2");
    AgentLauncher& launcher = agents.launcher();
    const auto until_seen = [&](LauncherEvent::Kind kind, int rank) {
      for (const double until = monotonic_s() + kPatience_s; monotonic_s() < until;) {
        for (const LauncherEvent& each : launcher.poll(0.01)) {
          EXPECT_TRUE(!each.lost || each.rank >= 2) << each.rank;
          EXPECT_TRUE(each.rank >= -1 && each.rank < 4) << each.rank;
          if (each.kind == kind && each.rank == rank) return true;
        }
      }
      return false;
    };
    ASSERT_TRUE(until_seen(LauncherEvent::Kind::ready, -1));
    launcher.start({"a", "/nowhere", 4, 4});
    std::vector<std::string> said;
    for (const auto kind : {LauncherEvent::Kind::heartbeat, LauncherEvent::Kind::started, LauncherEvent::Kind::exit, LauncherEvent::Kind::node_lost}) {
      for (const int rank : {3, 2, 1, 1 << 30}) said.push_back(to_line(event_of(kind, rank)));
      for (std::string& each : said) each.erase(each.find_last_not_of('\n') + 1);
    }
    const auto stranger = connected(agents.port());
    for (int line = 0; line < 50; ++line) {
      stranger->send(nonsense.line("{\"key\":\"x\",\"node\":5}"));
      other->send(nonsense.line(said[static_cast<std::size_t>(nonsense.below(static_cast<int>(said.size())))]));
    }
    honest->send(to_line(event_of(LauncherEvent::Kind::exit, 0)) + to_line(event_of(LauncherEvent::Kind::exit, 1)));
    ASSERT_TRUE(until_seen(LauncherEvent::Kind::exit, 1)) << "round " << round;
    if (round == 1) before = resident_bytes();
  }
  EXPECT_LT(resident_bytes() - before, 16 << 20);
}

INSTANTIATE_TEST_SUITE_P(Seeds, AgentsUnderNonsense, testing::ValuesIn(support::whole_or(std::vector{1U}, std::vector{1U, 2U, 3U})));

TEST(AgentsThatLie, AreLostByARankThatTheyDoNotHold) {
  Agents agents(2);
  const auto honest = agents.comes("n1"), other = agents.comes("n2");
  AgentLauncher& launcher = agents.launcher();
  const double until = monotonic_s() + kPatience_s;
  bool ready = false;
  while (!ready && monotonic_s() < until) ready = !launcher.poll(0.01).empty();
  launcher.start({"a", "/nowhere", 4, 4});
  other->send(to_line(event_of(LauncherEvent::Kind::exit, 1 << 30)));
  std::vector<int> lost;
  std::string why;
  while (lost.size() < 2 && monotonic_s() < until) {
    for (const LauncherEvent& each : launcher.poll(0.01)) {
      if (each.kind == LauncherEvent::Kind::node_lost) why = each.message;
      if (each.lost) lost.push_back(each.rank);
    }
  }
  EXPECT_THAT(lost, testing::ElementsAre(2, 3));
  EXPECT_THAT(why, testing::AllOf(HasSubstr("node n2"), HasSubstr("said what no agent says"), HasSubstr("1073741824")));
}

/// A run of three ranks that is watched, and connections of theirs.
class HeartbeatServerTest : public testing::Test {
 protected:
  HeartbeatServerTest() { server_.expect(what_); }
  LineSocket connected() const {
    std::string problem;
    const int there = connected_within("127.0.0.1", read_watcher(folder_.path())->port, 5, problem);
    EXPECT_GE(there, 0) << problem;
    return LineSocket(there);
  }
  Watcher watcher() const { return *read_watcher(folder_.path()); }
  static LauncherEvent heartbeat_of(int rank, uint64_t changes) {
    LauncherEvent event;
    event.kind = LauncherEvent::Kind::heartbeat;
    event.run = "what it calls it";
    event.rank = rank;
    event.heartbeat.changes = changes;
    event.heartbeat.step = 4;
    event.heartbeat.operation = "forward";
    event.heartbeat.process = {'T', ""};
    return event;
  }
  /// Until something was told, or the connection's end was seen by the server.
  std::vector<LauncherEvent> heard(double most_s = 5) {
    std::vector<LauncherEvent> events;
    for (const double until = monotonic_s() + most_s; events.empty() && monotonic_s() < until; ::poll(nullptr, 0, 1)) events = server_.look(monotonic_s());
    return events;
  }
  bool hung_up_on(LineSocket& socket) {
    for (const double until = monotonic_s() + 5; monotonic_s() < until; ::poll(nullptr, 0, 1)) {
      EXPECT_TRUE(server_.look(monotonic_s()).empty());
      if (!socket.receive()) return true;
    }
    return false;
  }

  const TempFolder folder_;
  HeartbeatFile heartbeats_ = HeartbeatFile::create(folder_ / kHeartbeatFile, 3);
  const RankStart what_{"a", folder_.path(), 3, 3};
  HeartbeatServer server_;
};

TEST_F(HeartbeatServerTest, TellsWhatARankElsewhereHasReported) {
  LineSocket rank = connected();
  rank.send(desk_line(watcher(), 1));
  rank.send(to_line(heartbeat_of(1, 6)));
  const auto events = heard();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].run, "a");
  EXPECT_EQ(events[0].rank, 1);
  EXPECT_EQ(events[0].heartbeat.step, 4);
  EXPECT_EQ(events[0].heartbeat.operation, "forward");
  EXPECT_TRUE(events[0].heartbeat.process.stopped());
}

TEST_F(HeartbeatServerTest, TellsItWhatTheOthersHaveReportedAndNotWhatItHas) {
  LineSocket rank = connected();
  rank.send(desk_line(watcher(), 1));
  for (int other = 0; other < 3; ++other) heartbeats_.report(other, 7, "save");
  std::vector<int> told;
  for (const double until = monotonic_s() + 5; told.size() < 2 && monotonic_s() < until; ::poll(nullptr, 0, 1)) {
    server_.look(monotonic_s());
    rank.receive();
    while (const auto line = rank.line()) {
      const ParentCommand command = command_from_line(*line);
      EXPECT_EQ(command.op, ParentCommand::Op::heartbeat);
      EXPECT_EQ(command.heartbeat.step, 7);
      told.push_back(command.rank);
    }
  }
  EXPECT_THAT(told, testing::ElementsAre(0, 2));
}

TEST_F(HeartbeatServerTest, HangsUpOnStrangersAndOnWhoSpeaksForAnother) {
  Watcher wrong = watcher();
  wrong.key = "guessed";
  const std::vector<std::string> openings = {desk_line(wrong, 1), "no JSON\n", R"({"key": 7})" "\n", "[]\n", desk_line(watcher(), 3),
                                             desk_line(watcher(), 1) + "no heartbeat\n", desk_line(watcher(), 1) + to_line(heartbeat_of(2, 6)),
                                             desk_line(watcher(), 1) + to_line(LauncherEvent{})};
  for (const std::string& opening : openings) {
    LineSocket stranger = connected();
    stranger.send(opening);
    EXPECT_TRUE(hung_up_on(stranger)) << opening;
  }
}

TEST_F(HeartbeatServerTest, LeavesNothingOfARunThatIsOver) {
  LineSocket rank = connected();
  rank.send(desk_line(watcher(), 1));
  rank.send(to_line(heartbeat_of(1, 6)));
  EXPECT_EQ(heard().size(), 1U);
  HeartbeatFile::create(folder_ / heartbeats_of_rank(1), 3);
  server_.forget("a");
  EXPECT_FALSE(read_watcher(folder_.path()));
  EXPECT_FALSE(std::filesystem::exists(folder_ / heartbeats_of_rank(1)));
  EXPECT_TRUE(hung_up_on(rank));
}

}  // namespace
}  // namespace lockstep
