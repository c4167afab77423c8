#pragma once
// Parameters as Hugging Face has them: q, k and v of a fused matrix are tensors of their own. Optimizers that read a
// whole tensor to update any element of it (Muon, Adafactor) take them one by one. If ranks have parts of tensors, they
// gather a unit's tensors and each computes those that it has a part of, from the same numbers.
#include <functional>

#include "train/optim/optimizer.h"

namespace hone {

// A tensor of the model's files.
struct FileTensor {
  const Param* param = nullptr;
  std::string name;
  int64_t begin = 0;           // first element within the parameter
  int64_t rows = 0, cols = 1;  // cols = 1 for a vector; in memory, which may be the file's tensor transposed
  bool is_matrix = false;
  int64_t size() const { return rows * cols; }
  // Rows and columns as the file has them.
  int64_t file_rows() const { return param->transposed ? cols : rows; }
  int64_t file_cols() const { return param->transposed ? rows : cols; }
};
// The tensors of a parameter, in the order of its elements.
std::vector<FileTensor> file_tensors(const Param& param);

// This rank's part of a tensor.
struct TensorPart {
  FileTensor tensor;
  int64_t first = 0;  // within the tensor
  ParamPart part;     // the same elements; part.first is within the parameter
  int64_t count() const { return part.value.size(); }
};

// Tensors whose elements lie in one memory while they are updated.
struct TensorBatch {
  struct Item {
    size_t part;  // index of the TensorPart
    int64_t at;   // of the tensor in the memory
  };
  size_t unit = 0;
  int64_t size = 0;  // elements of the memory
  std::vector<Item> items;
};

// The tensors of a list that an optimizer chooses.
class TensorParts {
 public:
  using Choice = std::function<bool(const FileTensor&)>;
  // Parts of other tensors are added to `rest`. divided: null if the parts are whole; otherwise every rank gathers the
  // units that have a chosen tensor.
  TensorParts(std::span<const ParamPart> parts, DividedParams* divided, const Choice& chosen,
              std::vector<ParamPart>* rest = nullptr);
  const std::vector<TensorPart>& parts() const { return parts_; }
  // In the order of the gathers. Without other ranks each tensor is a batch.
  const std::vector<TensorBatch>& batches() const { return batches_; }
  // All of the batch's memory, of which write(item, part of the memory) wrote this rank's elements. In scratch memory.
  Tensor gather(Context& context, const TensorBatch& batch,
                const std::function<void(const TensorPart&, Tensor own)>& write) const;

 private:
  void add_units(const Choice& chosen);

  DividedParams* divided_;
  std::vector<TensorPart> parts_;
  std::vector<TensorBatch> batches_;
};

// f64 [1] in scratch memory: the sum of the squares of x, f32 [n]. Its bits depend on x alone.
Tensor sum_of_squares(Context& context, Tensor x);

}  // namespace hone
