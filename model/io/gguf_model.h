#pragma once
// A GGUF file as a Hugging Face model: config.json from its keys, tensors under Hugging Face's names, rows of q and k
// in Hugging Face's order, experts one by one.
#include "core/io/gguf/gguf.h"
#include "model/io/gguf/architecture.h"
#include "model/io/tensor_file.h"

namespace hone {

class GgufModel : public TensorFile {
 public:
  // dtype: of the tensors that read() returns, f32 or bf16; some are always f32 (GgufTensorName). Loaded directly a
  // file has bf16, as `hone import` writes it by default. An architecture or tensor type that is not supported is an
  // Error that names the supported ones.
  explicit GgufModel(const std::filesystem::path& path, DType dtype = DType::bf16);

  // Complete: as the family resolves it, with the ids of special tokens.
  Json config() const;
  const GgufReader& file() const { return file_; }

  std::vector<std::string> names() const override;
  bool contains(std::string_view name) const override;
  TensorOutline outline(std::string_view name) const override;
  Tensor read(std::string_view name, std::vector<char>& storage) const override;

 private:
  struct NamedSource {
    std::string name;  // Hugging Face's
    const GgufTensor* tensor;
    std::vector<int64_t> shape;  // Hugging Face's
    DType dtype;                 // of read()
    bool transposed = false;
    bool adds_one = false;                      // the file has the numbers plus 1
    int64_t interleaved_heads = 0;              // above 0: rows of q or k, and their number of heads
    int64_t first_row = 0;                      // in the file's tensor: that of an expert
    const GgufTensor* latent_values = nullptr;  // attn_v_b, if `tensor` is attn_k_b
  };
  void add(const GgufTensor& tensor);
  void add_experts(const GgufTensor& tensor, const NamedSource& source);
  void check_type(const GgufTensor& tensor) const;
  const NamedSource& source_of(std::string_view name) const;

  GgufReader file_;
  std::string architecture_name_;
  const GgufArchitecture* architecture_;
  DType dtype_;
  bool tied_ = false;
  std::vector<NamedSource> sources_;  // by name
};

// The row of a GGUF file for row `row` of q or k in Hugging Face's order. There each head has the first elements of all
// rotated pairs and then the second ones; here each pair lies together.
int64_t interleaved_row(int64_t row, int64_t head_rows);

}  // namespace hone
