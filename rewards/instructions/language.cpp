#include "rewards/instructions/language.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <unordered_map>
#include <vector>

#include "core/base/check.h"
#include "core/text/unicode/bounded_regex.h"
#include "core/text/unicode/letter_case.h"
#include "core/text/unicode/unicode.h"
#include "rewards/answers/text.h"

namespace hone {

std::string_view language_profiles();  // rewards/instructions/language_profiles.txt

namespace {

constexpr size_t max_characters = 10000;  // of a text that count, as in langdetect

// Up to three characters as one number.
uint64_t pack(std::u32string_view gram) {
  uint64_t out = 0;
  for (const char32_t c : gram) out = out << 21 | c;
  return out;
}

std::u32string decoded(std::string_view text) {
  std::u32string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    out.push_back(c.value);
    at += c.length;
  }
  return out;
}

class Profiles {
 public:
  Profiles() {
    double frequency = 0;
    for (std::string_view rest = language_profiles(); !rest.empty();) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      const std::vector<std::string_view> words = words_of(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (words.empty() || words[0] == "#") continue;
      if (words[0] == "=") {
        languages_.emplace_back(words.at(1));
        continue;
      }
      int eighths = 0;
      std::from_chars(words[0].data(), words[0].data() + words[0].size(), eighths);
      frequency = std::exp2(eighths / 8.0);
      for (size_t i = 1; i < words.size(); ++i) add(words[i], frequency);
    }
  }

  // The language whose profile makes the n-grams likeliest.
  std::optional<std::string> likeliest(const std::vector<uint64_t>& grams) const {
    std::vector<double> scores(languages_.size());
    size_t known = 0;
    for (const uint64_t gram : grams) {
      const auto found = frequencies_.find(gram);
      if (found == frequencies_.end()) continue;
      ++known;
      for (const auto& [language, log_ratio] : found->second) scores[language] += log_ratio;
    }
    if (known == 0) return std::nullopt;
    return languages_[static_cast<size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin())];
  }

 private:
  struct Entry {
    size_t language;
    double log_ratio;  // log((frequency + smoothing) / smoothing): 0 for a language without the n-gram
  };

  void add(std::string_view written, double frequency) {
    constexpr double smoothing = 0.5e-4;
    std::u32string gram = decoded(written);
    std::replace(gram.begin(), gram.end(), U'_', U' ');
    frequencies_[pack(gram)].push_back({languages_.size() - 1, std::log1p(frequency / smoothing)});
  }

  std::vector<std::string> languages_;
  std::unordered_map<uint64_t, std::vector<Entry>> frequencies_;
};

struct ScriptLanguage {
  char32_t first, last;
  const char* language;
};

// Scripts that langdetect knows in one language.
constexpr std::array script_languages{
    ScriptLanguage{0x370, 0x3FF, "el"},   ScriptLanguage{0x590, 0x5FF, "he"},   ScriptLanguage{0x980, 0x9FF, "bn"},
    ScriptLanguage{0xA00, 0xA7F, "pa"},   ScriptLanguage{0xA80, 0xAFF, "gu"},   ScriptLanguage{0xB80, 0xBFF, "ta"},
    ScriptLanguage{0xC00, 0xC7F, "te"},   ScriptLanguage{0xC80, 0xCFF, "kn"},   ScriptLanguage{0xD00, 0xD7F, "ml"},
    ScriptLanguage{0xE00, 0xE7F, "th"},   ScriptLanguage{0xAC00, 0xD7A3, "ko"}, ScriptLanguage{0x3040, 0x30FF, "ja"},
    ScriptLanguage{0x4E00, 0x9FFF, "zh"},
};

// What an n-gram has in place of a character: a space for punctuation, one letter for variants.
char32_t folded(char32_t c) {
  const bool is_latin_letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  if (c < 0x80) return is_latin_letter ? c : U' ';
  if (c == 0xA0 || c == 0xAB || c == 0xB0 || c == 0xBB || (c >= 0x2000 && c <= 0x206F)) return U' ';
  if (c == 0x219) return 0x15F;                             // Romanian s with comma
  if (c == 0x21B) return 0x163;                             // Romanian t with comma
  if (c == 0x6CC) return 0x64A;                             // Farsi yeh
  if (c >= 0x1EA0 && c <= 0x1EFF) return char32_t{0x1EC3};  // Vietnamese
  return c;
}

// Without addresses, without repeated spaces, composed; Latin letters are dropped from a text of another script.
std::u32string cleaned(std::string_view text) {
  static const BoundedRegex addresses(
      R"(https?://[-_.?&~;+=/#0-9A-Za-z]{1,2076}|[-_.0-9A-Za-z]{1,64}@[-_0-9A-Za-z]{1,255}[-_.0-9A-Za-z]{1,255})",
      {.step_limit = 10'000'000});
  std::string without;
  size_t rest = 0;
  addresses.each(text, [&](std::span<const std::string_view> groups) {
    const auto begin = static_cast<size_t>(groups[0].data() - text.data());
    without.append(text, rest, begin - rest).push_back(' ');
    rest = begin + groups[0].size();
  });
  without.append(text, rest);
  std::u32string all = decoded(normalize(without, NormalForm::nfc)), out;
  all.resize(std::min(all.size(), max_characters));
  size_t latin = 0, other = 0;
  for (const char32_t c : all) {
    if (c == U' ' && !out.empty() && out.back() == U' ') continue;
    out.push_back(c);
    latin += c >= U'A' && c <= U'z';
    other += c >= 0x300 && (c < 0x1E00 || c > 0x1EFF);
  }
  if (latin * 2 < other) std::erase_if(out, [](char32_t c) { return c >= U'A' && c <= U'z'; });
  return out;
}

// The n-grams within words; of a word in capitals those before its second letter.
std::vector<uint64_t> grams_of(const std::u32string& text) {
  std::vector<uint64_t> out;
  std::u32string last = U" ";
  bool in_capitals = false;
  for (const char32_t character : text) {
    const char32_t c = folded(character), before = last.back();
    if (before == U' ') {
      last.assign(1, U' ');
      in_capitals = false;
      if (c == U' ') continue;
    } else if (last.size() == 3) {
      last.erase(0, 1);
    }
    last.push_back(c);
    in_capitals = is_upper(c) && (is_upper(before) || in_capitals);
    if (in_capitals) continue;
    const std::u32string_view view = last;
    for (size_t n = 1; n <= view.size(); ++n)
      if (n > 1 || c != U' ') out.push_back(pack(view.substr(view.size() - n)));
  }
  return out;
}

// The language of the script that most letters are of, if the script has only one.
std::optional<std::string> language_of_script(const std::u32string& text) {
  std::array<size_t, script_languages.size()> counts{};
  size_t letters = 0;
  for (const char32_t c : text) {
    letters += folded(c) != U' ';
    for (size_t s = 0; s < script_languages.size(); ++s)
      counts[s] += c >= script_languages[s].first && c <= script_languages[s].last;
  }
  const auto most = std::max_element(counts.begin(), counts.end());
  const size_t kana = counts[script_languages.size() - 2], han = counts[script_languages.size() - 1];
  if (kana > 0 && 2 * (kana + han) > letters) return "ja";
  if (2.2 * static_cast<double>(*most) <= static_cast<double>(letters)) return std::nullopt;
  return script_languages[static_cast<size_t>(most - counts.begin())].language;
}

}  // namespace

std::optional<std::string> detect_language(std::string_view text) {
  static const Profiles profiles;
  const std::u32string characters = cleaned(text);
  if (auto language = language_of_script(characters)) return language;
  return profiles.likeliest(grams_of(characters));
}

}  // namespace hone
