#include <algorithm>
#include <cmath>

#include "losses/infonce.h"

namespace lockstep {

InfoNceReference infonce_reference(const std::vector<double>& energy, const std::vector<std::size_t>& targets,
                                   std::size_t columns, double tau) {
  const std::size_t rows = targets.size();
  InfoNceReference result;
  result.d_energy.assign(energy.size(), 0.0);
  for (std::size_t i = 0; i < rows; ++i) {
    const double* row = energy.data() + i * columns;
    double largest = -row[0] / tau;
    for (std::size_t j = 1; j < columns; ++j) {
      largest = std::max(largest, -row[j] / tau);
    }
    double sum = 0;
    for (std::size_t j = 0; j < columns; ++j) {
      sum += std::exp(-row[j] / tau - largest);
    }
    result.loss += (largest + std::log(sum) + row[targets[i]] / tau) / static_cast<double>(rows);
    for (std::size_t j = 0; j < columns; ++j) {
      const double probability = std::exp(-row[j] / tau - largest) / sum;
      // d loss / d logit, then through logit = -E / tau.
      const double d_logit = (probability - (j == targets[i] ? 1.0 : 0.0)) / static_cast<double>(rows);
      result.d_energy[i * columns + j] = -d_logit / tau;
      result.d_tau += d_logit * row[j] / (tau * tau);
    }
  }
  return result;
}

}  // namespace lockstep
