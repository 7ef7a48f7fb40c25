#include "harness/plan/matrix/read_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/files.h"
#include "harness/base/text.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/trainer_spec.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/read_source.h"

namespace lockstep {
namespace {

/// A compiled expression of the small language of --only; matrix.h says how it is written.
class Selection {
 public:
  /// Reports mistakes with their column in `text`, under `source`. An empty text selects everything.
  Selection(const std::string& text, const TrainerSpec& trainer, int source, Problems& problems);
  ~Selection();
  bool selects(const Cell& cell) const;

  struct Term;

 private:
  std::unique_ptr<Term> root_;
};

struct Selection::Term {
  enum class Kind { all, any, negation, equals, contains } kind = Kind::all;
  std::vector<Term> parts;          ///< of all, any, negation
  const RunField* field = nullptr;  ///< of equals and contains; null: the cell's name
  FieldValue value;                 ///< of equals on a field
  std::string text;                 ///< of contains, and of equals on the name

  bool holds(const Cell& cell) const {
    const auto part_holds = [&cell](const Term& part) { return part.holds(cell); };
    switch (kind) {
      case Kind::all:
        return std::all_of(parts.begin(), parts.end(), part_holds);
      case Kind::any:
        return std::any_of(parts.begin(), parts.end(), part_holds);
      case Kind::negation:
        return !parts.front().holds(cell);
      case Kind::equals:
        return field != nullptr ? equal(field->of(cell.config), value) : cell.name == text;
      case Kind::contains: {
        const std::string in = field != nullptr ? text_of(field->of(cell.config)) : cell.name;
        return in.find(text) != std::string::npos;
      }
    }
    return false;
  }
};

using Term = Selection::Term;

struct Token {
  enum class Kind { word, quoted, symbol, end } kind = Kind::end;
  std::string text;
  std::size_t at = 0;
};

/// Thrown at the first mistake: what follows it cannot be read.
struct Mistake {
  std::size_t at;
  std::string message;
  std::string suggestion;
};

Token next_token(std::string_view text, std::size_t& at) {
  constexpr std::string_view kSpaces = " \t\n\r";
  at = std::min(text.find_first_not_of(kSpaces, at), text.size());
  if (at == text.size()) return {Token::Kind::end, "", at};
  const std::size_t start = at;
  for (const std::string_view symbol : {"&&", "||", "==", "!=", "=", "!", "(", ")", "~"}) {
    if (text.substr(at).starts_with(symbol)) {
      at += symbol.size();
      return {Token::Kind::symbol, std::string(symbol), start};
    }
  }
  const char first = text[at];
  if (first == '"' || first == '\'') {
    const std::size_t end = text.find(first, at + 1);
    if (end == std::string_view::npos) throw Mistake{start, "a quotation mark is not closed", ""};
    at = end + 1;
    return {Token::Kind::quoted, std::string(text.substr(start + 1, end - start - 1)), start};
  }
  at = std::min(text.find_first_of(" \t\n\r&|=!()~\"'", at), text.size());
  if (at == start) throw Mistake{start, fmt::format("a single '{}'", first), std::string(2, first)};
  return {Token::Kind::word, std::string(text.substr(start, at - start)), start};
}

class ExpressionParser {
 public:
  ExpressionParser(std::string_view text, const TrainerSpec& trainer) : trainer_(trainer) {
    std::size_t at = 0;
    do tokens_.push_back(next_token(text, at));
    while (tokens_.back().kind != Token::Kind::end);
  }

  Term parse() {
    Term term = any_of();
    if (now().kind != Token::Kind::end) {
      throw Mistake{now().at, fmt::format("expected && or || before {}", in_quotes(now().text)), ""};
    }
    return term;
  }

