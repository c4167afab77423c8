#include "rollout/engine.h"

#include <algorithm>
#include <mutex>

#include "core/model/run.h"
#include "rollout/decode_loop.h"
#include "rollout/scheduler.h"

namespace hone {

struct Engine::Impl {
  Impl(Context& c, Model& m, const Tokenizer* t, const EngineConfig& cfg)
      : context(c),
        model(m),
        tokenizer(t),
        config(cfg),
        cache(c, m.shape(), m.head().value.dtype, cfg.kv_block_size, cfg.kv_cache_tokens),
        scheduler(cache, config),
        decoding(c, m, cache),
        staging(c.device()) {
    if (t)
      for (const int32_t id : t->stop_ids()) stop_ids.push_back(id);
  }

  uint64_t submit(Request request, OnFinish on_finish, OnToken on_token);
  bool step();
  void take_arrivals();
  bool disturbed();
  void decode(std::span<const Scheduler::Part> parts);
  void admit(std::shared_ptr<Ticket> ticket);
  void fail_ticket(Ticket& ticket, const std::string& reason);
  std::string refusal(const Request& request) const;
  Drawn draw(Tensor hidden, std::span<const SampleParams> params);
  bool accept(Sequence& sequence, const Drawn& drawn, size_t i);
  bool end_thinking(Sequence& sequence);
  bool append(Sequence& sequence, int32_t id);
  bool ends(Sequence& sequence, int32_t id) const;
  void close(const Sequence& sequence, bool by_length);
  std::string text_of(const Sequence& sequence, bool by_length) const;

