#include "rollout/remote/worker_link.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <future>

#include "core/base/log.h"

namespace hone {
namespace {

constexpr double heartbeat = 1;          // seconds between turns that say nothing
constexpr double turn_wait = 0.05;       // that a worker waits for a reply to be whole: as long a new request may wait
constexpr double shortest_pause = 0.05;  // before something is tried again
constexpr double longest_pause = 10;
constexpr double most_seconds_refused = 2;  // that a worker may refuse connections or break them off
constexpr int most_openings = 3;            // of device links that fail, before weights are streamed for good
constexpr double longest_opening = 10;      // seconds for both sides of a device link to open it
constexpr double longest_transfer = 60;     // seconds for weights to go over it
constexpr size_t num_channels = 8;          // on which blocks travel
constexpr double longest_silence = 2.5;  // seconds for the blocks under way at once: meanwhile the worker hears nothing

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

// The answers of a worker that will not change when it is asked again.
struct Refusal : Error {
  explicit Refusal(const HttpResponse& response) : Error(reason_in(response)), code(code_in(response)) {}
  const std::string code;
};

// Of a device's description: results do not depend on the rest.
std::string chip(const std::string& description) {
  return description.substr(0, std::min<size_t>(100, description.find(',')));
}

// What follows the name of what was asked for: that the same went wrong with another message is no news.
std::string without(std::string problem, const std::string& target) {
  const size_t at = problem.find(target);
  return at == std::string::npos ? problem : problem.substr(at + target.size());
}

// It is sent back in a header.
bool is_session_name(const std::string& name) {
  return !name.empty() && name.size() <= 128 &&
         std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; });
}

bool damaged(const HttpResponse& response) { return code_in(response) == "damaged"; }

}  // namespace

WorkerLink::WorkerLink(Dispatcher& dispatcher, size_t place, Peer peer, Device& device)
    : dispatcher_(dispatcher), place_(place), peer_(std::move(peer)), device_(device) {
  while (channels_.size() < num_channels) channels_.emplace_back(parse_url(peer_.name));
  thread_ = std::thread([this] { run(); });
}

WorkerLink::~WorkerLink() {
  dispatcher_.stop();
  for (HttpChannel& channel : channels_) channel.abort();
  thread_.join();
  channels_.clear();  // a worker that still waits on the device link learns of it
  leave();
}

// So that the worker is free for another run at once, instead of after its lease.
void WorkerLink::leave() {
  if (session_.empty()) return;
  constexpr double seconds = 1;
  try {
    Url url = parse_url(peer_.name);
    url.target = "/v1/worker/leave";
    http_post(url, {.body = "{}", .headers = headers_for(sha256("{}")), .timeout = seconds});
  } catch (const std::exception& error) {  // it learns of it after its lease
    log::debug("rollout: worker ", peer_.name, " was not told of the end: ", error.what());
  }
}

HttpHeaders WorkerLink::headers_for(const Digest& digest) const {
  HttpHeaders out{{digest_header, base64(digest)}, {session_header, session_}};
  if (!peer_.key.empty()) out.emplace_back("authorization", "Bearer " + peer_.key);
  return out;
}

// Every message may be sent again: a block is the same block, and a turn is answered as it was. So what breaks on the
// way is tried again for a while, however long it had been on its way.
Json WorkerLink::post(HttpChannel& channel, const std::string& what, std::string_view body, const HttpHeaders& headers,
                      uint64_t max_body) {
  const Stopwatch since;
  std::optional<Stopwatch> failing;
  for (double wait = shortest_pause;; wait *= 2) {
    std::string problem;
    try {
      const HttpResponse response = channel.post(
          "/v1/worker/" + what, {.body = body, .headers = headers, .timeout = peer_.timeout, .max_body = max_body});
      if (response.status != 200 && !(response.status == 400 && damaged(response))) throw Refusal(response);
      if (response.status == 200 && find_header(response.headers, digest_header) == base64(sha256(response.body)))
        return parse_json(response.body, what);
      problem = "messages are damaged on their way";
    } catch (const Refusal&) {
      throw;
    } catch (const Error& error) {
      problem = without(error.what(), concat("/v1/worker/", what, ": "));
    }
    if (!failing) failing.emplace();
    if (dispatcher_.stopping() || failing->seconds() + wait > most_seconds_refused ||
        since.seconds() + wait > peer_.timeout)
      fail(problem);
    dispatcher_.pause(wait);
  }
}

Json WorkerLink::ask(const std::string& what, const std::string& body, uint64_t max_body) {
  return post(channels_.front(), what, body, headers_for(sha256(body)), max_body);
}

// With the worker on a device link: as long as the connection is there on which it was asked.
Deadline WorkerLink::patience(double seconds) const {
  return Deadline(seconds, [this] { return channels_.front().connected() && !dispatcher_.stopping(); });
}