 private:
  const Token& now() const { return tokens_[at_]; }
  bool take(std::string_view symbol) {
    if (now().kind != Token::Kind::symbol || now().text != symbol) return false;
    ++at_;
    return true;
  }
  Term any_of() {
    Term term;
    term.kind = Term::Kind::any;
    do term.parts.push_back(all_of());
    while (take("||"));
    return term;
  }
  Term all_of() {
    Term term;
    term.kind = Term::Kind::all;
    do term.parts.push_back(unary());
    while (take("&&"));
    return term;
  }
  Term unary() {
    constexpr int kDeepest = 200;
    if (++depth_ > kDeepest) throw Mistake{now().at, "terms nested more than 200 deep", ""};
    Term term;
    if (take("!")) {
      term.kind = Term::Kind::negation;
      term.parts.push_back(unary());
    } else if (take("(")) {
      term = any_of();
      if (!take(")")) throw Mistake{now().at, "expected ')'", ""};
    } else {
      term = comparison();
    }
    --depth_;
    return term;
  }
  Token word(std::string_view wanted) {
    const Token token = now();
    if (token.kind != Token::Kind::word && token.kind != Token::Kind::quoted) {
      throw Mistake{
          token.at,
          fmt::format("expected {}{}", wanted,
                      token.kind == Token::Kind::end ? " at the end" : ", not " + in_quotes(token.text)),
          ""};
    }
    ++at_;
    return token;
  }
  Term comparison() {
    const Token left = word("a key or a part of a name");
    const std::string symbol = now().kind == Token::Kind::symbol ? now().text : "";
    Term term;
    if (symbol != "==" && symbol != "=" && symbol != "!=" && symbol != "~") {
      term.kind = Term::Kind::contains;
      term.text = left.text;
      return term;
    }
    ++at_;
    term.field = left.text == "name" ? nullptr : field_of(left);
    const Token right = word("a value");
    term.text = right.text;
    if (symbol == "~") {
      term.kind = Term::Kind::contains;
      return term;
    }
    term.kind = Term::Kind::equals;
    if (term.field != nullptr) term.value = value_of(*term.field, right);
    if (symbol != "!=") return term;
    Term negation;
    negation.kind = Term::Kind::negation;
    negation.parts.push_back(std::move(term));
    return negation;
  }
  const RunField* field_of(const Token& token) const {
    if (const RunField* field = find_field(trainer_, token.text)) return field;
    std::vector<std::string_view> known{"name"};
    for (const RunField* field : fields_of(trainer_)) known.push_back(field->spec.key);
    throw Mistake{token.at, fmt::format("unknown key {}", in_quotes(token.text)),
                  std::string(nearest(token.text, known))};
  }
  FieldValue value_of(const RunField& field, const Token& token) const {
    YamlNode node;
    node.kind = YamlNode::Kind::scalar;
    node.text = token.text;
    RunConfig scratch(trainer_);
    Problems problems("");
    if (!read_field(field.spec, field.of(scratch), node, problems)) {
      const ConfigProblem problem = problems.list().front();
      throw Mistake{token.at, problem.message, problem.suggestion};
    }
    return load(field.of(scratch));
  }

  const TrainerSpec& trainer_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

Selection::Selection(const std::string& text, const TrainerSpec& trainer, int source, Problems& problems)
    : root_(std::make_unique<Term>()) {
  if (text.find_first_not_of(" \t\n\r") == std::string::npos) return;
  try {
    *root_ = ExpressionParser(text, trainer).parse();
  } catch (const Mistake& mistake) {
    problems.add({source, 1, static_cast<int>(mistake.at) + 1}, mistake.message, mistake.suggestion);
  }
}

Selection::~Selection() = default;

bool Selection::selects(const Cell& cell) const { return root_->holds(cell); }

void select_cells(const std::string& only, std::vector<Cell>& cells, bool sound, Problems& problems) {
  if (only.empty()) return;
  const auto is_named = [&only](const Cell& cell) { return cell.name == only; };
  if (std::any_of(cells.begin(), cells.end(), is_named)) {
    std::erase_if(cells, std::not_fn(is_named));
    return;
  }
  const TrainerSpec& trainer = cells.empty() ? *trainer_specs().front() : spec_of(cells.front().config);
  const Selection selection(only, trainer, problems.add_source("--only"), problems);
  if (sound) std::erase_if(cells, [&selection](const Cell& cell) { return !selection.selects(cell); });
}

// Steps that no run reaches are left out, so that a shortened trial needs no other edit.
void clip_forced_steps(Matrix& matrix, int64_t steps) {
  std::erase_if(matrix.forced_steps, [steps](int64_t step) { return step >= steps; });
}

void check_sections(const QuestionPlan& asks, const MatrixSource& source, const std::vector<Cell>& cells,
                    Problems& problems) {
  for (const QuestionPlan* each : question_plans()) {
    const auto check = each->name == asks.name ? asks.check : each->check_unasked;
    if (check != nullptr) check(source, cells, problems);
  }
}

}  // namespace

Matrix parse_matrix(const std::string& text, const std::string& file_name, const Overrides& overrides) {
  Problems problems(file_name);
  MatrixSource source = read_source(text, file_name, overrides, problems);
  std::vector<Cell> cells;
  const QuestionPlan& asks = asked_by(source.matrix);
  if (source.sound) {
    cells = asks.draws_cells() ? asks.cells(source, problems) : expand_cells(source, problems);
    check_sections(asks, source, cells, problems);
  }
  select_cells(overrides.only, cells, source.sound, problems);
  if (source.sound) check_matrix(source, cells, problems);
  problems.throw_if_any();
  Matrix matrix = std::move(source.matrix);
  clip_forced_steps(matrix, source.base.steps);
  // Trials differ in length: there the planner clips each run's own.
  if (!asks.draws_cells()) {
    for (const Cell& cell : cells) clip_forced_steps(matrix, cell.config.steps);
  }
  if (!overrides.only.empty()) {
    // Running a cell again is no reason to time all layouts again.
    matrix.timing.layouts.clear();
  }
  if (asks.trains) keep_drift_snapshots(cells);
  matrix.cells = std::move(cells);
  return matrix;
}

Matrix read_matrix(const std::string& file, const Overrides& overrides) {
  return parse_matrix(read_config_text(file), file, overrides);
}

}  // namespace lockstep
