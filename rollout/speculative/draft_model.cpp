// Proposer "draft_model": a smaller model samples the draft tokens. It samples with the completion's own RNG draws, so
// that a similar distribution gives the same token. Its KV storage uses the model's block numbers: blocks that are
// shared, copied or found in the prefix cache are valid for both models.
#include <algorithm>
#include <optional>

#include "core/io/file.h"
#include "model/forward.h"
#include "model/io/adapter.h"
#include "rollout/decode_loop.h"
#include "rollout/paged_batch.h"
#include "rollout/proposer.h"
#include "rollout/sampling_state.h"
#include "rollout/speculative/draft_vocabulary.h"

namespace hone {

// The two models exchange ids, so that their tokenizers must agree.
static void check_tokenizers(const Tokenizer& draft, const Tokenizer& target, const std::string& folder) {
  HONE_CHECK(draft.vocab_size() == target.vocab_size(), "speculative.model: ", folder, " has a tokenizer with ",
             draft.vocab_size(), " ids, the model's has ", target.vocab_size(),
             "; choose a draft model with the same tokenizer");
  for (int32_t id = 0; id < target.vocab_size(); ++id)
    HONE_CHECK(draft.token(id) == target.token(id), "speculative.model: ", folder,
               " has another tokenizer than the model: id ", id, " is '", draft.token(id), "' there and '",
               target.token(id), "' here; choose a draft model with the same tokenizer");
}

void check_draft_vocabulary(const Model& draft, const std::string& folder, const Model& model,
                            const Tokenizer* target) {
  const std::filesystem::path with_tokenizer = tokenizer_folder(folder);
  if (target && Tokenizer::is_in(with_tokenizer))
    return check_tokenizers(Tokenizer::load(with_tokenizer), *target, folder);
  // With tokenizers the padding rows of the vocabulary may differ. Without, they are unknown.
  HONE_CHECK(draft.shape().vocab_size == model.shape().vocab_size, "speculative.model: ", folder,
             " has a vocabulary of ", draft.shape().vocab_size, ", the model has ", model.shape().vocab_size,
             ", and there are no two tokenizers to compare: the vocabularies must have one size");
}

namespace {

std::unique_ptr<Model> load_draft(const ProposerContext& context) {
  const std::string folder = expand_path(context.config.model);
  std::unique_ptr<Model> out = load_model(context.context, folder, {.dtype = context.model.dtype()});
  check_draft_vocabulary(*out, folder, context.model, context.tokenizer);
  return out;
}

class DraftModel : public Proposer {
 public:
  explicit DraftModel(const ProposerContext& context)
      : context_(context.context),
        model_(load_draft(context)),
        vocab_size_(context.model.shape().vocab_size),
        num_draft_tokens_(context.config.num_speculative_tokens),
        storage_(context_, one_table(model_->kv_groups()), model_->lm_head().value.dtype, context.cache.block_size(),
                 context.cache.num_blocks()),
        prefill_timer_(context_) {
    make_passes();
    context.cache.attach_storage(storage_);
  }

  void propose(std::span<Scheduler::ScheduledSequence> parts) override {
    std::vector<Scheduler::ScheduledSequence> others;
    std::vector<Scheduler::ScheduledSequence*> decoding;
    for (Scheduler::ScheduledSequence& part : parts) {
      const Sequence& sequence = *part.sequence;
      const int64_t positions = model_->shape().max_positions - sequence.computed;
      if (sequence.forked && sequence.remaining() == 1 && positions > num_draft_tokens_)
        decoding.push_back(&part);
      else if (positions > 0)
        others.push_back({.sequence = part.sequence, .count = std::min(part.count, positions)});
    }
    if (!others.empty()) read(others);
    if (!decoding.empty()) write(decoding);
  }

  void free_memory() override {
    earlier_seconds_ += decode_loop_->seconds();
    make_passes();
  }
  double seconds() const override { return earlier_seconds_ + prefill_timer_.seconds() + decode_loop_->seconds(); }

 private:
  // New ones have no memory.
  void make_passes() {
    staging_.emplace(context_.device());
    decode_loop_.emplace(context_, *model_, storage_);
  }
  // Computes the tokens that the model will compute, without a draft after them.
  void read(std::span<const Scheduler::ScheduledSequence> parts) {
    ScratchScope scratch(context_);
    staging_->release({});
    const PagedBatch paged(context_, *staging_, storage_, parts, model_->shape().vocab_size);
    prefill_timer_.begin();
    infer(context_, *model_, paged.batch, {}, &paged.view);
    prefill_timer_.end();
  }

  // Runs one pass more than there are draft tokens, so that the keys and values of the last one are computed if it is
  // accepted.
  void write(std::span<Scheduler::ScheduledSequence* const> parts) {
    const int64_t block_size = storage_.block_size();
    std::vector<BlockTables> blocks;
    int64_t max_draft = 0;
    for (const Scheduler::ScheduledSequence* part : parts) {
      max_draft = std::max(max_draft, part->num_lookahead);
      blocks.push_back(part->sequence->blocks);
    }
    std::vector<DecodeLoop::Row> rows;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Sequence& sequence = *parts[i]->sequence;
      // A part with fewer lookahead tokens writes the rest to the pad block.
      const int64_t needed = (sequence.computed + max_draft) / block_size + 1;
      blocks[i].tables.front().resize(static_cast<size_t>(std::max(blocks[i].size(), needed)), storage_.pad_block());
      const int32_t last = sequence.tokens.back();
      rows.push_back(
          {last < model_->shape().vocab_size ? last : 0,
           sequence.computed,
           &blocks[i],
           {.sample = sample_params(sequence, sequence.completion_index), .penalties = {}, .adjustments = {}}});
    }
    decode_loop_->start(rows);
    std::vector<bool> ended(parts.size());
    const int64_t ahead = context_.device().asynchronous() ? 1 : 0;
    for (int64_t pass = 0, queued = 0; pass <= max_draft; ++pass) {
      while (queued <= max_draft && decode_loop_->num_unread() <= ahead) {
        decode_loop_->queue();
        ++queued;
      }
      const SampledTokens sampled = decode_loop_->read();
      for (size_t i = 0; i < parts.size(); ++i) {
        ended[i] = ended[i] || pass >= parts[i]->num_lookahead || sampled.ids[i] >= vocab_size_;
        if (!ended[i]) parts[i]->draft.push_back(sampled.ids[i]);
      }
    }
    while (!prefill_timer_.all_read()) prefill_timer_.read();  // was queued before the passes that were read
  }

  Context& context_;
  std::unique_ptr<Model> model_;
  int64_t vocab_size_;  // of the target model
  int64_t num_draft_tokens_;
  KvStorage storage_;
  DeviceTimer prefill_timer_;
  std::optional<Arena> staging_;  // always there, as decode_loop_
  std::optional<DecodeLoop> decode_loop_;
  double earlier_seconds_ = 0;  // of decode loops before this one
};

[[maybe_unused]] const bool added = proposers().add(
    "draft_model", [](const ProposerContext& context) { return std::unique_ptr<Proposer>(new DraftModel(context)); });

}  // namespace
}  // namespace hone
