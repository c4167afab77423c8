#include "rewards/instructions/checks.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/text/unicode/bounded_regex.h"
#include "core/text/unicode/letter_case.h"
#include "core/text/unicode/unicode.h"
#include "rewards/instructions/language.h"
#include "rewards/instructions/python_text.h"
#include "rewards/instructions/sentences.h"
#include "rewards/instructions/words.h"

namespace hone {

std::string InstructionArguments::path(const char* name) const { return instruction_.id + ": " + name; }

const Json& InstructionArguments::at(const char* name) const {
  const Json* found = instruction_.arguments.is_object() ? instruction_.arguments.find(name) : nullptr;
  HONE_CHECK(found && !found->is_null(), instruction_.id, " needs '", name, "' in kwargs");
  return *found;
}

int64_t InstructionArguments::integer(const char* name) const { return at(name).as_int(path(name)); }
const std::string& InstructionArguments::text(const char* name) const { return at(name).as_string(path(name)); }

std::vector<std::string> InstructionArguments::texts(const char* name) const {
  std::vector<std::string> out;
  for (const Json& one : at(name).as_array(path(name))) out.push_back(one.as_string(path(name)));
  HONE_CHECK(!out.empty(), path(name), " is empty; give at least one");
  return out;
}

bool InstructionArguments::compare(int64_t count, const char* number, const char* relation) const {
  const int64_t threshold = integer(number);
  const std::string& how = text(relation);
  HONE_CHECK(how == "at least" || how == "less than", path(relation), " is '", how,
             "'; it must be \"at least\" or \"less than\"");
  return how == "at least" ? count >= threshold : count < threshold;
}

namespace {

using Arguments = InstructionArguments;

constexpr BoundedRegexOptions regex_options{.step_limit = 20'000'000};

std::vector<std::string_view> matches(const BoundedRegex& regex, std::string_view text) {
  std::vector<std::string_view> out;
  regex.each(text, [&](std::span<const std::string_view> groups) { out.push_back(groups[0]); });
  return out;
}
int64_t count_matches(const BoundedRegex& regex, std::string_view text) {
  return static_cast<int64_t>(matches(regex, text).size());
}
int64_t count_matches(const std::string& pattern, std::string_view text) {
  return count_matches(BoundedRegex(pattern, regex_options), text);
}

// The parts between matches.
std::vector<std::string_view> split_at(const BoundedRegex& regex, std::string_view text) {
  std::vector<std::string_view> out;
  size_t rest = 0;
  for (const std::string_view match : matches(regex, text)) {
    const auto begin = static_cast<size_t>(match.data() - text.data());
    out.push_back(text.substr(rest, begin - rest));
    rest = begin + match.size();
  }
  out.push_back(text.substr(rest));
  return out;
}

bool is_blank(std::string_view text) { return stripped(text).empty(); }

// A text whose language cannot be told counts as right, as in the original.
bool is_language(std::string_view text, std::string_view language) {
  const std::optional<std::string> found = detect_language(text);
  return !found || *found == language || (*found == "zh" && language.starts_with("zh"));
}

bool existence(const Arguments& arguments, std::string_view text) {
  const auto keywords = arguments.texts("keywords");
  return std::all_of(keywords.begin(), keywords.end(),
                     [&](const std::string& keyword) { return count_matches("(?i)" + keyword, text) > 0; });
}

bool frequency(const Arguments& arguments, std::string_view text) {
  const std::string keyword(stripped(arguments.text("keyword")));
  return arguments.compare(count_matches("(?i)" + keyword, text), "frequency", "relation");
}

bool forbidden_words(const Arguments& arguments, std::string_view text) {
  const auto words = arguments.texts("forbidden_words");
  return std::none_of(words.begin(), words.end(),
                      [&](const std::string& word) { return count_matches("(?i)\\b" + word + "\\b", text) > 0; });
}

bool letter_frequency(const Arguments& arguments, std::string_view text) {
  const std::string letter = lower_case(stripped(arguments.text("letter")));
  HONE_CHECK(!letter.empty(), "keywords:letter_frequency: letter is empty; give one letter");
  const std::string lower = lower_case(text);
  return arguments.compare(static_cast<int64_t>(hone::split_at(lower, letter).size()) - 1, "let_frequency",
                           "let_relation");
}

bool response_language(const Arguments& arguments, std::string_view text) {
  return is_language(text, arguments.text("language"));
}

bool number_sentences(const Arguments& arguments, std::string_view text) {
  return arguments.compare(static_cast<int64_t>(count_sentences(text)), "num_sentences", "relation");
}

bool number_words(const Arguments& arguments, std::string_view text) {
  return arguments.compare(static_cast<int64_t>(count_words(text)), "num_words", "relation");
}

// Exactly num_paragraphs parts between "***"; only the first and the last may be blank, and those do not count.
bool number_paragraphs(const Arguments& arguments, std::string_view text) {
  static const BoundedRegex divider(R"(\s?\*\*\*\s?)", regex_options);
  const std::vector<std::string_view> parts = split_at(divider, text);
  auto count = static_cast<int64_t>(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!is_blank(parts[i])) continue;
    if (i != 0 && i + 1 != parts.size()) return false;
    --count;
  }
  return count == arguments.integer("num_paragraphs");
}

// The first word in lower case, up to punctuation.
std::string first_word_of(std::string_view paragraph) {
  size_t end = 0;
  while (end < paragraph.size() && !is_blank(paragraph.substr(end, code_point_at(paragraph, end).length)))
    end += code_point_at(paragraph, end).length;
  std::string_view word = left_stripped(left_stripped(paragraph.substr(0, end), "'"), "\"");
  word = word.substr(0, word.find_first_of(".,?!'\""));
  return lower_case(word);
}

// Blank paragraphs do not count, but keep their places in the numbering.
bool nth_paragraph_first_word(const Arguments& arguments, std::string_view text) {
  const std::vector<std::string_view> paragraphs = hone::split_at(text, "\n\n");
  const auto blank = std::count_if(paragraphs.begin(), paragraphs.end(), is_blank);
  const int64_t count = static_cast<int64_t>(paragraphs.size()) - blank, nth = arguments.integer("nth_paragraph"),
                expected = arguments.integer("num_paragraphs");
  const std::string word = lower_case(arguments.text("first_word"));
  HONE_CHECK(nth >= 1, "length_constraints:nth_paragraph_first_word: nth_paragraph is ", nth, "; it must be 1 or more");
  if (nth > count) return false;
  const std::string_view paragraph = stripped(paragraphs[static_cast<size_t>(nth - 1)]);
  return !paragraph.empty() && count == expected && first_word_of(paragraph) == word;
}

bool number_placeholders(const Arguments& arguments, std::string_view text) {
  static const BoundedRegex placeholder(R"(\[.*?\])", regex_options);
  return count_matches(placeholder, text) >= arguments.integer("num_placeholders");
}

bool postscript(const Arguments& arguments, std::string_view text) {
  const std::string_view marker = stripped(arguments.text("postscript_marker"));
  const std::string pattern = marker == "P.P.S"  ? R"(p\.\s?p\.\s?s)"
                              : marker == "P.S." ? R"(p\.\s?s\.)"
                                                 : lower_case(marker);
  return count_matches(pattern, lower_case(text)) > 0;
}

bool number_bullet_lists(const Arguments& arguments, std::string_view text) {
  static const BoundedRegex stars(R"((?m)^\s*\*[^\*].*$)", regex_options), dashes(R"((?m)^\s*-.*$)", regex_options);
  return count_matches(stars, text) + count_matches(dashes, text) == arguments.integer("num_bullets");
}

bool constrained_response(const Arguments&, std::string_view text) {
  for (const std::string_view answer : {"My answer is yes.", "My answer is no.", "My answer is maybe."})
    if (text.find(answer) != std::string_view::npos) return true;
  return false;
}

// *Text* and **text** with something between the asterisks.
bool number_highlighted_sections(const Arguments& arguments, std::string_view text) {
  static const BoundedRegex single(R"(\*[^\n\*]*\*)", regex_options), pairs(R"(\*\*[^\n\*]*\*\*)", regex_options);
  int64_t count = 0;
  for (const std::string_view match : matches(single, text)) count += !is_blank(match.substr(1, match.size() - 2));
  for (const std::string_view match : matches(pairs, text)) count += !is_blank(match.substr(2, match.size() - 4));
  return count >= arguments.integer("num_highlights");
}

bool multiple_sections(const Arguments& arguments, std::string_view text) {
  const std::string splitter(stripped(arguments.text("section_spliter")));
  return count_matches("\\s?" + splitter + "\\s?\\d+\\s?", text) >= arguments.integer("num_sections");
}

bool json_format(const Arguments&, std::string_view text) {
  std::string_view inside = stripped(text);
  for (const std::string_view fence : {"```json", "```Json", "```JSON", "```"})
    if (inside.starts_with(fence)) inside.remove_prefix(fence.size());
  if (inside.ends_with("```")) inside.remove_suffix(3);
  return is_python_json(stripped(inside));
}

bool title(const Arguments&, std::string_view text) {
  static const BoundedRegex brackets(R"(<<[^\n]+>>)", regex_options);
  const std::vector<std::string_view> titles = matches(brackets, text);
  return std::any_of(titles.begin(), titles.end(),
                     [](std::string_view match) { return !is_blank(right_stripped(left_stripped(match, "<"), ">")); });
}

bool two_responses(const Arguments&, std::string_view text) {
  const std::vector<std::string_view> parts = hone::split_at(text, "******");
  std::vector<std::string_view> responses;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!is_blank(parts[i]))
      responses.push_back(stripped(parts[i]));
    else if (i != 0 && i + 1 != parts.size())
      return false;
  }
  return responses.size() == 2 && responses[0] != responses[1];
}

