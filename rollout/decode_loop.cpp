#include "rollout/decode_loop.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "kernels/sampling/token_mask.h"
#include "model/forward.h"

namespace hone {
namespace {

constexpr auto kParamBytes = static_cast<int64_t>(sizeof(RowSamplingParams)),
               kPenaltyBytes = static_cast<int64_t>(sizeof(RowPenalties)),
               kAdjustmentBytes = static_cast<int64_t>(sizeof(LogitAdjustment));

// Rows are padded to these numbers and block tables to multiples of 64 blocks, so that few captured graphs serve all
// batches.
int64_t padded_rows(int64_t rows) {
  int64_t out = 1;
  while (out < rows && out < 8) out *= 2;
  const int64_t step = rows <= 256 ? 8 : 64;
  return rows <= out ? out : (rows + step - 1) / step * step;
}
constexpr int64_t padded_blocks(int64_t blocks) { return (blocks + 63) / 64 * 64; }
// The adjustments of a row, with space for those that passes add, and the top log-probs are padded to powers of two.
constexpr int64_t padded_power(int64_t count) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)));
}

// Copies items into i32 words.
template <class T>
void put_items(int32_t* words, const T* items, size_t count) {
  std::memcpy(words, items, count * sizeof(T));
}

}  // namespace

struct DecodeLoop::Shape {
  enum class Column { tokens, positions, lengths, active };
  // One i32 tensor: the columns of the decode state, the slots of each block table, the ring index, offsets, the block
  // tables and the sampling tables.
  // start() fills a host copy of the same layout and uploads it.
  struct Layout {
    int64_t rows, tables, blocks, adjustments, top;  // adjustments of a row; top log-probs; 0 = none
    bool prefetchable;   // each row is another sequence: a pass reads no K or V that another row of the pass writes
    bool masked;         // passes take token masks
    int64_t mask_words;  // of a row
    int64_t column(Column c) const { return static_cast<int64_t>(c) * rows; }
    int64_t slots() const { return 4 * rows; }
    int64_t ring_index() const { return slots() + tables * rows; }
    int64_t params() const { return (ring_index() + 2) / 2 * 2; }  // 8-byte aligned
    int64_t offsets() const { return params() + rows * kParamBytes / 4; }
    int64_t table() const { return offsets() + rows + 1; }
    int64_t penalties() const { return (table() + tables * rows * blocks + 1) / 2 * 2; }  // 8-byte aligned
    int64_t logit_adjustments() const { return penalties() + (adjustments > 0 ? rows * kPenaltyBytes / 4 : 0); }
    int64_t size() const { return logit_adjustments() + rows * adjustments * kAdjustmentBytes / 4; }
    // Of the token masks: each row's mask, then the masks, in a tensor of their own.
    int64_t masks_size() const { return masked ? rows * (1 + mask_words) : 0; }
  };
  Shape(Device& device, Arena& memory, Layout l, DType dtype, int64_t width)
      : layout(l),
        words(memory.take(DType::i32, {l.size()})),
        sampled(memory.take(DType::i32, {SampledTokenBuffer::size(l.rows, l.top)}), l.rows, l.top),
        to_device(device, words.bytes(), MemoryKind::pinned),
        from_device(device, max_unread * sampled.all().bytes(), MemoryKind::pinned),
        results{sampled.all(),
                Tensor(from_device.data(), DType::i32, device.kind(), {max_unread, sampled.all().size()}),
                words.rows(l.ring_index(), 1)} {
    const auto column = [&](Column c) { return words.rows(layout.column(c), layout.rows); };
    const auto bytes = [&](int64_t first, int64_t count) {
      return Tensor(words.rows(first, count / 4).data, DType::u8, words.device, {count});
    };
    state = {.tokens = column(Column::tokens),
             .positions = column(Column::positions),
             .slots = words.rows(layout.slots(), layout.tables * layout.rows),
             .lengths = column(Column::lengths),
             .active = column(Column::active),
             .params = bytes(layout.params(), layout.rows * kParamBytes)};
    if (layout.adjustments > 0)
      adjustments = {bytes(layout.logit_adjustments(), layout.rows * layout.adjustments * kAdjustmentBytes),
                     bytes(layout.penalties(), layout.rows * kPenaltyBytes)};
    if (layout.masked) {
      mask_table = memory.take(DType::i32, {layout.masks_size()});
      masks_to_device = Buffer(device, mask_table.bytes(), MemoryKind::pinned);
      hidden = memory.take(dtype, {layout.rows, width});
    }
    offsets = words.rows(layout.offsets(), layout.rows + 1);
    const int64_t table_rows = layout.tables * layout.rows;
    table = words.rows(layout.table(), table_rows * layout.blocks).view({table_rows, layout.blocks});
  }

  Tensor mask_rows() const { return mask_table.rows(0, layout.rows); }
  Tensor masks() const {
    return mask_table.rows(layout.rows, layout.rows * layout.mask_words).view({layout.rows, layout.mask_words});
  }

