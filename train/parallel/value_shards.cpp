#include "train/parallel/value_shards.h"

#include <algorithm>

namespace hone {
namespace {

// Ops may choose their way by the alignment of a weight, so memory keeps the place that it has in the flat memory
// modulo this number of bytes.
constexpr int64_t alignment = 256;

// A rank's shard of the trained values is that of their gradients (ShardMap), so frozen ones are not divided with them.
const ElementRange& divided_values(const Unit& unit) {
  return unit.trained_values.size() > 0 ? unit.trained_values : unit.values;
}

std::vector<int64_t> layer_sizes(const std::vector<Unit>& units) {
  std::vector<int64_t> out;
  for (const Unit& unit : units) out.push_back(divided_values(unit).size());
  out.front() = out.back() = 0;
  return out;
}

// The first byte at `at` or behind it for values that begin at element `first` of the flat memory.
int64_t aligned(int64_t at, int64_t first, DType dtype) {
  const int64_t wanted = first * static_cast<int64_t>(size_of(dtype)) % alignment;
  return (at - wanted + alignment - 1) / alignment * alignment + wanted;
}

Tensor view(const Buffer& bytes, int64_t at, const Tensor& flat, int64_t count) {
  return {bytes.data() ? static_cast<char*>(bytes.data()) + at : nullptr, flat.dtype, flat.device, {count}};
}

}  // namespace

ValueShards::ValueShards(Context& context, Model& model, ProcessGroup& group, int64_t piece)
    : context_(context),
      model_(model),
      group_(group),
      units_(units_of(model, context.target())),
      map_(layer_sizes(units_), static_cast<size_t>(group.size()), piece),
      stream_(context, num_buffers) {
  const Tensor flat = model.flat_values();
  const auto rank = static_cast<size_t>(group.rank());
  int64_t at = 0;
  for (const Param* param : model.params()) {
    places_[param] = at;
    at += param->padded_elements();
  }
  // Adapters are at the end of the flat memory, behind the back unit.
  ElementRange adapters{at, at};
  std::vector<ElementRange> ranges;
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    const ElementRange &values = units_[unit].values, &own = divided(unit);
    if (is_layer(unit))
      ranges.insert(ranges.end(), {{values.first, own.first}, {own.last, values.last}});
    else
      ranges.push_back(values);
    const ElementRange& of_adapters = units_[unit].adapter_values;
    if (of_adapters.size() > 0) adapters.first = std::min(adapters.first, of_adapters.first);
  }
  ranges.push_back(adapters);
  int64_t end = 0;
  for (const ElementRange& range : ranges) {
    if (range.size() == 0) continue;
    end = aligned(end, range.first, flat.dtype) + range.size() * static_cast<int64_t>(size_of(flat.dtype));
  }
  kept_bytes_ = Buffer(context.device(), static_cast<size_t>(end));
  end = 0;
  for (const ElementRange& range : ranges) {
    if (range.size() == 0) continue;
    end = aligned(end, range.first, flat.dtype);
    kept_.push_back({range, view(kept_bytes_, end, flat, range.size())});
    end += static_cast<int64_t>(kept_.back().values.bytes());
  }
  shard_bytes_ = Buffer(context.device(), static_cast<size_t>(map_.owned_elements(rank)) * size_of(flat.dtype));
  at = 0;
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    const int64_t size = map_.shard(unit, rank).size();
    shards_.push_back(view(shard_bytes_, at, flat, size));
    at += size * static_cast<int64_t>(size_of(flat.dtype));
    if (!is_layer(unit)) continue;
    const int64_t count = divided(unit).size();
    buffer_bytes_ = std::max(buffer_bytes_, count * static_cast<int64_t>(size_of(flat.dtype)));
    for (const Param* param : units_[unit].params)
      if (const int64_t place = places_.at(param); place >= divided(unit).first && place < divided(unit).last)
        layers_[param] = unit;
  }
  buffer_bytes_ = (buffer_bytes_ + alignment - 1) / alignment * alignment + alignment;
  layers_bytes_ = Buffer(context.device(), num_buffers * static_cast<size_t>(buffer_bytes_));
  model.set_divided(this);
  release();
}

ValueShards::~ValueShards() {
  model_.set_divided(nullptr);
  if (gathered_) return;
  for (Param* param : model_.params()) param->value.data = nullptr;
}

const ElementRange& ValueShards::divided(size_t unit) const { return divided_values(units_[unit]); }

Tensor ValueShards::layer_memory(size_t unit) const {
  const ElementRange& range = divided(unit);
  const int64_t begin = static_cast<int64_t>(buffer_of(unit)) * buffer_bytes_;
  return view(layers_bytes_, aligned(begin, range.first, model_.dtype()), model_.flat_values(), range.size());
}

std::vector<Tensor> ValueShards::parts_of(size_t unit, Tensor values) const {
  std::vector<Tensor> out;
  for (size_t rank = 0; rank < map_.num_ranks(); ++rank) {
    const ElementRange shard = map_.shard(unit, rank);
    out.push_back(values.rows(shard.first, shard.size()));
  }
  return out;
}

