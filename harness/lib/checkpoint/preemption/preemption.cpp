#include "harness/lib/checkpoint/preemption/preemption.h"

#include <algorithm>
#include <charconv>

#include "harness/base/clock.h"

namespace lockstep {

bool Preemption::heard(int greatest_of_all) {
  if (greatest_of_all == 0 || agreed_ != 0) return agreed_ != 0;
  agreed_ = greatest_of_all;
  heard_at_s_ = monotonic_s();
  return true;
}

bool Preemption::agree(checkpoint::Group& group, double deadline_s, std::string& problem) {
  const checkpoint::Gathered all = group.all_gather("preemption", std::to_string(tells()), deadline_s);
  problem = all.problem;
  if (!all) return false;
  int greatest = 0;
  for (const std::string& text : all.texts) {
    int number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    greatest = std::max(greatest, number);
  }
  return heard(greatest);
}

double Preemption::left_s() const {
  const double own_s = signals_.first_at_s();
  if (own_s == 0 && agreed_ == 0) return options_.grace_s;
  const double since_s = own_s == 0 ? heard_at_s_ : own_s;
  return std::max(0.0, options_.grace_s - (monotonic_s() - since_s));
}

int Preemption::exit_code() const {
  if (agreed_ == 0) return 0;
  return options_.exit_code != 0 ? options_.exit_code : 128 + agreed_;
}

}  // namespace lockstep
