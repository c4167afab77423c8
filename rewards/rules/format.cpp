// The "format" reward: 1 if the completion has blocks <tag>...</tag>, each exactly once and in order, and matches a
// pattern if one is set.
#include <optional>

#include "core/text/unicode/bounded_regex.h"
#include "rewards/answers/text.h"
#include "rewards/reward.h"

namespace hone {

namespace {

class Format : public Reward {
 public:
  void fields(Fields& f) override {
    f("tags", tags_, "names of required blocks <tag>...</tag>, each exactly once, in this order, not nested");
    f("opened", opened_, "the prompt ends with the first opening tag, so the completion starts inside that block");
    f("nothing_else", nothing_else_, "allow only white space outside the blocks");
    f("pattern", pattern_,
      "regular expression (PCRE2; '.' matches newlines) that must match somewhere; anchor it with ^ and $; empty = "
      "none");
    f("max_bytes", max_bytes_,
      "maximum bytes of a completion to match; a longer one counts as not matching, which bounds the time");
    f("step_limit", step_limit_, "maximum match steps of the pattern; past it a completion counts as not matching");
  }
  void prepare() override {
    for (const std::string& tag : tags_)
      HONE_CHECK(!tag.empty() && tag.find_first_of("<> /") == std::string::npos, "tags: '", tag,
                 "' is not a tag name (write \"think\")");
    HONE_CHECK(!opened_ || !tags_.empty(), "opened = true needs at least one entry in tags");
    HONE_CHECK(max_bytes_ > 0 && step_limit_ > 0, "max_bytes (", max_bytes_, ") and step_limit (", step_limit_,
               ") must be positive");
    if (!pattern_.empty())
      regex_.emplace(pattern_, BoundedRegexOptions{.dot_all = true, .step_limit = static_cast<uint64_t>(step_limit_)});
  }
  RewardScore score(const Task&, const Completion& completion) const override {
    std::string wrong = check_tags(completion.text);
    if (wrong.empty() && regex_) wrong = check_pattern(completion.text);
    return {.score = wrong.empty() ? 1.0 : 0.0, .note = std::move(wrong)};
  }

 private:
  // What is wrong, or "".
  std::string check_tags(std::string_view text) const {
    size_t at = 0;
    for (size_t i = 0; i < tags_.size(); ++i) {
      const std::string open = "<" + tags_[i] + ">", close = "</" + tags_[i] + ">";
      size_t inside = 0;
      if (i == 0 && opened_) {
        if (text.find(open) != std::string_view::npos) return "a second " + open;
      } else {
        const size_t begin = text.find(open);
        if (begin == std::string_view::npos) return "no " + open;
        if (begin < at) return open + " is inside another block";
        if (text.find(open, begin + open.size()) != std::string_view::npos) return "a second " + open;
        if (nothing_else_ && !trimmed(text.substr(at, begin - at)).empty()) return "text before " + open;
        inside = begin + open.size();
      }
      const size_t end = text.find(close);
      if (end == std::string_view::npos) return "no " + close;
      if (end < inside) return close + " before " + open;
      at = end + close.size();
      if (text.find(close, at) != std::string_view::npos) return "a second " + close;
    }
    if (nothing_else_ && !tags_.empty() && !trimmed(text.substr(at)).empty()) return "text after the last block";
    return "";
  }

  std::string check_pattern(std::string_view text) const {
    if (text.size() > static_cast<size_t>(max_bytes_)) return "longer than max_bytes";
    const BoundedRegex::Result result = regex_->search(text);
    if (result == BoundedRegex::Result::found) return "";
    return result == BoundedRegex::Result::gave_up ? "the pattern took too many steps" : "the pattern does not match";
  }

  std::vector<std::string> tags_ = {"think"};
  bool opened_ = false, nothing_else_ = false;
  std::string pattern_;
  int64_t max_bytes_ = int64_t{1} << 16, step_limit_ = 1'000'000;
  std::optional<BoundedRegex> regex_;
};

[[maybe_unused]] const bool added = rewards().add("format", [] { return std::unique_ptr<Reward>(new Format); });

}  // namespace

}  // namespace hone
