#include "harness/suites/checkpoint/saver/judge.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::saver {
namespace {

using checkpoint::Loaded;
using checkpoint::LoadOutcome;
using checkpoint::Saved;

std::string expected_of(const std::vector<KnownSave>& known) {
  std::string text;
  for (const KnownSave& save : known) {
    if (save.may) text += (text.empty() ? "" : " or ") + in_words(save.content);
  }
  return text.empty() ? "none" : text;
}

/// The known save whose bits every rank has; -1 if there is none.
int save_in(Contents& contents, const std::vector<KnownSave>& known, const std::vector<LoadOutcome>& loaded,
            std::string& why) {
  const int ranks = static_cast<int>(loaded.size());
  for (std::size_t i = 0; i < known.size(); ++i) {
    std::string different;
    for (int rank = 0; rank < ranks && different.empty(); ++rank) {
      different = difference(contents, known[i].content, known[i].ranks, loaded[static_cast<std::size_t>(rank)], rank, ranks);
    }
    if (different.empty()) return static_cast<int>(i);
    if (loaded.front().manifest.step == known[i].content.step) why = different;
  }
  return -1;
}

}  // namespace

Judgement judge_load(Contents& contents, const std::vector<KnownSave>& known, bool none_may,
                     const std::vector<LoadOutcome>& loaded) {
  const int ranks = static_cast<int>(loaded.size());
  const std::string expected = expected_of(known);
  for (int rank = 0; rank < ranks; ++rank) {
    const LoadOutcome& outcome = loaded[static_cast<std::size_t>(rank)];
    if (outcome.loaded == loaded[0].loaded && outcome.problem == loaded[0].problem && outcome.name == loaded[0].name) continue;
    return {"mixed", true, fmt::format("rank 0 loads \"{}\" ({}), rank {} \"{}\" ({})", loaded[0].name, loaded[0].problem,
                                       rank, outcome.name, outcome.problem)};
  }
  if (loaded[0].loaded == Loaded::refused) {
    if (none_may) return {"refused, none was there", false, ""};
    return {"torn", true, fmt::format("{} expected; the load refuses: {}", expected, loaded[0].problem)};
  }
  if (loaded[0].loaded == Loaded::fresh)
    return {"lost work", true, fmt::format("{} expected; the load begins anew", expected)};
  std::string why = "no save has these bits";
  const int found = save_in(contents, known, loaded, why);
  if (found < 0) {
    std::vector<Content> all;
    for (const KnownSave& save : known) all.push_back(save.content);
    const bool mixed = is_mixture(contents, all, loaded[0], 0, ranks);
    return {mixed ? "mixed" : "silent", true,
            fmt::format("{} expected; the load takes {}, which is {}: {}", expected, loaded[0].name,
                        mixed ? "parts of several saves" : "none that was saved", why)};
  }
  const KnownSave& save = known[static_cast<std::size_t>(found)];
  if (!save.may)
    return {"lost work", true, fmt::format("{} expected; the load finds {}", expected, in_words(save.content))};
  return {found == 0 ? "whole, new" : "whole, old", false, "", found};
}

std::string told_problem(const std::vector<checkpoint::SaveOutcome>& told, const std::vector<bool>& ended) {
  const checkpoint::SaveOutcome* first = nullptr;
  std::size_t first_rank = 0;
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    if (ended[rank]) continue;
    if (first == nullptr) {
      first = &told[rank];
      first_rank = rank;
      continue;
    }
    const auto words = [](const checkpoint::SaveOutcome& outcome) {
      return fmt::format("{}{}{}",
                         outcome.saved == Saved::committed ? "committed"
                         : outcome.saved == Saved::failed  ? "failed"
                                                           : "unknown",
                         outcome.problem.empty() ? "" : ": " + outcome.problem,
                         outcome.remarks.empty() || !outcome ? "" : fmt::format(" (remarks: {})", fmt::join(outcome.remarks, "; ")));
    };
    if (words(*first) != words(told[rank])) {
      return fmt::format("rank {} was told \"{}\", rank {} \"{}\"", first_rank, words(*first), rank, words(told[rank]));
    }
  }
  return "";
}

CaseResult case_of(const Judgement& judgement, const std::string& done, int64_t cases) {
  CaseResult result{judgement.outcome, judgement.verdict(), cases, "", {}};
  if (judgement.fault) result.sentence = done + ". " + judgement.found;
  return result;
}

}  // namespace lockstep::saver
