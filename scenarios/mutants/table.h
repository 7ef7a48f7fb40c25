#pragma once
// What a table of planted bugs is written with. A row is one bug: its data, and beside it the few lines of
// code that plant it.
//
//   {{.name = "sign_flipped", .help = "all gradients have the wrong sign", .phase = "local gradients"},
//    LOCKSTEP_BUG(Planted,
//      at::Tensor local_gradient(int64_t, const std::string&, const at::Tensor& gradient) override {
//        return -gradient;
//      })}
//
// LOCKSTEP_BUG(BASE, MEMBERS) is the code: a class with these members, derived from BASE. Every table is
// compiled twice: with its code in lockstep_scenarios, and as data alone, for programs without LibTorch, in
// lockstep_mutant_table, where the code is left out. A row of data alone, or of code alone, does not compile.
// Below are short forms for bugs that do something else in one place, from their step on.

#include <iterator>
#include <vector>

#include "harness/plan/config/trainer_spec.h"

#ifdef LOCKSTEP_MUTANT_DATA_ALONE

#define LOCKSTEP_BUG(...) \
  lockstep::NoCode {}

namespace lockstep {

struct NoCode {};

struct MutantData {
  constexpr MutantData(const MutantEntry& its_entry, NoCode) : entry(its_entry) {}
  MutantEntry entry;
};
using MutantRow = MutantData;

}  // namespace lockstep

#else

#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "harness/trainers/core/task.h"
#include "losses/block.h"
#include "scenarios/energy/energy_step.h"
#include "scenarios/mutants/classify_fault.h"
#include "scenarios/mutants/comm_fault.h"
#include "scenarios/mutants/flow_rl_fault.h"
#include "scenarios/mutants/wrong_loss.h"

#define LOCKSTEP_BUG(BASE, ...)                                                                         \
  lockstep::code_of<BASE>([](const lockstep::Planting& planting) -> std::unique_ptr<lockstep::Mutant> { \
    struct Bug final : BASE {                                                                           \
      using BASE::BASE;                                                                                 \
      __VA_ARGS__                                                                                       \
    };                                                                                                  \
    return std::make_unique<Bug>(planting);                                                             \
  })

namespace lockstep {

struct MutantCode {
  std::unique_ptr<Mutant> (*make)(const Planting& planting);
  std::string_view trainer;  ///< the one into which it reaches, or none
};

template <class Base>
constexpr MutantCode code_of(std::unique_ptr<Mutant> (*make)(const Planting& planting)) {
  if constexpr (requires { Base::kTrainer; }) {
    return {make, Base::kTrainer};
  } else {
    return {make, {}};
  }
}

struct MutantWithCode {
  /// Rows are constants: one that throws does not compile.
  constexpr MutantWithCode(const MutantEntry& its_entry, MutantCode code)
      : entry(its_entry), make(code.make) {
    if (!code.trainer.empty() && code.trainer != entry.trainer) {
      throw std::invalid_argument("a bug inside of a trainer names it in its entry: .trainer");
    }
  }
  MutantEntry entry;
  std::unique_ptr<Mutant> (*make)(const Planting& planting);
};
using MutantRow = MutantWithCode;

}  // namespace lockstep

#endif

/// Another value of a member TYPE HOOK(int64_t step, TYPE right).
#define LOCKSTEP_FROM_STEP(BASE, TYPE, HOOK, ...) \
  LOCKSTEP_BUG(BASE, TYPE HOOK(int64_t step, TYPE right) override { return acts(step) ? __VA_ARGS__ : right; })

/// Another `gradient` of the parameters that it touches. HOOK: local_gradient or sent_gradient.
#define LOCKSTEP_GRADIENT(HOOK, ...)                                                                           \
  LOCKSTEP_BUG(Planted,                                                                                        \
    at::Tensor HOOK(int64_t step, const std::string& parameter, const at::Tensor& gradient) override {         \
      return acts(step) && touches(parameter) ? __VA_ARGS__ : gradient;                                        \
    })

/// Another weight of a row's loss, from the step's `counts`.
#define LOCKSTEP_ROW_WEIGHT(...)                                                                     \
  LOCKSTEP_BUG(PlantedInFlowRl,                                                                      \
    double row_weight(int64_t step, const WeightCounts& counts, double right) override {             \
      return acts(step) ? __VA_ARGS__ : right;                                                       \
    })

// The others are given statements.

/// On every reduced `gradient`.
#define LOCKSTEP_REDUCED(...)                                                                        \
  LOCKSTEP_BUG(Planted,                                                                              \
    void reduced_gradients(int64_t step, ParameterList& parameters, Comm& /*comm*/) override {       \
      for (std::size_t i = 0; acts(step) && i < parameters.tensors.size(); ++i) {                    \
        at::Tensor& gradient = parameters.tensors[i].mutable_grad();                                 \
        __VA_ARGS__                                                                                  \
      }                                                                                              \
    })

/// On the `rows` of a rank.
#define LOCKSTEP_ROWS(...)                                                                               \
  LOCKSTEP_BUG(Planted,                                                                                  \
    std::vector<int64_t> rows(int64_t step, std::vector<int64_t> rows,                                   \
                              [[maybe_unused]] const RowsOf& rows_of) override {                         \
      if (acts(step)) {                                                                                  \
        __VA_ARGS__                                                                                      \
      }                                                                                                  \
      return rows;                                                                                       \
    })

/// Before the update of a `state`.
#define LOCKSTEP_UPDATE(...)                                                   \
  LOCKSTEP_BUG(Planted,                                                        \
    void before_update(int64_t step, const TrainingState& state) override {    \
      if (acts(step)) {                                                        \
        __VA_ARGS__                                                            \
      }                                                                        \
    })

/// Return the loss of an `input`.
#define LOCKSTEP_LOSS(...) \
  LOCKSTEP_BUG(WrongLoss, LossOutput forward(const LossInput& input) override { __VA_ARGS__ })

/// On a copy of the `scores` of a step's rows.
#define LOCKSTEP_SCORES(...)                                              \
  LOCKSTEP_BUG(PlantedInFlowRl,                                           \
    at::Tensor scores(int64_t step, at::Tensor right) override {          \
      if (!acts(step)) return right;                                      \
      at::Tensor scores = right.clone();                                  \
      __VA_ARGS__                                                         \
      return scores;                                                      \
    })

/// Return the advantages of `rows`.
#define LOCKSTEP_ADVANTAGES(...)                                                     \
  LOCKSTEP_BUG(PlantedInAdvantages,                                                  \
    std::vector<double> wrong([[maybe_unused]] const AdvantageRows& rows,            \
                              [[maybe_unused]] std::vector<double> right) override { \
      __VA_ARGS__                                                                    \
    })

namespace lockstep {

// Each appends its table. The parameter's type keeps the functions of the two compilations apart.
void add_own_mutants(std::vector<MutantRow>& rows);
void add_shared_mutants(std::vector<MutantRow>& rows);
void add_flow_rl_mutants(std::vector<MutantRow>& rows);

/// In the order of a detection matrix's rows. The matrix draws its pairs by place in this order: another
/// order gives other pairs.
constexpr void (*kMutantTables[])(std::vector<MutantRow>&) = {add_own_mutants, add_shared_mutants, add_flow_rl_mutants};

}  // namespace lockstep
