#pragma once
// Model: one definition for training (with a tape), scoring (without) and generation (with a KV view). Layers are run
// one by one, so that a single driver (model/forward.h) does recomputation for all families.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/base/registry.h"
#include "core/io/json.h"
#include "kernels/grad_target.h"
#include "model/kv_groups.h"
#include "model/layer_pass.h"
#include "model/lora_config.h"
#include "model/units.h"

namespace hone {

class Tokenizer;
struct Linear;
struct Lora;

// Parameters begin at multiples of this number of elements in the model's flat memory.
inline constexpr int64_t param_alignment = 64;

// A parameter: [rows, cols] or [n]. A fused matrix has several slices, in row order (q, k, v).
struct Param {
  struct Slice {
    std::string name;  // the tensor's name in the safetensors file (Hugging Face's)
    int64_t rows = 0;  // of dim 0
  };
  std::vector<Slice> slices;
  std::vector<int64_t> shape;
  bool transposed = false;  // stored transposed in the file (GPT-2's Conv1D)
  bool decay = true;        // weight decay applies (matrices, not norms and biases)
  double init_std = 0;      // random initialization: normal(0, std); 0 = init_value everywhere
  double init_value = 0;
  double init_uniform = 0;    // if above 0: uniform in [-init_uniform, init_uniform] instead
  bool lookup = false;        // rows are read by index (an embedding), not multiplied
  bool trainable = true;      // has a gradient and optimizer states
  bool keep_f32 = false;      // f32 in models and files of any dtype; not trainable
  bool product_grad = false;  // matrix products add to its gradient, by grad_target()
  double active_share = 1;    // of its elements that a token is multiplied by: experts used / experts

  int64_t num_elements() const;
  int64_t padded_elements() const;  // in flat memory: a multiple of param_alignment
  Tensor value{};                   // set by Model::allocate
  Tensor grad{};                    // f32; empty if frozen or allocated without gradients
  // The memory of `grad` is undefined, and the first contribution writes it. begin_gradients() sets it
  // (train/gradient_sum.h), only with product_grad; a contribution clears it.
  mutable bool grad_undefined = false;

  // What backward passes contribute to with product_grad: the next matrix product, which may write, or an op that only
  // adds, for which the memory is zeroed if it is undefined. Both are empty if the parameter is frozen.
  GradTarget grad_target() const;
  Tensor grad_to_add_to(Context& context) const;
};

// The parts of modules, in the order of flat memory.
struct ModuleList {
  std::vector<Param*> params;  // those of the matrices included
  std::vector<Linear*> linears;
  void add(Param& param);  // does nothing if the shape is empty
  void add(Linear& linear);
};

// Sizes that code outside the model reads.
struct ModelShape {
  int64_t vocab_size = 0, hidden_size = 0, num_layers = 0, num_attention_heads = 0, num_kv_heads = 0, head_dim = 0,
          intermediate_size = 0, max_positions = 0;
  float logit_softcap = 0;  // if above 0, logits are logit_softcap * tanh(logits / logit_softcap)
};

// Values that several ranks divide among themselves (ZeRO-3, train/parallel/value_shards.h). The hooks give a pass the
// values of a unit. All ranks make the same calls.
class DividedValues : public UnitHooks {
 public:
  virtual void gather() = 0;
  virtual void release() = 0;
  virtual bool is_gathered() const = 0;
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelShape& shape() const = 0;
  // What a KV cache of the model must hold.
  virtual const std::vector<KvGroupShape>& kv_groups() const = 0;
  // The config.json of this model for Hugging Face's transformers, without dtype (save_model adds it).
  virtual Json config() const = 0;
  // Everything that has parameters, adapters excepted. A tied lm_head is the embedding and is not listed again.
  virtual ModuleList modules() = 0;
  virtual ModuleList layer_modules(int64_t layer) = 0;
  // Every parameter once, in a fixed order, adapters last.
  std::vector<Param*> params();
  std::vector<Param*> base_params() { return modules().params; }  // without adapters
  std::vector<Param*> adapter_params();
  // The matrices of the layers, in order.
  std::vector<Linear*> linear_modules() { return modules().linears; }

  // Writes x [T, D].
  virtual void embed(Context&, const Batch&, Tensor x) = 0;
  virtual void embed_backward(Context&, const Batch&, Tensor dx) = 0;
  // Writes out [T, D]; it may be x without a tape. With a tape, x must stay unchanged until the layer's backward.
  virtual void forward_layer(int64_t layer, Context&, const LayerPass&, Tensor out, Tensor x) = 0;
  // Runs all layers without a tape: x [T, D] becomes the last layer's output. Same bits as forward_layer(), possibly in
  // fewer ops.
  virtual void infer_layers(Context&, const LayerPass&, Tensor x) = 0;
  // dx: dLoss/dout on entry, dLoss/dx on return. Reads the tape as the layer's forward left it.
  virtual void backward_layer(int64_t layer, Context&, const LayerPass&, Tensor dx, Tensor x) = 0;
  // Writes hidden [R, D], the input of lm_head, from rows x [R, D] of the last layer's output.
  virtual void final_norm(Context&, Tensor hidden, Tensor x, Tape*) = 0;
  // Writes dx [R, D].
  virtual void final_norm_backward(Context&, Tensor dx, Tensor dhidden, Tensor x, Tape&) = 0;
  // [V, D]: logits = hidden . lm_head^T.
  virtual Param& lm_head() = 0;

