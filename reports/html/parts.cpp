#include "reports/html/parts.h"

#include <algorithm>

#include "harness/base/text.h"
#include "reports/plots/chart.h"
#include "reports/section.h"
#include "reports/text.h"

namespace lockstep {

std::string_view html_style() {
  // Colours after Okabe and Ito, darkened or lightened until they can be read as text on their ground.
  return R"(:root{color-scheme:light dark;--bg:#fff;--ink:#1b1f24;--mut:#5c6570;--line:#e3e7eb;--card:#f5f7f9;--ok:#00734f;--bad:#b34700;--und:#7a6200;
--fail:#a3195b;--ctl:#55606c;--okbg:#e9f5f0;--inside:#e2f1eb;--badbg:#fdf0e8;--undbg:#faf5e0;--failbg:#fbebf2;--link:#0061a1;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b0508c;--c4:#3a9bd6;--c5:#b98200;
--h1:#eef5fa;--h2:#dcebf5;--h3:#fdebdd;--h4:#fbd9bf;--h5:#f7bd92;--h6:#f09f63;--shade:#8c96a0}
@media screen and (prefers-color-scheme:dark){:root{--bg:#14171a;--ink:#e8eaed;--mut:#9da7b2;--line:#2b3138;--card:#1d2126;--ok:#3ddc97;--bad:#ff9457;--und:#e4c74f;
--fail:#ff85b5;--ctl:#aab4bf;--okbg:#12291f;--inside:#17352a;--badbg:#33200f;--undbg:#2c2710;--failbg:#331722;--link:#6cbcf5;
--c0:#4ba6e6;--c1:#ff8a4c;--c2:#2fcf9c;--c3:#e39bc9;--c4:#a5dcff;--c5:#f5b942;
--h1:#16222c;--h2:#1a2f3f;--h3:#33230f;--h4:#4a2e12;--h5:#683c14;--h6:#8a4d17;--shade:#6d7883}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-padding-top:12px}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,sans-serif;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
main{max-width:1200px;margin:0 auto;padding:22px 28px 56px}
a{color:inherit;text-decoration:underline;text-decoration-color:var(--line);text-underline-offset:3px}a:hover{color:var(--link);text-decoration-color:currentColor}
h1{font-size:15px;font-weight:600;margin:0 0 10px}h1 span{color:var(--mut);font-weight:400}
h2{font-size:19px;line-height:1.3;letter-spacing:-.005em;margin:36px 0 4px}header+section h2{margin-top:14px}h3{font-size:15px;margin:24px 0 4px}
p{margin:0 0 10px}p.why{color:var(--mut);max-width:66em}
.t-ok{color:var(--ok)}.t-bad{color:var(--bad)}.t-und{color:var(--und)}.t-fail{color:var(--fail)}.t-ctl{color:var(--ctl)}
.verdict{border-left:6px solid;border-radius:3px 10px 10px 3px;padding:12px 20px 11px;margin:0 0 14px;border-color:var(--k);background:var(--kbg)}
.status{display:inline-block;font-weight:700;font-size:13px;letter-spacing:.06em;text-transform:uppercase;color:var(--bg);background:var(--k);border-radius:5px;padding:2px 10px;margin:0 10px 5px 0}
.ctl .status{background:var(--ink)}
.detail{color:var(--mut);font-size:14px}.verdict.bad .detail,.verdict.fail .detail{color:var(--ink)}
.asked{margin:22px 0 0}.asked div{display:grid;grid-template-columns:13em minmax(0,1fr);gap:2px 18px;padding:6px 0;border-top:1px solid var(--line)}.asked dt{font-weight:600}.asked dd{margin:0;max-width:62em;font-size:14px}
.scroll{overflow-x:auto;background:linear-gradient(to right,var(--bg) 30%,transparent) left/40px 100% no-repeat local,linear-gradient(to left,var(--bg) 30%,transparent) right/40px 100% no-repeat local,linear-gradient(to right,var(--shade),transparent) left/16px 100% no-repeat,linear-gradient(to left,var(--shade),transparent) right/16px 100% no-repeat}
.scroll::-webkit-scrollbar{height:9px;background:var(--line)}.scroll::-webkit-scrollbar-thumb{background:var(--mut);border-radius:4px}.scroll+p{margin-top:8px}.scroll:focus-visible{outline:2px solid var(--link);outline-offset:2px}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{overflow-wrap:break-word;text-align:left;vertical-align:top;padding:6px 14px 6px 0;border-bottom:1px solid var(--line)}th:last-child,td:last-child{padding-right:0}
thead th{overflow-wrap:normal;color:var(--mut);font-weight:600;font-size:13px;vertical-align:bottom}tbody th{font-weight:600}
.n{text-align:right;white-space:nowrap}.trials th[scope=row]{min-width:13em;overflow-wrap:normal}.trials td{white-space:nowrap}.trials td.n,.trials th.n{padding-left:6px;padding-right:6px;font-size:12.5px}.plain{width:auto;min-width:50%}.plain td,.plain th{padding-top:3px;padding-bottom:3px}.seeds{min-width:20em}
.sub{display:block;font-size:12.5px;line-height:1.35;font-weight:400;color:var(--mut)}.sub.t-bad{color:var(--bad)}
.tag{font-size:11.5px;font-weight:600;color:var(--ctl);border:1px solid var(--line);border-radius:4px;padding:0 5px;white-space:nowrap}
.rows{margin:6px 0 10px}.rows th,.rows td{border:0;vertical-align:middle;padding-top:5px;padding-bottom:5px}.rows thead th{border-bottom:1px solid var(--line)}.rows thead th:last-child{padding-left:6px}
.rows .name{width:16%;min-width:6em;font-weight:600;line-height:1.3}.rows td.plot{position:relative;padding:0;height:40px;width:26%}.rows td.plot+td{padding-left:16px}
.dots td.plot{height:22px;width:50%}.dots th.name,.dots td{padding-top:1px;padding-bottom:1px}.dots .name{font-weight:400}.dots td.n{width:9%}.dots td.axis{height:30px}.dots .seed{opacity:.7}.one{max-width:680px}
.line.bad{stroke-width:3.2}.wrong,.wrong td,.wrong th{background:var(--badbg);font-weight:600}.given td.n,.given th.n{padding-left:10px}.given td,.given th{overflow-wrap:normal}.given th.n,.suite th.n{white-space:normal}.suite th.n,.suite td.n{min-width:6em;padding-left:10px}.given td:last-child:not(.n){min-width:12em;overflow-wrap:anywhere}
.rows .ci-text{color:var(--mut)}.rows .v{padding-left:6px;line-height:1.35}.rows .v b,.rows .v .sub:not(.t-bad){white-space:nowrap}.rows .w{width:18%;font-size:13px;line-height:1.35}.rows .w .sub{font-size:12.5px}
.rows tbody tr:hover{background:var(--card)}.rows td.axis{height:46px;vertical-align:bottom}
.row{position:absolute;inset:0;width:100%;height:100%;overflow:visible}.axis .row{height:24px}.mark{overflow:visible}
.ends{display:flex;justify-content:space-between;font-size:12px;color:var(--mut);padding-top:22px}
.nothing{position:absolute;inset:0;display:flex;align-items:center;padding-left:10px;color:var(--mut);font-size:13px}
.keys{display:flex;flex-wrap:wrap;gap:2px 20px;font-size:13px;color:var(--mut);margin:8px 0 4px}.keys span{display:inline-flex;align-items:center;gap:7px}.key{width:34px;height:14px;flex:none}
svg text{font-size:12px;fill:var(--ink)}
svg .tick{fill:var(--mut);font-size:11.5px}.mid{text-anchor:middle}.end{text-anchor:end}
.grid{stroke:var(--line)}.tk{stroke:var(--mut);stroke-width:1}.zero{stroke:var(--mut)}.edge{stroke:var(--mut);stroke-dasharray:4 3}.chance{stroke:var(--mut);stroke-dasharray:1.5 4;stroke-width:1.4}
.margin{fill:var(--inside);shape-rendering:crispEdges}
.ok{--k:var(--ok);--kbg:var(--okbg)}.bad{--k:var(--bad);--kbg:var(--badbg)}.und{--k:var(--und);--kbg:var(--undbg)}.fail{--k:var(--fail);--kbg:var(--failbg)}.ctl{--k:var(--ctl)}
.aa{--k:var(--mut)}.ref{--k:var(--ink)}.c0{--k:var(--c0)}.c1{--k:var(--c1)}.c2{--k:var(--c2)}.c3{--k:var(--c3)}.c4{--k:var(--c4)}.c5{--k:var(--c5)}
.ci,.cap{stroke:var(--k);stroke-width:1.8}.eq{stroke:var(--k);stroke-width:6.5;stroke-linecap:butt;opacity:.55}
.m{fill:var(--k);stroke:var(--bg);stroke-width:1.4}.seed{fill:var(--k);opacity:.42}.ring{fill:none;stroke:var(--k);stroke-width:1.3;opacity:.8}
.raw{fill:none;stroke:var(--k);opacity:.3}.line{fill:none;stroke:var(--k);stroke-width:2;stroke-linejoin:round}.ref.line{stroke-width:2.4}.band{fill:var(--k);opacity:.13}
.c1.line{stroke-dasharray:7 3}.c2.line{stroke-dasharray:2 2.5}.c3.line{stroke-dasharray:9 3 2 3}.c4.line{stroke-dasharray:5 2 1.5 2 1.5 2}.c5.line{stroke-dasharray:12 4}
.hollow{fill:var(--bg);stroke:var(--k);stroke-width:2}.dashed.line,.dashed.ref.line{stroke-dasharray:5 4;stroke-width:1.4}.predicted{fill:var(--h2)}
.answer{table-layout:fixed;min-width:460px;margin:10px 0 0;border-spacing:5px;border-collapse:separate}.answer th,.answer td{border:0;padding:7px 10px 8px;vertical-align:top}.answer th:first-child{width:4.6em;padding-left:0}.answer tbody th{vertical-align:middle;font-size:15px}.answer td{border-radius:7px;background:var(--card);line-height:1.35}
.answer td a{text-decoration:none}.answer .none{color:var(--mut);text-align:center;vertical-align:middle}.answer .a-ok{background:var(--okbg)}.answer .a-bad{background:var(--badbg)}.answer .a-und{background:var(--undbg)}.answer .a-fail{background:var(--failbg)}
.mini{display:block;width:100%;height:20px;margin-top:5px;overflow:hidden}.mini .zero{opacity:.7}.mini .margin{fill:var(--bg)}
.first{list-style:none;padding:0;margin:0;font-size:17px;line-height:1.35;font-weight:600;letter-spacing:-.005em;text-wrap:pretty}.first li{margin:2px 0 0}
.group td{grid-column:1/-1;color:var(--mut);font-size:13px;padding-top:16px!important;border-bottom:1px solid var(--line)!important}
.power td.plot{width:27%;min-width:150px}.rows.power td,.rows.power th.name{height:30px}.rows.power thead th:last-child{padding-left:0}
.bar{display:block;width:64px;height:9px;margin-top:3px}.n .bar{margin-left:auto}.bar.wide{width:100%;min-width:120px;height:14px;margin:3px 0}.part{fill:var(--k)}.bar-of{fill:var(--line)}.share{white-space:nowrap}.costs thead th{overflow-wrap:normal}.costs td,.costs th{padding-left:8px}.costs th:first-child{padding-left:0}
.leader{fill:none;stroke:var(--mut);stroke-width:.7;opacity:.6}.ended{stroke:var(--k);stroke-width:2}.pole{stroke:var(--mut);stroke-width:1.4;fill:none}
.two{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:26px 34px;margin-top:14px}
figure{margin:0;min-width:0}figcaption{margin-bottom:6px}figcaption b{display:block;line-height:1.3}figcaption span{font-size:13px;color:var(--mut)}
figure>svg{width:100%;height:auto;display:block}.panel>svg{max-width:680px}.panels{grid-column:1/-1}
.small{display:grid;grid-template-columns:repeat(auto-fill,minmax(230px,1fr));gap:16px 20px;align-items:end}.small figcaption{font-size:13px;font-weight:600;line-height:1.3;margin:0 0 2px}
.ladder{display:grid;grid-template-columns:minmax(0,1fr) minmax(110px,auto) minmax(0,1fr) minmax(110px,auto) minmax(0,1fr);align-items:center;margin:14px 0 18px}
.rung{border:1px solid var(--line);background:var(--card);border-radius:9px;padding:10px 15px;height:100%}.rung b{display:block}.rung span{display:block;color:var(--mut);font-size:13px;line-height:1.4}
.join{padding:4px 12px;text-align:center;font-size:13px;line-height:1.35;max-width:190px;justify-self:center}.join b{display:block;font-size:17px;line-height:1.1}
code,pre{font:13px/1.5 ui-monospace,monospace}code{background:var(--card);padding:1px 5px;border-radius:4px}
pre{background:var(--card);padding:10px 14px;border-radius:7px;margin:4px 0 14px;white-space:pre-wrap}
.first-seen th:first-child{width:21%}.first-seen th:nth-child(2){width:13%}.first-seen th:nth-child(3){width:20%}.first-seen th:nth-child(4){width:18%}
.metrics{table-layout:fixed;min-width:880px}.metrics td.n{white-space:normal}.metrics th:first-child{width:27%}.metrics th:nth-child(n+2){width:11%}.metrics th:nth-child(5){width:18%}.metrics th:nth-child(6){width:22%}
.metrics td:last-child,.metrics th:last-child{padding-left:10px}.config th:first-child{width:34%}.config th:nth-child(2){width:24%}
.heat td.n,.heat th.n{padding:5px 12px}.heat thead th{text-align:right}.heat thead th:first-child{text-align:left}
.heat .sub{color:inherit}.heat{width:auto;min-width:62%}
.h1{background:var(--h1)}.h2{background:var(--h2)}.h3{background:var(--h3)}.h4{background:var(--h4)}.h5{background:var(--h5)}.h6{background:var(--h6)}
.swatch{display:inline-block;width:22px;height:12px;border-radius:2px;border:1px solid var(--line)}
.clash{background:var(--badbg)}.clash td:last-child{color:var(--bad)}
.tip{position:fixed;z-index:1;pointer-events:none;white-space:pre;padding:5px 9px;border:1px solid var(--mut);border-radius:5px;background:var(--bg);font-size:13px;line-height:1.35}
.js [data-key]{cursor:pointer}@media screen{.off{display:none}.dim{opacity:.45}}@media print{.tip{display:none}}
details{margin:8px 0}summary{cursor:pointer;color:var(--mut);font-size:14px}summary:hover{color:var(--link)}summary b{color:var(--ink)}details[open]>summary{margin-bottom:6px}
:target{scroll-margin-top:12px}tr:target{background:var(--undbg)}
footer{margin-top:48px;border-top:1px solid var(--line);padding-top:10px;color:var(--mut);font-size:13px}
@media screen and (max-width:900px){.two{grid-template-columns:minmax(0,1fr)}.ladder{grid-template-columns:minmax(0,1fr)}.join{padding:8px}}
@media screen and (max-width:760px){main{padding:18px 16px 40px}.verdict{padding:12px 14px 10px}.first{font-size:16px}.asked div{grid-template-columns:minmax(0,1fr)}
.rows,.rows tbody,.rows tfoot{display:block}.rows thead,.rows .gap{display:none}.rows tr{display:grid;grid-template-columns:1fr auto auto;gap:0 14px;padding:8px 0;border-bottom:1px solid var(--line)}
.rows tfoot tr{padding-top:0;border:0}.rows th,.rows td{padding:2px 0}.rows .name{width:auto;grid-column:1/3}.rows .v{width:auto;grid-column:3;grid-row:1;text-align:right;padding-left:0}
.rows tr td.plot{width:auto;grid-column:1/-1;grid-row:2}.rows td.axis{grid-row:1}.rows td.plot+td{padding-left:0;grid-column:1}.rows td.n{text-align:left}.rows td.ci-text{grid-column:2/4;text-align:right}.rows td.n .sub{display:inline;margin-left:6px}.power td.n::before{content:attr(data-label) " ";color:var(--mut);font-size:12.5px}.power td.plot{min-width:0}.rows tr td.w{width:auto;grid-column:1/-1}.rows tr td.w:empty{display:none}
.dots tbody .name{grid-column:1;grid-row:1}.dots tbody td.n{width:auto;grid-row:1;text-align:right}.dots tbody td.plot+td{grid-column:2}.dots tbody td:last-child{grid-column:3}.dots tbody .group td{grid-column:1/-1}.dots td.n::before{content:attr(data-label) " ";color:var(--mut);font-size:12.5px}
.stack,.stack tbody,.stack td,.stack tbody th{display:block}.stack thead{display:none}.stack tr{display:block;border-bottom:1px solid var(--line);padding:8px 0}.stack tr th:first-child,.stack tr td{border:0;padding:1px 0;width:auto}
.stack td[data-label]::before{content:attr(data-label) ": ";color:var(--mut)}}
@media print{:root{color-scheme:light}@page{margin:13mm}main{max-width:none;padding:0;zoom:.66}h2{margin-top:30px}
.verdict,.status,.h1,.h2,.h3,.h4,.h5,.h6,.rung,pre,.swatch,.clash,.answer td{print-color-adjust:exact;-webkit-print-color-adjust:exact}
tr,figure,.ladder,.answer,pre,.verdict,.heat,.metrics{break-inside:avoid}h2,h3,summary,p.why,.keys{break-after:avoid}.scroll{overflow:visible;background:none}a{text-decoration:none}
details:not([open]){display:none}}
)";
}

std::string_view html_script() {
  // No less-than sign and no ampersand: the page is well-formed XML.
  return R"(
(page => {
  let tip;
  const hide = () => tip ? tip.remove() : 0;
  const near = (line, at) => {
    const drawn = line.getAttribute('d').slice(1).split(' '), values = line.dataset.v.split(' ');
    let best = 0;
    drawn.forEach((x, i) => i % 2 ? 0 : Math.abs(drawn[best] - at) > Math.abs(x - at) ? best = i : 0);
    return {name: line.textContent.trim(), away: Math.abs(drawn[best] - at), x: values[best], y: values[best + 1]};
  };
  const show = e => {
    hide();
    const svg = e.target.closest('svg[data-x]');
    if (!svg) return;
    const box = svg.getBoundingClientRect(), at = (e.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    const found = [...svg.querySelectorAll('g:not(.off) > path[data-v]')].reverse().map(each => near(each, at));
    if (!found.length) return;
    const first = found.reduce((a, b) => a.away > b.away ? b : a);
    tip = page.body.appendChild(page.createElement('div'));
    tip.className = 'tip';
    tip.textContent = [svg.dataset.x + ' ' + first.x,
      ...found.map(each => each.name + ': ' + each.y + (each.x === first.x ? '' : ' at ' + each.x))].join('\n');
    tip.style.left = Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
    tip.style.top = Math.min(e.clientY + 14, innerHeight - tip.offsetHeight - 8) + 'px';
  };
  const toggle = e => {
    const entry = e.target.closest('[data-key]');
    if (!entry) return;
    const off = entry.classList.toggle('dim'), drawn = entry.closest('svg') || entry.parentNode.nextElementSibling;
    if (entry.role) entry.ariaPressed = !off;
    drawn.querySelectorAll('[data-s]').forEach(each =>
      each.dataset.s === entry.dataset.key ? each.classList.toggle('off', off) : 0);
  };
  const on = (...event) => page.addEventListener(...event);
  page.documentElement.classList.add('js');
  on('pointermove', show);
  on('pointerdown', show);
  on('scroll', hide, true);
  on('click', toggle);
  on('keydown', e => e.key === 'Enter' ? toggle(e) : 0);
  on('DOMContentLoaded', () => page.querySelectorAll('span[data-key]').forEach(each =>
    Object.assign(each, {tabIndex: 0, role: 'button', ariaPressed: true})));
})(document);
)";
}

Datum label_of(const CellResult& cell, const std::string& anchor) {
  Datum label = Datum(name_words(cell.scenario)).to(anchor);
  label.tag = cell.power_control ? "power control" : "";
  return label;
}

namespace {

Datum verdict_of(const CellResult& cell, VerdictKind kind) {
  if (cell.noise) return Datum().note("not judged");
  Datum verdict(verdict_note(cell, kind).text, "t-" + row_css(cell, kind));
  if (is_missed_control(cell)) return verdict.note({"✗ must be found to differ", "t-bad"});
  if (!cell.as_expected) return verdict.note({cell.expected.empty() ? "✗ it must not fail" : "✗ expected " + expected_words(cell), "t-bad"});
  return verdict.note(on_page(cell.power_control      ? "✓ found, as required"
                              : cell.expected.empty() ? ""
                                                      : "✓ as expected"));
}

/// The code, or what differs, and where it first does.
Datum cause_in_row(const CellResult& cell) {
  constexpr int kLongest = 400;
  const Cause* cause = cause_of(cell);
  Datum why(cause ? clean_line(cause->code) : "");
  const Mechanism* m = cell.mechanism ? &*cell.mechanism : nullptr;
  if (cell.failure) {
    why.note(short_line(failure_words(*cell.failure), kLongest));
  } else if (cell.certification.divergence) {
    why = Datum("real ranks differ from the emulated run").note("from " + place_words(*cell.certification.divergence));
  } else if (m && m->verdict == VerdictKind::divergent && m->first_divergence) {
    if (!cause) why.text = replaced(clean_line(m->first_divergence->phase), "_", " ");
    const Divergence& first = *m->first_divergence;
    const std::string place = place_words(first);
    const std::size_t step = std::min(place.find(", "), place.size());
    why.note(first.step < 0 ? "before the first step" : "from " + place.substr(0, step));
    std::string where = place.substr(std::min(step + 2, place.size()));
    if (where.starts_with(why.text)) where.erase(0, std::min(why.text.size() + 2, where.size()));
    why.note(on_page(where));
  } else if (m && cell.verdict == m->verdict && m->verdict == VerdictKind::inconclusive) {
    why.note(short_line(m->sentence, kLongest));
  }
  if (cell.no_negatives) why.note("no negatives: the loss is 0");
  why.note(short_line(undeclared_words(cell), kLongest));
  if (!cell.failed_saves.empty()) why.note({"checkpoints: " + clean_line(cell.failed_saves), "t-bad"});
  return why;
}

std::string fix_of(const CellResult& cell) {
  if (cell.outcome && cell.verdict == VerdictKind::inconclusive && cell.outcome->seeds_needed > 0)
    return needed_words(*cell.outcome);
  const Cause* cause = cause_of(cell);
  if (cause && !cause->remedy.empty()) return clean_line(cause->remedy);
  const bool open = cell.mechanism && !cell.failure && cell.mechanism->verdict == VerdictKind::inconclusive &&
                    !cell.mechanism->decide.empty();
  return open ? "to decide: " + clean_line(cell.mechanism->decide) : "";
}

}  // namespace

std::vector<Column> answer_columns() {
  std::vector<Column> columns{"verdict", "cause, first step", "fix"};
  columns[0].css = "v", columns[1].css = columns[2].css = "w";
  columns[2].below = true;
  return columns;
}

void add_answer(DataRow& row, const CellResult& cell, VerdictKind kind) {
  const bool asks = !cell.noise && (!cell.power_control || is_missed_control(cell));
  row.fault = !is_as_expected(cell);
  row.open = kind == VerdictKind::inconclusive;
  row.cells.push_back(verdict_of(cell, kind));
  row.cells.push_back(asks ? cause_in_row(cell) : Datum());
  row.cells.push_back(asks ? Datum().note(fix_of(cell)) : Datum());
}

std::vector<Section> rewards_sections(const Page& page) {
  std::vector<Section> sections;
  for (std::size_t i = 0; i < page.results.cells.size(); ++i) {
    const CellResult& cell = page.results.cells[i];
    if (!cell.mechanism || cell.mechanism->tables.empty()) continue;
    Section section{"rewards-" + page.anchors[i], "Rewards · " + name_words(cell.scenario), clean_line(cell.mechanism->tables.front().why), {}};
    for (const SuiteTable& table : cell.mechanism->tables) section.parts.push_back(tabled(table_of(table)));
    for (const SuiteChart& chart : cell.mechanism->charts) {
      section.parts.push_back(prose(clean_line(chart.title + ": " + chart.why)));
      section.parts.push_back(charted(chart));
    }
    sections.push_back(std::move(section));
  }
  return sections;
}

}  // namespace lockstep
