#pragma once
// Planted faults that call collectives wrongly, or change what they deliver.

#include <functional>
#include <memory>
#include <string_view>

#include "scenarios/mutants/planted.h"

namespace lockstep {

/// Overrides one operation; the others go through.
class CommFault : public Planted {
 public:
  enum class Level { above, below };
  CommFault(const Planting& planting, Level level) : Planted(planting), level_(level) {}

  void before_step(int64_t step) override { step_ = step; }
  std::unique_ptr<Comm> above_ledger(std::unique_ptr<Comm> comm) override;
  std::unique_ptr<Comm> below_ledger(std::unique_ptr<Comm> comm) override;

  virtual void all_reduce_sum(Comm& inner, at::Tensor tensor, std::string_view tag) {
    inner.all_reduce_sum(tensor, tag);
  }
  virtual at::Tensor all_gather(Comm& inner, const at::Tensor& tensor, std::string_view tag) {
    return inner.all_gather(tensor, tag);
  }
  virtual void broadcast(Comm& inner, at::Tensor tensor, int root, std::string_view tag) {
    inner.broadcast(tensor, root, tag);
  }

 protected:
  int64_t step() const { return step_; }

 private:
  Level level_;
  int64_t step_ = -1;  // the parameters' broadcast comes before the first step
};

/// Above the ledger: a wrong call.
class CallsOtherwise : public CommFault {
 public:
  explicit CallsOtherwise(const Planting& planting) : CommFault(planting, Level::above) {}
};

/// Below the ledger: what the network does, whose result the ledger sees.
class DeliversOtherwise : public CommFault {
 public:
  explicit DeliversOtherwise(const Planting& planting) : CommFault(planting, Level::below) {}
};

/// Collectives of the running statistics.
inline constexpr std::string_view kStatsSum = "stats.energy";
inline constexpr std::string_view kStatsBuffer = "stats.buffer";

// A communicator around a planted fault and one inside of it: what is called outside must arrive inside, and
// what is delivered inside must come out.

/// `plant` puts the fault's communicator around the one that it is given, or returns that one itself. Calls
/// `acted` whenever a call is left out, added or changed between the two.
std::unique_ptr<Comm> watched_comm(std::unique_ptr<Comm> comm,
                                   const std::function<std::unique_ptr<Comm>(std::unique_ptr<Comm>)>& plant,
                                   std::function<void()> acted);

}  // namespace lockstep
