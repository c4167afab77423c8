#pragma once
// Tiny models as folders and GGUF files.
#include <cstring>

#include "core/io/safetensors.h"
#include "model/io/export_gguf.h"
#include "model/io/import.h"
#include "model/io/model_files.h"
#include "model/token_logprobs.h"
#include "tests/model/tiny_model.h"

namespace hone::test {

namespace fs = std::filesystem;

// A tiny model's config of a family, whose rows are whole Q8_0 blocks.
inline Json wide_config(const std::string& family, const JsonObject& changes = {}) {
  return with(with(tiny_config(family), {{"hidden_size", 64},
                                         {"intermediate_size", 96},
                                         {"n_embd", 64},
                                         {"head_dim", 16},
                                         {"bos_token_id", nullptr},
                                         {"sliding_window", nullptr}}),
              changes);
}

class GgufModelTest : public testing::Test {
 protected:
  fs::path path(const char* name) const { return folder_.path() / name; }
  // Saves a random model in bf16.
  fs::path save(const Json& config) {
    const auto model = make_tiny(context_, config, false);
    save_model(context_, *model, path("model"), DType::bf16);
    return path("model");
  }
  std::vector<TokenLogprobs> logprobs(const fs::path& model_path) {
    const std::unique_ptr<Model> model = load_model(context_, model_path);
    const std::vector<std::vector<int32_t>> sequences = {{1, 5, 3, 18, 7, 7, 2}, {4, 9}};
    return compute_logprobs(context_, *model, sequences, {});
  }
  void expect_same_tensors(const fs::path& a, const fs::path& b) {
    const SafetensorsReader first(a), second(b);
    ASSERT_EQ(first.names(), second.names());
    for (const std::string& name : first.names()) {
      const Tensor x = first.at(name), y = second.at(name);
      ASSERT_TRUE(std::ranges::equal(x.dims(), y.dims())) << name;
      ASSERT_EQ(x.dtype, y.dtype) << name;
      EXPECT_EQ(std::memcmp(x.data, y.data, x.bytes()), 0) << name;
    }
  }

  std::unique_ptr<Device> device_ = cpu_device();
  Context context_{*device_};
  TemporaryFolder folder_;
};

}  // namespace hone::test
