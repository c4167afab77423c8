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

class Optimizer;
struct OptimizerSettings;
using OptimizerFactory = std::unique_ptr<OptimizerSettings> (*)();
Registry<OptimizerFactory>& optimizers();  // adamw, muon, lion, ...

// Settings of an optimizer, as recipe keys; names are Hugging Face's or PyTorch's. One line registers them:
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
  int64_t first = 0;  // within the parameter
  Tensor value;       // [n], f32 or bf16
  Tensor grad;        // [n], f32
  // Place of `first` in the whole list of parameters, each of which begins at a multiple of param_granule. Random draws
  // depend on it, so the parts of a list are updated as the whole is.
  int64_t place = 0;
  // Of a parameter group (train/optim/param_groups.h).
  double learning_rate_factor = 1;
  double weight_decay = -1;  // below 0: the optimizer's for matrices, and none for norms and biases

  double decay_or(double optimizers_own) const;
};
// The trainable parameters of a list, whole.
std::vector<ParamPart> whole_parts(std::span<Param* const> params);

// A list of parameters of which each rank has parts. Optimizers that update whole matrices gather them unit by unit.
class DividedParams {
 public:
  virtual ~DividedParams() = default;
  // All trained parameters of each unit, in order. Each begins at the next multiple of param_alignment of the unit's
  // memory.
  virtual std::vector<std::vector<const Param*>> params_of_units() const = 0;
  // x: f32 [elements of the unit], of which each rank has written its own part. Afterwards all ranks have all of it.
  // All ranks make the same calls.
  virtual void gather(Context& context, size_t unit, Tensor x) = 0;
};

class Optimizer : public Stateful {
 public:
  // Allocates the states of the parts, whose parameters must outlive the optimizer. Masters start as copies of the
  // current values: code that writes a bf16 value later must load the state, too. Call it once. list: the name of the
  // parameter list in the names of random streams: "update STEP", or "update STEP of LIST". divided: null if the parts
  // are whole parameters; it must outlive the optimizer.
  void attach(Context& context, std::span<const ParamPart> parts, std::string list = "",
              DividedParams* divided = nullptr);
  // One update. Multiplies each gradient by clip, f32 [1], as it reads it. step counts from 1.
  virtual void update(Context& context, Tensor clip, int64_t step, double learning_rate) = 0;
  // The learning rate that update() uses where the schedule gives `scheduled`.
  virtual double learning_rate_of(int64_t /*step*/, double scheduled) const { return scheduled; }
  virtual int64_t state_bytes() const = 0;

  // A state of a whole parameter is named STATE.NAME (exp_avg.model.norm.weight), a part of it STATE.NAME[first:last].
  // load_state() takes parts of any sizes that cover its own: states may be saved and loaded with different shards.

 protected:
  virtual void allocate(Context& context, std::span<const ParamPart> parts, DividedParams* divided) = 0;
  // The random stream of a step.
  uint64_t stream_of_step(int64_t step) const;
  const std::string& list() const { return list_; }

 private:
  bool attached_ = false;
  std::string list_;
};

// The name of a parameter in states.
const std::string& state_owner(const Param& param);
inline constexpr const char* master_name = "master";  // the state of a bf16 parameter's f32 copy

}  // namespace hone
