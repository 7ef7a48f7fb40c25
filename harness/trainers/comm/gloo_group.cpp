#include "harness/trainers/comm/gloo_group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "harness/trainers/comm/process_groups.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

/// Bytes of the first exchange: the length of the rank's text, and as much of the text as there is room for.
constexpr int64_t kHeadBytes = 512, kLengthBytes = sizeof(int64_t);
/// Of Gloo itself; how long we wait, the caller says.
constexpr std::chrono::hours kGlooTimeout{24 * 7};
constexpr std::chrono::milliseconds kLookEvery{50};

struct Completion {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
};

class GlooGroup final : public checkpoint::Group {
 public:
  GlooGroup(c10::intrusive_ptr<c10d::ProcessGroup> group, PeerSigns signs)
      : group_(std::move(group)), signs_(std::move(signs)), rank_(group_->getRank()), size_(group_->getSize()) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void progress() override { signs_.report(); }

  checkpoint::Gathered all_gather(const std::string& label, const std::string& mine, double deadline_s) override {
    if (!broken_.empty()) return {{}, broken_};
    signs_.report();
    const std::string text = label + '\n' + mine;
    const auto length = static_cast<int64_t>(text.size());
    at::Tensor head = at::zeros({kHeadBytes}, at::kByte);
    char* const bytes = static_cast<char*>(head.data_ptr());
    std::memcpy(bytes, &length, kLengthBytes);
    const auto first = static_cast<std::size_t>(std::min(length, kHeadBytes - kLengthBytes));
    std::memcpy(bytes + kLengthBytes, text.data(), first);
    const std::vector<at::Tensor> heads = exchange(head, label, deadline_s);
    if (heads.empty()) return {{}, broken_};
    int64_t longest = 0;
    for (const at::Tensor& each : heads) longest = std::max(longest, length_in(each));
    const int64_t rest = std::max<int64_t>(longest - (kHeadBytes - kLengthBytes), 0);
    std::vector<at::Tensor> tails;
    if (rest > 0) {
      at::Tensor tail = at::zeros({rest}, at::kByte);
      std::memcpy(tail.data_ptr(), text.data() + first, text.size() - first);
      tails = exchange(tail, label, deadline_s);
      if (tails.empty()) return {{}, broken_};
    }
    return gathered(label, heads, tails);
  }

 private:
  static int64_t length_in(const at::Tensor& head) {
    int64_t length = 0;
    std::memcpy(&length, head.const_data_ptr(), kLengthBytes);
    return length;
  }

  checkpoint::Gathered gathered(const std::string& label, const std::vector<at::Tensor>& heads,
                                const std::vector<at::Tensor>& tails) {
    checkpoint::Gathered all;
    for (std::size_t rank = 0; rank < heads.size(); ++rank) {
      const auto length = static_cast<std::size_t>(length_in(heads[rank]));
      const std::size_t first = std::min<std::size_t>(length, kHeadBytes - kLengthBytes);
      std::string text(static_cast<const char*>(heads[rank].const_data_ptr()) + kLengthBytes, first);
      if (length > first) text.append(static_cast<const char*>(tails[rank].const_data_ptr()), length - first);
      const std::size_t end = text.find('\n');
      if (end == std::string::npos || text.compare(0, end, label) != 0) {
        leave("rank " + std::to_string(rank_) + " is at '" + label + "' and rank " + std::to_string(rank) + " at '" +
              text.substr(0, end) + "'");
        return {{}, broken_};
      }
      all.texts.push_back(text.substr(end + 1));
    }
    return all;
  }

  /// The same number of bytes from every rank; nothing, and the group is at its end, if they do not come.
  std::vector<at::Tensor> exchange(const at::Tensor& mine, const std::string& label, double deadline_s) {
    const at::Tensor all = at::empty({size_, mine.numel()}, at::kByte);
    std::vector<std::vector<at::Tensor>> outputs{all.unbind(0)};
    std::vector<at::Tensor> inputs{mine};
    c10d::AllgatherOptions options;
    options.timeout = kGlooTimeout;
    try {
      const auto future = group_->allgather(outputs, inputs, options)->getFuture();
      if (!wait_for(*future, deadline_s)) {
        // Gloo still waits in its thread: the group stays where it is until the process ends.
        static std::vector<c10::intrusive_ptr<c10d::ProcessGroup>>& abandoned =
            *new std::vector<c10::intrusive_ptr<c10d::ProcessGroup>>;
        abandoned.push_back(std::move(group_));
        broken_ = "no other rank gave a sign of progress for " + std::to_string(deadline_s) + " s (at '" + label + "')";
        return {};
      }
      if (!future->hasError()) return outputs.front();
      leave("another rank ended (at '" + label + "'): " + future->tryRetrieveErrorMessage());
    } catch (const c10::Error& error) {
      leave("another rank ended (at '" + label + "'): " + error.what_without_backtrace());
    }
    return {};
  }

  bool wait_for(c10::ivalue::Future& future, double deadline_s) const {
    const auto completion = std::make_shared<Completion>();
    future.addCallback([completion](c10::ivalue::Future&) {
      const std::lock_guard lock(completion->mutex);
      completion->done = true;
      completion->changed.notify_all();
    });
    uint64_t seen = signs_.count();
    auto heard = Clock::now();
    std::unique_lock lock(completion->mutex);
    while (!completion->changed.wait_for(lock, kLookEvery, [&] { return completion->done; })) {
      if (const uint64_t now = signs_.count(); now != seen) {
        seen = now;
        heard = Clock::now();
      }
      if (std::chrono::duration<double>(Clock::now() - heard).count() >= deadline_s) return false;
    }
    return true;
  }

  /// Closes the connections, which the others notice at once.
  void leave(const std::string& problem) {
    broken_ = problem;
    group_.reset();
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  PeerSigns signs_;
  int rank_, size_;
  std::string broken_;
};

}  // namespace

std::vector<std::unique_ptr<checkpoint::Group>> make_gloo_groups(const GlooOptions& options,
                                                                 const std::vector<std::string>& names,
                                                                 const PeerSigns& signs) {
  const auto store = make_store(options);
  std::vector<std::unique_ptr<checkpoint::Group>> groups;
  for (const std::string& name : names)
    groups.push_back(std::make_unique<GlooGroup>(make_gloo_group(store, name.c_str(), options), signs));
  return groups;
}

}  // namespace lockstep
