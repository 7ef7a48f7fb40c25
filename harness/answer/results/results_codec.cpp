#include "harness/answer/results/results_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "harness/base/json.h"

namespace lockstep::results_format {
namespace {

std::string read_text(const Json& json) {
  if (!json.is_string()) refuse("a text", json);
  return json.get<std::string>();
}

double read_number(const Json& json) {
  if (const std::optional<double> number = number_in_json(json)) return *number;
  if (!json.is_string()) refuse("a number", json);
  throw Unreadable("\"" + json.get<std::string>() + "\" is not a number");
}

/// The bits; throws if the value beside them says something else.
double read_exact(const Json& json) {
  if (!json.is_object() || !json.contains("value") || !json.contains("bits"))
    refuse("a number as an object of value and bits", json);
  const std::string text = read_text(json.at("bits"));
  const std::optional<uint64_t> raw = from_hex16(text);
  if (!raw) throw Unreadable("\"" + text + "\" is not 16 hexadecimal digits");
  const double value = std::bit_cast<double>(*raw), said = read_number(json.at("value"));
  if (value != said && !(std::isnan(value) && std::isnan(said)))
    throw Unreadable("value " + json.at("value").dump() + " and bits " + text + " disagree");
  return value;
}

int64_t read_whole(const Json& json, int64_t least, int64_t most) {
  if (!json.is_number_integer()) refuse("a whole number", json);
  const bool too_large = json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(most);
  if (too_large || json.get<int64_t>() < least) throw Unreadable(json.dump() + " is out of range");
  return json.get<int64_t>();
}

Json schema_of_number(Definitions& definitions) {
  return definitions.ref("number", [] {
    return Json{{"description", "A number; NaN and infinities as strings, never null."},
                {"anyOf", Json::array({Json{{"type", "number"}},
                                       Json{{"type", "string"}, {"enum", {"nan", "inf", "-inf"}}}})}};
  });
}

Json schema_of_exact(Definitions& definitions) {
  return definitions.ref("exact", [&definitions] {
    return Json{{"type", "object"},
                {"description", "A statistic: its value, and the 16 hexadecimal digits of its 64 bits."},
                {"required", {"value", "bits"}},
                {"properties",
                 {{"value", schema_of_number(definitions)},
                  {"bits", {{"type", "string"}, {"pattern", "^[0-9a-f]{16}$"}}}}},
                {"additionalProperties", false}};
  });
}

}  // namespace

void Unreadable::stands_in(const std::string& step) {
  where_ = step + (where_.empty() || where_.front() == '[' ? "" : ".") + where_;
}

std::string Unreadable::text() const { return where_.empty() ? what() : where_ + ": " + what(); }

void refuse(const char* expected, const Json& found) {
  const std::string what = found.is_primitive() ? found.dump(-1, ' ', false, Json::error_handler_t::replace)
                                                : fmt::format("an {}", found.type_name());
  throw Unreadable(fmt::format("{} was expected, found {}", expected, what));
}

Json Definitions::ref(const std::string& name, const std::function<Json()>& make) {
  if (!all_.contains(name)) all_[name] = make();
  return {{"$ref", "#/definitions/" + name}};
}

Codec<double> exact() {
  return {json_number_and_bits<Json>, [](const Json& json, double& value) { value = read_exact(json); },
          schema_of_exact};
}

Codec<double> number() {
  return {json_number<Json>, [](const Json& json, double& value) { value = read_number(json); },
          schema_of_number};
}

Codec<double> finite() {
  Codec<double> codec = number();
  codec.schema = [](Definitions&) { return Json{{"type", "number"}}; };
  return codec;
}

template <class T>
Codec<T> whole(std::optional<int64_t> least) {
  return {[](const T& value) { return Json(value); },
          [](const Json& json, T& value) {
            using Limits = std::numeric_limits<T>;
            value = static_cast<T>(read_whole(json, Limits::min(), Limits::max()));
          },
          [least](Definitions&) {
            Json schema{{"type", "integer"}};
            if (least) schema["minimum"] = *least;
            return schema;
          }};
}
template Codec<int> whole(std::optional<int64_t>);
template Codec<int64_t> whole(std::optional<int64_t>);

Codec<int> constant(int value) {
  return {[](int written) { return Json(written); },
          [value](const Json& json, int& read) {
            if (json != value) refuse(std::to_string(value).c_str(), json);
            read = value;
          },
          [value](Definitions&) { return Json{{"const", value}}; }};
}

Codec<bool> flag() {
  return {[](bool value) { return Json(value); },
          [](const Json& json, bool& value) {
            if (!json.is_boolean()) refuse("true or false", json);
            value = json.get<bool>();
          },
          [](Definitions&) { return Json{{"type", "boolean"}}; }};
}

Codec<std::string> text() {
  return {[](const std::string& value) { return Json(value); },
          [](const Json& json, std::string& value) { value = read_text(json); },
          [](Definitions&) { return Json{{"type", "string"}}; }};
}

Codec<std::string> one_of(std::vector<std::string> words) {
  return {[](const std::string& value) { return Json(value); },
          [words](const Json& json, std::string& value) {
            value = read_text(json);
            if (std::ranges::find(words, value) == words.end()) throw Unreadable("unknown word \"" + value + "\"");
          },
          [words](Definitions&) { return Json{{"type", "string"}, {"enum", words}}; }};
}

std::size_t index_of_word(const Json& json, std::span<const std::string_view> names, const char* what) {
  const std::string word = read_text(json);
  const auto found = std::ranges::find(names, word);
  if (found == names.end()) throw Unreadable(fmt::format("unknown {} \"{}\"", what, word));
  return static_cast<std::size_t>(found - names.begin());
}

Json schema_of_words(Definitions& definitions, std::span<const std::string_view> names,
                     const std::string& name) {
  const auto make = [names] {
    Json schema{{"type", "string"}, {"enum", Json::array()}};
    for (const std::string_view word : names) schema["enum"].push_back(word);
    return schema;
  };
  return name.empty() ? make() : definitions.ref(name, make);
}

AnyField field_at(std::ptrdiff_t offset, const char* name, const AnyCodec& codec, const char* help) {
  return field_of_part(offset, {{name, help, codec.may_lack, {}, false}, codec});
}

AnyField field_of_part(std::ptrdiff_t offset, const AnyField& inner) {
  AnyField field = inner;
  field.key.members = {offset};
  field.codec.writer = [offset, write = inner.codec.writer](const void* owner) {
    return write(static_cast<const char*>(owner) + offset);
  };
  field.codec.reader = [offset, read = inner.codec.reader](const Json& json, void* owner) {
    read(json, static_cast<char*>(owner) + offset);
  };
  return field;
}

Json write_object(const AnyObject& description, const void* owner) {
  Json object = Json::object();
  for (const AnyField& field : description.fields) {
    Json value = field.codec.writer(owner);
    if (!field.key.may_lack || !value.is_null()) object[field.key.name] = std::move(value);
  }
  return object;
}

void read_object(const AnyObject& description, const Json& json, void* owner) {
  if (!json.is_object()) refuse("an object", json);
  for (const bool last : {false, true}) {
    for (const AnyField& field : description.fields) {
      if (field.key.last != last) continue;
      const auto found = json.find(field.key.name);
      if (found != json.end()) {
        within(field.key.name, [&] { field.codec.reader(*found, owner); });
      } else if (!field.key.may_lack) {
        throw Unreadable("the key \"" + field.key.name + "\" is missing");
      }
    }
  }
}

Json schema_of(const AnyObject& description, Definitions& definitions) {
  Json schema{{"type", "object"}};
  if (!description.help.empty()) schema["description"] = description.help;
  schema["required"] = Json::array();
  schema["properties"] = Json::object();
  for (const AnyField& field : description.fields) {
    const Key& key = field.key;
    const Json value = field.codec.schema(definitions);
    if (!key.may_lack) schema["required"].push_back(key.name);
    // Beside $ref draft-07 reads nothing else.
    const bool wrapped = !key.help.empty() && value.contains("$ref");
    Json& property = schema["properties"][key.name] = wrapped ? Json{{"anyOf", Json::array({value})}} : value;
    if (!key.help.empty()) property["description"] = key.help;
  }
  schema["additionalProperties"] = false;
  return schema;
}

Json named_schema_of(const AnyObject& description, Definitions& definitions) {
  const auto make = [&] { return schema_of(description, definitions); };
  return description.name.empty() ? make() : definitions.ref(description.name, make);
}

}  // namespace lockstep::results_format

