#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/lib/checkpoint/loader.h"
#include "harness/lib/checkpoint/storage.h"
#include "harness/suites/checkpoint/saver/judge.h"

// A small checkpoint to damage: two ranks saved two steps, the older one stays whole.

namespace lockstep::saver {

/// How a damaged disk is looked at.
enum class Look {
  newest,       ///< the newest must be refused, the older one loaded, and that said
  pointer,      ///< `latest` is damaged: the newest is loaded, and that is said; `latest` by name is refused
  best_by_name, ///< `best_model` by name is refused
};

class CorruptFixture {
 public:
  /// `floats`: of each of two moments; they are most of its bytes.
  explicit CorruptFixture(int64_t floats);

  static constexpr int kRanks = 2;
  const checkpoint::MemoryStorage& disk() const { return *disk_; }
  const std::string& newest() const { return newest_; }  ///< its folder
  const std::string& older() const { return older_; }
  /// Every file of the newest checkpoint, and the pointers.
  const std::vector<std::string>& files() const { return files_; }
  std::vector<KnownSave> known() const;

  /// What a load makes of a damaged disk. `what`: the damage, for the sentence.
  Judgement judge(checkpoint::Storage& disk, Look look) const;
  static Look look_at(std::string_view file);
  /// Which table row a file stands in: "shard", "manifest.json".
  static std::string kind_of(std::string_view file);

 private:
  mutable Contents contents_;
  std::vector<Content> contents_of_;  ///< the newer one first
  std::unique_ptr<checkpoint::MemoryStorage> disk_;
  std::string newest_, older_;
  std::vector<std::string> files_;
};

// Ways to damage a checkpoint's files, and to ask for what it is not.

/// One damage of the disk, and how the load after it is judged.
struct Damage {
  std::string name;     ///< of the trial: "swap:rank-0-of-2.safetensors:3:7"
  std::string failure;  ///< a row of the table
  std::string place;
  std::string words;    ///< "blocks 3 and 7 of 512 bytes exchanged in rank-0-of-2.safetensors"
  std::function<Judgement(const CorruptFixture& corrupt_fixture)> judge;
};

}  // namespace lockstep::saver
