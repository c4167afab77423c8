#include "train/parallel/zero.h"

#include <algorithm>
#include <cstring>

#include "kernels/elementwise/cast.h"
#include "train/parallel/exchange_stream.h"
#include "train/parallel/shard_map.h"
#include "train/step_plan.h"

namespace hone {
namespace {

std::vector<int64_t> sizes_of(const std::vector<GradUnit>& units) {
  std::vector<int64_t> out;
  for (const GradUnit& unit : units) out.push_back(unit.grads ? unit.grads.size() : 0);
  return out;
}

std::vector<uint8_t> trained(const std::vector<GradUnit>& units) {
  std::vector<uint8_t> out;
  for (const GradUnit& unit : units) out.push_back(static_cast<bool>(unit.grads));
  return out;
}

class Zero2 : public GradientSum, public DividedParams {
 public:
  Zero2(Context& context, std::vector<GradUnit> units, int64_t piece, ProcessGroup& group)
      : context_(context),
        units_(std::move(units)),
        piece_(piece),
        group_(group),
        rank_(static_cast<size_t>(group.rank())),
        ranks_(static_cast<size_t>(group.size())),
        map_(sizes_of(units_), ranks_, piece),
        staging_(context, units_, trained(units_), ExchangeStream::runs_beside(context.target()) ? 2 : 1),
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

  void begin_step(size_t num_active) override {
    staging_.close_all();  // an exception may have ended the last step inside of a pass
    if (num_active > 0) staging_.allocate();
    stream_.join();  // the same
    for (const Tensor& sum : sums_)
      if (sum.size() > 0) context_.zero(sum);
    stream_.follow();
    begun_.assign(units_.size(), 0);
  }

  void begin_round(std::span<const uint8_t> active) override { active_.assign(active.begin(), active.end()); }

  void before(Context&, size_t unit, Direction direction) override {
    if (direction == Direction::forward || !units_[unit].grads || !active_[rank_]) return;
    stream_.wait_for(staging_.slot(unit));
    staging_.open(unit);
  }

  void after(Context&, size_t unit, Direction direction) override {
    if (direction == Direction::forward || !units_[unit].grads) return;
    const size_t own = rank_;
    std::vector<Tensor> from(ranks_), to(ranks_);
    for (size_t r = 0, place = 0; r < ranks_; ++r) {
      const ElementRange theirs = map_.shard(unit, r);
      const bool sends = active_[own] && theirs.size() > 0;
      if (sends) to[r] = staging_.buffer(unit).rows(theirs.first, theirs.size());
      if (r == own) {
        from[r] = to[r];  // read in place
        continue;
      }
      if (active_[r] && sums_[unit].size() > 0)
        from[r] = floats(part_bytes_, static_cast<int64_t>(place) * part_size_, sums_[unit].size());
      ++place;
    }
    if (active_[own]) stream_.follow();
    group_.all_to_all(stream_.context(), from, to, "gradients");
    add_in_order(stream_.context(), unit, from);
    if (!active_[own]) return;
    stream_.mark(staging_.slot(unit));
    staging_.close(unit);
  }

  void end_rounds() override { stream_.join(); }

