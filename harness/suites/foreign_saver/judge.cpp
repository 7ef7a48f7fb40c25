#include "harness/suites/foreign_saver/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
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

/// Words and numbers, and each other character by itself.
std::vector<std::string> tokens_of(const EndResult& result) {
  std::vector<std::string> tokens;
  for (const auto& [part, value] : result.parts) {
    tokens.push_back(part);
    bool in_word = false;
    for (const char c : value + "\n") {
      const bool is_word = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
      if (is_word && in_word)
        tokens.back() += c;
      else
        tokens.emplace_back(1, c);
      in_word = is_word;
    }
  }
  return tokens;
}

/// Does every word stand in an undisturbed result at that place, but not all of them in the same one?
bool is_mixed(const Expected& expected, const EndResult& result) {
  std::vector<std::vector<std::string>> known;
  for (const EndResult& each : expected.after) known.push_back(tokens_of(each));
  if (expected.before) known.push_back(tokens_of(*expected.before));
  const std::vector<std::string> found = tokens_of(result);
  const auto starts = [&](const std::vector<std::string>& each) {
    return found.size() <= each.size() && std::equal(found.begin(), found.end(), each.begin());
  };
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto has = [&](const std::vector<std::string>& each) { return i < each.size() && each[i] == found[i]; };
    if (std::ranges::none_of(known, has)) return false;
  }
  return std::ranges::none_of(known, starts);
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

CaseResult unsteady(const std::string& differs) {
  return fault("unsteady", "Nothing fails, and two saves of the same state were resumed to different end results",
               differs + ". The save may take what the training still changes (a torn snapshot); if the end result holds times, seeds "
                         "or paths, leave them out of it");
}

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
    return good(kRefused);
  }
  const EndResult& result = *observed.result;
  if (std::ranges::find(expected.after, result) != expected.after.end()) return good("whole, new");
  const bool is_before = expected.before && result == *expected.before;
  if (is_before && observed.may_lose) return good(kWholeOld);
  if (is_before)
    return fault("lost work", failure, fmt::format("Although {}, the resumption begins at what stood there before",
                                                   save_words(observed)));
  if (expected.fresh && result == *expected.fresh)
    return fault("lost work", failure, "A checkpoint stood there before; the resumption begins anew without a word");
  const std::string differs = difference(expected.after.front(), result);
  if (observed.undisturbed) return unsteady(differs);
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