  Context& context;
  Model& model;
  const Tokenizer* tokenizer;
  EngineConfig config;
  KvCache cache;
  Scheduler scheduler;
  DecodeLoop decoding;
  Arena staging;
  std::vector<int64_t> stop_ids;
  EngineStats stats;
  std::mutex inbox_mutex;
  std::vector<std::shared_ptr<Ticket>> inbox;
  std::vector<uint64_t> cancelled;
  std::vector<std::shared_ptr<Ticket>> live;
  uint64_t next_ticket = 1;
};

Engine::Engine(Context& context, Model& model, const Tokenizer* tokenizer, const EngineConfig& config)
    : impl_(std::make_unique<Impl>(context, model, tokenizer, config)) {}
Engine::~Engine() = default;

const EngineStats& Engine::stats() const { return impl_->stats; }

uint64_t Engine::submit(Request request, OnFinish on_finish, OnToken on_token) {
  auto ticket = std::make_shared<Ticket>();
  ticket->request = std::move(request);
  ticket->on_finish = std::move(on_finish);
  ticket->on_token = std::move(on_token);
  const std::lock_guard lock(impl_->inbox_mutex);
  ticket->number = impl_->next_ticket++;
  impl_->inbox.push_back(ticket);
  return ticket->number;
}

void Engine::cancel(uint64_t ticket) {
  const std::lock_guard lock(impl_->inbox_mutex);
  impl_->cancelled.push_back(ticket);
}

bool Engine::step() { return impl_->step(); }

std::string Engine::Impl::refusal(const Request& request) const {
  const int64_t prompt = static_cast<int64_t>(request.prompt.size()), positions = model.shape().max_positions;
  if (prompt == 0) return "the prompt has no tokens";
  if (request.n <= 0 || request.n > 65536) return concat("n is ", request.n, ", it must be in [1, 65536]");
  if (prompt >= positions) return concat("the prompt has ", prompt, " tokens, the model takes ", positions, " with the reply");
  for (const int32_t id : request.prompt)
    if (id < 0 || id >= model.shape().vocab_size)
      return concat("the prompt holds id ", id, ", the model's vocabulary has ", model.shape().vocab_size);
  if (request.sampling.max_tokens <= 0 || request.sampling.max_tokens > INT32_MAX)
    return concat("max_tokens is ", request.sampling.max_tokens, ", it must be in [1, ", INT32_MAX, "]");
  const int64_t longest = std::min(prompt + request.sampling.max_tokens, positions), room = cache.num_blocks() * cache.block_size();
  if (request.sampling.thinking_budget < 0) return concat("thinking_budget is ", request.sampling.thinking_budget, ", it must be 0 or more");
  if (request.sampling.thinking_budget > 0 && (!tokenizer || tokenizer->encode(request.sampling.thinking_end).empty()))
    return concat("a thinking_budget needs a tokenizer, and a thinking_end with tokens, not '", request.sampling.thinking_end, "'");
  if (cache.blocks_for(longest) > cache.num_blocks()) return concat("the prompt and max_tokens are ", longest, " tokens, kv_cache_tokens is ", room);
  return {};
}

void Engine::Impl::fail_ticket(Ticket& ticket, const std::string& reason) {
  for (Reply& reply : ticket.replies) reply.failed = true, reply.finish_reason = reason;
  ticket.on_finish(ticket.request.id, std::move(ticket.replies));
}

void Engine::Impl::admit(std::shared_ptr<Ticket> ticket) {
  const Request& request = ticket->request;
  ticket->replies.resize(static_cast<size_t>(std::clamp<int64_t>(request.n, 1, 65536)));
  ticket->unfinished = static_cast<int64_t>(ticket->replies.size());
  if (const std::string reason = refusal(request); !reason.empty()) return fail_ticket(*ticket, reason);
  Sequence sequence;
  sequence.tokens = request.prompt;
  sequence.max_tokens = std::min(static_cast<int64_t>(request.prompt.size()) + request.sampling.max_tokens, model.shape().max_positions);
  if (request.sampling.thinking_budget > 0) {
    sequence.thinking = true;
    ticket->thinking_end = tokenizer->encode(request.sampling.thinking_end);
  }
  sequence.ticket = ticket;
  live.push_back(std::move(ticket));
  scheduler.add(std::move(sequence));
}

// The draw's parameters: what it depends on besides the logits is the request's seed and id, the reply, and the position.
static SampleParams sample_params(const Sequence& sequence, int64_t reply) {
  const Request& request = sequence.ticket->request;
  return {.temperature = static_cast<float>(request.sampling.temperature),
          .top_p = static_cast<float>(request.sampling.top_p),
          .min_p = static_cast<float>(request.sampling.min_p),
          .top_k = static_cast<int32_t>(std::min<int64_t>(request.sampling.top_k, INT32_MAX)),
          .seed = static_cast<uint64_t>(request.sampling.seed),
          .stream = request.id * 65536 + static_cast<uint64_t>(reply),
          .position = sequence.tokens.size()};
}

void Engine::Impl::take_arrivals() {
  std::vector<std::shared_ptr<Ticket>> arrived;
  {
    const std::lock_guard lock(inbox_mutex);
    arrived.swap(inbox);
    for (const uint64_t number : cancelled)
      for (const auto* tickets : {&arrived, &live})
        for (const auto& ticket : *tickets)
          if (ticket->number == number) ticket->cancelled = true;
    cancelled.clear();
  }
  std::erase_if(live, [](const auto& ticket) { return ticket->cancelled; });
  for (auto& ticket : arrived)
    if (!ticket->cancelled) admit(std::move(ticket));
}

// Whether something waits for take_arrivals().
bool Engine::Impl::disturbed() {
  const std::lock_guard lock(inbox_mutex);
  return !inbox.empty() || !cancelled.empty();
}

// Passes over sequences that are all decoding, until one of them ends, something arrives, or a plan is due again.
void Engine::Impl::decode(std::span<const Scheduler::Part> parts) {
  constexpr int64_t most_passes = 32;
  int64_t passes = most_passes;
  for (const Scheduler::Part& part : parts) {
    const Sequence& s = *part.sequence;
    passes = std::min(passes, s.max_tokens - static_cast<int64_t>(s.tokens.size()));
    if (s.thinking) passes = std::min(passes, s.ticket->request.sampling.thinking_budget - s.written());  // what is forced then is the host's to add
  }
  passes = scheduler.reserve(parts, passes);
  std::vector<DecodeLoop::Row> rows;
  for (const Scheduler::Part& part : parts) {
    const Sequence& s = *part.sequence;
    rows.push_back({s.tokens.back(), s.computed, s.blocks, sample_params(s, s.reply)});
  }
  decoding.start(rows);
  const int64_t ahead = context.device().asynchronous() ? 1 : 0;
  std::vector<bool> ended(parts.size());
  bool stop = false;
  for (int64_t queued = 0; (queued < passes && !stop) || decoding.num_unread() > 0;) {
    while (queued < passes && !stop && decoding.num_unread() <= ahead) decoding.queue(), ++queued;
    const Drawn drawn = decoding.read();
    ++stats.steps;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (ended[i]) continue;
      ++parts[i].sequence->computed;
      ended[i] = !accept(*parts[i].sequence, drawn, i);
      stop = stop || ended[i];
    }
    stop = stop || disturbed();
  }
  for (size_t i = 0; i < parts.size(); ++i)
    if (ended[i]) scheduler.finish(parts[i].sequence);
}

