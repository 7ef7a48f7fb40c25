#include "harness/rank/agent.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "harness/base/exit_codes.h"
#include "harness/launch/local/protocol.h"
#include "harness/launch/slurm/hello.h"
#include "harness/rank/parent.h"

namespace lockstep {
namespace {

int connected_to(const std::string& host, const std::string& port) {
  addrinfo wanted{};
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &wanted, &found)) {
    std::fprintf(stderr, "lockstep-rank: %s: %s\n", host.c_str(), ::gai_strerror(error));
    return -1;
  }
  const int there = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected = there >= 0 && ::connect(there, found->ai_addr, found->ai_addrlen) == 0;
  ::freeaddrinfo(found);
  if (connected) return there;
  std::fprintf(stderr, "lockstep-rank: cannot reach lockstep at %s:%s: %s; set LOCKSTEP_ADDRESS where it runs to an address that "
               "this node sees\n", host.c_str(), port.c_str(), std::strerror(errno));
  ::close(there);
  return -1;
}

}  // namespace

int agent_main(const std::string& place, const std::string& key, const std::function<int(const RankTask&)>& run_rank) {
  const std::size_t colon = place.rfind(':');
  if (colon == std::string::npos) {
    std::fprintf(stderr, "lockstep-rank: --agent takes HOST:PORT KEY\n");
    return kUsage;
  }
  const int there = connected_to(place.substr(0, colon), place.substr(colon + 1));
  if (there < 0) return kHung;
  set_side_channel(there);
  const std::string hello = to_line(introduce_agent(key));
  if (::send(there, hello.data(), hello.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(hello.size())) return kHung;
  return serve_ranks(there, run_rank, true);
}

}  // namespace lockstep
