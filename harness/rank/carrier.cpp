#include "harness/rank/carrier.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "harness/comm/gloo.h"
#include "harness/comm/gpu_plugin.h"
#include "harness/config/field.h"
#include "harness/launch/carrier_check.h"

namespace lockstep {

int carrier_main(const char* carrier, const char* ranks) {
  const WordList words = words_of(Carrier{});
  const auto found = std::ranges::find(words, carrier);
  std::string problem;
  if (found == words.end())
    problem = std::string(carrier) + " is none of gloo, nccl and gloo_cuda";
  else if (const auto kind = static_cast<Carrier>(found - words.begin()); kind != Carrier::gloo)
    problem = gpu_problem(kind, std::atoi(ranks));
  std::printf("%s\n", problem.empty() ? kCarrierFine : problem.c_str());
  return problem.empty() ? 0 : 2;
}

std::unique_ptr<Comm> meet_over_carrier(const RunConfig& config, const GlooOptions& options, int local_rank) {
  return config.carrier == Carrier::gloo ? make_gloo_comm(options) : make_gpu_comm(config.carrier, options, local_rank);
}

void note_carrier(const RunConfig& config, RankResult& result) {
  if (config.backend != Backend::gloo || config.layout.world_size == 1) return;
  result.carrier = word_of(config.carrier);
  result.certified_by = word_of(certified_here_by(config.carrier));
}

}  // namespace lockstep
