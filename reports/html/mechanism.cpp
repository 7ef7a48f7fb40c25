// Does it compute the same: the ladder, where each cell first differs, how it was certified.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/html/parts.h"
#include "reports/numbers.h"
#include "reports/text.h"

namespace lockstep {
namespace {

struct LadderCount {
  int compared = 0, inside = 0, divergent = 0;
  const Mechanism* most_used = nullptr;  ///< of those inside; null: every bit of theirs is equal
  int wanted = 0, agreed = 0, by_band = 0, parted = 0, real = 0;
  int64_t steps = 0, asked = 0;
};

LadderCount count_ladder(const Results& results) {
  LadderCount count;
  for (const CellResult& cell : results.cells) {
    if (cell.mechanism) {
      const VerdictKind kind = cell.mechanism->verdict;
      const bool inside = kind == VerdictKind::identical || kind == VerdictKind::within_envelope;
      ++count.compared;
      count.inside += inside;
      const double most = count.most_used == nullptr ? 0 : count.most_used->band_used;
      if (inside && cell.mechanism->band_used > most) count.most_used = &*cell.mechanism;
      if (kind == VerdictKind::divergent) ++count.divergent;
    }
    count.real += cell.real_ranks;
    const Certification& c = cell.certification;
    if (!c.wanted) continue;
    ++count.wanted;
    count.steps += c.steps, count.asked += c.asked;
    count.parted += c.divergence.has_value();
    if (c.divergence || c.steps < c.asked || c.steps == 0) continue;
    ++count.agreed;
    count.by_band += c.certify == kByBand;
  }
  return count;
}

void write_rung(Markup& out, std::string_view name, std::string_view what) {
  out.open("div", {{"class", "rung"}}).element("b", {}, name).element("span", {}, what).close();
}

void write_join(Markup& out, std::string_view css, std::string_view symbol, std::string_view what) {
  out.open("div", {{"class", "join t-" + std::string(css)}}).element("b", {}, symbol).text(what).close();
}

void write_ladder(Markup& out, const Results& results) {
  const LadderCount count = count_ladder(results);
  std::string references;
  for (const ReferenceResult& reference : results.references)
    references += (references.empty() ? "" : ", ") + clean_line(reference.name);
  out.open("div", {{"class", "ladder"}});
  write_rung(out, "R0 · " + (references.empty() ? "the reference" : shorten(references, 60)),
             "one process, one whole batch: what the run should compute");
  if (count.compared == 0) {
    write_join(out, "und", "?", "nothing compared");
  } else if (count.inside == count.compared) {
    write_join(out, "ok", count.most_used ? "≈" : "=",
               fmt::format("{}, {}", counted(count.inside, "cell"),
                           count.most_used ? "at most " + used_words(*count.most_used) + " used" : "all bits equal"));
  } else {
    std::string text = fmt::format("{} of {} differ", count.divergent, counted(count.compared, "cell"));
    if (count.inside > 0) {
      text += count.most_used ? fmt::format("; the others used at most {}", used_words(*count.most_used))
                              : "; all bits of the others are equal";
    }
    write_join(out, count.divergent > 0 ? "bad" : "und", count.divergent > 0 ? "≠" : "?", text);
  }
  write_rung(out, "R1 · emulated ranks", "threads of one process; same shards, same summation order");
  if (count.wanted == 0) {
    write_join(out, "ctl", "·",
               count.real == static_cast<int>(results.cells.size()) ? "skipped: the cells ran on real ranks"
                                                                    : "nothing to certify");
  } else if (count.agreed == count.wanted && count.by_band > 0) {
    write_join(out, "ok", "≈",
               fmt::format("{} of {} steps agree in {}, in {} of them within tolerance", count.steps, count.asked,
                           counted(count.wanted, "cell"), count.by_band));
  } else if (count.agreed == count.wanted) {
    write_join(out, "ok", "=",
               fmt::format("all bits equal: {} of {} steps in {}", count.steps, count.asked,
                           counted(count.wanted, "cell")));
  } else {
    write_join(out, count.parted > 0 ? "bad" : "und", count.parted > 0 ? "≠" : "?",
               fmt::format("{} of {} certified", count.agreed, counted(count.wanted, "cell")));
  }
  write_rung(out, "R2 · real ranks", "one process a rank, c10d::Reducer over a real backend");
  out.close();
}

std::string rank_words(int rank) {
  if (rank == kRankUnknown) return "rank unknown";
  return rank < 0 ? "all ranks" : fmt::format("rank {}", rank);
}

/// A labelled cell, so that the row reads as a list where the page is narrow.
void open_labelled(Markup& out, std::string_view label) {
  out.open("td", {{"data-label", std::string(label)}});
}

void write_first_difference(Markup& out, const Mechanism& m) {
  const bool parted = m.first_divergence.has_value();
  open_labelled(out, "first differs");
  if (parted) {
    const Divergence& d = *m.first_divergence;
    std::string phase = clean_line(d.phase);
    std::replace(phase.begin(), phase.end(), '_', ' ');
    out.text(fmt::format("step {}", d.step));
    out.element("span", {{"class", "sub"}}, phase + (phase.empty() ? "" : ", ") + rank_words(d.rank));
  } else {
    out.text(m.compared_steps > 0 && m.verdict == VerdictKind::identical
                 ? fmt::format("not in {}", counted(m.compared_steps, "step"))
             : m.verdict == VerdictKind::within_envelope ? "within tolerance"
                                                         : "—");
  }
  out.close();
  open_labelled(out, "where");
  if (parted)
    out.text(m.first_divergence->where.empty() ? "—" : m.first_divergence->where);
  else
    out.text("—");
  if (parted && !m.first_divergence->sentence.empty())
    out.element("span", {{"class", "sub"}}, m.first_divergence->sentence);
  out.close();
  open_labelled(out, "expected → actual");
  if (parted && !(m.first_divergence->expected.empty() && m.first_divergence->actual.empty())) {
    out.element("code", {}, m.first_divergence->expected)
        .text(" → ")
        .element("code", {}, m.first_divergence->actual);
  } else {
    out.text("—");
  }
  out.close();
}

void write_cause(Markup& out, const Mechanism& m) {
  const bool needs_one = m.verdict == VerdictKind::divergent;
  open_labelled(out, "cause");
  if (m.cause) {
    out.element("b", {}, m.cause->code);
    if (m.cause->confidence > 0)
      out.element("span", {{"class", "sub"}}, fmt::format("confidence {:.0f} %", 100 * m.cause->confidence));
    if (!m.cause->evidence.empty()) out.element("span", {{"class", "sub"}}, m.cause->evidence);
  } else {
    out.text(needs_one ? "no cause named" : "—");
  }
  out.close();
  open_labelled(out, "how to fix it");
  out.text(m.cause && !m.cause->remedy.empty() ? m.cause->remedy : "—").close();
}

void write_row(Markup& out, const CellResult& cell, const std::string& anchor) {
  out.open("tr", {{"id", anchor}}).open("th", {{"scope", "row"}}).text(name_words(cell.scenario));
  out.open("span", {{"class", "sub"}});
  if (cell.mechanism) {
    write_verdict(out, cell, cell.mechanism->verdict);
    if (!cell.mechanism->forced.empty()) {
      out.text(", " + used_words(*cell.mechanism));
      if (!cell.mechanism->band_measured && !cell.mechanism->twins) out.text(" (estimated, not measured)");
    }
  } else {
    out.text("not compared");
  }
  out.close().close();
  if (cell.mechanism) {
    write_first_difference(out, *cell.mechanism);
    write_cause(out, *cell.mechanism);
  } else {
    out.element("td", {{"colspan", "5"}},
                cell.failure ? failure_words(*cell.failure) : "no trace was compared");
  }
  out.close();
}

}  // namespace

void write_mechanism(Markup& out, const Page& page) {
  open_section(out, "mechanism", "Do cell and reference compute the same?",
               "Each cell is compared with its reference, value by value. Emulated and real ranks must agree bit for bit; "
               "one process and the ranks must agree to rounding.");
  write_ladder(out, page.results);
  open_table(out, "stack first-seen",
             {"cell", "first differs", "where", "expected → actual", "cause", "how to fix it"});
  for (std::size_t i = 0; i < page.results.cells.size(); ++i)
    write_row(out, page.results.cells[i], page.anchors[i]);
  close_table(out);
  const bool in_words =
      std::any_of(page.results.cells.begin(), page.results.cells.end(),
                  [](const CellResult& cell) { return cell.mechanism && !cell.mechanism->sentence.empty(); });
  if (in_words) {
    out.open("details").element("summary", {}, "Each cell in a sentence").open("ul");
    for (const CellResult& cell : page.results.cells) {
      if (!cell.mechanism || cell.mechanism->sentence.empty()) continue;
      out.open("li")
          .element("b", {}, name_words(cell.scenario))
          .text(": " + cell.mechanism->sentence)
          .close();
    }
    out.close().close();
  }
  out.close();
}

void write_certification(Markup& out, const Page& page) {
  const bool any = std::any_of(page.results.cells.begin(), page.results.cells.end(),
                               [](const CellResult& cell) { return cell.certification.wanted; });
  if (!any) return;
  open_section(out, "certified", "What was certified, and how",
               "Long runs use emulated ranks. Their first steps were repeated on real ranks and must give the same bits; "
               "with a backend that does not specify its summation order (NCCL) they must agree within a tolerance.");
  open_table(out, "plain", {"cell", "real ranks", numbers("steps that agree"), numbers("asked"), numbers("seed"),
                            "result"});
  for (const CellResult& cell : page.results.cells) {
    const Certification& c = cell.certification;
    out.open("tr").element("th", {{"scope", "row"}}, name_words(cell.scenario));
    if (!c.wanted) {
      out.element("td", {{"colspan", "5"}}, "nothing to certify").close();
      continue;
    }
    const int ranks = world_size_of(cell);
    out.element("td", {},
                (ranks > 0 ? std::to_string(ranks) + " on " : "") +
                    (c.backend.empty() ? "—" : backend_words(c.backend)));
    out.element("td", {{"class", "n"}}, std::to_string(c.steps))
        .element("td", {{"class", "n"}}, std::to_string(c.asked));
    out.element("td", {{"class", "n"}}, std::to_string(c.seed)).open("td");
    if (c.divergence) {
      out.element("b", {{"class", "t-bad"}}, "≠ differs").text(": " + divergence_words(*c.divergence));
    } else if (c.steps >= c.asked && c.steps > 0 && c.certify == kByBand) {
      out.element("b", {{"class", "t-ok"}}, "≈ within tolerance")
          .text(fmt::format(", {:.2g} % of it used: {}", 100 * c.band_used, band_reason_words(c.backend)));
    } else if (c.steps >= c.asked && c.steps > 0) {
      out.element("b", {{"class", "t-ok"}}, "= bit for bit");
    } else {
      out.element("b", {{"class", "t-und"}}, "? not certified")
          .text(c.steps == 0 ? "" : ": the real prefix ended early");
    }
    out.close().close();
  }
  close_table(out);
  out.close();
}

}  // namespace lockstep
