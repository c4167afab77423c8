#include "rollout/remote/worker_link.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <future>

#include "core/base/log.h"

namespace hone {
namespace {

constexpr double kHeartbeatSeconds = 1;    // between polls without news
constexpr double kPollSeconds = 0.05;      // a worker waits this long for a finished request; new requests wait as long
constexpr double kFirstRetryPause = 0.05;  // seconds; doubled for each retry of a message
constexpr double kMaxJoinPause = 10;       // seconds
constexpr double kMaxFailingSeconds = 2;   // for which a message is retried
constexpr int kMaxLinkFailures = 3;        // to open a device link; after that weights are always streamed
constexpr double kLinkOpenSeconds = 10;    // for both sides to open a device link
constexpr double kTransferSeconds = 60;    // for weights to go over the device link
constexpr size_t kNumChannels = 8;         // for weight chunks
constexpr double kMaxUploadSeconds = 2.5;  // for the chunks in flight: the worker hears nothing else during them

std::string reason_in(const HttpResponse& response) {
  try {
    const Json body = parse_json(response.body, "answer");
    return body.at("error").at("message").as_string().substr(0, 300);
  } catch (const Error&) {
    return concat("status ", response.status);
  }
}

std::string code_in(const HttpResponse& response) {
  try {
    return parse_json(response.body, "answer").at("error").at("code").as_string();
  } catch (const Error&) {
    return "";
  }
}

// An error response that a retry would not change.
struct RejectedByWorker : Error {
  explicit RejectedByWorker(const HttpResponse& response) : Error(reason_in(response)), code(code_in(response)) {}
  const std::string code;
};

// The model part of a device's description; results do not depend on the rest.
std::string device_model(const std::string& description) {
  return description.substr(0, std::min<size_t>(100, description.find(',')));
}

// The part of `problem` after `target`: the same problem with another message is then logged once.
std::string after(const std::string& problem, const std::string& target) {
  const size_t at = problem.find(target);
  return at == std::string::npos ? problem : problem.substr(at + target.size());
}

// The session's name is sent back in a header.
bool is_session_name(const std::string& name) {
  return !name.empty() && name.size() <= 128 &&
         std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; });
}

bool is_damaged(const HttpResponse& response) { return code_in(response) == "damaged"; }

}  // namespace

WorkerLink::WorkerLink(Dispatcher& dispatcher, size_t worker_index, Peer peer, Device& device)
    : dispatcher_(dispatcher), worker_index_(worker_index), peer_(std::move(peer)), device_(device) {
  while (channels_.size() < kNumChannels) channels_.emplace_back(parse_url(peer_.name));
  thread_ = std::thread([this] { run(); });
}

WorkerLink::~WorkerLink() {
  dispatcher_.stop();
  for (HttpChannel& channel : channels_) channel.abort();
  thread_.join();
  channels_.clear();  // wakes a worker that still waits on the device link
  leave();
}

// Frees the worker for another run at once instead of after its lease.
void WorkerLink::leave() {
  if (session_.empty()) return;
  constexpr double seconds = 1;
  try {
    Url url = parse_url(peer_.name);
    url.target = "/v1/worker/leave";
    http_post(url, {.body = "{}", .headers = headers_for(sha256("{}")), .timeout = seconds});
  } catch (const std::exception& error) {  // the worker is then free after its lease
    log::debug("rollout: worker ", peer_.name, " did not get the leave message: ", error.what());
  }
}

HttpHeaders WorkerLink::headers_for(const Digest& digest) const {
  HttpHeaders out{{digest_header, base64(digest)}, {session_header, session_}};
  if (!peer_.key.empty()) out.emplace_back("authorization", "Bearer " + peer_.key);
  return out;
}

