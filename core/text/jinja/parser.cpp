#include "core/text/jinja/parser.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/text/jinja/expression_parser.h"

namespace hone::jinja {
namespace {

using Type = Token::Type;

constexpr int kMaxBlocks = 100;

class Parser : ExpressionParser {
 public:
  Parser(std::string_view source, Tree& tree) : ExpressionParser(tokenize(source), tree) {}

  void run() { tree_.body = block({}, 0); }

 private:
  using Ends = std::vector<std::string_view>;

  // Parses statements up to a tag whose word is in `ends`, or to the end of the template. The word and the rest of that
  // tag stay unread.
  Block block(const Ends& ends, int opened) {
    if (++blocks_ > kMaxBlocks) expected("at most 100 blocks inside each other");
    Block out;
    while (peek().type != Type::end) {
      const Token& token = take();
      if (token.type == Type::text) {
        auto* node = tree_.make<Text>(token.line);
        node->text = token.text;
        out.push_back(node);
      } else if (token.type == Type::output_begin) {
        auto* node = tree_.make<Print>(token.line);
        node->value = tuple();
        expect(Type::output_end, "}}");
        out.push_back(node);
      } else {
        if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return sees_word(end); })) {
          --blocks_;
          return out;
        }
        out.push_back(statement());
      }
    }
    if (!ends.empty()) fail("template line ", opened, ": this block has no {% ", ends.back(), " %}");
    --blocks_;
    return out;
  }

  void expect(Type type, std::string_view what) {
    if (peek().type != type) expected(what);
    take();
  }

  // Parses the body after an opening tag, and the closing tag.
  Block body(std::string_view end, int line) {
    expect(Type::block_end, "%}");
    Block out = block({end}, line);
    take();
    expect(Type::block_end, "%}");
    return out;
  }

  // The same for a body that a break of an outer loop cannot leave.
  Block closed_body(std::string_view end, int line) {
    const int loops = std::exchange(loops_, 0);
    Block out = body(end, line);
    loops_ = loops;
    return out;
  }

  const Statement* statement() {
    static const std::map<std::string_view, const Statement* (Parser::*)(int)> statements = {
        {"if", &Parser::if_statement},       {"for", &Parser::for_statement},
        {"set", &Parser::set_statement},     {"macro", &Parser::macro},
        {"generation", &Parser::generation}, {"with", &Parser::with},
        {"filter", &Parser::filter_block},   {"break", &Parser::stop},
        {"continue", &Parser::again},
    };
    const auto known = statements.find(peek().type == Type::name ? std::string_view(peek().text) : std::string_view());
    if (known == statements.end()) expected("if, for, set, macro, generation, with, filter, break or continue");
    const int line = take().line;
    return (this->*known->second)(line);
  }

  const Statement* if_statement(int line) {
    auto* node = tree_.make<If>(line);
    while (true) {
      const Expression* test = tuple(false);
      expect(Type::block_end, "%}");
      node->branches.emplace_back(test, block({"elif", "else", "endif"}, line));
      if (skip_word("elif")) continue;
      if (skip_word("else")) {
        node->otherwise = body("endif", line);
      } else {
        take();
        expect(Type::block_end, "%}");
      }
      return node;
    }
  }

  const Statement* for_statement(int line) {
    auto* node = tree_.make<For>(line);
    node->target = target(false);
    if (!skip_word("in")) expected("in");
    node->iterable = tuple(false);
    if (skip_word("if")) node->condition = expression();
    node->recursive = skip_word("recursive");
    expect(Type::block_end, "%}");
    ++loops_;
    node->body = block({"else", "endfor"}, line);
    --loops_;
    if (skip_word("else")) {
      node->otherwise = body("endfor", line);
    } else {
      take();
      expect(Type::block_end, "%}");
    }
    return node;
  }

  Target target(bool with_member) {
    Target out;
    const bool bracket = skip_symbol("(");
    do {
      if (!out.names.empty()) {
        out.unpack = true;
        if (peek().type != Type::name) break;
      }
      out.names.push_back(expect_name("a name to assign to"));
    } while (skip_symbol(","));
    if (bracket) expect_symbol(")");
    if (with_member && !out.unpack && skip_symbol(".")) out.member = expect_name("a name after '.'");
    return out;
  }

  const Statement* set_statement(int line) {
    const Target to = target(true);
    if (skip_symbol("=")) {
      auto* node = tree_.make<Set>(line);
      node->target = to;
      node->value = tuple();
      expect(Type::block_end, "%}");
      return node;
    }
    auto* node = tree_.make<SetBlock>(line);
    node->target = to;
    while (skip_symbol("|")) node->filters.push_back(filter(nullptr));
    node->body = closed_body("endset", line);
    return node;
  }

  const Statement* filter_block(int line) {
    auto* node = tree_.make<FilterBlock>(line);
    do {
      node->filters.push_back(filter(nullptr));
    } while (skip_symbol("|"));
    node->body = closed_body("endfilter", line);
    return node;
  }

  const Statement* with(int line) {
    auto* node = tree_.make<With>(line);
    while (peek().type != Type::block_end) {
      const Target to = target(false);
      expect_symbol("=");
      node->values.emplace_back(to, expression());
      if (!skip_symbol(",")) break;
    }
    node->body = body("endwith", line);
    return node;
  }

  const Statement* macro(int line) {
    auto* node = tree_.make<Macro>(line);
    node->name = expect_name("the macro's name");
    expect_symbol("(");
    while (!sees_symbol(")")) {
      const std::string* name = expect_name("a parameter");
      node->parameters.emplace_back(name, skip_symbol("=") ? expression() : nullptr);
      if (!skip_symbol(",")) break;
    }
    expect_symbol(")");
    node->body = closed_body("endmacro", line);
    return node;
  }

  const Statement* generation(int line) {
    auto* node = tree_.make<Generation>(line);
    node->body = closed_body("endgeneration", line);
    return node;
  }

  const Statement* stop(int line) { return jump(line, Flow::stop); }
  const Statement* again(int line) { return jump(line, Flow::again); }
  const Statement* jump(int line, Flow flow) {
    if (loops_ == 0) fail("template line ", line, ": break and continue are allowed only inside a for");
    auto* node = tree_.make<Jump>(line);
    node->flow = flow;
    expect(Type::block_end, "%}");
    return node;
  }

  int blocks_ = 0, loops_ = 0;
};

}  // namespace

void parse(std::string_view source, Tree& tree) { Parser(source, tree).run(); }

}  // namespace hone::jinja
