#include "rollout/engine.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <new>
#include <utility>

#include "core/base/log.h"
#include "core/base/rank_thread.h"
#include "core/base/stopwatch.h"
#include "rollout/completion_writer.h"
#include "rollout/engine_memory.h"
#include "rollout/request_check.h"
#include "rollout/sampling_state.h"
#include "rollout/scheduler.h"

namespace hone {

constexpr const char* out_of_memory = "out of memory";

struct Engine::Impl {
  Impl(Context& c, Model& m, const Tokenizer* t, const EngineConfig& cfg)
      : context(c),
        limits(RequestLimits::of(m.shape(), cfg, t)),
        config(cfg),
        memory(c, m, t, config),
        scheduler(memory.cache(), config),
        grammars(t),
        mask_table(m.shape().vocab_size),
        writer(t, stats, version) {
    const KvLayout& layout = memory.cache().layout();
    const DType kv_dtype = cfg.kv_dtype(m.lm_head().value.dtype);
    stats.kv_bytes_per_token = layout.bytes_per_token(kv_dtype);
    stats.kv_window_tokens = layout.max_window_tokens(cfg.kv_block_size);
    log::info("engine: ", describe(layout, kv_dtype, cfg.kv_block_size, cfg.kv_cache_tokens));
  }

  ModelPasses& passes_of(const Scheduler::ScheduledSequence& part) {
    return hone::passes_of(*part.sequence->request_state, memory.passes());
  }
  bool step();
  void rest();
  void admit_requests();
  bool has_pending_input();
  void propose(std::span<Scheduler::ScheduledSequence> parts);
  void decode(std::span<Scheduler::ScheduledSequence> parts);
  struct DecodeRun;
  void decode_passes(std::span<Scheduler::ScheduledSequence> parts, std::vector<bool>& ended);
  void masked_passes(DecodeRun& run, int64_t passes);
  void read_pass(DecodeRun& run);
  const MaskTable& masks_of(const DecodeRun& run);
  int64_t num_async_passes(std::span<Scheduler::ScheduledSequence> parts);
  void admit(std::shared_ptr<RequestState> state);
  void fail_request(const std::shared_ptr<RequestState>& state, const std::string& reason);
  void notify_finished(RequestState& state);
  template <class Action>
  bool guard(const std::shared_ptr<RequestState>& state, Action action);
  bool compute_planned();
  void run_parts(std::span<Scheduler::ScheduledSequence> parts);
  void compute(std::span<const Scheduler::ScheduledSequence> parts);
  void isolate(std::span<const Scheduler::ScheduledSequence> parts, const std::exception& error);
  void begin_completion(std::list<Sequence>::iterator prompt, const SampledTokens& sampled, int64_t completion_index,
                        size_t row);
  bool append_sampled(Sequence& sequence, const SampledTokens& sampled, size_t i, std::span<const int32_t> draft);
  void finish_scored_prompt(std::list<Sequence>::iterator prompt);
  void finish_completion(const std::shared_ptr<RequestState>& state);

