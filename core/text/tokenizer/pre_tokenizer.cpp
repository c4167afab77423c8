#include "core/text/tokenizer/pre_tokenizer.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/text/tokenizer/byte_level.h"
#include "core/text/tokenizer/tokenizer_fields.h"

namespace hone {
namespace {

// A match, or the text between two matches.
struct Section {
  size_t begin = 0, end = 0;
  bool match = false;
};

// Merges sections in order: emits complete ones and holds back the one that the next may join. The end emits the last.
using Behavior = void (*)(Section next, std::optional<Section>& held, FunctionRef<void(Section)> emit);

void hold(Section next, std::optional<Section>& held, FunctionRef<void(Section)> emit) {
  if (held) emit(*held);
  held = next;
}
void isolated(Section next, std::optional<Section>&, FunctionRef<void(Section)> emit) { emit(next); }
void removed(Section next, std::optional<Section>&, FunctionRef<void(Section)> emit) {
  if (!next.match) emit(next);
}
void contiguous(Section next, std::optional<Section>& held, FunctionRef<void(Section)> emit) {
  if (held && held->match == next.match)
    held->end = next.end;
  else
    hold(next, held, emit);
}
void merged_with_previous(Section next, std::optional<Section>& held, FunctionRef<void(Section)> emit) {
  if (next.match && held && !held->match) {
    held->end = next.end;
    held->match = true;
  } else {
    hold(next, held, emit);
  }
}
void merged_with_next(Section next, std::optional<Section>& held, FunctionRef<void(Section)> emit) {
  if (!next.match && held && held->match) {
    held->end = next.end;
    held->match = false;
  } else {
    hold(next, held, emit);
  }
}

const std::map<std::string, Behavior, std::less<>> behaviors = {{"Isolated", isolated},
                                                                {"Removed", removed},
                                                                {"Contiguous", contiguous},
                                                                {"MergedWithPrevious", merged_with_previous},
                                                                {"MergedWithNext", merged_with_next}};

class Split : public PreTokenizer {
 public:
  Split(Regex pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void split(std::string_view text, TextStart start, Emit emit) const override {
    const auto give = [&](Section s) {
      if (s.begin < s.end) emit(text.substr(s.begin, s.end - s.begin), s.begin == 0 ? start : TextStart::part);
    };
    std::optional<Section> held;
    size_t at = 0;
    pattern_.each(text, [&](size_t begin, size_t end) {
      if (at < begin) behavior_({at, begin, invert_}, held, give);
      behavior_({begin, end, !invert_}, held, give);
      at = end;
    });
    if (at < text.size()) behavior_({at, text.size(), invert_}, held, give);
    if (held) give(*held);
  }

 private:
  Regex pattern_;
  Behavior behavior_;
  bool invert_;
};

class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(bool prefix_space, bool use_regex, const std::string& where) : prefix_space_(prefix_space) {
    if (use_regex) words_.emplace(Regex(gpt2_pattern, where), isolated, false);
  }

  void split(std::string_view text, TextStart start, Emit emit) const override {
    std::string prefixed;
    if (prefix_space_ && start != TextStart::continued && !text.starts_with(' '))
      text = prefixed.append(" ").append(text);
    std::string spelled;
    const auto spell = [&](std::string_view word, TextStart word_start) {
      spelled.clear();
      append_byte_spelling(spelled, word);
      emit(spelled, word_start);
    };
    if (words_)
      words_->split(text, start, spell);
    else
      spell(text, start);
  }

 private:
  bool prefix_space_;
  std::optional<Split> words_;
};

enum class PrefixScheme : uint8_t { always, first, never };

class Metaspace : public PreTokenizer {
 public:
  Metaspace(const std::string& replacement, PrefixScheme scheme, bool cut, const std::string& where)
      : replacement_(replacement),
        scheme_(scheme),
        cut_(cut),
        spaces_(Regex::literal(" ", where)),
        words_(Regex::literal(replacement, where), merged_with_next, false) {}

  void split(std::string_view text, TextStart start, Emit emit) const override {
    std::string marked = replace_all(spaces_, text, replacement_);
    const bool prefix = (scheme_ == PrefixScheme::always && start != TextStart::continued) ||
                        (scheme_ == PrefixScheme::first && start == TextStart::text);
    if (prefix && !marked.starts_with(replacement_)) marked.insert(0, replacement_);
    if (cut_)
      words_.split(marked, start, emit);
    else
      emit(marked, start);
  }

