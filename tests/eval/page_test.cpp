// The evaluation's HTML page: well formed for any samples, and self-contained.
#include "eval/page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace hone::test {
namespace {

// Parses an HTML page of this project: checks that tags nest and quotes close, and counts elements and classes. Skips
// the contents of <script> and <style>.
class Parsed {
 public:
  explicit Parsed(const std::string& page) { complete = read(page) && open_.empty(); }
  std::map<std::string, int> count;
  bool complete = false;

 private:
  // False if a tag does not end, or does not close the open one.
  bool read(const std::string& page) {
    for (size_t at = 0; (at = page.find('<', at)) != std::string::npos;) {
      const size_t end = tag_end(page, at);
      if (end == std::string::npos) return false;
      const std::string tag = page.substr(at + 1, end - at - 1);
      const std::string name = tag.substr(0, tag.find_first_of(" \n", 1));
      at = end + 1;
      if (name[0] == '/') {
        if (open_.empty() || open_.back() != name.substr(1)) return false;
        open_.pop_back();
        continue;
      }
      ++count[name];
      if (const size_t marked = tag.find("class=\""); marked != std::string::npos)
        ++count["." + tag.substr(marked + 7, tag.find('"', marked + 7) - marked - 7)];
      if (name == "script" || name == "style") {
        at = page.find("</" + name + ">", at);
        if (at == std::string::npos) return false;
        at += name.size() + 3;
      } else if (tag.back() != '/' && name != "!doctype" && name != "meta" && name != "input") {
        open_.push_back(name);
      }
    }
    return true;
  }
  static size_t tag_end(const std::string& page, size_t at) {
    bool quoted = false;
    for (; at < page.size(); ++at) {
      if (page[at] == '"') quoted = !quoted;
      if (page[at] == '>' && !quoted) return at;
    }
    return std::string::npos;
  }
  std::vector<std::string> open_;
};

const std::string hostile = "</pre></details><script>alert(1)</script>\"'&amp; <b \xff\xfe \x01 \xc3\xa9";

EvalResult result_of(size_t right, size_t wrong) {
  EvalRun run;
  run.primary = "acc";
  for (size_t i = 0; i < right + wrong; ++i) {
    EvalSample& sample = run.samples.emplace_back();
    sample.doc_id = static_cast<int64_t>(i);
    sample.hash = std::to_string(i);
    sample.prompt = i % 2 ? Json(hostile) : Json(JsonArray{JsonObject{{"role", hostile}, {"content", "q"}}});
    sample.target = hostile;
    sample.details = {
        {"correct", i < right}, {hostile, hostile}, {"sampled", JsonArray{JsonObject{{"completion", hostile}}}}};
    sample.metrics = {{"acc", {i < right ? 1.0 : 0.0}}};
  }
  EvalResult out = summarize(std::move(run), 10, 1);
  out.task = "sums" + hostile;
  return out;
}

TEST(Html, EscapesMarkupAndReplacesInvalidText) {
  EXPECT_EQ(html_text("a<b> & \"c\" 'd'"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
  EXPECT_EQ(html_text("\xff|\xc3\xa9|\x01|\n|\t"), "\xef\xbf\xbd|\xc3\xa9|\xef\xbf\xbd|\n|\t");
}

TEST(Html, ThePageIsWellFormedWhateverTheSamplesSay) {
  const std::string page = html_page("Evaluation " + hostile, {result_of(3, 2), result_of(1, 1)}, {"<svg></svg>"});
  const Parsed parsed(page);
  EXPECT_TRUE(parsed.complete);
  EXPECT_EQ(parsed.count.at("details"), 7);
  EXPECT_EQ(parsed.count.at(".right"), 4);
  EXPECT_EQ(parsed.count.at(".wrong"), 3);
  EXPECT_EQ(parsed.count.at("svg"), 1);
  EXPECT_EQ(parsed.count.at("script"), 1);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  for (const char* outside : {"http:", "https:", "src=", "@import", "url("})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
}

TEST(Html, SaysWhatItIsOfAndFoldsSubtasks) {
  EvalResult result = result_of(2, 1);
  result.subtasks = {{"algebra", result.figures}, {hostile, result.figures}};
  const std::string page = html_page("e", {result}, {}, {{"model", "m" + hostile}, {"date", "2026-01-02 03:04 UTC"}});
  const Parsed parsed(page);
  EXPECT_TRUE(parsed.complete);
  EXPECT_EQ(parsed.count.at("details"), 4);  // three samples, and the table of subtasks
  EXPECT_NE(page.find("<code>2026-01-02 03:04 UTC</code>"), std::string::npos);
  EXPECT_NE(page.find(": 2 subtasks</summary>"), std::string::npos);
  EXPECT_LT(page.find("2 subtasks</summary>"), page.find("algebra"));
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
}

TEST(Html, OfManySamplesSomeOfEachKindAreShown) {
  const std::string page = html_page("e", {result_of(20, 30)}, {}, {}, 5);
  const Parsed parsed(page);
  EXPECT_EQ(parsed.count.at(".right"), 5);
  EXPECT_EQ(parsed.count.at(".wrong"), 5);
  EXPECT_NE(page.find("40 more samples"), std::string::npos);
}

}  // namespace
}  // namespace hone::test
