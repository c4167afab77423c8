#pragma once
// kv_b_proj of multi-head latent attention in GGUF. Hugging Face has one matrix [heads * (nope + value), rank]: of each
// head the rows that map the latent to its keys, then those that map it to its values. GGUF has two tensors,
// attn_k_b [heads, rank, nope], transposed, and attn_v_b [heads, value, rank].
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/gguf/gguf.h"
#include "core/io/gguf/gguf_writer.h"

namespace hone {

// Whether Hugging Face's name is that of kv_b_proj.
bool is_latent(std::string_view hugging_face);
// Names in the file: of one of the two tensors; of the keys; that of the values for that of the keys.
bool is_latent_part(std::string_view gguf);
bool is_latent_keys(std::string_view gguf);
std::string latent_values_name(std::string_view keys);
// Hugging Face's name for that of the keys.
std::string latent_name(std::string_view keys);
// The shape of kv_b_proj. Throws Error, which names the file, unless the two tensors fit each other.
std::vector<int64_t> latent_shape(const GgufTensor& keys, const GgufTensor& values, const std::string& source);
// Calls visit(row, numbers) once for each row of kv_b_proj, in parallel.
void read_latent(const GgufTensor& keys, const GgufTensor& values,
                 const std::function<void(int64_t row, std::span<const float> numbers)>& visit);

struct LatentSizes {
  int64_t heads, nope, value, rank;
};
// Adds the two tensors to a file. hugging_face: the name of kv_b_proj, for the layer's number. read: its numbers,
// called when a tensor is written. type_of: the type of a tensor whose rows have `columns` numbers.
void add_latent_tensors(const std::string& hugging_face, const LatentSizes& sizes,
                        const std::function<std::vector<float>()>& read,
                        const std::function<const GgufType&(int64_t columns)>& type_of, GgufWriter& out);

}  // namespace hone
