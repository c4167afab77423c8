#include "cli/bench/model_bench.h"

#include <algorithm>

#include "cli/bench/peer.h"
#include "cli/bench/shapes.h"
#include "core/base/rng.h"
#include "core/base/stopwatch.h"
#include "core/config/config.h"
#include "core/io/gguf/gguf.h"
#include "model/io/model_files.h"
#include "train/trainer.h"

namespace hone {

Registry<ModelBench>& model_benches() {
  static Registry<ModelBench> registry("bench of a model");
  return registry;
}

double median_seconds(int64_t repeats, const std::function<void()>& run) {
  run();
  std::vector<double> times;
  for (int64_t i = 0; i < repeats; ++i) {
    const Stopwatch watch;
    run();
    times.push_back(watch.seconds());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

std::vector<int32_t> random_tokens(int64_t count, int64_t vocabulary, uint64_t stream) {
  Rng rng(1, stream);
  std::vector<int32_t> out(static_cast<size_t>(count));
  for (int32_t& id : out) id = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocabulary)));
  return out;
}

double peak_gigabytes(const Context& context) { return static_cast<double>(context.device().peak_bytes()) * 1e-9; }

TrainerConfig bench_trainer(const Context& context, const ModelBenchOptions& options, int64_t length) {
  int64_t micro_batch = options.micro_batch_tokens;
  if (micro_batch == 0) micro_batch = context.kind() == DeviceKind::cuda ? 8192 : 2048;
  const std::string keys = concat("micro_batch_tokens = ", std::max(micro_batch, length), "\nrecompute = \"",
                                  options.recompute, "\"\noptimizer = \"", options.optimizer, "\"\n",
                                  options.moments == "f32" ? "" : concat("moments = \"", options.moments, "\"\n"));
  return Config::from_text(keys, "bench").as<TrainerConfig>();
}

EngineConfig bench_engine(const ModelBenchOptions& options, int64_t sequences, int64_t length) {
  const std::string keys = concat("kv_cache_tokens = ", sequences * (length + 64),
                                  "\nmax_num_batched_tokens = ", std::max<int64_t>(8192, sequences),
                                  "\nmax_num_seqs = ", std::max<int64_t>(256, sequences), "\n");
  return Config::from_text(keys, "bench --engine", options.engine).as<EngineConfig>();
}

ModelBenchResult bench_model(const std::string& what, Context& context, const ModelBenchOptions& options) {
  const ModelBench& bench = model_benches().at(what);
  const bool trained = std::filesystem::is_directory(options.shape) || is_gguf(options.shape);
  std::unique_ptr<Model> model =
      trained ? make_model(read_model_config(options.shape), options.shape) : make_bench_model(options.shape);
  const int64_t length = bench.length(options);
  HONE_CHECK(length + 2 < model->shape().max_positions, "bench: ", length, " tokens, the shape has ",
             model->shape().max_positions, " positions");
  const MachineLimits limits = measure_limits(context);
  context.set_numerics(numerics_of(options.numerics));
  context.device().reset_peak();
  const DType dtype = model_dtype(options.dtype, context.kind());
  // With several ranks the trainer gives the gradients their memory.
  const bool gradients = bench.trains && options.ranks.size() == 1;
  if (trained) {
    model = load_model(context, options.shape, {.dtype = dtype, .gradients = gradients});
  } else {
    model->allocate(context, dtype, gradients);
    fill_weights(context, *model);
  }
  Json row = JsonObject{{"what", what},
                        {"shape", options.shape},
                        {"params", model->num_params()},
                        {"device", std::string(name_of(context.kind()))},
                        {"dtype", std::string(name_of(model->dtype()))},
                        {"numerics", options.numerics},
                        {"limit_flops_per_second", limits.flops},
                        {"limit_bytes_per_second", limits.read_bandwidth},
                        {"bench", what},
                        {"model", options.shape}};
  std::string text = bench.run(context, *model, options, limits, row);
  const auto share_of = [&](const char* rate, double limit) {
    if (const Json* measured = row.find(rate); measured && !row.find("share"))
      row.set("share", measured->as_double() / limit);
  };
  share_of("flops_per_second", limits.flops);
  share_of("bytes_per_second", limits.read_bandwidth);
  if (!options.comparison.empty()) text += add_peers(row, bench.peers, options.comparison);
  return {std::move(row), concat(what, " ", options.shape, ", ", text)};
}

}  // namespace hone
