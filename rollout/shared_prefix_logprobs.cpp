#include "rollout/shared_prefix_logprobs.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/base/stopwatch.h"
#include "kernels/lm_head/logprob.h"
#include "model/forward.h"
#include "rollout/sampler.h"

namespace hone {
namespace {

// The last id of a text is predicted and not an input.
int64_t num_inputs(const std::vector<int32_t>& ids) { return std::ssize(ids) - 1; }

// Number of first inputs that are equal.
int64_t common_inputs(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return std::mismatch(a.begin(), a.end() - 1, b.begin(), b.end() - 1).first - a.begin();
}

}  // namespace

SharedPrefixLogprobs::SharedPrefixLogprobs(Context& context, Model& model, const Options& options, OnResult on_result)
    : context_(context), model_(model), options_(options), on_result_(std::move(on_result)) {
  HONE_CHECK(options.batch_tokens > 0 && options.block_size > 0, "log-probs: batch_tokens is ", options.batch_tokens,
             " and block_size ", options.block_size, "; both must be positive");
}

void SharedPrefixLogprobs::check(const std::vector<int32_t>& ids, size_t first) const {
  HONE_CHECK(first >= 1 && first < ids.size(), "log-probs: text ", num_added_, " has ", ids.size(),
             " tokens and its continuation begins at token ", first,
             "; a continuation needs a token, and one before it");
  check_tokens(model_, ids, concat("text ", num_added_));
  HONE_CHECK(num_inputs(ids) <= model_.shape().max_positions, "log-probs: text ", num_added_, " has ", ids.size(),
             " tokens; the model has ", model_.shape().max_positions,
             " positions, and one more token can be predicted");
}

// Makes the cache large enough for a text of `inputs` tokens besides a pass, and as many again for prefixes.
void SharedPrefixLogprobs::reserve_cache(int64_t inputs) {
  if (inputs <= longest_) return;
  flush();
  longest_ = std::min(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(inputs))), model_.shape().max_positions);
  const int64_t blocks = (2 * options_.batch_tokens + longest_) / options_.block_size + 2;
  cache_.reset();  // frees its memory first
  cache_ = std::make_unique<KvCache>(context_, one_table(model_.kv_groups()), model_.lm_head().value.dtype,
                                     options_.block_size, blocks * options_.block_size);
}

void SharedPrefixLogprobs::add(std::vector<int32_t> ids, size_t first) {
  check(ids, first);
  reserve_cache(num_inputs(ids));
  auto text = std::make_unique<PlannedText>();
  text->index = num_added_++;
  text->ids = std::move(ids);
  text->first = first;
  stats_.tokens += num_inputs(text->ids);
  stats_.predicted_tokens += std::ssize(text->ids) - static_cast<int64_t>(first);
  while (!plan(*text)) run_pass();
  pass_.push_back(std::move(text));
}

void SharedPrefixLogprobs::flush() {
  if (!pass_.empty()) run_pass();
}

int64_t SharedPrefixLogprobs::row_of(const PlannedText& text, int64_t position) {
  if (position >= text.start && position < text.end) return text.first_row + position - text.start;
  return text.overlap && position < text.overlap_length ? row_of(*text.overlap, position) : -1;
}

// Finds the text of the pass that has the most first tokens in common with `text`. Texts of one prompt are neighbors,
// so the search ends at the first one that differs within the prompt.
void SharedPrefixLogprobs::find_overlap(PlannedText& text) const {
  const auto last_given = static_cast<int64_t>(text.first) - 1;  // its hidden state predicts the first token
  text.overlap = nullptr;
  text.overlap_length = 0;
  for (auto other = pass_.rbegin(); other != pass_.rend(); ++other) {
    const int64_t common = common_inputs(text.ids, (*other)->ids);
    if (common <= last_given) break;
    if (common <= text.overlap_length || row_of(**other, last_given) < 0) continue;
    text.overlap = other->get();
    text.overlap_length = common;
    if (common == num_inputs(text.ids)) break;
  }
}

// References the cached blocks of the first max_tokens tokens.
void SharedPrefixLogprobs::match_prefix(PlannedText& text, int64_t max_tokens) {
  const KvCache::PrefixMatch match =
      cache_->match_prefix(text.blocks, cache_->prefix_cache().root(), text.ids, max_tokens / options_.block_size);
  text.start = match.blocks * options_.block_size;
  text.num_cached_blocks = match.blocks;
  text.prefix_id = match.id;
}

// Later texts may read these blocks in the same pass: each layer writes all keys and values before attention.
void SharedPrefixLogprobs::cache_full_blocks(PlannedText& text) {
  const std::span<const int32_t> ids = text.ids;
  const int64_t size = options_.block_size;
  for (; (text.num_cached_blocks + 1) * size <= text.end; ++text.num_cached_blocks)
    text.prefix_id =
        cache_->cache_block(text.blocks, text.num_cached_blocks, text.prefix_id,
                            ids.subspan(static_cast<size_t>(text.num_cached_blocks * size), static_cast<size_t>(size)));
}

