// lockstep-rank: LibTorch is loaded once, here; the ranks are forked from this process before it has run any
// tensor.

#include <string>
#include <string_view>

#include "harness/jobs/started.h"
#include "harness/jobs/train_job.h"
#include "harness/run/libraries.h"

/// jemalloc reads this where it is linked: pages once mapped are kept, since every step needs the last one's again. Given back and
/// mapped anew they were half the time of a step of 1,536 rows.
extern "C" {
[[gnu::visibility("default")]] const char* malloc_conf = "dirty_decay_ms:-1";
}

namespace {

std::string description() {
  const std::string program = lockstep::program_path();
  return "lockstep-rank " LOCKSTEP_VERSION " (" + lockstep::commit_of_rank_program(program) + ", LibTorch " +
         lockstep::libtorch_version(program) + ")";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == lockstep::kTransportOption) return lockstep::transport_main(argv[2], argv[3]);
  return lockstep::rank_program_main(argc, argv, description().c_str(), {lockstep::run_job, lockstep::prepare_job});
}