void WorkerLink::join() {
  session_.clear();
  device_link_.reset();
  version_ = -1;
  const Json answer = ask("join", peer_.setup);
  const std::string& session = answer.at("session", "join").as_string("session");
  HONE_CHECK(is_session_name(session), "its session has ", session.size(),
             " bytes; it must be 1 to 128 letters, digits, '-' or '_'");
  session_ = session;
  const std::string& device = answer.at("device", "join").as_string("device");
  log::info("rollout: worker ", peer_.name, " has joined: ", chip(device));
  if (chip(device) != chip(device_.description()))
    log::warning("rollout: worker ", peer_.name, " computes on ", chip(device), ", the learner on ",
                 chip(device_.description()), ": log-probs may differ in their last bits");
  open_device_link(answer.at("links", "join"));
}

void WorkerLink::open_device_link(const Json& kinds) {
  if (peer_.transport == "stream" || (peer_.transport == "auto" && failed_openings_ >= most_openings)) return;
  for (const Json& kind : kinds.as_array("links")) {
    const std::string& name = kind.as_string("links");
    const DeviceLinkKind* here = device_links().find(name);
    if (!here || !here->serves(device_) || (peer_.transport != "auto" && peer_.transport != name)) continue;
    try {
      const std::string id = here->new_id();
      const double seconds = std::min(longest_opening, peer_.timeout / 4);
      ask("link",
          Json(JsonObject{{"kind", name},
                          {"id", base64(std::span(reinterpret_cast<const unsigned char*>(id.data()), id.size()))},
                          {"seconds", seconds}})
              .dump());
      if (!context_) context_.emplace(device_);
      device_link_ = here->open(device_, id, 0, patience(seconds));
      failed_openings_ = 0;
      return log::info("rollout: weights go to ", peer_.name, " over ", name);
    } catch (const Refusal&) {
      throw;
    } catch (const Error& error) {
      ++failed_openings_;
      if (dispatcher_.stopping()) throw;
      HONE_CHECK(channels_.front().connected(), "the connection broke while ", name, " was opened: ", error.what());
      log::warning("rollout: no ", name, " to ", peer_.name, ": ", error.what());
    }
  }
  HONE_CHECK(device_link_ || peer_.transport == "auto", "weight_transport is ", peer_.transport,
             ", which does not reach this worker");
}

std::vector<int64_t> WorkerLink::commit(int64_t version, std::span<const WeightChunks::Block> blocks, bool landed) {
  JsonArray digests;
  for (const WeightChunks::Block& block : blocks) digests.emplace_back(base64(block.digest));
  const Json answer =
      ask("commit", Json(JsonObject{{"version", version}, {"landed", landed}, {"digests", std::move(digests)}}).dump());
  std::vector<int64_t> missing;
  std::vector<bool> is_listed(blocks.size());
  for (const Json& block : answer.at("missing", "commit").as_array("missing")) {
    missing.push_back(block.as_int("missing"));
    HONE_CHECK(missing.back() >= 0 && missing.back() < std::ssize(blocks), "block ", missing.back(), " is missing, of ",
               blocks.size());
    const auto i = static_cast<size_t>(missing.back());
    HONE_CHECK(!is_listed[i], "it says twice that block ", i, " is missing");
    is_listed[i] = true;
  }
  return missing;
}

// One by itself, the longest, which shows how fast they travel. Then several at once: the worker checks some while
// others are on their way.
void WorkerLink::send(std::span<const WeightChunks::Block> blocks, std::vector<int64_t> which) {
  if (which.empty()) return;
  const auto block_of = [&](int64_t i) -> const WeightChunks::Block& { return blocks[static_cast<size_t>(i)]; };
  const auto send_one = [&](HttpChannel& channel, int64_t i) {
    HttpHeaders headers = headers_for(block_of(i).digest);
    headers.emplace_back(block_header, std::to_string(i));
    post(channel, "weights", block_of(i).bytes, headers);
    dispatcher_.record_progress(place_);
  };
  std::ranges::iter_swap(which.begin(),
                         std::ranges::max_element(which, {}, [&](int64_t i) { return block_of(i).bytes.size(); }));
  const Stopwatch watch;
  send_one(channels_.front(), which.front());
  const auto at_once =
      static_cast<size_t>(std::clamp(longest_silence / watch.seconds(), 1.0, static_cast<double>(channels_.size())));

  std::atomic<size_t> next = 1;
  const auto send_on = [&](HttpChannel& channel) {
    try {
      for (size_t i = next++; i < which.size(); i = next++) send_one(channel, which[i]);
    } catch (...) {
      next = which.size();
      throw;
    }
  };
  std::vector<std::future<void>> beside;
  for (size_t i = 1; i < std::min(at_once, which.size() - 1); ++i)
    beside.push_back(std::async(std::launch::async, send_on, std::ref(channels_[i])));
  send_on(channels_.front());
  for (std::future<void>& one : beside) one.get();
}

