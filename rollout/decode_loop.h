#pragma once
// DecodeLoop: decode passes over a fixed set of sequences. The state that changes from pass to pass stays on the
// device. A pass is one captured graph (a CUDA graph on a GPU), and the next pass is queued before the last one is
// read. One thread.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "kernels/sampling/decode_advance.h"
#include "model/model.h"
#include "rollout/device_timer.h"
#include "rollout/kv/kv_cache.h"
#include "rollout/sampler.h"

namespace hone {

class DecodeLoop {
 public:
  DecodeLoop(Context& context, Model& model, const KvStorage& storage);
  ~DecodeLoop();

  struct Row {
    int32_t token = 0;          // the last sampled token, whose K and V are not computed yet
    int64_t position = 0;       // of that token
    const BlockTables* blocks;  // hold the positions of all passes that will be queued; read by start()
    SamplingState sampling;     // of the first pass; the device advances it
  };
  // Maximum number of passes after one start() if logits are adjusted.
  static constexpr int64_t max_passes = 32;
  // Sets the sequences. Waits for unread passes and drops them. If one pass follows, several rows may be consecutive
  // tokens of one sequence, with the same blocks; each row attends to the rows before it. masked: the passes are queued
  // in two parts, because they take token masks or hidden() is read in between.
  void start(std::span<const Row> rows, bool masked = false);
  // Queues a pass.
  void queue();
  // Queue the two parts of a masked pass. The host computes the masks, which depend on the tokens of the pass before,
  // while the device computes the first part. A first part that no second one follows is dropped by start().
  void queue_forward();
  void queue_sampling(const MaskTable& masks);
  // [rows, D]: the input of lm_head in a pass whose first part is queued. Valid until the next one is.
  Tensor hidden() const;
  // Waits for the oldest queued pass and returns its sampled tokens.
  SampledTokens read();
  int64_t num_unread() const { return queued_ - read_; }
  // Device seconds of all passes that were read.
  double seconds() const { return timer_.seconds(); }

 private:
  // Device memory and the captured graph of one batch shape.
  struct Shape;
  Shape& shape_for(std::span<const Row> rows, bool masked);
  Tensor forward(const Shape& shape);
  void sample(const Shape& shape, Tensor hidden);
  // Runs `work`, or launches its graph if the scratch memory is where it was.
  void run(std::unique_ptr<CapturedGraph>& graph, Arena::Mark& scratch, const std::function<void()>& work);

  static constexpr int64_t max_unread = 2;  // queued passes
  Context& context_;
  Model& model_;
  const KvStorage& storage_;
  Arena memory_;
  DeviceTimer timer_;
  std::optional<Context> mask_copies_;  // its stream copies token masks beside a pass; made for the first masked one
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t, bool, bool>, std::unique_ptr<Shape>> shapes_;
  Shape* current_ = nullptr;
  int64_t rows_ = 0, queued_ = 0, read_ = 0;
};

}  // namespace hone
