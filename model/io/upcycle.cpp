#include "model/io/upcycle.h"

#include <algorithm>
#include <functional>
#include <map>

#include "model/io/adapter.h"
#include "model/io/model_files.h"
#include "model/io/tensor_file.h"
#include "model/lora.h"

namespace hone {
namespace {

// The config.json of the mixture.
Json upcycled_config(const Model& dense, const UpcycleOptions& options) {
  Json config = dense.config();
  const std::string family = config.at("model_type").as_string();
  HONE_CHECK(family == "llama" || family == "mistral" || family == "qwen3", "upcycle: the family ", family,
             " has no counterpart with experts; supported: llama, mistral, qwen3");
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    const Json* bias = config.find(key);
    HONE_CHECK(!bias || bias->is_null() || !bias->as_bool(key) || (family == "qwen3" && key[0] == 'a'),
               "upcycle: ", key, " = true has no counterpart with experts");
  }
  if (const Json* types = config.find("layer_types"); types && types->is_array()) {
    const JsonArray& layers = types->as_array();
    HONE_CHECK(std::ranges::adjacent_find(layers, std::not_equal_to()) == layers.end(),
               "upcycle: some layers have a sliding window and some do not; that has no counterpart with experts");
  }
  const bool qwen = family == "qwen3";
  config.set("model_type", qwen ? "qwen3_moe" : "mixtral");
  config.set("num_experts", options.num_experts);
  config.set("num_experts_per_tok", options.num_choices);
  if (qwen) {
    config.set("moe_intermediate_size", dense.shape().intermediate_size);
    config.set("norm_topk_prob", true);
  }
  if (family == "llama") config.set("sliding_window", Json());
  return config;
}

// The matrix of the dense model that a matrix of an expert copies; other names stay.
std::string dense_name(const std::string& name) {
  for (const std::string_view block : {".mlp.experts.", ".block_sparse_moe.experts."}) {
    const size_t place = name.find(block);
    if (place == std::string::npos) continue;
    std::string module = name.substr(name.find('.', place + block.size()) + 1);
    for (const auto& [mixtral, usual] : {std::pair{"w1.weight", "gate_proj.weight"},
                                         {"w3.weight", "up_proj.weight"},
                                         {"w2.weight", "down_proj.weight"}})
      if (module == mixtral) module = usual;
    return name.substr(0, place) + ".mlp." + module;
  }
  return name;
}

bool is_router(const std::string& name) { return name.ends_with(".gate.weight"); }

void copy_values(Context& context, Model& dense, Model& mixture, uint64_t seed) {
  std::map<std::string, Tensor> values;
  const auto each_slice = [](Model& model, const auto& visit) {
    for (const Param* param : model.base_params()) {
      int64_t row = 0;
      for (const Param::Slice& slice : param->slices) {
        visit(*param, slice.name, param->value.rows(row, slice.rows));
        row += slice.rows;
      }
    }
  };
  each_slice(dense, [&](const Param&, const std::string& name, Tensor value) { values[name] = value; });
  each_slice(mixture, [&](const Param& param, const std::string& name, Tensor value) {
    if (is_router(name)) return initialize_param(context, param, seed);
    const auto found = values.find(dense_name(name));
    HONE_CHECK(found != values.end(), "upcycle: the dense model has no ", dense_name(name));
    context.copy(value, found->second);
  });
}

}  // namespace

void upcycle_model(const std::filesystem::path& from, const std::filesystem::path& to, const UpcycleOptions& options) {
  HONE_CHECK(options.num_experts >= 2, "upcycle: num_experts is ", options.num_experts, ", wants 2 or more");
  HONE_CHECK(options.num_choices >= 1 && options.num_choices <= options.num_experts, "upcycle: ", options.num_choices,
             " experts of each token, of ", options.num_experts);
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context(*device);
  const std::unique_ptr<Model> dense = load_model(context, from);
  if (dense->lora()) merge_lora(context, *dense);
  const std::unique_ptr<Model> mixture = make_model(upcycled_config(*dense, options), from.string());
  mixture->allocate(context, DType::f32, false);
  copy_values(context, *dense, *mixture, options.seed);
  save_model(context, *mixture, to, options.dtype.value_or(dtype_of_files(from)), read_generation_config(from));
}

}  // namespace hone
