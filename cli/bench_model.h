#pragma once
// Speeds of whole models on random weights: tokens a second of training, prefill and decoding, beside what the machine's limits allow.
#include <string>

#include "core/device.h"
#include "core/json.h"

namespace hone {

struct ModelBench {
  std::string shape = "llama-124m";  // a name of model_bench_shapes() or a config.json
  int64_t batch = 1, tokens = 256;   // sequences and their length (training), prompt (prefill), context (decoding)
  int64_t repeats = 5;               // the median counts
  std::string dtype = "auto", numerics = "exact";
  // Of training.
  int64_t micro_batch_tokens = 0;  // 0: 8192, or as many as the batch has, or a sequence
  std::string recompute = "none", moments = "f32";
  bool profile = false;  // one step more, with the time of each op in it
};
std::vector<std::string> model_bench_shapes();

// {what, shape, params, tokens_per_second, seconds, flops_per_second or bytes_per_second}; what is train | prefill | decode. train and decode also
// have the fields that benchmarks of other programs print: tok_s, model_tflops, mfu_989, peak_gb; ms, floor_ms, roofline.
Json bench_model(const std::string& what, Context& context, const ModelBench& options);

}  // namespace hone
