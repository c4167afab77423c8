#include "rewards/answers/choice_text.h"

#include <algorithm>
#include <string>
#include <vector>

#include "rewards/answers/answer_text.h"
#include "rewards/answers/box_context.h"
#include "rewards/answers/spans.h"
#include "rewards/answers/statement.h"
#include "rewards/answers/text.h"

namespace hone {

namespace {

constexpr size_t longest_letter = 32, most_boxes = 16;

template <size_t N>
bool contains(const std::string_view (&set)[N], std::string_view word) {
  return std::find(std::begin(set), std::end(set), word) != std::end(set);
}

constexpr std::string_view wrappers[] = {"\\boxed{", "\\text{", "\\textbf{", "\\mathrm{", "\\mathbf{", "\\(", "(",
                                         "[",        "*",       "$",         "`",         "\"",        "'",   "{"};
constexpr std::string_view markers[] = {
    "answer is", "answer:",     "answer**:",      "answer must be", "answer should be", "answer would be",
    "choice is", "choice:",     "option is",      "option:",        "i choose",         "i pick",
    "i select",  "i'll choose", "i would choose", "i'd choose",     "i would pick",     "i'd pick",
    "i'd say",   "i would say", "答案是",         "答案为",         "答案：",           "答案:",
    "go with",   "i'll pick",   "choose option",  "select option"};
// Words between a marker and the letter.
constexpr std::string_view leads[] = {"the",       "option", "choice", "letter", "answer",   "definitely", "clearly",
                                      "therefore", "indeed", "most",   "likely", "simply",   "just",       "correct",
                                      "right",     "best",   "is",     "be",     "must",     "both",       "either",
                                      "neither",   "final",  "thus",   "so",     "probably", "not",        "one"};
// A sentence of only these words and a letter decides.
constexpr std::string_view connectives[] = {"so",     "therefore", "thus",  "hence", "the",   "option",
                                            "choice", "answer",    "final", "it",    "it's",  "its",
                                            "is",     "correct",   "must",  "be",    "letter"};
constexpr std::string_view denials[] = {"not",        "never",      "cannot",   "neither", "nor",       "eliminate",
                                        "eliminated", "eliminates", "rule",     "ruled",   "rules",     "except",
                                        "exclude",    "excluded",   "excludes", "wrong",   "incorrect", "false",
                                        "instead",    "rather",     "unlikely", "reject",  "rejected"};
constexpr std::string_view reasons[] = {"because", "since", "as", "so", "whereas", "while", "which", "due"};
// Words that follow the letter A and not the article.
constexpr std::string_view after_letter[] = {
    "is",     "and",   "or",   "because", "since",   "as",   "but",   "not",     "for",    "which",   "with", "was",
    "would",  "must",  "has",  "seems",   "if",      "due",  "it",    "so",      "rather", "instead", "are",  "nor",
    "cannot", "isn't", "does", "looks",   "appears", "over", "while", "whereas", "should", "can"};
constexpr std::string_view weakenings[] = {"partially", "partly", "half",     "almost", "nearly",
                                           "least",     "worst",  "opposite", "less"};
constexpr std::string_view affirmations[] = {"correct", "right", "best", "answer", "true", "choice"};

constexpr std::string_view paired = "*$`\"'";

struct Mention {
  size_t begin = 0, end = 0;  // with brackets and markup
  char letter = 0;
  bool wrapped = false;  // "(B)", "\text{B}"
};

class ChoiceReader {
 public:
  explicit ChoiceReader(std::string_view letters) : letters_(letters) {}

  std::optional<char> read(std::string_view completion) const {
    std::string_view text = trimmed(answer_part(completion));
    if (const auto boxes = find_boxes(text, most_boxes); !boxes.empty()) return boxed(text, boxes);
    text = trimmed(corrected(text));
    if (const auto letter = only_letter(text)) return letter;
    bool hedged = false;
    if (const auto letter = decided(text, hedged); letter || hedged) return letter;
    return labeled(text);
  }

 private:
  // -- letters in a text
  bool is_choice(char c) const { return letters_.find(c) != std::string_view::npos; }
  static bool joins_word(char c) {
    return is_letter(c) || is_digit(c) || c == '_' || c == '\'' || static_cast<unsigned char>(c) >= 0x80;
  }

