#pragma once
// ElementwiseOptimizer: an optimizer whose update of an element depends on that element's numbers alone. Any parts of
// parameters are updated as the whole is.
#include "train/optim/optimizer.h"
#include "train/optim/state_memory.h"

namespace hone {

struct ParamRange;  // kernels/optimizer/optimizer.h

// What an update of a range needs besides its numbers.
struct RangeStep {
  int64_t number = 0;  // counts from 1
  double learning_rate = 0, weight_decay = 0;
  uint64_t stream = 0;  // of random numbers
};

// A derived class defines the states of a parameter and the update of a range. This class does the rest.
class ElementwiseOptimizer : public Optimizer {
 public:
  void update(Context& context, Tensor clip, int64_t step, double learning_rate) override;
  int64_t state_bytes() const override { return memory_.bytes(); }
  void save_state(StateSection& section) const override { memory_.save(section); }
  void load_state(const StateSection& section) override { memory_.load(section); }

 protected:
  void allocate(Context& context, std::span<const ParamPart> parts, DividedParams* divided) override;
  // One array of a parameter's size for each name, all of one dtype (f32 or bf16).
  virtual std::vector<std::string> state_names() const = 0;
  virtual DType state_dtype() const { return DType::f32; }
  virtual double weight_decay() const = 0;
  virtual void update_range(Context& context, const ParamRange& range, std::span<const Tensor> states,
                            const RangeStep& step) const = 0;

 private:
  // Adjacent parts of one parameter group, each at a multiple of param_granule elements (the layout of
  // Model::allocate). One kernel updates them all.
  struct Segment {
    struct Member {
      ParamPart part;
      int64_t begin;  // within the segment
    };
    std::vector<Member> members;
    Tensor value, grad;          // from the first member's begin to the last one's end
    std::vector<Tensor> states;  // of the same size; the master, if there is one, is first
    Tensor decays;
    const ParamPart& first() const { return members.front().part; }
    bool has_master() const { return value.dtype == DType::bf16; }
    int64_t padded_size() const;  // a multiple of param_granule
    bool continues_with(const ParamPart& part) const;
  };
  void append(const ParamPart& part);
  void name_states(const Segment& segment);

  StateMemory memory_;
  Buffer decay_bytes_;
  std::vector<Segment> segments_;
};

}  // namespace hone