// What results.json says of a whole matrix: each question's own tables, the summary, the document itself.

// The member's own spelling is its key.
#define KEY(member, ...) {#member, &S::member __VA_OPT__(, ) __VA_ARGS__}

namespace lockstep::results_format {

template <>
Object<Growth::Rule> describe() {
  using S = Growth::Rule;
  return {
      "growth_rule", "One rule of the learning rate, and the paired difference of its cell to the reference.",
      with_part({KEY(cell),
                 KEY(rule),
                 KEY(exponent, exact()),
                 KEY(verdict),
                 KEY(n, added(whole<int>(0)), "Pairs; 0: none, or not known.")},
                &S::difference)};
}

template <>
Object<Growth> describe() {
  using S = Growth;
  return {"growth",
          "Rules of the learning rate from one layout to another: which trains best, and the exponent of "
          "the rate in the batch, predicted and measured.",
          {KEY(reference), KEY(from), KEY(to), KEY(from_batch), KEY(to_batch), KEY(rules),
           KEY(best, "Empty: none was judged."),
           KEY(not_worse, "Other rules that no rule is shown to be better than (all pairs, paired by seed, Holm)."),
           KEY(noise_batch, exact()), KEY(predicted_exponent, exact()), KEY(predicted_interval),
           KEY(measured_exponent, exact()), KEY(measured_interval), KEY(caveat), KEY(sentence),
           KEY(n, added(whole<int>(0)), "Seeds that all judged rules share; 0: not known."),
           KEY(samples_ratio, added(exact()), "Samples that a cell's runs saw over those of the reference's.")}};
}

template <>
Object<TimingRow> describe() {
  using S = TimingRow;
  return {"timing_row",
          "One layout in one group. Figures are NaN where no run finished, and speed-up where the group has "
          "no layout of one rank.",
          {KEY(group, one_of({kEqualBatch, kEqualRows})),
           {"world_size", &S::layout, &Layout::world_size, at_least(1)},
           {"rows_per_rank", &S::layout, &Layout::rows_per_rank, at_least(1)},
           KEY(runs, at_least(0), "That finished."),
           KEY(step_seconds, exact()),
           {"smallest_seconds", &S::interval, &Interval::low, exact()},
           {"largest_seconds", &S::interval, &Interval::high, exact()},
           KEY(rows_per_second, exact()), KEY(speed_up, exact()), KEY(efficiency, exact()),
           KEY(communication_share, exact()),
           {"smallest_speed_up", &S::speed_up_range, &Interval::low, added(exact()),
            "The slowest run against the fastest of one rank."},
           {"largest_speed_up", &S::speed_up_range, &Interval::high, added(exact())},
           {"smallest_share", &S::share_range, &Interval::low, added(exact()), "Of communication."},
           {"largest_share", &S::share_range, &Interval::high, added(exact())},
           {"received_bytes", &S::bytes, exact()},
           KEY(activation_bytes, exact()), KEY(weight_bytes, exact()),
           KEY(crowded, "More ranks than cores.")},
          // From the smallest to the largest run: that holds all of them.
      [](S& row) { row.interval.level = 1; }};
}

template <>
Object<Timing> describe() {
  using S = Timing;
  return {"timing",
          "How fast layouts are on real ranks, each run alone on the machine; present if the matrix times "
          "layouts.",
          {KEY(cores, at_least(1)), KEY(processor),
           KEY(sentence, "What the cores of this machine let be seen, and which runs failed."),
           KEY(rows)}};
}

template <>
Object<CertificateRow> describe() {
  using S = CertificateRow;
  return {"certificate_row",
          "One loss at one number of ranks: the worst of its cases, and what a step costs.",
          {KEY(loss), KEY(world_size, at_least(0)), KEY(cases, at_least(1)), KEY(certified, at_least(0)),
           KEY(worst, exact()), KEY(worst_cell), KEY(worst_step), KEY(worst_group), KEY(costs),
           KEY(time_to_local, number())}};
}

template <>
Object<Certificate> describe() {
  using S = Certificate;
  return {"certificate",
          "Losses against their plain references in one process; allowed is exact * max(|g_ref|, t), with t "
          "the size of the terms that are added up.",
          {KEY(exact, number()), KEY(steps), KEY(rows)}};
}

template <>
Object<DetectionRate> describe() {
  using S = DetectionRate;
  return {"detection_rate", "",
          {KEY(what), KEY(hits, at_least(0)), KEY(of, at_least(0)), KEY(interval),
           {"asked", nullable(finite()),
            [](const S& r) { return r.asked < 0 ? std::nullopt : std::optional(r.asked); },
            [](S& r, std::optional<double> asked) { r.asked = asked.value_or(-1); },
            "The smallest share of hits required, or with at_most the largest allowed; null: none.",
            &S::asked},
           KEY(at_most), KEY(enough)}};
}

template <>
Object<DetectionRow> describe() {
  using S = DetectionRow;
  return {"detection_row",
          "The trials of one mutant, or of all pairs; exact ones and causes are counted among the caught.",
          {KEY(mutant),
           KEY(report, "The public report that it stands for, or empty."),
           KEY(trials), KEY(caught), KEY(exact_step), KEY(exact_place), KEY(exact), KEY(right_cause),
           KEY(wrong_cause),
           KEY(place_asked, added(usual<bool>()), "false: where the fault must show was not said, so that any place counts as exact."),
           KEY(by_loss_curve),
           KEY(first_found, "By detector: trials whose fault it was the first to show."),
           KEY(exact_trials, added(whole<int>(0)), "Trials beside these, free runs in exact arithmetic."),
           KEY(exact_found, added(whole<int>(0)), "Those that showed the fault at its step and place.")}};
}

template <>
Object<DetectionMiss> describe() {
  using S = DetectionMiss;
  return {"detection_miss", "",
          {KEY(cell),
           KEY(wrong,
               "missed, another step, another place, not named, wrong cause, false alarm or never acted"),
           KEY(planted), KEY(said), KEY(rerun)}};
}

template <>
Object<LeftOutMutant> describe() {
  using S = LeftOutMutant;
  return {"left_out_mutant", "", {KEY(mutant), KEY(reason, "Why it cannot act here.")}};
}

template <>
Object<Detection> describe() {
  using S = Detection;
  return {"detection",
          "Which planted faults were found and named, and what clean pairs raised; only for the question of "
          "detection.",
          {KEY(passed, "Every rate is enough."),
           KEY(loss_tolerance, finite(),
               "Relative difference beyond which loss curves count as different."),
           KEY(clean, at_least(0), "Pairs without a planted fault."),
           KEY(false_alarms, at_least(0)), KEY(rates), KEY(detectors),
           {"mutants", &S::rows},
           KEY(misses),
           KEY(left_out, added(usual<std::vector<LeftOutMutant>>()), "Mutants that cannot act here, which no rate counts.")},
          [](S& d) {
        for (const DetectionRow& row : d.rows) {
          if (row.first_found.size() != d.detectors.size())
            throw Unreadable("the row of " + row.mutant + " has not one count a detector");
        }
      }};
}

template <>
Object<DeclaredChange> describe() {
  using S = DeclaredChange;
  return {"declared_change", "Something that was declared otherwise when runs were first planned.",
          {KEY(what, "margin, metric, alpha, test, question or target"), KEY(was), KEY(is),
           KEY(runs, at_least(1), "That were planned so.")}};
}

template <>
Object<Declaration> describe() {
  using S = Declaration;
  return {"declaration",
          "Of the runs that outcomes are judged from: was what defines the judgement declared before they ran? "
          "Runs that are neither `before` nor `changed` have no record.",
          {KEY(runs, at_least(0)), KEY(before, at_least(0), "First planned under what is declared now."),
           KEY(changed, at_least(0), "First planned under something else."), KEY(changes)}};
}

template <>
Object<Summary> describe() {
  using S = Summary;
  return {"summary", "",
          {KEY(sentence, "The report's first line."),
           KEY(exit_code, at_least(0)),
           KEY(can_tell, "false: a power control was not divergent"),
           KEY(margin_refused, "true: the margin exceeds half of the effect that a power control shows"),
           KEY(margin_text), KEY(cells, at_least(0)), KEY(as_expected, at_least(0)),
           KEY(failed, at_least(0)), KEY(undecided, at_least(0)), KEY(power_controls, at_least(0)),
           KEY(power_controls_caught, at_least(0)), KEY(runs, at_least(0)), KEY(runs_reused, at_least(0)),
           KEY(sentences, added(usual<std::vector<std::string>>()),
               "What `sentence` says, one by one, the most important first."),
           KEY(uncontrolled, added(usual<std::vector<std::string>>()),
               "References of cells that were called equivalent though neither a power control nor another cell "
               "of theirs came out "
               "divergent.")}};
}

template <>
Object<Primary> describe() {
  using S = Primary;
  return {"", "",
          {KEY(metric), KEY(margin, exact()), KEY(target, exact()), KEY(alpha, exact()),
           KEY(test, added(usual<OutcomeTest>()), "What decides: t, or the sign test.")}};
}

template <>
Object<Results> describe() {
  using S = Results;
  return {"", "Everything that is known after a matrix has run.",
          {KEY(schema_version, constant(kResultsSchemaVersion)), KEY(name), KEY(config_file), KEY(question, question_name()),
           KEY(question_text), KEY(primary), KEY(steps, at_least(0)), KEY(seeds), KEY(summary),
           {"verdicts", &S::cells},
           KEY(references), KEY(certificate), KEY(provenance), KEY(rerun),
           KEY(growth, if_any(usual<std::vector<Growth>>())), KEY(timing, if_any(usual<Timing>())),
           KEY(declaration, if_any(usual<Declaration>())),
           KEY(detection, if_any(usual<Detection>())),
           {"laboratory", &S::suite, if_any(usual<SuiteResult>())}}};
}

}  // namespace lockstep::results_format

