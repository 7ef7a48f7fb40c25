#include "harness/suites/checkpoint/toy_trainer/record.h"

#include <cstring>
#include <type_traits>

namespace lockstep::toy {
namespace {

template <class Value>
void put(std::string& bits, const Value& value) {
  static_assert(std::is_arithmetic_v<Value>);
  char raw[sizeof(Value)];
  std::memcpy(raw, &value, sizeof(Value));
  bits.append(raw, sizeof(Value));
}

template <class Values>
void put_all(std::string& bits, const Values& values) {
  put(bits, values.size());
  for (const auto& value : values) put(bits, value);
}

}  // namespace

std::string bits_of(const StepRecord& record) {
  std::string bits;
  put(bits, record.step);
  put(bits, record.epoch);
  put_all(bits, record.samples);
  put_all(bits, record.own);
  put(bits, record.micro);
  put(bits, record.dropout);
  put(bits, record.jitter);
  put_all(bits, record.normaliser.mean);
  put_all(bits, record.normaliser.variance);
  put(bits, record.scale);
  put_all(bits, record.parameters);
  put_all(bits, record.gradient);
  put(bits, record.loss);
  put(bits, record.update.has_value());
  if (record.update) {
    const UpdateRecord& update = *record.update;
    put_all(bits, update.total);
    put(bits, update.rows);
    put(bits, update.overflow);
    put(bits, update.noise);
    put(bits, update.rate);
    put(bits, update.decay);
    put(bits, update.factor);
    put_all(bits, update.gradient);
    put_all(bits, update.direction);
    put_all(bits, update.parameters);
  }
  put(bits, record.evaluation.has_value());
  if (record.evaluation) {
    put_all(bits, record.evaluation->averaged);
    put(bits, record.evaluation->metric);
    put(bits, record.evaluation->best_before);
    put(bits, record.evaluation->left);
  }
  return bits;
}

}  // namespace lockstep::toy
