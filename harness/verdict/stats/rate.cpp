#include "harness/verdict/stats/rate.h"

#include <boost/math/distributions/binomial.hpp>
#include <utility>

namespace lockstep {

DetectionRate detection_rate(std::string what, int64_t hits, int64_t of, double level) {
  using Binomial = boost::math::binomial_distribution<>;
  DetectionRate rate;
  rate.what = std::move(what);
  rate.hits = hits;
  rate.of = of;
  rate.asked = kNothingAsked;
  rate.interval = {0, 1, level};
  if (of > 0) {
    const double tail = (1 - level) / 2;
    const auto n = static_cast<double>(of), k = static_cast<double>(hits);
    rate.interval.low = Binomial::find_lower_bound_on_p(n, k, tail);
    rate.interval.high = Binomial::find_upper_bound_on_p(n, k, tail);
  }
  return rate;
}

}  // namespace lockstep
