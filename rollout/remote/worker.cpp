#include "rollout/remote/worker.h"

#include <charconv>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "core/base/log.h"
#include "core/comm/device_link.h"
#include "core/net/bearer_keys.h"
#include "core/net/http_error.h"
#include "rollout/remote/worker_session.h"

namespace hone {

void WorkerConfig::fields(Fields& f) {
  f("api_key_file", api_key_file, "file with one key a line, one of which the learner must bear");
  access.fields(f);
  f("lease", lease, "seconds without a word after which a learner counts as gone");
  f.require("lease", lease >= 5 && lease <= 1e6,
            "lease must be in [5, 1e6] seconds: a learner with nothing to say speaks once a second");
}

namespace {

constexpr double most_link_seconds = 60;  // that a learner may have this worker wait for the other side of a link

int64_t block_number(std::string_view text) {
  int64_t out = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size())
    throw HttpError(400, concat(block_header, " must be a block's number"));
  return out;
}

double link_seconds(const Json& body) {
  const double out = body.at("seconds", "link").as_double("seconds");
  HONE_CHECK(out > 0 && out <= most_link_seconds, "seconds is ", out, ", it must be in (0, ", most_link_seconds, "]");
  return out;
}

}  // namespace

// The network's threads check what comes, several blocks of weights at once, and hand it to one thread of its own,
// which answers one after another: but for blocks a learner asks one thing at a time.
struct Worker::Impl final : HttpApp {
  Impl(Device& d, const WorkerConfig& c)
      : device(d), config(c), gate(c.access, c.http.host, ApiKeys::of(c.api_key_file)) {}

  struct Route : HttpRoute {
    void (Impl::*answer)(HttpTransaction&) = nullptr;
    HttpServerResponse (Impl::*look)() const = nullptr;  // instead: at once, from any thread
  };
  static const std::map<std::string, Route>& routes();

  std::optional<HttpServerResponse> reject_early(const HttpRequestInfo& head) override;
  HttpHeaders headers_for(const HttpRequestInfo& head) override { return gate.headers_for(head); }
  void handle(std::shared_ptr<HttpTransaction> exchange) override;
  HttpServerResponse error(int status, const std::string& message) override {
    return {.status = status, .body = error_json(status, message).dump()};
  }

  void run();
  void answer(HttpTransaction& exchange);
  void join(HttpTransaction& exchange);
  void weights(HttpTransaction& exchange);
  void commit(HttpTransaction& exchange);
  void turn(HttpTransaction& exchange);
  void open_link(HttpTransaction& exchange);
  void receive(HttpTransaction& exchange);
  void leave(HttpTransaction& exchange);
  HttpServerResponse metrics() const;
  HttpServerResponse health() const;

  WorkerSession& session_of(const HttpTransaction& exchange);
  Deadline patience_with(const HttpTransaction& exchange, double seconds) const;
  void make_model(const WorkerSetup& setup);
  void end_session(const std::string& why);  // of the learner: it ...
  static void reply(HttpTransaction& exchange, std::string body);
  std::shared_ptr<WorkerModel> shown_model() const;

  Device& device;
  const WorkerConfig config;
  const ServeGate gate;
  // Of the thread that answers; the model is replaced, and the run's name changed, under the mutex.
  std::shared_ptr<WorkerModel> model;
  std::string made_from;  // the model's setup
  std::string link_id;
  std::unique_ptr<DeviceLink> link;
  std::optional<Context> link_context;
  std::optional<int64_t> sent_directly;  // the version whose values came over the link last
  std::optional<WorkerSession> session;
  std::string last_end;  // why the session before ended

  mutable std::mutex mutex;
  std::condition_variable arrived;
  std::deque<std::shared_ptr<HttpTransaction>> num_requests;
  std::string run_name;  // the session's, "" without one
  bool stopping = false;
  std::unique_ptr<HttpServer> http;
  std::jthread thread;
};

const std::map<std::string, Worker::Impl::Route>& Worker::Impl::routes() {
  static const std::map<std::string, Route> table{
      {"/v1/worker/join", {{"POST"}, &Impl::join}},        {"/v1/worker/weights", {{"POST"}, &Impl::weights}},
      {"/v1/worker/commit", {{"POST"}, &Impl::commit}},    {"/v1/worker/turn", {{"POST"}, &Impl::turn}},
      {"/v1/worker/link", {{"POST"}, &Impl::open_link}},   {"/v1/worker/receive", {{"POST"}, &Impl::receive}},
      {"/v1/worker/leave", {{"POST"}, &Impl::leave}},      {"/metrics", {{"GET"}, nullptr, &Impl::metrics}},
      {"/health", {{"GET", true}, nullptr, &Impl::health}}};
  return table;
}

std::optional<HttpServerResponse> Worker::Impl::reject_early(const HttpRequestInfo& head) {
  const auto route = routes().find(head.path);
  return gate.refusal(head, route == routes().end() ? nullptr : &route->second);
}

