#include "harness/judge/compare/led.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "harness/base/json.h"
#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "harness/judge/compare/bits.h"
#include "harness/judge/compare/forced/values.h"
#include "harness/judge/trace/reader.h"

namespace lockstep {
namespace {

using Place = std::pair<Phase, std::string>;
using Marks = std::map<Place, Record>;
using Batches = std::vector<std::vector<int64_t>>;

/// Everything that one rank of a run has kept.
struct RankKept {
  std::map<int64_t, Marks> steps;  ///< of steps that begin with a snapshot
  nlohmann::json rows;             ///< rank-R.rows.json
  Batches taken;

  int64_t first() const { return steps.empty() ? 0 : steps.begin()->first; }
  /// What the step began with that is in no trace: counters, schedules, …
  nlohmann::json at(int64_t step, const char* key) const {
    const nlohmann::json all = rows.value("steps", nlohmann::json::object());
    const auto found = all.is_object() ? all.find(std::to_string(step)) : all.end();
    return found != all.end() && found->is_object() ? found->value(key, nlohmann::json()) : nlohmann::json();
  }
  std::size_t taken_at(int64_t step) const { return json_as<std::size_t>(at(step, "taken")).value_or(0); }
};

std::vector<RankKept> kept_by(const std::string& dir) {
  std::vector<RankKept> ranks;
  for (int rank = 0, world_size = 1; rank < world_size; ++rank) {
    TraceReader reader(fmt::format("{}/rank-{}.trace", dir, rank));
    world_size = reader.header().world_size;
    RankKept& kept = ranks.emplace_back();
    while (std::optional<StepRecords> step = reader.next()) {
      if (std::ranges::none_of(step->records, [](const Record& record) { return record.phase == Phase::snapshot; }))
        continue;
      Marks& marks = kept.steps[step->step];
      for (Record& record : step->records) {
        if (record.phase == Phase::collective) continue;
        if (record.phase != Phase::snapshot) record.payload.clear();
        Place place(record.phase, record.name);
        marks.emplace(std::move(place), std::move(record));
      }
    }
    kept.rows = rows_of(dir, rank);
    kept.taken = json_as<Batches>(kept.rows.value("taken", nlohmann::json())).value_or(Batches());
  }
  return ranks;
}

/// Null if the step has none there.
const Record* held(const Marks& marks, const Place& place) {
  const auto found = marks.find(place);
  return found == marks.end() ? nullptr : &found->second;
}

bool same(const Record& a, const Record& b) {
  return a.is_scalar ? a.value == b.value || (std::isnan(a.value) && std::isnan(b.value))
                     : a.stats.hash == b.stats.hash;
}

bool is_weight(const Place& place) {
  return place.first == Phase::snapshot && place.second.find('/') == std::string::npos && place.second != "updates";
}
bool is_moment(const Place& place) {
  return place.first == Phase::snapshot &&
         (place.second.starts_with("first_moment/") || place.second.starts_with("second_moment/"));
}
bool is_average(const Place& place) { return place.first == Phase::snapshot && place.second.starts_with("average/"); }
bool is_rate(const Place& place) { return place.first == Phase::control && place.second.starts_with("learning_rate"); }

bool in_bfloat16(const std::vector<double>& values) {
  return std::ranges::all_of(
      values, [](double value) { return (std::bit_cast<uint32_t>(static_cast<float>(value)) & 0xFFFFU) == 0; });
}

/// What a step computes, in its order.
constexpr std::pair<Phase, const char*> kResults[] = {{Phase::loss, "loss"},
                                                      {Phase::local_gradients, "gradients"},
                                                      {Phase::reduced_gradients, "gradients"},
                                                      {Phase::applied_gradients, "gradients"},
                                                      {Phase::parameters, "update"},
                                                      {Phase::averaged_weights, "averages after"}};

class ResumedJudge {
 public:
  ResumedJudge(const std::string& whole, const std::string& stopped, const std::string& resumed)
      : whole_(kept_by(whole)),
        stopped_(kept_by(stopped)),
        resumed_(kept_by(resumed)),
        ranks_(std::min({whole_.size(), stopped_.size(), resumed_.size()})) {}

