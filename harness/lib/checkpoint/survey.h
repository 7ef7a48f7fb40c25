#pragma once
// What stands in a folder of checkpoints: which are whole, which damaged, which were never finished.

#include <map>
#include <string>
#include <vector>

#include "harness/lib/checkpoint/file_steps.h"
#include "harness/lib/checkpoint/manifest.h"
#include "harness/lib/checkpoint/names.h"
#include "harness/lib/checkpoint/storage.h"

namespace lockstep::checkpoint {

enum class Standing {
  whole,       ///< committed, and its manifest is what was committed
  damaged,     ///< committed once; something of it is not what it was
  unfinished,  ///< no commit record: it never counted
  newer,       ///< of a format that this program does not know
  refusing,    ///< it cannot be read now: permissions, too many open files
};

struct Entry {
  std::string name;
  EntryName parsed;
  Standing standing = Standing::unfinished;
  /// Also of damaged and newer ones, where it can be read; save_id is empty otherwise
  CommitRecord commit = {};
  Manifest manifest = {};    ///< of whole ones, unless `Sightings` knew them
  /// Its commit record could not be read now; `commit` has the manifest's sequence then, or 0.
  bool unread = false;
  std::string problem = {};  ///< "manifest.json: step: 100 was committed, the manifest has 101"
};

struct Survey {
  bool exists = false;                   ///< the folder stands
  std::vector<Entry> entries;            ///< newest first; those whose place nobody knows before all others
  std::vector<std::string> temporaries;  ///< left beside pointers
  std::vector<std::string> strangers;    ///< names that are none of ours
  Failure failure;                       ///< the folder cannot be read
};

/// Whole checkpoints that one process has looked at, so that its next save reads of each no more than its commit record,
/// which binds the rest: name -> the record's bytes, and whether the files' lengths were looked at too.
struct Sightings {
  struct Sighting {
    std::string commit_text;
    bool lengths = false;
  };
  std::map<std::string, Sighting> whole;
};

/// `lengths`: a checkpoint whose files have other lengths than its manifest says is damaged. `seen` may be null.
Survey survey(Storage& storage, const std::string& root, bool lengths, Sightings* seen = nullptr);

/// One checkpoint of the folder, as `survey` sees it.
Entry look_at(Storage& storage, const std::string& root, const std::string& name, bool lengths = false);

/// A pointer's content, or why it says nothing: "latest: is empty".
struct ReadPointer {
  Pointer pointer;
  std::string problem;
  bool missing = false;
};
ReadPointer read_pointer(Storage& storage, const std::string& root, std::string_view name);

/// The entry that holds this save; null if none does.
const Entry* entry_of(const Survey& survey, const std::string& save_id);

/// Moved aside for a newer one of its step, which is whole?
bool superseded(const Survey& survey, const Entry& entry);

/// What `latest` is to name: the newest whole one. Null if none is.
const Entry* newest_of(const Survey& survey);
/// What `best_model` is to name: the newest whole one that was saved as the best so far; where none was (an older format
/// does not say), what the pointer names. Null if there is none.
const Entry* best_of(const Survey& survey, const ReadPointer& pointer);

}  // namespace lockstep::checkpoint