  // True if the letter is part of something else: "A+", "A-", "A*", "A^2", "A.M.", "A\\B". False for "**A**" and "A.
  // Paris".
  static bool continues_word(std::string_view text, size_t at) {
    if (at >= text.size()) return false;
    const char c = text[at], next = at + 1 < text.size() ? text[at + 1] : ' ';
    const char before = at >= 2 ? text[at - 2] : ' ';
    if (c == '\\') return next >= 'A' && next <= 'Z';
    if (c == '\'') return before != '\'' && before != '"';
    if (joins_word(c) || std::string_view("+^_#%&@=<>~|").find(c) != std::string_view::npos) return true;
    if (c == '-') return !is_space(next) || trimmed(text.substr(at + 1)).empty();
    if (c == '*') return before != '*' && before != '(' && before != '{';
    const bool initial = is_letter(next) && (at + 2 >= text.size() || !is_letter(text[at + 2]));
    return c == '.' && (initial || next == '.');
  }
  // Returns every option letter that stands alone. Lower-case letters count only in brackets.
  std::vector<Mention> mentions(std::string_view text) const {
    std::vector<Mention> out;
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (!is_letter(c) || !is_choice(to_upper(c)) || (i > 0 && (joins_word(text[i - 1]) || text[i - 1] == '\\')))
        continue;
      if (continues_word(text, i + 1)) continue;
      Mention one{.begin = i, .end = i + 1, .letter = to_upper(c)};
      surround(text, one);
      if (to_upper(c) != c && !one.wrapped) continue;
      if ((c == 'A' || c == 'I') && !one.wrapped && is_article(text, one)) continue;
      out.push_back(one);
    }
    return out;
  }
  static void surround(std::string_view text, Mention& one) {
    for (bool found = true; found;) {
      found = false;
      for (const std::string_view wrapper : wrappers) {
        if (!text.substr(0, one.begin).ends_with(wrapper)) continue;
        one.begin -= wrapper.size();
        one.wrapped =
            one.wrapped || wrapper.size() > 1 || wrapper == "(" || wrapper == "*" || wrapper == "[" || wrapper == "$";
        found = true;
        break;
      }
    }
    while (one.end < text.size() && std::string_view(")]}*$`\"").find(text[one.end]) != std::string_view::npos)
      ++one.end;
  }
  static bool is_article(std::string_view text, const Mention& one) {
    if (one.end >= text.size() || text[one.end] != ' ' || one.end > one.begin + 1) return false;
    const std::string_view rest = text.substr(one.end + 1);
    size_t end = 0;
    while (end < rest.size() && (is_letter(rest[end]) || rest[end] == '\'')) ++end;
    return end > 0 && !contains(after_letter, lower(rest.substr(0, end)));
  }
  // Returns the letter if the text has nothing else except brackets, "option" and a full stop.
  std::optional<char> only_letter(std::string_view text) const {
    text = trimmed(text);
    if (text.size() > longest_letter || text.ends_with("..") || !marks_are_paired(text)) return std::nullopt;
    for (const std::string_view word : {"option ", "choice "})
      if (lower(text.substr(0, word.size())) == word) text.remove_prefix(word.size());
    while (!text.empty() && !is_letter(text.front())) {
      if (text.front() == '\\') {
        const size_t brace = text.find_first_of("{(");
        if (brace == std::string_view::npos) return std::nullopt;
        text.remove_prefix(brace);
      } else if (std::string_view("([*${`\"' :").find(text.front()) == std::string_view::npos) {
        return std::nullopt;
      }
      text.remove_prefix(1);
    }
    if (text.empty() || !is_choice(to_upper(text.front()))) return std::nullopt;
    return text.find_first_not_of(")]}*$`\"'.!: \\", 1) == std::string_view::npos
               ? std::optional(to_upper(text.front()))
               : std::nullopt;
  }
  // "*A*" is the letter; "A*" and "$A" are something else.
  static bool marks_are_paired(std::string_view text) {
    return std::all_of(paired.begin(), paired.end(),
                       [&](char mark) { return std::count(text.begin(), text.end(), mark) % 2 == 0; });
  }
  static std::vector<std::string> words(std::string_view text) {
    std::vector<std::string> out;
    for (size_t i = 0; i < text.size();) {
      size_t end = i;
      while (end < text.size() && (is_letter(text[end]) || (text[end] == '\'' && end > i))) ++end;
      if (end > i) out.push_back(lower(text.substr(i, end - i)));
      i = std::max(end, i + 1);
    }
    return out;
  }
  static bool denies(std::string_view word) { return contains(denials, word) || word.ends_with("n't"); }

