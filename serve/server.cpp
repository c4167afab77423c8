#include "serve/server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>

#include "core/base/stopwatch.h"
#include "core/net/http_error.h"
#include "serve/index_page.h"
#include "serve/response.h"
#include "serve/server_metrics.h"

namespace hone {

void ServerConfig::fields(Fields& f) {
  f("http", http, "connections");
  f("api_key_file", api_key_file,
    "file with one key a line, one of which a request must bear; none = everybody may ask");
  access.fields(f);
  f("max_pending_completions", max_pending_completions,
    "replies waiting or being written; requests that would be more are answered 429");
  f("max_answer_bytes", max_answer_bytes,
    "longest answer that one request may ask for, reckoned from its n, max_tokens, logprobs and echo");
  f("max_pending_bytes", max_pending_bytes,
    "of all answers that are waited for, reckoned so; requests that would be more are answered 429");
  f.require("max_pending_completions", max_pending_completions > 0, "max_pending_completions must be positive");
  f.require("max_answer_bytes", max_answer_bytes > 0 && max_answer_bytes <= max_pending_bytes,
            "max_answer_bytes must be in [1, max_pending_bytes]");
}

static int64_t now_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

struct Server::Impl final : HttpApp {
  Impl(Engine& engine, ServedModel served, const ServerConfig& config)
      : model(std::move(served)),
        max_pending_completions(config.max_pending_completions),
        max_pending_bytes(config.max_pending_bytes),
        started(now_seconds()),
        gate(config.access, config.http.host, ApiKeys::of(config.api_key_file)),
        loop(engine, config.max_pending_completions) {
    model.max_pending_completions = max_pending_completions;
    model.max_answer_bytes = config.max_answer_bytes;
  }

  struct Route : HttpRoute {
    void (Impl::*answer)(std::shared_ptr<HttpTransaction>);
  };
  static const std::map<std::string, Route>& routes();

  std::optional<HttpServerResponse> reject_early(const HttpRequestInfo& head) override;
  HttpHeaders headers_for(const HttpRequestInfo& head) override { return gate.headers_for(head); }
  void handle(std::shared_ptr<HttpTransaction> exchange) override;
  HttpServerResponse error(int status, const std::string& message) override;

  void completions(std::shared_ptr<HttpTransaction> exchange) { ask(std::move(exchange), parse_completion, "cmpl-"); }
  void chat(std::shared_ptr<HttpTransaction> exchange) { ask(std::move(exchange), parse_chat, "chatcmpl-"); }
  void models(std::shared_ptr<HttpTransaction> exchange);
  void health(std::shared_ptr<HttpTransaction> exchange);
  void metrics(std::shared_ptr<HttpTransaction> exchange);
  void front_page(std::shared_ptr<HttpTransaction> exchange) { exchange->reply(index_page_response()); }
  void ask(std::shared_ptr<HttpTransaction> exchange, OpenAiRequest (*parse)(const Json&, const ServedModel&),
           const char* prefix);
  HttpServerResponse busy(const std::string& what) const;
  struct PendingBytes;
  std::shared_ptr<const PendingBytes> hold(int64_t bytes);

