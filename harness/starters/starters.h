#pragma once
// The laboratory of starters: which rank every process of a job takes itself for by what torchrun, Slurm, Open MPI, PMI,
// Kubernetes or lockstep's own launcher tells it, and which GPU it takes. Nothing is started: their words are.

#include "harness/laboratory/kinds.h"

namespace lockstep {

const LaboratoryKind& starters_laboratory();

}  // namespace lockstep
