// gemm_forward on Hopper. Every kernel here has the bits of the "tiles" body, so that which one runs, and with which tiles, may be chosen by the
// number of rows (tests/gpu/gemm_test.cpp holds them to it).
#include "kernels/gemm_few_sm90.cuh"
#include "kernels/gemm_split_sm90.cuh"
#include "kernels/gemm_store.cuh"

namespace hone {
namespace {

bool supports(const Tensor&, const Tensor& x, const Tensor& w, const Tensor&, const Tensor&) { return maps(x) && maps(w) && w.dim(1) > 0; }

int64_t pieces(int64_t count, int64_t size) { return (count + size - 1) / size; }

struct Call {
  Context& context;
  const Tensor &y, &x, &w, &bias, &residual;
  bool pairs;  // y can be written two numbers at a time
  int64_t M() const { return x.dim(0); }
  int64_t N() const { return w.dim(0); }
  int64_t K() const { return w.dim(1); }
  int64_t stages() const { return pieces(K(), 64); }
};

// A way to run a call and the microseconds that it is expected to take on an H200; the constants are fitted to measurements.
struct Plan {
  double time = 1e30;
  void (*run)(const Call&, int splits) = nullptr;
  int splits = 1;
  void consider(const Plan& other) {
    if (other.time < time) *this = other;
  }
};

template <class Tile>
void run_tile(const Call& c, int) {
  if (maps(c.y) && (!c.residual || maps(c.residual))) {
    const GemmStoreBox store{map_of(c.y, 64),
                             map_of(c.residual ? c.residual : c.y, 64),
                             c.bias ? c.bias.data : nullptr,
                             static_cast<int>(c.N()),
                             c.bias.dtype == DType::bf16,
                             static_cast<bool>(c.residual)};
    launch_gemm_sm90<Tile>(cuda_stream(c.context), c.x, c.w, store);
  } else {
    with_storage(gemm_forward, c.y.dtype, [&](auto type) {
      launch_gemm_sm90<Tile>(cuda_stream(c.context), c.x, c.w,
                             GemmStore<decltype(type)>{GemmEpilogue(c.y, c.bias, c.residual), c.M(), c.N(), c.pairs});
    });
  }
}

template <class Tile>
Plan tile_plan(const Call& c, double stage_time) {
  const int64_t units = pieces(c.M(), Tile::rows * Tile::cluster) * pieces(c.N(), Tile::columns) * Tile::cluster;
  const double products = static_cast<double>(pieces(units, num_multiprocessors())) * (static_cast<double>(c.stages()) * stage_time + 1.4);
  const double memory = 2 * static_cast<double>(c.N()) * static_cast<double>(c.K()) / 2.9e6;
  return {3 + std::max(products, memory), run_tile<Tile>};
}

template <class Split>
void run_split(const Call& c, int splits) {
  launch_gemm_split<Split>(c.context, c.x, c.w, GemmEpilogue(c.y, c.bias, c.residual), c.pairs, splits);
}

// With the best number of blocks to share a tile's chunks. What limits: memory, the cache, what a multiprocessor takes in, and how long a stage
// takes to arrive.
template <class Split>
Plan split_plan(const Call& c) {
  const int64_t tiles = pieces(c.N(), Split::rows) * pieces(c.M(), Split::tokens), chunks = pieces(c.K(), gemm_cuda_chunk);
  const int64_t processors = num_multiprocessors(), resident = processors * std::min(227 * 1024 / Split::shared_bytes, 4);
  const auto M = static_cast<double>(c.M()), N = static_cast<double>(c.N()), K = static_cast<double>(c.K());
  Plan best;
  for (int64_t splits = 1; splits <= std::min<int64_t>(chunks, 16); ++splits) {
    const int64_t per_block = pieces(chunks, splits), blocks = tiles * splits;
    if (pieces(chunks, per_block) != splits) continue;
    const auto stages = static_cast<double>(std::min(c.stages(), per_block * (gemm_cuda_chunk / Split::depth)));
    const double bytes = stages * Split::stage_bytes;
    const double limits[] = {2 * N * K / 4.0e6, static_cast<double>(blocks) * bytes / 10e6,
                             static_cast<double>(pieces(blocks, processors)) * bytes / 95e3, stages * 1.1 / Split::stages + 0.5};
    const double tail = blocks > resident ? 0.9 + bytes / 190e3 : 0;
    const double join = splits > 1 ? 1 + static_cast<double>(1 + chunks - per_block) * M * N * 8 / 5e6 : 0;
    best.consider({2 + *std::max_element(std::begin(limits), std::end(limits)) + tail + join, run_split<Split>, static_cast<int>(splits)});
  }
  return best;
}

void forward(Context& context, Tensor y, Tensor x, Tensor w, Tensor bias, Tensor residual) {
  check_gemm_forward_cuda(y, x, w, bias, residual);
  if (y.size() == 0 || run_gemm_forward_fast(context, y, x, w, bias, residual)) return;
  const bool pairs = y.row_stride % 2 == 0 && reinterpret_cast<uintptr_t>(y.data) % (2 * size_of(y.dtype)) == 0;
  const Call call{context, y, x, w, bias, residual, pairs};
  const int64_t M = x.dim(0);
  if (few_rows(M, w.dim(1))) return launch_gemm_few(cuda_stream(context), x, w, GemmEpilogue(y, bias, residual));
  Plan plan;
  if (M <= 16) {
    plan = split_plan<GemmSplit<1, 16, 8>>(call);
  } else if (M <= 512) {
    plan = split_plan<GemmSplit<1, 32, 8>>(call);
    plan.consider(split_plan<GemmSplit<1, 32, 5>>(call));
    if (M > 32) {
      plan.consider(split_plan<GemmSplit<1, 64, 6>>(call));
      plan.consider(split_plan<GemmSplit<1, 64, 4>>(call));
      plan.consider(split_plan<GemmSplit<2, 64, 4>>(call));
    }
  }
  if (M > 64) {
    plan.consider(tile_plan<GemmTile<192, 4, 1>>(call, 0.46));
    plan.consider(tile_plan<GemmTile<128, 6, 1>>(call, 0.31));
  }
  if (M > 1024) {
    // The products take all of the time: what counts is how full the rounds are, and the narrow tile is slower by some 5%.
    const auto rounds = [&](int64_t columns) {
      return static_cast<double>(pieces(pieces(M, 128) * pieces(call.N(), columns), num_multiprocessors()) * columns);
    };
    plan.run = rounds(128) * 1.05 < rounds(192) ? run_tile<GemmTile<128, 6, 1>> : run_tile<GemmTile<192, 4, 2>>;
  }
  plan.run(call, plan.splits);
  check_launch(gemm_forward);
}

[[maybe_unused]] const bool added = gemm_forward.add({"sm90", DeviceKind::cuda, forward, 10, supports});

}  // namespace
}  // namespace hone