  // -- places
  std::optional<char> boxed(std::string_view text, const std::deque<MathSpan>& boxes) const {
    std::optional<char> out;
    for (const MathSpan& box : boxes) {
      if (denies_box(text, box)) return std::nullopt;
      const std::string_view content = trimmed(box.content(text));
      std::optional<char> letter = only_letter(content);
      if (!letter) letter = single(content, mentions(content), true);
      if (!letter || (out && *out != *letter)) return std::nullopt;
      out = letter;
    }
    return out;
  }

  // Returns the letter that a statement does not negate; nothing if there are two. at_start: it must begin the
  // statement.
  std::optional<char> single(std::string_view text, const std::vector<Mention>& found, bool at_start) const {
    std::optional<char> out;
    for (size_t i = 0; i < found.size(); ++i) {
      if (is_denied(text, found, i)) continue;
      if (out && *out != found[i].letter) return std::nullopt;
      if (at_start && !out && found[i].begin > 0 && !text.starts_with("\\text")) return std::nullopt;
      const std::vector<std::string> next = words(text.substr(found[i].end, 8));
      if (!next.empty() && next.front() == "or") return std::nullopt;
      out = found[i].letter;
    }
    return out;
  }
  // Returns true for "not A", "A is wrong", "A is not right". In "B, not A" only A is negated.
  static bool is_denied(std::string_view text, const std::vector<Mention>& found, size_t i) {
    const size_t from = i == 0 ? 0 : found[i - 1].end, to = i + 1 < found.size() ? found[i + 1].begin : text.size();
    std::string_view gap = text.substr(from, std::max(found[i].begin, from) - from);
    // Words before a comma or a verb belong to the previous letter.
    const std::vector<std::string> before = words(gap);
    for (size_t w = 0; w < before.size(); ++w)
      if (denies(before[w]) && (i == 0 || w + 3 >= before.size()) &&
          !(i > 0 && w > 0 && (before[w - 1] == "is" || before[w - 1] == "are")) &&
          !(i > 0 && (before[w] == "wrong" || before[w] == "incorrect" || before[w] == "false")))
        return true;
    // "neither A nor B", "not A or B"
    if (i > 0 && before.size() == 1 && (before[0] == "nor" || before[0] == "or" || before[0] == "and") &&
        is_denied(text, found, i - 1))
      return true;
    const std::vector<std::string> after = words(text.substr(found[i].end, to - found[i].end));
    for (size_t w = 0; w < after.size(); ++w) {
      if (!denies(after[w])) continue;
      const bool of_this =
          after[w] == "wrong" || after[w] == "incorrect" || after[w] == "false" || after[w] == "cannot" ||
          after[w] == "eliminated" || after[w] == "excluded" || after[w] == "rejected" || after[w].ends_with("n't") ||
          (w > 0 && (after[w - 1] == "is" || after[w - 1] == "are" || after[w - 1] == "does" || after[w - 1] == "can"));
      if (of_this && w < 6) return true;
    }
    return false;
  }

  // -- sentences that decide
  struct Decision {
    bool decides = false;
    std::optional<char> letter = {};
    bool hedged = false;  // names two letters
  };

