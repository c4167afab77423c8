#pragma once
// The gradient of a step: the left fold of the gradients of its micro-batches,
//
//   gradient = g_0 + g_1 + ... + g_(M-1)      in f32, per element, in the order of the step's plan
//
// g_i is the gradient of micro-batch i, computed from zero. The order depends on the plan alone, so any number of ranks
// gives the same bits. LocalGradientSum is the sum of one rank.
//
// The first matrix product of a micro-batch writes its part of g_i, so most of the memory is neither zeroed nor read
// (begin_gradients()). Written, an element may be -0, where a sum that starts with zeros has +0. For equal bits on any
// number of ranks three rules hold everywhere:
//   - the fold starts with g_0 itself, never with 0 + g_0. Ranks without a micro-batch add nothing.
//   - a product has the same bits, written and then added to a sum, or added to it directly (kernels/adds_once.h).
//   - an element to which micro-batch i contributes nothing has g_i = +0. To add that turns a sum of -0 into +0, but a
//     unit that adds straight into the sum leaves it. So such a sum is never -0: grouped products, which skip experts
//     without rows, write 0 + g. Every other product of such a unit contributes in each micro-batch.
#include <memory>
#include <span>
#include <vector>

#include "kernels/optimizer/optimizer.h"
#include "model/model.h"
#include "model/units.h"
#include "train/optim/optimizer.h"

namespace hone {

// A unit's trained parameters and the memory of their gradients.
struct GradUnit {
  std::vector<Param*> trained;
  Tensor values, grads;     // [n], with the gaps between parameters; empty if nothing is trained
  bool adds_once = false;   // a backward pass adds to each element once (kernels/adds_once.h)
  bool stays_open = false;  // other units' backward passes begin and end during its own
};
// Of units_of(model), in order. The model has gradients, with or without memory.
std::vector<GradUnit> grad_units(Context& context, Model& model);
// For a model that was loaded with or without gradients: its trainable parameters have gradients without memory. A
// GradientSum of several ranks gives it to them unit by unit.
void drop_gradient_memory(Context& context, Model& model);

// Memory of a sum of gradients, beside the gradients of the model.
struct GradientBytes {
  int64_t sum = 0;      // a rank's part of the sum; 0 if the model's gradients are the sum
  int64_t buffers = 0;  // gradients of one micro-batch, and parts that other ranks send
  int64_t values = 0;   // ZeRO-3: a rank's shards of the model's values, and the layer of a pass
};

// Called at the start of a unit's backward pass, with the unit's gradients in `memory`, whose contents are undefined:
// marks those to which matrix products add (Param::grad_undefined) and zeroes the others and the gaps.
void begin_gradients(Context& context, const GradUnit& unit, Tensor memory);
// At its end: zeroes those that got no contribution, such as a lm_head that no loss has read.
void end_gradients(Context& context, const GradUnit& unit);

// A step calls begin_step(), then for each round of micro-batches begin_round() and a backward pass with these hooks,
// then end_rounds() and square_pieces(). The sum is complete after end_rounds(). During a backward pass the parameters'
// `grad` may be other memory than their part of the sum.
class GradientSum : public UnitHooks {
 public:
  // Starts a new sum. num_active: micro-batches of the step with something to learn.
  virtual void begin_step(size_t num_active) = 0;
  // active: for each rank, whether it has a micro-batch to learn from in this round.
  virtual void begin_round(std::span<const uint8_t> active) = 0;
  // Called after the last round, before what follows. Units that had no backward pass are zero.
  virtual void end_rounds() = 0;
  // What this rank's optimizer updates, with `grad` in the sum.
  virtual std::vector<ParamPart> parts() = 0;
  // The sums of squares of all pieces of all units, in order: pieces f64 [num_pieces()].
  virtual int64_t num_pieces() const = 0;
  virtual void square_pieces(Tensor pieces) = 0;
  // Called after an update of parts(): gives all ranks the new values of all.
  virtual void share_values() {}
  // Not null if parts() are parts of parameters: gathers them for optimizers that update whole matrices.
  virtual DividedParams* divided() { return nullptr; }
  // True if before() waits for values of other ranks.
  virtual bool gathers_values() const { return false; }
  // The trained values of which every rank has all, to compare them. One rank has nobody to compare with.
  virtual std::vector<Tensor> common_values() const { return {}; }
  virtual GradientBytes bytes() const = 0;
};

// Memory in which the gradient of one micro-batch is computed from zero, unit by unit. Units that stay open have a
// buffer each. The others share `num_shared` buffers, which they take in turn.
class GradStaging {
 public:
  // units must outlive this object, which gives their parameters back the memory of their gradients. staged: for each
  // unit, whether it gets a buffer.
  GradStaging(Context& context, const std::vector<GradUnit>& units, std::vector<uint8_t> staged, size_t num_shared = 1);
  GradStaging(const GradStaging&) = delete;
  GradStaging& operator=(const GradStaging&) = delete;
  ~GradStaging();

  bool is_staged(size_t unit) const { return staged_[unit] != 0; }
  void allocate();  // once; later calls do nothing
  Tensor buffer(size_t unit) const;
  // The number of a unit's buffer.
  size_t slot(size_t unit) const { return slots_[unit]; }
  size_t num_slots() const { return sizes_.size(); }
  // The unit's gradients are its buffer, from zero (begin_gradients), until close().
  void open(size_t unit);
  void close(size_t unit);
  void close_all();
  int64_t bytes() const { return static_cast<int64_t>(bytes_.size()); }

 private:
  Context& context_;
  const std::vector<GradUnit>& units_;
  std::vector<uint8_t> staged_;
  std::vector<std::vector<Tensor>> home_;  // the parameters' gradients before
  std::vector<size_t> slots_;              // by unit
  std::vector<int64_t> sizes_;             // by slot, in elements
  std::vector<int64_t> first_;             // by slot, in elements; empty before allocate()
  Buffer bytes_;
};

// piece: elements of a piece of the norm.
std::unique_ptr<GradientSum> make_local_gradient_sum(Context& context, std::vector<GradUnit> units,
                                                     int64_t piece = norm_piece);

}  // namespace hone
