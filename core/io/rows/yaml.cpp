#include "core/io/rows/yaml.h"

#include <algorithm>
#include <optional>

#include "core/base/check.h"

namespace hone {
namespace {

constexpr int kMaxDepth = 64;

// Reads forward. A node begins at the cursor; its column decides which lines below belong to it.
class YamlParser {
 public:
  YamlParser(std::string_view text, std::string_view name, int64_t line) : text_(text), name_(name), line_(line) {}

  YamlNode document() {
    YamlNode out = block(0);
    skip_blank();
    check(done(), "the line is indented less than its list or map");
    return out;
  }

 private:
  struct Depth {
    explicit Depth(YamlParser& owner) : parser(owner) {
      ++parser.depth_;
      parser.check(parser.depth_ <= kMaxDepth, "more than 64 levels");
    }
    ~Depth() { --parser.depth_; }
    YamlParser& parser;
  };

  template <class... Words>
  void check(bool fact, const Words&... words) const {
    HONE_CHECK(fact, name_, ":", line_, ": ", words...);
  }

  bool done() const { return at_ >= text_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\n'; }
  int64_t column() const { return static_cast<int64_t>(at_ - line_begin_); }
  void advance() {
    if (text_[at_++] != '\n') return;
    ++line_;
    line_begin_ = at_;
  }
  static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }
  static bool ends_word(char c) { return is_space(c) || c == '\n'; }
  bool at_comment() const { return peek() == '#' && !done() && (at_ == 0 || ends_word(text_[at_ - 1])); }
  bool at_item() const { return !done() && peek() == '-' && ends_word(peek(1)); }

  void skip_spaces() {
    while (!done() && is_space(peek())) advance();
  }
  // Spaces and a comment up to the end of the line.
  void skip_rest_of_line() {
    skip_spaces();
    if (at_comment())
      while (!done() && peek() != '\n') advance();
  }
  // Blank lines, comments and indentation.
  void skip_blank() {
    for (skip_rest_of_line(); !done() && peek() == '\n'; skip_rest_of_line()) advance();
    const std::string_view indent = text_.substr(line_begin_, at_ - line_begin_);
    check(done() || indent.find_first_not_of(" \t") != indent.npos || indent.find('\t') == indent.npos,
          "a tab indents the line; use spaces");
  }
  void end_line(const char* what) {
    skip_rest_of_line();
    check(done() || peek() == '\n', what, " is followed by '", rest_of_line(), "' on its line");
  }
  std::string rest_of_line() const {
    std::string_view rest = text_.substr(at_, text_.find('\n', at_) - at_);
    while (!rest.empty() && is_space(rest.back())) rest.remove_suffix(1);
    return std::string(rest);
  }
  YamlNode node(YamlKind kind) const { return {.kind = kind, .line = line_, .text = {}, .keys = {}, .items = {}}; }

  // A node of the lines from `least` columns on.
  YamlNode block(int64_t least) {
    const Depth depth(*this);
    skip_blank();
    if (done() || column() < least) return node(YamlKind::null);
    if (at_item()) return list(column());
    if (at_key()) return map(column());
    return value(least - 1);
  }

  YamlNode list(int64_t own) {
    YamlNode out = node(YamlKind::list);
    for (; !done() && column() == own && at_item(); skip_blank()) {
      advance();
      skip_spaces();
      out.items.push_back(block(own + 1));
      skip_blank_after(own);
    }
    return out;
  }

  YamlNode map(int64_t own) {
    YamlNode out = node(YamlKind::map);
    for (; !done() && column() == own && !at_item(); skip_blank()) {
      check(at_key(), "'", rest_of_line(), "' stands where a key is expected (\"key: value\")");
      add_key(out, key());
      skip_rest_of_line();
      if (done() || peek() == '\n')
        out.items.push_back(value_below(own));
      else
        out.items.push_back(value(own));
      skip_blank_after(own);
    }
    return out;
  }

  // The value of a key whose line has none. A list may stand in the key's own column.
  YamlNode value_below(int64_t own) {
    const int64_t line = line_;
    skip_blank();
    if (!done() && column() == own && at_item()) return list(own);
    YamlNode out = block(own + 1);
    if (out.kind == YamlKind::null) out.line = line;
    return out;
  }
  void skip_blank_after(int64_t own) {
    skip_blank();
    check(done() || column() <= own, "the line is indented more than the lines that it belongs to");
  }

  void add_key(YamlNode& map, std::string key) const {
    check(std::ranges::find(map.keys, key) == map.keys.end(), "the key '", key, "' occurs twice");
    map.keys.push_back(std::move(key));
  }

  // The end of the key at the cursor: its colon.
  std::optional<size_t> colon() const {
    size_t end = at_;
    if (peek() == '"' || peek() == '\'') {
      for (++end; end < text_.size() && text_[end] != text_[at_] && text_[end] != '\n';) ++end;
      for (++end; end < text_.size() && is_space(text_[end]);) ++end;
      if (end >= text_.size() || text_[end] != ':') return std::nullopt;
      return end;
    }
    if (peek() == '[' || peek() == '{') return std::nullopt;
    for (; end < text_.size() && text_[end] != '\n'; ++end) {
      if (text_[end] == '#' && end > at_ && is_space(text_[end - 1])) return std::nullopt;
      if (text_[end] == ':' && (end + 1 >= text_.size() || ends_word(text_[end + 1]))) return end;
    }
    return std::nullopt;
  }
  bool at_key() const { return colon().has_value(); }
  std::string key() {
    const size_t end = *colon();
    std::string out = peek() == '"' || peek() == '\'' ? quoted() : trimmed(text_.substr(at_, end - at_));
    while (at_ <= end) advance();
    return out;
  }
  static std::string trimmed(std::string_view text) {
    while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
    return std::string(text);
  }

