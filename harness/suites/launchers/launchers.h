#pragma once
// The suite of launchers: which rank every process of a job takes itself for by what torchrun, Slurm, Open MPI, PMI,
// Kubernetes or lockstep's own launcher tells it, and which GPU it takes. Nothing is started: their words are.

#include "harness/suites/engine/kinds.h"

namespace lockstep {

const SuiteKind& launchers_suite();

}  // namespace lockstep
