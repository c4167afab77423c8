#pragma once
// ValueShards: the values of a model under ZeRO-3. Each rank keeps its shard of every layer's values, and all of the
// front unit, the back unit and the adapters. A pass gathers one layer after the other into two buffers in turn: while
// it computes with one, the next layer arrives in the other (ExchangeStream). Work that reads the weights in another
// way (sampling, saving) calls Model::gather_values() before.
//
// Values are in one of two places: in the model's flat memory between gather() and release(), else here. Each move
// copies all of them, so a change in the current place is kept.
#include <array>
#include <unordered_map>
#include <vector>

#include "core/comm/process_group.h"
#include "kernels/optimizer/optimizer.h"
#include "model/model.h"
#include "train/parallel/exchange_stream.h"
#include "train/parallel/shard_map.h"

namespace hone {

// Consecutive elements of a parameter's values.
struct ValuePart {
  size_t param = 0;   // its place in Model::params()
  int64_t first = 0;  // within the parameter
  Tensor values;      // [n]
};

// One thread. All ranks make the same calls of gather(), release() and of the hooks.
class ValueShards : public DividedValues {
 public:
  // Divides the values, of which every rank has the same. piece: ShardMap's. Context, model and group must outlive this
  // object.
  ValueShards(Context& context, Model& model, ProcessGroup& group, int64_t piece = norm_piece);
  // Divided values are lost: call gather() before if the model is used again.
  ~ValueShards() override;
  ValueShards(const ValueShards&) = delete;
  ValueShards& operator=(const ValueShards&) = delete;

  void gather() override;
  void release() override;
  bool is_gathered() const override { return gathered_; }
  // From before() to after() the divided parameters of a layer have all values; the others always have them. A layer
  // that a buffer still has is not exchanged again.
  void before(Context& context, size_t unit, Direction direction) override;
  void after(Context& context, size_t unit, Direction direction) override;
  // Call it before an update of the shards: waits for exchanges that read them, and forgets the layers in the buffers.
  void begin_update();

  bool is_divided(const Param& param) const;
  // This rank's memory of the parameter's elements [first, first + count), which must lie in its shard. It stays where
  // it is, and is up to date unless is_gathered().
  Tensor own(const Param& param, int64_t first, int64_t count) const;
  // All values that this rank keeps: its shards of the layers, and the whole of the other parameters.
  std::vector<ValuePart> own_parts() const;
  int64_t bytes() const {
    return static_cast<int64_t>(kept_bytes_.size() + shard_bytes_.size() + layers_bytes_.size());
  }

 private:
  static constexpr size_t none = ~size_t{0}, num_buffers = 2;
  // Values that every rank has: those of front and back, of adapters, and the frozen ones of a layer that is trained.
  struct Kept {
    ElementRange range;  // of the flat memory
    Tensor values;
  };
  bool is_layer(size_t unit) const { return unit > 0 && unit + 1 < units_.size(); }
  static size_t buffer_of(size_t unit) { return unit % num_buffers; }
  // The values of a layer that are divided.
  const ElementRange& divided(size_t unit) const;
  Tensor layer_memory(size_t unit) const;
  // Elements of flat memory for each of the parameter's: 2 for f32 in a model of bf16.
  int64_t width_of(const Param& param) const;
  // Queues the exchange of a layer's values, unless a buffer has them.
  void fetch(size_t unit);
  // The parts of all ranks in the memory of a layer's values.
  std::vector<Tensor> parts_of(size_t unit, Tensor values) const;
  // Sets the memory of the parameters that lie in a range of the flat memory. No data: they have no memory.
  void point(std::span<Param* const> params, const ElementRange& range, Tensor memory);

  Context& context_;
  Model& model_;
  ProcessGroup& group_;
  std::vector<Unit> units_;
  std::unordered_map<const Param*, int64_t> places_;  // in the flat memory
  std::unordered_map<const Param*, size_t> layers_;   // the unit of a divided parameter
  ShardMap map_;                                      // of the layers; the other units are empty
  Buffer kept_bytes_, shard_bytes_, layers_bytes_;
  int64_t buffer_bytes_ = 0;  // of the two in layers_bytes_
  std::vector<Kept> kept_;
  std::vector<Tensor> shards_;  // by unit
  bool gathered_ = true;
  std::array<size_t, num_buffers> held_{none, none};  // the layers in the buffers
  ExchangeStream stream_;                             // last: its destructor waits for work on the memory above
};

}  // namespace hone