  Layout layout;
  Tensor words;
  SampledTokenBuffer sampled;
  DecodeState state;
  LogitAdjustments adjustments;
  Tensor offsets;
  Tensor table;                   // [tables * rows, blocks]
  Tensor mask_table, hidden;      // of masked passes; hidden: [rows, D] between the two parts of a pass
  Buffer to_device, from_device;  // pinned: the upload's source, and the ring that the device writes
  Buffer masks_to_device;         // pinned
  HostRing results;
  // The pass, or the first part of a masked one; and its second part. With where their scratch memory begins.
  std::unique_ptr<CapturedGraph> graph, sampling_graph;
  Arena::Mark scratch, sampling_scratch;
};

DecodeLoop::DecodeLoop(Context& context, Model& model, const KvStorage& storage)
    : context_(context), model_(model), storage_(storage), memory_(context.device()), timer_(context) {}
DecodeLoop::~DecodeLoop() {
  if (current_) context_.synchronize();  // queued passes write to memory that is freed now
}

DecodeLoop::Shape& DecodeLoop::shape_for(std::span<const Row> rows, bool masked) {
  size_t adjustments = 0;
  int64_t blocks = 0, top = 0;
  bool adjusted = false;
  std::set<const BlockTables*> sequences;
  for (const Row& row : rows) {
    blocks = std::max(blocks, row.blocks->size());
    sequences.insert(row.blocks);
    adjustments = std::max(adjustments, row.sampling.adjustments.size());
    adjusted = adjusted || row.sampling.adjusts_logits();
    top = std::max(top, row.sampling.top_logprobs);
  }
  ++blocks;  // the last pass advances the state as well, maybe into a block that is not allocated yet
  const Shape::Layout layout{.rows = padded_rows(std::ssize(rows)),
                             .tables = storage_.layout().num_tables(),
                             .blocks = padded_blocks(blocks),
                             .adjustments = adjusted ? padded_power(static_cast<int64_t>(adjustments) + max_passes) : 0,
                             .top = top > 0 ? std::min(padded_power(top), model_.shape().vocab_size) : 0,
                             .prefetchable = sequences.size() == rows.size(),
                             .masked = masked,
                             .mask_words = mask_words(model_.shape().vocab_size)};
  std::unique_ptr<Shape>& shape =
      shapes_[{layout.rows, layout.blocks, layout.adjustments, layout.top, layout.prefetchable, layout.masked}];
  if (!shape)
    shape = std::make_unique<Shape>(context_.device(), memory_, layout, model_.lm_head().value.dtype,
                                    model_.shape().hidden_size);
  return *shape;
}

void DecodeLoop::start(std::span<const Row> rows, bool masked) {
  while (!timer_.all_read()) timer_.read();  // after an error passes may be unread
  rows_ = static_cast<int64_t>(rows.size());
  queued_ = 0;
  read_ = 0;
  current_ = &shape_for(rows, masked);
  const Shape::Layout& layout = current_->layout;
  const int64_t block_size = storage_.block_size();
  auto* const words = static_cast<int32_t*>(current_->to_device.data());
  std::fill_n(words, layout.size(), 0);
  for (int64_t r = 0; r < layout.rows; ++r) {
    using Column = Shape::Column;
    const auto put = [&](Column column, int64_t value) {
      words[layout.column(column) + r] = static_cast<int32_t>(value);
    };
    words[layout.offsets() + r + 1] = static_cast<int32_t>(r + 1);
    const bool active = r < rows_;
    put(Column::active, active ? 1 : 0);
    SamplingState sampling;
    if (active) {
      const Row& row = rows[static_cast<size_t>(r)];
      put(Column::tokens, row.token);
      put(Column::positions, row.position);
      put(Column::lengths, row.position + 1);
      sampling = row.sampling;
    } else {  // padding row: a sequence of one token in the pad block
      put(Column::lengths, 1);
    }
    const std::vector<int32_t> pad{storage_.pad_block()};
    for (int64_t t = 0; t < layout.tables; ++t) {
      const auto row = static_cast<size_t>(r);
      const std::vector<int32_t>& blocks = active ? rows[row].blocks->tables[static_cast<size_t>(t)] : pad;
      const int64_t position = active ? rows[row].position : 0, at = t * layout.rows + r;
      std::ranges::copy(blocks, words + layout.table() + at * layout.blocks);
      words[layout.slots() + at] =
          static_cast<int32_t>(blocks[static_cast<size_t>(position / block_size)] * block_size + position % block_size);
    }
    put_items(words + layout.params() + r * kParamBytes / 4, &sampling.sample, 1);
    if (layout.adjustments == 0) continue;
    put_items(words + layout.penalties() + r * kPenaltyBytes / 4, &sampling.penalties, 1);
    sampling.adjustments.resize(static_cast<size_t>(layout.adjustments));
    put_items(words + layout.logit_adjustments() + r * layout.adjustments * kAdjustmentBytes / 4,
              sampling.adjustments.data(), sampling.adjustments.size());
  }
  context_.device().copy(current_->words.data, words, current_->words.bytes(), context_.stream());
}

