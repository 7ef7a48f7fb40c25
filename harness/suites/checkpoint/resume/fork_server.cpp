#include "harness/suites/checkpoint/resume/fork_server.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>

#include "harness/base/errors.h"

namespace lockstep::resume {
namespace {

/// All bytes, or false: the other end is gone.
bool send_all(int socket, const char* bytes, std::size_t count) {
  for (std::size_t sent = 0; sent < count;) {
    const ssize_t got = ::send(socket, bytes + sent, count - sent, MSG_NOSIGNAL);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    sent += static_cast<std::size_t>(got);
  }
  return true;
}

bool receive_all(int socket, char* bytes, std::size_t count) {
  for (std::size_t received = 0; received < count;) {
    const ssize_t got = ::recv(socket, bytes + received, count - received, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    received += static_cast<std::size_t>(got);
  }
  return true;
}

bool send_text(int socket, const std::string& text) {
  const std::size_t size = text.size();
  return send_all(socket, reinterpret_cast<const char*>(&size), sizeof size) && send_all(socket, text.data(), size);
}

bool receive_text(int socket, std::string& text) {
  std::size_t size = 0;
  if (!receive_all(socket, reinterpret_cast<char*>(&size), sizeof size)) return false;
  text.resize(size);
  return receive_all(socket, text.data(), size);
}

[[noreturn]] void serve_forever(int socket, const ForkServer::Serve& serve) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Whoever stops the suite closes the socket; a terminal's Ctrl-C comes here as well.
  std::signal(SIGINT, SIG_IGN);
  std::string request;
  try {
    while (receive_text(socket, request)) {
      if (!send_text(socket, serve(request))) break;
    }
  } catch (const std::exception& error) {
    const std::string line = fmt::format("a fork server's process ends: {}\n", error.what());
    if (::write(STDERR_FILENO, line.data(), line.size()) < 0) ::_exit(2);
    ::_exit(1);
  }
  ::_exit(0);
}

}  // namespace

ForkServer::ForkServer(const Serve& serve) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    throw MachineError(fmt::format("no socket for a fork server: {}", std::strerror(errno)));
  process_ = ::fork();
  if (process_ < 0) throw MachineError(fmt::format("no process for a fork server: {}", std::strerror(errno)));
  if (process_ == 0) {
    ::close(pair[0]);
    serve_forever(pair[1], serve);
  }
  ::close(pair[1]);
  socket_ = pair[0];
}

ForkServer::~ForkServer() {
  // Fork servers that were forked later have a copy of this end, too: to close it would tell nobody.
  ::shutdown(socket_, SHUT_RDWR);
  ::close(socket_);
  if (process_ > 0) {
    while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

std::string ForkServer::ask(const std::string& request) {
  std::string answer;
  if (!send_text(socket_, request) || !receive_text(socket_, answer))
    throw MachineError(fmt::format("the process of a fork server has ended in trial {}", request));
  return answer;
}

}  // namespace lockstep::resume
