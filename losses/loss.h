#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/trainers/comm/comm.h"

// Where a loss adds up what a row's gradient is made of.

namespace lockstep {

/// Marks values whose gradients are terms of a sum, such as logits of a row's candidates: gives the tensor to go on with, of the same
/// values. Who wants to know how large the terms are turns their signs at random (harness/trainers/core/forced.cpp). Empty: nobody does.
using TermMark = std::function<at::Tensor(const at::Tensor&)>;

inline at::Tensor marked(const TermMark& mark, const at::Tensor& values) { return mark ? mark(values) : values; }

// A loss as the trainer calls it. One file a form: the algorithm that ranks run, and beside it the plain
// reference that one process runs; one line in the table (table.cpp) makes it known, and its certificate
// comes with that.
//
// b = rows of this rank, N = in-batch candidates, n = explicit candidates of each row, A = values of a raw
// action, D = width of an encoded one, R = world size.

/// Contexts, encoded; dimension 0 of every tensor is rows. What the tensors mean is the model's matter.
struct EncodedRows {
  std::vector<at::Tensor> tensors;
};

/// The model as a loss sees it at one step: energies of (context, action) pairs, lower for a better match.
/// Everything is differentiable. Dropout is replayed by construction: a pair's mask depends on the pair and
/// the step alone.
class EnergyFunction : public std::enable_shared_from_this<EnergyFunction> {
 public:
  virtual ~EnergyFunction() = default;
  /// Contexts of this rank's rows, of the part that the loss was called for. [rows, ...]
  virtual EncodedRows encode_context() = 0;
  /// [N, A] -> [N, D]
  virtual at::Tensor encode_action(const at::Tensor& action_NA) = 0;
  /// Every row with every candidate: [rows, ...], [N, D] -> [rows, N]. `column_ids` [N] name the candidates'
  /// dropout streams; `first_column` is where they stand among all candidates.
  virtual at::Tensor energies(const EncodedRows& rows, const at::Tensor& action_ND,
                              std::span<const int64_t> column_ids, int64_t first_column) = 0;
  /// Each row with candidates of its own: [rows, ...], [rows, n, D] -> [rows, n]. first_id, first_id - 1, …
  /// name the candidates' dropout streams.
  virtual at::Tensor own_energies(const EncodedRows& rows, const at::Tensor& action_BnD,
                                  int64_t first_id) = 0;
  /// Parameters that `energies` itself reads, beside what is passed to it.
  virtual std::vector<at::Tensor> head_parameters() = 0;
  /// Until end_replay `energies` reads these in place of head_parameters() and draws again what it drew
  /// before: the second of two passes.
  virtual void begin_replay(std::vector<at::Tensor> head_parameters) = 0;
  virtual void end_replay() = 0;
  /// tau, a scalar with gradient.
  virtual at::Tensor temperature() = 0;
};

struct LossOptions {
  bool in_batch = true;            ///< rows of the batch are candidates
  bool local = false;              ///< of this rank alone
  bool mask_duplicates = false;    ///< candidates with the row's own sample id are left out, but for its own
  int64_t tile_columns = 1000000;  ///< more candidates than these are taken in two passes, tile by tile
};

struct SharedBatch;

struct LossInput {
  Comm& comm;
  EnergyFunction& model;
  int64_t step = 0;
  at::Tensor action_BA = {};           ///< [b, A] the rows' own actions
  std::span<const int64_t> ids = {};   ///< [b] sample ids
  at::Tensor counted_B = {};           ///< [b] bool: rows that count in the loss; undefined: all
  int64_t first_row = 0, end_row = 0;  ///< the loss of these rows alone, against all candidates
  at::Tensor explicit_BnA = {};        ///< [rows, n, A] candidates of each row's own; undefined: none
  double total_rows = 0;               ///< rows that count, of all ranks and micro-steps
  LossOptions options = {};
  TermMark mark = {};  ///< of the logits that a row's loss is made of
  /// [rows, N] float64: energies by which a form that takes some of the candidates chooses them; undefined: its own.
  at::Tensor choosing_BN = {};
  /// Exact arithmetic: what the rows of a micro-step share, and the loss has unit weight (row_weight 1). Else null.
  const SharedBatch* shared = nullptr;
};

struct LossOutput {
  at::Tensor loss;  ///< []; the mean over ranks of its gradients is the gradient of one process with all rows
  at::Tensor row_losses_B;  ///< [rows] nats, with gradient; `loss` is row_weight times their sum
  double row_weight = 1;
  at::Tensor energies;  ///< [rows, candidates], detached; in-batch ones first
  /// Of the in-batch candidates (-1: each row's own action, where there are no others); then -2 - k for the
  /// k-th explicit one.
  std::vector<int64_t> column_ids;
  double energy_positive = 0;     ///< mean energy of the rows' own actions
  double energy_negative = 0;     ///< mean energy of the other candidates; 0 if there is none
  int64_t energies_computed = 0;  ///< forward, on this rank; those of a second pass count again
  bool replayed = false;          ///< energies are computed again in the backward pass
  double negatives_in_batch = 0;  ///< mean number of a row's negatives, by kind
  double negatives_explicit = 0;
  double chance_nats = 0;  ///< the loss of a constant energy (sigmoid: of energy 0)
};

/// One process holds all rows of all ranks: who is whose candidate stands in `group_B` (rows of one group are
/// each other's).
struct ReferenceInput {
  EnergyFunction& model;
  at::Tensor action_BA = {};
  std::span<const int64_t> ids = {};
  at::Tensor counted_B = {};
  at::Tensor explicit_BnA = {};
  at::Tensor group_B = {};  ///< [B] int64
  at::Tensor choosing_BB = {};  ///< as LossInput's
  LossOptions options = {};
  TermMark mark = {};  ///< as LossInput's
};

class Loss {
 public:
  virtual ~Loss() = default;
  /// Collective. Throws std::invalid_argument naming shapes that do not fit.
  virtual LossOutput forward(const LossInput& input) = 0;
  /// The same loss by its definition, without collectives, tiles or shared subexpressions: slow, plain, and
  /// written independently of `forward`. In float64 `forward` is certified against it.
  virtual LossOutput reference(const ReferenceInput& input) = 0;
  /// false: `forward` needs all rows of a micro-step at once, not a part of them.
  virtual bool takes_parts() const { return true; }
  /// true: with LossInput::shared, `forward` needs the energies of all rows there.
  virtual bool needs_all_energies() const { return false; }
};

struct LossEntry {
  std::string_view name;
  std::unique_ptr<Loss> (*make)();
};

/// All forms; a test holds the list equal to the torch-free catalogue.
std::span<const LossEntry> losses();

/// Throws std::invalid_argument if there is no such form.
std::unique_ptr<Loss> make_loss(std::string_view name);

std::unique_ptr<Loss> make_hard_loss();
std::unique_ptr<Loss> make_infonce_loss();
std::unique_ptr<Loss> make_sigmoid_loss();
std::unique_ptr<Loss> make_symmetric_loss();

/// In-batch candidates: their raw actions, and where this rank's rows stand among them.
struct Candidates {
  at::Tensor action_NA;
  std::vector<int64_t> ids;
  int64_t offset = 0;
  at::Tensor counted_N =
      {};  ///< [N] bool: whether the row that the candidate is the positive of counts; undefined: all
  /// [b] where this rank's rows stand, if not one behind the other from `offset` on; and [N] whose each one is.
  std::vector<int64_t> own_columns = {};
  std::vector<int> owners = {};
};

/// What the rows of a micro-step share in exact arithmetic, alike under every layout.
struct SharedBatch {
  Candidates candidates;      ///< in the order of the whole batch
  at::Tensor energy_NN = {};  ///< every row with every candidate, no gradient; undefined: nobody asked for it
};

/// [end_row - first_row] int64: columns of the rows' own actions.
at::Tensor target_columns(const LossInput& input, const Candidates& candidates);

/// Collective: candidates as they stand in the whole batch, from `positions` [b] of this rank's rows in it.
Candidates candidates_in_batch_order(const LossInput& input, std::span<const int64_t> positions);

/// This rank's own rows (options.local or a world of one), or all ranks' rows, gathered raw: actions are
/// data, so no gradient has to flow through the gather and each rank encodes all of them itself.
Candidates in_batch_candidates(const LossInput& input);

}  // namespace lockstep
