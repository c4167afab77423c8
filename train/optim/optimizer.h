#pragma once
// Optimizers over lists of parameters; one file each. They own their states, on the parameters' device.
//
// Mixed precision: parameters in bf16 are trained through a master copy in f32, a state like the others. Each update
// moves the master and writes the parameter as its nearest bf16, in one kernel.
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

// Settings of an optimizer, as recipe keys; names are Hugging Face's. They join with one line:
//   [[maybe_unused]] const bool added = optimizers().add("sgd", [] {
//     return std::unique_ptr<OptimizerSettings>(new SgdSettings);
//   });
struct OptimizerSettings {
  virtual ~OptimizerSettings() = default;
  virtual void fields(Fields&) = 0;
  virtual std::unique_ptr<Optimizer> make() const = 0;
  static Registry<OptimizerFactory>& registry() { return optimizers(); }
};

// An optimizer is its states of each parameter and its update of a range; the rest is shared.
class Optimizer : public Stateful {
 public:
  // Makes the states, zero, for the parameters that are trainable (f32 or bf16, gradients f32); they must outlive the
  // optimizer. Masters start as the values are now: whoever writes a bf16 value later on loads the state, too. Once.
  void attach(Context& context, const std::vector<Param*>& params);
  // sum f64 [1] += the squares of all gradients, in an order that the parameters' layout decides.
  void add_squares(Context& context, Tensor sum) const;
  // One update with the gradients as they are, each multiplied by clip [1] f32. step counts from 1.
  void update(Context& context, Tensor clip, int64_t step, double learning_rate);
  int64_t state_bytes() const;

  void save_state(StateSection& section) const override;
  void load_state(const StateSection& section) override;

 protected:
  // One array of a parameter's size for each name, all of one dtype (f32 or bf16).
  virtual std::vector<std::string> state_names() const = 0;
  virtual DType state_dtype() const { return DType::f32; }
  // stream: of the range's random draws, another for every step of every range.
  virtual void update_range(Context& context, const ParamRange& range, std::span<const Tensor> states, uint64_t stream,
                            int64_t step, double learning_rate) const = 0;

 private:
  // Parameters that lie end to end, at multiples of param_granule elements (as Model::allocate lays them): one kernel
  // updates them all.
  struct Segment {
    struct Member {
      const Param* param;
      int64_t begin;
    };
    std::vector<Member> members;
    Tensor value, grad;          // from the first member's begin to the last one's end
    std::vector<Tensor> states;  // of the same size; the master, where there is one, comes first
    Tensor decays;
    bool has_master() const { return value.dtype == DType::bf16; }
    int64_t padded_size() const;  // a multiple of param_granule
  };
  void append(const Param& param);
  std::string state_name(const Segment& run, const Param& param, size_t state) const;

  Context* context_ = nullptr;
  Buffer bytes_, decay_bytes_;
  std::vector<Segment> runs_;
  mutable std::vector<std::byte> host_copy_;  // of the states, while they are saved
};

}  // namespace hone
