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
#include "core/net/serve_gate.h"
#include "rollout/remote/worker_session.h"

namespace hone {

void WorkerConfig::fields(Fields& f) {
  f("api_key_file", api_key_file,
    "file with one API key per line; the learner must send one of them; empty = no key is needed");
  access.fields(f);
  f("lease", lease,
    "seconds without a message after which a learner counts as gone, and the worker is free for another");
  f.require("lease", lease >= 5 && lease <= 1e6,
            "lease must be in [5, 1e6] seconds; an idle learner sends one message a second");
}

namespace {

constexpr double kMaxLinkSeconds = 60;  // longest wait for the learner's side of a device link

int64_t chunk_number(std::string_view text) {
  int64_t out = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size())
    throw HttpError(400, concat(chunk_header, " must be the number of a chunk"));
  return out;
}

double link_seconds(const Json& body) {
  const double out = body.at("seconds", "link").as_double("seconds");
  HONE_CHECK(out > 0 && out <= kMaxLinkSeconds, "seconds is ", out, "; it must be in (0, ", kMaxLinkSeconds, "]");
  return out;
}

}  // namespace

// The network threads check the digests of messages, of several weight chunks at once. Then one thread of the worker
// processes the messages one after another: except for chunks, a learner sends one message at a time.
struct Worker::Impl final : HttpApp {
  Impl(Device& d, const WorkerConfig& c)
      : device(d), config(c), gate(c.access, c.http.host, ApiKeys::of(c.api_key_file)) {}

  struct Route : HttpRoute {
    void (Impl::*handler)(HttpTransaction&) = nullptr;
    HttpServerResponse (Impl::*read_only)() const =
        nullptr;  // in place of handler: called at once, on a network thread
  };
  static const std::map<std::string, Route>& routes();

  std::optional<HttpServerResponse> reject_early(const HttpRequestInfo& info) override;
  HttpHeaders headers_for(const HttpRequestInfo& info) override { return gate.headers_for(info); }
  void handle(std::shared_ptr<HttpTransaction> transaction) override;
  HttpServerResponse error(int status, const std::string& message) override {
    return {.status = status, .body = error_json(status, message).dump()};
  }

  void run();
  void process(HttpTransaction& transaction);
  void join(HttpTransaction& transaction);
  void weights(HttpTransaction& transaction);
  void commit(HttpTransaction& transaction);
  void poll(HttpTransaction& transaction);
  void open_link(HttpTransaction& transaction);
  void receive(HttpTransaction& transaction);
  void leave(HttpTransaction& transaction);
  HttpServerResponse metrics() const;
  HttpServerResponse health() const;

  WorkerSession& session_of(const HttpTransaction& transaction);
  Deadline link_deadline(const HttpTransaction& transaction, double seconds) const;
  void make_model(const WorkerSetup& setup);
  void end_session(const std::string& what_happened);  // completes the sentence "the learner ..."
  static void respond(HttpTransaction& transaction, std::string body);
  std::shared_ptr<WorkerModel> current_model() const;

  Device& device;
  const WorkerConfig config;
  const ServeGate gate;
  // Used by the worker's thread. It holds the mutex to replace `model` and to change run_id.
  std::shared_ptr<WorkerModel> model;
  std::string model_setup;  // JSON of the setup that made the model
  std::string link_id;
  std::unique_ptr<DeviceLink> link;
  std::optional<Context> link_context;
  std::optional<int64_t> sent_directly;  // the last version whose values came over the link
  std::optional<WorkerSession> session;
  std::string last_end_reason;  // of the previous session

  mutable std::mutex mutex;
  std::condition_variable arrived;
  std::deque<std::shared_ptr<HttpTransaction>> queue;
  std::string run_id;  // of the session; "" without one
  bool stopping = false;
  std::unique_ptr<HttpServer> http;
  std::jthread thread;
};

const std::map<std::string, Worker::Impl::Route>& Worker::Impl::routes() {
  static const std::map<std::string, Route> table{
      {"/v1/worker/join", {{"POST"}, &Impl::join}},        {"/v1/worker/weights", {{"POST"}, &Impl::weights}},
      {"/v1/worker/commit", {{"POST"}, &Impl::commit}},    {"/v1/worker/turn", {{"POST"}, &Impl::poll}},
      {"/v1/worker/link", {{"POST"}, &Impl::open_link}},   {"/v1/worker/receive", {{"POST"}, &Impl::receive}},
      {"/v1/worker/leave", {{"POST"}, &Impl::leave}},      {"/metrics", {{"GET"}, nullptr, &Impl::metrics}},
      {"/health", {{"GET", true}, nullptr, &Impl::health}}};
  return table;
}

std::optional<HttpServerResponse> Worker::Impl::reject_early(const HttpRequestInfo& info) {
  const auto route = routes().find(info.path);
  return gate.reject(info, route == routes().end() ? nullptr : &route->second);
}

