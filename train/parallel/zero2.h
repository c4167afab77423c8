#pragma once
// ZeRO-2: each rank keeps the summed gradients of its shards (train/parallel/zero.h). The owner of a shard folds what
// the ranks send, in the order of their micro-batches; the first one of a step is copied (train/gradient_sum.h).
#include "core/comm/ranks.h"
#include "train/gradient_sum.h"
#include "train/parallel/exchange_stream.h"
#include "train/parallel/shard_map.h"

namespace hone {

class Zero2 : public GradientSum, public DividedParams {
 public:
  // staged: passes compute a micro-batch's gradient in its buffers, between before() and after(). Without, the caller
  // has the memory and calls add(). group must outlive this object.
  Zero2(Context& context, std::vector<GradUnit> units, int64_t piece, ProcessGroup& group, bool staged = true);

  void begin_step(size_t num_active) override;
  void begin_round(std::span<const uint8_t> active) override { active_.assign(active.begin(), active.end()); }
  void before(Context&, size_t unit, Direction direction) override;
  void after(Context&, size_t unit, Direction direction) override;
  // Exchanges the unit's gradients of the round's active ranks and adds them to the sums. gradient: this rank's, of the
  // unit's size; it is read until end_rounds(). Empty if the rank is not active. All ranks make the call.
  void add(size_t unit, Tensor gradient);
  void end_rounds() override;

  std::vector<ParamPart> parts() override;
  int64_t num_pieces() const override;
  // Each rank sums its pieces; then all ranks have all of them, in the order of units.
  void square_pieces(Tensor pieces) override;
  void share_values() override;
  DividedParams* divided() override { return this; }
  std::vector<std::vector<const Param*>> params_of_units() const override;
  void gather(Context& context, size_t unit, Tensor x) override;
  std::vector<Tensor> common_values() const override;
  GradientBytes bytes() const override;

 private:
  Tensor floats(const Buffer& bytes, int64_t first, int64_t count) const;
  void add_in_order(Context& context, size_t unit, std::span<const Tensor> parts);

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
  std::vector<uint8_t> active_;
  std::vector<uint8_t> begun_;  // by unit: the sum has a gradient of this step
  ExchangeStream stream_;       // last: its destructor waits for work on the memory above
};

}  // namespace hone
