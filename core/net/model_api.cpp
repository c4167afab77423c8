#include "core/net/model_api.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "core/net/http_channel.h"

namespace hone {
namespace {

// A failure that may pass.
class PassingError : public Error {
 public:
  PassingError(const std::string& message, std::optional<double> wait) : Error(message), retry_after(wait) {}
  std::optional<double> retry_after;  // seconds
};

// At most 60 bytes of a text for a message.
std::string beginning(std::string_view text) {
  constexpr size_t most = 60;
  return text.size() > most ? std::string(text.substr(0, most)) + "..." : std::string(text);
}

// Seconds from a Retry-After header: a number or a date.
std::optional<double> retry_after(std::string_view header) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(header.data(), header.data() + header.size(), seconds);
  if (error == std::errc() && end == header.data() + header.size() && seconds >= 0 && std::isfinite(seconds))
    return seconds;
  std::tm date{};
  const char* rest = strptime(std::string(header).c_str(), "%a, %d %b %Y %H:%M:%S GMT", &date);
  if (!rest) return std::nullopt;
  return std::max(0.0, std::difftime(timegm(&date), std::time(nullptr)));
}

// The message of an error response.
std::string message_of(const HttpResponse& response) {
  try {
    const Json body = parse_json(response.body, "response");
    const Json* error = body.is_object() ? body.find("error") : nullptr;
    const Json* message = error && error->is_object() ? error->find("message") : error;
    if (message && message->is_string()) return message->as_string();
  } catch (const Error&) {  // not JSON: the text itself is the message
  }
  return beginning(response.body);
}

void read_response(const Json& response, const std::function<void(const Json&)>& read) {
  try {
    static_cast<void>(response.as_object("the response"));
    read(response);
  } catch (const ApiRefusal&) {
    throw;
  } catch (const Error& error) {  // a wrong type or a missing member
    throw PassingError(concat("the response is not as expected: ", error.what()), std::nullopt);
  }
}

}  // namespace

std::string choice_finish_reason(const Json& choice) {
  const Json* reason = choice.find("finish_reason");
  return reason && reason->is_string() ? reason->as_string() : "stop";
}

std::string choice_text(const Json& choice, bool chat) {
  const Json* text = chat ? choice.at("message", "choice").find("content") : &choice.at("text", "choice");
  return !text || text->is_null() ? "" : text->as_string("content");
}

const Json& first_choice(const Json& response) {
  const JsonArray& choices = response.at("choices", "response").as_array("choices");
  HONE_CHECK(!choices.empty(), "the response has no choices");
  static_cast<void>(choices.front().as_object("choices[0]"));
  return choices.front();
}

int64_t usage_count(const Json& response, const char* name) {
  const Json* usage = response.find("usage");
  const Json* value = usage && usage->is_object() ? usage->find(name) : nullptr;
  return value && value->is_int() ? std::max<int64_t>(0, value->as_int()) : 0;
}

ModelApi::ModelApi(ModelApiConfig config) : config_(std::move(config)), url_(parse_url(config_.base_url)) {
  std::string& path = url_.target;
  while (path.ends_with('/')) path.pop_back();
  if (path.empty()) path = "/v1";
  for (const std::string_view end : {"/chat/completions", "/completions"})
    if (path.ends_with(end)) path.resize(path.size() - end.size());
  if (const char* key = config_.api_key_env.empty() ? nullptr : std::getenv(config_.api_key_env.c_str()))
    api_key_ = key;
  for (const char c : api_key_)
    HONE_CHECK(c > ' ' && c < 0x7f, "the API key in ", config_.api_key_env,
               " has a space, a line end or another character that no key has");
}

ModelApi::~ModelApi() = default;

