#pragma once
// Parses tokens into expressions. Operators from weakest to strongest: a if b else c, or, and, not, comparisons, + -,
// ~, * / // %, **, signs, postfixes and filters.
#include <algorithm>
#include <string_view>

#include "core/text/jinja/ast.h"
#include "core/text/jinja/lexer.h"

namespace hone::jinja {

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, Tree& tree) : tree_(tree), tokens_(std::move(tokens)) {}

 protected:
  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[std::min(at_++, tokens_.size() - 1)]; }
  bool sees(Token::Type type, std::string_view text, size_t ahead = 0) const {
    return peek(ahead).type == type && peek(ahead).text == text;
  }
  bool sees_symbol(std::string_view text) const { return sees(Token::Type::symbol, text); }
  bool sees_word(std::string_view text) const { return sees(Token::Type::name, text); }
  bool skip_symbol(std::string_view text) { return sees_symbol(text) && (++at_, true); }
  bool skip_word(std::string_view text) { return sees_word(text) && (++at_, true); }
  void expect_symbol(std::string_view text) { skip_symbol(text) || (expected(text), true); }
  const std::string* expect_name(std::string_view what);
  [[noreturn]] void expected(std::string_view what) const;

  // Parses "a, b" as a tuple; without a comma returns the expression itself. with_if: `x if y` is allowed without
  // brackets.
  const Expression* tuple(bool with_if = true);
  const Expression* expression(bool with_if = true);
  const Filter* filter(const Expression* input);  // after the '|'

  Tree& tree_;

 private:
  struct Nesting;
  using Operation = Value (*)(Heap&, const Value&, const Value&);
  const Expression* conditional();
  const Expression* disjunction();
  const Expression* conjunction();
  const Expression* negation();
  const Expression* comparison();
  const Expression* sum();
  const Expression* concatenation();
  const Expression* product();
  const Expression* exponent();
  const Expression* sign(bool with_filters = true);
  const Expression* primary();
  const Expression* postfixed(const Expression* of);
  const Expression* filtered(const Expression* of);
  const Expression* subscripted(const Expression* of);
  const Expression* test(const Expression* of);
  const Expression* bracketed();
  const Expression* mapping();
  const Expression* number();
  const Expression* call(const Expression* of);
  const Expression* logical(bool continue_if, const Expression* left, const Expression* right, int line);
  const Expression* binary(Operation operation, const Expression* left, const Expression* right, int line);
  CallArguments arguments();  // after the '('
  bool ends_tuple() const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace hone::jinja