  ResumedFindings judge() {
    for (const RankKept& rank : stopped_)
      found_.stopped = std::max(found_.stopped, rank.steps.empty() ? 0 : rank.steps.rbegin()->first);
    first_ = resumed_[0].first();
    chance();
    find_beginning();
    const int64_t begins = found_.begins;
    while (made(whole_[0], begins + found_.steps) && made(resumed_[0], first_ + found_.steps)) ++found_.steps;
    tensors("weights", is_weight);
    tensors("buffers", [](const Place& place) { return place.first == Phase::snapshot && is_buffer(place.second); });
    tensors("moments", is_moment);
    counters();
    schedule();
    scaler();
    averages();
    results();
    rows();
    generators();
    contents();
    for (const LedItem& item : found_.items)
      if (item.state == Mark::different && !is_result(item.name)) found_.lost.push_back(item.name);
    // A shuffle draws its order from a generator: of these two the generator is what was lost.
    const LedItem* rows = found_.find("rows");
    if (rows && rows->state == Mark::different && rows->code.empty())
      std::ranges::stable_partition(found_.lost, [](const std::string& name) { return name != "rows"; });
    std::ranges::stable_partition(found_.items, [](const LedItem& item) { return !is_result(item.name); });
    return std::move(found_);
  }

 private:
  static bool is_result(const std::string& name) {
    return std::ranges::any_of(kResults, [&](const auto& result) { return name == result.second; });
  }

  /// Ranks that have lost a state, and what is said of the first.
  struct Losers {
    std::set<std::size_t> ranks;
    std::string text;

    void add(std::size_t rank, const std::string& said) {
      if (said.empty()) return;
      ranks.insert(rank);
      if (text.empty()) text = said;
    }
  };

  LedItem& add(const std::string& name, Mark state, std::string text = "", std::string code = "") {
    LedItem item;
    item.name = name;
    item.state = state;
    item.steps = 1;
    item.first = state == Mark::different ? found_.begins : -1;
    item.text = std::move(text);
    item.code = std::move(code);
    found_.items.push_back(std::move(item));
    return found_.items.back();
  }

  static bool made(const RankKept& rank, int64_t step) {
    const auto found = rank.steps.find(step);
    return found != rank.steps.end() &&
           std::ranges::any_of(found->second, [](const auto& each) { return each.first.first == Phase::parameters; });
  }

  std::string on(const std::set<std::size_t>& ranks) const {
    if (ranks.size() == ranks_) return "";
    return fmt::format(", on {} {} of {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "), ranks_);
  }

  /// Does the program give the same bits twice? Up to where it was stopped it ran twice.
  void chance() {
    for (int64_t step = 0; step <= found_.stopped && found_.chance < 0; ++step) {
      for (std::size_t rank = 0; rank < ranks_ && found_.chance < 0; ++rank) {
        const auto a = whole_[rank].steps.find(step), b = stopped_[rank].steps.find(step);
        if (a == whole_[rank].steps.end() || b == stopped_[rank].steps.end()) continue;
        for (const auto& [place, record] : a->second) {
          if (place.first == Phase::random || place.first == Phase::control) continue;
          const Record* other = held(b->second, place);
          if (!other || same(record, *other)) continue;
          found_.chance = step;
          found_.chance_text =
              place.first == Phase::snapshot ? place.second : fmt::format("{} {}", name_of(place.first), place.second);
          found_.unseeded = step == 0 && is_weight(place);
          break;
        }
      }
    }
  }