void ValueShards::point(std::span<Param* const> params, const ElementRange& range, Tensor memory) {
  for (Param* param : params) {
    const int64_t place = places_.at(param);
    if (place < range.first || place >= range.last) continue;
    param->value.data = memory.data ? memory.rows(place - range.first, param->num_elements()).data : nullptr;
  }
}

void ValueShards::gather() {
  if (gathered_) return;
  begin_update();
  model_.restore_values(context_);
  const Tensor flat = model_.flat_values();
  for (const Kept& kept : kept_) context_.copy(flat.rows(kept.range.first, kept.range.size()), kept.values);
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    if (!is_layer(unit)) continue;
    const ElementRange& range = divided(unit);
    group_.all_gather(context_, parts_of(unit, flat.rows(range.first, range.size())), shards_[unit], "whole values");
  }
  gathered_ = true;
}

void ValueShards::release() {
  if (!gathered_) return;
  const Tensor flat = model_.flat_values();
  const auto rank = static_cast<size_t>(group_.rank());
  for (const Kept& kept : kept_) context_.copy(kept.values, flat.rows(kept.range.first, kept.range.size()));
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    if (!is_layer(unit)) continue;
    const ElementRange& range = divided(unit);
    context_.copy(shards_[unit], parts_of(unit, flat.rows(range.first, range.size()))[rank]);
  }
  model_.drop_values(context_);
  const std::vector<Param*> params = model_.params();
  for (const Kept& kept : kept_) point(params, kept.range, kept.values);
  gathered_ = false;
}

// The exchange waits for the compute work queued so far: that may read the layer that was in the buffer before.
void ValueShards::fetch(size_t unit) {
  const size_t buffer = buffer_of(unit);
  if (!is_layer(unit) || held_[buffer] == unit) return;
  stream_.follow();
  group_.all_gather(stream_.context(), parts_of(unit, layer_memory(unit)), shards_[unit], "layer values");
  stream_.mark(buffer);
  held_[buffer] = unit;
}

void ValueShards::before(Context&, size_t unit, Direction direction) {
  if (gathered_) return;
  fetch(unit);
  if (is_layer(unit)) {
    stream_.wait_for(buffer_of(unit));
    point(units_[unit].params, divided(unit), layer_memory(unit));
  }
  // The next layer of the pass.
  if (direction == Direction::forward)
    fetch(unit + 1);
  else if (is_layer(unit))
    fetch(unit - 1);
}

void ValueShards::after(Context&, size_t unit, Direction) {
  if (gathered_ || !is_layer(unit)) return;
  point(units_[unit].params, divided(unit), {});
}

void ValueShards::begin_update() {
  stream_.join();
  held_.fill(none);
}

bool ValueShards::is_divided(const Param& param) const { return layers_.contains(&param); }

int64_t ValueShards::width_of(const Param& param) const {
  return static_cast<int64_t>(size_of(param.value.dtype) / size_of(model_.dtype()));
}

Tensor ValueShards::own(const Param& param, int64_t first, int64_t count) const {
  const auto place = places_.find(&param);
  HONE_CHECK(place != places_.end(), "value shards: ", param.slices.front().name, " is not of this model");
  const int64_t width = width_of(param), begin = place->second + first * width, size = count * width;
  const auto numbers = [&](Tensor flat) { return Tensor(flat.data, param.value.dtype, flat.device, {count}); };
  if (const auto layer = layers_.find(&param); layer != layers_.end()) {
    const int64_t at = begin - divided(layer->second).first;
    const ElementRange shard = map_.shard(layer->second, static_cast<size_t>(group_.rank()));
    HONE_CHECK(at >= shard.first && at + size <= shard.last, "value shards: elements ", first, "+", count, " of ",
               param.slices.front().name, " are not in this rank's shard");
    return numbers(shards_[layer->second].rows(at - shard.first, size));
  }
  const auto kept = std::ranges::find_if(kept_, [&](const Kept& one) { return begin < one.range.last; });
  return numbers(kept->values.rows(begin - kept->range.first, size));
}

std::vector<ValuePart> ValueShards::own_parts() const {
  std::vector<ValuePart> out;
  const std::vector<Param*> params = model_.params();
  for (size_t i = 0; i < params.size(); ++i) {
    const int64_t count = params[i]->num_elements();
    ElementRange range{0, count};
    if (const auto layer = layers_.find(params[i]); layer != layers_.end()) {
      const int64_t begin = places_.at(params[i]) - divided(layer->second).first;
      const ElementRange shard = map_.shard(layer->second, static_cast<size_t>(group_.rank()));
      // Parts of ranks begin and end at multiples of param_alignment, so no number is divided.
      const int64_t width = width_of(*params[i]);
      range = {std::max<int64_t>(0, shard.first - begin) / width, std::min(count, (shard.last - begin) / width)};
    }
    if (range.first < range.last) out.push_back({i, range.first, own(*params[i], range.first, range.size())});
  }
  return out;
}

}  // namespace hone
