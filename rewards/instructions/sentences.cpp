#include "rewards/instructions/sentences.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/text/unicode/letter_case.h"
#include "core/text/unicode/unicode.h"
#include "rewards/answers/text.h"

namespace hone {

std::string_view sentence_words();  // rewards/instructions/sentence_words.txt

namespace {

using Characters = std::u32string;
using CharactersView = std::u32string_view;

// What the model has learned of words. A word that is in none of the first three sets was never seen in lower case.
struct PunktModel {
  std::unordered_set<std::string> starts, lower, either, abbreviations, starters, collocations;

  PunktModel() {
    std::unordered_map<std::string_view, std::unordered_set<std::string>*> sections{
        {"starts", &starts},     {"lower", &lower},
        {"either", &either},     {"abbreviations", &abbreviations},
        {"starters", &starters}, {"collocations", &collocations}};
    std::unordered_set<std::string>* section = nullptr;
    for (std::string_view rest = sentence_words(); !rest.empty();) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (line.starts_with("# ")) continue;
      if (line.starts_with("= ")) {
        section = sections.at(line.substr(2));
        continue;
      }
      for (const std::string_view word : words_of(line)) section->emplace(word);
    }
  }
  bool seen_in_lower_case(const std::string& word) const {
    return starts.contains(word) || lower.contains(word) || either.contains(word);
  }
};

bool is_one_of(char32_t c, CharactersView set) { return set.find(c) != CharactersView::npos; }
bool ends_sentence(char32_t c) { return is_one_of(c, U".?!"); }
bool is_letter(char32_t c) { return c == U'_' || (is_alphanumeric(c) && !(c >= U'0' && c <= U'9')); }
bool is_number_digit(char32_t c) { return c >= U'0' && c <= U'9'; }
// Characters that end a word, and those that cannot begin one.
bool is_non_word(char32_t c) { return is_one_of(c, U")\";}]*:@'({[?!"); }
bool is_no_word_start(char32_t c) { return is_one_of(c, U"(\"`{[:;&#*@)}]-,"); }

std::string utf8(CharactersView text) {
  std::string out;
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

struct Token {
  Characters text;
  std::string type;  // in lower case; a number is ##number##
  bool ends_sentence = false, is_abbreviation = false, is_ellipsis = false;

  bool has_period() const { return text.back() == U'.'; }
  std::string type_without_period() const {
    return type.size() > 1 && type.ends_with('.') ? type.substr(0, type.size() - 1) : type;
  }
  std::string type_without_sentence_period() const { return ends_sentence ? type_without_period() : type; }
  bool is_initial() const { return text.size() == 2 && is_letter(text[0]) && text[1] == U'.'; }
};

// -?[.,]?\d[\d,.-]*
bool is_number(CharactersView text) {
  if (text.starts_with(U'-')) text.remove_prefix(1);
  if (!text.empty() && is_one_of(text[0], U".,")) text.remove_prefix(1);
  return !text.empty() && is_number_digit(text[0]) &&
         std::all_of(text.begin(), text.end(), [](char32_t c) { return is_number_digit(c) || is_one_of(c, U",.-"); });
}

Token make_token(CharactersView text) {
  return {.text = Characters(text), .type = is_number(text) ? "##number##" : lower_case(utf8(text))};
}

// Length of the dashes or dots at text[at]: "--", "...", ". . ."; 0 if there are none.
size_t multi_punctuation(CharactersView text, size_t at) {
  const auto run = [&](char32_t c) {
    size_t end = at;
    while (end < text.size() && text[end] == c) ++end;
    return end - at;
  };
  if (const size_t dashes = run(U'-'); dashes >= 2) return dashes;
  if (const size_t dots = run(U'.'); dots >= 2) return dots;
  size_t end = at, pairs = 0;
  while (end + 1 < text.size() && text[end] == U'.' && is_space(text[end + 1])) end += 2, ++pairs;
  if (pairs >= 2 && end < text.size() && text[end] == U'.') return end + 1 - at;
  return pairs >= 3 ? end - 1 - at : 0;
}

// True if a word ends before text[at].
bool is_word_end(CharactersView text, size_t at) {
  const auto ends = [&](size_t i) {
    return i == text.size() || is_space(text[i]) || is_non_word(text[i]) || multi_punctuation(text, i) > 0;
  };
  return ends(at) || (text[at] == U',' && ends(at + 1));
}

// Appends the tokens of one line.
void add_tokens(CharactersView line, std::vector<Token>& out) {
  for (size_t at = 0; at < line.size();) {
    if (is_space(line[at])) {
      ++at;
      continue;
    }
    size_t length = multi_punctuation(line, at);
    if (length == 0) {
      length = 1;
      if (!is_no_word_start(line[at]))
        while (!is_word_end(line, at + length)) ++length;
    }
    out.push_back(make_token(line.substr(at, length)));
    at += length;
  }
}

class PunktClassifier {
 public:
  // True if a sentence ends at one of the tokens but the last.
  bool has_sentence_end(CharactersView context) const {
    std::vector<Token> tokens;
    for (size_t begin = 0; begin <= context.size();) {
      const size_t end = std::min(context.find(U'\n', begin), context.size());
      add_tokens(context.substr(begin, end - begin), tokens);
      begin = end + 1;
    }
    for (Token& token : tokens) classify(token);
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      reclassify(tokens[i], tokens[i + 1]);
      if (tokens[i].ends_sentence) return true;
    }
    return false;
  }

 private:
  // By the token alone.
  void classify(Token& token) const {
    const bool two_dots = token.text.ends_with(U"..");
    if (token.text.size() == 1 && ends_sentence(token.text[0])) {
      token.ends_sentence = true;
    } else if (two_dots && token.text.find_first_not_of(U'.') == Characters::npos) {
      token.is_ellipsis = true;
    } else if (token.has_period() && !two_dots) {
      const std::string word = lower_case(utf8(CharactersView(token.text).substr(0, token.text.size() - 1)));
      token.is_abbreviation = model_.abbreviations.contains(word) ||
                              model_.abbreviations.contains(word.substr(word.rfind('-') + 1)) || word == ". . ";
      token.ends_sentence = !token.is_abbreviation;
    }
  }

  // By the token and the next one.
  void reclassify(Token& token, const Token& next) const {
    if (!token.has_period()) return;
    const std::string type = token.type_without_period(), next_type = next.type_without_sentence_period();
    const bool next_upper = is_upper(next.text[0]);
    if (model_.collocations.contains(type + "+" + next_type)) {
      token.ends_sentence = false;
      return;
    }
    const std::optional<bool> starts = starts_sentence(next, next_type);
    if ((token.is_abbreviation || token.is_ellipsis) && !token.is_initial() &&
        (starts == true || (next_upper && model_.starters.contains(next_type)))) {
      token.ends_sentence = true;
      return;
    }
    if (!token.is_initial() && type != "##number##") return;
    const bool is_name = !starts && token.is_initial() && next_upper && !model_.seen_in_lower_case(next_type);
    if (starts == false || is_name) token.ends_sentence = false;
  }

  // Whether the token begins a sentence, by its case and the cases in which the model has seen it; none: not known.
  std::optional<bool> starts_sentence(const Token& token, const std::string& type) const {
    if (token.text.size() == 1 && is_one_of(token.text[0], U";:,.!?")) return false;
    if (is_upper(token.text[0]) && (model_.starts.contains(type) || model_.lower.contains(type))) return true;
    if (is_lower(token.text[0]) && !model_.lower.contains(type)) return false;
    return std::nullopt;
  }

  PunktModel model_;
};

// A place where a sentence may end: after `end`, with the next sentence at `next`.
struct Candidate {
  size_t word = 0, mark = 0, after = 0, next = 0;  // begin of the word, its mark, end of the context, next sentence
};

bool is_ascii_space(char32_t c) { return c == U' ' || (c >= U'\t' && c <= U'\r'); }

// The marks before white space and a further token, or before other punctuation; of the marks of one word the last.
std::vector<Candidate> find_candidates(CharactersView text) {
  std::vector<Candidate> out;
  Candidate before;
  bool any = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!ends_sentence(text[at]) || at + 1 == text.size()) continue;
    Candidate one{.mark = at, .after = at + 2, .next = at + 1};
    if (is_space(text[at + 1])) {
      while (one.next < text.size() && is_space(text[one.next])) ++one.next;
      if (one.next == text.size()) continue;
      one.after = one.next;
      while (one.after < text.size() && !is_space(text[one.after])) ++one.after;
    } else if (!is_non_word(text[at + 1])) {
      continue;
    }
    const size_t from = any ? before.mark : 0;
    size_t space = at;
    while (space > from && !is_ascii_space(text[space - 1])) --space;
    one.word = space > from + 1 ? space : before.word;
    if (any && before.mark <= one.word) out.push_back(before);
    before = one;
    any = true;
  }
  if (any) out.push_back(before);
  return out;
}

