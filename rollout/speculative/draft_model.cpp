// A smaller model writes a few tokens ahead. It draws with the reply's own randomness, so that where its distribution
// is near the model's, so is its draw; its cache has planes of its own in the model's blocks, and holds what they hold:
// what is shared, copied, or found again there is found here.
#include <algorithm>

#include "core/io/file.h"
#include "model/forward.h"
#include "model/io/adapter.h"
#include "rollout/decode_loop.h"
#include "rollout/paged_batch.h"
#include "rollout/proposer.h"
#include "rollout/sampling_state.h"

namespace hone {
namespace {

// Ids are what the two models tell each other.
void check_vocabulary(const Tokenizer& draft, const Tokenizer& target, const std::string& folder) {
  HONE_CHECK(draft.vocab_size() == target.vocab_size(), "speculative.model: ", folder, " has a tokenizer of ",
             draft.vocab_size(), " ids, the model's has ", target.vocab_size(), "; the two must be the same");
  for (int32_t id = 0; id < target.vocab_size(); ++id)
    HONE_CHECK(draft.token(id) == target.token(id), "speculative.model: ", folder,
               " has another tokenizer than the model: id ", id, " is '", draft.token(id), "' there and '",
               target.token(id), "' here");
}

std::unique_ptr<Model> load_draft(const ProposerContext& setting) {
  const std::string folder = expand_path(setting.config.model);
  std::unique_ptr<Model> out = load_model(setting.context, folder, {.dtype = setting.model.dtype()});
  const std::filesystem::path with_tokenizer = tokenizer_folder(folder);
  if (setting.tokenizer && Tokenizer::is_in(with_tokenizer))
    check_vocabulary(Tokenizer::load(with_tokenizer), *setting.tokenizer, folder);
  else  // rows that no token has may be more or fewer, but which they are is not known here
    HONE_CHECK(out->shape().vocab_size == setting.model.shape().vocab_size, "speculative.model: ", folder,
               " has a vocabulary of ", out->shape().vocab_size, ", the model has ", setting.model.shape().vocab_size,
               ", and there are no two tokenizers to compare");
  return out;
}

class DraftModel : public Proposer {
 public:
  explicit DraftModel(const ProposerContext& setting)
      : context_(setting.context),
        model_(load_draft(setting)),
        vocab_size_(setting.model.shape().vocab_size),
        most_(setting.config.num_speculative_tokens),
        planes_(context_, model_->shape(), model_->lm_head().value.dtype, setting.cache.block_size(),
                setting.cache.num_blocks()),
        staging_(context_.device()),
        reading_(context_),
        loop_(context_, *model_, planes_) {
    setting.cache.attach_storage(planes_);
  }

  void propose(std::span<Scheduler::ScheduledSequence> parts) override {
    std::vector<Scheduler::ScheduledSequence> others;
    std::vector<Scheduler::ScheduledSequence*> decoding;
    for (Scheduler::ScheduledSequence& part : parts) {
      const Sequence& sequence = *part.sequence;
      const int64_t positions = model_->shape().max_positions - sequence.computed;
      if (sequence.forked && sequence.remaining() == 1 && positions > most_)
        decoding.push_back(&part);
      else if (positions > 0)
        others.push_back({.sequence = part.sequence, .count = std::min(part.count, positions)});
    }
    if (!others.empty()) read(others);
    if (!decoding.empty()) write(decoding);
  }

  double seconds() const override { return reading_.seconds() + loop_.seconds(); }

 private:
  // Tokens that the model will compute, and nothing to propose after them.
  void read(std::span<const Scheduler::ScheduledSequence> parts) {
    ScratchScope scratch(context_);
    staging_.release({});
    const PagedBatch paged(context_, staging_, planes_, parts, model_->shape().vocab_size);
    reading_.begin();
    infer(context_, *model_, paged.batch, {}, &paged.view);
    reading_.end();
  }

  // One pass more than there are tokens to propose, so that the keys and values of the last are there if it is
  // accepted.
  void write(std::span<Scheduler::ScheduledSequence* const> parts) {
    const int64_t block_size = planes_.block_size();
    std::vector<std::vector<int32_t>> blocks;
    int64_t most = 0;
    for (const Scheduler::ScheduledSequence* part : parts) {
      most = std::max(most, part->room);
      blocks.push_back(part->sequence->blocks);
    }
    std::vector<DecodeLoop::Row> rows;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Sequence& sequence = *parts[i]->sequence;
      // Where the part has less room, what is written beyond it is nobody's.
      blocks[i].resize(std::max(blocks[i].size(), static_cast<size_t>((sequence.computed + most) / block_size + 1)),
                       planes_.pad_block());
      const int32_t last = sequence.tokens.back();
      rows.push_back({last < model_->shape().vocab_size ? last : 0,
                      sequence.computed,
                      blocks[i],
                      {.sample = sample_params(sequence, sequence.reply), .how = {}, .edits = {}}});
    }
    loop_.start(rows);
    std::vector<bool> ended(parts.size());
    const int64_t ahead = context_.device().asynchronous() ? 1 : 0;
    for (int64_t pass = 0, queued = 0; pass <= most; ++pass) {
      while (queued <= most && loop_.num_unread() <= ahead) loop_.queue(), ++queued;
      const SampledTokens drawn = loop_.read();
      for (size_t i = 0; i < parts.size(); ++i) {
        ended[i] = ended[i] || pass >= parts[i]->room || drawn.ids[i] >= vocab_size_;
        if (!ended[i]) parts[i]->proposed.push_back(drawn.ids[i]);
      }
    }
    while (!reading_.all_read()) reading_.read();  // was queued before what has been waited for
  }

  Context& context_;
  std::unique_ptr<Model> model_;
  int64_t vocab_size_;  // of the model that is proposed to
  int64_t most_;
  KvStorage planes_;
  Arena staging_;
  DeviceTimer reading_;
  DecodeLoop loop_;
};

[[maybe_unused]] const bool added = proposers().add(
    "draft_model", [](const ProposerContext& setting) { return std::unique_ptr<Proposer>(new DraftModel(setting)); });

}  // namespace
}  // namespace hone