// Every message is idempotent: a chunk is the same chunk, and a repeated poll gets the same response. So a message that
// fails in transit is retried for a while, however long it had taken.
Json WorkerLink::post(HttpChannel& channel, const std::string& what, std::string_view body, const HttpHeaders& headers,
                      uint64_t max_body) {
  const Stopwatch since;
  std::optional<Stopwatch> failing;
  for (double wait = kFirstRetryPause;; wait *= 2) {
    std::string problem;
    try {
      const HttpResponse response = channel.post(
          "/v1/worker/" + what, {.body = body, .headers = headers, .timeout = peer_.timeout, .max_body = max_body});
      if (response.status != 200 && !(response.status == 400 && is_damaged(response))) throw RejectedByWorker(response);
      if (response.status == 200 && find_header(response.headers, digest_header) == base64(sha256(response.body)))
        return parse_json(response.body, what);
      problem = "messages arrive damaged (their digests differ)";
    } catch (const RejectedByWorker&) {
      throw;
    } catch (const Error& error) {
      problem = after(error.what(), concat("/v1/worker/", what, ": "));
    }
    if (!failing) failing.emplace();
    if (dispatcher_.stopping() || failing->seconds() + wait > kMaxFailingSeconds ||
        since.seconds() + wait > peer_.timeout)
      fail(problem);
    dispatcher_.pause(wait);
  }
}

Json WorkerLink::request(const std::string& what, const std::string& body, uint64_t max_body) {
  return post(channels_.front(), what, body, headers_for(sha256(body)), max_body);
}

// Limits a wait for the worker on a device link: ends as well when the connection breaks on which the wait was agreed.
Deadline WorkerLink::deadline(double seconds) const {
  return Deadline(seconds, [this] { return channels_.front().connected() && !dispatcher_.stopping(); });
}

void WorkerLink::join() {
  session_.clear();
  device_link_.reset();
  version_ = -1;
  const Json response = request("join", peer_.setup);
  const std::string& session = response.at("session", "join").as_string("session");
  HONE_CHECK(is_session_name(session), "its session has ", session.size(),
             " bytes; it must be 1 to 128 letters, digits, '-' or '_'");
  session_ = session;
  const std::string& device = response.at("device", "join").as_string("device");
  log::info("rollout: worker ", peer_.name, " has joined: ", device_model(device));
  if (device_model(device) != device_model(device_.description()))
    log::warning("rollout: worker ", peer_.name, " computes on ", device_model(device), ", the learner on ",
                 device_model(device_.description()), ": log-probs may differ in their last bits");
  open_device_link(response.at("links", "join"));
}

void WorkerLink::open_device_link(const Json& kinds) {
  if (peer_.transport == "stream" || (peer_.transport == "auto" && failed_openings_ >= kMaxLinkFailures)) return;
  for (const Json& kind : kinds.as_array("links")) {
    const std::string& name = kind.as_string("links");
    const DeviceLinkKind* here = device_links().find(name);
    if (!here || !here->serves(device_) || (peer_.transport != "auto" && peer_.transport != name)) continue;
    try {
      const std::string id = here->new_id();
      const double seconds = std::min(kLinkOpenSeconds, peer_.timeout / 4);
      request("link",
              Json(JsonObject{{"kind", name},
                              {"id", base64(std::span(reinterpret_cast<const unsigned char*>(id.data()), id.size()))},
                              {"seconds", seconds}})
                  .dump());
      if (!context_) context_.emplace(device_);
      device_link_ = here->open(device_, id, 0, deadline(seconds));
      failed_openings_ = 0;
      return log::info("rollout: weights go to ", peer_.name, " over ", name);
    } catch (const RejectedByWorker&) {
      throw;
    } catch (const Error& error) {
      ++failed_openings_;
      if (dispatcher_.stopping()) throw;
      HONE_CHECK(channels_.front().connected(), "the connection broke while ", name, " was opened: ", error.what());
      log::warning("rollout: no ", name, " to ", peer_.name, ": ", error.what());
    }
  }
  HONE_CHECK(device_link_ || peer_.transport == "auto", "rollout.weight_transport is ", peer_.transport,
             ", which does not reach this worker: set it to auto or stream");
}