// Length of the closing quotes and brackets at the beginning of a sentence, with the white space after them; they
// belong to the sentence before.
size_t closing_length(CharactersView sentence) {
  size_t end = 0;
  while (end < sentence.size() && is_one_of(sentence[end], U"\"')]}")) {
    ++end;
    if (end == sentence.size() || sentence.substr(end).starts_with(U"--")) return end;
    if (!is_space(sentence[end])) continue;
    while (end < sentence.size() && is_space(sentence[end])) ++end;
    return end;
  }
  return 0;
}

}  // namespace

size_t count_sentences(std::string_view bytes) {
  static const PunktClassifier classifier;
  Characters all;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = code_point_at(bytes, at);
    all.push_back(c.value);
    at += c.length;
  }
  const CharactersView text = all;
  std::vector<std::pair<size_t, size_t>> sentences;
  size_t begin = 0;
  for (const Candidate& one : find_candidates(text)) {
    if (!classifier.has_sentence_end(text.substr(one.word, one.after - one.word))) continue;
    sentences.emplace_back(begin, one.mark + 1);
    begin = one.next;
  }
  size_t end = text.size();
  while (end > 0 && is_space(text[end - 1])) --end;
  sentences.emplace_back(begin, std::max(begin, end));

  size_t count = 0, moved = 0;
  for (size_t i = 0; i < sentences.size(); ++i) {
    const bool has_text = sentences[i].first + moved < sentences[i].second;
    moved = 0;
    if (i + 1 < sentences.size()) {
      const auto [first, last] = sentences[i + 1];
      moved = closing_length(text.substr(first, last - first));
    }
    count += has_text || moved > 0;
  }
  return count;
}

}  // namespace hone