  // A value that begins on this line and does not reach below a line of `parent` columns.
  YamlNode value(int64_t parent) {
    if (peek() == '[' || peek() == '{') {
      YamlNode out = flow();
      end_line("a list or map in brackets");
      return out;
    }
    YamlNode out = node(YamlKind::text);
    if (peek() == '"' || peek() == '\'') {
      out.text = quoted();
      end_line("a quoted text");
    } else if (peek() == '|' || peek() == '>') {
      while (!done() && peek() != '\n') advance();
      out.text = lines_below(parent, true);
    } else {
      out.text = plain(false);
      end_line("a text");
      out.text += lines_below(parent, false);
      if (out.text == "~" || out.text == "null") out = {.line = out.line, .text = {}, .keys = {}, .items = {}};
    }
    return out;
  }

  // The lines of a text that goes on, joined by spaces. In a block ("|", ">") they may look like keys.
  std::string lines_below(int64_t parent, bool is_block) {
    std::string out;
    for (;;) {
      size_t begin = at_;
      while (begin < text_.size() && ends_word(text_[begin])) ++begin;
      const size_t line = text_.rfind('\n', begin);
      const auto indent = static_cast<int64_t>(begin - (line == text_.npos ? 0 : line + 1));
      if (begin >= text_.size() || indent <= parent || (text_[begin] == '#' && !is_block)) return out;
      while (at_ < begin) advance();
      check(is_block || !at_key(), "'", rest_of_line(), "' belongs to the text above; a text has no keys");
      out += " " + rest_of_line();
      while (!done() && peek() != '\n') advance();
    }
  }

  std::string quoted() {
    const char quote = peek();
    std::string out;
    for (advance();; advance()) {
      check(!done() && peek() != '\n', "the quote has no end on its line");
      if (peek() == quote && (quote == '"' || peek(1) != '\'')) break;
      if (peek() == '\'' && quote == '\'') advance();
      if (peek() != '\\' || quote == '\'') {
        out += peek();
        continue;
      }
      advance();
      check(peek() == '"' || peek() == '\\' || peek() == '/', "the escape '\\", rest_of_line().substr(0, 1),
            "' is not one of \\\" \\\\ \\/");
      out += peek();
    }
    advance();
    return out;
  }

  std::string plain(bool in_flow) {
    const size_t begin = at_;
    for (; !done() && peek() != '\n' && !at_comment(); advance()) {
      if (in_flow && std::string_view(",[]{}").find(peek()) != std::string_view::npos) break;
      const bool is_colon = peek() == ':' && (ends_word(peek(1)) || (in_flow && peek(1) == ','));
      if (in_flow && is_colon) break;
      check(!is_colon, "'", rest_of_line(), "' has a colon; put the text in quotes");
    }
    return trimmed(text_.substr(begin, at_ - begin));
  }

  void skip_flow_space() {
    for (skip_rest_of_line(); !done() && peek() == '\n'; skip_rest_of_line()) advance();
  }

  // "[a, b]" or "{a: b}", also over several lines.
  YamlNode flow() {
    const Depth depth(*this);
    const bool is_map = peek() == '{';
    const char close = is_map ? '}' : ']';
    YamlNode out = node(is_map ? YamlKind::map : YamlKind::list);
    advance();
    for (skip_flow_space(); done() || peek() != close; skip_flow_space()) {
      check(!done(), "the bracket of line ", out.line, " has no end");
      if (is_map) {
        add_key(out, flow_text());
        skip_flow_space();
        check(!done() && peek() == ':', "a key in braces needs a colon and a value");
        advance();
        skip_flow_space();
      }
      out.items.push_back(flow_value());
      skip_flow_space();
      check(!done(), "the bracket of line ", out.line, " has no end");
      check(peek() == ',' || peek() == close, "the bracket of line ", out.line, " needs ',' or '", close,
            "' here, not '", rest_of_line(), "'");
      if (peek() == ',') advance();
    }
    advance();
    return out;
  }
  YamlNode flow_value() {
    if (!done() && (peek() == '[' || peek() == '{')) return flow();
    YamlNode out = node(YamlKind::text);
    out.text = flow_text();
    return out;
  }
  std::string flow_text() {
    if (!done() && (peek() == '"' || peek() == '\'')) return quoted();
    std::string out = plain(true);
    check(!out.empty(), "a list or map in brackets has an empty entry");
    return out;
  }

  std::string_view text_, name_;
  size_t at_ = 0, line_begin_ = 0;
  int64_t line_;
  int depth_ = 0;
};

}  // namespace

const YamlNode* YamlNode::find(std::string_view key) const {
  for (size_t i = 0; kind == YamlKind::map && i < keys.size(); ++i)
    if (keys[i] == key) return &items[i];
  return nullptr;
}

YamlNode parse_yaml(std::string_view text, std::string_view name, int64_t first_line) {
  return YamlParser(text, name, first_line).document();
}

}  // namespace hone
