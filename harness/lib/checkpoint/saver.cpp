#include "harness/lib/checkpoint/saver.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "harness/base/hashing.h"
#include "harness/base/hex.h"
#include "harness/lib/checkpoint/retention.h"
#include "harness/lib/checkpoint/save_protocol.h"

namespace lockstep::checkpoint {
namespace {

/// Another at each call and in each process; a number for names, from which nothing is computed.
std::string next_nonce() {
  static std::atomic<uint64_t> count{0};
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return hex16(keyed(static_cast<uint64_t>(now), static_cast<uint64_t>(::getpid()), count++));
}

}  // namespace

/// The save that a thread does meanwhile.
struct Saver::Background {
  std::thread thread;
  SaveRequest request;
  State state;
  std::optional<SaveOutcome> outcome;  ///< written by the thread, read when it has been joined
};

Saver::Saver(SaveOptions options, Storage& storage, Group& group)
    : options_(std::move(options)),
      storage_(storage),
      group_(group),
      background_(std::make_unique<Background>()) {
  if (!options_.nonce) options_.nonce = next_nonce;
  while (options_.root.size() > 1 && options_.root.ends_with('/')) options_.root.pop_back();
}

Saver::~Saver() {
  if (background_->thread.joinable()) background_->thread.join();
}

SaveOutcome Saver::save(const SaveRequest& request, const State& state) {
  if (background_->thread.joinable()) background_->thread.join();
  return SaveProtocol(options_, storage_, group_, request, state, seen_).run();
}

std::optional<SaveOutcome> Saver::save_async(const SaveRequest& request, const State& state) {
  std::optional<SaveOutcome> earlier = wait();
  background_->request = request;
  background_->state = snapshot_of(state);
  background_->thread = std::thread([this] {
    background_->outcome =
        SaveProtocol(options_, storage_, group_, background_->request, background_->state, seen_).run();
  });
  return earlier;
}

std::optional<SaveOutcome> Saver::wait() {
  if (background_->thread.joinable()) background_->thread.join();
  background_->state = {};
  return std::exchange(background_->outcome, std::nullopt);
}

std::vector<std::string> Saver::finish_earlier() {
  PathStatus status;
  if (group_.rank() != 0 || storage_.stat(options_.root, status) || !status.folder) return {};
  int lock = -1;
  if (std::string problem = lock_root(storage_, options_.root, lock); !problem.empty()) return {std::move(problem)};
  const Writer writer{options_.process > 0 ? options_.process : static_cast<int64_t>(::getpid()), options_.nonce()};
  std::vector<std::string> left =
      settle(storage_, options_.root, {options_.keep_last, durability_of(options_), writer, [this] { group_.progress(); }, &seen_});
  close_fully(storage_, lock);
  return left;
}

}  // namespace lockstep::checkpoint
