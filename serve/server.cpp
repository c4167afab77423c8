#include "serve/server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>

#include "core/base/stopwatch.h"
#include "core/net/http_error.h"
#include "core/net/serve_gate.h"
#include "serve/index_page.h"
#include "serve/response.h"
#include "serve/server_metrics.h"

namespace hone {

void ServerConfig::fields(Fields& f) {
  f("http", http, "connections");
  f("api_key_file", api_key_file,
    "file with one API key per line; requests must send one of them; empty = no key is needed");
  access.fields(f);
  f("max_pending_completions", max_pending_completions,
    "maximum number of completions that wait or run; requests beyond it get status 429");
  f("max_answer_bytes", max_answer_bytes,
    "maximum response of one request in bytes, estimated from its n, max_tokens, logprobs and echo");
  f("max_pending_bytes", max_pending_bytes,
    "maximum estimated bytes of all pending responses; requests beyond it get status 429");
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
        async_engine(engine, config.max_pending_completions) {
    model.max_pending_completions = max_pending_completions;
    model.max_answer_bytes = config.max_answer_bytes;
  }

  struct Route : HttpRoute {
    void (Impl::*handler)(const std::shared_ptr<HttpTransaction>&);
  };
  static const std::map<std::string, Route>& routes();

  std::optional<HttpServerResponse> reject_early(const HttpRequestInfo& info) override;
  HttpHeaders headers_for(const HttpRequestInfo& info) override { return gate.headers_for(info); }
  void handle(std::shared_ptr<HttpTransaction> transaction) override;
  HttpServerResponse error(int status, const std::string& message) override;

  void completions(const std::shared_ptr<HttpTransaction>& transaction) {
    generate(transaction, parse_completion, "cmpl-");
  }
  void chat(const std::shared_ptr<HttpTransaction>& transaction) { generate(transaction, parse_chat, "chatcmpl-"); }
  void models(const std::shared_ptr<HttpTransaction>& transaction);
  void health(const std::shared_ptr<HttpTransaction>& transaction);
  void metrics(const std::shared_ptr<HttpTransaction>& transaction);
  void index(const std::shared_ptr<HttpTransaction>& transaction) { transaction->respond(index_page_response()); }
  void generate(const std::shared_ptr<HttpTransaction>& transaction,
                OpenAiRequest (*parse)(const Json&, const ServedModel&), const char* prefix);
  HttpServerResponse busy(const std::string& what) const;
  struct PendingBytes;
  std::shared_ptr<const PendingBytes> reserve(int64_t bytes);

  ServedModel model;
  const int64_t max_pending_completions, max_pending_bytes, started;
  const ServeGate gate;
  ServerMetrics server_metrics;
  std::atomic<uint64_t> num_requests{0};
  const std::shared_ptr<std::atomic<int64_t>> pending_bytes = std::make_shared<std::atomic<int64_t>>(0);  // held
  std::unique_ptr<HttpServer> http;  // set once, before the first request
  AsyncEngine async_engine;
};

const std::map<std::string, Server::Impl::Route>& Server::Impl::routes() {
  static const std::map<std::string, Route> table{{"/v1/completions", {{"POST", false}, &Impl::completions}},
                                                  {"/v1/chat/completions", {{"POST", false}, &Impl::chat}},
                                                  {"/v1/models", {{"GET", false}, &Impl::models}},
                                                  {"/metrics", {{"GET", false}, &Impl::metrics}},
                                                  {"/health", {{"GET", true}, &Impl::health}},
                                                  {"/", {{"GET", true}, &Impl::index}}};
  return table;
}

std::optional<HttpServerResponse> Server::Impl::reject_early(const HttpRequestInfo& info) {
  const auto route = routes().find(info.path);
  const bool known = route != routes().end();
  std::optional<HttpServerResponse> out = gate.reject(info, known ? &route->second : nullptr);
  if (out) server_metrics.record_response(known ? info.path : "other", out->status, 0);
  return out;
}

HttpServerResponse Server::Impl::error(int status, const std::string& message) {
  server_metrics.record_response("other", status, 0);
  return {.status = status, .body = error_json(status, message).dump()};
}

void Server::Impl::handle(std::shared_ptr<HttpTransaction> transaction) {
  (this->*routes().at(transaction->info().path).handler)(transaction);
}

// Reserves bytes of max_pending_bytes while it lives.
struct Server::Impl::PendingBytes {
  PendingBytes(std::shared_ptr<std::atomic<int64_t>> pending_total, int64_t count)
      : total(std::move(pending_total)), bytes(count) {
    *total += bytes;
  }
  ~PendingBytes() { *total -= bytes; }
  const std::shared_ptr<std::atomic<int64_t>> total;
  const int64_t bytes;
};

std::shared_ptr<const Server::Impl::PendingBytes> Server::Impl::reserve(int64_t bytes) {
  auto out = std::make_shared<const PendingBytes>(pending_bytes, bytes);
  return *pending_bytes > max_pending_bytes ? nullptr : out;
}

HttpServerResponse Server::Impl::busy(const std::string& what) const {
  const double seconds = std::clamp(std::ceil(async_engine.state().mean_seconds), 1.0, 60.0);
  return {.status = 429,
          .body = error_json(429, concat("the server has ", what, "; try again later"), {}, "queue_full").dump(),
          .headers = {{"Retry-After", number_text(seconds)}}};
}

void Server::Impl::generate(const std::shared_ptr<HttpTransaction>& transaction,
                            OpenAiRequest (*parse)(const Json&, const ServedModel&), const char* prefix) {
  const Stopwatch watch;
  const std::string path = transaction->info().path;
  const auto reject_with = [&](HttpServerResponse response) {
    server_metrics.record_response(path, response.status, watch.seconds());
    transaction->respond(std::move(response));
  };
  OpenAiRequest request;
  try {
    request = parse(parse_json(transaction->body(), "body"), model);
  } catch (const HttpError& problem) {
    return reject_with({.status = problem.status,
                        .body = error_json(problem.status, problem.what(), problem.param, problem.code).dump()});
  } catch (const Error& problem) {
    return reject_with({.status = 400, .body = error_json(400, problem.what()).dump()});
  }
  transaction->drop_body();
  const std::shared_ptr<const PendingBytes> reservation = reserve(request.max_response_bytes(model));
  if (!reservation)
    return reject_with(busy(concat("responses of ", max_pending_bytes >> 20, " MB pending (--max-pending-bytes)")));
  const uint64_t number = num_requests.fetch_add(1 + request.prompts.size());
  std::vector<GenerationRequest> requests = request.requests((uint64_t{1} << 32) + number);
  const auto response = std::make_shared<CompletionResponse>(
      std::move(request), model, transaction, concat(prefix, started, "-", number), now_seconds(),
      CompletionResponse::Hooks{
          .first_token = [this, watch] { server_metrics.record_first_token(watch.seconds()); },
          .on_finished = [this, watch,
                          path](int status) { server_metrics.record_response(path, status, watch.seconds()); }},
      reservation);
  const uint64_t request_id = async_engine.submit(std::move(requests), response, response->wants_tokens());
  if (request_id == 0)
    return reject_with(busy(concat(max_pending_completions, " pending completions (--max-pending-completions)")));
  transaction->on_disconnect([this, request_id, weak_response = std::weak_ptr<CompletionResponse>(response)] {
    async_engine.cancel(request_id);
    if (const auto it = weak_response.lock()) it->client_disconnected();
  });
}

void Server::Impl::models(const std::shared_ptr<HttpTransaction>& transaction) {
  const Json one = JsonObject{{"id", model.names.front()},
                              {"object", "model"},
                              {"created", started},
                              {"owned_by", "hone"},
                              {"max_model_len", model.max_positions}};
  transaction->respond({.body = Json(JsonObject{{"object", "list"}, {"data", JsonArray{one}}}).dump()});
}

void Server::Impl::health(const std::shared_ptr<HttpTransaction>& transaction) {
  const std::string problem = async_engine.state().failure;
  if (problem.empty()) return transaction->respond({.body = R"({"status":"ok"})"});
  transaction->respond({.status = 503, .body = error_json(503, problem).dump()});
}

void Server::Impl::metrics(const std::shared_ptr<HttpTransaction>& transaction) {
  transaction->respond({.body = server_metrics.text(async_engine.state(), max_pending_completions, http->connections()),
                        .content_type = "text/plain; version=0.0.4; charset=utf-8"});
}

Server::Server(Engine& engine, ServedModel model, const ServerConfig& config)
    : impl_(std::make_unique<Impl>(engine, std::move(model), config)) {
  impl_->http = std::make_unique<HttpServer>(config.http, *impl_);
  impl_->http->start();
}

// Ends the network's threads, then the engine's thread, then the connections that it may still write to.
Server::~Server() { impl_->http->stop(); }

int64_t Server::port() const { return impl_->http->port(); }

bool Server::drain(double seconds) { return impl_->http->drain(seconds); }

std::string Server::failure() const { return impl_->async_engine.state().failure; }

}  // namespace hone
