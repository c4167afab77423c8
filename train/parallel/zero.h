#pragma once
// ZeRO-2 (Rajbhandari et al. 2020): each rank keeps the optimizer states and the summed gradients of its shard of every
// unit; values are whole on all ranks. It has the bits of one rank: the owner of a shard receives it from every rank
// that has a micro-batch in the round, and adds the parts in the order of the micro-batches.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "train/gradient_sum.h"
#include "train/step_exchange.h"

namespace hone {

// The byte moves between ranks that ZeRO needs. All ranks call them in one order. `what` names the call in messages.
class RankLink {
 public:
  virtual ~RankLink() = default;
  virtual size_t rank() const = 0;
  virtual size_t size() const = 0;
  // all[r] receives rank r's `own`; own may be all[rank()]. Sizes may differ between ranks.
  virtual void all_gather(Context& context, std::span<const Tensor> all, Tensor own, const char* what) = 0;
  // from[r] receives what rank r sends here; to[r] goes to rank r. Parts may be empty. from and to of the own rank are
  // not touched.
  virtual void all_to_all(Context& context, std::span<const Tensor> from, std::span<const Tensor> to,
                          const char* what) = 0;
  // Every rank's bytes, in the order of ranks.
  virtual std::vector<std::string> all_gather(std::string own, const char* what) = 0;
};

// link must outlive the sum. Units whose gradients have no memory (Model::free_gradients) are fine.
std::unique_ptr<GradientSum> make_zero2(Context& context, std::vector<GradUnit> units, int64_t piece, RankLink& link);

// Deals micro-batches to the ranks of a link and exchanges their results once a step.
class ZeroExchange : public StepExchange {
 public:
  explicit ZeroExchange(RankLink& link) : link_(link) {}
  size_t rank() const override { return link_.rank(); }
  size_t size() const override { return link_.size(); }
  void fold(std::span<MicroBatchResult> results) override;
  std::unique_ptr<GradientSum> make_gradient_sum(Context& context, std::vector<GradUnit> units,
                                                 int64_t piece) override {
    return make_zero2(context, std::move(units), piece, link_);
  }

 private:
  RankLink& link_;
};

}  // namespace hone