// Who only looks is answered at once, whatever the other thread does.
void Worker::Impl::handle(std::shared_ptr<HttpTransaction> exchange) {
  const HttpRequestInfo& head = exchange->head();
  if (const auto look = routes().at(head.path).look) return exchange->reply((this->*look)());
  if (head.header(digest_header) != base64(sha256(exchange->body())))
    return exchange->reply(
        {.status = 400,
         .body = error_json(400, concat("the body is not that of its ", digest_header), {}, "damaged").dump()});
  const std::lock_guard lock(mutex);
  std::erase_if(num_requests,
                [](const auto& waiting) { return waiting->gone(); });  // whose clients may ask again, and again
  num_requests.push_back(std::move(exchange));
  arrived.notify_all();
}

void Worker::Impl::run() {
  for (;;) {
    std::shared_ptr<HttpTransaction> next;
    {
      std::unique_lock lock(mutex);
      arrived.wait_for(lock, std::chrono::seconds(1), [this] { return stopping || !num_requests.empty(); });
      if (stopping) return;
      if (!num_requests.empty()) next = std::move(num_requests.front()), num_requests.pop_front();
    }
    if (next && !next->gone()) answer(*next);
    if (session && session->seconds_since_contact() > config.lease)
      end_session("was silent for too long: what it asked is dropped");
    if (!session) continue;
    if (const std::string why = model->loop().state().failure; !why.empty())
      end_session("has to join again: the engine stopped: " + why);
  }
}

void Worker::Impl::answer(HttpTransaction& exchange) {
  const auto refuse_with = [&](const HttpError& why) {
    exchange.reply({.status = why.status, .body = error_json(why.status, why.what(), why.param, why.code).dump()});
  };
  const HttpRequestInfo& head = exchange.head();
  try {
    (this->*routes().at(head.path).answer)(exchange);
    if (session && session->id() == head.header(session_header))
      session->touch();  // who waited for this was not silent
  } catch (const HttpError& why) {
    refuse_with(why);
  } catch (const Error& why) {
    refuse_with({400, why.what()});
  } catch (const std::exception& why) {
    log::error("worker: ", head.path, ": ", why.what());
    refuse_with({500, why.what()});
  }
}

void Worker::Impl::reply(HttpTransaction& exchange, std::string body) {
  HttpHeaders headers{{digest_header, base64(sha256(body))}};
  exchange.reply({.body = std::move(body), .headers = std::move(headers)});
}

WorkerSession& Worker::Impl::session_of(const HttpTransaction& exchange) {
  if (!session || session->id() != exchange.head().header(session_header))
    throw HttpError(409, concat("this session has ended", last_end.empty() ? "" : ": it ", last_end, "; join again"),
                    {}, "unknown_session");
  return *session;
}

void Worker::Impl::end_session(const std::string& why) {
  log::info("worker: the learner of ", session->run(), " ", why);
  session.reset();
  last_end = why;
  link.reset();
  const std::lock_guard lock(mutex);
  run_name.clear();
}

// The same setup as before keeps the model, and the weights that are there.
void Worker::Impl::make_model(const WorkerSetup& setup) {
  WorkerSetup anonymous = setup;
  anonymous.run.clear();
  const std::string text = anonymous.to_json().dump();
  if (model && text == made_from && model->loop().state().failure.empty()) return;
  const auto replace = [this](std::shared_ptr<WorkerModel> by) {
    const std::lock_guard lock(mutex);
    std::swap(model, by);  // and what was there goes outside of the lock
    return by;
  };
  replace(nullptr);
  replace(std::make_shared<WorkerModel>(device, setup));
  made_from = text;
}

void Worker::Impl::join(HttpTransaction& exchange) {
  const WorkerSetup setup = WorkerSetup::parse(parse_json(exchange.body(), "setup"));
  if (session && session->run() != setup.run && session->seconds_since_contact() < config.lease)
    throw HttpError(409, concat("this worker writes for ", session->run()), "run", "busy");
  if (session) end_session("joins again, or another does");
  link.reset();
  sent_directly.reset();
  make_model(setup);
  model->clear_version();
  session.emplace(*model, setup.run);
  {
    const std::lock_guard lock(mutex);
    run_name = setup.run;
  }
  log::info("worker: writes for ", setup.run);
  JsonArray links;
  for (const std::string& name : device_links().names())
    if (device_links().at(name).serves(device)) links.emplace_back(name);
  reply(exchange,
        Json(JsonObject{{"session", session->id()}, {"device", device.description()}, {"links", std::move(links)}})
            .dump());
}

void Worker::Impl::weights(HttpTransaction& exchange) {
  session_of(exchange);
  model->put(block_number(exchange.head().header(block_header)), exchange.body(),
             digest_of(exchange.head().header(digest_header), digest_header));
  reply(exchange, "{}");
}

