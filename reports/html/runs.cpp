// Failures, provenance with differences first, and the commands that repeat.

#include <fmt/format.h>

#include <algorithm>

#include "reports/html/parts.h"
#include "reports/text.h"

namespace lockstep {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

constexpr int kLongestValue = 400;  ///< columns; a value beyond it is in results.json

const std::string* find(const Pairs& pairs, const std::string& key) {
  const auto found =
      std::find_if(pairs.begin(), pairs.end(), [&](const auto& pair) { return pair.first == key; });
  return found == pairs.end() ? nullptr : &found->second;
}

struct FieldDifference {
  std::string key;
  const std::string* reference;  ///< null: it has no such field
  const std::string* cell;
};

std::vector<FieldDifference> differences_of(const Pairs& reference, const Pairs& cell) {
  std::vector<FieldDifference> out;
  for (const auto& [key, value] : cell) {
    const std::string* other = find(reference, key);
    if (!other || *other != value) out.push_back({key, other, &value});
  }
  for (const auto& [key, value] : reference) {
    if (!find(cell, key)) out.push_back({key, &value, nullptr});
  }
  return out;
}

/// Fields that have one value in every cell and every reference.
Pairs equal_fields(const Results& results) {
  std::vector<const Pairs*> all;
  for (const ReferenceResult& reference : results.references) all.push_back(&reference.config);
  for (const CellResult& cell : results.cells) {
    if (!cell.config.empty()) all.push_back(&cell.config);
  }
  Pairs equal;
  if (all.empty()) return equal;
  for (const auto& [key, value] : *all.front()) {
    const bool everywhere = std::all_of(all.begin(), all.end(), [&](const Pairs* pairs) {
      const std::string* other = find(*pairs, key);
      return other && *other == value;
    });
    if (everywhere) equal.emplace_back(key, value);
  }
  return equal;
}

std::string shown(const std::string* value) {
  if (!value) return "— not set";
  return value->empty() ? "(empty)" : short_line(*value, kLongestValue);
}

void write_pairs(Markup& out, const Pairs& pairs) {
  open_table(out, "plain", {"setting", "value"});
  for (const auto& [key, value] : pairs) {
    out.open("tr").element("th", {{"scope", "row"}}, key).element("td", {}, shown(&value)).close();
  }
  close_table(out);
}

void write_config_differences(Markup& out, const Page& page) {
  open_table(out, "stack config", {"cell", "setting", "reference", "cell's"});
  for (std::size_t i = 0; i < page.results.cells.size(); ++i) {
    const CellResult& cell = page.results.cells[i];
    const ReferenceResult* reference = reference_of(page.results, cell);
    std::vector<FieldDifference> rows;
    if (reference) rows = differences_of(reference->config, cell.config);
    if (rows.empty()) {
      out.open("tr")
          .open("th", {{"scope", "row"}})
          .element("a", {{"href", "#" + page.anchors[i]}}, name_words(cell.scenario))
          .close();
      out.element("td", {{"colspan", "3"}},
                  reference ? "no difference" : "the results do not contain its reference")
          .close();
    }
    for (std::size_t row = 0; row < rows.size(); ++row) {
      out.open("tr");
      if (row == 0) {
        out.open("th", {{"scope", "rowgroup"}, {"rowspan", std::to_string(rows.size())}});
        out.element("a", {{"href", "#" + page.anchors[i]}}, name_words(cell.scenario));
        out.element("span", {{"class", "sub"}}, "against " + name_words(cell.reference)).close();
      }
      out.open("td", {{"data-label", "setting"}}).element("code", {}, rows[row].key).close();
      out.element("td", {{"data-label", "reference"}}, shown(rows[row].reference));
      out.element("td", {{"data-label", "cell's"}}, shown(rows[row].cell)).close();
    }
  }
  close_table(out);
}

void write_log(Markup& out, const std::vector<std::string>& lines) {
  constexpr int kLongestLine = 500;
  std::string log;
  for (const std::string& line : lines) log += (log.empty() ? "" : "\n") + short_line(line, kLongestLine);
  out.element("pre", {}, log);
}

}  // namespace

void write_failures(Markup& out, const Page& page) {
  const auto failed = [](const CellResult& cell) { return cell.failure.has_value(); };
  if (std::none_of(page.results.cells.begin(), page.results.cells.end(), failed)) return;
  open_section(out, "failures", "Cells that failed or cannot be judged",
               "The first rank that failed, and the last lines of its log.");
  for (std::size_t i = 0; i < page.results.cells.size(); ++i) {
    const CellResult& cell = page.results.cells[i];
    if (!cell.failure) continue;
    const Failure& failure = *cell.failure;
    out.open("div", {{"class", "failure"}, {"id", "failure-" + page.anchors[i]}});
    out.open("h3").element("b", {}, name_words(cell.scenario)).text(" ");
    out.element("b", {{"class", "t-fail"}}, "× " + failure_words(failure)).close();
    open_table(out, "plain", {"run", "rank", "step", "operation"});
    out.open("tr").open("td").element("code", {}, failure.run).close();
    out.element("td", {}, failure.rank < 0 ? "unknown" : std::to_string(failure.rank));
    out.element("td", {}, failure.step < 0 ? "unknown" : std::to_string(failure.step));
    out.element("td", {}, failure.operation.empty() ? "unknown" : failure.operation).close();
    close_table(out);
    if (failure.last_lines.empty())
      out.element("p", {{"class", "why"}}, "It wrote no output.");
    else
      write_log(out, failure.last_lines);
    out.close();
  }
  out.close();
}

void write_provenance(Markup& out, const Page& page) {
  const Results& results = page.results;
  open_section(out, "provenance", "Differences between the runs' settings", "");
  const Pairs equal = equal_fields(results);
  if (!results.cells.empty() && !results.detection) {
    write_config_differences(out, page);
    if (!equal.empty()) {
      out.open("details").element(
          "summary", {}, counted(static_cast<int64_t>(equal.size()), "setting") + " equal in all runs");
      write_pairs(out, equal);
      out.close();
    }
  }
  if (!results.provenance.empty()) {
    out.element("h3", {}, "Build, machine and data");
    write_pairs(out, results.provenance);
  }
  out.close();
}

void write_commands(Markup& out, const Page& page) {
  const Results& results = page.results;
  const bool any =
      !results.rerun.empty() || std::any_of(results.cells.begin(), results.cells.end(),
                                            [](const CellResult& cell) { return !cell.rerun.empty(); });
  if (!any) return;
  open_section(out, "again", "Run it again", "");
  if (!results.rerun.empty()) out.element("p", {}, "The whole matrix:").element("pre", {}, results.rerun);
  for (std::size_t i = 0; i < results.cells.size() && !results.detection; ++i) {
    if (results.cells[i].rerun.empty()) continue;
    out.element("p", {{"id", "again-" + page.anchors[i]}}, name_words(results.cells[i].scenario) + ":");
    out.element("pre", {}, results.cells[i].rerun);
    if (results.cells[i].replay.empty()) continue;
    out.element("p", {}, "Only the first step that differs, from its saved state:");
    out.element("pre", {}, results.cells[i].replay);
  }
  out.close();
}

}  // namespace lockstep
