#include "harness/lib/data/sharding/control_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <nlohmann/json.hpp>

#include "harness/base/json.h"
#include "harness/base/numbers.h"

namespace lockstep::sharding {
namespace {

constexpr std::string_view kNone = "no such value";

/// The bits as well: two numbers that print alike may differ, and so may two zeros.
std::string text_of(double value) {
  return fmt::format("{} (bits {})", value, hex16(std::bit_cast<uint64_t>(value)));
}

/// What comes of it if the ranks go on; empty: nothing more is known than that they part.
std::string_view consequence(const std::string& name) {
  struct Row {
    std::string_view name, text;
  };
  static constexpr Row kRows[] = {
      {"step", "it would enter another step's collectives than the others"},
      {"stop", "who stops leaves the others waiting at the next collective"},
      {"learning_rate", "the replicas would part with the next update"},
      {"random_offset", "its next draws are other ones than the layout gives it"},
      {"merge_due", "who merges waits for ranks that do not"},
      {"success", "what is decided from it would be decided otherwise"},
      {"parameters", "it did not apply the gradients that the others applied: it is not synchronised"},
  };
  const auto row = std::ranges::find(kRows, name, &Row::name);
  return row == std::end(kRows) ? std::string_view() : row->text;
}

/// [[name, text, []], …]; the empty list keeps what is sent, and so the trace of it, as it was.
std::string canonical(const std::vector<Controls::Value>& values) {
  using nlohmann::json;
  json list = json::array();
  for (const Controls::Value& each : values) list.push_back(json::array({each.name, each.text, json::array()}));
  return list.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<Controls::Value> parsed(const std::string& text) {
  std::vector<Controls::Value> values;
  for (const auto& each : nlohmann::json::parse(text)) values.push_back({each.at(0), each.at(1)});
  return values;
}

using Column = std::vector<std::string>;  // by rank

bool equal(const Column& texts) {
  return std::ranges::all_of(texts, [&](const std::string& text) { return text == texts[0]; });
}

/// What several ranks told of one value.
class Told {
 public:
  explicit Told(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) ranks_.push_back(parsed(text));
  }

  /// Names in the order of the first rank that has them.
  Column names() const {
    Column names;
    for (const auto& values : ranks_) {
      for (const auto& value : values) {
        if (std::ranges::find(names, value.name) == names.end()) names.push_back(value.name);
      }
    }
    return names;
  }
  Column of(const std::string& name) const {
    Column texts;
    for (const auto& values : ranks_) {
      const auto at = std::ranges::find(values, name, &Controls::Value::name);
      texts.push_back(at == values.end() ? std::string(kNone) : at->text);
    }
    return texts;
  }

 private:
  std::vector<std::vector<Controls::Value>> ranks_;
};

ControlVerdict named(int64_t step, const std::string& name, const Column& texts) {
  ControlVerdict verdict;
  verdict.name = name;
  verdict.step = step;
  verdict.code = name + "_differs";
  verdict.expected = most_frequent(texts);
  const auto other = std::ranges::find_if(texts, [&](const std::string& text) { return text != verdict.expected; });
  verdict.rank = static_cast<int>(other - texts.begin());
  verdict.found = *other;
  const auto so_many = std::ranges::count(texts, verdict.expected);
  const bool most = 2 * so_many > static_cast<std::ptrdiff_t>(texts.size());
  verdict.sentence =
      fmt::format("step {}: {} is {} on rank {}, and {} on {}", step, name, verdict.found, verdict.rank,
                  verdict.expected, most ? fmt::format("{} of {} ranks", so_many, texts.size()) : "rank 0");
  if (const std::string_view then = consequence(name); !then.empty()) verdict.sentence += fmt::format("; {}", then);
  return verdict;
}

}  // namespace

void Controls::add_text(std::string name, std::string text) {
  values_.push_back({std::move(name), std::move(text)});
}
void Controls::add(std::string name, int64_t value) { add_text(std::move(name), std::to_string(value)); }
void Controls::add(std::string name, bool value) { add_text(std::move(name), value ? "true" : "false"); }
void Controls::add(std::string name, double value) { add_text(std::move(name), text_of(value)); }
void Controls::add_hash(std::string name, uint64_t hash) { add_text(std::move(name), hex16(hash)); }

ControlVerdict ControlGuard::check(int64_t step, const Controls& controls) {
  std::vector<Controls::Value> mine{{"step", std::to_string(step)}};
  mine.insert(mine.end(), controls.values().begin(), controls.values().end());
  const std::string text = canonical(mine);
  const auto broken = [&](const std::string& problem) {
    ControlVerdict verdict;
    verdict.code = "group_broken";
    verdict.step = step;
    verdict.sentence = fmt::format("step {}: control values could not be compared: {}", step, problem);
    return verdict;
  };
  const checkpoint::Gathered hashes = group_.all_gather("controls", hash_in_hex(text), deadline_s_);
  if (!hashes) return broken(hashes.problem);
  if (equal(hashes.texts)) return {};
  const checkpoint::Gathered all = group_.all_gather("control values", text, deadline_s_);
  if (!all) return broken(all.problem);
  const Told told(all.texts);
  const Column steps = told.of("step");
  const std::string& most = most_frequent(steps);
  int64_t most_at = step;
  std::from_chars(most.data(), most.data() + most.size(), most_at);
  for (const std::string& name : told.names()) {
    if (const Column texts = told.of(name); !equal(texts)) return named(most_at, name, texts);
  }
  return broken("their hashes differ and their values do not");
}

}  // namespace lockstep::sharding
