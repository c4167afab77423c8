// Proposer "mtp": the model's own modules of multi-token prediction (model/mtp.h) sample the draft tokens. Module 1
// proposes from the hidden state of the last computed token and the sampled token, module 2 from the output of module 1
// and the first draft token, and so on; the last module is applied again to its own output, as vLLM does. They sample
// with the completion's own RNG draws, so that a similar distribution gives the same token.
//
// observe() runs the modules over the tokens of each pass, so that they see the whole context when they propose.
#include <algorithm>
#include <optional>

#include "kernels/elementwise/embedding.h"
#include "rollout/device_timer.h"
#include "rollout/proposer.h"
#include "rollout/sampler.h"
#include "rollout/speculative/mtp_cache.h"

namespace hone {
namespace {

class MtpProposer : public Proposer {
 public:
  explicit MtpProposer(const ProposerContext& context)
      : context_(context.context),
        model_(context.model),
        num_modules_(static_cast<int64_t>(mtp_for_drafts(model_).size())),
        cache_(context_, model_, context.cache, context.config.num_speculative_tokens),
        staging_(std::in_place, context_.device()),
        timer_(context_) {}

  bool reads_hidden() const override { return true; }
  void observe(std::span<const Scheduler::ScheduledSequence> parts, Tensor hidden) override;
  void propose(std::span<Scheduler::ScheduledSequence> parts) override;
  void free_memory() override { staging_.emplace(context_.device()); }
  double seconds() const override { return timer_.seconds(); }

 private:
  // Positions [begin, end) of a sequence, and their tokens.
  struct Positions {
    const BlockTables* blocks = nullptr;
    int64_t begin = 0, end = 0;
    std::span<const int32_t> tokens{};
    int64_t size() const { return end - begin; }
  };
  // A sequence that gets a draft.
  struct Draft {
    Scheduler::ScheduledSequence* part = nullptr;
    int64_t first = 0;         // position of the last sampled token, which module 1 reads
    int32_t token = 0;         // the last one, sampled or drafted
    SamplingState sampling{};  // of the next one
    int32_t row = 0;           // in the outputs of the step before
  };

  Tensor take(int64_t rows) { return context_.scratch().take(model_.dtype(), {rows, model_.shape().hidden_size}); }
  Tensor gather(Tensor from, std::span<const int32_t> rows) {
    const Tensor out = take(std::ssize(rows));
    gather_rows(context_, out, from, upload(context_, *staging_, rows));
    return out;
  }
  int32_t readable(int32_t token) const { return token < model_.shape().vocab_size ? token : 0; }
  void run(int64_t module, std::span<const Positions> positions, Tensor out, Tensor hidden);
  void keep_outputs(int64_t module, std::span<const Positions> positions, Tensor outputs);
  std::vector<Draft> begin_drafts(std::span<Scheduler::ScheduledSequence> parts);
  Tensor draft_step(int64_t step, std::span<const Draft> drafts, std::vector<Tensor>& outputs);

