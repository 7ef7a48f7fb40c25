#pragma once
// What a save, a load or a retention asks of the disk and of the other ranks, one operation at a time, and
// the place where a lab steps in between: to record, to kill, to stop, to let an operation fail.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>

namespace lockstep::checkpoint {

enum class OperationKind {
  create,         ///< a file that must not exist yet, open for writing
  write,          ///< bytes to an open file; the system may take fewer
  sync,           ///< fsync of an open file
  close,          ///< of an open file
  rename,         ///< a file or a folder
  sync_folder,    ///< fsync of a folder: the names in it are durable
  make_folder,    ///< one that must not exist yet
  unlink,         ///< a file's name
  remove_folder,  ///< an empty folder
  list,           ///< the names in a folder
  open,           ///< a file for reading
  read,           ///< bytes of an open file; the system may give fewer
  stat,           ///< what stands at a path, and its length
  lock,           ///< the right to save into a folder, against other processes
  gather,         ///< a collective: every rank gives its text and gets those of all
};

/// "create", "sync folder", "gather": the kind in words.
std::string_view name_of(OperationKind kind);

constexpr bool is_sync(OperationKind kind) {
  return kind == OperationKind::sync || kind == OperationKind::sync_folder;
}

/// One operation of one rank.
struct Operation {
  int64_t number = 0;  ///< from 0, one count for the files and the collectives of a rank
  OperationKind kind = OperationKind::create;
  std::string path = {};  ///< of the file or folder; the label of a collective ("written", "commit")
  std::string to = {};    ///< the new name of what is renamed
  int64_t offset = 0;     ///< where in the file a write or read begins
  /// What is to be written; after the operation: what was. A collective: this rank's text
  std::string_view bytes = {};
};

/// "write 12 bytes at 0 of step/rank-0-of-2.safetensors", "gather 'commit'": the operation in words.
std::string in_words(const Operation& operation);

/// What a hook wants of an operation. By default: that it takes its course.
struct Intervention {
  std::error_code error = {};  ///< what the operation is to come to
  /// With an error: the operation is performed all the same, and then called failed
  bool performed = false;
  bool left_out = false;  ///< it is not performed, and called done: a sync that nobody needs
  std::size_t most_bytes = std::string_view::npos;  ///< a write or read takes no more than these
};

/// Stands between a rank and its disk and peers. It may be called by two threads (an asynchronous save has
/// its own).
class Hook {
 public:
  virtual ~Hook() = default;
  /// Before the operation. May end or stop the process, or hold the thread back.
  virtual Intervention before(const Operation&) { return {}; }
  /// After it, with what it came to.
  virtual void after(const Operation&, std::error_code) {}
};

/// One rank's hook and count of operations, shared by its HookedStorage and its HookedGroup.
class Seam {
 public:
  explicit Seam(Hook& hook) : hook_(hook) {}
  Hook& hook() { return hook_; }
  int64_t next_number() { return count_++; }
  int64_t count() const { return count_; }

 private:
  Hook& hook_;
  std::atomic<int64_t> count_{0};
};

/// What was done, in order, with the bytes; hands on to another hook if there is one.
class Recorder final : public Hook {
 public:
  struct Done {
    Operation operation;  ///< its `bytes` point into `bytes`
    std::string bytes;
    std::error_code error;
  };
  explicit Recorder(Hook* next = nullptr) : next_(next) {}
  Intervention before(const Operation& operation) override;
  void after(const Operation& operation, std::error_code error) override;
  /// To be read when no operation is under way.
  const std::deque<Done>& done() const { return done_; }

 private:
  Hook* next_;
  std::mutex mutex_;
  std::deque<Done> done_;
};

/// Sends this process a signal before the operation of that number: SIGKILL ends it there, SIGSTOP holds it
/// there until SIGCONT comes.
class SignalAt final : public Hook {
 public:
  SignalAt(int64_t number, int signal) : number_(number), signal_(signal) {}
  Intervention before(const Operation& operation) override;

 private:
  int64_t number_;
  int signal_;
};

}  // namespace lockstep::checkpoint
