// The "http" reward: a remote reward model that takes OpenRLHF's payload, {"query": [prompt + completion], "prompts":
// [...], "labels": [...]}, and answers {"rewards": [...]}.
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/net/http_client.h"
#include "rewards/plugins/calls.h"
#include "rewards/plugins/text.h"

namespace hone {
namespace {

class HttpReward : public Reward {
 public:
  HttpReward() { calls_.retry_delay = 1; }

  void fields(Fields& f) override {
    f("url", url_text_, "address to post to, http:// or https://");
    f("headers", headers_text_, "additional headers, \"Name: value\"; ${NAME} is replaced by an environment variable");
    calls_.fields(f);
  }

  void prepare() override {
    HONE_CHECK(!url_text_.empty(), "url is empty; set the address to post to");
    url_ = parse_url(url_text_);
    shown_url_ = url_text_.substr(0, url_text_.find('?'));
    headers_.clear();
    for (size_t i = 0; i < headers_text_.size(); ++i) {
      const std::string& line = headers_text_[i];
      const size_t colon = line.find(':');
      // The message does not show the line, which may be a key.
      HONE_CHECK(colon != std::string::npos && colon > 0 && line.find_first_of("\r\n") == std::string::npos, "headers[",
                 i, "] is not of the form Name: value");
      const size_t value = line.find_first_not_of(' ', colon + 1);
      headers_.emplace_back(line.substr(0, colon), value == std::string::npos ? "" : expand_path(line.substr(value)));
    }
  }

  // A request may have costs, and the server may start after the run.
  void check(const RewardTrial&) const override {}

  RewardScore score(const Task& task, const Completion& completion) const override {
    RewardScore out;
    score_group(task, {&completion, 1}, {&out, 1});
    return out;
  }

  void score_group(const Task& task, std::span<const Completion> completions,
                   std::span<RewardScore> scores) const override {
    calls_.score(scores, [&](size_t begin, std::span<RewardScore> some) {
      post(task, completions.subspan(begin, some.size()), some);
    });
  }

  int64_t concurrency() const override { return calls_.workers; }

 private:
  void post(const Task& task, std::span<const Completion> completions, std::span<RewardScore> scores) const {
    const std::string& prompt = task.rendered.empty() ? task.prompt : task.rendered;
    JsonArray query;
    for (const Completion& completion : completions) query.emplace_back(prompt + completion.text);
    const Json payload = JsonObject{{"query", query},
                                    {"prompts", JsonArray(completions.size(), prompt)},
                                    {"labels", JsonArray(completions.size(), task.answer)}};
    const std::string body = payload.dump();
    const HttpResponse response = http_post(url_, {.body = body, .headers = headers_, .timeout = calls_.timeout});
    const std::string_view location = response.header("location");
    HONE_CHECK(location.empty() || response.status / 100 != 3, shown_url_, ": it redirects to ", plain_text(location),
               "; set url to that address");
    HONE_CHECK(response.status == 200, shown_url_, ": status ", response.status, ": ", plain_text(response.body));
    Json answer;
    try {
      answer = parse_json(response.body, "the answer");
    } catch (const Error&) {
      fail(shown_url_, ": the answer is not JSON: ", plain_text(response.body));
    }
    const Json* rewards = answer.is_object() ? answer.find("rewards") : nullptr;
    HONE_CHECK(rewards && rewards->is_array(), shown_url_,
               ": the answer has no list of rewards: ", plain_text(response.body));
    const JsonArray& values = rewards->as_array();
    HONE_CHECK(values.size() == scores.size(), shown_url_, ": the answer has ", values.size(), " rewards for ",
               scores.size(), " completions");
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = score_from_json(values[i]);
  }

  std::string url_text_;
  std::string shown_url_;  // without the query, which may hold a key
  std::vector<std::string> headers_text_;
  Url url_;
  std::vector<std::pair<std::string, std::string>> headers_;
  PluginCalls calls_;
};

[[maybe_unused]] const bool added = rewards().add("http", [] { return std::unique_ptr<Reward>(new HttpReward); });

}  // namespace
}  // namespace hone
