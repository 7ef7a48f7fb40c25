#include "harness/suites/sampling/counter_writer_race.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "harness/lib/checkpoint/hooked_storage.h"
#include "harness/lib/checkpoint/memory_storage.h"
#include "harness/suites/engine/scheduler/process.h"

namespace lockstep::sampling {
namespace {

using sharding::CounterAnswer;
using sharding::FileCounter;

constexpr int64_t kStart = 10;
constexpr std::string_view kPath = "/counter";

CounterAnswer call(FileCounter& counter, const CounterCall& call) {
  switch (call.verb) {
    case CounterVerb::reset:
      return counter.reset(call.value);
    case CounterVerb::add:
      return counter.add(call.value);
    case CounterVerb::read:
      break;
  }
  return counter.read();
}

std::string call_words(const CounterEvent& event, const std::vector<std::string>& names) {
  const std::string& who = names[static_cast<std::size_t>(event.process)];
  if (event.cut_off) return fmt::format("{} ended within a call", who);
  switch (event.call.verb) {
    case CounterVerb::reset:
      return fmt::format("{} reset it to {}", who, event.call.value);
    case CounterVerb::add:
      return fmt::format("{} added {} and was given {}", who, event.call.value, event.answer.value);
    case CounterVerb::read:
      break;
  }
  return fmt::format("{} read {}", who, event.answer.value);
}

/// Is there an order of whole calls, each between its begin and its end, in which the counter gives these
/// answers?
class Order {
 public:
  explicit Order(const std::vector<CounterEvent>& events) : events_(events), placed_(events.size()) {}

  bool explains(int64_t value) {
    bool all = true;
    for (std::size_t i = 0; i < events_.size(); ++i) {
      if (placed_[i]) continue;
      all = false;
      if (!may_be_next(i)) continue;
      const CounterCall& call = events_[i].call;
      const bool told = call.verb != CounterVerb::reset && !events_[i].cut_off;
      if (told && events_[i].answer.value != value) continue;
      placed_[i] = true;
      if (events_[i].cut_off && explains(value)) return true;
      const int64_t next = call.verb == CounterVerb::reset ? call.value
                           : call.verb == CounterVerb::add ? value + call.value
                                                           : value;
      if (explains(next)) return true;
      placed_[i] = false;
    }
    return all;
  }

 private:
  bool may_be_next(std::size_t i) const {
    for (std::size_t other = 0; other < events_.size(); ++other) {
      if (!placed_[other] && other != i && events_[other].ended < events_[i].begun) return false;
    }
    return true;
  }

  const std::vector<CounterEvent>& events_;
  std::vector<bool> placed_;
};

bool beside(const CounterEvent& a, const CounterEvent& b) { return a.begun < b.ended && b.begun < a.ended; }

}  // namespace

std::vector<std::string> CounterScene::names() const {
  std::vector<std::string> names;
  for (std::size_t process = 0; process < processes.size(); ++process)
    names.push_back(fmt::format("process {}", static_cast<char>('A' + process)));
  return names;
}

bool CounterScene::resets() const {
  return std::ranges::any_of(processes, [](const auto& calls) {
    return std::ranges::any_of(calls,
                               [](const CounterCall& call) { return call.verb == CounterVerb::reset; });
  });
}

std::span<const CounterScene> counter_scenes() {
  constexpr CounterCall kAdd{CounterVerb::add, 1}, kAddFour{CounterVerb::add, 4}, kRead{CounterVerb::read, 0};
  const auto reset = [](int64_t value) { return CounterCall{CounterVerb::reset, value}; };
  static const auto kScenes = std::to_array<CounterScene>({
      {"two_add", "two processes add", {{kAdd, kAddFour}, {kAdd, kAdd}}},
      {"reset_add", "one process resets, another adds", {{reset(100), kAdd}, {kAdd, kAdd}}},
      {"reset_read", "one process resets, another reads", {{reset(100), reset(200)}, {kRead, kRead}}},
      {"two_reset", "two processes reset and add", {{reset(100), kAdd}, {reset(200), kAddFour}}},
      {"three_add", "three processes add", {{kAdd, kAdd}, {kAddFour}, {kAdd}}},
      {"three_mixed",
       "three processes: one resets, one adds, one reads",
       {{reset(100)}, {kAdd, kAdd}, {kRead, kAdd}}},
  });
  return kScenes;
}

sharding::Finding audit_counter(int64_t start, const std::vector<CounterEvent>& events,
                                const std::vector<std::string>& names) {
  for (const CounterEvent& event : events) {
    if (!event.answer && !event.cut_off)
      return {"call_failed",
              fmt::format("{}: {}", names[static_cast<std::size_t>(event.process)], event.answer.problem)};
  }
  if (Order(events).explains(start)) return {};
  std::string told;
  for (const CounterEvent& event : events) told += (told.empty() ? "" : "; ") + call_words(event, names);
  const std::string sentence = fmt::format("no order of these explains them, from {} on: {}", start, told);
  for (const CounterEvent& event : events) {
    if (event.call.verb != CounterVerb::reset) continue;
    const bool meets = std::ranges::any_of(
        events, [&](const CounterEvent& other) { return &other != &event && beside(event, other); });
    if (meets) return {"reset_half_seen", sentence};
  }
  for (std::size_t i = 0; i < events.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      const CounterEvent &a = events[i], &b = events[k];
      if (a.call.verb != CounterVerb::add || b.call.verb != CounterVerb::add || a.cut_off || b.cut_off)
        continue;
      if (a.answer.value < b.answer.value + b.call.value && b.answer.value < a.answer.value + a.call.value)
        return {
            "lost_update",
            "two processes were given the same numbers, and so draw the same initial states: " + sentence};
    }
  }
  return {"no_order", sentence};
}

