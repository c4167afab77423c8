#pragma once
// WorkerModel: what a worker draws from. A learner's setup makes it; its values arrive in blocks, beside those it has,
// and replace them all at once.
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer/tokenizer.h"
#include "rollout/async_engine.h"
#include "rollout/remote/weight_image.h"
#include "rollout/remote/worker_messages.h"

namespace hone {

// One thread but for loop() and version().
class WorkerModel {
 public:
  // The device outlives it. An Error if the setup asks for what this machine does not have.
  WorkerModel(Device& device, const WorkerSetup& setup);
  const WeightLayout& layout() const { return layout_; }
  AsyncEngine& loop() { return *loop_; }
  int64_t version() const { return version_; }  // -1: none yet; any thread
  // The values stay, and count as none until the next commit.
  void clear_version() { version_ = -1; }

  // A block of values that wait.
  void put(int64_t block, std::string_view bytes, const Digest& digest);
  // Which blocks, of as many as digests are given, are not these.
  std::vector<int64_t> missing(std::span<const Digest> digests) const;
  // Where the values that training changes arrive on the device (u8 [n]), instead of in blocks.
  Tensor direct_buffer();
  // What waits is the model's from the engine's next step on, as this version. landed: the values that training changes
  // came to landing(). What is thrown leaves no version, and no block that counts as there.
  void commit(int64_t version, bool landed);

 private:
  void copy_blocks(bool landed);

  Device& device_;
  Context context_;
  std::unique_ptr<Model> model_;
  std::optional<Tokenizer> tokenizer_;
  WeightLayout layout_;
  Buffer waiting_;                              // all values, on the host
  std::vector<std::optional<Digest>> digests_;  // of its blocks; none: not there
  std::vector<int64_t> fresh_;                  // blocks that came since the last commit
  Buffer landing_;
  std::atomic<int64_t> version_ = -1;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<AsyncEngine> loop_;  // last: it ends before the rest goes
};

}  // namespace hone