Tensor DecodeLoop::forward(const Shape& shape) {
  const int64_t S = shape.layout.rows;
  const Batch batch{.tokens = shape.state.tokens,
                    .positions = shape.state.positions,
                    .offsets = shape.offsets,
                    .num_tokens = S,
                    .num_sequences = S,
                    .max_length = 1,
                    .num_positions = 1};
  KvView view = storage_.view();
  for (int64_t t = 0; t < shape.layout.tables; ++t)
    view.groups.push_back({.slots = shape.state.slots.rows(t * S, S), .block_table = shape.table.rows(t * S, S)});
  view.lengths = shape.state.lengths;
  view.prefetchable = shape.layout.prefetchable;
  return infer(context_, model_, batch, {}, &view);
}

void DecodeLoop::sample(const Shape& shape, Tensor hidden) {
  SamplingTables tables{shape.state.params, shape.adjustments};
  if (shape.layout.masked) {
    tables.masks = shape.masks();
    tables.mask_rows = shape.mask_rows();
  }
  sample_tokens(context_, model_, shape.sampled, hidden, tables);
  if (shape.adjustments) count_sampled_tokens(context_, shape.adjustments, shape.sampled.ids());
  decode_advance(context_, {.state = shape.state,
                            .ids = shape.sampled.ids(),
                            .block_table = shape.table,
                            .block_size = storage_.block_size(),
                            .results = shape.results});
}

void DecodeLoop::run(std::unique_ptr<CapturedGraph>& graph, Arena::Mark& scratch, const std::function<void()>& work) {
  const Arena::Mark now = context_.scratch().mark();
  if (graph && scratch == now) return graph->launch(context_.stream());
  // The first pass runs eagerly: it allocates scratch memory, which a captured pass must not do.
  const auto scoped = [this, work] {
    ScratchScope scope(context_);
    work();
  };
  scoped();
  graph = context_.device().capture(context_.stream(), scoped);
  scratch = now;
}

void DecodeLoop::queue() {
  HONE_CHECK(current_ && num_unread() < max_unread, "decode loop: ", num_unread(),
             " passes are unread; call read() first");
  Shape& shape = *current_;
  HONE_CHECK(!shape.adjustments || queued_ < max_passes, "decode loop: pass ", queued_,
             " after start(); with adjusted logits there are ", max_passes, " at most");
  HONE_CHECK(!shape.layout.masked, "decode loop: a masked pass is queued in two parts");
  timer_.begin();
  run(shape.graph, shape.scratch, [this, &shape] { sample(shape, forward(shape)); });
  ++queued_;
  timer_.end();
}

void DecodeLoop::queue_forward() {
  HONE_CHECK(current_ && num_unread() < max_unread && current_->layout.masked, "decode loop: no masked pass may begin");
  Shape& shape = *current_;
  HONE_CHECK(!shape.adjustments || queued_ < max_passes, "decode loop: pass ", queued_,
             " after start(); with adjusted logits there are ", max_passes, " at most");
  timer_.begin();
  run(shape.graph, shape.scratch, [this, &shape] { context_.copy(shape.hidden, forward(shape)); });
}

Tensor DecodeLoop::hidden() const {
  HONE_CHECK(current_ && current_->hidden, "decode loop: only masked passes keep their hidden states");
  return current_->hidden.rows(0, rows_);
}

void DecodeLoop::queue_sampling(const MaskTable& masks) {
  Shape& shape = *current_;
  const Shape::Layout& layout = shape.layout;
  HONE_CHECK(std::ssize(masks.rows()) == rows_, "decode loop: masks for ", masks.rows().size(), " rows of ", rows_);
  auto* const words = static_cast<int32_t*>(shape.masks_to_device.data());
  std::fill_n(words, layout.rows, -1);
  put_items(words, masks.rows().data(), masks.rows().size());
  put_items(words + layout.rows, masks.bits().data(), masks.bits().size());
  const size_t used = (static_cast<size_t>(layout.rows) + masks.bits().size()) * sizeof(int32_t);
  // The pass before is read, so the device no longer reads either memory. The first part of this pass is running: the
  // copy goes beside it, and the host waits for it before it queues the sampling.
  if (!mask_copies_) mask_copies_.emplace(context_.device());
  context_.device().copy(shape.mask_table.data, words, used, mask_copies_->stream());
  mask_copies_->synchronize();
  run(shape.sampling_graph, shape.sampling_scratch, [this, &shape] { sample(shape, shape.hidden); });
  ++queued_;
  timer_.end();
}

SampledTokens DecodeLoop::read() {
  HONE_CHECK(num_unread() > 0, "decode loop: no pass to read");
  const Tensor& ring = current_->results.ring;
  const int64_t row = read_++ % ring.dim(0);  // equals the device's ring index: both begin at start()
  timer_.read();
  return current_->sampled.read(ring.row<int32_t>(row), rows_);
}

}  // namespace hone
