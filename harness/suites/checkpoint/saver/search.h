#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/lib/checkpoint/saver.h"
#include "harness/lib/checkpoint/storage.h"
#include "harness/suites/checkpoint/saver/judge.h"
#include "harness/suites/engine/suite.h"

// Searches over saves: each enumerates choices (who is killed where, which order, which disk is left, what is damaged),
// plays all of them on the saver as it is, and some on the saver with a mistake planted, until one shows it.

namespace lockstep::saver {

// What `saver:` holds in a config.

/// What is done to saves.
enum class SearchKind { kill, schedules, power, corruption, errors };
WordList words_of(SearchKind kind);

struct SaverConfig {
  SearchKind search = SearchKind::kill;
  std::vector<int64_t> world_sizes = {1, 2, 4, 8};
  int64_t points = 0;
  int64_t process_points = 0;
  bool planted = true;
};

/// What came of one try. The functions are called where it is a fault.
struct Tried {
  Judgement judgement;
  std::function<std::string()> words;  ///< what was done
  std::function<std::vector<TimelineStep>()> timeline = nullptr;
};
/// False: nothing more need be tried.
using Each = std::function<bool(const Tried&)>;

/// A trial, and all tries that it stands for.
struct Choice {
  std::string name = {}, failure = {}, place = {};
  double estimate_s = 0;
  std::function<void(const Each&)> play;
};

using Names = std::vector<std::string_view>;

class Search : public Suite {
 public:
  explicit Search(const SaverConfig& config) : config_(config) {}
  /// The planted mistakes first, since they take longest.
  std::vector<Trial> trials(const SuiteRun& run) final;

 protected:
  virtual std::vector<Choice> choices(const SuiteRun& run) = 0;
  /// Of the saver with that mistake, in the order in which they are to show it. `among`: scenes, or what the search has
  /// in their place.
  virtual std::vector<Choice> choices_of(const checkpoint::Planted& planted, const Names& among) = 0;

  const SaverConfig config_;
  Contents contents_;
};

std::unique_ptr<Suite> make_kill_search(const SaverConfig& config);
std::unique_ptr<Suite> make_error_search(const SaverConfig& config);
std::unique_ptr<Suite> make_schedule_search(const SaverConfig& config);
std::unique_ptr<Suite> make_power_search(const SaverConfig& config);
std::unique_ptr<Suite> make_corruption_search(const SaverConfig& config);

/// What came of the search for one planted mistake.
struct MutantFound {
  bool found = false;
  int64_t tried = 0;  ///< the one that shows it included
  CaseResult shown = {};
};

/// A trial that plants the mistake. Found, it is listed as planted; not found, it is a fault of this suite.
/// `harmless`: why it does no harm in this search; then finding it would be the fault.
Trial mutant_trial(std::string_view name, std::string_view place, std::string_view harmless,
                   std::function<MutantFound()> search);

// Ranks that are processes on the machine's file system, one of which gets a signal: sockets close, locks go and pages
// stay as the kernel does it.

/// Where a rank of a save is disturbed, and how.
struct Point {
  int rank = 0;
  checkpoint::OperationKind kind = checkpoint::OperationKind::create;
  scheduler::Script script = {};
};

/// `folder` is this call's own: it is emptied, and gets the scene's disk. The signal comes before the point's
/// operation; of SIGSTOP the others must give up on the rank within the deadline, and it is killed then.
Judgement judge_signal(const std::string& folder, const checkpoint::MemoryStorage& before, const Scene& scene, int ranks,
                       const Point& point, int signal, Contents& contents);

}  // namespace lockstep::saver

// The suite of the saver library (harness/lib/checkpoint): kills, schedules, power losses, corruption and errors, by the
// thousand, on a disk in memory and on the machine's.

namespace lockstep {

const SuiteKind& saver_suite();

}  // namespace lockstep
