#include "harness/suites/foreign_saver/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "harness/base/clean_text.h"
#include "harness/base/hex.h"
#include "harness/base/read_file.h"

namespace lockstep::program {

namespace fs = std::filesystem;

namespace {

std::vector<std::pair<std::string, std::string>> lines_of(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.emplace_back(fmt::format("line {}", lines.size() + 1), text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

bool has_part(const std::vector<EndResult>& some, std::size_t index, const std::pair<std::string, std::string>& part) {
  return std::ranges::any_of(some, [&](const EndResult& each) {
    return index < each.parts.size() && each.parts[index] == part;
  });
}

/// Does every part stand in an undisturbed result, but not all of them in the same one?
bool is_mixed(const Expected& expected, const EndResult& result) {
  std::vector<EndResult> known = expected.after;
  if (expected.before) known.push_back(*expected.before);
  const auto holds_all = [&](const EndResult& each) {
    for (std::size_t i = 0; i < result.parts.size(); ++i) {
      if (!has_part({each}, i, result.parts[i])) return false;
    }
    return true;
  };
  for (std::size_t i = 0; i < result.parts.size(); ++i) {
    if (!has_part(known, i, result.parts[i])) return false;
  }
  return std::ranges::none_of(known, holds_all);
}

/// The first part in which a result is not the expected one.
std::string difference(const EndResult& expected, const EndResult& found) {
  const auto shown = [](const EndResult& result, std::size_t i) {
    constexpr std::size_t kMost = 60;
    return i < result.parts.size() ? result.parts[i].first + ": " + in_quotes(result.parts[i].second.substr(0, kMost))
                                   : std::string("nothing");
  };
  for (std::size_t i = 0; i < std::max(expected.parts.size(), found.parts.size()); ++i) {
    if (i >= expected.parts.size() || i >= found.parts.size() || expected.parts[i] != found.parts[i])
      return fmt::format("expected {}, found {}", shown(expected, i), shown(found, i));
  }
  return "no difference";
}

CaseResult good(const char* outcome) { return {outcome, CaseVerdict::good, 1, "", {}}; }

CaseResult fault(const char* outcome, const std::string& failure, const std::string& then) {
  return {outcome, CaseVerdict::fault, 1, failure + ". " + then, {}};
}

std::string save_words(const Observed& observed) {
  if (observed.save_status == 0) return "the save command reported success";
  if (observed.save_status > 128) return fmt::format("the save command died of signal {}", observed.save_status - 128);
  return fmt::format("the save command ended with status {}", observed.save_status);
}

}  // namespace

std::string last_line(const std::string& text) {
  constexpr std::size_t kMost = 300;
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) return "";
  const std::size_t before = text.find_last_of('\n', end);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return clean_line(text.substr(begin, std::min(end + 1 - begin, kMost)));
}

std::optional<EndResult> end_result_of(const std::string& path) {
  std::error_code error;
  EndResult result;
  if (fs::is_regular_file(path, error)) {
    const FileText file = read_file(path);
    if (!file) return std::nullopt;
    result.parts = lines_of(file.text);
    return result;
  }
  if (!fs::is_directory(path, error)) return std::nullopt;
  for (fs::recursive_directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    if (!at->is_regular_file(error)) continue;
    result.parts.emplace_back(fs::relative(at->path(), path, error).string(),
                              long_hash_in_hex(read_file(at->path().string()).text));
  }
  std::ranges::sort(result.parts);
  return result;
}

namespace {

CaseResult judge_state(const Expected& expected, const Observed& observed, const std::string& failure) {
  if (observed.save_hung) return fault("hang", failure, "The save command did not end within its deadline");
  if (observed.resume_hung) return fault("hang", failure, "The resume command did not end within its deadline");
  if (!observed.result) {
    const std::string said = fmt::format("the resume command ended with status {}{}", observed.resume_status,
                                         observed.said.empty() ? "" : ", \"" + observed.said + "\"");
    if (expected.had_before)
      return fault("torn", failure, fmt::format("A checkpoint that could be resumed stood there before; now {}", said));
    if (!observed.may_lose) return fault("lost work", failure, fmt::format("Although {}, {}", save_words(observed), said));
    return good("refused");
  }
  const EndResult& result = *observed.result;
  if (std::ranges::find(expected.after, result) != expected.after.end()) return good("whole, new");
  const bool is_before = expected.before && result == *expected.before;
  if (is_before && observed.may_lose) return good("whole, old");
  if (is_before)
    return fault("lost work", failure, fmt::format("Although {}, the resumption begins at what stood there before",
                                                   save_words(observed)));
  if (expected.fresh && result == *expected.fresh)
    return fault("lost work", failure, "A checkpoint stood there before; the resumption begins anew without a word");
  const std::string differs = difference(expected.after.front(), result);
  if (is_mixed(expected, result))
    return fault("mixed", failure, fmt::format("The resumption took parts of two saves: {}", differs));
  return fault("silent", failure, fmt::format("The resumption took damaged data without a word: {}", differs));
}

}  // namespace

CaseResult judge_save(const Expected& expected, const Observed& observed, const std::string& failure) {
  CaseResult state = judge_state(expected, observed, failure);
  if (state.verdict != CaseVerdict::good || !observed.must_succeed || observed.save_status == 0) return state;
  return fault("save failed", failure, fmt::format("Nothing was made to fail, and {}", save_words(observed)));
}

CaseResult judge_check(const Observed& observed, const std::string& failure) {
  if (observed.save_hung) return fault("hang", failure, "The save command did not end within its deadline");
  if (observed.resume_hung) return fault("hang", failure, "The check did not end within its deadline");
  if (observed.resume_status == 0) return good("whole");
  return fault("torn", failure, fmt::format("The check ended with status {}{}", observed.resume_status,
                                            observed.said.empty() ? "" : ", \"" + observed.said + "\""));
}

}  // namespace lockstep::program