bool Engine::Impl::step() {
  take_arrivals();
  const std::vector<Scheduler::Part> parts = scheduler.plan();
  if (parts.empty()) return !scheduler.idle();
  const auto decodes = [](const Scheduler::Part& part) { return part.sequence->parted && part.sequence->remaining() == 1; };
  if (std::all_of(parts.begin(), parts.end(), decodes)) {
    decode(parts);
    return true;
  }

  // What the pass computes, and a row of logits for every token drawn after it.
  struct Draw {
    std::list<Sequence>::iterator sequence;
    int64_t reply;
  };
  std::vector<BatchPart> batch_parts;
  std::vector<int32_t> slots, lengths, rows, table;
  std::vector<SampleParams> params;
  std::vector<Draw> draws;
  size_t widest = 0;
  for (const Scheduler::Part& part : parts) widest = std::max(widest, part.sequence->blocks.size());
  int32_t row = 0;
  for (const auto& [sequence, count] : parts) {
    const int64_t begin = sequence->computed, end = begin + count;
    batch_parts.push_back({std::span(sequence->tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(count)), static_cast<int32_t>(begin)});
    for (int64_t p = begin; p < end; ++p)
      slots.push_back(
          static_cast<int32_t>(sequence->blocks[static_cast<size_t>(p / cache.block_size())] * cache.block_size() + p % cache.block_size()));
    lengths.push_back(static_cast<int32_t>(end));
    table.insert(table.end(), sequence->blocks.begin(), sequence->blocks.end());
    table.resize(widest * lengths.size(), 0);
    row += static_cast<int32_t>(count);
    if (!sequence->parted) stats.prompt_tokens += count;
    if (end < static_cast<int64_t>(sequence->tokens.size())) continue;
    const int64_t first = sequence->parted ? sequence->reply : 0, last = sequence->parted ? first + 1 : sequence->ticket->request.n;
    for (int64_t reply = first; reply < last; ++reply) {
      draws.push_back({sequence, reply});
      rows.push_back(row - 1);
      params.push_back(sample_params(*sequence, reply));
    }
  }

  ScratchScope scratch(context);
  staging.release({});
  const Batch batch = pack_batch(context, staging, batch_parts);
  KvView view = cache.view();
  view.slots = upload(context, staging, slots);
  view.lengths = upload(context, staging, lengths);
  view.block_table = upload(context, staging, table).view({static_cast<int64_t>(lengths.size()), static_cast<int64_t>(widest)});
  const Tensor hidden = infer(context, model, batch, upload(context, staging, rows), &view);
  ++stats.steps;
  for (const Scheduler::Part& part : parts) part.sequence->computed += part.count;
  stats.preemptions = scheduler.preemptions();
  if (draws.empty()) return true;

  const Drawn drawn = draw(hidden, params);
  for (size_t i = 0; i < draws.size(); ++i) {
    const auto [prompt, reply] = draws[i];
    if (prompt->parted) {
      if (!accept(*prompt, drawn, i)) scheduler.finish(prompt);
      continue;
    }
    Sequence part = *prompt;
    part.parted = true;
    part.reply = reply;
    if (reply > 0) stats.shared_prompt_tokens += prompt->computed;
    if (accept(part, drawn, i)) scheduler.fork(*prompt, std::move(part));
    if (reply + 1 == prompt->ticket->request.n) scheduler.finish(prompt);
  }
  return true;
}

Drawn Engine::Impl::draw(Tensor hidden, std::span<const SampleParams> params) {
  ScratchScope scratch(context);
  const auto count = static_cast<int64_t>(params.size()), bytes = static_cast<int64_t>(params.size_bytes());
  const Tensor on_device = context.scratch().take(DType::u8, {bytes});
  context.copy(on_device, Tensor(const_cast<SampleParams*>(params.data()), DType::u8, DeviceKind::cpu, {bytes}));
  const DrawnRows rows(context.scratch().take(DType::i32, {4, count}));
  draw_rows(context, model, rows, hidden, on_device);
  std::vector<int32_t> host(static_cast<size_t>(4 * count));
  context.copy(host_view(std::span(host)), rows.all.view({4 * count}));
  Drawn out;
  append_drawn(out, host.data(), count, count);
  return out;
}