std::vector<int64_t> WorkerLink::commit(int64_t version, std::span<const WeightChunks::Chunk> chunks,
                                        bool sent_directly) {
  JsonArray digests;
  for (const WeightChunks::Chunk& chunk : chunks) digests.emplace_back(base64(chunk.digest));
  const Json response = request(
      "commit",
      Json(JsonObject{{"version", version}, {"landed", sent_directly}, {"digests", std::move(digests)}}).dump());
  std::vector<int64_t> missing;
  std::vector<bool> is_listed(chunks.size());
  for (const Json& chunk : response.at("missing", "commit").as_array("missing")) {
    missing.push_back(chunk.as_int("missing"));
    HONE_CHECK(missing.back() >= 0 && missing.back() < std::ssize(chunks), "it misses chunk ", missing.back(), " of ",
               chunks.size());
    const auto i = static_cast<size_t>(missing.back());
    HONE_CHECK(!is_listed[i], "it lists chunk ", i, " as missing twice");
    is_listed[i] = true;
  }
  return missing;
}

// Sends the largest chunk alone to measure the bandwidth, then several chunks at once: the worker checks some while
// others are in transit.
void WorkerLink::send(std::span<const WeightChunks::Chunk> chunks, std::vector<int64_t> which) {
  if (which.empty()) return;
  const auto chunk_of = [&](int64_t i) -> const WeightChunks::Chunk& { return chunks[static_cast<size_t>(i)]; };
  const auto send_one = [&](HttpChannel& channel, int64_t i) {
    HttpHeaders headers = headers_for(chunk_of(i).digest);
    headers.emplace_back(chunk_header, std::to_string(i));
    post(channel, "weights", chunk_of(i).bytes, headers);
    dispatcher_.record_progress(worker_index_);
  };
  std::ranges::iter_swap(which.begin(),
                         std::ranges::max_element(which, {}, [&](int64_t i) { return chunk_of(i).bytes.size(); }));
  const Stopwatch watch;
  send_one(channels_.front(), which.front());
  const auto at_once =
      static_cast<size_t>(std::clamp(kMaxUploadSeconds / watch.seconds(), 1.0, static_cast<double>(channels_.size())));

  std::atomic<size_t> next = 1;
  const auto send_rest = [&](HttpChannel& channel) {
    try {
      for (size_t i = next++; i < which.size(); i = next++) send_one(channel, which[i]);
    } catch (...) {
      next = which.size();
      throw;
    }
  };
  std::vector<std::future<void>> uploads;
  for (size_t i = 1; i < std::min(at_once, which.size() - 1); ++i)
    uploads.push_back(std::async(std::launch::async, send_rest, std::ref(channels_[i])));
  send_rest(channels_.front());
  for (std::future<void>& upload : uploads) upload.get();
}

// Commits the version; if the worker misses chunks, sends them and commits again.
void WorkerLink::push_weights(int64_t version, std::span<const WeightChunks::Chunk> chunks, bool sent_directly) {
  const std::vector<int64_t> missing = commit(version, chunks, sent_directly);
  send(chunks, missing);
  HONE_CHECK(missing.empty() || commit(version, chunks, sent_directly).empty(),
             "it lacks weight chunks that it was sent");
}

// Sends the trained values over the device link. The frozen values are streamed, once.
bool WorkerLink::send_over_link(const WeightSnapshot& snapshot) {
  if (!device_link_) return false;
  const double seconds = std::min(kTransferSeconds, peer_.timeout / 2);
  try {
    request("receive", Json(JsonObject{{"version", snapshot.version()}, {"seconds", seconds}}).dump());
    const Deadline limit = this->deadline(seconds);
    device_link_->send(*context_, snapshot.trained(), limit);
    device_link_->finish(*context_, limit);
  } catch (const std::exception& error) {
    if (dispatcher_.stopping()) throw;
    HONE_CHECK(channels_.front().connected(),
               "the connection broke while weights went over the device link: ", error.what());
    close_device_link(error.what());
    return false;
  }
  try {
    push_weights(snapshot.version(), snapshot.frozen().chunks(), true);
    return true;
  } catch (const RejectedByWorker& rejection) {
    if (rejection.code != "no_landing") throw;
    close_device_link(rejection.what());
    return false;
  }
}

