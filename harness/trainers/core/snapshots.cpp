#include "harness/trainers/core/snapshots.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <stdexcept>

namespace lockstep {
namespace {

/// The same numbers in float64.
std::vector<std::byte> widened(const std::vector<std::byte>& floats) {
  const std::size_t count = floats.size() / sizeof(float);
  std::vector<std::byte> doubles(count * sizeof(double));
  for (std::size_t i = 0; i < count; ++i) {
    float narrow = 0;
    std::memcpy(&narrow, floats.data() + i * sizeof(float), sizeof narrow);
    const double wide = narrow;
    std::memcpy(doubles.data() + i * sizeof(double), &wide, sizeof wide);
  }
  return doubles;
}

}  // namespace

SnapshotReader::SnapshotReader(const std::string& trace_path, bool wide) : path_(trace_path), reader_(trace_path), wide_(wide) {}

SnapshotBytes SnapshotReader::at(int64_t step) {
  SnapshotBytes kept;
  std::optional<StepRecords> records;
  do {
    records = reader_.next();
  } while (records && records->step < step);
  if (records && records->step == step) {
    for (Record& record : records->records) {
      if (record.phase != Phase::snapshot || record.payload.empty()) continue;
      kept[record.name] = wide_ && record.dtype == DType::float32 ? widened(record.payload) : std::move(record.payload);
    }
  }
  if (kept.empty()) {
    throw std::runtime_error(path_ + " holds no snapshot of step " + std::to_string(step) + ": " + reader_.end());
  }
  return kept;
}

namespace {

using torch::autograd::Node;

/// Every node that the backward pass of `loss` would run, but for those that add to a parameter's gradient.
std::vector<c10::intrusive_ptr<Node>> nodes_behind(const at::Tensor& loss) {
  std::vector<c10::intrusive_ptr<Node>> nodes;
  std::set<const Node*> seen;
  const auto add = [&](const c10::intrusive_ptr<Node>& node) {
    if (node && dynamic_cast<torch::autograd::AccumulateGrad*>(node.get()) == nullptr &&
        seen.insert(node.get()).second) {
      nodes.push_back(node);
    }
  };
  add(loss.grad_fn());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const c10::intrusive_ptr<Node> node = nodes[i];
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      add(edge.function);
    }
  }
  return nodes;
}

}  // namespace

int64_t kept_bytes(const at::Tensor& loss, const std::vector<at::Tensor>& parameters) {
  using torch::dynamo::autograd::AutogradCompilerCall;
  using torch::dynamo::autograd::CompiledNodeArgs;
  // Nodes name what they saved to compiled autograd alone; nothing is compiled here.
  AutogradCompilerCall call(torch::dynamo::autograd::SizeInput::STATIC);
  for (const c10::intrusive_ptr<Node>& node : nodes_behind(loss)) {
    CompiledNodeArgs args(call, call.node_calls.lookup(node));
    node->compiled_args(args);
  }
  std::set<const void*> counted;
  for (const at::Tensor& parameter : parameters) {
    counted.insert(parameter.storage().data());
  }
  int64_t bytes = 0;
  for (const at::Tensor& saved : call.tensor_args.inputs) {
    if (saved.has_storage() && counted.insert(saved.storage().data()).second) {
      bytes += static_cast<int64_t>(saved.storage().nbytes());
    }
  }
  return bytes;
}

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t whole_pages = 0, resident_pages = 0;
  return statm >> whole_pages >> resident_pages ? resident_pages * sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace lockstep
