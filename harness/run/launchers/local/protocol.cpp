#include "harness/run/launchers/local/protocol.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/run/job_queue.h"

namespace lockstep {
namespace {

using nlohmann::json;

/// Of what a peer has sent, before others are looked at.
constexpr std::size_t kMostAtOnce_bytes = 64 << 10;
/// A hello says host, node, build and processor.
constexpr std::size_t kMostOfAFirstLine_bytes = 16 << 10;
/// Who is to be let in speaks when it has connected; a network may lose that and send it again.
constexpr double kFirstLineWithin_s = 5, kSpeaksAtOnce_s = 0.5;
/// For lockstep, which other ranks and the user wait for.
constexpr double kTakesWithin_s = 2;
constexpr std::size_t kMostStrangers = 64;

struct PortRange {
  int from = 0, to = 0;  ///< 0: of the system's choice
};

/// By $LOCKSTEP_PORTS. Throws MachineError if it is no range.
PortRange chosen_ports() {
  const char* const text = std::getenv("LOCKSTEP_PORTS");
  if (text == nullptr || *text == '\0') return {};
  PortRange range;
  char rest = 0;
  if (std::sscanf(text, "%d-%d%c", &range.from, &range.to, &rest) == 2 && 0 < range.from && range.from <= range.to && range.to < 65536) return range;
  throw MachineError(fmt::format("LOCKSTEP_PORTS={} is no range of ports; write it as 20000-20099", text));
}

constexpr std::size_t kShown_bytes = 200;

[[noreturn]] void refuse(const std::string& line, const std::string& why) {
  throw std::runtime_error("cannot understand the message '" + line.substr(0, kShown_bytes) + "': " + why);
}

/// The fields of a message, and what is wrong with one of them: `line` is quoted.
struct Message {
  explicit Message(const std::string& text) : line(text), object(parse_json(text)) {
    if (!object.is_object()) refuse(line, "not a JSON object");
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  template <class T>
  T field(const char* key) const {
    return fields.at<T>(key);
  }
  const std::string& line;
  const json object;
  const JsonFields<> fields{object, "the message '" + line.substr(0, kShown_bytes) + "'"};
};

/// One of the kernel's, or 0.
int signal_in(const Message& message) {
  const int signal = message.field<int>("signal");
  if (signal < 0 || signal >= NSIG) refuse(message.line, "there is no such signal");
  return signal;
}

json heartbeat_json(const std::string& run, int rank, const HeartbeatNote& heartbeat) {
  const ProcessState& process = heartbeat.process;
  return {{"run", run},
          {"rank", rank},
          {"step", heartbeat.step},
          {"changes", heartbeat.changes},
          {"operation", heartbeat.operation},
          {"entered", heartbeat.entered},
          {"resident", heartbeat.resident_bytes},
          {"shown", heartbeat.shown},
          {"state", std::string(1, process.state)},
          {"times", {heartbeat.times.ran_s, heartbeat.times.without_core_s, heartbeat.times.all_without_core_s, heartbeat.times.all_ran_s}},
          {"waits_in", process.waits_in}};
}

HeartbeatNote read_heartbeat(const Message& message) {
  HeartbeatNote heartbeat;
  heartbeat.step = message.field<int64_t>("step");
  heartbeat.changes = message.field<uint64_t>("changes");
  heartbeat.operation = message.field<std::string>("operation");
  heartbeat.resident_bytes = message.field<int64_t>("resident");
  heartbeat.shown = message.field<uint64_t>("shown");
  const auto entered = message.field<std::vector<uint64_t>>("entered");
  const auto times = message.field<std::vector<double>>("times");
  const auto state = message.field<std::string>("state");
  if (entered.size() != kHeartbeatGroups || times.size() != 4 || state.size() != 1) refuse(message.line, "no heartbeat");
  std::copy(entered.begin(), entered.end(), heartbeat.entered.begin());
  heartbeat.process = {state[0], message.field<std::string>("waits_in")};
  heartbeat.times = {times[0], times[1], times[2], times[3]};
  return heartbeat;
}

}  // namespace

std::string to_line(const ParentCommand& command) {
  json message;
  switch (command.op) {
    case ParentCommand::Op::start:
      message = {{"op", "start"},
                 {"run", command.run},
                 {"dir", command.dir},
                 {"world", command.world_size},
                 {"processes", command.processes},
                 {"executed", command.executed},
                 {"first", command.first},
                 {"here", command.here},
                 {"address", command.address},
                 {"beats", command.heartbeats},
                 {"command_started", command.command_started}};
      break;
    case ParentCommand::Op::kill:
      message = {{"op", "kill"}, {"run", command.run}, {"signal", command.signal}};
      break;
    case ParentCommand::Op::tell:
      message = {{"op", "tell"}, {"run", command.run}, {"why", command.why}};
      break;
    case ParentCommand::Op::heartbeat:
      message = heartbeat_json(command.run, command.rank, command.heartbeat);
      message["op"] = "beat";
      break;
    case ParentCommand::Op::quit:
      message = {{"op", "quit"}};
      break;
  }
  return message.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string to_line(const LauncherEvent& event) {
  json message;
  switch (event.kind) {
    case LauncherEvent::Kind::ready:
      message = {{"event", "ready"}};
      break;
    case LauncherEvent::Kind::started:
      message = {{"event", "started"}, {"run", event.run}, {"pids", event.pids}};
      break;
    case LauncherEvent::Kind::exit:
      message = {{"event", "exit"}, {"run", event.run}, {"rank", event.rank}};
      if (event.signal != 0)
        message["signal"] = event.signal;
      else
        message["code"] = event.code;
      break;
    case LauncherEvent::Kind::told_to_stop:
      message = {{"event", "signal"}, {"run", event.run}, {"signal", event.signal}};
      break;
    case LauncherEvent::Kind::heartbeat:
      message = heartbeat_json(event.run, event.rank, event.heartbeat);
      message["event"] = "beat";
      break;
    case LauncherEvent::Kind::node_lost:
      message = {{"event", "node_lost"}, {"run", event.run}, {"message", event.message}};
      break;
    case LauncherEvent::Kind::refused:
      message = {{"event", "refused"}, {"run", event.run}, {"message", event.message}};
      break;
  }
  return message.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

ParentCommand command_from_line(const std::string& line) {
  const Message message(line);
  const auto op = message.field<std::string>("op");
  ParentCommand command;
  if (op == "start") {
    command.op = ParentCommand::Op::start;
    command.run = message.field<std::string>("run");
    command.dir = message.field<std::string>("dir");
    command.world_size = message.field<int>("world");
    command.processes = message.field<int>("processes");
    command.command_started = message.field<double>("command_started");
    command.executed = message.field<bool>("executed");
    command.first = message.fields.value("first", 0);
    command.here = message.fields.value("here", 0);
    command.address = message.fields.value("address", "");
    command.heartbeats = message.fields.value("beats", kHeartbeatFile);
    const bool counts_fit = command.processes == 1 || command.processes == command.world_size;
    if (command.world_size < 1 || !counts_fit) refuse(line, "'processes' is neither 1 nor the world's size");
    if (command.first < 0 || command.here < 0 || command.first > command.processes || command.here > command.processes - command.first)
      refuse(line, "'first' and 'here' are none of its processes");
  } else if (op == "kill") {
    command.op = ParentCommand::Op::kill;
    command.run = message.field<std::string>("run");
    command.signal = message.field<int>("signal");
  } else if (op == "tell") {
    command.op = ParentCommand::Op::tell;
    command.run = message.field<std::string>("run");
    command.why = message.field<std::string>("why");
  } else if (op == "beat") {
    command.op = ParentCommand::Op::heartbeat;
    command.run = message.field<std::string>("run");
    command.rank = message.field<int>("rank");
    command.heartbeat = read_heartbeat(message);
  } else if (op == "quit") {
    command.op = ParentCommand::Op::quit;
  } else {
    refuse(line, "unknown op");
  }
  return command;
}

LauncherEvent event_from_line(const std::string& line) {
  const Message message(line);
  const auto kind = message.field<std::string>("event");
  LauncherEvent event;
  if (kind == "ready") return event;
  event.run = message.field<std::string>("run");
  if (kind == "started") {
    event.kind = LauncherEvent::Kind::started;
    event.pids = message.field<std::vector<int>>("pids");
  } else if (kind == "exit") {
    event.kind = LauncherEvent::Kind::exit;
    event.rank = message.field<int>("rank");
    if (message.fields.has("signal"))
      event.signal = signal_in(message);
    else
      event.code = message.field<int>("code");
  } else if (kind == "signal") {
    event.kind = LauncherEvent::Kind::told_to_stop;
    event.signal = signal_in(message);
  } else if (kind == "beat") {
    event.kind = LauncherEvent::Kind::heartbeat;
    event.rank = message.field<int>("rank");
    event.heartbeat = read_heartbeat(message);
  } else if (kind == "node_lost") {
    event.kind = LauncherEvent::Kind::node_lost;
    event.message = message.field<std::string>("message");
  } else if (kind == "refused") {
    event.kind = LauncherEvent::Kind::refused;
    event.message = message.field<std::string>("message");
  } else {
    refuse(line, "unknown event");
  }
  return event;
}

LineSocket::~LineSocket() { ::close(descriptor_); }

bool LineSocket::send(const std::string& line) {
  const double until = monotonic_s() + takes_within_s_;
  std::size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = ::send(descriptor_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent += static_cast<std::size_t>(n);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
    pollfd room{descriptor_, POLLOUT, 0};
    const double left_s = until - monotonic_s();
    if (left_s <= 0) {
      ::shutdown(descriptor_, SHUT_RDWR);  // half a line is worth nothing: the next look finds it gone
      return false;
    }
    ::poll(&room, 1, static_cast<int>(std::min(left_s, 60.0) * 1000) + 1);
  }
  return true;
}

bool LineSocket::takes_more() const {
  pollfd look{descriptor_, POLLOUT, 0};
  return ::poll(&look, 1, 0) == 1 && (look.revents & POLLOUT) != 0;
}

bool LineSocket::receive(std::size_t most_of_a_line) {
  buffer_.erase(0, std::exchange(taken_, 0));
  char block[4096];
  for (std::size_t received = 0; received < kMostAtOnce_bytes;) {
    const ssize_t n = ::recv(descriptor_, block, sizeof block, MSG_DONTWAIT);
    if (n == 0) return false;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    const std::string_view bytes(block, static_cast<std::size_t>(n));
    buffer_ += bytes;
    received += bytes.size();
    const std::size_t end = bytes.rfind('\n');
    unfinished_ = end == std::string_view::npos ? unfinished_ + bytes.size() : bytes.size() - end - 1;
    if (unfinished_ > most_of_a_line) return false;
  }
  return true;
}

std::optional<std::string> LineSocket::line() {
  const std::size_t end = buffer_.find('\n', taken_);
  if (end == std::string::npos) return std::nullopt;
  std::string result = buffer_.substr(taken_, end - taken_);
  taken_ = end + 1;
  return result;
}

Door::Door(Reach reach) : reach_(reach), key_(random_hex()) { listen(); }

Door::~Door() { ::close(listening_); }

void Door::listen() {
  listening_ = listening_socket(port_, reach_);
  ::fcntl(listening_, F_SETFL, O_NONBLOCK);
}

bool Door::open_to_hosts() {
  if (reach_ == Reach::all_hosts) return false;
  reach_ = Reach::all_hosts;
  ::close(listening_);
  listen();
  return true;
}

void Door::add_to(std::vector<pollfd>& wait) const {
  if (strangers_.size() < kMostStrangers) wait.push_back({listening_, POLLIN, 0});
  for (const Stranger& each : strangers_) wait.push_back({each.socket->descriptor(), POLLIN, 0});
}

void Door::let_in(double now) {
  // A full room: who has had the time to speak and has not makes place. All others wait in the kernel.
  if (strangers_.size() == kMostStrangers && now - strangers_.front().came_at > kSpeaksAtOnce_s) strangers_.erase(strangers_.begin());
  while (strangers_.size() < kMostStrangers) {
    const int there = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
    if (there < 0) return;
    set_side_channel(there);
    strangers_.push_back({std::make_unique<LineSocket>(there, kTakesWithin_s), now});
  }
}

std::vector<Door::Guest> Door::look(double now) {
  let_in(now);
  std::vector<Guest> guests;
  std::erase_if(strangers_, [&](Stranger& each) {
    const bool there = each.socket->receive(kMostOfAFirstLine_bytes);
    const std::optional<std::string> line = each.socket->line();
    if (!line) return !there || now - each.came_at > kFirstLineWithin_s;
    if (line->size() > kMostOfAFirstLine_bytes) return true;
    const json hello = parse_json(*line);
    const auto said = hello.is_object() && hello.contains("key") ? json_as<std::string>(hello["key"]) : std::nullopt;
    if (said && same_secret(*said, key_)) guests.push_back({std::move(each.socket), *line});
    return true;
  });
  return guests;
}

int listening_socket(int& port, Reach reach) {
  const PortRange range = chosen_ports();
  for (port = range.from; port <= range.to; ++port) {
    // One socket for each try: two that bind the same port learn of it only when they listen.
    const int listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    if (range.from > 0) ::setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(static_cast<uint16_t>(port));
    any.sin_addr.s_addr = htonl(reach == Reach::this_host ? INADDR_LOOPBACK : INADDR_ANY);
    socklen_t size = sizeof any;
    auto* const address = reinterpret_cast<sockaddr*>(&any);
    if (listening >= 0 && ::bind(listening, address, size) == 0 && ::listen(listening, SOMAXCONN) == 0 && ::getsockname(listening, address, &size) == 0) {
      port = ntohs(any.sin_port);
      return listening;
    }
    const int error = errno;
    if (listening >= 0) ::close(listening);
    if (error != EADDRINUSE) throw MachineError(std::string("cannot listen for the other ranks: ") + std::strerror(error));
  }
  throw MachineError(fmt::format("cannot listen for the other ranks: no port of LOCKSTEP_PORTS={}-{} is free on {}; give it more ports", range.from, range.to, this_host().host));
}

int connected_within(const std::string& address, int port, double deadline_s, std::string& problem) {
  sockaddr_in there{};
  there.sin_family = AF_INET;
  there.sin_port = htons(static_cast<uint16_t>(port));
  if (::inet_pton(AF_INET, address.c_str(), &there.sin_addr) != 1) {
    problem = "no IPv4 address";
    return -1;
  }
  const int connection = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  int error = 0;
  if (::connect(connection, reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      pollfd wait{connection, POLLOUT, 0};
      socklen_t size = sizeof error;
      if (::poll(&wait, 1, static_cast<int>(deadline_s * 1000)) <= 0)
        error = ETIMEDOUT;
      else
        ::getsockopt(connection, SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  if (error == 0) {
    ::fcntl(connection, F_SETFL, ::fcntl(connection, F_GETFL) & ~O_NONBLOCK);
    return connection;
  }
  ::close(connection);
  problem = std::strerror(error);
  return -1;
}

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGUSR1}) sigaddset(&set, number);
  return set;
}

sigset_t signals_of_a_job() {
  sigset_t set = stop_signals();
  for (const int number : {SIGINT, SIGHUP}) sigaddset(&set, number);
  return set;
}

void set_side_channel(int connected) {
  const int on = 1, idle_s = 4, between_s = 2, times = 3, unanswered_ms = 10'000;
  ::setsockopt(connected, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(connected, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(connected, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(connected, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
  ::setsockopt(connected, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
  ::setsockopt(connected, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

}  // namespace lockstep
