#include "harness/rank/rank_program.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "harness/base/exit_codes.h"
#include "harness/launch/local/standard_streams.h"
#include "harness/rank/agent.h"
#include "harness/rank/parent.h"
#include "harness/rank/started.h"

namespace lockstep {
int rank_program_main(int argc, char** argv, const char* description,
                      const std::function<int(const RankTask&)>& run_rank) {
  open_standard_streams();
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    std::printf("%s\n", description);
    return 0;
  }
  if ((argc == 7 || argc == 8) && std::string_view(argv[1]) == kRankOption) {
    RankTask task{argv[3], std::atoi(argv[2]), std::strtod(argv[4], nullptr), kNotices};
    task.address = argv[5];
    task.beats = argv[6];
    if (argc == 8) task.local_rank = std::atoi(argv[7]);
    ::_exit(run_guarded(run_rank, task));
  }
  if (argc >= 2 && (std::string_view(argv[1]) == "run" || std::string_view(argv[1]) == "--run")) return started_rank_main({argv + 2, argv + argc}, run_rank);
  if (argc == 4 && std::string_view(argv[1]) == "--agent") return agent_main(argv[2], argv[3], run_rank);
  char* end = nullptr;
  const long socket =
      argc == 3 && std::string_view(argv[1]) == "--socket" ? std::strtol(argv[2], &end, 10) : -1;
  if (socket < 0 || end == argv[2] || *end != '\0') {
    std::fprintf(stderr, "%s starts the ranks of lockstep and is started by it, or by torchrun, srun or mpirun: %s run FOLDER; see "
                 "lockstep --help\n", argv[0], argv[0]);
    return kUsage;
  }
  ::fcntl(static_cast<int>(socket), F_SETFD, FD_CLOEXEC);
  return serve_ranks(static_cast<int>(socket), run_rank);
}

}  // namespace lockstep