  /// The step of which the resumed run has most that no beginning has.
  void find_beginning() {
    double most = 0;
    for (int64_t step = 1; step <= found_.stopped; ++step) {
      double score = 0;
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        const auto now = stopped_[rank].steps.find(step);
        if (now == stopped_[rank].steps.end() || resumed_[rank].steps.empty()) continue;
        const Marks &start = stopped_[rank].steps.begin()->second, &own = resumed_[rank].steps.begin()->second;
        std::size_t all = 0, equal = 0;
        for (const auto& [place, record] : now->second) {
          if (place.first != Phase::snapshot || place.second == "updates") continue;
          ++all;
          const Record *found = held(own, place), *before = held(start, place);
          equal += found && same(*found, record) && (!before || !same(*before, record));
        }
        score += all > 0 ? static_cast<double>(equal) / static_cast<double>(all) : 0;
        for (const char* key : {"counters", "schedules"}) {
          const nlohmann::json value = stopped_[rank].at(step, key);
          score += value == resumed_[rank].at(first_, key) && value != stopped_[rank].at(0, key) ? 1 : 0;
        }
      }
      if (score > 0 && score >= most) most = score, found_.begins = step;
    }
    if (most > 0 || found_.stopped == 0) return;
    // With nothing of a later step: the start weights themselves, or others that no step has.
    found_.anew = true;
    for (std::size_t rank = 0; rank < ranks_ && found_.anew; ++rank)
      for (const auto& [place, record] : stopped_[rank].steps.begin()->second) {
        const Record* found = is_weight(place) ? held(resumed_[rank].steps.begin()->second, place) : nullptr;
        if (found && !same(*found, record)) found_.anew = false;
      }
    found_.begins = found_.anew ? 0 : found_.stopped;
  }