  Context& context;
  const RequestLimits limits;
  EngineConfig config;
  EngineMemory memory;
  Scheduler scheduler;
  Adapters adapters;
  int64_t max_passes = DecodeLoop::max_passes;  // of one decode()
  StructuredGrammars grammars;
  MaskTable mask_table;  // of the last masked decode pass
  EngineStats stats;
  int64_t version = 0;
  CompletionWriter writer;
  std::mutex mutex;
  std::vector<std::shared_ptr<RequestState>> arrived_requests;
  std::vector<uint64_t> cancelled;
  bool stop_requested = false;
  std::vector<std::shared_ptr<RequestState>> active_requests;
  uint64_t next_ticket = 1;
  std::exception_ptr callback_error;  // the first exception of an on_finish in this step
};

Engine::Engine(Context& context, Model& model, const Tokenizer* tokenizer, const EngineConfig& config)
    : impl_(std::make_unique<Impl>(context, model, tokenizer, config)) {}
Engine::~Engine() = default;

const EngineStats& Engine::stats() const { return impl_->stats; }

uint64_t Engine::submit(GenerationRequest request, OnFinish on_finish, OnToken on_token) {
  auto state = std::make_shared<RequestState>();
  state->request = std::move(request);
  state->on_finish = std::move(on_finish);
  state->on_token = std::move(on_token);
  const std::lock_guard lock(impl_->mutex);
  state->number = impl_->next_ticket++;
  impl_->arrived_requests.push_back(state);
  return state->number;
}

void Engine::cancel(uint64_t ticket) {
  const std::lock_guard lock(impl_->mutex);
  impl_->cancelled.push_back(ticket);
}

void Engine::end_step() {
  const std::lock_guard lock(impl_->mutex);
  impl_->stop_requested = true;
}

void Engine::set_policy_version(int64_t version, bool recompute) {
  impl_->version = version;
  impl_->memory.invalidate();
  if (recompute) impl_->scheduler.preempt_all();
}

int64_t Engine::version() const { return impl_->version; }

void Engine::rest() { impl_->rest(); }

bool Engine::resting() const { return impl_->memory.is_free(); }

int64_t Engine::load_adapter(const std::filesystem::path& folder) {
  impl_->memory.allocate();  // the adapter's model reads the quantized weights where they are
  return impl_->adapters.add(
      std::make_shared<AdapterPasses>(impl_->context, impl_->memory.model(), impl_->memory.cache().storage(), folder));
}

bool Engine::unload_adapter(int64_t id) { return impl_->adapters.remove(id); }

bool Engine::step() {
  const bool more = impl_->step();
  const KvCache& cache = impl_->memory.cache();
  impl_->stats.kv_tokens_used = (cache.num_blocks() - cache.free_blocks()) * cache.block_size() / cache.num_tables();
  const std::lock_guard lock(impl_->mutex);
  impl_->stop_requested = false;
  return more;
}

// The scheduler drops the sequences of a failed request in the next schedule().
void Engine::Impl::fail_request(const std::shared_ptr<RequestState>& state, const std::string& reason) {
  if (state->cancelled) return;
  log::warning("engine: request ", state->request.id, " failed: ", reason);
  state->cancelled = true;
  std::erase(active_requests, state);
  for (CompletionOutput& completion : state->completions) {
    completion = {};
    completion.failed = true;
    completion.finish_reason = reason;
  }
  notify_finished(*state);
}

// An exception of the callback must not interrupt the engine in the middle of a step: step() rethrows it at its end.
void Engine::Impl::notify_finished(RequestState& state) {
  try {
    state.on_finish(state.request.id, std::move(state.completions));
  } catch (...) {
    if (!callback_error) callback_error = std::current_exception();
  }
}

// Runs `action` for one request. If it throws, fails that request only and returns false.
template <class Action>
bool Engine::Impl::guard(const std::shared_ptr<RequestState>& state, Action action) {
  try {
    action();
    return true;
  } catch (const std::bad_alloc&) {
    fail_request(state, out_of_memory);
  } catch (const std::exception& error) {
    fail_request(state, error.what());
  }
  return false;
}

void Engine::Impl::admit(std::shared_ptr<RequestState> state) {
  const GenerationRequest& request = state->request;
  std::string problem = request_problem(request, limits);
  state->adapter = adapters.find(request.adapter);
  if (request.adapter != 0 && !state->adapter) problem = "the adapter of this request was unloaded";
  if (!problem.empty()) {
    state->completions = rejected_completions(request, problem);
    return notify_finished(*state);
  }
  state->completions.resize(static_cast<size_t>(request.n));
  state->unfinished = request.n;
  if (request.prompt_logprobs)
    for (CompletionOutput& completion : state->completions) {
      completion.prompt_logp.resize(request.prompt.size());
      if (request.top_logprobs > 0) completion.prompt_top_logprobs.resize(request.prompt.size());
    }
  state->structured = grammars.get(request.sampling);
  active_requests.push_back(state);
  scheduler.add(writer.begin_sequence(std::move(state), memory.model().shape()));
}

void Engine::Impl::admit_requests() {
  std::vector<std::shared_ptr<RequestState>> new_requests;
  {
    const std::lock_guard lock(mutex);
    new_requests.swap(arrived_requests);
    for (const uint64_t number : cancelled)
      for (const auto* states : {&new_requests, &active_requests})
        for (const auto& state : *states)
          if (state->number == number) state->cancelled = true;
    cancelled.clear();
  }
  std::erase_if(active_requests, [](const auto& state) { return state->cancelled; });
  for (const auto& state : new_requests)
    if (!state->cancelled) guard(state, [&] { admit(state); });
}

// True if admit_requests() has work, or end_step() was called.
bool Engine::Impl::has_pending_input() {
  const std::lock_guard lock(mutex);
  return !arrived_requests.empty() || !cancelled.empty() || stop_requested;
}

// Adds draft tokens to the parts that sample a token, within the token budget and the free KV blocks.
void Engine::Impl::propose(std::span<Scheduler::ScheduledSequence> parts) {
  int64_t left = config.max_batch_tokens, num_sampling = 0;
  for (const Scheduler::ScheduledSequence& part : parts) {
    left -= part.count;
    num_sampling += part.sequence->forked && part.samples_token();
  }
  for (Scheduler::ScheduledSequence& part : parts)
    if (part.sequence->forked && part.samples_token())
      part.num_lookahead = std::min({config.speculative.num_speculative_tokens, left / num_sampling,
                                     part.sequence->max_tokens_before_event() - 1});
  scheduler.reserve_lookahead(parts);
  memory.proposer()->propose(parts);
  stats.draft_seconds = memory.proposer()->seconds();
  for (Scheduler::ScheduledSequence& part : parts) {
    cut_draft(*part.sequence, part.draft);
    stats.drafts += !part.draft.empty();
    stats.draft_tokens += std::ssize(part.draft);
  }
}

// How many passes can be queued before the host has to look at the sampled tokens.
int64_t Engine::Impl::num_async_passes(std::span<Scheduler::ScheduledSequence> parts) {
  if (memory.proposer()) return 1;
  int64_t passes = max_passes;
  for (const Scheduler::ScheduledSequence& part : parts)
    passes = std::min(passes, part.sequence->max_tokens_before_event());
  for (Scheduler::ScheduledSequence& part : parts) part.num_lookahead = passes - 1;
  return 1 + scheduler.reserve_lookahead(parts);
}

// Decode passes over sequences that all decode, until an eighth of them has ended, a call arrives, or the schedule must
// change. If a pass fails, compute() runs the remaining sequences and finds the request that fails.
void Engine::Impl::decode(std::span<Scheduler::ScheduledSequence> parts) {
  std::vector<bool> ended(parts.size());
  std::vector<Scheduler::ScheduledSequence> left;
  try {
    decode_passes(parts, ended);
  } catch (const std::exception& error) {
    log::warning("engine: a decode pass over ", parts.size(), " sequences failed and runs again: ", error.what());
    for (size_t i = 0; i < parts.size(); ++i)
      if (!ended[i] && !parts[i].sequence->request_state->cancelled) left.push_back(parts[i]);
  }
  for (size_t i = 0; i < parts.size(); ++i)
    if (ended[i]) scheduler.finish(parts[i].sequence);
  if (!left.empty()) compute(left);
}

// Decode passes over the same sequences.
struct Engine::Impl::DecodeRun {
  std::span<Scheduler::ScheduledSequence> parts;
  DecodeLoop& decoding;
  std::vector<bool>& ended;
  std::vector<size_t> first_row{};  // of each part
  size_t num_ended = 0;
  bool stop = false;  // queue no further pass
};

void Engine::Impl::decode_passes(std::span<Scheduler::ScheduledSequence> parts, std::vector<bool>& ended) {
  const int64_t passes = num_async_passes(parts);
  DecodeRun run{parts, passes_of(parts.front()).decoding, ended};
  std::vector<DecodeLoop::Row> rows;
  bool masked = memory.proposer() && memory.proposer()->reads_hidden();
  for (const Scheduler::ScheduledSequence& part : parts) {
    const Sequence& s = *part.sequence;
    masked = masked || s.request_state->structured;
    run.first_row.push_back(rows.size());
    rows.push_back({s.tokens.back(), s.computed, &s.blocks, sampling_state(s, s.completion_index)});
    for (const int32_t id : part.draft) {
      const DecodeLoop::Row& last = rows.back();
      rows.push_back({id, last.position + 1, &s.blocks, next_sampling_state(last.sampling, id)});
    }
  }
  run.decoding.start(rows, masked);
  if (masked) return masked_passes(run, passes);
  const int64_t ahead = context.device().asynchronous() ? 1 : 0;
  for (int64_t queued = 0; (queued < passes && !run.stop) || run.decoding.num_unread() > 0;) {
    while (queued < passes && !run.stop && run.decoding.num_unread() <= ahead) {
      run.decoding.queue();
      ++queued;
    }
    read_pass(run);
  }
}

// The masks of a pass depend on the tokens of the pass before. The host reads those and computes the masks while the
// device computes the pass up to its sampling. A proposer that reads hidden states does so between the two parts.
void Engine::Impl::masked_passes(DecodeRun& run, int64_t passes) {
  const bool overlaps = context.device().asynchronous();
  for (int64_t queued = 0; queued < passes; ++queued) {
    if (queued > 0 && !overlaps) read_pass(run);
    if (run.stop) return;
    run.decoding.queue_forward();
    if (memory.proposer()) memory.proposer()->observe(run.parts, run.decoding.hidden());
    if (queued > 0 && overlaps) read_pass(run);
    if (run.stop) return;
    run.decoding.queue_sampling(masks_of(run));
  }
  read_pass(run);
}

const MaskTable& Engine::Impl::masks_of(const DecodeRun& run) {
  const Stopwatch clock;
  mask_table.clear();
  for (size_t i = 0; i < run.parts.size(); ++i) {
    const Scheduler::ScheduledSequence& part = run.parts[i];
    if (!run.ended[i] && !part.sequence->request_state->cancelled)
      mask_table.add(*part.sequence, part.draft);
    else
      mask_table.add_unmasked_rows(part.draft.size() + 1);
  }
  stats.mask_seconds += clock.seconds();
  stats.masked_rows += mask_table.num_masks();
  return mask_table;
}

// Reads the oldest queued pass and appends its tokens.
void Engine::Impl::read_pass(DecodeRun& run) {
  const SampledTokens sampled = run.decoding.read();
  ++stats.steps;
  for (size_t i = 0; i < run.parts.size(); ++i) {
    const Scheduler::ScheduledSequence& part = run.parts[i];
    if (run.ended[i] || part.sequence->request_state->cancelled) continue;
    scheduler.advance(*part.sequence, 1);
    run.ended[i] = !append_sampled(*part.sequence, sampled, run.first_row[i], part.draft);
    run.num_ended += run.ended[i];
  }
  // A few rows of ended completions cost less than a new start() and a pass that was queued in vain.
  run.stop = run.stop || run.num_ended > run.parts.size() / 8 || has_pending_input();
}

void Engine::Impl::rest() {
  HONE_CHECK(adapters.empty(), "engine: it cannot rest while adapters are loaded: unload them first");
  admit_requests();
  scheduler.drop_cancelled();
  HONE_CHECK(scheduler.idle(), "engine: it cannot rest: ", active_requests.size(),
             " requests are in flight; step() until they are done, or cancel them");
  memory.free();
}

bool Engine::Impl::step() {
  admit_requests();
  bool more = true;
  try {
    more = compute_planned();
  } catch (const std::bad_alloc&) {  // not in the work of one request: fail all, and keep the engine running
    for (const auto& state : std::vector(active_requests)) fail_request(state, out_of_memory);
  }
  if (callback_error) std::rethrow_exception(std::exchange(callback_error, nullptr));
  return more;
}

bool Engine::Impl::compute_planned() {
  if (scheduler.idle()) return false;
  memory.allocate();  // first: if the device has too little, no sequence holds a block
  std::vector<Scheduler::ScheduledSequence> parts = scheduler.schedule();
  if (parts.empty()) return !scheduler.idle();
  note_progress();
  if (memory.proposer()) propose(parts);
  stats.preemptions = scheduler.preemptions();
  stats.cached_tokens = scheduler.cached_tokens();
  std::vector<std::vector<Scheduler::ScheduledSequence>> groups = parts_by_adapter(parts);
  // Adapters take turns: with several of them a turn is a few passes.
  max_passes = groups.size() > 1 ? DecodeLoop::max_passes / 4 : DecodeLoop::max_passes;
  for (auto& group : groups) run_parts(group);
  return true;
}

// Runs parts of one adapter.
void Engine::Impl::run_parts(std::span<Scheduler::ScheduledSequence> parts) {
  // Keeps an unloaded adapter whose last request ends here.
  const std::shared_ptr<AdapterPasses> adapter = parts.front().sequence->request_state->adapter;
  const ModelPasses& passes = passes_of(parts.front());
  const ModelPasses::Times before = passes.times();
  if (std::ranges::all_of(parts, &Scheduler::ScheduledSequence::decodes))
    decode(parts);
  else
    compute(parts);
  passes.add_times_since(before, stats);
}

// Called when a pass over `parts` failed; nothing of it was kept. Runs each half alone, recursively. A token's
// arithmetic does not depend on its pass, so that in the end one sequence fails, and its request alone is ended.
void Engine::Impl::isolate(std::span<const Scheduler::ScheduledSequence> parts, const std::exception& error) {
  if (parts.size() > 1) {
    compute(parts.first(parts.size() / 2));
    compute(parts.subspan(parts.size() / 2));
    return;
  }
  const bool no_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  if (!no_memory) memory.passes().mixed.check_model();
  fail_request(parts.front().sequence->request_state, no_memory ? out_of_memory : error.what());
}

// One mixed pass.
void Engine::Impl::compute(std::span<const Scheduler::ScheduledSequence> parts) {
  MixedBatch::Result result;
  try {
    result = passes_of(parts.front()).mixed.run(parts, memory.proposer());
  } catch (const std::exception& error) {
    return isolate(parts, error);
  }
  ++stats.steps;
  for (const Scheduler::ScheduledSequence& part : parts) {
    const auto sequence = part.sequence;
    if (sequence->request_state->cancelled) continue;  // failed in this pass
    scheduler.advance(*sequence, part.count);
    if (!sequence->forked) stats.prompt_tokens += part.count;
    if (sequence->remaining() == 0 && sequence->full()) finish_scored_prompt(sequence);
  }
  for (const auto& [part, completion_index, row] : result.rows) {
    const auto sequence = part->sequence;
    if (sequence->request_state->cancelled) continue;
    if (sequence->forked) {
      if (!append_sampled(*sequence, result.sampled, row, part->draft)) scheduler.finish(sequence);
      continue;
    }
    begin_completion(sequence, result.sampled, completion_index, row);
  }
}

// Forks a completion from its prompt and appends its first token.
void Engine::Impl::begin_completion(std::list<Sequence>::iterator prompt, const SampledTokens& sampled,
                                    int64_t completion_index, size_t row) {
  const std::shared_ptr<RequestState> state = prompt->request_state;
  const bool continues = guard(state, [&] {
    Sequence completion = *prompt;
    completion.forked = true;
    completion.completion_index = completion_index;
    if (completion_index > 0) stats.shared_prompt_tokens += prompt->computed;
    if (append_sampled(completion, sampled, row, {})) scheduler.fork(prompt, std::move(completion));
  });
  if (continues && !state->cancelled && completion_index + 1 == state->request.n) scheduler.finish(prompt);
}

// Appends row i of `sampled` to the sequence's completion. While the sampled token equals the draft token, whose pass
// is computed, appends the next row as well. Returns false if the completion ends.
bool Engine::Impl::append_sampled(Sequence& sequence, const SampledTokens& sampled, size_t i,
                                  std::span<const int32_t> draft) {
  const bool draft_accepted = !draft.empty() && sampled.ids[i] == draft.front();
  stats.accepted_tokens += draft_accepted;
  bool continues = false;
  if (!guard(sequence.request_state, [&] { continues = writer.accept(sequence, sampled, i); })) return false;
  if (!continues) {
    finish_completion(sequence.request_state);
    return false;
  }
  if (!draft_accepted) return true;
  scheduler.advance(sequence, 1);
  return append_sampled(sequence, sampled, i + 1, draft.subspan(1));
}

// Finishes a request with prompt_logprobs and max_tokens = 0.
void Engine::Impl::finish_scored_prompt(std::list<Sequence>::iterator prompt) {
  const std::shared_ptr<RequestState> state = prompt->request_state;
  for (prompt->completion_index = 0; prompt->completion_index < state->request.n; ++prompt->completion_index) {
    if (!guard(state, [&] { writer.close(*prompt, true); })) return;
    finish_completion(state);
  }
  scheduler.finish(prompt);
}

void Engine::Impl::finish_completion(const std::shared_ptr<RequestState>& state) {
  if (--state->unfinished > 0) return;
  std::erase(active_requests, state);
  notify_finished(*state);
}

}  // namespace hone
