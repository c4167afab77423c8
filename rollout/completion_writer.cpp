#include "rollout/completion_writer.h"

#include <algorithm>

#include "core/text/detokenizer.h"
#include "rollout/sampling_state.h"

namespace hone {

Sequence CompletionWriter::begin(std::shared_ptr<RequestState> ticket, const ModelShape& shape) const {
  const GenerationRequest& request = ticket->request;
  std::vector<int32_t>& stops = ticket->stop_ids;
  const auto add = [&](int64_t id) {
    if (id >= 0 && id < shape.vocab_size) stops.push_back(static_cast<int32_t>(id));  // others are never drawn
  };
  for (const int64_t id : request.sampling.stop_ids) add(id);
  if (tokenizer_ && !request.sampling.ignore_eos)
    for (const int32_t id : tokenizer_->stop_ids()) add(id);
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  Sequence out;
  out.tokens = request.prompt;
  out.max_tokens =
      std::min(static_cast<int64_t>(request.prompt.size()) + request.sampling.max_tokens, shape.max_positions);
  if (request.sampling.thinking_budget > 0) {
    out.thinking = true;
    ticket->thinking_end = tokenizer_->encode(request.sampling.thinking_end);
  }
  if (request.sampling.repetition_penalty != 1)
    for (const int32_t id : request.prompt) out.counts[id] = 0;
  out.ticket = std::move(ticket);
  return out;
}

// Columns that grow from nothing would take memory ten times on their way to a thousand tokens.
static void allocate_blocks(Sequence& sequence) {
  const auto longest = static_cast<size_t>(std::min<int64_t>(sequence.max_tokens - std::ssize(sequence.tokens), 1024));
  CompletionOutput& reply = sequence.result();
  reply.ids.reserve(longest);
  for (auto* column : {&reply.logp, &reply.truncated_logp, &reply.raw_logp}) column->reserve(longest);
  reply.versions.reserve(longest);
  sequence.tokens.reserve(sequence.tokens.size() + longest);
}

bool CompletionWriter::accept(Sequence& sequence, const SampledTokens& drawn, size_t i) {
  const GenerationRequest& request = sequence.ticket->request;
  CompletionOutput& reply = sequence.result();
  if (reply.ids.empty()) allocate_blocks(sequence);
  ++stats_.generated_tokens;
  reply.logp.push_back(drawn.logp[i]);
  reply.truncated_logp.push_back(drawn.truncated_logp[i]);
  reply.raw_logp.push_back(drawn.raw_logp[i]);
  if (request.top_logprobs > 0) {
    const auto& top = drawn.top_logprobs[i];
    reply.top_logprobs.emplace_back(top.begin(),
                                    top.begin() + std::min<std::ptrdiff_t>(request.top_logprobs, std::ssize(top)));
  }
  if (!append(sequence, drawn.ids[i])) return false;
  return !sequence.thinking || sequence.written() < request.sampling.thinking_budget || end_thinking(sequence);
}

bool CompletionWriter::end_thinking(Sequence& sequence) {
  CompletionOutput& reply = sequence.result();
  sequence.thinking = false;
  for (const int32_t id : sequence.ticket->thinking_end) {
    ++stats_.forced_tokens;
    for (auto* column : {&reply.logp, &reply.truncated_logp, &reply.raw_logp}) column->push_back(0);
    if (sequence.ticket->request.top_logprobs > 0) reply.top_logprobs.emplace_back();
    reply.forced.resize(reply.ids.size());
    reply.forced.push_back(true);
    if (!append(sequence, id)) return false;
  }
  return true;
}

// Adds a token whose log-probs are there to its reply; false when that ends it.
bool CompletionWriter::append(Sequence& sequence, int32_t id) {
  const RequestState& ticket = *sequence.ticket;
  CompletionOutput& reply = sequence.result();
  add_token(sequence, id);
  reply.ids.push_back(id);
  reply.versions.push_back(version_);
  if (!reply.forced.empty()) reply.forced.resize(reply.ids.size());
  if (ticket.on_token) ticket.on_token(ticket.request.id, sequence.reply, reply);
  const bool stopped = ends(sequence, id);
  if (stopped || sequence.full()) close(sequence, !stopped);
  return !stopped && !sequence.full();
}

// Reads on in the reply's text: true if that ends it. Thinking may end here, too.
bool CompletionWriter::ends(Sequence& sequence, int32_t id) const {
  const SamplingParams& sampling = sequence.ticket->request.sampling;
  const bool may_end = sequence.written() > sampling.min_tokens;
  if (may_end && std::ranges::binary_search(sequence.ticket->stop_ids, id)) return true;
  if (!tokenizer_ || (sampling.stop.empty() && !sequence.thinking)) return false;
  const size_t before = sequence.tail.size();
  sequence.tail += tokenizer_->token_bytes(id);
  size_t longest = 0;
  const auto completes = [&](const std::string& text) {  // with this token
    longest = std::max(longest, text.size());
    return !text.empty() && sequence.tail.find(text, before - std::min(before, text.size() - 1)) != std::string::npos;
  };
  if (sequence.thinking && completes(sampling.thinking_end)) sequence.thinking = false;
  for (const std::string& stop : sampling.stop)
    if (completes(stop) && may_end) return true;
  if (sequence.tail.size() > longest) sequence.tail.erase(0, sequence.tail.size() - longest);
  return false;
}

void CompletionWriter::close(const Sequence& sequence, bool by_length) const {
  CompletionOutput& reply = sequence.result();
  reply.finish_reason = by_length ? "length" : "stop";
  const SamplingParams& sampling = sequence.ticket->request.sampling;
  if (tokenizer_) reply.text = completion_text(*tokenizer_, sampling.stop, sampling.min_tokens, reply.ids, by_length);
}

}  // namespace hone