bool repeat_prompt(const Arguments& arguments, std::string_view text) {
  return lower_case(stripped(text)).starts_with(lower_case(stripped(arguments.text("prompt_to_repeat"))));
}

bool end_checker(const Arguments& arguments, std::string_view text) {
  const std::string end = lower_case(stripped(arguments.text("end_phrase")));
  return lower_case(right_stripped(left_stripped(stripped(text), "\""), "\"")).ends_with(end);
}

bool quotation(const Arguments&, std::string_view text) {
  const std::string_view inside = stripped(text);
  return inside.size() > 1 && inside.front() == '"' && inside.back() == '"';
}

bool english_capital(const Arguments&, std::string_view text) { return is_all_upper(text) && is_language(text, "en"); }
bool english_lowercase(const Arguments&, std::string_view text) {
  return is_all_lower(text) && is_language(text, "en");
}

bool capital_word_frequency(const Arguments& arguments, std::string_view text) {
  return arguments.compare(static_cast<int64_t>(count_capital_words(text)), "capital_frequency", "capital_relation");
}

bool no_comma(const Arguments&, std::string_view text) { return text.find(',') == std::string_view::npos; }

}  // namespace

const std::map<std::string, InstructionCheck, std::less<>>& instruction_checks() {
  static const std::map<std::string, InstructionCheck, std::less<>> all{
      {"change_case:capital_word_frequency", capital_word_frequency},
      {"change_case:english_capital", english_capital},
      {"change_case:english_lowercase", english_lowercase},
      {"combination:repeat_prompt", repeat_prompt},
      {"combination:two_responses", two_responses},
      {"detectable_content:number_placeholders", number_placeholders},
      {"detectable_content:postscript", postscript},
      {"detectable_format:constrained_response", constrained_response},
      {"detectable_format:json_format", json_format},
      {"detectable_format:multiple_sections", multiple_sections},
      {"detectable_format:number_bullet_lists", number_bullet_lists},
      {"detectable_format:number_highlighted_sections", number_highlighted_sections},
      {"detectable_format:title", title},
      {"keywords:existence", existence},
      {"keywords:forbidden_words", forbidden_words},
      {"keywords:frequency", frequency},
      {"keywords:letter_frequency", letter_frequency},
      {"language:response_language", response_language},
      {"length_constraints:nth_paragraph_first_word", nth_paragraph_first_word},
      {"length_constraints:number_paragraphs", number_paragraphs},
      {"length_constraints:number_sentences", number_sentences},
      {"length_constraints:number_words", number_words},
      {"punctuation:no_comma", no_comma},
      {"startend:end_checker", end_checker},
      {"startend:quotation", quotation},
  };
  return all;
}

}  // namespace hone
