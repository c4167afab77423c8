#include "train/parallel/zero2.h"

#include <algorithm>

#include "kernels/elementwise/cast.h"
#include "train/parallel/zero.h"

namespace hone {
namespace {

std::vector<int64_t> sizes_of(const std::vector<GradUnit>& units) {
  std::vector<int64_t> out;
  for (const GradUnit& unit : units) out.push_back(unit.grads ? unit.grads.size() : 0);
  return out;
}

std::vector<uint8_t> units_to_stage(const std::vector<GradUnit>& units, bool staged) {
  std::vector<uint8_t> out;
  for (const GradUnit& unit : units) out.push_back(staged && unit.grads);
  return out;
}

}  // namespace

Zero2::Zero2(Context& context, std::vector<GradUnit> units, int64_t piece, ProcessGroup& group, bool staged)
    : context_(context),
      units_(std::move(units)),
      piece_(piece),
      group_(group),
      rank_(static_cast<size_t>(group.rank())),
      ranks_(static_cast<size_t>(group.size())),
      map_(sizes_of(units_), ranks_, piece),
      staging_(context, units_, units_to_stage(units_, staged), ExchangeStream::runs_beside(context.target()) ? 2 : 1),
      stream_(context, staging_.num_slots()) {
  sum_bytes_ = Buffer(context.device(), static_cast<size_t>(map_.owned_elements(rank_)) * sizeof(float));
  int64_t at = 0, largest = 0;
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    const int64_t size = map_.shard(unit, rank_).size();
    sums_.push_back(floats(sum_bytes_, at, size));
    at += size;
    largest = std::max(largest, size);
  }
  part_size_ = largest;
  part_bytes_ = Buffer(context.device(), static_cast<size_t>(largest) * (ranks_ - 1) * sizeof(float));
}

void Zero2::begin_step(size_t num_active) {
  staging_.close_all();  // an exception may have ended the last step inside of a pass
  if (num_active > 0) staging_.allocate();
  stream_.join();    // the same
  stream_.follow();  // the optimizer has read the sums
  begun_.assign(units_.size(), 0);
}

void Zero2::before(Context&, size_t unit, Direction direction) {
  if (direction == Direction::forward || !units_[unit].grads || !active_[rank_]) return;
  stream_.wait_for(staging_.slot(unit));
  staging_.open(unit);
}

void Zero2::after(Context&, size_t unit, Direction direction) {
  if (direction == Direction::forward || !units_[unit].grads) return;
  if (!active_[rank_]) return add(unit, {});
  end_gradients(context_, units_[unit]);
  add(unit, staging_.buffer(unit));
  stream_.mark(staging_.slot(unit));
  staging_.close(unit);
}

void Zero2::add(size_t unit, Tensor gradient) {
  std::vector<Tensor> from(ranks_), to(ranks_);
  for (size_t r = 0, place = 0; r < ranks_; ++r) {
    const ElementRange theirs = map_.shard(unit, r);
    if (gradient && theirs.size() > 0) to[r] = gradient.rows(theirs.first, theirs.size());
    if (r == rank_) {
      from[r] = to[r];  // read in place
      continue;
    }
    if (active_[r] && sums_[unit].size() > 0)
      from[r] = floats(part_bytes_, static_cast<int64_t>(place) * part_size_, sums_[unit].size());
    ++place;
  }
  if (gradient) stream_.follow();
  group_.all_to_all(stream_.context(), from, to, "gradients");
  add_in_order(stream_.context(), unit, from);
}

void Zero2::end_rounds() {
  stream_.join();
  for (size_t unit = 0; unit < units_.size(); ++unit)
    if (sums_[unit].size() > 0 && !begun_[unit]) context_.zero(sums_[unit]);
}