void WorkerLink::close_device_link(const std::string& why) {
  device_link_.reset();
  log::warning("rollout: weights did not go to ", peer_.name, " over the device link: ", why,
               "; they are streamed until the worker joins again");
}

void WorkerLink::sync(const WeightSnapshot& snapshot) {
  const Stopwatch watch;
  if (!send_over_link(snapshot)) push_weights(snapshot.version(), snapshot.chunks(), false);
  version_ = snapshot.version();
  dispatcher_.record_weight_sync(watch.seconds());
}

// The response is bounded by the largest result of the assigned tokens.
WorkerPollResult WorkerLink::poll(const WorkerPoll& message, int64_t awaited_tokens) {
  constexpr uint64_t bytes_of_a_token = 1024;
  const uint64_t max_body = kMaxResponseBytes + bytes_of_a_token * static_cast<uint64_t>(awaited_tokens);
  WorkerPollResult result = WorkerPollResult::parse(request("turn", message.to_json().dump(), max_body));
  HONE_CHECK(result.number == message.number, "it sent the result of poll ", result.number, " for poll ",
             message.number);
  return result;
}

// The tokens of requests that are computed once.
static int64_t max_tokens_of(const std::vector<WorkerPoll::Submission>& submissions) {
  int64_t out = 0;
  for (const WorkerPoll::Submission& submission : submissions)
    out += std::ssize(submission.request.prompt) + submission.request.n * submission.request.sampling.max_tokens;
  return out;
}

// A worker makes progress if it finishes requests or computes their tokens. Computed tokens beyond those of its
// requests do not count. More than twice as many are an error: some tokens are recomputed after preemption or for new
// weights.
void WorkerLink::serve() {
  Stopwatch since_progress;
  int64_t computed = 0, assigned_tokens = 0;
  bool busy = false;
  for (int64_t number = 1;; ++number) {
    Dispatcher::Work work = dispatcher_.next_work(worker_index_, version_, busy ? 0 : kHeartbeatSeconds);
    if (work.stopping) return;
    assigned_tokens += max_tokens_of(work.submit);
    if (work.weights) {
      sync(*work.weights);
      since_progress = {};
      assigned_tokens += work.tokens;  // running sequences are recomputed
    }
    WorkerPollResult result = poll({.number = number,
                                    .wait = work.tokens > 0 ? kPollSeconds : 0,
                                    .version = version_,
                                    .submit = std::move(work.submit),
                                    .cancel = std::move(work.cancel)},
                                   work.tokens);
    HONE_CHECK(result.computed_tokens >= computed && result.computed_tokens <= 2 * assigned_tokens,
               "it claims to have computed ", result.computed_tokens, " tokens after ", computed,
               "; its requests have ", assigned_tokens);
    const bool made_progress = result.computed_tokens > computed && computed < assigned_tokens;
    if (made_progress) dispatcher_.record_progress(worker_index_);
    if (made_progress || work.tokens == 0) since_progress = {};
    computed = result.computed_tokens;
    for (WorkerPollResult::Finished& done : result.finished)
      if (dispatcher_.accept_result(worker_index_, std::move(done))) {
        next_pause_ = kFirstJoinPause;
        since_progress = {};
      }
    HONE_CHECK(!dispatcher_.overdue(worker_index_),
               "it has had a request for too long (rollout.worker_request_timeout)");
    HONE_CHECK(since_progress.seconds() < peer_.timeout, "it has made no progress for ", peer_.timeout,
               " seconds (rollout.worker_timeout)");
    busy = work.tokens > 0;
  }
}

void WorkerLink::run() {
  for (; !dispatcher_.stopping(); next_pause_ = std::min(2 * next_pause_, kMaxJoinPause)) {
    try {
      join();
      dispatcher_.mark_joined(worker_index_);
      serve();
    } catch (const std::exception& error) {
      dispatcher_.mark_lost(worker_index_, error.what());
    }
    dispatcher_.pause(next_pause_);
  }
  device_link_.reset();
  context_.reset();
}

}  // namespace hone
