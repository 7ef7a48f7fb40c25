#include "reports/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "reports/numbers.h"
#include "reports/text.h"
#include "reports/words.h"

namespace lockstep {
namespace {

constexpr int kLongestText = 400;

std::string count_words(double value) { return std::isnan(value) ? "—" : fmt::format("{:.0f}", value); }

std::string bytes_words(double bytes) {
  if (std::isnan(bytes)) return "—";
  return bytes < 1024 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} KiB", bytes / 1024);
}

std::string times_words(double ratio) { return std::isnan(ratio) ? "—" : fmt::format("{:.2f} ×", ratio); }

std::string certified_words(const CertificateRow& row) {
  return row.certified == row.cases ? fmt::format("all {}", row.cases)
                                    : fmt::format("{} of {}", row.certified, row.cases);
}

/// 1 - cosine loses nothing where six digits of the cosine would.
std::string cosine_words(double cosine) { return std::abs(1 - cosine) < 1e-6 ? "1" : compact_number(cosine); }

}  // namespace

TextTable certificate_table(const Results& results, bool wide) {
  TextTable table;
  if (!results.certificate) return table;
  table.heads = {"loss", numbers("ranks"), numbers("certified"), numbers("worst / tolerance"), "group",
                 numbers("ratio")};
  table.judged = 2;
  if (wide) table.heads.insert(table.heads.end(), {numbers("cosine"), numbers("residual"), "worst case"});
  table.heads.insert(table.heads.end(), {numbers("energies"), numbers("received"), numbers("time / local")});
  std::string loss;
  for (const CertificateRow& row : results.certificate->rows) {
    const GradientSignature& g = row.worst_group;
    const bool none = row.worst_cell.empty();
    std::vector<std::string> cells{row.loss == loss ? "" : name_words(row.loss),
                                   std::to_string(row.world_size),
                                   certified_words(row),
                                   none ? "—" : compact_number(row.worst),
                                   none ? "" : clean_line(g.group),
                                   none ? "—" : compact_number(g.ratio)};
    if (wide) {
      cells.push_back(none ? "—" : cosine_words(g.cosine));
      cells.push_back(none ? "—" : compact_number(g.residual));
      cells.push_back(none ? "" : fmt::format("{}, step {}", name_words(row.worst_cell), row.worst_step));
    }
    cells.insert(cells.end(), {count_words(row.costs.energies), bytes_words(row.costs.bytes),
                               times_words(row.time_to_local)});
    table.rows.push_back(std::move(cells));
    table.css.push_back(row.certified == row.cases ? "ok" : "bad");
    loss = row.loss;
  }
  return table;
}

namespace {

std::string aligned(const TextTable& table, int width) {
  std::vector<int> widths;
  std::vector<std::string> heads;
  for (std::size_t i = 0; i < table.heads.size(); ++i) {
    heads.push_back(table.heads[i].head);
    int most = display_width(heads.back());
    for (const auto& row : table.rows) most = std::max(most, display_width(row[i]));
    widths.push_back(most);
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out = " ";
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string room(static_cast<std::size_t>(widths[i] - display_width(cells[i])), ' ');
      out += " " + (table.heads[i].numbers ? room + cells[i] : cells[i] + room) + " ";
    }
    out = shorten(out, width);
    out.erase(out.find_last_not_of(' ') + 1);
    return out + "\n";
  };
  std::string out = line(heads);
  for (const auto& row : table.rows) out += line(row);
  return out;
}

std::string md(std::string_view text) { return escape_markdown(short_line(text, kLongestText)); }

}  // namespace

std::string terminal_answers(const Results& results, int width) {
  return results.certificate ? aligned(certificate_table(results, false), width) : "";
}

std::string markdown_answers(const Results& results) {
  std::string out;
  if (const TextTable table = certificate_table(results, false); !table.rows.empty()) {
    std::string heads = "|", rule = "|";
    for (const Column& column : table.heads) {
      heads += " " + column.head + " |";
      rule += column.numbers ? "--:|" : "---|";
    }
    out += heads + "\n" + rule + "\n";
    std::string loss;
    for (const auto& row : table.rows) {
      if (!row.front().empty()) loss = row.front();
      out += "| " + md(loss) + " |";
      for (std::size_t i = 1; i < row.size(); ++i) out += " " + md(row[i]) + " |";
      out += "\n";
    }
    out += "\n";
  }
  return out;
}

Results with_telling_cells(const Results& results) {
  Results telling = results;
  if (!results.certificate) return telling;
  std::set<std::string> worst;
  for (const CertificateRow& row : results.certificate->rows) worst.insert(row.worst_cell);
  std::erase_if(telling.cells, [&worst](const CellResult& cell) {
    return is_as_expected(cell) && !worst.contains(cell.scenario);
  });
  return telling;
}

}  // namespace lockstep
