#include "model/io/gguf/latent.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/parallel_for.h"

namespace hone {
namespace {

constexpr std::string_view block = "blk.", keys_end = ".attn_k_b.weight", values_end = ".attn_v_b.weight",
                           layers = "model.layers.", module_end = ".self_attn.kv_b_proj.weight";

// What stands between the beginning and the end of a name: the layer's number.
std::string layer_of(std::string_view name, std::string_view beginning, std::string_view end) {
  return std::string(name.substr(beginning.size(), name.size() - beginning.size() - end.size()));
}

}  // namespace

bool is_latent(std::string_view hugging_face) {
  return hugging_face.starts_with(layers) && hugging_face.ends_with(module_end);
}
bool is_latent_part(std::string_view gguf) { return is_latent_keys(gguf) || gguf.ends_with(values_end); }
bool is_latent_keys(std::string_view gguf) { return gguf.starts_with(block) && gguf.ends_with(keys_end); }
std::string latent_values_name(std::string_view keys) {
  return concat(block, layer_of(keys, block, keys_end), values_end);
}
std::string latent_name(std::string_view keys) { return concat(layers, layer_of(keys, block, keys_end), module_end); }

std::vector<int64_t> latent_shape(const GgufTensor& keys, const GgufTensor& values, const std::string& source) {
  const std::vector<int64_t>&k = keys.shape, &v = values.shape;
  HONE_CHECK(k.size() == 3 && v.size() == 3 && k[0] == v[0] && k[1] == v[2], source, ": tensors '", keys.name, "' ",
             Json::array(k).dump(), " and '", values.name, "' ", Json::array(v).dump(),
             " must be [heads, rank, nope] and [heads, values, rank]");
  return {k[0] * (k[2] + v[1]), k[1]};
}

void read_latent(const GgufTensor& keys, const GgufTensor& values,
                 const std::function<void(int64_t row, std::span<const float> numbers)>& visit) {
  const int64_t heads = keys.shape[0], rank = keys.shape[1], nope = keys.shape[2], value = values.shape[1];
  parallel_for(heads, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> of_keys(static_cast<size_t>(rank * nope)), row(static_cast<size_t>(rank));
    for (int64_t h = begin; h < end; ++h) {
      const int64_t first = h * (nope + value);
      for (int64_t r = 0; r < rank; ++r)
        dequantize(*keys.type, keys.row_bytes(h * rank + r),
                   std::span(of_keys).subspan(static_cast<size_t>(r * nope), static_cast<size_t>(nope)));
      for (int64_t i = 0; i < nope; ++i) {
        for (int64_t r = 0; r < rank; ++r) row[static_cast<size_t>(r)] = of_keys[static_cast<size_t>(r * nope + i)];
        visit(first + i, row);
      }
      for (int64_t i = 0; i < value; ++i) {
        dequantize(*values.type, values.row_bytes(h * value + i), row);
        visit(first + nope + i, row);
      }
    }
  });
}

void add_latent_tensors(const std::string& hugging_face, const LatentSizes& sizes,
                        const std::function<std::vector<float>()>& read,
                        const std::function<const GgufType&(int64_t columns)>& type_of, GgufWriter& out) {
  const std::string layer = layer_of(hugging_face, layers, module_end);
  const auto [heads, nope, value, rank] = sizes;
  const auto part = [=](const std::vector<float>& all, int64_t h, int64_t i, int64_t r) {
    return all[static_cast<size_t>((h * (nope + value) + i) * rank + r)];
  };
  const GgufType &keys_type = type_of(nope), &values_type = type_of(rank);
  out.add_tensor(concat(block, layer, keys_end), keys_type, {heads, rank, nope}, [=, &keys_type] {
    const std::vector<float> all = read();
    std::vector<float> numbers;
    numbers.reserve(static_cast<size_t>(heads * rank * nope));
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t r = 0; r < rank; ++r)
        for (int64_t i = 0; i < nope; ++i) numbers.push_back(part(all, h, i, r));
    return encode_gguf(keys_type, numbers);
  });
  out.add_tensor(concat(block, layer, values_end), values_type, {heads, value, rank}, [=, &values_type] {
    const std::vector<float> all = read();
    std::vector<float> numbers;
    numbers.reserve(static_cast<size_t>(heads * value * rank));
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < value; ++i)
        for (int64_t r = 0; r < rank; ++r) numbers.push_back(part(all, h, nope + i, r));
    return encode_gguf(values_type, numbers);
  });
}

}  // namespace hone
