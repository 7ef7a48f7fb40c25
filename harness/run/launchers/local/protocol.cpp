#include "harness/run/launchers/local/protocol.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string_view>
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

/// In the order of their enumerators.
constexpr std::array<std::string_view, 5> kOps{"start", "kill", "tell", "beat", "quit"};
constexpr std::array<std::string_view, 7> kEvents{"ready", "started", "exit", "refused", "signal", "beat", "node_lost"};

template <class T, class Kind>
std::string line_of(const T& value, const char* key, Kind kind, std::span<const std::string_view> words) {
  json message = {{key, words[static_cast<std::size_t>(kind)]}};
  put_members(message, value);
  return message.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

template <class T, class Kind>
T read_line(const std::string& line, const char* key, Kind T::*kind, std::span<const std::string_view> words) {
  const json object = parse_json(line);
  if (!object.is_object()) refuse(line, "not a JSON object");
  const JsonFields<> fields(object, "the message '" + line.substr(0, kShown_bytes) + "'");
  const auto word = std::ranges::find(words, fields.at<std::string>(key));
  if (word == words.end()) refuse(line, std::string("unknown ") + key);
  T value;
  value.*kind = static_cast<Kind>(word - words.begin());
  take_members(value, fields, Lacking::refused);
  return value;
}

}  // namespace

std::string to_line(const ParentCommand& command) { return line_of(command, "op", command.op, kOps); }
std::string to_line(const LauncherEvent& event) { return line_of(event, "event", event.kind, kEvents); }

ParentCommand command_from_line(const std::string& line) {
  ParentCommand command = read_line(line, "op", &ParentCommand::op, kOps);
  const bool counts_fit = command.processes == 1 || command.processes == command.world_size;
  if (command.world_size < 1 || !counts_fit) refuse(line, "'processes' is neither 1 nor the world's size");
  if (command.first < 0 || command.here < 0 || command.first > command.processes || command.here > command.processes - command.first)
    refuse(line, "'first' and 'here' are none of its processes");
  return command;
}

LauncherEvent event_from_line(const std::string& line) {
  LauncherEvent event = read_line(line, "event", &LauncherEvent::kind, kEvents);
  if (event.signal < 0 || event.signal >= NSIG) refuse(line, "there is no such signal");
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
