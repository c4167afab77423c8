#pragma once
// Micro-batches: the samples of one forward and backward pass. make_micro_batches() splits a step into micro-batches.
// MicroBatchData packs the samples of one micro-batch.
#include <cstdint>
#include <functional>
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

  // to_tokens copies values of rows to the entries of their tokens; other entries get 0. to_rows copies them back.
  void to_tokens(std::span<const float> rows, std::vector<float>& tokens) const;
  void to_rows(std::span<const float> tokens, std::vector<float>& rows) const;

  // Views of all columns; logp, entropy and value are the members below.
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
// Splits samples, in order, into micro-batches of at most max_tokens tokens. `unit` neighbors (1, or 2 for pairs) stay
// together. A sample or pair of more than max_tokens tokens is a micro-batch of its own: the data decides its length,
// and it must not end a run. out is written.
void make_micro_batches(std::span<const Sample* const> samples, size_t unit, int64_t max_tokens,
                        std::vector<MicroBatch>& out);

struct CutConfig {
  size_t unit = 1;            // neighbors that stay together: 1, or 2 for pairs
  int64_t max_tokens = 8192;  // of a micro-batch
  int64_t multiple = 1;
  std::function<int64_t(int64_t length)> cost;  // of a sample, for multiple > 1
};
// Splits a step into micro-batches of balanced cost whose number is a multiple of `multiple`, so that as many ranks
// work side by side. Permutes the samples so that each micro-batch is a range.
//
// multiple = 1 is make_micro_batches(). Else the number is the least multiple for which this succeeds: the units, in
// order of falling tokens, each go to the micro-batch of the least cost that has room. A unit of more than max_tokens
// tokens is a micro-batch of its own. Micro-batches are in the order of their first samples, and keep the samples'
// order. Empty ones are left out. The result depends on samples and config alone.
std::vector<MicroBatch> cut_micro_batches(std::vector<const Sample*>& samples, const CutConfig& config);

}  // namespace hone
