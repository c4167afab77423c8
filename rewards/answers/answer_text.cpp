#include "rewards/answers/answer_text.h"

#include <algorithm>

#include "rewards/answers/math_answer.h"
#include "rewards/answers/number_text.h"
#include "rewards/answers/statement.h"
#include "rewards/answers/text.h"

namespace hone {

namespace {

constexpr std::string_view fence = "```", answer_tag = "<answer>";
constexpr size_t longest_sentence = 4096;
// A sentence that starts with one of these corrects an earlier statement.
constexpr std::string_view corrections[] = {"wait",
                                            "but wait",
                                            "no wait",
                                            "oh wait",
                                            "actually",
                                            "correction",
                                            "sorry",
                                            "apologies",
                                            "oops",
                                            "hmm",
                                            "contradiction",
                                            "scratch that",
                                            "i mean",
                                            "my mistake",
                                            "i was wrong",
                                            "that's wrong",
                                            "that is wrong",
                                            "this is wrong",
                                            "that's not right",
                                            "that is not right"};
// These correct only with punctuation after them: "No, it is 6.", but not "No other value is possible."
constexpr std::string_view refusals[] = {"no", "nope", "not quite", "wrong", "incorrect"};
// Text before one of these words in a sentence does not apply to the marker.
constexpr std::string_view clause_starts[] = {"so", "therefore", "thus", "hence", "but", "then", "and", "because"};
constexpr std::string_view marker_denials[] = {"wrong",      "incorrect", "false",    "if",      "whether", "suppose",
                                               "supposing",  "assume",    "assuming", "doubt",   "nobody",  "unlikely",
                                               "impossible", "never",     "worst",    "opposite"};
constexpr std::string_view claims[] = {"think", "believe", "true",    "say",   "said",  "sure", "case",
                                       "claim", "mean",    "certain", "clear", "agree", "that"};

template <size_t N>
bool contains(const std::string_view (&set)[N], std::string_view word) {
  return std::find(std::begin(set), std::end(set), word) != std::end(set);
}

// Returns the end of the correcting words of a sentence; npos if it has none.
size_t correction_end(std::string_view sentence) {
  const size_t begin = std::min(sentence.find_first_not_of(" \t\r*_\"'-"), sentence.size());
  const std::string_view rest = sentence.substr(begin);
  const auto starts_with = [&](std::string_view phrase, bool with_sign) {
    if (rest.size() < phrase.size() || lower(rest.substr(0, phrase.size())) != phrase) return false;
    const char next = rest.size() > phrase.size() ? rest[phrase.size()] : '.';
    return with_sign ? std::string_view(",.:;!").find(next) != std::string_view::npos
                     : !is_letter(next) && next != '\'';
  };
  for (const std::string_view phrase : corrections)
    if (starts_with(phrase, false)) return begin + phrase.size();
  for (const std::string_view phrase : refusals)
    if (starts_with(phrase, true)) return begin + phrase.size();
  return std::string_view::npos;
}

// Removes the fences, and the language after the first, if `text` is one code block.
std::string_view without_fences(std::string_view text) {
  if (!text.starts_with(fence)) return text;
  const size_t line = text.find('\n'), close = text.find(fence, fence.size());
  if (line == std::string_view::npos || close == std::string_view::npos || close + fence.size() != text.size() ||
      close < line)
    return text;
  return trimmed(text.substr(line, close - line));
}

// Returns the last code block; empty if there is none.
std::string_view last_block(std::string_view text) {
  const size_t close = text.rfind(fence);
  if (close == std::string_view::npos || close == 0) return {};
  const size_t open = text.rfind(fence, close - 1);
  return open == std::string_view::npos || open + fence.size() > close
             ? std::string_view()
             : without_fences(text.substr(open, close + 3 - open));
}

// Returns the text after the last marker; empty if there is no marker or nothing follows it.
std::string_view after_marker(std::string_view text) {
  const size_t at = end_of_last(text, {"####", "answer is", "answer:", "answer**:", "answer:**"});
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at);
  while (text.starts_with(':') || text.starts_with(' ')) text.remove_prefix(1);
  const std::string_view line = trimmed(text.substr(0, text.find('\n')));
  return line.empty() ? trimmed(text) : line;
}

// Removes quotes, dollar signs, emphasis and inline-code marks around the entire text.
std::string_view unwrapped(std::string_view text) {
  for (text = trimmed(text);; text = trimmed(text)) {
    const bool pair = text.size() >= 2 && text.front() == text.back() &&
                      std::string_view("\"'`$*").find(text.front()) != std::string_view::npos;
    if (!pair) return text;
    text = text.substr(1, text.size() - 2);
  }
}

// Returns the digits of a text that is one number: at most one point, a sign, and commas between groups of three. Empty
// for any other text.
std::string number_of(std::string_view text) {
  const auto number = first_number(text);
  return number && number->begin == 0 && number->end == text.size() ? number->digits : "";
}

bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return is_letter(c) || c == '-'; });
}

