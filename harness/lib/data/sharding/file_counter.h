#pragma once
// A number in a file that several processes take the next ones from: which initial state, which task comes
// next.

#include <cstdint>
#include <functional>
#include <string>

#include "harness/lib/checkpoint/storage.h"

namespace lockstep::sharding {

/// The mistakes that people make, which a lab plants to see them found. All off: the counter as it is.
struct CounterPlanted {
  bool reset_in_place = false;  ///< reset empties the file and writes it without the lock; who reads an empty
                                ///< one takes it for 0
  bool add_unlocked = false;    ///< add reads and writes without the lock
};

struct CounterAnswer {
  int64_t value = 0;
  std::string problem;  ///< empty: it was done
  explicit operator bool() const { return problem.empty(); }
};

/// Two files: PATH holds the number and its checksum, PATH.lock the lock of those who change it. PATH is
/// replaced by a rename, so that who reads sees the number before a change or after it and needs no lock.
/// Nothing is synced: after a power loss the run resets it.
class FileCounter {
 public:
  /// Called while another process has the lock; returns when it may be free, or false to give up.
  using Wait = std::function<bool()>;
  FileCounter(checkpoint::Storage& storage, std::string path, Wait wait, CounterPlanted planted = {});

  /// The number is `value` from now on; returns it.
  CounterAnswer reset(int64_t value);
  /// The number; a problem if none was ever set, never 0.
  CounterAnswer read();
  /// Adds `count` and returns the number before: this process's own numbers are [value, value + count).
  CounterAnswer add(int64_t count);

  std::string lock_path() const { return path_ + ".lock"; }

 private:
  /// Runs `change` under the lock.
  CounterAnswer locked(const std::function<CounterAnswer()>& change);
  CounterAnswer write(int64_t value);
  CounterAnswer write_in_place(int64_t value);

  checkpoint::Storage& storage_;
  std::string path_;
  Wait wait_;
  CounterPlanted planted_;
};

}  // namespace lockstep::sharding
