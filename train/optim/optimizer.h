#pragma once
// Optimizers over lists of parameters; one file each. They own their states, on the parameters' device.
//
// Mixed precision: a bf16 parameter has an f32 master copy, which is one of the states. Each update changes the master
// and writes the parameter as the nearest bf16, in one kernel.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/registry.h"
#include "core/config/fields.h"
#include "core/io/checkpoint.h"
#include "model/model.h"

namespace hone {

struct ParamRange;  // kernels/optimizer/optimizer.h
class Optimizer;
struct OptimizerSettings;
using OptimizerFactory = std::unique_ptr<OptimizerSettings> (*)();
Registry<OptimizerFactory>& optimizers();  // adamw, sgd, rmsprop

// Settings of an optimizer, as recipe keys; names are Hugging Face's. One line registers them:
//   [[maybe_unused]] const bool added = optimizers().add("sgd", [] {
//     return std::unique_ptr<OptimizerSettings>(new SgdSettings);
//   });
struct OptimizerSettings {
  virtual ~OptimizerSettings() = default;
  virtual void fields(Fields&) = 0;
  virtual std::unique_ptr<Optimizer> make() const = 0;
  static Registry<OptimizerFactory>& registry() { return optimizers(); }
};

// A derived class defines the states of a parameter and the update of a range. This class does the rest.
class Optimizer : public Stateful {
 public:
  // Allocates zeroed states for the trainable parameters (values f32 or bf16, gradients f32), which must outlive the
  // optimizer. Masters start as copies of the current values: code that writes a bf16 value later must load the state,
  // too. Call it once.
  void attach(Context& context, const std::vector<Param*>& params);
  // Adds the squares of all gradients to sum, f64 [1]. The layout of the parameters alone decides the order.
  void add_squares(Context& context, Tensor sum) const;
  // One update. Multiplies each gradient by clip, f32 [1], as it reads it. step counts from 1.
  void update(Context& context, Tensor clip, int64_t step, double learning_rate);
  int64_t state_bytes() const;

  void save_state(StateSection& section) const override;
  void load_state(const StateSection& section) override;

 protected:
  // One array of a parameter's size for each name, all of one dtype (f32 or bf16).
  virtual std::vector<std::string> state_names() const = 0;
  virtual DType state_dtype() const { return DType::f32; }
  // stream: RNG stream of this range in this step.
  virtual void update_range(Context& context, const ParamRange& range, std::span<const Tensor> states, uint64_t stream,
                            int64_t step, double learning_rate) const = 0;

 private:
  // Adjacent parameters, each at a multiple of param_granule elements (the layout of Model::allocate). One kernel
  // updates them all.
  struct Segment {
    struct Member {
      const Param* param;
      int64_t begin;
    };
    std::vector<Member> members;
    Tensor value, grad;          // from the first member's begin to the last one's end
    std::vector<Tensor> states;  // of the same size; the master, if there is one, is first
    Tensor decays;
    bool has_master() const { return value.dtype == DType::bf16; }
    int64_t padded_size() const;  // a multiple of param_granule
  };
  void append(const Param& param);
  std::string state_name(const Segment& run, const Param& param, size_t state) const;

  Context* context_ = nullptr;
  Buffer bytes_, decay_bytes_;
  std::vector<Segment> runs_;
  mutable std::vector<std::byte> host_copy_;  // of the states; a saved section refers to it until the next save_state()
};

}  // namespace hone