// Responds to read-only routes at once, and queues the others for the worker's thread.
void Worker::Impl::handle(std::shared_ptr<HttpTransaction> transaction) {
  const HttpRequestInfo& info = transaction->info();
  if (const auto read_only = routes().at(info.path).read_only) return transaction->respond((this->*read_only)());
  if (info.header(digest_header) != base64(sha256(transaction->body())))
    return transaction->respond(
        {.status = 400,
         .body = error_json(400, concat("the body does not match its ", digest_header), {}, "damaged").dump()});
  const std::lock_guard lock(mutex);
  std::erase_if(queue, [](const auto& waiting) { return waiting->disconnected(); });  // their clients retry
  queue.push_back(std::move(transaction));
  arrived.notify_all();
}

void Worker::Impl::run() {
  for (;;) {
    std::shared_ptr<HttpTransaction> next;
    {
      std::unique_lock lock(mutex);
      arrived.wait_for(lock, std::chrono::seconds(1), [this] { return stopping || !queue.empty(); });
      if (stopping) return;
      if (!queue.empty()) {
        next = std::move(queue.front());
        queue.pop_front();
      }
    }
    if (next && !next->disconnected()) process(*next);
    if (session && session->seconds_since_contact() > config.lease)
      end_session("sent no message for too long: its requests are dropped");
    if (!session) continue;
    if (const std::string problem = model->async_engine().state().failure; !problem.empty())
      end_session("must join again: the engine stopped: " + problem);
  }
}

void Worker::Impl::process(HttpTransaction& transaction) {
  const auto send_error = [&](const HttpError& problem) {
    transaction.respond({.status = problem.status,
                         .body = error_json(problem.status, problem.what(), problem.param, problem.code).dump()});
  };
  const HttpRequestInfo& info = transaction.info();
  try {
    (this->*routes().at(info.path).handler)(transaction);
    if (session && session->id() == info.header(session_header))
      session->touch();  // a learner that waited for this response was not gone
  } catch (const HttpError& problem) {
    send_error(problem);
  } catch (const Error& problem) {
    send_error({400, problem.what()});
  } catch (const std::exception& problem) {
    log::error("worker: ", info.path, ": ", problem.what());
    send_error({500, problem.what()});
  }
}

void Worker::Impl::respond(HttpTransaction& transaction, std::string body) {
  HttpHeaders headers{{digest_header, base64(sha256(body))}};
  transaction.respond({.body = std::move(body), .headers = std::move(headers)});
}

WorkerSession& Worker::Impl::session_of(const HttpTransaction& transaction) {
  if (!session || session->id() != transaction.info().header(session_header))
    throw HttpError(409,
                    concat("this session has ended", last_end_reason.empty() ? "" : ": the learner ", last_end_reason,
                           "; join again"),
                    {}, "unknown_session");
  return *session;
}

void Worker::Impl::end_session(const std::string& what_happened) {
  log::info("worker: the learner of run ", session->run(), " ", what_happened);
  session.reset();
  last_end_reason = what_happened;
  link.reset();
  const std::lock_guard lock(mutex);
  run_id.clear();
}

// Keeps the model and its weights if the setup is the same as before.
void Worker::Impl::make_model(const WorkerSetup& setup) {
  WorkerSetup anonymous = setup;
  anonymous.run.clear();
  const std::string text = anonymous.to_json().dump();
  if (model && text == model_setup && model->async_engine().state().failure.empty()) return;
  const auto exchange_model = [this](std::shared_ptr<WorkerModel> by) {
    const std::lock_guard lock(mutex);
    std::swap(model, by);  // the caller frees the old model without the lock
    return by;
  };
  exchange_model(nullptr);
  exchange_model(std::make_shared<WorkerModel>(device, setup));
  model_setup = text;
}

void Worker::Impl::join(HttpTransaction& transaction) {
  const WorkerSetup setup = WorkerSetup::parse(parse_json(transaction.body(), "setup"));
  if (session && session->run() != setup.run && session->seconds_since_contact() < config.lease)
    throw HttpError(
        409, concat("this worker generates for run ", session->run(), "; wait until it ends, or use another worker"),
        "run", "busy");
  if (session) end_session("joined again, or another learner did");
  link.reset();
  sent_directly.reset();
  make_model(setup);
  model->clear_version();
  session.emplace(*model, setup.run);
  {
    const std::lock_guard lock(mutex);
    run_id = setup.run;
  }
  log::info("worker: generates for run ", setup.run);
  JsonArray links;
  for (const std::string& name : device_links().names())
    if (device_links().at(name).serves(device)) links.emplace_back(name);
  respond(transaction,
          Json(JsonObject{{"session", session->id()}, {"device", device.description()}, {"links", std::move(links)}})
              .dump());
}

void Worker::Impl::weights(HttpTransaction& transaction) {
  session_of(transaction);
  model->put(chunk_number(transaction.info().header(chunk_header)), transaction.body(),
             digest_of(transaction.info().header(digest_header), digest_header));
  respond(transaction, "{}");
}