std::string in_words(const CounterScene& scene, const CounterSchedule& schedule) {
  const std::vector<std::string> names = scene.names();
  std::string text = names[static_cast<std::size_t>(schedule.order.front())] + " begins";
  if (schedule.dies >= 0)
    text += fmt::format("; {} ends before its operation {}", names[static_cast<std::size_t>(schedule.dies)],
                        schedule.dies_at);
  for (const scheduler::Preemption& preemption : schedule.preemptions)
    text += fmt::format("; {} stops before its operation {}, and {} goes on",
                        names[static_cast<std::size_t>(preemption.process)], preemption.at,
                        names[static_cast<std::size_t>(preemption.to)]);
  return text;
}

CounterEnd play_counter(const CounterScene& scene, const CounterSchedule& schedule,
                        sharding::CounterPlanted planted, bool notes) {
  const auto count = scene.processes.size();
  const std::vector<std::string> names = scene.names();
  checkpoint::MemoryStorage disk;
  const std::string path(kPath);
  FileCounter(disk, path, [] { return false; }).reset(kStart);
  scheduler::Scheduler scheduler(static_cast<int>(count), schedule.order);
  scheduler::SharedRun play{.scheduler = scheduler, .preemptions = schedule.preemptions, .notes_wanted = notes};
  play.preempted.resize(schedule.preemptions.size());
  std::vector<std::unique_ptr<scheduler::ScheduledProcess>> processes;
  for (std::size_t process = 0; process < count; ++process)
    processes.push_back(
        std::make_unique<scheduler::ScheduledProcess>(play, static_cast<int>(process), nullptr,
                                       static_cast<int>(process) == schedule.dies
                                           ? scheduler::Script{.injected = scheduler::InjectedFault::end, .at = schedule.dies_at}
                                           : scheduler::Script{}));
  std::vector<CounterEvent> events;
  int64_t now = 0;
  scheduler.run([&](int process) {
    checkpoint::Seam seam(*processes[static_cast<std::size_t>(process)]);
    checkpoint::HookedStorage storage(disk, seam);
    const std::string lock = path + ".lock";
    const auto is_free = [&] {
      int file = -1;
      if (disk.lock(lock, file)) return false;
      disk.close(file);
      return true;
    };
    FileCounter counter(storage, path, [&] { return scheduler.wait(process, is_free); }, planted);
    for (const CounterCall& each : scene.processes[static_cast<std::size_t>(process)]) {
      CounterEvent event{process, each, {}, now++, 0};
      event.answer = call(counter, each);
      event.ended = now++;
      event.cut_off = processes[static_cast<std::size_t>(process)]->ended();
      events.push_back(event);
      if (event.cut_off) break;
    }
  });
  CounterEvent last{0, {CounterVerb::read, 0}, {}, now++, 0};
  last.answer = FileCounter(disk, path, [] { return false; }, planted).read();
  last.ended = now;
  events.push_back(std::move(last));
  CounterEnd end;
  end.finding = audit_counter(kStart, events, names);
  if (scheduler.stalled() && !end.finding)
    end.finding = {"hang", "a process waited for a lock that nobody gives back"};
  end.preempted = play.preempted;
  for (const auto& process : processes) end.died = end.died || process->ended();
  if (notes) end.timeline = timeline_of(play.notes, names);
  return end;
}

}  // namespace lockstep::sampling
