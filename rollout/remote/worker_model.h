#pragma once
// WorkerModel: the model and engine of a worker, made from a learner's setup. New weights arrive in chunks next to the
// current ones and replace them all at once.
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer/tokenizer.h"
#include "rollout/async_engine.h"
#include "rollout/remote/weight_snapshot.h"
#include "rollout/remote/worker_messages.h"

namespace hone {

// One thread, except that any thread may call async_engine() and version().
class WorkerModel {
 public:
  // The device must outlive it. Throws if the setup needs what this machine does not have.
  WorkerModel(Device& device, const WorkerSetup& setup);
  const WeightLayout& layout() const { return layout_; }
  AsyncEngine& async_engine() { return *async_engine_; }
  int64_t version() const { return version_; }  // -1: none yet; any thread
  // Forgets the version until the next commit; the values stay.
  void clear_version() { version_ = -1; }

  // Stores a chunk of staged values.
  void put(int64_t chunk, std::string_view bytes, const Digest& digest);
  // The chunks, out of the first digests.size(), whose staged values have other digests.
  std::vector<int64_t> missing(std::span<const Digest> digests) const;
  // The device buffer (u8 [n]) that receives trained values which are sent directly instead of in chunks.
  Tensor direct_buffer();
  // Makes the staged values the model's from the engine's next step on. sent_directly: the trained values came to
  // direct_buffer(). If it throws, there is no version, and all chunks count as missing.
  void commit(int64_t version, bool sent_directly);

 private:
  void copy_chunks(bool sent_directly);

  Device& device_;
  Context context_;
  std::unique_ptr<Model> model_;
  std::optional<Tokenizer> tokenizer_;
  WeightLayout layout_;
  Buffer staged_;                               // all values, pinned host memory
  std::vector<std::optional<Digest>> digests_;  // of the staged chunks; none: missing
  std::vector<int64_t> new_chunks_;             // stored since the last commit
  Buffer direct_buffer_;
  std::atomic<int64_t> version_ = -1;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<AsyncEngine> async_engine_;  // last member: its thread ends before the rest is destroyed
};

}  // namespace hone
