#include "core/text/tokenizer/normalizer.h"

#include <utility>
#include <vector>

#include "core/text/tokenizer/tokenizer_fields.h"
#include "core/text/unicode/unicode.h"

namespace hone {
namespace {

template <NormalForm form>
class UnicodeForm : public Normalizer {
 public:
  std::string apply(std::string text, bool) const override { return normalize(text, form); }
};

template <NormalForm form>
std::unique_ptr<Normalizer> make_form(const Json&, const std::string&) {
  return std::make_unique<UnicodeForm<form>>();
}

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string front) : front_(std::move(front)) {}
  std::string apply(std::string text, bool begins) const override {
    return text.empty() || !begins ? text : front_ + text;
  }

 private:
  std::string front_;
};

class Replace : public Normalizer {
 public:
  Replace(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string apply(std::string text, bool) const override { return replace_all(pattern_, text, content_); }

 private:
  Regex pattern_;
  std::string content_;
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  std::string apply(std::string text, bool begins) const override {
    size_t begin = 0, end = text.size();
    while (left_ && begins && begin < end) {
      const CodePoint c = code_point_at(text, begin);
      if (!is_space(c.value)) break;
      begin += c.length;
    }
    while (right_ && end > begin) {
      const size_t before = code_point_before(text, end);
      if (!is_space(code_point_at(text, before).value)) break;
      end = before;
    }
    return text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  std::string apply(std::string text, bool begins) const override {
    const size_t before = text.size();
    for (const auto& part : parts_) {
      text = part->apply(std::move(text), begins);
      check_growth(before, text.size());
    }
    return text;
  }
  std::vector<std::unique_ptr<Normalizer>> take_parts() && { return std::move(parts_); }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

std::unique_ptr<Normalizer> make_sequence(const Json& json, const std::string& where) {
  std::vector<std::unique_ptr<Normalizer>> parts;
  for (const Json& json_part : json.at("normalizers", where).as_array(where + ".normalizers")) {
    auto part = make_normalizer(json_part, concat(where, ".normalizers[", parts.size(), "]"));
    if (auto* inner = dynamic_cast<NormalizerSequence*>(part.get()))
      for (auto& each : std::move(*inner).take_parts()) parts.push_back(std::move(each));
    else if (part)
      parts.push_back(std::move(part));
  }
  return std::make_unique<NormalizerSequence>(std::move(parts));
}

const bool added = [] {
  auto& all = normalizers();
  all.add("NFC", make_form<NormalForm::nfc>);
  all.add("NFD", make_form<NormalForm::nfd>);
  all.add("NFKC", make_form<NormalForm::nfkc>);
  all.add("NFKD", make_form<NormalForm::nfkd>);
  all.add("Prepend", [](const Json& json, const std::string& where) -> std::unique_ptr<Normalizer> {
    return std::make_unique<Prepend>(json.at("prepend", where).as_string(where + ".prepend"));
  });
  all.add("Replace", [](const Json& json, const std::string& where) -> std::unique_ptr<Normalizer> {
    return std::make_unique<Replace>(pattern_field(json, where),
                                     json.at("content", where).as_string(where + ".content"));
  });
  all.add("Strip", [](const Json& json, const std::string& where) -> std::unique_ptr<Normalizer> {
    return std::make_unique<Strip>(bool_field(json, "strip_left", true, where),
                                   bool_field(json, "strip_right", true, where));
  });
  return all.add("Sequence", make_sequence);
}();

}  // namespace

Registry<NormalizerFactory>& normalizers() {
  static Registry<NormalizerFactory> instance("normalizer");
  return instance;
}

std::unique_ptr<Normalizer> make_normalizer(const Json& json, const std::string& where) {
  if (json.is_null()) return nullptr;
  return at_type(normalizers(), json, where)(json, where);
}

}  // namespace hone