  std::optional<char> decided(std::string_view text, bool& hedged) const {
    std::vector<std::string_view> sentences;
    for (size_t at = 0; at < text.size();) {
      const size_t end = sentence_end(text.substr(0, std::min(text.size(), at + 4096)), at);
      if (const std::string_view one = trimmed(text.substr(at, end - at)); !one.empty()) sentences.push_back(one);
      at = end + 1;
    }
    std::string denied;
    for (size_t i = sentences.size(); i-- > 0;) {
      std::string_view sentence = sentences[i];
      // "Answer:" with the letter on the next line.
      if (i + 1 < sentences.size() &&
          (sentence.ends_with(':') || sentence.ends_with(":**") || lower(sentence).ends_with("answer is")))
        sentence =
            text.substr(static_cast<size_t>(sentence.data() - text.data()),
                        static_cast<size_t>(sentences[i + 1].data() + sentences[i + 1].size() - sentence.data()));
      const Decision decision =
          decide(sentence, i + 1 == sentences.size() && text.find('\n') != std::string_view::npos);
      if (decision.hedged) {
        hedged = true;
        return std::nullopt;
      }
      if (decision.letter) {
        hedged = denied.find(*decision.letter) != std::string::npos;
        return hedged ? std::nullopt : decision.letter;
      }
      const std::vector<Mention> found = mentions(sentence);
      for (size_t m = 0; m < found.size(); ++m)
        if (is_denied(sentence, found, m)) denied += found[m].letter;
      if (decision.decides && !found.empty()) hedged = true;
    }
    return std::nullopt;
  }

  Decision decide(std::string_view sentence, bool last_line) const {
    if (sentence.ends_with('?')) return {};
    if (const size_t at = marker_end(sentence); at != std::string_view::npos)
      return is_marker_denied(sentence.substr(0, at)) ? Decision() : after_marker(sentence.substr(at));
    const std::vector<Mention> found = mentions(sentence);
    Decision out;
    for (size_t i = 0; i < found.size(); ++i) {
      if (!is_affirmed(sentence, found, i)) continue;
      std::string letters(1, found[i].letter);
      for (size_t k = i; k > 0 && is_coupled(sentence, found[k - 1], found[k]); --k) letters += found[k - 1].letter;
      const bool one =
          letters.find_first_not_of(letters[0]) == std::string::npos && (!out.letter || *out.letter == letters[0]);
      if (!one) return {.decides = true, .hedged = true};
      out = {.decides = true, .letter = letters[0]};
    }
    if (out.decides) return out;
    const std::vector<std::string> said = words(sentence);
    const auto is_connective = [&](const std::string& word) {
      return contains(connectives, word) || (word.size() == 1 && is_choice(to_upper(word[0]))) || word == "text" ||
             word == "textbf";
    };
    const bool nothing_else =
        std::all_of(said.begin(), said.end(), is_connective) && (last_line || said.size() > found.size());
    if (!nothing_else || found.empty()) return {};
    out.letter = single(sentence, found, false);
    return {.decides = true, .letter = out.letter, .hedged = !out.letter};
  }
  static size_t marker_end(std::string_view sentence) {
    size_t out = std::string_view::npos;
    const auto reaches = [&](size_t end) { out = out == std::string_view::npos ? end : std::max(out, end); };
    for (const std::string_view marker : markers)
      if (const size_t at = rfind_ignoring_case(sentence, marker); at != std::string_view::npos)
        reaches(at + marker.size());
    // "The correct answer to the question is B"
    for (const std::string_view noun : {"answer ", "choice ", "option "}) {
      const size_t at = rfind_ignoring_case(sentence, noun);
      const size_t verb = at == std::string_view::npos ? at : lower(sentence).find(" is ", at + noun.size() - 1);
      const bool letter = at != std::string_view::npos && at + noun.size() + 1 < sentence.size() &&
                          !is_letter(sentence[at + noun.size() + 1]);
      if (verb != std::string_view::npos && verb < at + 60 && !letter) reaches(verb + 4);
    }
    return out;
  }
  Decision after_marker(std::string_view text) const {
    if (const auto letter = only_letter(text)) return {.decides = true, .letter = letter};
    std::vector<Mention> found = mentions(text);
    if (found.empty()) return {};
    // Other letters after an explanation starts do not count.
    for (size_t i = found.front().end; i < text.size(); ++i) {
      if (!is_letter(text[i]) || is_letter(text[i - 1])) continue;
      size_t end = i;
      while (end < text.size() && is_letter(text[end])) ++end;
      if (!contains(reasons, lower(text.substr(i, end - i)))) continue;
      text = text.substr(0, i);
      std::erase_if(found, [&](const Mention& one) { return one.end > text.size(); });
      break;
    }
    const auto letter = single(text, found, false);
    if (letter) {
      const auto first =
          std::find_if(found.begin(), found.end(), [&](const Mention& one) { return one.letter == *letter; });
      const std::vector<std::string> lead = words(text.substr(0, first->begin));
      const bool named =
          !lead.empty() && (lead.back() == "option" || lead.back() == "choice" || lead.back() == "letter");
      if (!first->wrapped && !named &&
          !std::all_of(lead.begin(), lead.end(), [](const std::string& word) { return contains(leads, word); }))
        return {};
      return {.decides = true, .letter = letter};
    }
    bool all_denied = true;
    for (size_t i = 0; i < found.size(); ++i) all_denied = all_denied && is_denied(text, found, i);
    return {.decides = true, .hedged = !all_denied};
  }
  // "B is correct", "(B) must be the right answer"
  static bool is_affirmed(std::string_view text, const std::vector<Mention>& found, size_t i) {
    if (is_denied(text, found, i) || is_marker_denied(text.substr(0, found[i].begin))) return false;
    const size_t to = i + 1 < found.size() ? found[i + 1].begin : text.size();
    const std::vector<std::string> after = words(text.substr(found[i].end, std::min<size_t>(to - found[i].end, 60)));
    if (after.empty() || (after[0] != "is" && after[0] != "are" && after[0] != "must" && after[0] != "has"))
      return false;
    // "A is correct if x > 0", "A is correct and so is B"
    if (std::any_of(after.begin(), after.end(),
                    [](const std::string& word) { return word == "if" || word == "unless"; }))
      return false;
    if (after.size() >= 2 && after[after.size() - 2] == "so" && after.back() == "is" && i + 1 < found.size())
      return false;
    for (size_t w = 1; w < std::min<size_t>(after.size(), 6); ++w) {
      if (contains(weakenings, after[w])) return false;
      if (contains(affirmations, after[w])) return true;
    }
    return false;
  }
  static bool is_coupled(std::string_view text, const Mention& left, const Mention& right) {
    const std::vector<std::string> gap = words(text.substr(left.end, std::max(right.begin, left.end) - left.end));
    return gap.size() <= 1 && (gap.empty() || gap[0] == "and" || gap[0] == "or");
  }