// Decides what the pass computes of `text` and allocates its blocks. Returns false if a pass must run first.
bool SharedPrefixLogprobs::plan(PlannedText& text) {
  const int64_t inputs = num_inputs(text.ids), size = options_.block_size;
  const auto last_given = static_cast<int64_t>(text.first) - 1;
  const int64_t num_predicted = inputs - last_given;
  if (!pass_.empty() && pass_predicted_ + num_predicted > options_.batch_tokens) return false;
  find_overlap(text);
  text.end = inputs;
  if (text.overlap_length == inputs) {  // the pass computes all of it already
    text.start = inputs;
    pass_predicted_ += num_predicted;
    return true;
  }
  match_prefix(text, std::max(last_given, text.overlap_length));
  // The prompt of a text that is longer than a pass is computed by passes of its own, in whole blocks.
  const bool too_long = text.end - text.start > options_.batch_tokens;
  const int64_t part_end = std::min(text.start + options_.batch_tokens, last_given) / size * size;
  const bool in_parts = too_long && part_end > text.start;
  if (in_parts) text.end = part_end;
  const int64_t missing = cache_->missing_blocks(text.blocks, text.end);
  if (!pass_.empty() &&
      (pass_tokens_ + text.end - text.start > options_.batch_tokens || missing > cache_->free_blocks())) {
    cache_->release(text.blocks);
    return false;
  }
  cache_->extend(text.blocks, text.end);
  cache_full_blocks(text);
  text.first_row = pass_tokens_;
  pass_tokens_ += text.end - text.start;
  if (!in_parts) {
    pass_predicted_ += num_predicted;
    return true;
  }
  pass_.push_back(std::make_unique<PlannedText>(text));
  text.blocks = {};  // the part's
  return false;
}

// Runs the layers over the planned tokens, and returns the hidden states of `rows`.
Tensor SharedPrefixLogprobs::compute_hidden(std::span<const int32_t> rows) {
  const int64_t size = options_.block_size;
  const auto blocks_of = [](const PlannedText& text) -> const std::vector<int32_t>& {
    return text.blocks.tables.front();
  };
  size_t widest = 0;  // columns of the block table
  for (const auto& text : pass_)
    if (text->start < text->end) widest = std::max(widest, blocks_of(*text).size());
  std::vector<BatchPart> parts;
  std::vector<int32_t> slots, lengths, table;
  for (const auto& text : pass_) {
    if (text->start == text->end) continue;
    parts.push_back({std::span<const int32_t>(text->ids).subspan(static_cast<size_t>(text->start),
                                                                 static_cast<size_t>(text->end - text->start)),
                     static_cast<int32_t>(text->start)});
    const std::vector<int32_t>& blocks = blocks_of(*text);
    for (int64_t p = text->start; p < text->end; ++p)
      slots.push_back(static_cast<int32_t>(blocks[static_cast<size_t>(p / size)] * size + p % size));
    lengths.push_back(static_cast<int32_t>(text->end));
    table.insert(table.end(), blocks.begin(), blocks.end());
    table.resize(widest * lengths.size(), 0);
  }
  Arena& scratch = context_.scratch();
  const std::vector<Tensor> columns = upload(context_, scratch, {slots, lengths, table, rows});
  KvView view = cache_->storage().view();
  view.groups = {
      {.slots = columns[0], .block_table = columns[2].view({std::ssize(lengths), static_cast<int64_t>(widest)})}};
  view.lengths = columns[1];
  return infer(context_, model_, pack_batch(context_, scratch, parts), columns[3], &view);
}

void SharedPrefixLogprobs::run_pass() {
  const Stopwatch watch;
  std::vector<int32_t> rows, targets;
  for (const auto& text : pass_) {
    if (text->end < num_inputs(text->ids)) continue;  // a part of a long prompt
    for (size_t t = text->first; t < text->ids.size(); ++t) {
      rows.push_back(static_cast<int32_t>(row_of(*text, static_cast<int64_t>(t) - 1)));
      targets.push_back(text->ids[t]);
    }
  }
  std::vector<float> logp;
  std::vector<int32_t> likeliest;
  {
    ScratchScope scope(context_);
    Arena& scratch = context_.scratch();
    const bool predicts = !rows.empty();
    if (!predicts) rows.push_back(0);
    const Tensor hidden = compute_hidden(rows);
    if (predicts) {
      const auto column = [&] { return scratch.take(DType::f32, {hidden.dim(0)}); };
      const Tensor out = column();
      logprob_forward(context_, {.logp = out,
                                 .lse = column(),
                                 .hidden = hidden,
                                 .w = model_.lm_head().value,
                                 .targets = upload(context_, scratch, std::span<const int32_t>(targets)),
                                 .inv_temperature = 1,
                                 .softcap = model_.shape().logit_softcap});
      logp = download(context_, out);
      if (options_.greedy) likeliest = likeliest_ids(hidden);
    }
  }
  ++stats_.passes;
  stats_.computed_tokens += pass_tokens_;
  stats_.seconds += watch.seconds();
  deliver(logp, likeliest, targets);
}

// What the engine samples at temperature 0.
std::vector<int32_t> SharedPrefixLogprobs::likeliest_ids(Tensor hidden) {
  SamplingState greedy;
  greedy.sample.temperature = 0;
  return sample_and_wait(context_, model_, hidden,
                         std::vector<SamplingState>(static_cast<size_t>(hidden.dim(0)), greedy))
      .ids;
}

// Ends the pass and hands out its results.
void SharedPrefixLogprobs::deliver(const std::vector<float>& logp, const std::vector<int32_t>& likeliest,
                                   const std::vector<int32_t>& targets) {
  const auto texts = std::exchange(pass_, {});
  pass_tokens_ = 0;
  pass_predicted_ = 0;
  for (const auto& text : texts) cache_->release(text->blocks);
  size_t at = 0;
  for (const auto& text : texts) {
    if (text->end < num_inputs(text->ids)) continue;
    const size_t end = at + text->ids.size() - text->first;
    ContinuationLogprobs out;
    out.logp.assign(logp.begin() + static_cast<std::ptrdiff_t>(at), logp.begin() + static_cast<std::ptrdiff_t>(end));
    out.greedy = !likeliest.empty();
    for (; at < end; ++at) out.greedy = out.greedy && likeliest[at] == targets[at];
    on_result_(text->index, std::move(out));
  }
}

}  // namespace hone
