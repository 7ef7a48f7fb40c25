#include "harness/jobs/jobs.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/base/files.h"
#include "harness/jobs/orders/collectives.h"
#include "harness/trainers/comm/collective_bench.h"

namespace lockstep {

int collectives_job(const RankTask& task, const nlohmann::json& run) {
  constexpr double kTimeout_s = 20;
  const auto order = run.at("collectives").get<collectives::Order>();
  at::set_num_threads(1);
  const int rank = std::max(task.rank, 0);
  std::vector<collectives::Answer> answers;
  const auto bench_with = [&](bool as_pytorch) {
    GlooOptions options{task.run_dir + "/" + task.store + (as_pytorch ? "-pytorch" : ""), rank, order.world, task.address, kTimeout_s};
    options.as_pytorch = as_pytorch;
    options.meet = task.meet;
    return std::make_unique<CollectiveBench>(options);
  };
  std::array<std::unique_ptr<CollectiveBench>, 2> benches;  // made when they are first asked for
  for (const collectives::Ask& ask : order.asks) {
    const bool spoils = rank == order.wrong_rank && answers.empty();
    std::unique_ptr<CollectiveBench>& bench = benches[ask.as_pytorch ? 1 : 0];
    if (bench == nullptr) bench = bench_with(ask.as_pytorch);
    const CollectiveTiming timing = bench->time(ask.collective, ask.count, ask.calls, spoils ? order.wrong_element : -1);
    answers.push_back({timing.seconds, timing.wrong, timing.first_wrong, timing.got, timing.expected, timing.error});
  }
  write_file_atomically(task.run_dir + "/rank-" + std::to_string(rank) + ".collectives.json", nlohmann::json(answers).dump() + "\n");
  end_rank(task, order.world);
}

}  // namespace lockstep
