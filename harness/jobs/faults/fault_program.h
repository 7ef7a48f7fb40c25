#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/jobs/orders/faults/order.h"
#include "harness/trainers/comm/comm.h"

// The small program of the labelled suite: some steps of data-parallel training by hand, in which harness/jobs/orders/faults plants one
// fault, or does the correct thing in its place. LibTorch and Gloo are real; so are the ledger, the check, the guard, the heartbeats
// and the side channel.

namespace lockstep::faults {

/// What the program is given by the process that it runs in.
struct Surroundings {
  std::string run_dir;
  int rank = 0;
  Comm* comm = nullptr;   ///< ledger and check upon it
  Comm* other = nullptr;  ///< a second group, for the kind that waits in two
  std::function<void(int64_t step, const std::string& operation)> heartbeat;
  std::function<void()> acts;  ///< to be called when the fault is about to act
};

class Program {
 public:
  Program(const Order& order, const Surroundings& around);
  /// All steps and the teardown. Returns how many steps were taken. Throws what a rank finds wrong.
  int64_t run();
  /// The step that is going on, as the rank counts it.
  int64_t step() const { return counted_; }

 private:
  struct Named {
    std::string name;
    at::Tensor tensor;
  };
  bool wrong(const char* kind) const;
  bool control(const char* kind) const;
  void one_step();
  void load_rows();
  void end_process();
  void be_silent();
  void wait_busily(double seconds) const;
  void make_gradients();
  void sum_gradients();
  void sum(std::size_t index);
  void update();
  void flip(const at::Tensor& tensor, int64_t element) const;
  void audit_state();
  [[noreturn]] void name_state(const std::string& name, int rank, const at::Tensor& mine);
  void save();
  void write_file(bool cut);
  void audit_files(bool of_culprit);
  void evaluate();
  void tear_down();
  bool told_to_stop();
  void record(const std::string& name, const at::Tensor& tensor);
  std::vector<int64_t> partitioned(int rank) const;
  std::vector<Named> state() const;
  std::string file_of(int rank) const;

  const Order order_;
  const Surroundings around_;
  Comm& comm_;
  const int rank_;
  int64_t step_ = 0, counted_ = 0;
  std::vector<int64_t> rows_;
  std::array<at::Tensor, 3> weights_, moments_, gradients_;
  at::Tensor random_, sampler_;  ///< [1] int64: of the random stream and of the place in the data
  std::ofstream record_;
};

}  // namespace lockstep::faults
