// lockstep-rank: LibTorch is loaded once, here; the ranks are forked from this process before it has run any
// tensor.

#include "harness/rank/parent.h"
#include "harness/rank/rank_main.h"

int main(int argc, char** argv) {
  return lockstep::rank_program_main(
      argc, argv, "lockstep-rank " LOCKSTEP_VERSION " (LibTorch " LOCKSTEP_TORCH_VERSION ")",
      lockstep::rank_main);
}
