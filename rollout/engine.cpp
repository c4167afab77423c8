#include "rollout/engine.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <new>
#include <utility>

#include "core/base/log.h"
#include "model/batch.h"
#include "model/forward.h"
#include "model/quantized_model.h"
#include "rollout/completion_writer.h"
#include "rollout/decode_loop.h"
#include "rollout/mixed_batch.h"
#include "rollout/proposer.h"
#include "rollout/request_check.h"
#include "rollout/sampling_state.h"
#include "rollout/scheduler.h"

namespace hone {

constexpr const char* out_of_memory = "out of memory";

struct Engine::Impl {
  Impl(Context& c, Model& m, const Tokenizer* t, const EngineConfig& cfg)
      : context(c),
        quantized(quantized_model(c, m, cfg)),
        model(quantized ? quantized->model() : m),
        limits(RequestLimits::of(m.shape(), cfg, t)),
        config(cfg),
        cache(c, m.shape(), cfg.kv_dtype(m.lm_head().value.dtype), cfg.kv_block_size, cfg.kv_cache_tokens),
        scheduler(cache, config),
        decoding(c, model, cache.planes()),
        mixed(c, model, cache.planes()),
        proposer(proposers().at(cfg.speculative.method)({c, m, t, cache, config.speculative})),
        writer(t, stats, version) {}

  static std::unique_ptr<QuantizedModel> quantized_model(Context& c, Model& m, const EngineConfig& cfg) {
    if (cfg.quantization == "none") return nullptr;
    const auto after = cfg.owns_model ? QuantizedModel::SourceWeights::free : QuantizedModel::SourceWeights::keep;
    return std::make_unique<QuantizedModel>(c, m, quant_formats().at(cfg.quantization), after);
  }
  bool step();
  void admit_requests();
  bool has_pending_input();
  void propose(std::span<Scheduler::ScheduledSequence> parts);
  void decode(std::span<Scheduler::ScheduledSequence> parts);
  void decode_passes(std::span<Scheduler::ScheduledSequence> parts, std::vector<bool>& ended);
  int64_t num_async_passes(std::span<Scheduler::ScheduledSequence> parts);
  void admit(std::shared_ptr<RequestState> ticket);
  void fail_request(const std::shared_ptr<RequestState>& ticket, const std::string& reason);
  void tell(RequestState& ticket);
  template <class Action>
  bool guard(const std::shared_ptr<RequestState>& ticket, Action action);
  bool compute_planned();
  void compute(std::span<const Scheduler::ScheduledSequence> parts);
  void check_model();
  void isolate(std::span<const Scheduler::ScheduledSequence> parts, const std::exception& error);
  void begin_reply(std::list<Sequence>::iterator prompt, const SampledTokens& drawn, int64_t reply, size_t row);
  bool write(Sequence& sequence, const SampledTokens& drawn, size_t i, std::span<const int32_t> proposed);
  void finish_scored_prompt(std::list<Sequence>::iterator prompt);
  void end_reply(const std::shared_ptr<RequestState>& ticket);