// Adds a drawn token to its reply, and what follows it by force; false when that ends it.
bool Engine::Impl::accept(Sequence& sequence, const Drawn& drawn, size_t i) {
  Reply& reply = sequence.result();
  ++stats.generated_tokens;
  reply.logp.push_back(drawn.logp[i]);
  reply.truncated_logp.push_back(drawn.truncated_logp[i]);
  reply.raw_logp.push_back(drawn.raw_logp[i]);
  if (!append(sequence, drawn.ids[i])) return false;
  return !sequence.thinking || sequence.written() < sequence.ticket->request.sampling.thinking_budget || end_thinking(sequence);
}

bool Engine::Impl::end_thinking(Sequence& sequence) {
  Reply& reply = sequence.result();
  sequence.thinking = false;
  for (const int32_t id : sequence.ticket->thinking_end) {
    ++stats.forced_tokens;
    for (auto* column : {&reply.logp, &reply.truncated_logp, &reply.raw_logp}) column->push_back(0);
    reply.forced.resize(reply.ids.size());
    reply.forced.push_back(true);
    if (!append(sequence, id)) return false;
  }
  return true;
}

// Adds a token whose log-probs are there to its reply; false when that ends it.
bool Engine::Impl::append(Sequence& sequence, int32_t id) {
  Reply& reply = sequence.result();
  sequence.tokens.push_back(id);
  reply.ids.push_back(id);
  if (!reply.forced.empty()) reply.forced.resize(reply.ids.size());
  if (sequence.ticket->on_token) sequence.ticket->on_token(sequence.ticket->request.id, sequence.reply, reply);
  const bool stopped = ends(sequence, id), full = static_cast<int64_t>(sequence.tokens.size()) >= sequence.max_tokens;
  if (stopped || full) close(sequence, !stopped);
  return !stopped && !full;
}

// Reads on in the reply's text: true if that ends it. Thinking may end here, too.
bool Engine::Impl::ends(Sequence& sequence, int32_t id) const {
  const Sampling& sampling = sequence.ticket->request.sampling;
  const auto holds = [id](const std::vector<int64_t>& ids) { return std::find(ids.begin(), ids.end(), id) != ids.end(); };
  if (holds(sampling.stop_ids) || (!sampling.ignore_eos && holds(stop_ids))) return true;
  if (!tokenizer || (sampling.stop.empty() && !sequence.thinking)) return false;
  sequence.tail += tokenizer->token_bytes(id);
  size_t longest = 0;
  const auto holds_text = [&](const std::string& text) {
    longest = std::max(longest, text.size());
    return !text.empty() && sequence.tail.find(text) != std::string::npos;
  };
  if (sequence.thinking && holds_text(sampling.thinking_end)) sequence.thinking = false;
  for (const std::string& stop : sampling.stop)
    if (holds_text(stop)) return true;
  if (sequence.tail.size() > longest) sequence.tail.erase(0, sequence.tail.size() - longest);
  return false;
}

std::string Engine::Impl::text_of(const Sequence& sequence, bool by_length) const {
  const Sampling& sampling = sequence.ticket->request.sampling;
  std::string text = tokenizer->decode(sequence.result().ids, true);
  if (by_length) return text;
  size_t cut = text.size();
  for (const std::string& stop : sampling.stop)
    if (!stop.empty()) cut = std::min(cut, text.find(stop));
  return text.substr(0, cut);
}

void Engine::Impl::close(const Sequence& sequence, bool by_length) {
  Reply& reply = sequence.result();
  reply.finish_reason = by_length ? "length" : "stop";
  if (tokenizer) reply.text = text_of(sequence, by_length);
  const std::shared_ptr<Ticket> ticket = sequence.ticket;
  if (--ticket->unfinished > 0) return;
  std::erase(live, ticket);
  ticket->on_finish(ticket->request.id, std::move(ticket->replies));
}

std::vector<std::vector<Reply>> Engine::generate(std::vector<Request> requests, const std::function<void(int64_t finished)>& progress) {
  std::vector<std::vector<Reply>> out(requests.size());
  int64_t finished = 0;
  for (size_t i = 0; i < requests.size(); ++i)
    submit(std::move(requests[i]), [&, i](uint64_t, std::vector<Reply> replies) {
      out[i] = std::move(replies);
      if (++finished; progress) progress(finished);
    });
  while (step()) {}
  return out;
}

}  // namespace hone
