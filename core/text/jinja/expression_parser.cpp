#include "core/text/jinja/expression_parser.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/text/jinja/operators.h"

namespace hone::jinja {

using Type = Token::Type;

static constexpr int kMaxNesting = 100;

struct ExpressionParser::Nesting {
  explicit Nesting(ExpressionParser& p) : parser(p) {
    if (++parser.depth_ > kMaxNesting)
      fail("template line ", parser.peek().line, ": expressions nested more than ", kMaxNesting, " levels deep");
  }
  ~Nesting() { --parser.depth_; }
  ExpressionParser& parser;
};

void ExpressionParser::expected(std::string_view what) const {
  static constexpr std::string_view names[] = {
      "text", "{{", "}}", "{%", "%}", "", "a string", "", "", "", "the end of the template"};
  const Token& token = peek();
  const std::string_view name = names[static_cast<size_t>(token.type)];
  fail("template line ", token.line, ": expected ", what, ", found ",
       name.empty() ? "'" + token.text + "'" : std::string(name));
}

const std::string* ExpressionParser::expect_name(std::string_view what) {
  if (peek().type != Type::name) expected(what);
  return tree_.text(take().text);
}

bool ExpressionParser::ends_tuple() const {
  const Type type = peek().type;
  return type == Type::output_end || type == Type::block_end || type == Type::end || sees_symbol(")") ||
         sees_symbol("=") || sees_word("recursive");
}

const Expression* ExpressionParser::tuple(bool with_if) {
  const int line = peek().line;
  Expressions items = {expression(with_if)};
  if (!sees_symbol(",")) return items[0];
  while (skip_symbol(",") && !ends_tuple()) items.push_back(expression(with_if));
  auto* node = tree_.make<Sequence>(line);
  node->items = std::move(items);
  node->tuple = true;
  return node;
}

const Expression* ExpressionParser::expression(bool with_if) {
  const Nesting nesting(*this);
  return with_if ? conditional() : disjunction();
}

const Expression* ExpressionParser::conditional() {
  const int line = peek().line;
  const Expression* value = disjunction();
  while (skip_word("if")) {
    auto* node = tree_.make<Conditional>(line);
    node->yes = value;
    node->test = disjunction();
    node->no = skip_word("else") ? expression() : nullptr;
    value = node;
  }
  return value;
}

const Expression* ExpressionParser::logical(bool continue_if, const Expression* left, const Expression* right,
                                            int line) {
  auto* node = tree_.make<Logical>(line);
  node->continue_if = continue_if;
  node->left = left;
  node->right = right;
  return node;
}

const Expression* ExpressionParser::disjunction() {
  const Expression* left = conjunction();
  for (int line = peek().line; skip_word("or"); line = peek().line) left = logical(false, left, conjunction(), line);
  return left;
}

const Expression* ExpressionParser::conjunction() {
  const Expression* left = negation();
  for (int line = peek().line; skip_word("and"); line = peek().line) left = logical(true, left, negation(), line);
  return left;
}

static Value inverted(Heap&, const Value& v) { return Value(!truth(v)); }

const Expression* ExpressionParser::negation() {
  const int line = peek().line;
  if (!skip_word("not")) return comparison();
  const Nesting nesting(*this);
  auto* node = tree_.make<Unary>(line);
  node->operation = inverted;
  node->operand = negation();
  return node;
}

const Expression* ExpressionParser::comparison() {
  using Pair = std::pair<std::string_view, Comparison::Operation>;
  static constexpr std::array<Pair, 6> operations = {{
      {"==", equal},
      {"!=", [](Heap& h, const Value& a, const Value& b) { return !equal(h, a, b); }},
      {"<", less},
      {">", [](Heap& h, const Value& a, const Value& b) { return less(h, b, a); }},
      {"<=", [](Heap& h, const Value& a, const Value& b) { return less(h, a, b) || equal(h, a, b); }},
      {">=", [](Heap& h, const Value& a, const Value& b) { return less(h, b, a) || equal(h, a, b); }},
  }};
  const int line = peek().line;
  const Expression* first = sum();
  std::vector<std::pair<Comparison::Operation, const Expression*>> rest;
  while (true) {
    const auto* symbol =
        std::find_if(operations.begin(), operations.end(), [&](const Pair& p) { return sees_symbol(p.first); });
    if (symbol != operations.end()) {
      take();
      rest.emplace_back(symbol->second, sum());
    } else if (skip_word("in")) {
      rest.emplace_back([](Heap& h, const Value& a, const Value& b) { return contains(h, b, a); }, sum());
    } else if (sees_word("not") && sees(Type::name, "in", 1)) {
      take(), take();
      rest.emplace_back([](Heap& h, const Value& a, const Value& b) { return !contains(h, b, a); }, sum());
    } else {
      break;
    }
  }
  if (rest.empty()) return first;
  auto* node = tree_.make<Comparison>(line);
  node->first = first;
  node->rest = std::move(rest);
  return node;
}

const Expression* ExpressionParser::binary(Operation operation, const Expression* left, const Expression* right,
                                           int line) {
  auto* node = tree_.make<Binary>(line);
  node->operation = operation;
  node->left = left;
  node->right = right;
  return node;
}

const Expression* ExpressionParser::sum() {
  const Expression* left = concatenation();
  while (sees_symbol("+") || sees_symbol("-")) {
    const Token& sign = take();
    left = binary(sign.text == "+" ? add : subtract, left, concatenation(), sign.line);
  }
  return left;
}

const Expression* ExpressionParser::concatenation() {
  const int line = peek().line;
  Expressions parts = {product()};
  while (skip_symbol("~")) parts.push_back(product());
  if (parts.size() == 1) return parts[0];
  auto* node = tree_.make<Concat>(line);
  node->parts = std::move(parts);
  return node;
}

const Expression* ExpressionParser::product() {
  using Pair = std::pair<std::string_view, Operation>;
  static constexpr std::array<Pair, 4> operations = {
      {{"*", multiply}, {"/", divide}, {"//", floor_divide}, {"%", modulo}}};
  const Expression* left = exponent();
  while (true) {
    const auto* symbol =
        std::find_if(operations.begin(), operations.end(), [&](const Pair& p) { return sees_symbol(p.first); });
    if (symbol == operations.end()) return left;
    const int line = take().line;
    left = binary(symbol->second, left, exponent(), line);
  }
}

const Expression* ExpressionParser::exponent() {
  const Expression* left = sign();
  for (int line = peek().line; skip_symbol("**"); line = peek().line) left = binary(power, left, sign(), line);
  return left;
}

const Expression* ExpressionParser::sign(bool with_filters) {
  const int line = peek().line;
  const Expression* value = nullptr;
  if (skip_symbol("-")) {
    const Nesting nesting(*this);
    auto* node = tree_.make<Unary>(line);
    node->operation = negate;
    node->operand = sign(false);
    value = node;
  } else if (skip_symbol("+")) {
    const Nesting nesting(*this);
    value = sign(false);
  } else {
    value = primary();
  }
  value = postfixed(value);
  return with_filters ? filtered(value) : value;
}

const Expression* ExpressionParser::number() {
  const Token& token = take();
  auto* node = tree_.make<Literal>(token.line);
  const char *first = token.text.data(), *last = first + token.text.size();
  std::from_chars_result end{};
  if (token.type == Type::real) {
    double value = 0;
    end = std::from_chars(first, last, value);
    node->value = Value(value);
  } else {
    const char kind = token.text.size() > 2 ? static_cast<char>(token.text[1] | 32) : '0';
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    int64_t value = 0;
    end = std::from_chars(base == 10 ? first : first + 2, last, value, base);
    node->value = Value(value);
  }
  if (end.ec != std::errc() || end.ptr != last)
    fail("template line ", token.line, ": '", token.text, "' is no number of 63 bits");
  return node;
}

const Expression* ExpressionParser::primary() {
  const Token& token = peek();
  if (token.type == Type::integer || token.type == Type::real) return number();
  if (token.type == Type::string) {
    std::string text;
    while (peek().type == Type::string) text += take().text;
    auto* node = tree_.make<Literal>(token.line);
    node->value = Value(tree_.text(std::move(text)));
    return node;
  }
  if (token.type == Type::symbol && (token.text == "(" || token.text == "[")) return bracketed();
  if (token.type == Type::symbol && token.text == "{") return mapping();
  if (token.type != Type::name) expected("an expression");
  take();
  const bool yes = token.text == "true" || token.text == "True", no = token.text == "false" || token.text == "False";
  if (yes || no || token.text == "none" || token.text == "None") {
    auto* node = tree_.make<Literal>(token.line);
    node->value = yes || no ? Value(yes) : Value::none();
    return node;
  }
  auto* node = tree_.make<Name>(token.line);
  node->name = tree_.text(token.text);
  return node;
}

const Expression* ExpressionParser::bracketed() {
  const int line = peek().line;
  if (take().text == "(") {
    const Expression* inside = nullptr;
    if (sees_symbol(")")) {
      auto* empty = tree_.make<Sequence>(line);
      empty->tuple = true;
      inside = empty;
    } else {
      inside = tuple();
    }
    expect_symbol(")");
    return inside;
  }
  auto* node = tree_.make<Sequence>(line);
  while (!sees_symbol("]")) {
    node->items.push_back(expression());
    if (!skip_symbol(",")) break;
  }
  expect_symbol("]");
  return node;
}

const Expression* ExpressionParser::mapping() {
  auto* node = tree_.make<Mapping>(take().line);
  while (!sees_symbol("}")) {
    const Expression* key = expression();
    expect_symbol(":");
    node->entries.emplace_back(key, expression());
    if (!skip_symbol(",")) break;
  }
  expect_symbol("}");
  return node;
}

const Expression* ExpressionParser::postfixed(const Expression* of) {
  while (true) {
    if (sees_symbol("[")) {
      of = subscripted(of);
    } else if (sees_symbol("(")) {
      of = call(of);
    } else if (skip_symbol(".")) {
      if (peek().type == Type::integer) {
        auto* node = tree_.make<Subscript>(peek().line);
        node->container = of;
        node->key = number();
        of = node;
      } else {
        auto* node = tree_.make<Attribute>(peek().line);
        node->container = of;
        node->name = expect_name("a name after '.'");
        of = node;
      }
    } else {
      return of;
    }
  }
}

const Expression* ExpressionParser::subscripted(const Expression* of) {
  const int line = take().line;
  const auto part = [&]() -> const Expression* {
    return sees_symbol(":") || sees_symbol("]") ? nullptr : expression();
  };
  const Expression* first = part();
  if (!sees_symbol(":")) {
    if (!first) expected("a key");
    expect_symbol("]");
    auto* node = tree_.make<Subscript>(line);
    node->container = of;
    node->key = first;
    return node;
  }
  auto* node = tree_.make<Slice>(line);
  take();
  node->container = of;
  node->start = first;
  node->stop = part();
  node->step = skip_symbol(":") ? part() : nullptr;
  expect_symbol("]");
  return node;
}

const Expression* ExpressionParser::call(const Expression* of) {
  auto* node = tree_.make<Call>(take().line);
  node->callee = of;
  node->arguments = arguments();
  return node;
}

CallArguments ExpressionParser::arguments() {
  CallArguments out;
  while (!sees_symbol(")")) {
    if (sees_symbol("*") || sees_symbol("**")) expected("an argument (* and ** are not supported)");
    if (peek().type == Type::name && sees(Type::symbol, "=", 1)) {
      const std::string* name = expect_name("a name");
      take();
      out.named.emplace_back(name, expression());
    } else if (!out.named.empty()) {
      expected("name=value after a named argument");
    } else {
      out.positional.push_back(expression());
    }
    if (!skip_symbol(",")) break;
  }
  expect_symbol(")");
  return out;
}

const Filter* ExpressionParser::filter(const Expression* input) {
  auto* node = tree_.make<Filter>(peek().line);
  node->input = input;
  node->name = expect_name("a filter's name");
  if (skip_symbol("(")) node->arguments = arguments();
  return node;
}

const Expression* ExpressionParser::test(const Expression* of) {
  const int line = peek().line;
  const bool negated = skip_word("not");
  auto* node = tree_.make<Test>(line);
  node->input = of;
  node->name = expect_name("a test's name");
  const Type next = peek().type;
  const bool argument = next == Type::name || next == Type::string || next == Type::integer || next == Type::real ||
                        sees_symbol("[") || sees_symbol("{");
  if (skip_symbol("(")) {
    node->arguments = arguments();
  } else if (argument && !sees_word("else") && !sees_word("or") && !sees_word("and") && !sees_word("if") &&
             !sees_word("is")) {
    node->arguments.positional.push_back(postfixed(primary()));
  }
  if (!negated) return node;
  auto* inverse = tree_.make<Unary>(line);
  inverse->operation = inverted;
  inverse->operand = node;
  return inverse;
}

const Expression* ExpressionParser::filtered(const Expression* of) {
  while (true) {
    if (skip_symbol("|"))
      of = filter(of);
    else if (skip_word("is"))
      of = test(of);
    else if (sees_symbol("("))
      of = call(of);
    else
      return of;
  }
}

}  // namespace hone::jinja