  // True for "(A) or" and "A: or B": the letter is the first of several.
  static bool contains_or(const std::vector<std::string>& after) {
    return !after.empty() && (after[0] == "or" || after[0] == "and" || after[0] == "maybe" || after[0] == "perhaps");
  }

  // Reads a completion that starts with "(B)", "B." or "B:". Returns nothing if it then lists the other options in the
  // same form.
  std::optional<char> labeled(std::string_view text) const {
    const std::vector<Mention> found = mentions(text);
    if (found.empty() || found.front().begin != 0) return std::nullopt;
    if (contains_or(words(text.substr(found.front().end, longest_letter)))) return std::nullopt;
    const auto is_label = [&](const Mention& one) {
      return text[one.begin] == '(' || (one.end > one.begin && text[one.end - 1] == ')') || text[one.begin] == '*' ||
             (one.end < text.size() && std::string_view(".:\n").find(text[one.end]) != std::string_view::npos);
    };
    if (!is_label(found.front())) return std::nullopt;
    for (size_t i = 0; i < found.size(); ++i)
      if (found[i].letter != found.front().letter && is_label(found[i]) && !is_denied(text, found, i))
        return std::nullopt;
    const std::string_view rest = trimmed(text.substr(found.front().end));
    // "A: no" rejects A. "A: No" may repeat the text of the option.
    if (rest.starts_with('?') || (rest.starts_with(':') && trimmed(rest.substr(1)) == "no")) return std::nullopt;
    return is_denied(text, found, 0) ? std::nullopt : std::optional(found.front().letter);
  }

  std::string_view letters_;
};

}  // namespace

std::optional<char> choice_answer(std::string_view completion, std::string_view letters) {
  return ChoiceReader(letters).read(completion);
}

}  // namespace hone
