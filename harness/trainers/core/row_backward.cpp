#include "harness/trainers/core/row_backward.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

/// What has come together for a node, and how many of those that give it something have not run yet.
struct Waiting {
  Node* node = nullptr;
  int givers = 0;
  variable_list inputs;
};

/// As PyTorch's: the node that was made last comes first; those of leaves have the highest number.
bool comes_later(const Waiting* a, const Waiting* b) { return a->node->sequence_nr() < b->node->sequence_nr(); }

void give(Waiting& to, std::size_t place, at::Tensor gradient) {
  if (!gradient.defined()) return;
  at::Tensor& sum = to.inputs[place];
  sum = sum.defined() ? sum + gradient : std::move(gradient);
}

variable_list with_hooks(Node& node, variable_list inputs) {
  for (const auto& hook : node.tensor_pre_hooks()) inputs = (*hook)(inputs);
  for (const auto& hook : node.pre_hooks()) inputs = (*hook)(inputs);
  LOCKSTEP_CHECK(node.post_hooks().empty(), "a row's backward pass knows no hooks behind a node");
  return inputs;
}

}  // namespace

struct RowBackward::Graph {
  std::vector<c10::intrusive_ptr<Node>> accumulators;  ///< by leaf
  std::unordered_map<const Node*, std::size_t> leaf_of;
  std::unordered_map<const Node*, std::size_t> index;  ///< in `waiting`
  std::vector<Waiting> waiting;
  std::vector<Waiting*> ready;  ///< a heap

  std::size_t index_of(Node* node) {
    const auto [at, is_new] = index.emplace(node, waiting.size());
    if (is_new) waiting.push_back({node, 0, variable_list(node->num_inputs())});
    return at->second;
  }

  void find_nodes(Node* root) {
    index.clear();
    waiting.clear();
    ready.clear();
    index_of(root);
    for (std::size_t at = 0; at < waiting.size(); ++at) {
      for (const Edge& edge : waiting[at].node->next_edges()) {
        if (edge.is_valid()) ++waiting[index_of(edge.function.get())].givers;
      }
    }
  }

  void make_ready(Waiting& node) {
    ready.push_back(&node);
    std::ranges::push_heap(ready, comes_later);
  }

  Waiting& next() {
    std::ranges::pop_heap(ready, comes_later);
    Waiting& node = *ready.back();
    ready.pop_back();
    return node;
  }

  void run(Waiting& from) {
    Node& node = *from.node;
    variable_list inputs = with_hooks(node, std::move(from.inputs)), outputs;
    if (node.is_traceable()) {
      // PyTorch's own: nothing that it computes is recorded, so that its operations go without what would look whether it is.
      const at::AutoDispatchBelowADInplaceOrView guard;
      outputs = node(std::move(inputs));
    } else {
      outputs = node(std::move(inputs));
    }
    const at::AutoDispatchBelowADInplaceOrView guard;
    torch::autograd::validate_outputs(node.next_edges(), outputs, [&](const std::string& problem) {
      return "Function " + node.name() + " returned an invalid gradient: " + problem;
    });
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      const Edge& edge = node.next_edge(k);
      if (!edge.is_valid()) continue;
      Waiting& to = waiting[index.at(edge.function.get())];
      give(to, edge.input_nr, std::move(outputs[k]));
      if (--to.givers == 0) make_ready(to);
    }
  }
};

RowBackward::RowBackward(const std::vector<at::Tensor>& leaves) : graph_(std::make_unique<Graph>()) {
  for (const at::Tensor& leaf : leaves) {
    graph_->accumulators.push_back(torch::autograd::impl::gradient_edge(leaf).function);
    graph_->leaf_of.emplace(graph_->accumulators.back().get(), graph_->leaf_of.size());
  }
}

RowBackward::~RowBackward() = default;

std::vector<at::Tensor> RowBackward::gradients(const at::Tensor& loss) {
  std::vector<at::Tensor> gradients(graph_->accumulators.size());
  const Edge root = torch::autograd::impl::gradient_edge(loss);
  if (!root.is_valid()) return gradients;
  const c10::NoGradGuard no_grad;
  graph_->find_nodes(root.function.get());
  give(graph_->waiting.front(), root.input_nr, at::ones_like(loss, at::MemoryFormat::Preserve));
  graph_->make_ready(graph_->waiting.front());
  while (!graph_->ready.empty()) {
    Waiting& node = graph_->next();
    if (const auto leaf = graph_->leaf_of.find(node.node); leaf != graph_->leaf_of.end()) {
      gradients[leaf->second] = with_hooks(*node.node, std::move(node.inputs)).front();
    } else if (node.node->num_outputs() > 0) {
      graph_->run(node);
    }
  }
  graph_->waiting.clear();
  return gradients;
}

}  // namespace lockstep
