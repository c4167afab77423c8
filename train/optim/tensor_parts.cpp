#include "train/optim/tensor_parts.h"

#include <algorithm>

#include "kernels/optimizer/optimizer.h"

namespace hone {

std::vector<FileTensor> file_tensors(const Param& param) {
  std::vector<FileTensor> out;
  const std::vector<int64_t>& shape = param.shape;
  const auto rank = static_cast<int>(shape.size());
  const int64_t row_size = rank > 0 && shape[0] > 0 ? param.num_elements() / shape[0] : 1;
  int64_t begin = 0;
  for (const Param::Slice& slice : param.slices) {
    FileTensor tensor{.param = &param, .name = slice.name, .begin = begin, .rows = slice.rows, .is_matrix = rank > 1};
    begin += slice.rows * row_size;
    if (rank < 3) {
      tensor.cols = row_size;
      out.push_back(std::move(tensor));
      continue;
    }
    // A stack of matrices: each is one.
    for (int64_t i = 0; i < slice.rows; ++i) {
      FileTensor one = tensor;
      one.name = concat(slice.name, ".", i);
      one.begin = tensor.begin + i * row_size;
      one.rows = shape[static_cast<size_t>(rank) - 2];
      one.cols = shape.back();
      out.push_back(std::move(one));
    }
  }
  return out;
}

TensorParts::TensorParts(std::span<const ParamPart> parts, DividedParams* divided, const Choice& chosen,
                         std::vector<ParamPart>* rest)
    : divided_(divided) {
  for (const ParamPart& part : parts) {
    const int64_t last = part.first + part.value.size();
    for (FileTensor& tensor : file_tensors(*part.param)) {
      const int64_t from = std::max(part.first, tensor.begin), to = std::min(last, tensor.begin + tensor.size());
      if (from >= to) continue;
      ParamPart own = part;
      own.first = from;
      own.value = part.value.rows(from - part.first, to - from);
      own.grad = part.grad.rows(from - part.first, to - from);
      own.place = part.place + from - part.first;
      const int64_t first = from - tensor.begin;
      if (chosen(tensor))
        parts_.push_back({std::move(tensor), first, own});
      else if (rest)
        rest->push_back(own);
    }
  }
  if (divided_) {
    add_units(chosen);
    return;
  }
  for (size_t i = 0; i < parts_.size(); ++i) {
    const TensorPart& part = parts_[i];
    HONE_CHECK(part.count() == part.tensor.size(), "optimizer: a rank has elements ", part.first, " to ",
               part.first + part.count() - 1, " of ", part.tensor.name,
               ", and nobody to gather the others from; this optimizer updates whole tensors");
    batches_.push_back({.unit = 0, .size = part.count(), .items = {{i, 0}}});
  }
}

void TensorParts::add_units(const Choice& chosen) {
  const std::vector<std::vector<const Param*>> units = divided_->params_of_units();
  for (size_t unit = 0; unit < units.size(); ++unit) {
    TensorBatch batch;
    batch.unit = unit;
    bool any = false;
    for (const Param* param : units[unit]) {
      for (const FileTensor& tensor : file_tensors(*param)) any = any || chosen(tensor);
      for (size_t i = 0; i < parts_.size(); ++i)
        if (parts_[i].tensor.param == param) batch.items.push_back({i, batch.size + parts_[i].tensor.begin});
      batch.size += param->padded_elements();
    }
    if (any) batches_.push_back(std::move(batch));
  }
}

Tensor TensorParts::gather(Context& context, const TensorBatch& batch,
                           const std::function<void(const TensorPart&, Tensor own)>& write) const {
  const Tensor out = context.scratch().take(DType::f32, {batch.size});
  if (divided_) context.zero(out);  // what is not chosen, and gaps between parameters
  for (const TensorBatch::Item& item : batch.items) {
    const TensorPart& part = parts_[item.part];
    write(part, out.rows(item.at + part.first, part.count()));
  }
  if (divided_) divided_->gather(context, batch.unit, out);
  return out;
}

Tensor sum_of_squares(Context& context, Tensor x) {
  const Tensor pieces = context.scratch().take(DType::f64, {(x.size() + norm_piece - 1) / norm_piece}),
               out = context.scratch().take(DType::f64, {1});
  sum_squares(context, pieces, x, norm_piece);
  sum_pieces(context, out, pieces);
  return out;
}

}  // namespace hone
