#include "harness/rank/collective_ranks.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/base/atomic_file.h"
#include "harness/collectives/order.h"
#include "harness/comm/collective_bench.h"

namespace lockstep {

int play_collectives(const RankTask& task, const nlohmann::json& section) {
  constexpr double kTimeout_s = 20;
  const auto order = section.get<collectives::Order>();
  at::set_num_threads(1);
  const int rank = std::max(task.rank, 0);
  std::vector<collectives::Answer> answers;
  CollectiveBench bench({task.run_dir + "/" + task.store, rank, order.world, task.address, kTimeout_s, task.meet});
  for (const collectives::Ask& ask : order.asks) {
    const bool spoils = rank == order.wrong_rank && answers.empty();
    const CollectiveTiming timing = bench.time(ask.collective, ask.count, ask.calls, spoils ? order.wrong_element : -1);
    answers.push_back({timing.seconds, timing.wrong, timing.first_wrong, timing.got, timing.expected, timing.error});
  }
  write_file_atomically(task.run_dir + "/rank-" + std::to_string(rank) + ".collectives.json", nlohmann::json(answers).dump() + "\n");
  std::fflush(nullptr);
  // Connections and threads of Gloo end with the process.
  ::_exit(0);
}

}  // namespace lockstep