// Removes what does not distinguish answers: spaces around commas and, within [], all spaces and quotes.
std::string without_filler(std::string_view text) {
  const bool list = text.starts_with('[');
  std::string out;
  for (const char c : text) {
    if (list && (is_space(c) || c == '\'' || c == '"')) continue;
    if (c == ',')
      while (out.ends_with(' ')) out.pop_back();
    if (!(c == ' ' && out.ends_with(','))) out += c;
  }
  return out;
}

}  // namespace

std::string_view answer_part(std::string_view text) {
  constexpr std::string_view close = "</answer>", thought = "</think>";
  if (const size_t at = text.rfind(answer_tag); at != std::string_view::npos) {
    text.remove_prefix(at + answer_tag.size());
    return text.substr(0, text.find(close));
  }
  const size_t at = text.rfind(thought);
  return at == std::string_view::npos ? text : text.substr(at + thought.size());
}

std::string_view corrected(std::string_view text) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = sentence_end(text.substr(0, std::min(text.size(), at + longest_sentence)), at);
    // The first sentence has nothing to correct.
    const size_t from = begin > 0 || !trimmed(text.substr(0, at)).empty() ? correction_end(text.substr(at, end - at))
                                                                          : std::string_view::npos;
    if (from != std::string_view::npos) begin = at + from;
    at = end + 1;
  }
  text.remove_prefix(begin);
  while (begin > 0 && !text.empty() && std::string_view(",.:;! ").find(text.front()) != std::string_view::npos)
    text.remove_prefix(1);
  return text;
}

bool is_marker_denied(std::string_view before) {
  if (before.size() > longest_sentence) before.remove_prefix(before.size() - longest_sentence);
  if (const size_t stop = before.find_last_of(".,;:!?\n"); stop != std::string_view::npos)
    before.remove_prefix(stop + 1);
  bool denied = false, negated = false;
  for (const std::string_view raw : words_of(before)) {
    const std::string word = lower(raw);
    if (contains(clause_starts, word)) denied = negated = false;
    denied = denied || contains(marker_denials, word) || (negated && contains(claims, word));
    negated = negated || word == "not" || word.ends_with("n't") || word.ends_with("n’t");
  }
  return denied;
}

std::string_view final_answer(std::string_view text) {
  const std::string_view part = answer_part(text);
  if (std::string_view box; last_boxed(part, box)) return trimmed(box);
  if (text.find(answer_tag) == std::string_view::npos) {
    if (const std::string_view after = after_marker(part); !after.empty()) return without_fences(after);
    if (const std::string_view block = last_block(part); !block.empty()) return block;
  }
  return without_fences(trimmed(part));
}

bool same_answer(std::string_view reference, std::string_view answer) {
  reference = unwrapped(reference);
  answer = unwrapped(answer);
  if (answer.ends_with('.') && !reference.ends_with('.')) answer = unwrapped(answer.substr(0, answer.size() - 1));
  if (reference == answer) return true;
  if (const std::string number = number_of(reference); !number.empty()) return number == number_of(answer);
  if (is_word(reference)) return lower(reference) == lower(answer);
  // Too long to be equal. Without this check the word lists could be huge.
  if (answer.size() > 4 * reference.size() + 4096) return false;
  const std::string expected = without_filler(reference), given = without_filler(answer);
  return words_by_line(expected) == words_by_line(given);
}

std::vector<std::vector<std::string_view>> words_by_line(std::string_view text) {
  std::vector<std::vector<std::string_view>> out;
  for (const std::string_view line : split(text, "\n"))
    if (auto words = words_of(line); !words.empty()) out.push_back(std::move(words));
  return out;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> out;
  for (size_t at; (at = text.find(separator)) != std::string_view::npos; text.remove_prefix(at + separator.size()))
    out.push_back(trimmed(text.substr(0, at)));
  out.push_back(trimmed(text));
  return out;
}

}  // namespace hone
