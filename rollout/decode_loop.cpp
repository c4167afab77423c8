#include "rollout/decode_loop.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "model/forward.h"

namespace hone {
namespace {

constexpr auto param_size = static_cast<int64_t>(sizeof(RowSamplingParams)),
               row_edits_size = static_cast<int64_t>(sizeof(RowPenalties)),
               edit_size = static_cast<int64_t>(sizeof(LogitAdjustment));

// Batches are filled up to these numbers of rows, and tables to whole multiples of blocks, so that few recordings serve
// all.
int64_t padded_rows(int64_t rows) {
  int64_t out = 1;
  while (out < rows && out < 8) out *= 2;
  const int64_t step = rows <= 256 ? 8 : 64;
  return rows <= out ? out : (rows + step - 1) / step * step;
}
constexpr int64_t padded_blocks(int64_t blocks) { return (blocks + 63) / 64 * 64; }
// Edits of a row with room for those that passes add, and likeliest ids of a place: powers of two.
constexpr int64_t padded_power(int64_t count) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)));
}

// Puts items into a piece of words.
template <class T>
void put_items(int32_t* words, const T* items, size_t count) {
  std::memcpy(words, items, count * sizeof(T));
}

}  // namespace

struct DecodeLoop::Shape {
  // One piece of i32: the state's columns, the turn of what is handed over, offsets, tables; a host copy of the same
  // layout fills it.
  struct Layout {
    int64_t rows, blocks, edits, top;  // edits: of a row, 0 where no logit changes; top: likeliest ids
    bool prefetchable;  // no two rows are of one sequence: a pass reads no key that another row's token of the pass
                        // writes
    int64_t column(int64_t i) const { return i * rows; }  // tokens, positions, slots, lengths, live
    int64_t turn() const { return column(5); }
    int64_t params() const { return (turn() + 2) / 2 * 2; }  // 8-byte aligned
    int64_t offsets() const { return params() + rows * param_size / 4; }
    int64_t table() const { return offsets() + rows + 1; }
    int64_t row_edits() const { return (table() + rows * blocks + 1) / 2 * 2; }  // 8-byte aligned
    int64_t logit_edits() const { return row_edits() + (edits > 0 ? rows * row_edits_size / 4 : 0); }
    int64_t size() const { return logit_edits() + rows * edits * edit_size / 4; }
  };
  Shape(Device& device, Arena& memory, Layout l)
      : layout(l),
        words(memory.take(DType::i32, {l.size()})),
        drawn(memory.take(DType::i32, {SampledTokenBuffer::size(l.rows, l.top)}), l.rows, l.top),
        to_device(device, words.bytes(), MemoryKind::pinned),
        from_device(device, ring * drawn.all().bytes(), MemoryKind::pinned),
        results{drawn.all(), Tensor(from_device.data(), DType::i32, device.kind(), {ring, drawn.all().size()}),
                words.rows(l.turn(), 1)} {
    const auto column = [&](int64_t i) { return words.rows(layout.column(i), layout.rows); };
    const auto bytes = [&](int64_t first, int64_t count) {
      return Tensor(words.rows(first, count / 4).data, DType::u8, words.device, {count});
    };
    state = {column(0), column(1), column(2), column(3), column(4), bytes(layout.params(), layout.rows * param_size)};
    if (layout.edits > 0)
      edits = {bytes(layout.logit_edits(), layout.rows * layout.edits * edit_size),
               bytes(layout.row_edits(), layout.rows * row_edits_size)};
    offsets = words.rows(layout.offsets(), layout.rows + 1);
    table = words.rows(layout.table(), layout.rows * layout.blocks).view({layout.rows, layout.blocks});
  }

  Layout layout;
  Tensor words;
  SampledTokenBuffer drawn;
  DecodeState state;
  LogitAdjustments edits;
  Tensor offsets, table;
  Buffer to_device, from_device;  // what the device copies from, and writes to
  HostRing results;
  std::unique_ptr<CapturedGraph> recording;
  Arena::Mark scratch;  // where the recording's temporary memory begins
};

DecodeLoop::DecodeLoop(Context& context, Model& model, const KvStorage& planes)
    : context_(context), model_(model), planes_(planes), memory_(context.device()), clock_(context) {}
DecodeLoop::~DecodeLoop() {
  if (current_) context_.synchronize();  // passes write to memory that goes now
}

