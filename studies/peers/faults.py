"""All planted faults, by name, in the order in which a step meets them."""

import faults_of_inputs  # noqa: F401
import faults_of_the_loss  # noqa: F401
import faults_of_gradients  # noqa: F401, I001
import faults_of_the_update  # noqa: F401
from planted import ACCUMULATED, CLASSIFY, ENERGY, EXTRA, FAULTS, NORM, WORKLOADS

__all__ = ["ACCUMULATED", "CLASSIFY", "ENERGY", "EXTRA", "FAULTS", "NORM", "WORKLOADS"]