void Worker::Impl::commit(HttpTransaction& exchange) {
  session_of(exchange);
  const Json body = parse_json(exchange.body(), "commit");
  const int64_t version = body.at("version", "commit").as_int("version");
  const bool over_link = body.at("landed", "commit").as_bool("landed");
  std::vector<Digest> digests;
  for (const Json& digest : body.at("digests", "commit").as_array("digests"))
    digests.push_back(digest_of(digest.as_string("digests"), "digests"));
  if (over_link && sent_directly != version)
    throw HttpError(409, concat("version ", version, " did not come over the link"), "landed", "no_landing");
  const std::vector<int64_t> missing = model->missing(digests);
  if (!over_link && digests.size() != static_cast<size_t>(model->layout().num_blocks()))
    throw HttpError(400, concat(digests.size(), " digests came of ", model->layout().num_blocks(), " blocks"),
                    "digests");
  if (missing.empty()) model->commit(version, over_link);
  reply(exchange, Json(JsonObject{{"version", model->version()}, {"missing", Json::array(missing)}}).dump());
}

void Worker::Impl::turn(HttpTransaction& exchange) {
  WorkerSession& with = session_of(exchange);
  reply(exchange, with.turn(WorkerPoll::parse(parse_json(exchange.body(), "turn"))));
}

// With a learner on a link: as long as its connection is there.
Deadline Worker::Impl::patience_with(const HttpTransaction& exchange, double seconds) const {
  return Deadline(seconds, [&] {
    const std::lock_guard lock(mutex);
    return !stopping && !exchange.gone();
  });
}

// Both sides open it at the same time, so that the answer comes first.
void Worker::Impl::open_link(HttpTransaction& exchange) {
  session_of(exchange);
  const Json body = parse_json(exchange.body(), "link");
  const DeviceLinkKind& kind = device_links().at(body.at("kind", "link").as_string("kind"));
  const std::string id = from_base64(body.at("id", "link").as_string("id"), "id");
  const double seconds = link_seconds(body);
  reply(exchange, "{}");
  if (link && id == link_id) return;  // the same message again
  link.reset();
  sent_directly.reset();
  try {
    if (!link_context) link_context.emplace(device);
    link = kind.open(device, id, 1, patience_with(exchange, seconds));
    link_id = id;
  } catch (const Error& why) {
    log::warning("worker: no link to the learner's device: ", why.what());
  }
}

void Worker::Impl::receive(HttpTransaction& exchange) {
  session_of(exchange);
  const Json body = parse_json(exchange.body(), "receive");
  const int64_t version = body.at("version", "receive").as_int("version");
  const double seconds = link_seconds(body);
  if (!link) throw HttpError(409, "there is no link", {}, "no_link");
  reply(exchange, "{}");
  if (sent_directly == version) return;  // the same message again
  sent_directly.reset();
  try {
    const Deadline patience = patience_with(exchange, seconds);
    link->receive(*link_context, model->direct_buffer(), patience);
    link->finish(*link_context, patience);
    sent_directly = version;
  } catch (const Error& why) {
    log::warning("worker: the link to the learner's device broke: ", why.what());
    link.reset();
  }
}

void Worker::Impl::leave(HttpTransaction& exchange) {
  session_of(exchange);
  end_session("has left");
  reply(exchange, "{}");
}

std::shared_ptr<WorkerModel> Worker::Impl::shown_model() const {
  const std::lock_guard lock(mutex);
  return model;
}

HttpServerResponse Worker::Impl::health() const {
  const std::shared_ptr<WorkerModel> of = shown_model();
  const std::string why = of ? of->loop().state().failure : "";
  if (!why.empty()) return {.status = 503, .body = error_json(503, why).dump()};
  const std::lock_guard lock(mutex);
  return {.body = Json(JsonObject{{"status", "ok"}, {"run", run_name.empty() ? Json() : Json(run_name)}}).dump()};
}

HttpServerResponse Worker::Impl::metrics() const {
  const std::shared_ptr<WorkerModel> of = shown_model();
  const AsyncEngine::State state = of ? of->loop().state() : AsyncEngine::State{};
  std::string text;
  const auto add = [&](const char* name, const char* type, int64_t value, const char* help) {
    text += concat("# HELP hone_worker_", name, " ", help, "\n# TYPE hone_worker_", name, " ", type, "\nhone_worker_",
                   name, " ", value, "\n");
  };
  add("weights_version", "gauge", of ? of->version() : -1, "version of the weights; -1: none");
  add("replies", "gauge", state.replies, "waiting or being written");
  add("kv_cache_held_tokens", "gauge", state.engine.kv_tokens_used, "room in the cache that requests hold");
  add("prompt_tokens_total", "counter", state.engine.prompt_tokens, "tokens of prompts computed");
  add("generated_tokens_total", "counter", state.engine.generated_tokens, "tokens drawn");
  add("preemptions_total", "counter", state.engine.preemptions,
      "replies that gave their cache back and were computed again");
  return {.body = std::move(text), .content_type = "text/plain; version=0.0.4; charset=utf-8"};
}

Worker::Worker(Device& device, const WorkerConfig& config) : impl_(std::make_unique<Impl>(device, config)) {
  impl_->http = std::make_unique<HttpServer>(config.http, *impl_);
  impl_->thread = std::jthread([impl = impl_.get()] { impl->run(); });
  impl_->http->start();
}

Worker::~Worker() {
  impl_->http->stop();
  const std::lock_guard lock(impl_->mutex);
  impl_->stopping = true;
  impl_->arrived.notify_all();
}

int64_t Worker::port() const { return impl_->http->port(); }

}  // namespace hone