  ServedModel model;
  const int64_t max_pending_completions, max_pending_bytes, started;
  const ServeGate gate;
  ServerMetrics counts;
  std::atomic<uint64_t> num_requests{0};
  const std::shared_ptr<std::atomic<int64_t>> pending_bytes = std::make_shared<std::atomic<int64_t>>(0);  // held
  std::unique_ptr<HttpServer> http;  // set once, before anything arrives
  AsyncEngine loop;
};

const std::map<std::string, Server::Impl::Route>& Server::Impl::routes() {
  static const std::map<std::string, Route> table{{"/v1/completions", {{"POST", false}, &Impl::completions}},
                                                  {"/v1/chat/completions", {{"POST", false}, &Impl::chat}},
                                                  {"/v1/models", {{"GET", false}, &Impl::models}},
                                                  {"/metrics", {{"GET", false}, &Impl::metrics}},
                                                  {"/health", {{"GET", true}, &Impl::health}},
                                                  {"/", {{"GET", true}, &Impl::front_page}}};
  return table;
}

std::optional<HttpServerResponse> Server::Impl::reject_early(const HttpRequestInfo& head) {
  const auto route = routes().find(head.path);
  const bool known = route != routes().end();
  std::optional<HttpServerResponse> out = gate.refusal(head, known ? &route->second : nullptr);
  if (out) counts.answered(known ? head.path : "other", out->status, 0);
  return out;
}

HttpServerResponse Server::Impl::error(int status, const std::string& message) {
  counts.answered("other", status, 0);
  return {.status = status, .body = error_json(status, message).dump()};
}

void Server::Impl::handle(std::shared_ptr<HttpTransaction> exchange) {
  (this->*routes().at(exchange->head().path).answer)(std::move(exchange));
}

// Takes so many bytes of what answers may have together, until nobody holds what is returned; null where there are not
// so many.
struct Server::Impl::PendingBytes {
  PendingBytes(std::shared_ptr<std::atomic<int64_t>> of, int64_t count) : total(std::move(of)), bytes(count) {
    *total += bytes;
  }
  ~PendingBytes() { *total -= bytes; }
  const std::shared_ptr<std::atomic<int64_t>> total;
  const int64_t bytes;
};

std::shared_ptr<const Server::Impl::PendingBytes> Server::Impl::hold(int64_t bytes) {
  auto out = std::make_shared<const PendingBytes>(pending_bytes, bytes);
  return *pending_bytes > max_pending_bytes ? nullptr : out;
}

HttpServerResponse Server::Impl::busy(const std::string& what) const {
  const double seconds = std::clamp(std::ceil(loop.state().mean_seconds), 1.0, 60.0);
  return {.status = 429,
          .body = error_json(429, concat("the server has ", what, "; try again"), {}, "queue_full").dump(),
          .headers = {{"Retry-After", number_text(seconds)}}};
}

void Server::Impl::ask(std::shared_ptr<HttpTransaction> exchange,
                       OpenAiRequest (*parse)(const Json&, const ServedModel&), const char* prefix) {
  const Stopwatch watch;
  const std::string path = exchange->head().path;
  const auto refuse_with = [&](HttpServerResponse reply) {
    counts.answered(path, reply.status, watch.seconds());
    exchange->reply(std::move(reply));
  };
  OpenAiRequest request;
  try {
    request = parse(parse_json(exchange->body(), "body"), model);
  } catch (const HttpError& problem) {
    return refuse_with({.status = problem.status,
                        .body = error_json(problem.status, problem.what(), problem.param, problem.code).dump()});
  } catch (const Error& problem) {
    return refuse_with({.status = 400, .body = error_json(400, problem.what()).dump()});
  }
  exchange->drop_body();
  const std::shared_ptr<const PendingBytes> held = hold(request.answer_bytes(model));
  if (!held)
    return refuse_with(busy(concat("answers of ", max_pending_bytes >> 20, " MB under way (--max-pending-bytes)")));
  const uint64_t number = num_requests.fetch_add(1 + request.prompts.size());
  std::vector<GenerationRequest> requests = request.requests((uint64_t{1} << 32) + number);
  const auto answer = std::make_shared<CompletionResponse>(
      std::move(request), model, exchange, concat(prefix, started, "-", number), now_seconds(),
      CompletionResponse::Hooks{
          .first_token = [this, watch] { counts.first_token(watch.seconds()); },
          .on_finished = [this, watch, path](int status) { counts.answered(path, status, watch.seconds()); }},
      held);
  const uint64_t job = loop.submit(std::move(requests), answer, answer->wants_tokens());
  if (job == 0) return refuse_with(busy(concat(max_pending_completions, " replies to write")));
  exchange->on_disconnect([this, job, left = std::weak_ptr<CompletionResponse>(answer)] {
    loop.cancel(job);
    if (const auto it = left.lock()) it->client_disconnected();
  });
}

void Server::Impl::models(std::shared_ptr<HttpTransaction> exchange) {
  const Json one = JsonObject{{"id", model.names.front()},
                              {"object", "model"},
                              {"created", started},
                              {"owned_by", "hone"},
                              {"max_model_len", model.max_positions}};
  exchange->reply({.body = Json(JsonObject{{"object", "list"}, {"data", JsonArray{one}}}).dump()});
}

void Server::Impl::health(std::shared_ptr<HttpTransaction> exchange) {
  const std::string problem = loop.state().failure;
  if (problem.empty()) return exchange->reply({.body = R"({"status":"ok"})"});
  exchange->reply({.status = 503, .body = error_json(503, problem).dump()});
}

void Server::Impl::metrics(std::shared_ptr<HttpTransaction> exchange) {
  exchange->reply({.body = counts.text(loop.state(), max_pending_completions, http->connections()),
                   .content_type = "text/plain; version=0.0.4; charset=utf-8"});
}

Server::Server(Engine& engine, ServedModel model, const ServerConfig& config)
    : impl_(std::make_unique<Impl>(engine, std::move(model), config)) {
  impl_->http = std::make_unique<HttpServer>(config.http, *impl_);
  impl_->http->start();
}

// The network's threads end, then the engine's, then the connections that it may still write to.
Server::~Server() { impl_->http->stop(); }

int64_t Server::port() const { return impl_->http->port(); }

bool Server::drain(double seconds) { return impl_->http->drain(seconds); }

std::string Server::failure() const { return impl_->loop.state().failure; }

}  // namespace hone