// What results.json says of a suite.

// The member's own spelling is its key.
#define KEY(member, ...) {#member, &S::member __VA_OPT__(, ) __VA_ARGS__}

namespace lockstep::results_format {

template <>
Object<SuiteCount> describe() {
  using S = SuiteCount;
  return {"laboratory_count", "Cases of one failure at one kind of place that ended alike.",
          {KEY(failure, "What was done to the subject."), KEY(place, "Where: a kind of operation, on a rank."),
           KEY(outcome), KEY(verdict), KEY(cases, at_least(1))}};
}

template <>
Object<TimelineStep> describe() {
  using S = TimelineStep;
  return {"timeline_step", "What one rank, process or thread did.",
          {{"actor", &S::process}, KEY(operation), KEY(mark, "What was done to it there; empty: nothing.")}};
}

template <>
Object<SuiteFinding> describe() {
  using S = SuiteFinding;
  return {"laboratory_finding", "A case that came out wrong, or undecided.",
          {KEY(trial, "Its name, as --only takes it."), KEY(failure), KEY(place), KEY(outcome), KEY(verdict),
           KEY(sentence), KEY(timeline, "In the order in which it happened; empty: there is none to show."),
           KEY(replay, "The command that runs this trial again.")}};
}

template <>
Object<TableColumn> describe() {
  using S = TableColumn;
  return {"table_column", "A column of a suite's table.",
          {KEY(head), KEY(unit, "Empty: none."), KEY(numbers, "They are aligned to the right.")}};
}

template <>
Object<TableRow> describe() {
  using S = TableRow;
  return {"table_row", "A row of a suite's table; rows of faults are shown first.",
          {KEY(cells, "One a column, as people read it."), KEY(verdict)}};
}

template <>
Object<SuiteTable> describe() {
  using S = SuiteTable;
  return {"laboratory_table", "What a suite measured or heard, row by row.",
          {KEY(title), KEY(why, "How to read it; may be empty."), KEY(columns), KEY(rows),
           KEY(folded, "One to look things up in: a terminal shows its faults alone.")},
          [](SuiteTable& table) {
            for (const TableRow& row : table.rows) {
              if (row.cells.size() != table.columns.size())
                throw Unreadable("a row of a table with other cells than its columns");
            }
          }};
}

template <>
Object<ChartAxis> describe() {
  using S = ChartAxis;
  return {"chart_axis", "An axis of a suite's chart.",
          {KEY(name), KEY(unit, "Empty: none."), KEY(log, "It is logarithmic.")}};
}

template <>
Object<ChartPoint> describe() {
  using S = ChartPoint;
  return {"chart_point", "", {KEY(x, finite()), KEY(y, finite())}};
}

template <>
Object<ChartSeries> describe() {
  using S = ChartSeries;
  return {"chart_series", "A line, or a row of dots.", {KEY(name), KEY(verdict), KEY(points)}};
}

template <>
Object<ChartPanel> describe() {
  using S = ChartPanel;
  return {"chart_panel", "Series that stand together.", {KEY(name), KEY(series)}};
}

template <>
Object<ChartMark> describe() {
  using S = ChartMark;
  return {"chart_mark", "A value of x that is marked.", {KEY(name), KEY(at, finite())}};
}

template <>
Object<SuiteChart> describe() {
  using S = SuiteChart;
  return {"laboratory_chart", "What a suite measured, drawn.",
          {KEY(title), KEY(why, "How to read it; may be empty."), KEY(x), KEY(y),
           KEY(by_row, "Each series is a row with a dot at every x; y says nothing. Else it is a line."), KEY(marks),
           KEY(panels, "All have the same axes.")}};
}

template <>
Object<SuiteResult> describe() {
  using S = SuiteResult;
  return {"laboratory",
          "Trials of a library or of a program under failures; only where the config names a suite.",
          {KEY(kind), KEY(subject), KEY(trials, at_least(0)),
           KEY(cases, at_least(0), "That the trials held: one trial may hold many."), KEY(faults, at_least(0)),
           KEY(undecided, at_least(0)), KEY(seconds, finite()), KEY(table), KEY(findings),
           KEY(findings_left_out, at_least(0), "Found and counted in the table, but not listed."), KEY(facts),
           KEY(notes, "What could not be seen."),
           KEY(tables, if_any(usual<std::vector<SuiteTable>>()), "Only where the suite gives any."),
           KEY(charts, if_any(usual<std::vector<SuiteChart>>()), "Only where the suite gives any.")}};
}

}  // namespace lockstep::results_format