  /// Tensors that a step begins with.
  void tensors(const std::string& name, bool (*of_kind)(const Place&)) {
    std::set<std::size_t> ranks;
    std::set<std::string> off, all, none;
    double gap = 0, size = 0;
    bool rounded = true;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const Marks &expected = stopped_[rank].steps[found_.begins], &own = resumed_[rank].steps[first_];
      for (const auto& [place, record] : expected) {
        if (!of_kind(place)) continue;
        all.insert(place.second);
        const Record* found = held(own, place);
        if (found && same(record, *found)) continue;
        ranks.insert(rank);
        off.insert(place.second);
        const auto there = values_of(record), here = values_of(found);
        if (!here || norm(*here) == 0) none.insert(place.second);
        rounded = rounded && there && here && in_bfloat16(*here) && !in_bfloat16(*there);
        if (there && here && there->size() == here->size())
          gap += std::pow(distance(*there, *here), 2);
        else if (there)
          gap += std::pow(norm(*there), 2);
        if (there) size += std::pow(norm(*there), 2);
      }
    }
    if (all.empty()) {
      if (name != "buffers") add(name, Mark::none, "none");
      return;
    }
    if (off.empty()) {
      add(name, Mark::same);
      return;
    }
    std::string what = counted(std::ssize(off), "tensor");
    if (off.size() < all.size())
      what = fmt::format("{} of {}: {}{}", off.size(), counted(std::ssize(all), "tensor"),
                         *off.begin(), off.size() > 1 ? ", …" : "");
    const std::string how = none.size() == off.size() && name == "moments" ? "begin with 0"
                            : size > 0 ? fmt::format("{:.3g} % off", 100 * std::sqrt(gap / size))
                                       : "differ";
    LedItem& item = add(name, Mark::different,
                        fmt::format("{}{} ({}){}", how, rounded ? ", rounded to bfloat16" : "", what, on(ranks)),
                        name == "moments" ? "optimizer-state-lost" : "");
    item.where = *off.begin();
  }

  /// Hands what each rank should have begun with, and what it did; those of which `lacks` says something have lost it.
  template <class Lacks>
  void state(const std::string& name, const char* key, const std::string& code, Lacks lacks) {
    Losers lost;
    bool any = false;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const nlohmann::json expected = stopped_[rank].at(found_.begins, key), own = resumed_[rank].at(first_, key);
      if (!expected.is_array() || !own.is_array()) continue;
      any = any ||
            std::ranges::any_of(expected, [](const nlohmann::json& each) { return !each.is_array() || !each.empty(); });
      lost.add(rank, lacks(expected, own, rank));
    }
    if (lost.ranks.empty())
      add(name, any ? Mark::same : Mark::none, any ? "" : "none");
    else
      add(name, Mark::different, lost.text + on(lost.ranks), code);
  }

  static std::string numbers(const nlohmann::json& all) {
    std::string text = all.dump();
    std::erase_if(text, [](char c) { return c == '"'; });
    return text.size() > 2 ? text.substr(1, text.size() - 2) : "none";
  }
  static bool contains(const nlohmann::json& all, const nlohmann::json& one) {
    return std::ranges::find(all, one) != all.end();
  }

  void counters() {
    const LedItem* moments = found_.find("moments");
    const nlohmann::json of_resumed = resumed_[0].at(first_, "counters");
    const bool none = std::ranges::all_of(of_resumed, [](const nlohmann::json& each) { return each.empty(); });
    if (none && moments && moments->state == Mark::different) {
      add("counter", Mark::none, "with the moments");
      return;
    }
    state("counter", "counters", "optimizer-counter-lost",
          [&](const nlohmann::json& expected, const nlohmann::json& own, std::size_t) {
            return expected == own
                       ? ""
                       : fmt::format("counts {} updates, where {} were made", numbers(own), numbers(expected));
          });
  }

  void schedule() {
    state("schedule", "schedules", "schedule-shifted",
          [&](const nlohmann::json& expected, const nlohmann::json& own, std::size_t rank) {
            for (const nlohmann::json& each : expected)
              if (!contains(own, each)) return fmt::format("is at {}, not at {}", numbers(own), numbers(expected));
            for (int64_t n = 0; n < found_.steps; ++n)
              for (const auto& [place, record] : whole_[rank].steps[found_.begins + n]) {
                const Record* found = is_rate(place) ? held(resumed_[rank].steps[first_ + n], place) : nullptr;
                if (!found || found->value == record.value) continue;
                return fmt::format("the rate of step {} is {}, not {}", found_.begins + n, short_number(found->value),
                                   short_number(record.value));
              }
            return std::string();
          });
  }

  void scaler() {
    state("scaler", "scalers", "", [](const nlohmann::json& expected, const nlohmann::json& own, std::size_t) {
      const bool all = std::ranges::all_of(expected, [&](const nlohmann::json& each) { return contains(own, each); });
      return all ? std::string()
                 : fmt::format("scale and steps since it grew: {}, not {}", numbers(own), numbers(expected));
    });
  }

  /// Copies of the weights that follow them, or that stay what they are.
  void averages() {
    const auto known = [&](std::size_t rank) {
      std::set<std::string> weights;
      for (const auto& [step, marks] : whole_[rank].steps)
        weights.insert(json_as<std::string>(whole_[rank].at(step, "weights")).value_or(""));
      return weights;
    };
    state("averages", "averages", "", [&](const nlohmann::json& expected, const nlohmann::json& own, std::size_t rank) {
      const std::set<std::string> weights = known(rank);
      const nlohmann::json before = whole_[rank].at(found_.begins - 1, "averages"),
                           start = whole_[rank].at(0, "averages");
      // A copy that moves is not the one that a loaded checkpoint still holds.
      const auto moved = [](const RankKept& run, int64_t step, const nlohmann::json& one) {
        const nlohmann::json now = run.at(step, "averages"), next = run.at(step + 1, "averages");
        return std::ranges::count(now, one) - std::ranges::count(next, one) > 0;
      };
      for (const nlohmann::json& each : expected) {
        const auto copy = json_as<std::vector<std::string>>(each).value_or(std::vector<std::string>());
        if (copy.size() != 2 ||
            (moved(whole_[rank], found_.begins, each) ? moved(resumed_[rank], first_, each) : contains(own, each)))
          continue;
        const bool stays = contains(start, each),
                   held = copy[0] != "dict" && copy[0] != "list" && copy[0] != "tuple" && copy[0] != "OrderedDict";
        // A copy that was made to be saved, or that holds the weights of the best step, is not trained with.
        if (stays ? !held : weights.contains(copy[1]) || (!held && contains(before, each))) continue;
        const bool new_copy = std::ranges::any_of(own, [&](const nlohmann::json& other) {
          return other.is_array() && other.size() == 2 && other[0] == each[0] &&
                 other[1] == resumed_[rank].at(first_, "weights");
        });
        return fmt::format("{} begins with {}", copy[0], new_copy ? "the weights themselves" : "other values");
      }
      return std::string();
    });
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      if (std::ranges::any_of(stopped_[rank].steps[found_.begins],
                              [](const auto& each) { return is_average(each.first); }))
        return tensors("declared averages", is_average);
  }

  void results() {
    const bool chance = found_.chance >= 0;
    for (const auto& [phase, name] : kResults) {
      if (found_.anew || std::ranges::any_of(found_.items, [&](const LedItem& item) {
            return item.name == name && item.state == Mark::different;
          }))
        continue;
      std::set<std::size_t> ranks;
      int64_t first = -1, compared = 0;
      std::string where;
      for (int64_t n = 0; n < found_.steps && first < 0; ++n)
        for (std::size_t rank = 0; rank < ranks_; ++rank)
          for (const auto& [place, record] : whole_[rank].steps[found_.begins + n]) {
            if (place.first != phase) continue;
            const Record* found = held(resumed_[rank].steps[first_ + n], place);
            if (!found) continue;
            compared = n + 1;
            if (same(record, *found)) continue;
            if (first < 0)
              where = record.is_scalar ? fmt::format("{} → {}", short_number(record.value), short_number(found->value))
                                       : place.second;
            first = found_.begins + n;
            ranks.insert(rank);
          }
      if (compared == 0) continue;
      std::erase_if(found_.items, [&](const LedItem& item) { return item.name == name; });
      if (first < 0)
        add(name, chance ? Mark::none : Mark::same, chance ? "" : counted(compared, "step"));
      else if (chance)
        add(name, Mark::none);
      else
        add(name, Mark::different, fmt::format("from step {}: {}{}", first, where, on(ranks))).first = first;
    }
  }

  bool results_differ() const {
    return std::ranges::any_of(
        found_.items, [](const LedItem& item) { return is_result(item.name) && item.state == Mark::different; });
  }

  void rows() {
    Losers lost;
    std::string code;
    int64_t compared = 0;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const RankKept &whole = whole_[rank], &own = resumed_[rank];
      // The first forward pass of a step has its batch already.
      const std::size_t there = std::max<std::size_t>(whole.taken_at(found_.begins), 1) - 1,
                        here = std::max<std::size_t>(own.taken_at(first_), 1) - 1;
      std::string said;
      if (!whole.taken.empty() && !own.taken.empty()) {
        for (std::size_t n = 0; there + n < whole.taken.size() && here + n < own.taken.size() && said.empty(); ++n) {
          ++compared;
          if (whole.taken[there + n] != own.taken[here + n]) said = other_rows(rank, there + n, here + n, code);
        }
        // Of a loader that fetches ahead the contents say which step's rows these are.
        const std::string by_contents = said.empty() ? "" : other_inputs(rank, compared, code);
        if (!by_contents.empty() && code == "position-lost") said = by_contents;
      } else {
        said = other_inputs(rank, compared, code);
      }
      lost.add(rank, said);
    }
    const bool by_chance =
        found_.chance >= 0 &&
        stopped_[0].taken != Batches(whole_[0].taken.begin(),
                                     whole_[0].taken.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                   stopped_[0].taken.size(), whole_[0].taken.size())));
    if (compared == 0 || by_chance || found_.anew)
      add("rows", Mark::none, by_chance ? "drawn anew by each run of the program" : "");
    else if (lost.ranks.empty())
      add("rows", Mark::same, counted(found_.steps, "step"));
    else
      add("rows", Mark::different, lost.text + on(lost.ranks), code);
  }

  /// Where rows, weights and generators are the same: what a loader's workers draw, for one.
  void contents() {
    for (const char* name : {"weights", "rows", "generators"})
      if (const LedItem* item = found_.find(name); item == nullptr || item->state != Mark::same) return;
    Losers lost;
    std::string code;
    int64_t compared = 0;
    for (std::size_t rank = 0; rank < ranks_; ++rank) lost.add(rank, other_inputs(rank, compared, code));
    if (!lost.ranks.empty() && found_.chance < 0 && results_differ())
      add("contents", Mark::different,
          "the same rows hold other values " + lost.text.substr(0, lost.text.find(" other")) + on(lost.ranks));
  }

  int64_t step_of_batch(std::size_t rank, std::size_t batch) const {
    int64_t step = 0;
    for (const auto& [number, marks] : whole_[rank].steps)
      if (whole_[rank].taken_at(number) <= batch + 1) step = number;
    return step;
  }

  std::string other_rows(std::size_t rank, std::size_t there, std::size_t here, std::string& code) const {
    const std::vector<int64_t>& own = resumed_[rank].taken[here];
    for (std::size_t other = 0; other < ranks_; ++other) {
      const std::size_t of = (rank + other) % ranks_;
      const auto found = std::ranges::find(whole_[of].taken, own);
      if (found == whole_[of].taken.end()) continue;
      code = "position-lost";
      return fmt::format("at step {} those of step {}{}", step_of_batch(rank, there),
                         step_of_batch(of, static_cast<std::size_t>(found - whole_[of].taken.begin())),
                         of == rank ? "" : fmt::format(" of rank {}", of));
    }
    const std::size_t kShown = 4;
    const auto some = [kShown](const std::vector<int64_t>& rows) {
      return fmt::format(
          "{}{}",
          fmt::join(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(std::min(rows.size(), kShown)), ", "),
          rows.size() > kShown ? ", …" : "");
    };
    return fmt::format("at step {} other ones: {}, not {}", step_of_batch(rank, there), some(own),
                       some(whole_[rank].taken[there]));
  }

  /// Where batches have no numbers, their contents tell.
  std::string other_inputs(std::size_t rank, int64_t& compared, std::string& code) const {
    for (int64_t n = 0; n < found_.steps; ++n) {
      const nlohmann::json expected = whole_[rank].at(found_.begins + n, "inputs"),
                           own = resumed_[rank].at(first_ + n, "inputs");
      if (!expected.is_array() || expected.empty() || !own.is_array() || own.empty()) continue;
      ++compared;
      if (expected == own) continue;
      for (const auto& [step, marks] : whole_[rank].steps)
        if (step != found_.begins + n && whole_[rank].at(step, "inputs") == own) {
          code = "position-lost";
          return fmt::format("at step {} those of step {}", found_.begins + n, step);
        }
      return fmt::format("at step {} other contents", found_.begins + n);
    }
    return "";
  }

  void generators() {
    std::map<std::string, std::set<std::size_t>> lost;
    bool any = false, drawn = false;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const nlohmann::json expected = stopped_[rank].at(found_.begins, "generators"),
                           own = resumed_[rank].at(first_, "generators"),
                           whole = whole_[rank].at(found_.begins, "generators");
      if (!expected.is_object() || !own.is_object() || !whole.is_object()) continue;
      for (const auto& [stream, hash] : expected.items()) {
        if (whole.value(stream, nlohmann::json()) != hash)
          continue;  // without a seed it is another one in each process
        any = true;
        if (own.value(stream, nlohmann::json()) == hash) continue;
        lost[stream].insert(rank);
        for (int64_t n = 0; n < found_.steps; ++n)
          drawn = drawn || whole_[rank].steps[found_.begins + n].contains({Phase::random, stream});
      }
    }
    if (lost.empty()) {
      add("generators", any ? Mark::same : Mark::none, any ? "" : "none has a seed");
      return;
    }
    std::string text;
    for (const auto& [stream, ranks] : lost)
      text += (text.empty() ? "" : "; ") + fmt::format("{} is in another state{}", stream, on(ranks));
    const bool counts = drawn && (results_differ() || found_.chance >= 0) && !found_.anew;
    add("generators", counts ? Mark::different : Mark::none,
        text + (counts  ? ""
                : drawn ? ", without effect in these steps"
                        : ", and was not asked in these steps"));
  }

  std::vector<RankKept> whole_, stopped_, resumed_;
  std::size_t ranks_;
  int64_t first_ = 0;
  ResumedFindings found_;
};

}  // namespace

const LedItem* ResumedFindings::find(const std::string& name) const {
  const auto found = std::ranges::find(items, name, &LedItem::name);
  return found == items.end() ? nullptr : &*found;
}

ResumedFindings judge_resumed(const std::string& whole, const std::string& stopped, const std::string& resumed) {
  return ResumedJudge(whole, stopped, resumed).judge();
}

}  // namespace lockstep
