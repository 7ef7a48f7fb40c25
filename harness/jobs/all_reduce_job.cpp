#include <ATen/Parallel.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/base/files.h"
#include "harness/jobs/train_job.h"
#include "harness/trainers/comm/all_reduce.h"
#include "harness/trainers/comm/gloo.h"

namespace lockstep {

int all_reduce_job(const RankTask& task, const nlohmann::json& run) {
  constexpr double kTimeout_s = 60;
  at::set_num_threads(1);
  const nlohmann::json& order = run.at("all_reduce");
  const int rank = std::max(task.rank, 0), world = order.at("ranks").get<int>();
  GlooOptions options{task.run_dir + "/" + task.store, rank, world, task.address, kTimeout_s};
  options.meet = task.meet;
  const std::unique_ptr<Comm> comm = make_gloo_comm(options);
  std::vector<all_reduce::Answer> answers;
  for (const auto& ask : order.at("asks").get<std::vector<all_reduce::Ask>>())
    answers.push_back(all_reduce::answer_to(ask, *comm));
  write_file_atomically(all_reduce::answer_file(task.run_dir, rank), nlohmann::json(answers).dump() + "\n");
  end_rank(task, world);
}

}  // namespace lockstep
