#include "harness/collectives/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "harness/base/counted.h"

namespace lockstep::collectives {
namespace {

constexpr std::array<std::string_view, 10> kNames{"all_reduce", "reduce",         "broadcast",  "all_gather",   "gather",
                                                  "scatter",    "reduce_scatter", "all_to_all", "send_receive", "barrier"};

std::string time_text(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.1f} us", seconds * 1e6) : fmt::format("{:.2f} ms", seconds * 1e3);
}

std::string size_text(int64_t bytes) {
  if (bytes >= 1 << 20) return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:.4g} KiB", static_cast<double>(bytes) / (1 << 10));
  return fmt::format("{} B", bytes);
}

}  // namespace

std::span<const std::string_view> collective_names() { return kNames; }

bool reduces(std::string_view collective) {
  return collective == "all_reduce" || collective == "reduce" || collective == "reduce_scatter";
}

bool has_root(std::string_view collective) {
  return collective == "reduce" || collective == "broadcast" || collective == "gather" || collective == "scatter";
}

double bus_factor(std::string_view collective, int world) {
  const double others = static_cast<double>(world - 1) / world;
  if (collective == "barrier") return 0;
  if (collective == "all_reduce") return 2 * others;
  return collective == "broadcast" || collective == "reduce" || collective == "send_receive" ? 1 : others;
}

double Row::algbw() const { return seconds > 0 ? static_cast<double>(bytes) / seconds * 1e-9 : 0; }
double Row::busbw() const { return algbw() * bus_factor(collective, world); }

std::string table(std::span<const Row> rows) {
  std::string text = "collective\tranks\tsize (B)\tcount\ttype\tredop\troot\ttime (us)\talgbw (GB/s)\tbusbw (GB/s)\t#wrong\n";
  for (const Row& row : rows) {
    text += fmt::format("{}\t{}\t{}\t{}\tfloat\t{}\t{}\t", row.collective, row.world, row.bytes, row.count, reduces(row.collective) ? "sum" : "none",
                        has_root(row.collective) ? row.world - 1 : -1);
    text += row.refused.empty() ? fmt::format("{:.2f}\t{:.4f}\t{:.4f}\t{}\n", row.seconds * 1e6, row.algbw(), row.busbw(), row.wrong)
                                : fmt::format("refused: {}\n", row.refused);
  }
  return text;
}

std::string in_words(std::span<const Row> rows) {
  std::string text;
  const auto add = [&](const Row& row, bool with_bandwidth) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", size_text(row.bytes), time_text(row.seconds));
    if (with_bandwidth) text += fmt::format(", algbw {:.3g} and busbw {:.3g} GB/s", row.algbw(), row.busbw());
  };
  if (!rows.front().refused.empty()) return "refused by the backend: " + rows.front().refused;
  if (rows.front().bytes == 0) return time_text(rows.front().seconds);
  add(rows.front(), false);
  if (rows.size() > 2) add(rows[rows.size() / 2], true);
  if (rows.size() > 1) add(rows.back(), true);
  int64_t wrong = 0;
  for (const Row& row : rows) wrong += row.wrong;
  return text + (wrong == 0 ? "; 0 wrong" : fmt::format("; {} wrong", counted(wrong, "element")));
}

}  // namespace lockstep::collectives
