#pragma once
// One save, from the first operation to the last. docs/checkpoint.md has the order and why it is that one.

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/group.h"
#include "harness/lib/checkpoint/hooked_storage.h"
#include "harness/lib/checkpoint/retention.h"
#include "harness/lib/checkpoint/save.h"
#include "harness/lib/checkpoint/shard.h"
#include "harness/lib/checkpoint/survey.h"

namespace lockstep::checkpoint {

class SaveProtocol {
 public:
  SaveProtocol(const SaveOptions& options, Storage& storage, Group& group, const SaveRequest& request,
               const State& state, Sightings& seen);
  SaveOutcome run();

 private:
  using Json = nlohmann::json;
  bool first() const { return group_.rank() == 0; }
  std::string final_path() const { return options_.root + "/" + name_; }
  ShardOptions shard_options() const;
  Durability durability() const;
  Gathered gather(const std::string& label, const Json& mine);

  std::string prepare();
  std::string make_root();
  std::string make_room();
  void settle_earlier(const Survey& found);
  Retention retention();
  std::string begin();
  std::string write();
  std::string install(const std::string& manifest_text);
  std::string move_aside();
  std::string rename_all(const std::string& manifest_text);
  std::string commit(const std::string& manifest_text);
  std::string write_commit(const std::string& manifest_text);
  void finish();
  void abandon();
  void unlock();
  bool planted_exists();
  void planted_pointer();
  void planted_deletion();

  const SaveOptions& options_;
  Group& group_;
  Sightings& seen_;
  ProgressHook progress_;
  Seam seam_;
  HookedStorage storage_;
  const SaveRequest& request_;
  const State& state_;
  std::string name_;
  std::string folder_;  ///< where the parts are now
  std::string aside_;   ///< where an older checkpoint of this step is now
  Manifest manifest_;
  std::vector<Json> contributions_;
  int lock_ = -1;
  bool made_ = false;  ///< `folder_` is ours
  /// Rank 0 may have committed, whatever this rank has heard of it.
  bool may_be_committed_ = false;
  SaveOutcome outcome_;
};

}  // namespace lockstep::checkpoint
