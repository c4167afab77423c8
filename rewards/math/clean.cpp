// Cleans LaTeX for the parser: clean() of expr.h.
#include <algorithm>
#include <array>
#include <utility>

#include "rewards/answers/text.h"
#include "rewards/math/expr.h"

namespace hone::math {

namespace {

struct Spelling {
  std::string_view from, to;
};

// Commands by name. Commands that are not listed stay unchanged.
constexpr Spelling commands[] = {
    {"left", ""},
    {"right", ""},
    {"middle", ""},
    {"big", ""},
    {"Big", ""},
    {"bigg", ""},
    {"Bigg", ""},
    {"bigl", ""},
    {"bigr", ""},
    {"Bigl", ""},
    {"Bigr", ""},
    {"displaystyle", ""},
    {"limits", ""},
    {"quad", " "},
    {"qquad", " "},
    {"dfrac", "\\frac"},
    {"tfrac", "\\frac"},
    {"cfrac", "\\frac"},
    {"leq", "\\le"},
    {"leqslant", "\\le"},
    {"geq", "\\ge"},
    {"geqslant", "\\ge"},
    {"lt", "<"},
    {"gt", ">"},
    {"times", "*"},
    {"cdot", "*"},
    {"ast", "*"},
    {"div", "/"},
    {"colon", ":"},
    {"mid", "|"},
    {"vert", "|"},
    {"lvert", "|"},
    {"rvert", "|"},
    {"lbrace", "\\{"},
    {"rbrace", "\\}"},
    {"lbrack", "["},
    {"rbrack", "]"},
    {"degree", "\\degree "},
    {"mbox", "\\text"},
    {"textnormal", "\\text"},
    {"textrm", "\\text"},
    {"textbf", "\\text"},
    {"textit", "\\text"},
    {"mathrm", "\\text"},
    {"mathbf", "\\text"},
    {"operatorname", "\\text"},
    {"varnothing", "\\emptyset"},
    {"infin", "\\infty"},
    {"to", "\\rightarrow"},
    {"ne", "\\neq"},
    {"dots", "..."},
    {"ldots", "..."},
    {"cdots", "..."},
    {"hfill", ""},
    {"hline", ""},
    {"dbinom", "\\binom"},
    {"tbinom", "\\binom"},
    {"nobreak", ""},
    {"space", " "},
    {"thinspace", " "},
    {"phantom", "\\phantom"},
    {"pounds", "\\sterling "},
    {"texteuro", "\\euro "},
};

constexpr Spelling unicode[] = {
    {"−", "-"},
    {"–", "-"},
    {"×", "*"},
    {"·", "*"},
    {"⋅", "*"},
    {"÷", "/"},
    {"π", "\\pi "},
    {"√", "\\sqrt "},
    {"≤", "\\le "},
    {"≥", "\\ge "},
    {"≠", "\\neq "},
    {"≈", "\\approx "},
    {"≡", "\\equiv "},
    {"∞", "\\infty "},
    {"°", "\\degree "},
    {"²", "^2"},
    {"³", "^3"},
    {"½", "\\frac{1}{2}"},
    {"¼", "\\frac{1}{4}"},
    {"¾", "\\frac{3}{4}"},
    {"∪", "\\cup "},
    {"∩", "\\cap "},
    {"∈", "\\in "},
    {"±", "\\pm "},
    {"€", "\\euro "},
    {"£", "\\sterling "},
    {"¥", "\\yen "},
    {"￥", "\\yen "},
    {"₹", "\\rupee "},
    {"₩", "\\won "},
    {"₽", "\\ruble "},
    {"¢", "\\text{ cents}"},
    {"∅", "\\emptyset "},
    {"\u00a0", " "},
    {"\u202f", " "},
    {"\u2009", " "},
    {"θ", "\\theta "},
    {"⌊", "\\lfloor "},
    {"⌋", "\\rfloor "},
    {"⌈", "\\lceil "},
    {"⌉", "\\rceil "},
};

// Commands for which a doubled backslash before a letter counts as one: the text was escaped once too often ("-2 \\le
// x").
constexpr std::string_view escapable[] = {"le",    "leq", "ge",    "geq", "frac", "dfrac", "sqrt", "pi",    "cdot",
                                          "times", "pm",  "infty", "cup", "in",   "text",  "left", "right", "boxed"};

class Cleaner {
 public:
  explicit Cleaner(std::string_view text) : text_(text) { out_.reserve(text.size()); }
  std::string run() {
    while (at_ < text_.size()) step();
    return std::string(finished());
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool after_digit() const { return !out_.empty() && is_digit(out_.back()); }
  void space() {
    if (!out_.empty() && out_.back() != ' ') out_ += ' ';
  }
  void emit(std::string_view words) {
    if (words == " ") return space();
    out_ += words;
  }

  void step() {
    const char c = peek();
    if (c == '\\') return backslash();
    if (is_space(c) || c == '~') return ++at_, space();
    if (c == '$') {
      if (after_digit() && is_digit(peek(1))) space();  // 2$6 is not 26
      return void(++at_);
    }
    if (static_cast<unsigned char>(c) >= 0x80) return other_script();
    if (c == ',' && after_digit() && peek(1) == '\\' && peek(2) == '!') {  // 32,\!348
      size_t k = 3;
      while (peek(k) == ' ') ++k;
      if (is_digit(peek(k))) return void(at_ += k);
    }
    if (c == '{' && after_digit() && peek(1) == ',' && peek(2) == '}' && is_digit(peek(3)))
      return void(at_ += 3);  // 5{,}000
    if (c == '^') return caret();
    if ((c == '<' || c == '>' || c == '!') && peek(1) == '=') {
      emit(c == '<' ? "\\le " : c == '>' ? "\\ge " : "\\neq ");
      return void(at_ += 2);
    }
    // "x**2" is a power. Elsewhere two stars are emphasis.
    if (c == '*' && peek(1) == '*' && !out_.empty() &&
        (is_letter(out_.back()) || after_digit() || out_.back() == ')') &&
        (is_letter(peek(2)) || is_digit(peek(2)) || peek(2) == '(' || peek(2) == '-')) {
      out_ += '^';
      return void(at_ += 2);
    }
    out_ += c;
    ++at_;
  }

  // ^\circ and ^{\circ} are degrees.
  void caret() {
    size_t k = 1;
    const auto skip = [&](std::string_view what) {
      while (at_ + k < text_.size() && text_[at_ + k] == ' ') ++k;
      const bool there = text_.substr(at_ + k).starts_with(what);
      if (there) k += what.size();
      return there;
    };
    const bool braced = skip("{");
    if (skip("\\circ") && (!braced || skip("}"))) {
      emit("\\degree ");
      return void(at_ += k);
    }
    out_ += '^';
    ++at_;
  }

  void backslash() {
    const char next = peek(1);
    if (next == '\\') {
      size_t end = at_ + 2;
      while (end < text_.size() && is_letter(text_[end])) ++end;
      const std::string_view name = text_.substr(at_ + 2, end - at_ - 2);
      if (std::find(std::begin(escapable), std::end(escapable), name) != std::end(escapable)) return void(++at_);
      emit("\\\\");
      return void(at_ += 2);
    }
    if (!is_letter(next)) {
      if (next == '{' || next == '}') emit(next == '{' ? "\\{" : "\\}");
      if (next == '%') emit("%");
      if (next == '|') emit("|");
      if (next == '$') dollar_sign();
      if (next == ',' || next == ';' || next == ':' || next == ' ' || next == '\n') space();
      return void(at_ = std::min(at_ + 2, text_.size()));  // \!, \# and similar commands leave nothing
    }
    size_t end = at_ + 1;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    std::string_view name = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end;
    const auto known =
        std::find_if(std::begin(commands), std::end(commands), [&](const Spelling& s) { return s.from == name; });
    if (known != std::end(commands)) {
      if ((name == "left" || name == "right") && peek() == '.') ++at_;
      return emit(known->to);
    }
    if (name.starts_with("quad")) {  // \quadx
      space();
      return emit(name.substr(4));
    }
    out_ += '\\';
    out_ += name;
    if (is_digit(peek())) out_ += ' ';
  }

  // A dollar sign before a number is a price. After a number it is the unit of the price.
  void dollar_sign() {
    const std::string_view before = trimmed(out_);
    if (is_digit(peek(2)) || peek(2) == '.')
      emit("\\dollar ");
    else if (!before.empty() && (is_digit(before.back()) || before.back() == '}'))
      emit("\\text{\\$}");
  }

  void other_script() {
    for (const Spelling& s : unicode)
      if (text_.substr(at_).starts_with(s.from)) return at_ += s.from.size(), emit(s.to);
    out_ += text_[at_++];
  }

  // Returns the text without spaces, full stops and emphasis at its ends.
  std::string_view finished() const {
    std::string_view out = trimmed(out_);
    const auto ends_in = [&](std::string_view set) {
      return !out.empty() && set.find(out.back()) != std::string_view::npos;
    };
    while (ends_in(" .,;:*") && !out.ends_with("...")) out.remove_suffix(1);
    while (out.starts_with('*') || out.starts_with(' ') || out.starts_with(':')) out.remove_prefix(1);
    return out;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string clean(std::string_view text) { return Cleaner(text).run(); }

}  // namespace hone::math