// Says which blocks there are, and where some are missing sends them, and says it again.
void WorkerLink::push_weights(int64_t version, std::span<const WeightChunks::Block> blocks, bool landed) {
  const std::vector<int64_t> missing = commit(version, blocks, landed);
  send(blocks, missing);
  HONE_CHECK(missing.empty() || commit(version, blocks, landed).empty(), "it has not the weights that it was sent");
}

// What training leaves alone goes by the stream, once.
bool WorkerLink::send_over_link(const WeightSnapshot& image) {
  if (!device_link_) return false;
  const double seconds = std::min(longest_transfer, peer_.timeout / 2);
  try {
    ask("receive", Json(JsonObject{{"version", image.version()}, {"seconds", seconds}}).dump());
    const Deadline patience = this->patience(seconds);
    device_link_->send(*context_, image.trained(), patience);
    device_link_->finish(*context_, patience);
  } catch (const std::exception& error) {
    if (dispatcher_.stopping()) throw;
    HONE_CHECK(channels_.front().connected(),
               "the connection broke while weights went over the device link: ", error.what());
    drop_device_link(error.what());
    return false;
  }
  try {
    push_weights(image.version(), image.frozen().blocks(), true);
    return true;
  } catch (const Refusal& refusal) {
    if (refusal.code != "no_landing") throw;
    drop_device_link(refusal.what());
    return false;
  }
}

void WorkerLink::drop_device_link(const std::string& why) {
  device_link_.reset();
  log::warning("rollout: weights did not go to ", peer_.name, " over the device link: ", why,
               "; they are streamed until it joins again");
}

void WorkerLink::sync(const WeightSnapshot& image) {
  const Stopwatch watch;
  if (!send_over_link(image)) push_weights(image.version(), image.blocks(), false);
  version_ = image.version();
  dispatcher_.record_weight_sync(watch.seconds());
}

// An answer is no longer than what is awaited can be.
WorkerPollResult WorkerLink::take_turn(const WorkerPoll& turn, int64_t awaited_tokens) {
  constexpr uint64_t bytes_of_a_token = 1024;
  const uint64_t max_body = most_bytes + bytes_of_a_token * static_cast<uint64_t>(awaited_tokens);
  WorkerPollResult report = WorkerPollResult::parse(ask("turn", turn.to_json().dump(), max_body));
  HONE_CHECK(report.number == turn.number, "turn ", report.number, " came for turn ", turn.number);
  return report;
}

// Of requests that are all computed once.
static int64_t num_tokens(const std::vector<WorkerPoll::Ask>& asks) {
  int64_t out = 0;
  for (const WorkerPoll::Ask& ask : asks)
    out += std::ssize(ask.request.prompt) + ask.request.n * ask.request.sampling.max_tokens;
  return out;
}

// A worker gets on where it finishes requests, or computes tokens of them: more tokens than its requests have are none
// of theirs, and more than twice as many (some are computed again, for want of cache or under new weights) are a lie.
void WorkerLink::serve() {
  Stopwatch moved;  // since it got somewhere
  int64_t computed = 0, given = 0;
  bool busy = false;
  for (int64_t number = 1;; ++number) {
    Dispatcher::Work work = dispatcher_.next(place_, version_, busy ? 0 : heartbeat);
    if (work.stopping) return;
    given += num_tokens(work.submit);
    if (work.weights) {
      sync(*work.weights);
      moved = {};
      given += work.tokens;  // what is being written is computed again
    }
    WorkerPollResult report = take_turn({.number = number,
                                         .wait = work.tokens > 0 ? turn_wait : 0,
                                         .version = version_,
                                         .submit = std::move(work.submit),
                                         .cancel = std::move(work.cancel)},
                                        work.tokens);
    HONE_CHECK(report.computed_tokens >= computed && report.computed_tokens <= 2 * given, "it claims to have computed ",
               report.computed_tokens, " tokens after ", computed, "; its requests have ", given);
    const bool got_on = report.computed_tokens > computed && computed < given;
    if (got_on) dispatcher_.record_progress(place_);
    if (got_on || work.tokens == 0) moved = {};
    computed = report.computed_tokens;
    for (WorkerPollResult::Done& done : report.finished)
      if (dispatcher_.finished(place_, std::move(done))) {
        next_pause_ = first_pause;
        moved = {};
      }
    HONE_CHECK(!dispatcher_.overdue(place_), "it has had a request for too long (rollout.worker_request_timeout)");
    HONE_CHECK(moved.seconds() < peer_.timeout, "it has got nowhere for ", peer_.timeout, " seconds");
    busy = work.tokens > 0;
  }
}

void WorkerLink::run() {
  for (; !dispatcher_.stopping(); next_pause_ = std::min(2 * next_pause_, longest_pause)) {
    try {
      join();
      dispatcher_.joined(place_);
      serve();
    } catch (const std::exception& error) {
      dispatcher_.lost(place_, error.what());
    }
    dispatcher_.pause(next_pause_);
  }
  device_link_.reset();
  context_.reset();
}

}  // namespace hone