  // Losses made inside layers (model/aux_loss.h): the number of sums, 0 if there are none, and what they say at the end
  // of an optimizer step. All ranks call end_step() with the same sums after the update.
  virtual int64_t num_aux_sums() const { return 0; }
  virtual AuxReport end_step(Context&, std::span<const double> /*sums*/) { return {}; }

  // Adds adapters to the modules that config targets and freezes all other parameters. Call it before allocate().
  void add_lora(const LoraConfig& config);
  void remove_lora();
  Lora* lora() const { return lora_.get(); }  // nullptr: none
  // A model of the same shape and adapters, without memory.
  std::unique_ptr<Model> same_shape() const;

  // Allocates all parameters (contiguous, in params() order, contents undefined). With `gradients` also zeroed
  // gradients of the trainable ones.
  void allocate(Context&, DType dtype, bool gradients);
  // Uses the parameter memory of `other`, a model of the same shape, instead of its own. No gradients.
  void alias_values(Context&, Model& other);
  // Frees the memory of the `dropped` parameters; their values keep a dtype only. The others move to new memory. Only
  // for models without gradients.
  void free_values(Context&, std::span<Param* const> dropped);
  // Frees the memory of flat_values(). Until restore_values(), which allocates it again zeroed, the values keep their
  // shapes, and whoever runs a pass gives them memory (UnitHooks).
  void drop_values(Context&);
  void restore_values(Context&);
  // If the values are divided among ranks, this rank has all of them from gather_values() to release_values() only. All
  // ranks make these calls at the same places. They do nothing for a model that is not divided. In between, passes
  // gather the values unit by unit: value_hooks(), null if this rank has all values.
  void gather_values() {
    if (divided_) divided_->gather();
  }
  void release_values() {
    if (divided_) divided_->release();
  }
  UnitHooks* value_hooks() const { return divided_ && !divided_->is_gathered() ? divided_ : nullptr; }
  void set_divided(DividedValues* divided) { divided_ = divided; }  // null: not divided
  // Random values from (seed, parameter name): the same weights on every device.
  void initialize(Context&, uint64_t seed);
  void zero_grad(Context&);
  // Frees the memory of the gradients. The parameters' gradients keep their shapes; whoever runs a backward pass gives
  // them memory (UnitHooks).
  void free_gradients(Context&);
  Tensor flat_values() const {
    return values_;
  }                                             // [n]: all parameters end to end, each at a multiple of param_alignment
  Tensor trainable_values();                    // the trainable range of flat_values(): all, or the adapters
  Tensor flat_grads() const { return grads_; }  // gradients of that range, same layout
  DType dtype() const { return values_.dtype; }
  int64_t num_params();

 protected:
  // Called by allocate(): makes device tables that are not parameters (RoPE).
  virtual void allocate_tables(Context&) {}

 private:
  Buffer value_bytes_, grad_bytes_;
  Tensor values_, grads_;
  std::shared_ptr<Lora> lora_;
  DividedValues* divided_ = nullptr;
};

// Families by model_type of config.json: "llama", "qwen2", ... A factory reads config.json as transformers 4
// (rope_theta, rope_scaling, torch_dtype) or 5 (rope_parameters, dtype) writes it. A setting that the family does not
// support is an Error that names it. source: the file's name in messages.
using Family = std::unique_ptr<Model> (*)(const Json& config, std::string_view source);
Registry<Family>& families();

std::unique_ptr<Model> make_model(const Json& config, std::string_view source);

// Fills an allocated parameter with random values from (seed, its name).
void initialize_param(Context& context, const Param& param, uint64_t seed);

// Throw Error if an id, or an id that the tokenizer can make, is outside of the vocabulary. what: the ids' name in
// messages.
void check_tokens(const Model& model, std::span<const int32_t> ids, std::string_view what);
void check_tokenizer(const Model& model, const Tokenizer& tokenizer);

struct LoadOptions {
  DType dtype = DType::f32;  // of the weights in memory
  bool gradients = false;
  LoraConfig lora{};  // adapters to add if the folder has none; r = 0: none
  uint64_t seed = 0;  // of the added adapters' initial values
};
// Loads a Hugging Face folder: config.json and safetensors. The folder of an adapter (model/io/adapter.h) gives its
// base model with the adapter. Throws an Error that lists missing, surplus and misshapen tensors.
std::unique_ptr<Model> load_model(Context& context, const std::filesystem::path& folder,
                                  const LoadOptions& options = {});
// Writes config.json, model.safetensors (f32 or bf16) and generation_config.json. Not atomic. value_head: D numbers,
// saved as score.weight [1, D] as in transformers' sequence classifiers. Throws Error if the model has adapters.
void save_model(Context& context, Model& model, const std::filesystem::path& folder, DType dtype,
                const Json& generation_config = JsonObject{}, std::span<const float> value_head = {});
// The value head of a folder: D numbers, or empty if it has none.
std::vector<float> load_value_head(Context& context, const std::filesystem::path& folder);

}  // namespace hone