  std::vector<ParamPart> parts() override {
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

  int64_t num_pieces() const override {
    int64_t out = 0;
    for (size_t unit = 0; unit < units_.size(); ++unit) out += map_.num_pieces(unit);
    return out;
  }

  // Each rank sums its pieces; then all ranks have all of them, in the order of units.
  void square_pieces(Tensor pieces) override {
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

  void share_values() override {
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

  DividedParams* divided() override { return this; }
  std::vector<std::vector<const Param*>> params_of_units() const override {
    std::vector<std::vector<const Param*>> out;
    for (const GradUnit& unit : units_) out.emplace_back(unit.trained.begin(), unit.trained.end());
    return out;
  }
  void gather(Context& context, size_t unit, Tensor x) override {
    std::vector<Tensor> all;
    for (size_t r = 0; r < ranks_; ++r) {
      const ElementRange shard = map_.shard(unit, r);
      all.push_back(x.rows(shard.first, shard.size()));
    }
    group_.all_gather(context, all, all[rank_], "optimizer");
  }

  std::vector<Tensor> common_values() const override {
    std::vector<Tensor> out;
    for (const GradUnit& unit : units_)
      if (unit.grads) out.push_back(unit.values);
    return out;
  }

  GradientBytes bytes() const override {
    return {.sum = static_cast<int64_t>(sum_bytes_.size()),
            .buffers = staging_.bytes() + static_cast<int64_t>(part_bytes_.size())};
  }

 private:
  Tensor floats(const Buffer& bytes, int64_t first, int64_t count) const {
    void* const data = bytes.data() ? static_cast<float*>(bytes.data()) + first : nullptr;
    return Tensor(data, DType::f32, context_.kind(), {count});
  }

  // sum = sum + part[0] + part[1] + ..., left to right. The first part of a step is copied: 0 + x turns -0 into +0.
  void add_in_order(Context& context, size_t unit, std::span<const Tensor> parts) {
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

  Context& context_;
  std::vector<GradUnit> units_;
  int64_t piece_;
  ProcessGroup& group_;
  size_t rank_, ranks_;
  ShardMap map_;
  GradStaging staging_;
  Buffer sum_bytes_, part_bytes_;
  std::vector<Tensor> sums_;  // of the own shards, by unit
  int64_t part_size_ = 0;     // elements of a received part
  std::vector<uint8_t> active_, begun_;
  ExchangeStream stream_;  // last: its destructor waits for work on the memory above
};

// A result as bytes: the loss, then the sums.
std::string pack(const MicroBatchResult& result) {
  const uint64_t num_sums = result.aux_sums.size();
  std::string out(reinterpret_cast<const char*>(&result.loss), sizeof result.loss);
  out.append(reinterpret_cast<const char*>(&num_sums), sizeof num_sums);
  out.append(reinterpret_cast<const char*>(result.aux_sums.data()), num_sums * sizeof(float));
  return out + result.metrics.to_bytes();
}

MicroBatchResult unpack(std::string_view bytes) {
  MicroBatchResult out;
  uint64_t num_sums = 0;
  const size_t head = sizeof out.loss + sizeof num_sums;
  HONE_CHECK(bytes.size() >= head, "step record: a result of ", bytes.size(), " bytes");
  std::memcpy(&out.loss, bytes.data(), sizeof out.loss);
  std::memcpy(&num_sums, bytes.data() + sizeof out.loss, sizeof num_sums);
  HONE_CHECK(num_sums <= (bytes.size() - head) / sizeof(float), "step record: ", num_sums, " sums in ", bytes.size(),
             " bytes");
  out.aux_sums.resize(num_sums);
  std::memcpy(out.aux_sums.data(), bytes.data() + head, num_sums * sizeof(float));
  out.metrics = MetricSums::from_bytes(bytes.substr(head + num_sums * sizeof(float)));
  return out;
}

}  // namespace

std::unique_ptr<GradientSum> make_zero2(Context& context, std::vector<GradUnit> units, int64_t piece,
                                        ProcessGroup& group) {
  return std::make_unique<Zero2>(context, std::move(units), piece, group);
}

// A difference is found before the exchange of gradients, where it would be a call that does not match.
void ZeroExchange::check_plan(const StepPlan& plan) {
  ControlChannel& control = group_.control();
  std::string own =
      concat(plan.samples.size(), " samples in ", plan.micro_batches.size(), " micro-batches, ", plan.num_tokens,
             " tokens, ", plan.num_trained, " trained on, digest of the lengths ", plan.lengths_digest);
  const std::string label = control.label();
  const std::vector<std::string> all = control.all_gather(concat(label, ": ", own), "plan of a step");
  const auto text = [&](size_t r) { return std::string_view(all[r]).substr(all[r].find(": ") + 2); };
  for (size_t r = 1; r < all.size(); ++r)
    if (text(r) != text(0))
      throw AgreedError(concat(all[r].substr(0, all[r].find(": ")), " disagrees with rank 0 about a step: it has ",
                               text(r), "; rank 0 has ", text(0)));
}

std::unique_ptr<GradientSum> ZeroExchange::make_gradient_sum(Context& context, Model* model,
                                                             std::vector<GradUnit> units, int64_t piece) {
  if (stage_ == 1) return make_zero1(context, std::move(units), piece, group_);
  if (stage_ == 3 && model) return make_zero3(context, *model, std::move(units), piece, group_);
  return make_zero2(context, std::move(units), piece, group_);
}

std::unique_ptr<StepExchange> make_exchange(const Ranks& ranks, int64_t stage) {
  return ranks.group() ? std::make_unique<ZeroExchange>(*ranks.group(), stage) : nullptr;
}

// The record of a rank: for each of its results, the number of bytes and the bytes.
void ZeroExchange::fold(std::span<MicroBatchResult> results) {
  std::string own;
  for (size_t i = rank(); i < results.size(); i += size()) {
    const std::string bytes = pack(results[i]);
    const uint64_t count = bytes.size();
    own.append(reinterpret_cast<const char*>(&count), sizeof count);
    own += bytes;
  }
  const std::vector<std::string> records = group_.control().all_gather(std::move(own), "step record");
  for (size_t r = 0; r < records.size(); ++r) {
    std::string_view left = records[r];
    for (size_t i = r; i < results.size(); i += size()) {
      uint64_t count = 0;
      HONE_CHECK(left.size() >= sizeof count, "step record: rank ", r, " has too few results");
      std::memcpy(&count, left.data(), sizeof count);
      left.remove_prefix(sizeof count);
      HONE_CHECK(count <= left.size(), "step record: rank ", r, " sends ", left.size(), " bytes of ", count);
      if (r != rank()) results[i] = unpack(left.substr(0, count));
      left.remove_prefix(count);
    }
    HONE_CHECK(left.empty(), "step record: rank ", r, " has ", left.size(), " bytes too many: it has another plan");
  }
}

}  // namespace hone
