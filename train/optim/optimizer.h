#pragma once
// Optimizers over lists of parameters; one file each. They own their states, on the parameters' device.
//
// Mixed precision: a bf16 parameter has an f32 master copy, which is one of the states. Each update changes the master
// and writes the parameter as the nearest bf16, in one kernel.
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/registry.h"
#include "core/config/fields.h"
#include "core/io/checkpoint.h"
#include "model/model.h"
#include "model/units.h"

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

// Consecutive elements of a parameter, in row-major order: all of them, or a rank's shard.
struct ParamPart {
  const Param* param = nullptr;
  int64_t first = 0;  // within the parameter, a multiple of param_granule (kernels/optimizer/optimizer.h)
  Tensor value;       // [n], f32 or bf16
  Tensor grad;        // [n], f32
  // Place of `first` in the whole list of parameters, each of which begins at a multiple of param_granule. Random draws
  // depend on it, so the parts of a list are updated as the whole is.
  int64_t place = 0;
};
// The trainable parameters of a list, whole.
std::vector<ParamPart> whole_parts(std::span<Param* const> params);

// A derived class defines the states of a parameter and the update of a range. This class does the rest.
class Optimizer : public Stateful {
 public:
  // Allocates zeroed states for the parts, whose parameters must outlive the optimizer. Masters start as copies of the
  // current values: code that writes a bf16 value later must load the state, too. Call it once. list: the name of the
  // parameter list in the names of random streams: "update STEP", or "update STEP of LIST".
  void attach(Context& context, std::span<const ParamPart> parts, std::string list = "");
  // One update. Multiplies each gradient by clip, f32 [1], as it reads it. step counts from 1. places: only elements of
  // these places; its borders are multiples of param_granule. Updates of all places, one by one or at once, give the
  // same bits.
  void update(Context& context, Tensor clip, int64_t step, double learning_rate,
              ElementRange places = {0, std::numeric_limits<int64_t>::max()});
  int64_t state_bytes() const;

  // A state of a whole parameter is named STATE.NAME (exp_avg.model.norm.weight), a part of it STATE.NAME[first:last].
  // load_state() takes parts of any sizes that cover its own: states may be saved and loaded with different shards.
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
  // Adjacent parts, each at a multiple of param_granule elements (the layout of Model::allocate). One kernel updates
  // them all.
  struct Segment {
    struct Member {
      const Param* param;
      int64_t first, begin, count;  // within the parameter; within the segment; elements
    };
    std::vector<Member> members;
    Tensor value, grad;  // from the first member's begin to the last one's end
    int64_t place = 0;
    std::vector<Tensor> states;  // of the same size; the master, if there is one, is first
    Tensor decays;
    bool has_master() const { return value.dtype == DType::bf16; }
    int64_t padded_size() const;  // a multiple of param_granule
    // The segment's elements in [begin, end), without members.
    Segment slice(int64_t begin, int64_t end) const;
  };
  void append(const ParamPart& part);
  void allocate_states(Context& context);
  void update_segment(Context& context, const Segment& segment, Tensor clip, int64_t step, double learning_rate) const;
  std::string state_name(const Segment& segment, const Segment::Member& member, size_t state) const;

  Context* context_ = nullptr;
  std::string list_;
  Buffer bytes_, decay_bytes_;
  std::vector<Segment> segments_;
  mutable std::vector<std::byte> host_copy_;  // of the states; a saved section refers to it until the next save_state()
};

}  // namespace hone
