#include "harness/answer/results/config_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/trainer_spec.h"

namespace lockstep {
namespace {

using Object = nlohmann::json;

std::string text_of(const Object& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Object::error_handler_t::replace);
}

void flatten(const std::string& key, const Object& value, Rows& rows) {
  if (!value.is_object()) {
    rows.emplace_back(key, text_of(value));
    return;
  }
  for (const auto& [name, inner] : value.items()) flatten(key.empty() ? name : key + "." + name, inner, rows);
}

/// key -> value -> number of runs that have it
using Tally = std::map<std::string, std::map<std::string, int>>;

bool tally_run(const std::string& path, Tally& tally) {
  std::string problem;
  const std::optional<nlohmann::json> document = read_sealed(path, problem);
  if (!document || !document->contains("provenance") || !(*document)["provenance"].is_object()) return false;
  for (const auto& [key, value] : (*document)["provenance"].items()) ++tally[key][text_of(value)];
  return true;
}

/// "12 runs: a; 3 runs: b", the commonest first.
std::string values_in_words(const std::map<std::string, int>& values, int absent) {
  constexpr std::size_t kMostValues = 4;
  std::vector<std::pair<std::string, int>> ordered(values.begin(), values.end());
  std::ranges::stable_sort(ordered, std::greater<>{}, [](const auto& entry) { return entry.second; });
  std::vector<std::string> words;
  for (std::size_t i = 0; i < std::min(ordered.size(), kMostValues); ++i) {
    words.push_back(fmt::format("{}: {}", counted(ordered[i].second, "run"), ordered[i].first));
  }
  if (ordered.size() > kMostValues)
    words.push_back(fmt::format("{} more values", ordered.size() - kMostValues));
  if (absent > 0) words.push_back(counted(absent, "run") + ": not said");
  return fmt::format("{}", fmt::join(words, "; "));
}

/// As a word of the --only language, which knows both quotation marks and no escapes; nothing if it holds
/// both.
std::optional<std::string> only_word(const std::string& value) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '.' || c == '-' || c == '+';
  };
  if (!value.empty() && std::ranges::all_of(value, plain)) return value;
  for (const char* mark : {"\"", "'"}) {
    if (value.find(mark) == std::string::npos) return mark + value + mark;
  }
  return std::nullopt;
}

/// "layout==8x3 && negatives==local"; nothing if the settings do not tell the cell from the others.
std::optional<std::string> only_by_settings(const Matrix& matrix, const Cell& cell) {
  if (cell.settings.empty()) return std::nullopt;
  // A cell that sets more besides would be selected, too.
  const auto selected = std::ranges::count_if(matrix.cells, [&](const Cell& other) {
    return std::ranges::all_of(cell.settings, [&](const auto& setting) {
      return std::ranges::find(other.settings, setting) != other.settings.end();
    });
  });
  if (selected != 1) return std::nullopt;
  std::string expression;
  for (const auto& [axis, value] : cell.settings) {
    const auto word = only_word(value);
    if (!word) return std::nullopt;
    expression += (expression.empty() ? "" : " && ") + axis + "==" + *word;
  }
  return expression;
}

/// Length of the shell word at the start of `text`, quotes and backslashes honoured.
std::size_t shell_word(std::string_view text) {
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quote) {
      if (text[i] == quote)
        quote = 0;
      else if (text[i] == '\\' && quote == '"')
        ++i;
    } else if (text[i] == '\'' || text[i] == '"') {
      quote = text[i];
    } else if (text[i] == '\\') {
      ++i;
    } else if (text[i] == ' ') {
      return i;
    }
  }
  return text.size();
}

/// The command without its --only and what belongs to it.
std::string without_only(std::string_view command) {
  std::vector<std::string> words;
  bool skip_next = false;
  while (!command.empty()) {
    if (command.front() == ' ') {
      command.remove_prefix(1);
      continue;
    }
    const std::string word(command.substr(0, shell_word(command)));
    command.remove_prefix(word.size());
    if (skip_next) {
      skip_next = false;
    } else if (word == "--only") {
      skip_next = true;
    } else if (!word.starts_with("--only=")) {
      words.push_back(word);
    }
  }
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace

Rows config_rows(const RunConfig& config) {
  Rows rows;
  flatten("", parse_json(canonical_json(config)), rows);
  return rows;
}

void say_config(const RunConfig& config, CellResult& result) {
  result.config = config_rows(config);
  result.layout = config.layout;
  result.real_ranks = config.backend == Backend::gloo;
  const TrainerSpec& trainer = spec_of(config);
  result.no_negatives = trainer.learns_nothing != nullptr && trainer.learns_nothing(config);
}

Rows gather_provenance(const Plan& plan, const std::string& out_dir) {
  Tally tally;
  std::vector<std::string> unread;
  for (const PlannedRun& run : plan.runs) {
    if (!tally_run(out_dir + "/runs/" + run.id + "/run.json", tally)) unread.push_back(run.id);
  }
  const int read = static_cast<int>(plan.runs.size() - unread.size());
  Rows differing, equal;
  for (const auto& [key, values] : tally) {
    int have = 0;
    for (const auto& [value, count] : values) have += count;
    if (values.size() == 1 && have == read) {
      equal.emplace_back(key, values.begin()->first);
    } else {
      differing.emplace_back(key, values_in_words(values, read - have));
    }
  }
  if (!unread.empty()) {
    constexpr std::size_t kMostNames = 5;
    const std::size_t named = std::min(unread.size(), kMostNames);
    const std::vector<std::string> names(unread.begin(), unread.begin() + static_cast<std::ptrdiff_t>(named));
    differing.emplace_back("without run.json",
                           fmt::format("{}{}", fmt::join(names, ", "), unread.size() > named ? ", …" : ""));
  }
  int reused = 0;
  for (const PlannedRun& run : plan.runs) reused += run.reused ? 1 : 0;
  equal.emplace_back("plan", fmt::format("{} runs, {} of them reused", plan.runs.size(), reused));
  differing.insert(differing.end(), equal.begin(), equal.end());
  return differing;
}

std::string rerun_line(const std::string& command, const Matrix& matrix, const Cell& cell) {
  // The whole text may also be a cell's exact name.
  const std::string expression = only_by_settings(matrix, cell).value_or(cell.name);
  return without_only(command) + " --only " + shell_quoted(expression, Quotes::always);
}

}  // namespace lockstep
