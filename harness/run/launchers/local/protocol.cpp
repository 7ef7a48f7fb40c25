#include "harness/run/launchers/local/protocol.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/base/json_text.h"

namespace lockstep {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& line, const std::string& why) {
  throw std::runtime_error("cannot understand the message '" + line + "': " + why);
}

json parse(const std::string& line) {
  json message = parse_json(line);
  if (!message.is_object()) refuse(line, "not a JSON object");
  return message;
}

template <class T>
T field(const json& message, const char* key, const std::string& line) {
  const auto found = message.find(key);
  if (found == message.end()) refuse(line, std::string("no '") + key + "'");
  if constexpr (std::is_same_v<T, std::string>) {
    if (!found->is_string()) refuse(line, std::string("'") + key + "' is not a string");
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!found->is_boolean()) refuse(line, std::string("'") + key + "' is neither true nor false");
  } else if constexpr (std::is_arithmetic_v<T>) {
    if (!found->is_number()) refuse(line, std::string("'") + key + "' is not a number");
  } else {
    if (!found->is_array()) refuse(line, std::string("'") + key + "' is not a list");
  }
  return found->get<T>();
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

HeartbeatNote read_heartbeat(const json& message, const std::string& line) {
  HeartbeatNote heartbeat;
  heartbeat.step = field<int64_t>(message, "step", line);
  heartbeat.changes = field<uint64_t>(message, "changes", line);
  heartbeat.operation = field<std::string>(message, "operation", line);
  heartbeat.resident_bytes = field<int64_t>(message, "resident", line);
  heartbeat.shown = field<uint64_t>(message, "shown", line);
  const auto entered = field<std::vector<uint64_t>>(message, "entered", line);
  const auto times = field<std::vector<double>>(message, "times", line);
  const auto state = field<std::string>(message, "state", line);
  if (entered.size() != kHeartbeatGroups || times.size() != 4 || state.size() != 1) refuse(line, "no heartbeat");
  std::copy(entered.begin(), entered.end(), heartbeat.entered.begin());
  heartbeat.process = {state[0], field<std::string>(message, "waits_in", line)};
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
  const json message = parse(line);
  const auto op = field<std::string>(message, "op", line);
  ParentCommand command;
  if (op == "start") {
    command.op = ParentCommand::Op::start;
    command.run = field<std::string>(message, "run", line);
    command.dir = field<std::string>(message, "dir", line);
    command.world_size = field<int>(message, "world", line);
    command.processes = field<int>(message, "processes", line);
    command.command_started = field<double>(message, "command_started", line);
    command.executed = field<bool>(message, "executed", line);
    command.first = message.value("first", 0);
    command.here = message.value("here", 0);
    command.address = message.value("address", "");
    command.heartbeats = message.value("beats", kHeartbeatFile);
    const bool counts_fit = command.processes == 1 || command.processes == command.world_size;
    if (command.world_size < 1 || !counts_fit) refuse(line, "'processes' is neither 1 nor the world's size");
  } else if (op == "kill") {
    command.op = ParentCommand::Op::kill;
    command.run = field<std::string>(message, "run", line);
    command.signal = field<int>(message, "signal", line);
  } else if (op == "tell") {
    command.op = ParentCommand::Op::tell;
    command.run = field<std::string>(message, "run", line);
    command.why = field<std::string>(message, "why", line);
  } else if (op == "beat") {
    command.op = ParentCommand::Op::heartbeat;
    command.run = field<std::string>(message, "run", line);
    command.rank = field<int>(message, "rank", line);
    command.heartbeat = read_heartbeat(message, line);
  } else if (op == "quit") {
    command.op = ParentCommand::Op::quit;
  } else {
    refuse(line, "unknown op");
  }
  return command;
}

LauncherEvent event_from_line(const std::string& line) {
  const json message = parse(line);
  const auto kind = field<std::string>(message, "event", line);
  LauncherEvent event;
  if (kind == "ready") return event;
  event.run = field<std::string>(message, "run", line);
  if (kind == "started") {
    event.kind = LauncherEvent::Kind::started;
    event.pids = field<std::vector<int>>(message, "pids", line);
  } else if (kind == "exit") {
    event.kind = LauncherEvent::Kind::exit;
    event.rank = field<int>(message, "rank", line);
    if (message.contains("signal"))
      event.signal = field<int>(message, "signal", line);
    else
      event.code = field<int>(message, "code", line);
  } else if (kind == "signal") {
    event.kind = LauncherEvent::Kind::told_to_stop;
    event.signal = field<int>(message, "signal", line);
  } else if (kind == "beat") {
    event.kind = LauncherEvent::Kind::heartbeat;
    event.rank = field<int>(message, "rank", line);
    event.heartbeat = read_heartbeat(message, line);
  } else if (kind == "node_lost") {
    event.kind = LauncherEvent::Kind::node_lost;
    event.message = field<std::string>(message, "message", line);
  } else if (kind == "refused") {
    event.kind = LauncherEvent::Kind::refused;
    event.message = field<std::string>(message, "message", line);
  } else {
    refuse(line, "unknown event");
  }
  return event;
}

LineSocket::~LineSocket() { ::close(descriptor_); }

bool LineSocket::send(const std::string& line) {
  std::size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = ::send(descriptor_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

bool LineSocket::takes_more() const {
  pollfd look{descriptor_, POLLOUT, 0};
  return ::poll(&look, 1, 0) == 1 && (look.revents & POLLOUT) != 0;
}

bool LineSocket::receive() {
  char block[4096];
  for (;;) {
    const ssize_t n = ::recv(descriptor_, block, sizeof block, MSG_DONTWAIT);
    if (n > 0) {
      buffer_.append(block, static_cast<std::size_t>(n));
      continue;
    }
    if (n == 0) return false;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK;
  }
}

std::optional<std::string> LineSocket::line() {
  const std::size_t end = buffer_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string result = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return result;
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
