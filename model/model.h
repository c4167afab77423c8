#pragma once
// Model: one definition for training (a tape), scoring (neither) and generation (a KV view). Blocks are separate so
// that recomputation and, later, gathers and pipeline stages are one generic driver (model/forward.h), not one a
// family.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/base/registry.h"
#include "core/io/json.h"
#include "model/batch.h"
#include "model/kv_view.h"
#include "model/lora_config.h"
#include "model/tape.h"

namespace hone {

class Tokenizer;
struct Linear;
struct Lora;

// A parameter: [rows, cols] or [n]. Several names are row layers, in order (q, k, v in one matrix).
struct Param {
  struct Slice {
    std::string name;  // Hugging Face's, as in the safetensors file
    int64_t rows = 0;  // of dim 0
  };
  std::vector<Slice> slices;
  std::vector<int64_t> shape;
  bool transposed = false;  // the file holds it transposed (GPT-2's Conv1D)
  bool decay = true;        // weight decay applies (matrices, not norms and biases)
  double init_std = 0;      // normal(0, std) at random initialisation; 0 = init_value everywhere
  double init_value = 0;
  double init_uniform = 0;  // uniform within this of 0 instead
  bool lookup = false;      // rows are read by index (an embedding), not multiplied
  bool trainable = true;    // has a gradient and optimizer states
  Tensor value{};           // set by Model::allocate
  Tensor grad{};            // f32; empty without gradients, and of what is frozen
};

// The numbers that everything outside the model asks for.
struct ModelShape {
  int64_t vocab_size = 0, hidden_size = 0, num_layers = 0, num_attention_heads = 0, num_kv_heads = 0, head_dim = 0,
          intermediate_size = 0, max_positions = 0;
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelShape& shape() const = 0;
  // The config.json that Hugging Face's transformers opens as this model (without dtype, which save_model adds).
  virtual Json config() const = 0;
  // Every parameter once, in a fixed order; a tied head is the embedding and does not appear again. The adapters come
  // last.
  std::vector<Param*> params();
  virtual std::vector<Param*> base_params() = 0;  // without adapters
  std::vector<Param*> adapter_params();
  // The matrices of the layers, in order.
  virtual std::vector<Linear*> linear_modules() = 0;

  // x [T, D] is written.
  virtual void embed(Context&, const Batch&, Tensor x) = 0;
  virtual void embed_backward(Context&, const Batch&, Tensor dx) = 0;
  // out [T, D] is written; it may be x when tape is null. x must stay as it is until the layer's backward.
  virtual void forward_layer(int64_t layer, Context&, const Batch&, Tensor out, Tensor x, Tape*, const KvView*) = 0;
  // Every layer's forward in turn without a tape: x [T, D] becomes the last one's output. The same bits, possibly in
  // fewer ops.
  virtual void infer_layers(Context&, const Batch&, Tensor x, const KvView*);
  // dx holds dLoss/dout and is overwritten with dLoss/dx. Reads the tape as the same layer's forward left it.
  virtual void backward_layer(int64_t layer, Context&, const Batch&, Tensor dx, Tensor x, Tape&) = 0;
  // hidden [R, D] from rows x [R, D] of the last layer's output; what the head reads. rstd etc. go to the tape.
  virtual void final_norm(Context&, Tensor hidden, Tensor x, Tape*) = 0;
  // dx [R, D] is written.
  virtual void final_norm_backward(Context&, Tensor dx, Tensor dhidden, Tensor x, Tape&) = 0;
  // [V, D]: logits = hidden . head^T.
  virtual Param& lm_head() = 0;

  // Adapters on the modules that config targets; all other parameters are frozen. Before allocate().
  void add_lora(const LoraConfig& config);
  void remove_lora();
  Lora* lora() const { return lora_.get(); }  // nullptr: none
  // The same model, adapters included, without memory.
  std::unique_ptr<Model> same_shape() const;

  // Gives every parameter its memory (contiguous, in params() order), contents undefined, and what is trainable its
  // gradient (zero) if asked for.
  void allocate(Context&, DType dtype, bool gradients);
  // Reads the parameters of a model of the same shape where that one has them, instead of having memory for them; no
  // gradients.
  void alias_values(Context&, Model& other);
  // Gives up the memory of some parameters, whose values have a dtype and nothing else then; the others move to memory
  // of their own. No gradients.
  void free_values(Context&, std::span<Param* const> dropped);
  // Draws every parameter from (seed, its name): the same weights whatever the order or device.
  void initialize(Context&, uint64_t seed);
  void zero_grad(Context&);
  Tensor flat_values() const { return values_; }  // [n], all parameters end to end (each 64-element aligned)
  Tensor trainable_values();                      // what training changes of them: all, or the adapters' end
  Tensor flat_grads() const { return grads_; }    // of the trainable ones, in the same way
  DType dtype() const { return values_.dtype; }
  int64_t num_params();

 protected:
  // Called by allocate(): device tables that are not parameters (rotary positions).
  virtual void allocate_tables(Context&) {}

 private:
  Buffer value_bytes_, grad_bytes_;
  Tensor values_, grads_;
  std::shared_ptr<Lora> lora_;
};

// Families by config.json's model_type: "llama", "qwen2", ... A factory reads the shape from config.json (transformers
// 4's rope_theta, rope_scaling, torch_dtype and 5's rope_parameters, dtype) and refuses, by name, what it does not do;
// `source` names the file.
using Family = std::unique_ptr<Model> (*)(const Json& config, std::string_view source);
Registry<Family>& families();

std::unique_ptr<Model> make_model(const Json& config, std::string_view source);

// Draws a parameter with memory from (seed, its name).
void initialise_param(Context& context, const Param& param, uint64_t seed);

// Errors unless every id is in the vocabulary, and unless the tokenizer makes no id that is not. `what` names the ids
// in messages.
void check_tokens(const Model& model, std::span<const int32_t> ids, std::string_view what);
void check_tokenizer(const Model& model, const Tokenizer& tokenizer);

struct LoadOptions {
  DType dtype = DType::f32;  // of the weights in memory
  bool gradients = false;
  LoraConfig lora{};  // adapters to add where the folder has none of its own; r = 0: none
  uint64_t seed = 0;  // of the added adapters' first values
};
// A Hugging Face folder: config.json and safetensors. Missing, surplus and misshapen tensors are Errors that list them.
// A folder of an adapter (model/io/adapter.h) is its base model with the adapter on it.
std::unique_ptr<Model> load_model(Context& context, const std::filesystem::path& folder,
                                  const LoadOptions& options = {});
// config.json, model.safetensors (f32 or bf16) and generation_config.json into folder. Not atomic by itself. A value
// head (D numbers) goes with the model as score.weight [1, D], where transformers' sequence classifiers have it. A
// model with adapters is an Error.
void save_model(Context& context, Model& model, const std::filesystem::path& folder, DType dtype,
                const Json& generation_config = JsonObject{}, std::span<const float> value_head = {});
// The value head of a folder, D numbers; empty where it has none.
std::vector<float> load_value_head(Context& context, const std::filesystem::path& folder);

}  // namespace hone
