#include "run/watch/watch_server.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/io/jsonl.h"
#include "core/io/page_style.h"
#include "core/net/http_server.h"
#include "core/net/page_response.h"
#include "run/watch/log_piece.h"
#include "run/watch/run_list.h"
#include "run/watch/watch_parts.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

constexpr int64_t samples_shown = int64_t{2} << 20;  // bytes of samples.jsonl that a page begins with
constexpr size_t rollout_piece = size_t{2} << 20;    // bytes of one answer with rollouts

std::vector<std::string> segments_of(std::string_view path) {
  std::vector<std::string> out;
  for (size_t at = 1; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    out.emplace_back(path.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

// A number of up to 18 digits without sign; nullopt for anything else.
std::optional<int64_t> number_of(std::string_view text) {
  int64_t out = 0;
  if (text.empty() || text.size() > 18) return std::nullopt;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), out);
  return problem == std::errc() && end == text.data() + text.size() && out >= 0 ? std::optional(out) : std::nullopt;
}

HttpServerResponse json_response(const Json& json) {
  return {.body = json.dump(), .headers = {{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}}};
}

HttpServerResponse rows_response(const Json& about, const std::string& lines) {
  return {.body = about.dump() + "\n" + lines,
          .content_type = "application/jsonl; charset=utf-8",
          .headers = {{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}}};
}

HttpServerResponse not_found(const std::string& what) {
  return {.status = 404, .body = error_json(404, what, {}, "not_found").dump()};
}

// What a request asks of a run: "metrics" and the rest of the path.
struct RunRequest {
  size_t run = 0;
  std::string what;
  std::vector<std::string> rest;
};

// Null if the path is not one of the API.
std::optional<RunRequest> run_request(std::string_view path) {
  const std::vector<std::string> words = segments_of(path);
  if (words.size() < 4 || words[0] != "api" || words[1] != "runs") return std::nullopt;
  const std::optional<int64_t> run = number_of(words[2]);
  if (!run) return std::nullopt;
  RunRequest out{static_cast<size_t>(*run), words[3], {words.begin() + 4, words.end()}};
  const size_t count = out.rest.size();
  const bool is_log = (out.what == "metrics" || out.what == "samples") && count == 2 &&
                      (number_of(out.rest[0]) || out.rest[0] == "end");
  const bool is_rollouts =
      out.what == "rollouts" && (count == 0 || (count == 2 && number_of(out.rest[0]) && number_of(out.rest[1])));
  const bool is_recipe = out.what == "recipe" && count == 0;
  return is_log || is_rollouts || is_recipe ? std::optional(out) : std::nullopt;
}

HttpServerResponse log_rows(const fs::path& path, const RunRequest& request) {
  const std::optional<int64_t> offset = number_of(request.rest[0]);
  const LogPlace from = offset ? LogPlace{*offset, request.rest[1]} : place_near_end(path, samples_shown);
  const LogPiece piece = read_log_piece(path, from);
  return rows_response(JsonObject{{"next", piece.next.offset},
                                  {"digest", piece.next.digest},
                                  {"size", piece.size},
                                  {"begin", piece.reset ? 0 : from.offset},
                                  {"reset", piece.reset}},
                       piece.lines);
}

HttpServerResponse rollout_steps(const fs::path& folder) {
  std::vector<int64_t> steps;
  std::error_code problem;
  for (auto entry = fs::directory_iterator(folder / "rollouts", problem); !problem && entry != fs::directory_iterator();
       entry.increment(problem)) {
    const std::string name = entry->path().filename().string();
    constexpr std::string_view prefix = "step-", suffix = ".jsonl.gz";
    if (!name.starts_with(prefix) || !name.ends_with(suffix) || name.size() <= prefix.size() + suffix.size()) continue;
    const auto step =
        number_of(std::string_view(name).substr(prefix.size(), name.size() - prefix.size() - suffix.size()));
    if (step) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  JsonArray out(steps.begin(), steps.end());
  return json_response(JsonObject{{"steps", std::move(out)}});
}

// Rows without the members that have an entry for each token.
HttpServerResponse rollout_rows(const fs::path& folder, int64_t step, int64_t first) {
  const fs::path path = folder / "rollouts" / concat("step-", step, ".jsonl.gz");
  if (std::error_code missing; !fs::is_regular_file(path, missing))
    return not_found("no rollouts of this step are kept");
  JsonlReader reader(path);
  std::string lines;
  int64_t row = 0;
  bool more = true;
  for (Json all; lines.size() < rollout_piece && (more = reader.next(all));) {
    if (row++ < first) continue;
    JsonObject shown;
    for (const auto& [name, value] : all.as_object(reader.where()))
      if (!value.is_array() || name == "messages") shown.emplace_back(name, value);
    if (const Json* ids = all.find("completion_ids"); ids && ids->is_array())
      shown.emplace_back("tokens", static_cast<int64_t>(ids->as_array().size()));
    lines += Json(std::move(shown)).dump() + "\n";
  }
  return rows_response(JsonObject{{"next", row}, {"end", !more}}, lines);
}

}  // namespace

std::string watch_page_text() {
  std::string page = with_part(std::string(watch_page()), "/* page_style.css */", page_style());
  page = with_part(std::move(page), "/* watch_chart.js */", watch_chart());
  page = with_part(std::move(page), "/* watch_data.js */", watch_data());
  page = with_part(std::move(page), "/* watch_samples.js */", watch_samples());
  return with_part(std::move(page), "/* watch_views.js */", watch_views());
}

struct WatchServer::Impl final : HttpApp {
  Impl(const WatchConfig& config, std::vector<fs::path> sources)
      : gate(config.access, config.host, std::nullopt), host(config.host), runs(std::move(sources)) {}

  std::optional<HttpServerResponse> reject_early(const HttpRequestInfo& info) override {
    static constexpr HttpRoute get{"GET", true};
    const bool known = info.path == "/" || info.path == "/api/runs" || run_request(info.path);
    return gate.reject(info, known ? &get : nullptr);
  }
  HttpHeaders headers_for(const HttpRequestInfo& info) override { return gate.headers_for(info); }
  HttpServerResponse error(int status, const std::string& message) override {
    return {.status = status, .body = error_json(status, message).dump()};
  }
  // Answers on the network thread: the files are local, and a piece has a few MiB at most.
  void handle(std::shared_ptr<HttpTransaction> transaction) override {
    transaction->respond(respond_to(transaction->info().path));
  }

  HttpServerResponse respond_to(const std::string& path) {
    static const HttpServerResponse page = page_response(watch_page_text());
    if (path == "/") return page;
    if (path == "/api/runs") return json_response(runs.describe());
    const std::optional<RunRequest> request = run_request(path);
    const std::optional<fs::path> folder = request ? runs.folder(request->run) : std::nullopt;
    if (!folder) return not_found("there is no run of this number");
    if (request->what == "recipe") return json_response(RunList::recipe(*folder));
    if (request->what == "metrics") return log_rows(*folder / "metrics.jsonl", *request);
    if (request->what == "samples") return log_rows(*folder / "samples.jsonl", *request);
    if (request->rest.empty()) return rollout_steps(*folder);
    return rollout_rows(*folder, *number_of(request->rest[0]), *number_of(request->rest[1]));
  }

  const ServeGate gate;
  const std::string host;
  RunList runs;
  std::unique_ptr<HttpServer> http;
};

WatchServer::WatchServer(const WatchConfig& config, std::vector<fs::path> sources)
    : impl_(std::make_unique<Impl>(config, std::move(sources))) {
  impl_->http = std::make_unique<HttpServer>(
      HttpServerConfig{.host = config.host, .port = config.port, .max_body_bytes = 1024, .max_connections = 64},
      *impl_);
  impl_->http->start();
}

WatchServer::~WatchServer() { impl_->http->stop(); }

void WatchServer::add(const fs::path& source) { impl_->runs.add(source); }

int64_t WatchServer::port() const { return impl_->http->port(); }

std::string WatchServer::url() const { return concat("http://", impl_->host, ":", port()); }

}  // namespace hone