  Context& context;
  std::unique_ptr<QuantizedModel> quantized;
  Model& model;  // what replies are drawn from: the quantized one where there is one
  const RequestLimits limits;
  EngineConfig config;
  KvCache cache;
  Scheduler scheduler;
  DecodeLoop decoding;
  MixedBatch mixed;
  std::unique_ptr<Proposer> proposer;
  EngineStats stats;
  int64_t version = 0;
  CompletionWriter writer;
  std::mutex inbox_mutex;
  std::vector<std::shared_ptr<RequestState>> inbox;
  std::vector<uint64_t> cancelled;
  bool stop_requested = false;
  std::vector<std::shared_ptr<RequestState>> live;
  uint64_t next_ticket = 1;
  std::exception_ptr asker_error;  // what an on_finish of this step threw
};

Engine::Engine(Context& context, Model& model, const Tokenizer* tokenizer, const EngineConfig& config)
    : impl_(std::make_unique<Impl>(context, model, tokenizer, config)) {}
Engine::~Engine() = default;

const EngineStats& Engine::stats() const { return impl_->stats; }

uint64_t Engine::submit(GenerationRequest request, OnFinish on_finish, OnToken on_token) {
  auto ticket = std::make_shared<RequestState>();
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

void Engine::end_step() {
  const std::lock_guard lock(impl_->inbox_mutex);
  impl_->stop_requested = true;
}

void Engine::set_policy_version(int64_t version, bool recompute) {
  impl_->version = version;
  impl_->cache.invalidate_prefix_cache();
  if (impl_->quantized) impl_->quantized->refresh();
  if (recompute) impl_->scheduler.preempt_all();
}

int64_t Engine::version() const { return impl_->version; }

bool Engine::step() {
  const bool more = impl_->step();
  const KvCache& cache = impl_->cache;
  impl_->stats.kv_tokens_used = (cache.num_blocks() - cache.free_blocks()) * cache.block_size();
  const std::lock_guard lock(impl_->inbox_mutex);
  impl_->stop_requested = false;
  return more;
}

// Its place in the scheduler is free with the next plan.
void Engine::Impl::fail_request(const std::shared_ptr<RequestState>& ticket, const std::string& reason) {
  if (ticket->cancelled) return;
  log::warning("engine: request ", ticket->request.id, " failed: ", reason);
  ticket->cancelled = true;
  std::erase(live, ticket);
  for (CompletionOutput& reply : ticket->replies) {
    reply = {};
    reply.failed = true;
    reply.finish_reason = reason;
  }
  tell(*ticket);
}

// What the asker throws must not leave the engine between two states: step() throws it at its end.
void Engine::Impl::tell(RequestState& ticket) {
  try {
    ticket.on_finish(ticket.request.id, std::move(ticket.replies));
  } catch (...) {
    if (!asker_error) asker_error = std::current_exception();
  }
}

// What a request's own data makes go wrong ends that request and no other. False: it did.
template <class Action>
bool Engine::Impl::guard(const std::shared_ptr<RequestState>& ticket, Action action) {
  try {
    action();
    return true;
  } catch (const std::bad_alloc&) {
    fail_request(ticket, out_of_memory);
  } catch (const std::exception& error) {
    fail_request(ticket, error.what());
  }
  return false;
}

void Engine::Impl::admit(std::shared_ptr<RequestState> ticket) {
  const GenerationRequest& request = ticket->request;
  if (const std::string problem = request_problem(request, limits); !problem.empty()) {
    ticket->replies = refused_replies(request, problem);
    return tell(*ticket);
  }
  ticket->replies.resize(static_cast<size_t>(request.n));
  ticket->unfinished = request.n;
  if (request.prompt_logprobs)
    for (CompletionOutput& reply : ticket->replies) {
      reply.prompt_logp.resize(request.prompt.size());
      if (request.top_logprobs > 0) reply.prompt_top_logprobs.resize(request.prompt.size());
    }
  live.push_back(ticket);
  scheduler.add(writer.begin(std::move(ticket), model.shape()));
}

void Engine::Impl::admit_requests() {
  std::vector<std::shared_ptr<RequestState>> arrived;
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
  for (const auto& ticket : arrived)
    if (!ticket->cancelled) guard(ticket, [&] { admit(ticket); });
}

// Whether something waits for admit_requests(), or somebody for the step's end.
bool Engine::Impl::has_pending_input() {
  const std::lock_guard lock(inbox_mutex);
  return !inbox.empty() || !cancelled.empty() || stop_requested;
}

// How many tokens the reply can take before something other than a draw is due: its end, or what is forced.
static int64_t max_tokens_before_event(const Sequence& sequence) {
  const int64_t to_end = sequence.max_tokens - static_cast<int64_t>(sequence.tokens.size());
  return sequence.thinking ? std::min(to_end, sequence.ticket->request.sampling.thinking_budget - sequence.written())
                           : to_end;
}

// Tokens that may come next in the parts that are drawn from, as many as the pass and the cache have room for.
void Engine::Impl::propose(std::span<Scheduler::ScheduledSequence> parts) {
  int64_t left = config.max_batch_tokens, drawing = 0;
  for (const Scheduler::ScheduledSequence& part : parts) {
    left -= part.count;
    drawing += part.sequence->forked && part.draws();
  }
  for (Scheduler::ScheduledSequence& part : parts)
    if (part.sequence->forked && part.draws())
      part.room = std::min(
          {config.speculative.num_speculative_tokens, left / drawing, max_tokens_before_event(*part.sequence) - 1});
  scheduler.reserve(parts);
  proposer->propose(parts);
  stats.draft_seconds = proposer->seconds();
  for (const Scheduler::ScheduledSequence& part : parts) {
    stats.drafts += !part.proposed.empty();
    stats.draft_tokens += std::ssize(part.proposed);
  }
}

// How many passes can be queued one after the other without looking at what they draw.
int64_t Engine::Impl::num_async_passes(std::span<Scheduler::ScheduledSequence> parts) {
  if (proposer) return 1;
  int64_t passes = DecodeLoop::max_passes;
  for (const Scheduler::ScheduledSequence& part : parts)
    passes = std::min(passes, max_tokens_before_event(*part.sequence));
  for (Scheduler::ScheduledSequence& part : parts) part.room = passes - 1;
  return 1 + scheduler.reserve(parts);
}

// Passes over sequences that are all decoding, until an eighth of them has ended, something arrives, or a plan is due
// again. Where one fails, what is left is computed as any pass, which finds out whose fault it was.
void Engine::Impl::decode(std::span<Scheduler::ScheduledSequence> parts) {
  std::vector<bool> ended(parts.size());
  std::vector<Scheduler::ScheduledSequence> left;
  try {
    decode_passes(parts, ended);
  } catch (const std::exception& error) {
    log::warning("engine: a pass over ", parts.size(), " replies failed: ", error.what());
    for (size_t i = 0; i < parts.size(); ++i)
      if (!ended[i] && !parts[i].sequence->ticket->cancelled) left.push_back(parts[i]);
  }
  for (size_t i = 0; i < parts.size(); ++i)
    if (ended[i]) scheduler.finish(parts[i].sequence);
  if (!left.empty()) compute(left);
}

void Engine::Impl::decode_passes(std::span<Scheduler::ScheduledSequence> parts, std::vector<bool>& ended) {
  const int64_t passes = num_async_passes(parts);
  std::vector<DecodeLoop::Row> rows;
  std::vector<size_t> first_row;
  for (const Scheduler::ScheduledSequence& part : parts) {
    const Sequence& s = *part.sequence;
    first_row.push_back(rows.size());
    rows.push_back({s.tokens.back(), s.computed, s.blocks, sampling_state(s, s.reply)});
    for (const int32_t id : part.proposed) {
      const DecodeLoop::Row& last = rows.back();
      rows.push_back({id, last.position + 1, s.blocks, next_sampling_state(last.draw, id)});
    }
  }
  decoding.start(rows);
  const int64_t ahead = context.device().asynchronous() ? 1 : 0;
  // Rows that are done cost less than a new start and the pass that was queued in vain, as long as they are few.
  const size_t most_ended = parts.size() / 8;
  size_t num_ended = 0;
  bool stop = false;
  for (int64_t queued = 0; (queued < passes && !stop) || decoding.num_unread() > 0;) {
    while (queued < passes && !stop && decoding.num_unread() <= ahead) decoding.queue(), ++queued;
    const SampledTokens drawn = decoding.read();
    ++stats.steps;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (ended[i] || parts[i].sequence->ticket->cancelled) continue;
      scheduler.advance(*parts[i].sequence, 1);
      ended[i] = !write(*parts[i].sequence, drawn, first_row[i], parts[i].proposed);
      num_ended += ended[i];
    }
    stop = stop || num_ended > most_ended || has_pending_input();
  }
}

bool Engine::Impl::step() {
  admit_requests();
  bool more = true;
  try {
    more = compute_planned();
  } catch (const std::bad_alloc&) {  // outside of any request's own work: all of them end, and the engine goes on
    for (const auto& ticket : std::vector(live)) fail_request(ticket, out_of_memory);
  }
  if (asker_error) std::rethrow_exception(std::exchange(asker_error, nullptr));
  return more;
}

bool Engine::Impl::compute_planned() {
  std::vector<Scheduler::ScheduledSequence> parts = scheduler.schedule();
  if (parts.empty()) return !scheduler.idle();
  if (proposer) propose(parts);
  stats.preemptions = scheduler.preemptions();
  stats.cached_tokens = scheduler.cached_tokens();
  const auto decodes = [](const Scheduler::ScheduledSequence& part) {
    const Sequence& s = *part.sequence;
    return s.forked && s.remaining() == 1;
  };
  if (std::all_of(parts.begin(), parts.end(), decodes))
    decode(parts);
  else
    compute(parts);
  stats.prefill_seconds = mixed.seconds();
  stats.decode_seconds = decoding.seconds();
  return true;
}

// Throws where the model draws nothing even for a plain request: then no request is at fault.
void Engine::Impl::check_model() {
  ScratchScope scratch(context);
  const std::vector<int32_t> token{0}, last{0};
  const std::vector<BatchPart> part{{token}};
  const Batch batch = pack_batch(context, context.scratch(), part);
  const std::vector<SamplingState> plain(1);
  draw(context, model, infer(context, model, batch, upload(context, context.scratch(), last), nullptr), plain);
}

// A pass over these failed, before anything of it was kept. Each half is tried by itself, and so on: a token's
// arithmetic does not depend on its pass, so that what fails in the end is one sequence, and its request alone is
// ended.
void Engine::Impl::isolate(std::span<const Scheduler::ScheduledSequence> parts, const std::exception& error) {
  if (parts.size() > 1) {
    compute(parts.first(parts.size() / 2));
    compute(parts.subspan(parts.size() / 2));
    return;
  }
  const bool no_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  if (!no_memory) check_model();
  fail_request(parts.front().sequence->ticket, no_memory ? out_of_memory : error.what());
}

// One pass over sequences of any kind.
void Engine::Impl::compute(std::span<const Scheduler::ScheduledSequence> parts) {
  MixedBatch::Result result;
  try {
    result = mixed.run(parts);
  } catch (const std::exception& error) {
    return isolate(parts, error);
  }
  ++stats.steps;
  for (const Scheduler::ScheduledSequence& part : parts) {
    const auto sequence = part.sequence;
    if (sequence->ticket->cancelled) continue;  // it failed beside another part
    scheduler.advance(*sequence, part.count);
    if (!sequence->forked) stats.prompt_tokens += part.count;
    if (sequence->remaining() == 0 && sequence->full()) finish_scored_prompt(sequence);
  }
  for (const auto& [part, reply, row] : result.draws) {
    const auto sequence = part->sequence;
    if (sequence->ticket->cancelled) continue;
    if (sequence->forked) {
      if (!write(*sequence, result.drawn, row, part->proposed)) scheduler.finish(sequence);
      continue;
    }
    begin_reply(sequence, result.drawn, reply, row);
  }
}

// The reply's first token, drawn from its prompt.
void Engine::Impl::begin_reply(std::list<Sequence>::iterator prompt, const SampledTokens& drawn, int64_t reply,
                               size_t row) {
  const std::shared_ptr<RequestState> ticket = prompt->ticket;
  const bool goes_on = guard(ticket, [&] {
    Sequence parted = *prompt;
    parted.forked = true;
    parted.reply = reply;
    if (reply > 0) stats.shared_prompt_tokens += prompt->computed;
    if (write(parted, drawn, row, {})) scheduler.fork(prompt, std::move(parted));
  });
  if (goes_on && !ticket->cancelled && reply + 1 == ticket->request.n) scheduler.finish(prompt);
}

// Adds row i of what was drawn to the sequence's reply, and the rows after it as long as each token is the one that was
// proposed, and computed, in its place. False when that ends the reply.
bool Engine::Impl::write(Sequence& sequence, const SampledTokens& drawn, size_t i, std::span<const int32_t> proposed) {
  const bool draft_accepted = !proposed.empty() && drawn.ids[i] == proposed.front();
  stats.accepted_tokens += draft_accepted;
  bool goes_on = false;
  if (!guard(sequence.ticket, [&] { goes_on = writer.accept(sequence, drawn, i); })) return false;
  if (!goes_on) {
    end_reply(sequence.ticket);
    return false;
  }
  if (!draft_accepted) return true;
  scheduler.advance(sequence, 1);
  return write(sequence, drawn, i + 1, proposed.subspan(1));
}

// A prompt that is scored, and of which nothing is drawn.
void Engine::Impl::finish_scored_prompt(std::list<Sequence>::iterator prompt) {
  const std::shared_ptr<RequestState> ticket = prompt->ticket;
  for (prompt->reply = 0; prompt->reply < ticket->request.n; ++prompt->reply) {
    if (!guard(ticket, [&] { writer.close(*prompt, true); })) return;
    end_reply(ticket);
  }
  scheduler.finish(prompt);
}

void Engine::Impl::end_reply(const std::shared_ptr<RequestState>& ticket) {
  if (--ticket->unfinished > 0) return;
  std::erase(live, ticket);
  tell(*ticket);
}

std::vector<std::vector<CompletionOutput>> Engine::generate(std::vector<GenerationRequest> requests,
                                                            const std::function<void(int64_t finished)>& progress) {
  std::vector<std::vector<CompletionOutput>> out(requests.size());
  int64_t finished = 0;
  for (size_t i = 0; i < requests.size(); ++i)
    submit(std::move(requests[i]), [&, i](uint64_t, std::vector<CompletionOutput> replies) {
      out[i] = std::move(replies);
      if (++finished; progress) progress(finished);
    });
  while (step()) {}
  return out;
}

}  // namespace hone
