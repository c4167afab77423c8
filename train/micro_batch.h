#pragma once
// Micro-batches: the samples of one forward and backward pass. make_micro_batches() cuts a step into them;
// MicroBatchData packs the samples of one.
#include <cstdint>
#include <span>
#include <vector>

#include "data/sample.h"
#include "model/batch.h"
#include "train/objective.h"

namespace hone {

// A micro-batch on the host: the model's input, and the columns that the objective sees. Its memory is kept from one
// micro-batch to the next.
class MicroBatchData {
 public:
  // Joins the samples' columns (join_columns). The samples must outlive parts().
  void fill(std::span<const Sample* const> samples);

  std::span<const BatchPart> parts() const { return parts_; }
  // lm_head runs on the rows whose next token is trained on: packed token rows()[r] predicts targets()[r], the token of
  // entry rows()[r] + 1.
  std::span<const int32_t> rows() const { return rows_; }
  std::span<const int32_t> targets() const { return targets_; }

  // Copies numbers of rows to the entries of their tokens (others get 0), and back.
  void to_tokens(std::span<const float> rows, std::vector<float>& tokens) const;
  void to_rows(std::span<const float> tokens, std::vector<float>& rows) const;

  // Views of all columns; logp, entropy and value are those below.
  TokenBatch batch(double scale) const;
  // Gradients set to zero, as an objective expects them.
  TokenGrad zeroed_grad();

  std::vector<float> logp, entropy, value;                 // [T]; written by the trainer
  std::vector<float> grad_logp, grad_entropy, grad_value;  // [T]

 private:
  std::vector<BatchPart> parts_;
  std::vector<int32_t> offsets_, rows_, targets_;
  Columns columns_;
};

// Samples [begin, end) of a step.
struct MicroBatch {
  size_t begin = 0, end = 0;
};
// Cuts samples, in order, into micro-batches of at most max_tokens tokens. `unit` neighbors (1, or 2 for pairs) stay
// together. A sample or pair of more than max_tokens tokens is a micro-batch of its own: the data decides its length,
// and it must not end a run. out is written.
void make_micro_batches(std::span<const Sample* const> samples, size_t unit, int64_t max_tokens,
                        std::vector<MicroBatch>& out);

}  // namespace hone