void ModelApi::post(const std::string& path, const Json& body, const std::function<void(const Json&)>& read) {
  const std::string text = body.dump();
  for (int64_t attempt = 0;; ++attempt) {
    try {
      const Json response = post_once(path, text);
      read_response(response, read);
      return add_usage(response);
    } catch (const PassingError& error) {
      if (attempt >= config_.max_retries)
        throw Error(concat("failed after ", attempt + 1, " attempts: ", error.what()));
      wait_to_retry(attempt, error.retry_after);
    }
  }
}

// A channel connects again after a failure, so that it is kept in any case.
Json ModelApi::post_once(const std::string& path, const std::string& body) {
  wait_for_turn();
  HttpRequest request{.body = body, .timeout = config_.request_timeout};
  if (!api_key_.empty()) request.headers.emplace_back("Authorization", "Bearer " + api_key_);
  std::unique_ptr<HttpChannel> channel = take_channel();
  HttpResponse response;
  std::optional<std::string> failure;  // no connection, a timeout, an incomplete response
  try {
    response = channel->post(url_.target + path, request);
  } catch (const Error& error) {  // may pass
    failure = error.what();
  }
  {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(channel));
  }
  if (failure) throw PassingError(*failure, std::nullopt);
  const auto described = [&] { return without_key(concat("status ", response.status, ": ", message_of(response))); };
  const int status = response.status;
  if (status == 408 || status == 429 || status / 100 == 5)
    throw PassingError(described(), retry_after(response.header("retry-after")));
  if (status == 404 && path == "/completions")
    throw ApiRefusal(described() + " (a server of chats only needs --apply-chat-template)");
  if (status == 401 || status == 403 || status == 404) throw ApiRefusal(described());
  if (status / 100 == 3)
    throw ApiRefusal(concat("it redirects to ", beginning(response.header("location")), "; give that address"));
  HONE_CHECK(status == 200, described());
  Json out;
  try {
    out = parse_json(response.body, "the response");
  } catch (const Error&) {
    throw PassingError("the response is not JSON: " + without_key(beginning(response.body)), std::nullopt);
  }
  // Routers pass a model's errors on with status 200.
  if (const Json* error = out.is_object() ? out.find("error") : nullptr; error && !error->is_null())
    throw PassingError("the response is an error: " + without_key(message_of(response)), std::nullopt);
  return out;
}

// Attempts begin at equal distances, so that a burst cannot exceed the server's limit.
void ModelApi::wait_for_turn() {
  if (config_.requests_per_minute <= 0) return;
  using Clock = std::chrono::steady_clock;
  const auto distance =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(60 / config_.requests_per_minute));
  Clock::time_point turn;
  {
    const std::lock_guard lock(mutex_);
    turn = std::max(Clock::now(), next_turn_);
    next_turn_ = turn + distance;
  }
  std::this_thread::sleep_until(turn);
}

// Waits as the server asks, else 0.5, 1, 2, ... seconds.
void ModelApi::wait_to_retry(int64_t attempt, std::optional<double> asked) {
  const double backoff = 0.5 * std::exp2(static_cast<double>(std::min<int64_t>(attempt, 20)));
  const double seconds = std::min(asked.value_or(backoff), config_.max_retry_wait);
  {
    const std::lock_guard lock(mutex_);
    ++usage_.retries;
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

std::unique_ptr<HttpChannel> ModelApi::take_channel() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<HttpChannel> out = std::move(idle_.back());
      idle_.pop_back();
      return out;
    }
  }
  return std::make_unique<HttpChannel>(url_);
}

ApiUsage ModelApi::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

void ModelApi::add_usage(const Json& response) {
  const std::lock_guard lock(mutex_);
  ++usage_.requests;
  usage_.prompt_tokens += usage_count(response, "prompt_tokens");
  usage_.completion_tokens += usage_count(response, "completion_tokens");
}

std::string ModelApi::without_key(std::string text) const {
  if (api_key_.empty()) return text;
  for (size_t at; (at = text.find(api_key_)) != std::string::npos;) text.replace(at, api_key_.size(), "***");
  return text;
}

}  // namespace hone
