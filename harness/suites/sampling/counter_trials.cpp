// A counter in a file: every single preemption of two and of three processes, every double one of two.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/base/counted.h"
#include "harness/base/errors.h"
#include "harness/suites/sampling/counter_writer_race.h"
#include "harness/suites/sampling/trials.h"

namespace lockstep::sampling {
namespace {

struct Family : scheduler::Family {
  const CounterScene* scene = nullptr;
};

std::vector<Family> families_of(const CounterScene& scene) {
  std::vector<Family> all;
  for (scheduler::Family& each : scheduler::families_of(static_cast<int>(scene.processes.size())))
    all.push_back({std::move(each), &scene});
  return all;
}

/// Every schedule of the family. `each` takes the schedule, what came of it and whether it is a double one.
template <class Each>
void play_family(const Family& family, sharding::CounterPlanted planted, Each each) {
  const auto play = [&](const scheduler::Schedule& schedule) {
    return play_counter(*family.scene, {schedule}, planted, false);
  };
  const auto each_one = [&](const scheduler::Schedule& schedule, const CounterEnd& end, bool is_double) {
    each(CounterSchedule{schedule}, end, is_double);
    return true;
  };
  for (int64_t at = 0; scheduler::play_family(family, at, play, each_one);) ++at;
}

class CounterPlanneds final : public Suite {
 public:
  explicit CounterPlanneds(const SamplingConfig& config) : config_(config) {}

  std::vector<std::string> plan() const override {
    return {
        fmt::format("counter: {} scenes of two and three processes; each stops before each of its "
                    "operations, and of two the other "
                    "one before each of its own",
                    counter_scenes().size())};
  }

  std::vector<Trial> trials(const SuiteRun&) override {
    std::vector<Trial> all;
    for (const CounterScene& scene : counter_scenes()) {
      for (const Family& family : families_of(scene)) all.push_back(schedules(family));
      for (std::size_t process = 0; process < scene.processes.size(); ++process)
        all.push_back(deaths(scene, static_cast<int>(process)));
    }
    if (config_.planted) {
      all.push_back(planted_trial("reset_in_place", "reset empties the file without the lock", "counter", 1,
                                  {"reset_half_seen"},
                                  [](MutationCheck& check) { plant({.reset_in_place = true}, check); }));
      all.push_back(planted_trial("add_unlocked", "add reads and writes without the lock", "counter", 1,
                                  {"lost_update", "call_failed"},
                                  [](MutationCheck& check) { plant({.add_unlocked = true}, check); }));
    }
    return all;
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    return {{"schedules of processes at a counter",
             fmt::format("{}: {} single and {} double preemptions of two, {} single ones of three",
                         with_commas(m.count("two") + m.count("doubles") + m.count("three")), with_commas(m.count("two")), with_commas(m.count("doubles")),
                         with_commas(m.count("three")))},
            {"ends of processes at a counter", with_commas(m.count("deaths"))}};
  }

 private:
  static std::string name_of(const Family& family) {
    std::string order;
    for (const int process : family.order) order += static_cast<char>('a' + process);
    return fmt::format("counter:{}:{}:{}-{}{}", family.scene->name, order,
                       static_cast<char>('a' + family.stops), static_cast<char>('a' + family.goes_on),
                       family.soon ? "-soon" : "");
  }

  Trial schedules(const Family& family) {
    Trial planned;
    planned = {name_of(family), "counter", std::string(family.scene->words),
                     family.doubles ? 0.2 : 0.02};
    planned.run = [this, family](Slot&) {
      Cases cases;
      play_family(family, {}, [&](const CounterSchedule& schedule, const CounterEnd& end, bool is_double) {
        measured().add(is_double ? "doubles" : family.scene->processes.size() == 2 ? "two" : "three");
        if (!end.finding) return cases.good();
        cases.fault(end.finding.code,
                    fmt::format("{}: {}", in_words(*family.scene, schedule), end.finding.sentence),
                    play_counter(*family.scene, schedule, {}, true).timeline);
      });
      return cases.take();
    };
    return planned;
  }

  /// The process's process ends before each of its operations, after the others have had their turn or before.
  Trial deaths(const CounterScene& scene, int process) {
    Trial planned;
    planned = {fmt::format("counter:{}:{}-dies", scene.name, static_cast<char>('a' + process)),
                     "counter, a process ends", std::string(scene.words), 0.02};
    planned.run = [this, &scene, process](Slot&) {
      Cases cases;
      std::vector<int> order(scene.processes.size());
      std::iota(order.begin(), order.end(), 0);
      do {
        for (int64_t at = 0;; ++at) {
          const CounterSchedule schedule{{order}, process, at};
          const CounterEnd end = play_counter(scene, schedule, {}, false);
          if (!end.died) break;
          measured().add("deaths");
          if (end.finding)
            cases.fault(end.finding.code,
                        fmt::format("{}: {}", in_words(scene, schedule), end.finding.sentence),
                        play_counter(scene, schedule, {}, true).timeline);
          else
            cases.good();
        }
      } while (std::ranges::next_permutation(order).found);
      return cases.take();
    };
    return planned;
  }

  static void plant(sharding::CounterPlanted planted, MutationCheck& check) {
    for (const CounterScene& scene : counter_scenes()) {
      if (scene.resets() != planted.reset_in_place) continue;
      for (const Family& family : families_of(scene)) {
        play_family(family, planted, [&](const CounterSchedule& schedule, const CounterEnd& end, bool) {
          if (!end.finding) return;
          const bool first = check.acted() == 0;
          check.saw(
              end.finding.code, fmt::format("{}: {}", in_words(scene, schedule), end.finding.sentence),
              first ? play_counter(scene, schedule, planted, true).timeline : std::vector<TimelineStep>{});
        });
      }
    }
  }

  const SamplingConfig config_;
};

}  // namespace

std::unique_ptr<Suite> make_counter_trials(const SamplingConfig& config) {
  return std::make_unique<CounterPlanneds>(config);
}

}  // namespace lockstep::sampling
