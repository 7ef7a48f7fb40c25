#include "harness/trainers/comm/checked.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep {
namespace {

constexpr std::size_t kMostDimensions = 8;

/// What a rank is about to call. All bytes count, so that none may be left to chance.
struct Header {
  std::array<char, 24> op;
  std::array<char, 8> reduction;
  std::array<char, 16> dtype;
  std::array<char, 112> tag;
  std::array<int64_t, kMostDimensions> shape;
  int64_t step, sequence;
  int32_t root, dimensions;
  std::array<char, 8> unused;
};
static_assert(sizeof(Header) == 256);

template <std::size_t N>
void put(std::array<char, N>& place, std::string_view text) {
  std::copy_n(text.data(), std::min(text.size(), N - 1), place.data());
}

std::string in_words(const Header& header) {
  const std::string reduction(header.reduction.data());
  std::string text = header.op.data() + (reduction.empty() ? "" : " " + reduction) + " " + header.tag.data();
  if (header.dtype[0] != '\0')
    text += c10::str(" of ", header.dtype.data(), " ", at::IntArrayRef(header.shape.data(), static_cast<std::size_t>(header.dimensions)));
  if (header.root >= 0) text += c10::str(" from rank ", header.root);
  return text + c10::str(" (number ", header.sequence, ", step ", header.step, ")");
}

std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

class CheckedReducer : public GradientReducer {
 public:
  CheckedReducer(std::unique_ptr<GradientReducer> inner, std::function<void()> check)
      : inner_(std::move(inner)), check_(std::move(check)) {}
  void before_forward() override { inner_->before_forward(); }
  void before_backward(const std::vector<at::Tensor>& outputs) override {
    check_();
    inner_->before_backward(outputs);
  }
  std::vector<GradientBucket> buckets() const override { return inner_->buckets(); }
  void after_backward(std::span<const uint64_t> local_hashes, std::span<const uint64_t> reduced_hashes) override {
    inner_->after_backward(local_hashes, reduced_hashes);
  }

 private:
  std::unique_ptr<GradientReducer> inner_;
  std::function<void()> check_;
};

class CheckedComm : public Comm {
 public:
  CheckedComm(std::unique_ptr<Comm> inner, std::function<int64_t()> step) : inner_(std::move(inner)), step_(std::move(step)) {}

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }

  void all_reduce_sum(at::Tensor tensor, std::string_view tag) override {
    check(header("all_reduce", "sum", tag, tensor));
    inner_->all_reduce_sum(tensor, tag);
  }
  void all_reduce_max(at::Tensor tensor, std::string_view tag) override {
    check(header("all_reduce", "max", tag, tensor));
    inner_->all_reduce_max(tensor, tag);
  }
  at::Tensor all_gather(const at::Tensor& tensor, std::string_view tag) override {
    check(header("all_gather", "", tag, tensor));
    return inner_->all_gather(tensor, tag);
  }
  void broadcast(at::Tensor tensor, int root, std::string_view tag) override {
    Header mine = header("broadcast", "", tag, tensor);
    mine.root = root;
    check(mine);
    inner_->broadcast(tensor, root, tag);
  }
  void barrier(std::string_view tag) override {
    check(header("barrier", "", tag, {}));
    inner_->barrier(tag);
  }

  std::unique_ptr<GradientReducer> reduce_gradients(const std::vector<at::Tensor>& parameters,
                                                    const std::vector<std::string>& names,
                                                    const ReducerOptions& options) override {
    int64_t elements = 0;
    for (const at::Tensor& parameter : parameters) elements += parameter.numel();
    const auto check_pass = [this, elements, count = parameters.size()] {
      Header mine = header("reduce_gradients", "mean", c10::str(count, " parameters"), {});
      mine.shape[0] = elements;
      mine.dimensions = 1;
      check(mine);
    };
    return std::make_unique<CheckedReducer>(inner_->reduce_gradients(parameters, names, options), check_pass);
  }

 private:
  Header header(const char* op, const char* reduction, std::string_view tag, const at::Tensor& tensor) {
    Header made{};
    put(made.op, op);
    put(made.reduction, reduction);
    put(made.tag, tag);
    made.root = -1;
    made.step = step_();
    made.sequence = ++sequence_;
    if (!tensor.defined()) return made;
    put(made.dtype, c10::toString(tensor.scalar_type()));
    made.dimensions = static_cast<int32_t>(std::min<int64_t>(tensor.dim(), kMostDimensions));
    std::copy_n(tensor.sizes().begin(), made.dimensions, made.shape.begin());
    return made;
  }

  void check(const Header& mine) {
    at::Tensor bytes = at::empty({static_cast<int64_t>(sizeof(Header))}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), &mine, sizeof(Header));
    const at::Tensor all = inner_->all_gather(bytes, "check");
    std::map<std::string, std::vector<int>> calls;  // by their bytes
    for (int rank = 0; rank < world_size(); ++rank) {
      const char* const begin = static_cast<const char*>(all.const_data_ptr()) + static_cast<std::size_t>(rank) * sizeof(Header);
      calls[std::string(begin, sizeof(Header))].push_back(rank);
    }
    if (calls.size() > 1) refuse(calls);
  }

  [[noreturn]] static void refuse(const std::map<std::string, std::vector<int>>& calls) {
    const auto most = std::max_element(calls.begin(), calls.end(), [](const auto& a, const auto& b) {
      return a.second.size() != b.second.size() ? a.second.size() < b.second.size() : a.second.front() > b.second.front();
    });
    const auto words = [](const std::string& bytes) {
      Header header{};
      std::memcpy(&header, bytes.data(), sizeof(Header));
      return in_words(header);
    };
    std::string text = "comm_check: ";
    for (auto call = calls.begin(); call != calls.end(); ++call) {
      if (call == most) continue;
      text += list_of(call->second) + (call->second.size() == 1 ? " calls " : " call ") + words(call->first) + "; ";
    }
    throw std::runtime_error(text + "but " + list_of(most->second) + (most->second.size() == 1 ? " calls " : " call ") +
                             words(most->first));
  }

  std::unique_ptr<Comm> inner_;
  std::function<int64_t()> step_;
  int64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<Comm> make_checked_comm(std::unique_ptr<Comm> inner, std::function<int64_t()> step) {
  return std::make_unique<CheckedComm>(std::move(inner), std::move(step));
}

}  // namespace lockstep
