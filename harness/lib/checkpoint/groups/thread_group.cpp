#include "harness/lib/checkpoint/groups/thread_group.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "harness/base/errors.h"
#include "harness/base/turns.h"

namespace lockstep::checkpoint {

/// One gather after the other: the last rank to come hands out what all brought.
struct ThreadRendezvous::Table {
  explicit Table(int size) : labels(static_cast<std::size_t>(size)), texts(labels.size()) {}

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> labels, texts;  ///< of the gather that is open
  std::vector<std::string> handed_out;     ///< of the one before
  int arrived = 0;
  uint64_t rounds = 0, progress = 0;
  std::string broken;  ///< why no gather can succeed any more

  void end(const std::string& why) {
    if (broken.empty()) broken = why;
    changed.notify_all();
  }
  /// The label that another rank came with, or nothing.
  std::string other_label() const {
    for (std::size_t rank = 1; rank < labels.size(); ++rank) {
      if (labels[rank] != labels[0]) {
        return fmt::format("rank 0 is at '{}' and rank {} at '{}'", labels[0], rank, labels[rank]);
      }
    }
    return "";
  }
};

class ThreadRendezvous::Member final : public Group {
 public:
  Member(Table& table, int rank) : table_(table), rank_(rank) {}
  ~Member() override {
    const std::lock_guard lock(table_.mutex);
    table_.end(fmt::format("rank {} ended", rank_));
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(table_.texts.size()); }
  void progress() override {
    const std::lock_guard lock(table_.mutex);
    ++table_.progress;
    table_.changed.notify_all();
  }

  Gathered all_gather(const std::string& label, const std::string& mine, double deadline_s) override {
    const Turns::GivenUp waits;
    std::unique_lock lock(table_.mutex);
    if (!table_.broken.empty()) return {{}, table_.broken};
    table_.labels[static_cast<std::size_t>(rank_)] = label;
    table_.texts[static_cast<std::size_t>(rank_)] = mine;
    const uint64_t round = table_.rounds;
    if (++table_.arrived == size()) {
      if (const std::string problem = table_.other_label(); !problem.empty()) {
        table_.end(problem);
        return {{}, problem};
      }
      table_.arrived = 0;
      ++table_.rounds;
      table_.handed_out = table_.texts;
      table_.changed.notify_all();
      return {table_.handed_out, ""};
    }
    ++table_.progress;
    while (table_.rounds == round && table_.broken.empty()) {
      const uint64_t seen = table_.progress;
      const auto moved = [&] {
        return table_.rounds != round || !table_.broken.empty() || table_.progress != seen;
      };
      if (!table_.changed.wait_for(lock, std::chrono::duration<double>(deadline_s), moved)) {
        table_.end(fmt::format("no other rank gave a sign of progress for {:g} s (at '{}')", deadline_s, label));
      }
    }
    // Who left after this round has still given what it brought.
    if (table_.rounds != round) return {table_.handed_out, ""};
    return {{}, table_.broken};
  }

 private:
  Table& table_;
  int rank_;
};

ThreadRendezvous::ThreadRendezvous(int size) : table_(std::make_unique<Table>(size)) {
  LOCKSTEP_CHECK(size >= 1, "a group has at least one rank");
}
ThreadRendezvous::~ThreadRendezvous() = default;

std::unique_ptr<Group> ThreadRendezvous::group(int rank) { return std::make_unique<Member>(*table_, rank); }

}  // namespace lockstep::checkpoint
