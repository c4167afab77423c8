#include "rollout/engine.h"

#include <algorithm>
#include <mutex>

#include "core/model/run.h"
#include "kernels/gemm.h"
#include "kernels/sample.h"
#include "rollout/scheduler.h"

namespace hone {

void Sampling::fields(Fields& f) {
  f("temperature", temperature, "softmax temperature; 0 is greedy");
  f("top_p", top_p, "smallest set of tokens whose probability reaches this; 1 = all");
  f("top_k", top_k, "this many most probable tokens; 0 = all");
  f("min_p", min_p, "tokens at least this share of the most probable one's probability; 0 = all");
  f("max_tokens", max_tokens, "longest reply in tokens");
  f("seed", seed, "of every draw");
  f("ignore_eos", ignore_eos, "go on past the end-of-sequence token");
  f("stop", stop, "strings that end a reply");
  f("stop_ids", stop_ids, "token ids that end a reply, besides the tokenizer's");
  f.require("temperature", temperature >= 0 && temperature <= 1e6, "temperature must be in [0, 1e6]");
  f.require("top_p", top_p > 0 && top_p <= 1, "top_p must be in (0, 1]");
  f.require("top_k", top_k >= 0, "top_k must be 0 or more");
  f.require("min_p", min_p >= 0 && min_p <= 1, "min_p must be in [0, 1]");
  f.require("max_tokens", max_tokens > 0 && max_tokens <= INT32_MAX, concat("max_tokens must be in [1, ", INT32_MAX, "]"));
}

void EngineConfig::fields(Fields& f) {
  f("kv_block_size", kv_block_size, "tokens of one cache block");
  f("kv_cache_tokens", kv_cache_tokens, "tokens the KV cache holds; more requests than fit wait, or are computed again");
  f("max_batch_tokens", max_batch_tokens, "tokens of one forward pass, prompts' chunks and decodes together");
  f("max_sequences", max_sequences, "replies written at the same time");
  f.require("kv_block_size", kv_block_size > 0, "kv_block_size must be positive");
  f.require("kv_cache_tokens", kv_cache_tokens >= kv_block_size && kv_cache_tokens <= INT32_MAX,
            concat("kv_cache_tokens must hold at least one block, and be at most ", INT32_MAX));
  f.require("max_batch_tokens", max_batch_tokens > 0 && max_batch_tokens <= INT32_MAX, concat("max_batch_tokens must be in [1, ", INT32_MAX, "]"));
  f.require("max_sequences", max_sequences > 0, "max_sequences must be positive");
}

namespace {

// Of each row of hidden states: the id drawn and its log-probs (kernels/sample.h).
struct Drawn {
  std::vector<int32_t> ids;
  std::vector<float> logp, truncated_logp, raw_logp;
};

}  // namespace

struct Engine::Impl {
  Impl(Context& c, Model& m, const Tokenizer* t, const EngineConfig& cfg)
      : context(c),
        model(m),
        tokenizer(t),
        config(cfg),
        cache(c, m.shape(), m.head().value.dtype, cfg.kv_block_size, cfg.kv_cache_tokens),
        scheduler(cache, config),
        staging(c.device()) {
    if (t)
      for (const int32_t id : t->stop_ids()) stop_ids.push_back(id);
  }

  uint64_t submit(Request request, OnFinish on_finish, OnToken on_token);
  bool step();
  void admit(std::shared_ptr<Ticket> ticket);
  void fail_ticket(Ticket& ticket, const std::string& reason);
  std::string refusal(const Request& request) const;
  Drawn draw(Tensor hidden, std::span<const SampleParams> params);
  bool accept(Sequence& sequence, const Drawn& drawn, size_t i);
  bool ends(Sequence& sequence, int32_t id) const;
  void close(const Sequence& sequence, bool by_length);
  std::string text_of(const Sequence& sequence, bool by_length) const;

  Context& context;
  Model& model;
  const Tokenizer* tokenizer;
  EngineConfig config;
  KvCache cache;
  Scheduler scheduler;
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

bool Engine::Impl::step() {
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

  const std::vector<Scheduler::Part> parts = scheduler.plan();
  if (parts.empty()) return !scheduler.idle();

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
  constexpr int64_t rows_at_once = 256;  // bounds the logits' memory
  const int64_t count = static_cast<int64_t>(params.size()), param_size = static_cast<int64_t>(sizeof(SampleParams));
  Drawn out;
  out.ids.resize(params.size());
  for (int64_t begin = 0; begin < count; begin += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, count - begin);
    const auto slice = params.subspan(static_cast<size_t>(begin), static_cast<size_t>(rows));
    ScratchScope scratch(context);
    Arena& arena = context.scratch();
    const Tensor logits = arena.take(DType::f32, {rows, model.shape().vocab_size});
    gemm_forward(context, logits, hidden.rows(begin, rows), model.head().value, Tensor(), Tensor());
    const Tensor param_bytes = arena.take(DType::u8, {rows * param_size});
    context.copy(param_bytes, Tensor(const_cast<SampleParams*>(slice.data()), DType::u8, DeviceKind::cpu, {rows * param_size}));
    const Tensor ids = arena.take(DType::i32, {rows}), logp = arena.take(DType::f32, {rows}), truncated = arena.take(DType::f32, {rows}),
                 raw = arena.take(DType::f32, {rows});
    sample_rows(context, ids, logp, truncated, raw, logits, param_bytes);
    context.copy(host_view(std::span(out.ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(rows))), ids);
    const auto append = [&](std::vector<float>& column, Tensor values) {
      const std::vector<float> host = download(context, values);
      column.insert(column.end(), host.begin(), host.end());
    };
    append(out.logp, logp);
    append(out.truncated_logp, truncated);
    append(out.raw_logp, raw);
  }
  return out;
}

// Adds a drawn token to its reply; false when that ends it.
bool Engine::Impl::accept(Sequence& sequence, const Drawn& drawn, size_t i) {
  Reply& reply = sequence.result();
  const int32_t id = drawn.ids[i];
  ++stats.generated_tokens;
  sequence.tokens.push_back(id);
  reply.ids.push_back(id);
  reply.logp.push_back(drawn.logp[i]);
  reply.truncated_logp.push_back(drawn.truncated_logp[i]);
  reply.raw_logp.push_back(drawn.raw_logp[i]);
  if (sequence.ticket->on_token) sequence.ticket->on_token(sequence.ticket->request.id, sequence.reply, id);
  const bool stopped = ends(sequence, id), full = static_cast<int64_t>(sequence.tokens.size()) >= sequence.max_tokens;
  if (stopped || full) close(sequence, !stopped);
  return !stopped && !full;
}

bool Engine::Impl::ends(Sequence& sequence, int32_t id) const {
  const Sampling& sampling = sequence.ticket->request.sampling;
  const auto holds = [id](const std::vector<int64_t>& ids) { return std::find(ids.begin(), ids.end(), id) != ids.end(); };
  if (holds(sampling.stop_ids) || (!sampling.ignore_eos && holds(stop_ids))) return true;
  if (!tokenizer || sampling.stop.empty()) return false;
  sequence.tail += tokenizer->token_bytes(id);
  size_t longest = 0;
  for (const std::string& stop : sampling.stop) {
    if (!stop.empty() && sequence.tail.find(stop) != std::string::npos) return true;
    longest = std::max(longest, stop.size());
  }
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