void Worker::Impl::commit(HttpTransaction& transaction) {
  session_of(transaction);
  const Json body = parse_json(transaction.body(), "commit");
  const int64_t version = body.at("version", "commit").as_int("version");
  const bool over_link = body.at("landed", "commit").as_bool("landed");
  std::vector<Digest> digests;
  for (const Json& digest : body.at("digests", "commit").as_array("digests"))
    digests.push_back(digest_of(digest.as_string("digests"), "digests"));
  if (over_link && sent_directly != version)
    throw HttpError(409, concat("version ", version, " did not come over the device link"), "landed", "no_landing");
  const std::vector<int64_t> missing = model->missing(digests);
  if (!over_link && digests.size() != static_cast<size_t>(model->layout().num_chunks()))
    throw HttpError(400, concat(digests.size(), " digests for ", model->layout().num_chunks(), " chunks"), "digests");
  if (missing.empty()) model->commit(version, over_link);
  respond(transaction, Json(JsonObject{{"version", model->version()}, {"missing", Json::array(missing)}}).dump());
}

void Worker::Impl::poll(HttpTransaction& transaction) {
  WorkerSession& current = session_of(transaction);
  respond(transaction, current.poll(WorkerPoll::parse(parse_json(transaction.body(), "turn"))));
}

// Limits a wait for the learner on a device link: ends as well when the learner's connection breaks.
Deadline Worker::Impl::link_deadline(const HttpTransaction& transaction, double seconds) const {
  return Deadline(seconds, [&] {
    const std::lock_guard lock(mutex);
    return !stopping && !transaction.disconnected();
  });
}

// Responds before it opens the link, because both sides must open it at the same time.
void Worker::Impl::open_link(HttpTransaction& transaction) {
  session_of(transaction);
  const Json body = parse_json(transaction.body(), "link");
  const DeviceLinkKind& kind = device_links().at(body.at("kind", "link").as_string("kind"));
  const std::string id = from_base64(body.at("id", "link").as_string("id"), "id");
  const double seconds = link_seconds(body);
  respond(transaction, "{}");
  if (link && id == link_id) return;  // a repeated message
  link.reset();
  sent_directly.reset();
  try {
    if (!link_context) link_context.emplace(device);
    link = kind.open(device, id, 1, link_deadline(transaction, seconds));
    link_id = id;
  } catch (const Error& problem) {
    log::warning("worker: no link to the learner's device: ", problem.what());
  }
}

void Worker::Impl::receive(HttpTransaction& transaction) {
  session_of(transaction);
  const Json body = parse_json(transaction.body(), "receive");
  const int64_t version = body.at("version", "receive").as_int("version");
  const double seconds = link_seconds(body);
  if (!link) throw HttpError(409, "no device link is open; open one first", {}, "no_link");
  respond(transaction, "{}");
  if (sent_directly == version) return;  // a repeated message
  sent_directly.reset();
  try {
    const Deadline deadline = link_deadline(transaction, seconds);
    link->receive(*link_context, model->direct_buffer(), deadline);
    link->finish(*link_context, deadline);
    sent_directly = version;
  } catch (const Error& problem) {
    log::warning("worker: the link to the learner's device broke: ", problem.what());
    link.reset();
  }
}

void Worker::Impl::leave(HttpTransaction& transaction) {
  session_of(transaction);
  end_session("has left");
  respond(transaction, "{}");
}

std::shared_ptr<WorkerModel> Worker::Impl::current_model() const {
  const std::lock_guard lock(mutex);
  return model;
}

HttpServerResponse Worker::Impl::health() const {
  const std::shared_ptr<WorkerModel> current = current_model();
  const std::string problem = current ? current->async_engine().state().failure : "";
  if (!problem.empty()) return {.status = 503, .body = error_json(503, problem).dump()};
  const std::lock_guard lock(mutex);
  return {.body = Json(JsonObject{{"status", "ok"}, {"run", run_id.empty() ? Json() : Json(run_id)}}).dump()};
}

HttpServerResponse Worker::Impl::metrics() const {
  const std::shared_ptr<WorkerModel> current = current_model();
  const AsyncEngine::State state = current ? current->async_engine().state() : AsyncEngine::State{};
  std::string text;
  const auto add = [&](const char* name, const char* type, int64_t value, const char* help) {
    text += concat("# HELP hone_worker_", name, " ", help, "\n# TYPE hone_worker_", name, " ", type, "\nhone_worker_",
                   name, " ", value, "\n");
  };
  add("weights_version", "gauge", current ? current->version() : -1, "version of the weights; -1: none");
  add("replies", "gauge", state.pending_completions, "completions waiting or running");
  add("kv_cache_held_tokens", "gauge", state.engine.kv_tokens_used, "token slots of KV blocks that requests hold");
  add("kv_bytes_per_token", "gauge", state.engine.kv_bytes_per_token, "bytes of the KV cache per token");
  add("kv_window_tokens", "gauge", state.engine.kv_window_tokens,
      "most tokens that layers with a sliding window keep of a decoding sequence; 0 = no windows");
  add("prompt_tokens_total", "counter", state.engine.prompt_tokens, "prompt tokens computed");
  add("generated_tokens_total", "counter", state.engine.generated_tokens, "tokens sampled");
  add("preemptions_total", "counter", state.engine.preemptions, "preempted sequences");
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
