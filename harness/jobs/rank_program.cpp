#include "harness/jobs/rank_program.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "harness/base/errors.h"
#include "harness/jobs/parent.h"
#include "harness/jobs/started.h"
#include "harness/run/host.h"
#include "harness/run/launchers/local/launcher.h"
#include "harness/run/launchers/local/protocol.h"
#include "harness/run/launchers/slurm/agents.h"

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

/// lockstep-rank --agent HOST:PORT FILE: connects, says in one line who it is (harness/run/launchers/slurm/agents.h), with the key in the file, and serves
/// commands as serve_ranks does. Returns the exit status: 4 if nobody is there to connect to.
int agent_main(const std::string& place, const std::string& key_file, const RankProgram& program) {
  const std::size_t colon = place.rfind(':');
  const std::string key = key_in_file(key_file);
  if (colon == std::string::npos || key.empty()) {
    std::fprintf(stderr, "lockstep-rank: --agent takes HOST:PORT FILE, and the file holds a key that this user may read: %s\n", key_file.c_str());
    return kExitUsage;
  }
  const int there = connected_to(place.substr(0, colon), place.substr(colon + 1));
  if (there < 0) return kExitHung;
  set_side_channel(there);
  const std::string hello = to_line(introduce_agent(key));
  if (::send(there, hello.data(), hello.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(hello.size())) return kExitHung;
  return serve_ranks(there, program);
}

}  // namespace

int rank_program_main(int argc, char** argv, const char* description, const RankProgram& program) {
  open_standard_streams();
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    std::printf("%s\n", description);
    return 0;
  }
  if (const std::string problem = problem_of_surroundings(); !problem.empty()) {
    std::fprintf(stderr, "lockstep-rank: %s\n", problem.c_str());
    return kExitMachine;
  }
  if ((argc == 7 || argc == 8) && std::string_view(argv[1]) == kRankOption) {
    RankTask task{argv[3], std::atoi(argv[2]), std::strtod(argv[4], nullptr), kNotices};
    task.address = argv[5];
    task.heartbeats = argv[6];
    task.watched = task.heartbeats == kHeartbeatFile;
    if (argc == 8) task.local_rank = std::atoi(argv[7]);
    ::_exit(run_guarded(program.run, task));
  }
  if (argc >= 2 && (std::string_view(argv[1]) == "run" || std::string_view(argv[1]) == "--run")) return started_rank_main({argv + 2, argv + argc}, program.run);
  if (argc == 4 && std::string_view(argv[1]) == "--agent") {
    const sigset_t held = signals_of_a_job();
    ::sigprocmask(SIG_BLOCK, &held, nullptr);
    return agent_main(argv[2], argv[3], program);
  }
  char* end = nullptr;
  const long socket =
      argc == 3 && std::string_view(argv[1]) == "--socket" ? std::strtol(argv[2], &end, 10) : -1;
  if (socket < 0 || end == argv[2] || *end != '\0') {
    std::fprintf(stderr, "%s starts the ranks of lockstep and is started by it, or by torchrun, srun or mpirun: %s run FOLDER; see "
                 "lockstep --help\n", argv[0], argv[0]);
    return kExitUsage;
  }
  ::fcntl(static_cast<int>(socket), F_SETFD, FD_CLOEXEC);
  return serve_ranks(static_cast<int>(socket), program);
}

}  // namespace lockstep
