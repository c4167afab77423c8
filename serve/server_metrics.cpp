#include "serve/server_metrics.h"

#include <algorithm>

#include "core/io/json.h"

namespace hone {
namespace {

void write_header(std::string& out, const std::string& name, const char* help, const char* type) {
  out += concat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
}

void write_number(std::string& out, const std::string& name, const char* help, const char* type, int64_t value) {
  write_header(out, name, help, type);
  out += concat(name, " ", value, "\n");
}

}  // namespace

void ServerMetrics::Histogram::add(double value) {
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
  ++counts[static_cast<size_t>(bucket)];
  sum += value;
}

void ServerMetrics::record_response(const std::string& path, int status, double seconds) {
  const std::lock_guard lock(mutex_);
  ++responses_[{path, status}];
  seconds_.add(seconds);
}

void ServerMetrics::record_first_token(double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_.add(seconds);
}

void ServerMetrics::write(std::string& out, const std::string& name, const char* help, const Histogram& histogram) {
  write_header(out, name, help, "histogram");
  int64_t count = 0;
  for (size_t i = 0; i < Histogram::bounds.size(); ++i) {
    count += histogram.counts[i];
    out += concat(name, "_bucket{le=\"", number_text(Histogram::bounds[i]), "\"} ", count, "\n");
  }
  count += histogram.counts.back();
  out += concat(name, "_bucket{le=\"+Inf\"} ", count, "\n", name, "_sum ", number_text(histogram.sum), "\n", name,
                "_count ", count, "\n");
}

std::string ServerMetrics::text(const AsyncEngine::State& state, int64_t max_pending_completions,
                                int64_t connections) const {
  std::string out;
  const std::lock_guard lock(mutex_);
  write_header(out, "hone_requests_total", "Responses by path and status; 499: the client disconnected.", "counter");
  for (const auto& [key, count] : responses_)
    out += concat("hone_requests_total{path=\"", key.first, "\",status=\"", key.second, "\"} ", count, "\n");
  write(out, "hone_request_seconds", "Seconds from a request to the end of its response.", seconds_);
  write(out, "hone_first_token_seconds", "Seconds from a streamed request to its first token.", first_token_);
  write_number(out, "hone_prompt_tokens_total", "Prompt tokens computed.", "counter", state.engine.prompt_tokens);
  write_number(out, "hone_shared_prompt_tokens_total",
               "Prompt tokens that completions shared with the first of their request.", "counter",
               state.engine.shared_prompt_tokens);
  write_number(out, "hone_cached_tokens_total", "Tokens found in the prefix cache.", "counter",
               state.engine.cached_tokens);
  write_number(out, "hone_generated_tokens_total", "Tokens sampled.", "counter", state.engine.generated_tokens);
  write_number(out, "hone_engine_steps_total", "Forward passes.", "counter", state.engine.steps);
  write_number(out, "hone_preemptions_total", "Sequences preempted because the KV cache was full.", "counter",
               state.engine.preemptions);
  write_number(out, "hone_spec_decode_num_drafts_total", "Drafts of speculative decoding.", "counter",
               state.engine.drafts);
  write_number(out, "hone_spec_decode_num_draft_tokens_total", "Draft tokens.", "counter", state.engine.draft_tokens);
  write_number(out, "hone_spec_decode_num_accepted_tokens_total", "Accepted draft tokens.", "counter",
               state.engine.accepted_tokens);
  write_number(out, "hone_jobs_cancelled_total", "Requests cancelled because their client disconnected.", "counter",
               state.requests_cancelled);
  write_number(out, "hone_replies", "Completions that wait or run.", "gauge", state.pending_completions);
  write_number(out, "hone_replies_limit", "Maximum completions that wait or run; requests beyond it get status 429.",
               "gauge", max_pending_completions);
  write_number(out, "hone_kv_cache_held_tokens", "Token slots of the KV blocks that requests hold.", "gauge",
               state.engine.kv_tokens_used);
  write_number(out, "hone_kv_bytes_per_token", "Bytes of the KV cache per token.", "gauge",
               state.engine.kv_bytes_per_token);
  write_number(out, "hone_kv_window_tokens",
               "Most tokens that layers with a sliding window keep of a decoding sequence; 0 = no windows.", "gauge",
               state.engine.kv_window_tokens);
  write_number(out, "hone_connections", "Open connections.", "gauge", connections);
  return out;
}

}  // namespace hone
