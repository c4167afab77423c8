// The "http" environment: a server with OpenEnv's HTTP interface, POST /reset, POST /step and GET /state.
//
//   /reset {"seed": 7, "episode_id": "...", "row": {...}}            {"observation": {...}, "reward": null}
//   /step {"action": {"message": "..."}, "episode_id": "..."}        {"observation": {...}, "reward": 1, "done": true}
//   /state?episode_id=...                                            {"episode_id": "...", "step_count": 2, ...}
//
// A server plays one episode at a time, unless it tells episodes apart by episode_id (episodes_per_server).
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>

#include "core/io/file.h"
#include "core/net/http_client.h"
#include "posttrain/rl/environments/answers.h"
#include "rewards/plugins/text.h"

namespace hone {
namespace {

// Members of an observation that hold its text, in the order in which they are looked for.
constexpr std::array<const char*, 9> kTextMembers = {"message", "text",   "content", "prompt",     "echoed_message",
                                                     "result",  "output", "stdout",  "observation"};

struct HttpEnvironmentSettings {
  std::vector<std::string> urls;
  std::string action = R"({"message": "{completion}"})", observation, state_reward;
  bool check_state = false;
  std::vector<std::pair<std::string, std::string>> headers;
};

// The servers of a run, and how many episodes each has.
class ServerList {
 public:
  explicit ServerList(size_t count) : episodes_(count, 0) {}
  // The server with the fewest episodes.
  size_t acquire() {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::min_element(episodes_);
    ++*found;
    return static_cast<size_t>(found - episodes_.begin());
  }
  void release(size_t server) {
    const std::lock_guard lock(mutex_);
    --episodes_[server];
  }

 private:
  std::mutex mutex_;
  std::vector<int64_t> episodes_;
};

// Replaces {completion} in the texts of a JSON value.
Json fill_action(const Json& action, const std::string& completion) {
  constexpr std::string_view hole = "{completion}";
  if (action.is_string()) {
    std::string out = action.as_string();
    if (const size_t at = out.find(hole); at != out.npos) out.replace(at, hole.size(), completion);
    return out;
  }
  if (action.is_array()) {
    JsonArray out;
    for (const Json& item : action.as_array()) out.push_back(fill_action(item, completion));
    return out;
  }
  if (!action.is_object()) return action;
  Json out = JsonObject{};
  for (const auto& [name, value] : action.as_object()) out.set(name, fill_action(value, completion));
  return out;
}

// The text that a policy reads of an observation.
std::string observation_text(const Json& observation, const std::string& member) {
  if (observation.is_string()) return observation.as_string();
  const auto text_of = [](const Json& value) { return value.is_string() ? value.as_string() : value.dump(); };
  if (!observation.is_object()) return observation.dump();
  if (!member.empty()) {
    const Json* found = observation.find(member);
    HONE_CHECK(found, "its observation has no member ", member, ": ", plain_text(observation.dump()));
    return text_of(*found);
  }
  for (const char* name : kTextMembers)
    if (const Json* found = observation.find(name); found && found->is_string()) return found->as_string();
  return observation.dump();
}

class HttpEnvironment final : public Environment {
 public:
  HttpEnvironment(const HttpEnvironmentSettings& settings, std::shared_ptr<ServerList> servers, double turn_timeout)
      : settings_(settings),
        action_(parse_json(settings.action, "action")),
        servers_(std::move(servers)),
        server_(servers_->acquire()),
        url_(settings_.urls[server_]),
        turn_timeout_(turn_timeout) {}
  ~HttpEnvironment() override { servers_->release(server_); }

