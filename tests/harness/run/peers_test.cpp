// What peers may do to lockstep: the ports that it opens, by those who know the key and by those who do not. Each seed is one sequence of lines.

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "harness/base/hashing.h"
#include "harness/base/machine.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/launchers/slurm/agents.h"
#include "tests/support/temp_folder.h"
#include "tests/support/whole.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

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

}  // namespace
}  // namespace lockstep
