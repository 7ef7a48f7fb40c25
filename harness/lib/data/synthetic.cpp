#include <algorithm>
#include <cmath>

#include "harness/base/hashing.h"
#include "harness/lib/data/series.h"

// Every class is a motion: a rhythm, and for each channel the weights and phases of its first three
// harmonics. A series plays that motion at its own speed, from its own moment, with its own strength, under
// noise. So the next chunk follows from the context up to noise, and series of one class resemble each other
// without being equal.

namespace lockstep {
namespace {

constexpr int kClasses = 4;
constexpr int kHarmonics = 3;
constexpr double kNoise = 0.15;

// What a draw is for; a part of its key. Changing one of them, or the arithmetic below, makes other data:
// raise kSyntheticVersion in series_source.cpp then.
enum class Draw : uint64_t {
  class_rhythm = 1,
  weight,
  harmonic_phase,
  offset,
  speed,
  moment,
  strength,
  noise
};

/// sin(2 pi turns) from additions and multiplications alone: libm's last bits differ from machine to machine.
double sine_of_turns(double turns) {
  double x = turns - std::floor(turns);           // [0, 1)
  if (x >= 0.75) x -= 1.0;                        // [-1/4, 3/4)
  if (x > 0.25) x = 0.5 - x;                      // [-1/4, 1/4]
  const double angle = x * 6.283185307179586477;  // [-pi/2, pi/2]: Taylor to degree 17 is right to 1e-13
  const double square = angle * angle;
  double sum = 1.0;
  for (int k = 16; k >= 2; k -= 2) sum = 1.0 - sum * square / static_cast<double>(k * (k + 1));
  return angle * sum;
}

double uniform(uint64_t key, double low, double high) {
  return low + (high - low) * unit_interval(mix64(key));
}

/// Near to a normal of mean 0 and standard deviation 1 (the sum of four uniforms), without logarithms.
double near_normal(uint64_t key) {
  double sum = 0;
  for (uint64_t i = 0; i < 4; ++i) sum += unit_interval(keyed(key, i));
  return (sum - 2.0) * 1.7320508075688772;
}

struct ClassChannel {
  double weight[kHarmonics], phase[kHarmonics], offset;
};

ClassChannel class_channel(uint64_t seed, int label, int channel) {
  ClassChannel shape{};
  for (int k = 0; k < kHarmonics; ++k) {
    shape.weight[k] = uniform(keyed(seed, Draw::weight, label, channel, k), -1.0, 1.0) / (k + 1);
    shape.phase[k] = uniform(keyed(seed, Draw::harmonic_phase, label, channel, k), 0.0, 1.0);
  }
  shape.offset = uniform(keyed(seed, Draw::offset, label, channel), -0.5, 0.5);
  return shape;
}

}  // namespace

SeriesSet synthetic_series(const DataConfig& config, int part) {
  const auto seed = static_cast<uint64_t>(config.seed);
  SeriesSet set;
  set.channels = config.channels;
  const int classes = std::min(kClasses, std::max(config.series, 1));
  for (int s = 0; s < config.series; ++s) {
    // Class by class, as archives list them.
    const auto label = static_cast<int>(static_cast<int64_t>(s) * classes / config.series);
    const double cycles_per_step =
        uniform(keyed(seed, Draw::class_rhythm, label), 0.9, 1.1) * (0.03 + 0.025 * label);
    const double speed = uniform(keyed(seed, Draw::speed, part, s), 0.9, 1.1) * cycles_per_step;
    const double moment = uniform(keyed(seed, Draw::moment, part, s), 0.0, 1.0);
    const double strength = uniform(keyed(seed, Draw::strength, part, s), 0.7, 1.3);
    std::vector<float> values(static_cast<std::size_t>(config.series_steps) *
                              static_cast<std::size_t>(config.channels));
    for (int c = 0; c < config.channels; ++c) {
      const ClassChannel shape = class_channel(seed, label, c);
      for (int t = 0; t < config.series_steps; ++t) {
        double value = shape.offset;
        for (int k = 0; k < kHarmonics; ++k) {
          value +=
              strength * shape.weight[k] * sine_of_turns((k + 1) * (moment + speed * t) + shape.phase[k]);
        }
        value += kNoise * near_normal(keyed(seed, Draw::noise, part, s, t, c));
        values[static_cast<std::size_t>(t) * static_cast<std::size_t>(config.channels) +
               static_cast<std::size_t>(c)] = static_cast<float>(value);
      }
    }
    set.series.push_back(std::move(values));
    set.labels.push_back("motion" + std::to_string(label));
  }
  return set;
}

}  // namespace lockstep
