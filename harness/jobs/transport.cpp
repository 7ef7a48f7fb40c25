#include "harness/jobs/transport.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "harness/run/libraries.h"
#include "harness/trainers/comm/gloo.h"
#include "harness/trainers/comm/gpu_plugin.h"
#include "harness/verdict/config/field.h"

namespace lockstep {

int transport_main(const char* transport, const char* ranks) {
  const WordList words = words_of(Transport{});
  const auto found = std::ranges::find(words, transport);
  std::string problem;
  if (found == words.end())
    problem = std::string(transport) + " is none of gloo, nccl and gloo_cuda";
  else if (const auto kind = static_cast<Transport>(found - words.begin()); kind != Transport::gloo)
    problem = gpu_problem(kind, std::atoi(ranks));
  std::printf("%s\n", problem.empty() ? kTransportFine : problem.c_str());
  return problem.empty() ? 0 : 2;
}

std::unique_ptr<Comm> meet_over_transport(const RunConfig& config, const GlooOptions& options, int local_rank) {
  return config.transport == Transport::gloo ? make_gloo_comm(options) : make_gpu_comm(config.transport, options, local_rank);
}

void note_transport(const RunConfig& config, RankResult& result) {
  if (config.backend != Backend::gloo || config.layout.world_size == 1) return;
  result.transport = word_of(config.transport);
  result.certified_by = word_of(certified_here_by(config.transport));
}

}  // namespace lockstep