  Context& context_;
  Model& model_;
  int64_t num_modules_;
  MtpCache cache_;
  std::optional<Arena> staging_;  // always there
  DeviceTimer timer_;
};

// Runs module 1, 2, ... over positions of sequences, none below its number. out, hidden: a row for each.
void MtpProposer::run(int64_t module, std::span<const Positions> positions, Tensor out, Tensor hidden) {
  int64_t most_keys = 0;
  for (const Positions& of : positions) most_keys = std::max(most_keys, of.end - module);
  std::vector<BatchPart> parts;
  std::vector<int32_t> slots, lengths, table;
  table.reserve(positions.size() * static_cast<size_t>(most_keys));
  for (const Positions& of : positions) {
    parts.push_back({of.tokens, static_cast<int32_t>(of.begin - module)});
    lengths.push_back(static_cast<int32_t>(of.end - module));
    for (int64_t p = of.begin; p < of.end; ++p) slots.push_back(cache_.slot(*of.blocks, p));
    for (int64_t p = module; p < of.end; ++p) table.push_back(cache_.slot(*of.blocks, p));
    table.resize(static_cast<size_t>(most_keys) * parts.size());
  }
  KvView view = cache_.kv().view();
  view.block_size = 1;
  view.lengths = upload(context_, *staging_, lengths);
  view.groups.push_back({.slots = upload(context_, *staging_, slots),
                         .block_table = upload(context_, *staging_, table).view({std::ssize(positions), most_keys})});
  const Batch batch = pack_batch(context_, *staging_, parts);
  infer_mtp_module(context_, model_, static_cast<size_t>(module - 1), {.batch = batch, .kv = &view}, out, hidden);
}

// Copies the outputs that a later pass may need to the rings of their blocks. outputs: of `module` at these positions.
void MtpProposer::keep_outputs(int64_t module, std::span<const Positions> positions, Tensor outputs) {
  const Tensor to = cache_.outputs(static_cast<size_t>(module));
  int64_t from_row = 0, run_from = 0, run_to = 0, run_size = 0;
  const auto flush = [&] {
    if (run_size > 0) context_.copy(to.rows(run_to, run_size), outputs.rows(run_from, run_size));
    run_size = 0;
  };
  for (const Positions& of : positions)
    for (int64_t p = of.begin; p < of.end; ++p, ++from_row) {
      if (!cache_.keeps_output(p, of.end)) continue;
      const int64_t to_row = cache_.output_row(*of.blocks, p);
      if (run_size > 0 && to_row == run_to + run_size && from_row == run_from + run_size) {
        ++run_size;
        continue;
      }
      flush();
      run_from = from_row;
      run_to = to_row;
      run_size = 1;
    }
  flush();
}

void MtpProposer::observe(std::span<const Scheduler::ScheduledSequence> parts, Tensor hidden) {
  const ScratchScope scope(context_);
  staging_->release({});
  const int64_t P = std::ssize(parts);
  std::vector<std::vector<int32_t>> tokens;
  std::vector<Positions> before;  // of the module before: first the model's
  for (const Scheduler::ScheduledSequence& part : parts) {
    const Sequence& sequence = *part.sequence;
    const auto first = sequence.tokens.begin() + sequence.computed;
    std::vector<int32_t>& of_part = tokens.emplace_back(first, first + part.count);
    of_part.insert(of_part.end(), part.draft.begin(), part.draft.end());
    for (int32_t& token : of_part) token = readable(token);
    before.push_back({&sequence.blocks, sequence.computed, sequence.computed + part.width(), of_part});
  }
  // The input of each module: the outputs at the position before each part, then those of the pass.
  Tensor source = take(P + hidden.dim(0));
  context_.copy(source.rows(P, hidden.dim(0)), hidden);
  for (int64_t module = 1; module <= num_modules_; ++module) {
    std::vector<Positions> now;
    std::vector<int32_t> earlier, inputs;
    int64_t first_row = P;  // of the part
    for (size_t i = 0; i < parts.size(); ++i) {
      const Sequence& sequence = *parts[i].sequence;
      const int64_t computed = sequence.computed, begin = std::max(computed, module), end = before[i].end;
      const bool reads_earlier = computed >= module && begin < end;
      earlier.push_back(reads_earlier ? cache_.output_row(sequence.blocks, computed - 1) : 0);
      for (int64_t p = begin; p < end; ++p)
        inputs.push_back(
            static_cast<int32_t>(p == computed ? static_cast<int64_t>(i) : first_row + p - 1 - before[i].begin));
      first_row += before[i].size();
      now.push_back({&sequence.blocks, begin, std::max(begin, end),
                     std::span<const int32_t>(tokens[i]).last(static_cast<size_t>(std::max<int64_t>(0, end - begin)))});
    }
    const auto plane = static_cast<size_t>(module - 1);
    gather_rows(context_, source.rows(0, P), cache_.outputs(plane), upload(context_, *staging_, earlier));
    keep_outputs(module - 1, before, source.rows(P, source.dim(0) - P));
    if (inputs.empty()) return;
    const Tensor in = gather(source, inputs);
    source = take(P + std::ssize(inputs));
    std::vector<Positions> filled = now;
    std::erase_if(filled, [](const Positions& of) { return of.size() == 0; });
    run(module, filled, source.rows(P, std::ssize(inputs)), in);
    before = std::move(now);
  }
}

std::vector<MtpProposer::Draft> MtpProposer::begin_drafts(std::span<Scheduler::ScheduledSequence> parts) {
  std::vector<Draft> out;
  for (Scheduler::ScheduledSequence& part : parts) {
    const Sequence& sequence = *part.sequence;
    // Every module needs the output of the one before at the position before.
    if (!part.decodes() || part.num_lookahead == 0 || sequence.computed < num_modules_) continue;
    out.push_back(
        {.part = &part,
         .first = sequence.computed,
         .token = sequence.tokens.back(),
         .sampling = {
             .sample = sample_params(sequence, sequence.completion_index), .penalties = {}, .adjustments = {}}});
  }
  return out;
}

// Step s = 1, 2, ... reads the token at position first + s - 1. Module min(s, modules) proposes the next one; the
// modules after it run for later steps. outputs: by module, of the step before; becomes those of this step. Returns the
// outputs that lm_head reads.
Tensor MtpProposer::draft_step(int64_t step, std::span<const Draft> drafts, std::vector<Tensor>& outputs) {
  std::vector<Positions> positions;
  std::vector<int32_t> rows, tokens;
  tokens.reserve(drafts.size());
  for (const Draft& draft : drafts) {
    const BlockTables& blocks = draft.part->sequence->blocks;
    const int64_t position = draft.first + step - 1;
    tokens.push_back(readable(draft.token));
    positions.push_back({&blocks, position, position + 1, std::span(tokens).last(1)});
    rows.push_back(step == 1 ? cache_.output_row(blocks, position - 1) : draft.row);
  }
  const int64_t proposing = std::min(step, num_modules_);
  std::vector<Tensor> now(outputs.size());
  for (int64_t module = proposing; module <= num_modules_; ++module) {
    const auto of_input = static_cast<size_t>(step > num_modules_ ? module : module - 1);
    const Tensor in = gather(step == 1 ? cache_.outputs(of_input) : outputs[of_input], rows);
    Tensor& out = now[static_cast<size_t>(module)];
    out = take(std::ssize(drafts));
    run(module, positions, out, in);
  }
  outputs = std::move(now);
  return outputs[static_cast<size_t>(proposing)];
}

void MtpProposer::propose(std::span<Scheduler::ScheduledSequence> parts) {
  while (!timer_.all_read()) timer_.read();  // after an error
  std::vector<Draft> drafts = begin_drafts(parts);
  if (drafts.empty()) return;
  const ScratchScope scope(context_);
  staging_->release({});
  timer_.begin();
  std::vector<Tensor> outputs(static_cast<size_t>(num_modules_) + 1);
  for (int64_t step = 1; !drafts.empty(); ++step) {
    const Tensor hidden = draft_step(step, drafts, outputs);
    std::vector<SamplingState> sampling;
    for (const Draft& draft : drafts) sampling.push_back(draft.sampling);
    const SampledTokens sampled = sample_and_wait(context_, model_, hidden, sampling);
    for (size_t i = 0; i < drafts.size(); ++i) {
      Draft& draft = drafts[i];
      draft.token = sampled.ids[i];
      draft.row = static_cast<int32_t>(i);
      draft.sampling = next_sampling_state(std::move(draft.sampling), draft.token);
      draft.part->draft.push_back(draft.token);
    }
    std::erase_if(drafts, [&](const Draft& draft) { return draft.part->num_lookahead <= step; });
  }
  timer_.end();
  timer_.read();
}

[[maybe_unused]] const bool added = proposers().add(
    "mtp", [](const ProposerContext& context) { return std::unique_ptr<Proposer>(new MtpProposer(context)); });

}  // namespace
}  // namespace hone
