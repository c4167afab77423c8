#include "model/prune/pruned_model.h"

#include <algorithm>

#include "model/modules.h"

namespace hone {
namespace {

// What is kept of a parameter; empty: all rows, or all columns.
struct ParamCut {
  Param* param = nullptr;
  std::vector<int64_t> rows = {}, columns = {};
};

void append_rows(std::vector<int64_t>& out, std::span<const int64_t> parts, int64_t first_row, int64_t part_rows) {
  for (const int64_t column : columns_of_heads(parts, part_rows)) out.push_back(first_row + column);
}

// The cuts of a layer's parameters, in the order of layer_modules().
std::vector<ParamCut> cuts_of(Model& full, int64_t layer, const KeptParts& parts) {
  const ModelShape& shape = full.shape();
  const std::vector<Linear*> linears = full.layer_modules(layer).linears;
  HONE_CHECK(linears.size() == 4, "prune: layer ", layer, " has ", linears.size(), " matrices, a dense layer has 4");
  Linear *const qkv = linears[0], *const output = linears[1], *const up = linears[2], *const down = linears[3];
  const int64_t dim = shape.head_dim, queries = shape.num_attention_heads * dim, keys = shape.num_kv_heads * dim;
  std::vector<int64_t> qkv_rows, up_rows;
  append_rows(qkv_rows, parts.heads, 0, dim);
  append_rows(qkv_rows, parts.kv_heads, queries, dim);
  append_rows(qkv_rows, parts.kv_heads, queries + keys, dim);
  for (int64_t first = 0; first < up->num_outputs(); first += shape.intermediate_size)  // gate and up, or up
    append_rows(up_rows, parts.channels, first, 1);
  std::vector<ParamCut> out;
  for (Param* param : full.layer_modules(layer).params) {
    ParamCut& cut = out.emplace_back(ParamCut{.param = param});
    if (param == &qkv->weight || param == &qkv->bias) cut.rows = qkv_rows;
    if (param == &up->weight || param == &up->bias) cut.rows = up_rows;
    if (param == &output->weight) cut.columns = columns_of_heads(parts.heads, dim);
    if (param == &down->weight) cut.columns = parts.channels;
  }
  return out;
}

// The parameters that belong to no layer.
std::vector<Param*> outer_params(Model& model) {
  std::vector<Param*> out = model.base_params();
  for (int64_t layer = 0; layer < model.shape().num_layers; ++layer) {
    const std::vector<Param*> inner = model.layer_modules(layer).params;
    std::erase_if(out, [&](Param* param) { return std::ranges::find(inner, param) != inner.end(); });
  }
  return out;
}

void copy_cut(const Param& to, const ParamCut& from) {
  const Tensor source = from.param->value;
  for (int64_t r = 0; r < to.value.dim(0); ++r) {
    const float* const row = source.row<float>(from.rows.empty() ? r : from.rows[static_cast<size_t>(r)]);
    float* const out = to.value.row<float>(r);
    for (int64_t c = 0; c < to.value.row_size(); ++c)
      out[c] = row[from.columns.empty() ? c : from.columns[static_cast<size_t>(c)]];
  }
}

void zero_cut(const ParamCut& cut) {
  const Tensor value = cut.param->value;
  const std::vector<int64_t> rows = cut.rows.empty() ? std::vector<int64_t>() : removed_of(cut.rows, value.dim(0)),
                             columns = cut.columns.empty() ? std::vector<int64_t>()
                                                           : removed_of(cut.columns, value.row_size());
  for (const int64_t r : rows) std::fill_n(value.row<float>(r), value.row_size(), 0.0f);
  for (int64_t r = 0; r < value.dim(0); ++r)
    for (const int64_t c : columns) value.row<float>(r)[c] = 0;
}

void check_host(const Model& full) {
  HONE_CHECK(full.dtype() == DType::f32 && full.flat_values().device == DeviceKind::cpu && !full.lora(),
             "prune: the weights must be in host memory, in f32, without adapters");
}

}  // namespace

std::unique_ptr<Model> make_pruned(Context& context, Model& full, const PrunePlan& plan) {
  check_host(full);
  std::unique_ptr<Model> out = make_model(pruned_config(full, plan), "pruned model");
  out->allocate(context, DType::f32, false);
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const std::vector<ParamCut> cuts = cuts_of(full, plan.layers[i], plan.parts[i]);
    const std::vector<Param*> to = out->layer_modules(static_cast<int64_t>(i)).params;
    for (size_t p = 0; p < to.size(); ++p) copy_cut(*to[p], cuts[p]);
  }
  const std::vector<Param*> from = outer_params(full), to = outer_params(*out);
  for (size_t p = 0; p < to.size(); ++p) copy_cut(*to[p], {.param = from[p]});
  return out;
}

void zero_removed(Model& full, const PrunePlan& plan) {
  check_host(full);
  for (const int64_t layer : removed_of(plan.layers, full.shape().num_layers))
    for (const Param* param : full.layer_modules(layer).params) std::ranges::fill(param->value.as<float>(), 0.0f);
  for (size_t i = 0; i < plan.layers.size(); ++i)
    for (const ParamCut& cut : cuts_of(full, plan.layers[i], plan.parts[i])) zero_cut(cut);
}

}  // namespace hone