std::vector<ParamPart> Zero2::parts() {
  std::vector<ParamPart> out;
  int64_t place = 0;  // of the unit
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    const ElementRange shard = map_.shard(unit, rank_);
    int64_t at = 0;  // of the parameter, within the unit
    for (const Param* param : units_[unit].trained) {
      const int64_t count = param->num_elements(), first = std::max(at, shard.first),
                    last = std::min(at + count, shard.last);
      if (first < last)
        out.push_back({.param = param,
                       .first = first - at,
                       .value = param->value.view({count}).rows(first - at, last - first),
                       .grad = sums_[unit].rows(first - shard.first, last - first),
                       .place = place + first});
      at += param->padded_elements();
    }
    place += at;
  }
  return out;
}

int64_t Zero2::num_pieces() const {
  int64_t out = 0;
  for (size_t unit = 0; unit < units_.size(); ++unit) out += map_.num_pieces(unit);
  return out;
}

void Zero2::square_pieces(Tensor pieces) {
  const ScratchScope scope(context_);
  std::vector<Tensor> all;
  for (size_t r = 0; r < ranks_; ++r) all.push_back(context_.scratch().take(DType::f64, {map_.owned_pieces(r)}));
  const Tensor own = all[rank_];
  int64_t at = 0;
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    const int64_t count = map_.pieces(unit, rank_).size();
    if (count > 0) sum_squares(context_, own.rows(at, count), sums_[unit], piece_);
    at += count;
  }
  group_.all_gather(context_, all, own, "gradient norm");
  std::vector<int64_t> read(ranks_);
  at = 0;
  for (size_t unit = 0; unit < units_.size(); ++unit)
    for (size_t r = 0; r < ranks_; ++r) {
      const int64_t count = map_.pieces(unit, r).size();
      if (count > 0) context_.copy(pieces.rows(at, count), all[r].rows(read[r], count));
      read[r] += count;
      at += count;
    }
}

void Zero2::share_values() {
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    if (!units_[unit].grads) continue;
    std::vector<Tensor> all;
    for (size_t r = 0; r < ranks_; ++r) {
      const ElementRange shard = map_.shard(unit, r);
      all.push_back(units_[unit].values.rows(shard.first, shard.size()));
    }
    group_.all_gather(context_, all, all[rank_], "values");
  }
}

std::vector<std::vector<const Param*>> Zero2::params_of_units() const {
  std::vector<std::vector<const Param*>> out;
  for (const GradUnit& unit : units_) out.emplace_back(unit.trained.begin(), unit.trained.end());
  return out;
}

void Zero2::gather(Context& context, size_t unit, Tensor x) {
  std::vector<Tensor> all;
  for (size_t r = 0; r < ranks_; ++r) {
    const ElementRange shard = map_.shard(unit, r);
    all.push_back(x.rows(shard.first, shard.size()));
  }
  group_.all_gather(context, all, all[rank_], "optimizer");
}

std::vector<Tensor> Zero2::common_values() const {
  std::vector<Tensor> out;
  for (const GradUnit& unit : units_)
    if (unit.grads) out.push_back(unit.values);
  return out;
}

GradientBytes Zero2::bytes() const {
  return {.sum = static_cast<int64_t>(sum_bytes_.size()),
          .buffers = staging_.bytes() + static_cast<int64_t>(part_bytes_.size())};
}

Tensor Zero2::floats(const Buffer& bytes, int64_t first, int64_t count) const {
  void* const data = bytes.data() ? static_cast<float*>(bytes.data()) + first : nullptr;
  return Tensor(data, DType::f32, context_.kind(), {count});
}

// sum = sum + part[0] + part[1] + ..., left to right. The first part of a step is copied: 0 + x turns -0 into +0.
void Zero2::add_in_order(Context& context, size_t unit, std::span<const Tensor> parts) {
  if (sums_[unit].size() == 0) return;
  for (size_t r = 0; r < parts.size(); ++r) {
    if (!active_[r]) continue;
    if (begun_[unit])
      add_into(context, sums_[unit], parts[r]);
    else
      cast(context, sums_[unit], parts[r]);
    begun_[unit] = 1;
  }
}

std::unique_ptr<GradientSum> make_zero2(Context& context, std::vector<GradUnit> units, int64_t piece,
                                        ProcessGroup& group) {
  return std::make_unique<Zero2>(context, std::move(units), piece, group);
}

}  // namespace hone
