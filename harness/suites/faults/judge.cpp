#include "harness/suites/faults/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <tuple>

namespace lockstep::faults {
namespace {

/// A line of a record: step, name, the numbers' bits.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream text(line);
  for (std::string word; std::getline(text, word, '\t');) words.push_back(word);
  return words;
}

Notice notice_of(const std::string& words, FailureKind kind) {
  if (words.starts_with("comm_check: ")) return Notice::check;
  if (words.starts_with("nan_guard: ")) return Notice::guard;
  if (words.starts_with("audit: ")) return Notice::audit;
  if (words.starts_with("preflight check: ")) return Notice::preflight_check;
  return kind == FailureKind::died ? Notice::died : Notice::threw;
}

/// What every rank that lives has to say for itself.
bool said_everywhere(const FaultKind& kind) {
  return kind.notice == Notice::check || kind.notice == Notice::guard;
}

/// Ranks that ended without a word although they lived; an error of their own or one about a peer counts as a word.
std::vector<int> speechless(const Order& order, const Played& played) {
  std::vector<int> ranks;
  for (const RankResult& result : played.results) {
    const int rank = static_cast<int>(&result - played.results.data());
    const bool excused = rank == order.rank || (order.kind == "killed_in_recovery" && rank == (order.rank + 1) % order.world);
    if (!excused && result.error.empty() && result.status != "finished") ranks.push_back(rank);
  }
  return ranks;
}

CaseResult fault(std::string outcome, const std::string& sentence) {
  return {std::move(outcome), CaseVerdict::fault, 1, sentence};
}

std::string told(const Order& order) {
  return fmt::format("{} on rank {} at step {}", order.kind, order.rank, order.step);
}

std::string sweep_words(const Played& played) { return fmt::format("{}", fmt::join(played.left_behind, ", ")); }

}  // namespace

std::string first_difference(const std::vector<std::vector<std::string>>& expected,
                             const std::vector<std::vector<std::string>>& found) {
  std::optional<std::tuple<int64_t, std::size_t, std::size_t>> first;  // step, line, rank
  std::string words;
  for (std::size_t rank = 0; rank < std::min(expected.size(), found.size()); ++rank) {
    for (std::size_t line = 0; line < std::max(expected[rank].size(), found[rank].size()); ++line) {
      const bool both = line < expected[rank].size() && line < found[rank].size();
      if (both && expected[rank][line] == found[rank][line]) continue;
      const std::vector<std::string> a = both ? words_of(expected[rank][line]) : std::vector<std::string>{};
      const std::vector<std::string> b = both ? words_of(found[rank][line]) : std::vector<std::string>{};
      const int64_t step = both && !b.empty() ? std::stoll(b[0]) : 0;
      if (first && std::tuple(step, line, rank) >= *first) break;
      first = std::tuple(step, line, rank);
      std::size_t element = 2;
      while (element < std::min(a.size(), b.size()) && a[element] == b[element]) ++element;
      words = both ? fmt::format("rank {}, step {}: {} at element {}", rank, step, b.size() > 1 ? b[1] : "", element - 2)
                   : fmt::format("rank {} has {} lines of record, not {}", rank, found[rank].size(), expected[rank].size());
      break;
    }
  }
  return words;
}

Said said_of(const Played& played, const std::vector<std::vector<std::string>>& expected,
             const std::vector<std::vector<std::string>>& found) {
  Said said;
  if (played.run.alarm) {
    said = {played.run.alarm->slow ? Notice::slow : Notice::hung, true, played.run.alarm->standstill.rank, played.run.alarm->message,
            played.run.alarm_at};
  } else if (played.run.failure) {
    said = {notice_of(played.run.failure->message, played.run.failure->kind), true, played.run.failure->rank, played.run.failure->message,
            played.run.failure_at};
  } else if (played.finished()) {
    said.words = first_difference(expected, found);
    said.anything = !said.words.empty();
    said.notice = Notice::compared;
  }
  return said;
}

CaseResult judge_wrong(const FaultKind& kind, const Order& order, const Played& played, const Said& said) {
  const std::string who = told(order), expected = expected_words(kind, order);
  if (played.acted_at == 0) return {"not reached", CaseVerdict::undecided, 1, who + ": the program did not come to it"};
  if (!said.anything) return fault("missed", who + ": nobody noticed");
  if (played.run.late) return fault("late", who + ": the ranks had to be killed at the deadline; said was: " + said.words);
  if (said.notice != kind.notice)
    return fault("mistaken for another", fmt::format("{}: expected is {}, told was {}: {}", who, to_word(kind.notice), to_word(said.notice), said.words));
  const bool names_process = kind.notice == Notice::died || kind.notice == Notice::hung || kind.notice == Notice::slow ||
                             kind.notice == Notice::threw;
  if (said.words.find(expected) == std::string::npos || (names_process && said.rank != order.rank))
    return fault("named wrongly", fmt::format("{}: expected is rank {} and '{}', told was rank {}: {}", who, order.rank, expected, said.rank, said.words));
  if (said_everywhere(kind)) {
    for (const RankResult& result : played.results) {
      if (result.error.find(expected) == std::string::npos && !result.error.starts_with("lost its peer"))
        return fault("not on all ranks", fmt::format("{}: rank {} says '{}'", who, &result - played.results.data(), result.error));
    }
  }
  if (const std::vector<int> silent = speechless(order, played); !silent.empty())
    return fault("left without a word", fmt::format("{}: rank {} ended without an error", who, fmt::join(silent, ", ")));
  if (!played.left_behind.empty()) return fault("left behind", who + ": " + sweep_words(played));
  return {"named", CaseVerdict::good, 1, ""};
}

CaseResult judge_control(const FaultKind&, const Order& order, const Played& played, const Said& said) {
  const std::string who = fmt::format("the control run of {} (rank {}, step {})", order.kind, order.rank, order.step);
  if (played.run.alarm || played.run.failure) return fault("false alarm", who + ": " + said.words);
  if (!played.finished()) return fault("not finished", who + ": it did not finish");
  if (!played.left_behind.empty()) return fault("left behind", who + ": " + sweep_words(played));
  return {"silent", CaseVerdict::good, 1, ""};
}

}  // namespace lockstep::faults
