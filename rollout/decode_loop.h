#pragma once
// DecodeLoop: passes of an unchanging set of sequences, one token of each a pass. What changes from pass to pass stays
// on the device, a pass is one recording (on a GPU a CUDA graph), and the next one can be queued before the last is
// read. One thread.
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "kernels/sampling/decode_advance.h"
#include "model/model.h"
#include "rollout/device_timer.h"
#include "rollout/kv/kv_storage.h"
#include "rollout/sampler.h"

namespace hone {

class DecodeLoop {
 public:
  DecodeLoop(Context& context, Model& model, const KvStorage& planes);
  ~DecodeLoop();

  struct Row {
    int32_t token = 0;                // the last one drawn, not yet computed
    int64_t position = 0;             // its
    std::span<const int32_t> blocks;  // of the cache; they hold the positions of every pass that will be queued
    SamplingState draw;               // of the first pass's; those after count what was drawn
  };
  // At most, of one set of sequences whose logits are changed.
  static constexpr int64_t max_passes = 32;
  // A new set of sequences; passes queued before and not read are waited for and dropped. For one pass, rows may also
  // be tokens that follow each other in one sequence, with the same blocks: each sees those before it.
  void start(std::span<const Row> rows);
  // Queues a pass.
  void queue();
  // What the oldest queued pass drew; waits for it.
  SampledTokens read();
  int64_t num_unread() const { return queued_ - read_; }
  // The device's, of all passes read.
  double seconds() const { return clock_.seconds(); }

 private:
  // The device memory and the recording of one shape of batch.
  struct Shape;
  Shape& shape_for(std::span<const Row> rows);
  void pass(const Shape& shape);

  static constexpr int64_t ring = 2;  // passes queued and not read at most
  Context& context_;
  Model& model_;
  const KvStorage& planes_;
  Arena memory_;
  DeviceTimer clock_;
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t, bool>, std::unique_ptr<Shape>> shapes_;
  Shape* current_ = nullptr;
  int64_t rows_ = 0, queued_ = 0, read_ = 0;
};

}  // namespace hone