DecodeLoop::Shape& DecodeLoop::shape_for(std::span<const Row> rows) {
  size_t blocks = 0, edits = 0;
  int64_t top = 0;
  bool edited = false;
  std::set<const int32_t*> tables;
  for (const Row& row : rows) {
    blocks = std::max(blocks, row.blocks.size());
    tables.insert(row.blocks.data());
    edits = std::max(edits, row.draw.edits.size());
    edited = edited || row.draw.edited();
    top = std::max(top, row.draw.top_logprobs);
  }
  ++blocks;  // the last pass moves the state on, too, maybe to a block that is not there yet
  const Shape::Layout layout{.rows = padded_rows(std::ssize(rows)),
                             .blocks = padded_blocks(static_cast<int64_t>(blocks)),
                             .edits = edited ? padded_power(static_cast<int64_t>(edits) + max_passes) : 0,
                             .top = top > 0 ? std::min(padded_power(top), model_.shape().vocab_size) : 0,
                             .prefetchable = tables.size() == rows.size()};
  std::unique_ptr<Shape>& shape = shapes_[{layout.rows, layout.blocks, layout.edits, layout.top, layout.prefetchable}];
  if (!shape) shape = std::make_unique<Shape>(context_.device(), memory_, layout);
  return *shape;
}

void DecodeLoop::start(std::span<const Row> rows) {
  while (!clock_.all_read()) clock_.read();  // an error came between
  rows_ = static_cast<int64_t>(rows.size()), queued_ = 0, read_ = 0;
  current_ = &shape_for(rows);
  const Shape::Layout& layout = current_->layout;
  const int64_t block_size = planes_.block_size();
  auto* const words = static_cast<int32_t*>(current_->to_device.data());
  std::fill_n(words, layout.size(), 0);
  for (int64_t r = 0; r < layout.rows; ++r) {
    const auto put = [&](int64_t column, int64_t value) {
      words[layout.column(column) + r] = static_cast<int32_t>(value);
    };
    words[layout.offsets() + r + 1] = static_cast<int32_t>(r + 1);
    const bool live = r < rows_;
    put(4, live ? 1 : 0);
    SamplingState draw;
    int32_t* const table = words + layout.table() + r * layout.blocks;
    if (live) {
      const Row& row = rows[static_cast<size_t>(r)];
      put(0, row.token);
      put(1, row.position);
      put(2,
          int64_t{row.blocks[static_cast<size_t>(row.position / block_size)]} * block_size + row.position % block_size);
      put(3, row.position + 1);
      draw = row.draw;
      std::copy(row.blocks.begin(), row.blocks.end(), table);
    } else {  // a sequence of one token in the block that no sequence has
      put(2, planes_.pad_block() * block_size);
      put(3, 1);
      table[0] = static_cast<int32_t>(planes_.pad_block());
    }
    put_items(words + layout.params() + r * param_size / 4, &draw.sample, 1);
    if (layout.edits == 0) continue;
    put_items(words + layout.row_edits() + r * row_edits_size / 4, &draw.how, 1);
    draw.edits.resize(static_cast<size_t>(layout.edits));
    put_items(words + layout.logit_edits() + r * layout.edits * edit_size / 4, draw.edits.data(), draw.edits.size());
  }
  context_.device().copy(current_->words.data, words, current_->words.bytes(), context_.stream());
}

void DecodeLoop::pass(const Shape& shape) {
  ScratchScope scope(context_);
  const int64_t S = shape.layout.rows;
  const Batch batch{.tokens = shape.state.tokens,
                    .positions = shape.state.positions,
                    .offsets = shape.offsets,
                    .num_tokens = S,
                    .num_sequences = S,
                    .max_length = 1,
                    .num_positions = 1};
  KvView view = planes_.view();
  view.slots = shape.state.slots;
  view.lengths = shape.state.lengths;
  view.block_table = shape.table;
  view.prefetchable = shape.layout.prefetchable;
  const Tensor hidden = infer(context_, model_, batch, {}, &view);
  sample_tokens(context_, model_, shape.drawn, hidden, {shape.state.params, shape.edits});
  if (shape.edits) count_sampled_tokens(context_, shape.edits, shape.drawn.ids());
  decode_advance(context_, {.state = shape.state,
                            .ids = shape.drawn.ids(),
                            .block_table = shape.table,
                            .block_size = planes_.block_size(),
                            .results = shape.results});
}

void DecodeLoop::queue() {
  HONE_CHECK(current_ && num_unread() < ring, "decode loop: ", num_unread(), " passes are unread already");
  Shape& shape = *current_;
  HONE_CHECK(!shape.edits || queued_ < max_passes, "decode loop: no room for what pass ", queued_, " draws");
  const Arena::Mark scratch = context_.scratch().mark();
  clock_.begin();
  if (shape.recording && shape.scratch == scratch) {
    shape.recording->launch(context_.stream());
  } else {  // a first pass makes scratch memory and whatever else bodies make once; what is recorded makes none
    pass(shape);
    shape.recording = context_.device().capture(context_.stream(), [this, &shape] { pass(shape); });
    shape.scratch = scratch;
  }
  ++queued_;
  clock_.end();
}

SampledTokens DecodeLoop::read() {
  HONE_CHECK(num_unread() > 0, "decode loop: no pass to read");
  const Tensor& handed = current_->results.ring;
  const int64_t row = read_++ % handed.dim(0);  // the device's turn, too: both begin at start()
  clock_.read();
  return current_->drawn.read(handed.row<int32_t>(row), rows_);
}

}  // namespace hone