  EpisodeStart reset(const Task& task, uint64_t seed) override {
    static std::atomic<uint64_t> episodes{0};
    episode_ = concat("hone-", ::getpid(), "-", ++episodes);
    const Json answer = post(
        "/reset",
        JsonObject{{"seed", static_cast<int64_t>(seed)}, {"episode_id", episode_}, {"row", environment_row(task)}});
    if (settings_.check_state) state();
    EpisodeStart out;
    const Json& observation = answer.at("observation", "its answer to /reset");
    if (is_conversation(observation)) {
      out = start_from_json(observation);
      return out;
    }
    out.observation = observation_text(observation, settings_.observation);
    if (const Json* tools = observation.is_object() ? observation.find("tools") : nullptr; tools && tools->is_array())
      out.tools = tools->as_array();
    return out;
  }

  EpisodeStep step(const PolicyTurn& turn) override {
    EpisodeStep out = take_turn(turn);
    if (out.done && !settings_.state_reward.empty())
      out.reward = state_reward();
    else if (settings_.check_state)
      state();
    return out;
  }

  std::optional<double> finish(const std::string&) override {
    return settings_.state_reward.empty() ? std::nullopt : state_reward();
  }

 private:
  EpisodeStep take_turn(const PolicyTurn& turn) const {
    if (turn.tool_calls.empty()) return step_action(fill_action(action_, turn.completion), "");
    EpisodeStep out;  // the calls of a turn, one after another
    for (const ToolCall& call : turn.tool_calls) {
      EpisodeStep one = step_action(
          JsonObject{{"type", "call_tool"}, {"tool_name", call.name}, {"arguments", call.arguments}}, call.name);
      std::ranges::move(one.messages, std::back_inserter(out.messages));
      if (one.reward) out.reward = out.reward.value_or(0) + *one.reward;
      out.done = one.done;
      if (out.done) break;
    }
    return out;
  }

  static bool is_conversation(const Json& observation) {
    const Json* messages = observation.is_object() ? observation.find("messages") : nullptr;
    return messages && messages->is_array() && !messages->as_array().empty() &&
           messages->as_array().front().is_object() && messages->as_array().front().find("role");
  }

  // tool: the name of the tool that was called; "": none.
  EpisodeStep step_action(Json action, const std::string& tool) const {
    const Json answer = post(
        "/step", JsonObject{{"action", std::move(action)}, {"timeout_s", turn_timeout_}, {"episode_id", episode_}});
    EpisodeStep out{.messages = {}, .reward = reward_from_json(answer)};
    const Json* done = answer.find("done");
    out.done = done && done->is_bool() && done->as_bool();
    const Json& observation = answer.at("observation", "its answer to /step");
    if (is_conversation(observation))
      out.messages = messages_from_json(observation.at("messages"));
    else if (tool.empty())
      out.messages = {{"user", observation_text(observation, settings_.observation), {}}};
    else
      out.messages = {{"tool", observation_text(observation, settings_.observation), JsonObject{{"name", tool}}}};
    return out;
  }

  // The server's state of this episode. Throws Error if it is that of another one.
  Json state() const {
    const std::string address = address_of("/state");
    const Json out = read_answer(address, http_get(parse_url(address + "?episode_id=" + episode_),
                                                   {.headers = settings_.headers, .timeout = turn_timeout_}));
    HONE_CHECK(out.is_object(), address, ": the answer is ", out.kind_name(), "; it must be an object");
    const Json* id = out.find("episode_id");
    HONE_CHECK(!id || id->is_null() || *id == Json(episode_), address, ": the server plays the episode ",
               plain_text(id ? id->dump() : ""), ", not ", episode_,
               "; another client uses it, or it does not keep an episode between requests");
    return out;
  }
  std::optional<double> state_reward() const {
    const Json now = state();
    const Json* reward = now.find(settings_.state_reward);
    HONE_CHECK(reward, address_of("/state"), ": the state has no member ", settings_.state_reward, ": ",
               plain_text(now.dump()));
    return reward_from_json(JsonObject{{"reward", *reward}});
  }

  std::string address_of(const char* path) const { return url_.substr(0, url_.find_last_not_of('/') + 1) + path; }