 private:
  std::string replacement_;
  PrefixScheme scheme_;
  bool cut_;
  Regex spaces_;
  Split words_;
};

class PreTokenizerSequence : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<std::unique_ptr<PreTokenizer>> parts) : parts_(std::move(parts)) {}
  void split(std::string_view text, TextStart start, Emit emit) const override {
    split_from(0, text, start, text.size(), emit);
  }
  std::vector<std::unique_ptr<PreTokenizer>> take_parts() && { return std::move(parts_); }

 private:
  void split_from(size_t part, std::string_view text, TextStart start, size_t original_bytes, Emit emit) const {
    if (part == parts_.size()) return emit(text, start);
    parts_[part]->split(text, start, [&](std::string_view word, TextStart word_start) {
      check_growth(original_bytes, word.size());
      if (!word.empty()) split_from(part + 1, word, word_start, original_bytes, emit);
    });
  }
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

std::unique_ptr<PreTokenizer> make_split(const Json& json, const std::string& where) {
  const std::string name = string_field(json, "behavior", "Isolated", where);
  const auto behavior = behaviors.find(name);
  HONE_CHECK(behavior != behaviors.end(), where, ".behavior: unknown '", name, "'");
  return std::make_unique<Split>(pattern_field(json, where), behavior->second,
                                 bool_field(json, "invert", false, where));
}

std::unique_ptr<PreTokenizer> make_metaspace(const Json& json, const std::string& where) {
  static const std::map<std::string, PrefixScheme, std::less<>> schemes = {
      {"always", PrefixScheme::always}, {"first", PrefixScheme::first}, {"never", PrefixScheme::never}};
  const std::string name = string_field(json, "prepend_scheme",
                                        bool_field(json, "add_prefix_space", true, where) ? "always" : "never", where);
  const auto scheme = schemes.find(name);
  HONE_CHECK(scheme != schemes.end(), where, ".prepend_scheme: '", name, "' is unknown; use always, first or never");
  return std::make_unique<Metaspace>(string_field(json, "replacement", "\u2581", where), scheme->second,
                                     bool_field(json, "split", true, where), where);
}

std::unique_ptr<PreTokenizer> make_sequence(const Json& json, const std::string& where) {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  for (const Json& json_part : json.at("pretokenizers", where).as_array(where + ".pretokenizers")) {
    auto part = make_pre_tokenizer(json_part, concat(where, ".pretokenizers[", parts.size(), "]"));
    if (auto* inner = dynamic_cast<PreTokenizerSequence*>(part.get()))
      for (auto& each : std::move(*inner).take_parts()) parts.push_back(std::move(each));
    else
      parts.push_back(std::move(part));
  }
  return std::make_unique<PreTokenizerSequence>(std::move(parts));
}

const bool added = [] {
  auto& all = pre_tokenizers();
  all.add("Split", make_split);
  all.add("Metaspace", make_metaspace);
  all.add("Sequence", make_sequence);
  all.add("ByteLevel", [](const Json& json, const std::string& where) -> std::unique_ptr<PreTokenizer> {
    return std::make_unique<ByteLevel>(bool_field(json, "add_prefix_space", true, where),
                                       bool_field(json, "use_regex", true, where), where);
  });
  all.add("Digits", [](const Json& json, const std::string& where) -> std::unique_ptr<PreTokenizer> {
    return std::make_unique<Split>(Regex("\\p{N}", where),
                                   bool_field(json, "individual_digits", false, where) ? isolated : contiguous, false);
  });
  all.add("Punctuation", [](const Json&, const std::string& where) -> std::unique_ptr<PreTokenizer> {
    return std::make_unique<Split>(Regex("[!-/:-@\\[-`{-~\\p{P}]", where), isolated, false);
  });
  all.add("Whitespace", [](const Json&, const std::string& where) -> std::unique_ptr<PreTokenizer> {
    return std::make_unique<Split>(Regex("\\w+|[^\\w\\s]+", where), removed, true);
  });
  return all.add("WhitespaceSplit", [](const Json&, const std::string& where) -> std::unique_ptr<PreTokenizer> {
    return std::make_unique<Split>(Regex("\\s", where), removed, false);
  });
}();

}  // namespace

Registry<PreTokenizerFactory>& pre_tokenizers() {
  static Registry<PreTokenizerFactory> instance("pre-tokenizer");
  return instance;
}

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Json& json, const std::string& where) {
  if (json.is_null()) return std::make_unique<PreTokenizerSequence>(std::vector<std::unique_ptr<PreTokenizer>>{});
  return at_type(pre_tokenizers(), json, where)(json, where);
}

}  // namespace hone
