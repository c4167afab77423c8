#include "cli/bench/shapes.h"

#include <algorithm>
#include <filesystem>

#include "core/base/rng.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "kernels/elementwise/cast.h"
#include "model/io/known_shapes.h"

namespace hone {

std::unique_ptr<Model> make_bench_model(const std::string& shape) {
  if (is_known_shape(shape)) return make_model(known_shape(shape), shape);
  HONE_CHECK(std::filesystem::exists(shape), "bench: unknown shape '", shape, "'; known: ", join(known_shapes()),
             ", or a config.json");
  return make_model(parse_json(read_file(shape), shape), shape);
}

void fill_weights(Context& context, Model& model) {
  if (context.kind() != DeviceKind::cuda) return model.initialize(context, 1);
  constexpr int64_t piece_size = (int64_t{1} << 20) - 64;  // not a multiple of a row
  constexpr double uniform_std = 0.28867513459481287;      // of [0, 1)
  const ScratchScope scope(context);
  const Tensor f32 = context.scratch().take(DType::f32, {piece_size}),
               piece = context.scratch().take(model.dtype(), {piece_size});
  Rng rng(1, 0);
  std::vector<float> host(static_cast<size_t>(piece_size));
  for (float& x : host) x = static_cast<float>((rng.uniform() - 0.5) * 0.02 / uniform_std);
  context.copy(f32, host_view(std::span(host)));
  cast(context, piece, f32);
  for (const Param* param : model.params()) {
    const Tensor flat = param->value.view({param->value.size()});
    for (int64_t at = 0; at < flat.size(); at += piece_size) {
      const int64_t count = std::min(piece_size, flat.size() - at);
      if (param->init_std > 0) {
        context.copy(flat.rows(at, count), piece.rows(0, count));
        continue;
      }
      const ScratchScope inner(context);
      const Tensor constant = context.scratch().take(DType::f32, {count});
      const std::vector<float> same(static_cast<size_t>(count), static_cast<float>(param->init_value));
      context.copy(constant, host_view(std::span(same)));
      cast(context, flat.rows(at, count), constant);
    }
  }
}

}  // namespace hone