  Json post(const char* path, const Json& payload) const {
    const std::string address = address_of(path);
    const std::string body = payload.dump();
    const Json answer = read_answer(
        address, http_post(parse_url(address), {.body = body, .headers = settings_.headers, .timeout = turn_timeout_}));
    HONE_CHECK(answer.is_object() && answer.find("observation"), address,
               ": the answer has no observation: ", plain_text(answer.dump()));
    return answer;
  }

  static Json read_answer(const std::string& address, const HttpResponse& response) {
    HONE_CHECK(response.status == 200, address, ": status ", response.status, ": ", plain_text(response.body));
    try {
      return parse_json(response.body, "the answer");
    } catch (const Error&) {  // adds the address, and quotes the answer
      fail(address, ": the answer is not JSON: ", plain_text(response.body));
    }
  }

  const HttpEnvironmentSettings settings_;
  const Json action_;
  const std::shared_ptr<ServerList> servers_;
  const size_t server_;
  const std::string url_;
  const double turn_timeout_;
  std::string episode_;
};

class HttpEnvironments : public EnvironmentSettings {
 public:
  void fields(Fields& f) override {
    f("urls", settings_.urls, "addresses of the servers, http:// or https://");
    f("action", settings_.action,
      "JSON text of the action for a completion without tool calls; {completion} in it is replaced by the completion");
    f("observation", settings_.observation,
      "member of an observation that the policy reads; empty = message, text, content, prompt, result, ..., else all "
      "of it as JSON");
    f("check_state", settings_.check_state,
      "read /state after /reset and after each turn: the trajectory fails if the server plays another episode_id");
    f("state_reward", settings_.state_reward,
      "member of /state that is the reward of an episode, read when it has ended; empty = the rewards of /step");
    f("episodes_per_server", episodes_per_server_,
      "episodes that a server plays at once; above 1 it must tell them apart by episode_id");
    f("headers", headers_text_, "additional headers, \"Name: value\"; ${NAME} is replaced by an environment variable");
    f.require("episodes_per_server", episodes_per_server_ > 0 && episodes_per_server_ <= 4096,
              "episodes_per_server must be in [1, 4096]");
  }

  void prepare() override {
    HONE_CHECK(!settings_.urls.empty(), "urls is empty; set the addresses of the servers");
    for (const std::string& url : settings_.urls) parse_url(url);
    HONE_CHECK(parse_json(settings_.action, "action").is_object(), "action must be the JSON text of an object");
    settings_.headers.clear();
    for (size_t i = 0; i < headers_text_.size(); ++i) {
      const std::string& line = headers_text_[i];
      const size_t colon = line.find(':');
      // The message does not show the line, which may be a key.
      HONE_CHECK(colon != std::string::npos && colon > 0 && line.find_first_of("\r\n") == std::string::npos, "headers[",
                 i, "] is not of the form Name: value");
      const size_t value = line.find_first_not_of(' ', colon + 1);
      settings_.headers.emplace_back(line.substr(0, colon),
                                     value == std::string::npos ? "" : expand_path(line.substr(value)));
    }
    servers_ = std::make_shared<ServerList>(settings_.urls.size());
  }

  // A request may have costs, and the servers may start after the run.
  void check(const Task*) const override {}
  std::unique_ptr<Environment> make(double turn_timeout) const override {
    return std::make_unique<HttpEnvironment>(settings_, servers_, turn_timeout);
  }
  int64_t max_concurrent() const override { return std::ssize(settings_.urls) * episodes_per_server_; }

 private:
  HttpEnvironmentSettings settings_;
  std::vector<std::string> headers_text_;
  int64_t episodes_per_server_ = 1;
  std::shared_ptr<ServerList> servers_;
};

[[maybe_unused]] const bool added =
    environments().add("http", [] { return std::unique_ptr<EnvironmentSettings>(new HttpEnvironments); });

}  // namespace
}  // namespace hone
