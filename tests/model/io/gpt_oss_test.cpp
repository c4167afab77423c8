// The files of gpt-oss: fused experts, and experts in MXFP4 as transformers dequantizes them.
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "model/io/mxfp4.h"
#include "tests/model/tiny_model.h"

namespace hone::test {
namespace {

// tests/golden/make_mxfp4.py.
SafetensorsReader golden() { return SafetensorsReader(source_folder() / "tests" / "golden" / "mxfp4.safetensors"); }

std::vector<bf16> numbers_of(const Tensor& tensor) {
  std::vector<bf16> out(static_cast<size_t>(tensor.size()));
  std::memcpy(out.data(), tensor.data, tensor.bytes());
  return out;
}

// One layer of three experts with hidden and inner size 32, the sizes of the golden file.
const JsonObject golden_sizes{{"hidden_size", 32},      {"intermediate_size", 32},  {"num_hidden_layers", 1},
                              {"num_local_experts", 3}, {"num_experts_per_tok", 2}, {"num_experts", Json()}};
const std::string experts = "model.layers.0.mlp.experts.";

class GptOssFiles : public testing::Test {
 protected:
  using Tensors = std::map<std::string, Tensor>;

  std::unique_ptr<Model> save(const JsonObject& changes, DType dtype = DType::f32) {
    auto model = make_tiny(context_, with(tiny_config("gpt_oss"), changes), false);
    save_model(context_, *model, folder_.path(), dtype);
    return model;
  }
  // A saved model whose expert matrices are replaced by those of the golden file in MXFP4. `change` may edit the
  // tensors before they are written.
  void save_in_mxfp4(const std::function<void(Tensors&)>& change = {}) {
    save(golden_sizes);
    const SafetensorsReader packed = golden();
    std::vector<std::vector<char>> storage;  // the mapping of a file that is written anew must not be used
    Tensors tensors;
    {
      const SafetensorsReader file(folder_.path());
      for (const std::string& name : file.names()) {
        const Tensor tensor = file.at(name);
        const char* data = static_cast<const char*>(tensor.data);
        storage.emplace_back(data, data + tensor.bytes());
        tensors[name] = Tensor(storage.back().data(), tensor.dtype, DeviceKind::cpu, tensor.dims());
      }
    }
    for (const std::string module : {"gate_up_proj", "down_proj"}) {
      tensors.erase(experts + module);
      for (const char* part : {"_blocks", "_scales"}) tensors[experts + module + part] = packed.at(module + part);
    }
    if (change) change(tensors);
    std::vector<NamedTensor> all;
    for (const auto& [name, tensor] : tensors) all.push_back({name, tensor});
    write_safetensors(folder_.path() / "model.safetensors", all);
    edit_config({{"quantization_config",
                  JsonObject{{"quant_method", "mxfp4"}, {"modules_to_not_convert", JsonArray{"model.embed_tokens"}}}}});
  }
  void edit_config(const JsonObject& changes) {
    const auto path = folder_.path() / "config.json";
    write_file_atomic(path, with(parse_json(read_file(path), "config.json"), changes).dump());
  }
  std::string refusal() {
    try {
      load_model(context_, folder_.path());
    } catch (const Error& error) {
      return error.what();
    }
    return "loaded";
  }
  static const Param& param_of(Model& model, const std::string& name) {
    for (const Param* param : model.base_params())
      for (const Param::Slice& slice : param->slices)
        if (slice.name == name) return *param;
    fail("no parameter ", name);
  }

  std::unique_ptr<Device> device_ = cpu_device();
  Context context_{*device_};
  TemporaryFolder folder_;
};

TEST(Mxfp4, EveryNumberIsThatOfTransformers) {
  const SafetensorsReader file = golden();
  const Tensor blocks = file.at("every_blocks"), scales = file.at("every_scales");
  const std::vector<bf16> expected = numbers_of(file.at("every"));  // [1, 32, 256]
  for (int64_t row = 0; row < 256; ++row) {
    bf16 numbers[32];
    decode_mxfp4(numbers, static_cast<const uint8_t*>(blocks.data) + row * 16,
                 {static_cast<const uint8_t*>(scales.data) + row, 1});
    for (int64_t i = 0; i < 32; ++i) {
      const bf16 wanted = expected[static_cast<size_t>(i * 256 + row)];
      const bool nans = std::isnan(to_float(numbers[i])) && std::isnan(to_float(wanted));
      EXPECT_TRUE(nans || numbers[i].bits == wanted.bits)
          << "scale " << row << ", number " << i << ": " << to_float(numbers[i]) << ", not " << to_float(wanted);
    }
  }
}

TEST_F(GptOssFiles, HoldTheExpertsAsTransformersDoes) {
  const auto model = save({});
  const SafetensorsReader file(folder_.path());
  for (const std::string& name : file.names()) EXPECT_FALSE(says(name, ".experts.0.")) << name;
  const Tensor gate_up = file.at(experts + "gate_up_proj"), down = file.at(experts + "down_proj"),
               gate_up_bias = file.at(experts + "gate_up_proj_bias"), down_bias = file.at(experts + "down_proj_bias");
  const auto shape = [](const Tensor& x) { return std::vector<int64_t>(x.dims().begin(), x.dims().end()); };
  EXPECT_EQ(shape(gate_up), (std::vector<int64_t>{4, 12, 40}));
  EXPECT_EQ(shape(down), (std::vector<int64_t>{4, 20, 12}));
  EXPECT_EQ(shape(gate_up_bias), (std::vector<int64_t>{4, 40}));
  EXPECT_EQ(shape(down_bias), (std::vector<int64_t>{4, 12}));
  EXPECT_EQ(shape(file.at("model.layers.0.self_attn.sinks")), (std::vector<int64_t>{4}));
  EXPECT_EQ(shape(file.at("model.layers.0.mlp.router.bias")), (std::vector<int64_t>{4}));
  // The parameter has an expert's rows of gate, then of up.
  const Tensor inner = param_of(*model, experts + "0.gate_proj.weight").value,
               inner_bias = param_of(*model, experts + "0.gate_proj.bias").value,
               outer = param_of(*model, experts + "0.down_proj.weight").value;
  const auto at = [](const Tensor& x, int64_t i) { return static_cast<const float*>(x.data)[i]; };
  for (int64_t e = 0; e < 4; ++e)
    for (int64_t f = 0; f < 20; ++f) {
      EXPECT_EQ(at(gate_up_bias, e * 40 + 2 * f), at(inner_bias, e * 40 + f));
      EXPECT_EQ(at(gate_up_bias, e * 40 + 2 * f + 1), at(inner_bias, e * 40 + 20 + f));
      for (int64_t d = 0; d < 12; ++d) {
        EXPECT_EQ(at(gate_up, (e * 12 + d) * 40 + 2 * f), at(inner, (e * 40 + f) * 12 + d));
        EXPECT_EQ(at(gate_up, (e * 12 + d) * 40 + 2 * f + 1), at(inner, (e * 40 + 20 + f) * 12 + d));
        EXPECT_EQ(at(down, (e * 20 + f) * 12 + d), at(outer, (e * 12 + d) * 20 + f));
      }
    }
  const auto again = load_model(context_, folder_.path());
  EXPECT_EQ(download(context_, again->flat_values()), download(context_, model->flat_values()));
}

TEST_F(GptOssFiles, InMxfp4HaveTransformersNumbers) {
  save_in_mxfp4();
  const auto model = load_model(context_, folder_.path());
  const SafetensorsReader file = golden();
  const std::vector<bf16> gate_up = numbers_of(file.at("gate_up_proj")), down = numbers_of(file.at("down_proj"));
  const Tensor inner = param_of(*model, experts + "0.gate_proj.weight").value,
               outer = param_of(*model, experts + "0.down_proj.weight").value;
  for (int64_t e = 0; e < 3; ++e)
    for (int64_t f = 0; f < 32; ++f)
      for (int64_t d = 0; d < 32; ++d) {
        const auto of_file = [&](const std::vector<bf16>& numbers, int64_t row, int64_t columns, int64_t column) {
          return to_float(numbers[static_cast<size_t>((e * 32 + row) * columns + column)]);
        };
        EXPECT_EQ(inner.row<float>(e * 64 + f)[d], of_file(gate_up, d, 64, 2 * f));
        EXPECT_EQ(inner.row<float>(e * 64 + 32 + f)[d], of_file(gate_up, d, 64, 2 * f + 1));
        EXPECT_EQ(outer.row<float>(e * 32 + d)[f], of_file(down, f, 32, d));
      }
}

TEST_F(GptOssFiles, SavedAfterMxfp4AreInBf16) {
  save_in_mxfp4();
  const auto model = load_model(context_, folder_.path());
  const TemporaryFolder other;
  save_model(context_, *model, other.path(), DType::bf16);
  const SafetensorsReader file(other.path());
  for (const std::string& name : file.names()) {
    EXPECT_EQ(file.at(name).dtype, DType::bf16) << name;
    EXPECT_FALSE(name.ends_with("_blocks") || name.ends_with("_scales")) << name;
  }
  EXPECT_FALSE(parse_json(read_file(other.path() / "config.json"), "config.json").find("quantization_config"));
  const auto again = load_model(context_, other.path());
  const std::string name = experts + "0.gate_proj.weight";
  EXPECT_EQ(download(context_, param_of(*again, name).value), download(context_, param_of(*model, name).value));
}

// Each edit of the file, and words of the message.
TEST_F(GptOssFiles, DamagedMxfp4IsNamed) {
  static std::vector<uint8_t> bytes(size_t{1} << 16);
  const auto u8 = [&](std::initializer_list<int64_t> dims) {
    return Tensor(bytes.data(), DType::u8, DeviceKind::cpu, dims);
  };
  const std::string blocks = experts + "gate_up_proj_blocks", scales = experts + "gate_up_proj_scales",
                    down = experts + "down_proj_blocks";
  using Edit = std::function<void(Tensors&)>;
  const std::vector<std::pair<Edit, std::string>> cases{
      {[&](Tensors& t) { t.erase(scales); }, "lacks " + scales},
      {[&](Tensors& t) { t.erase(blocks); }, "missing " + blocks},
      {[&](Tensors& t) {
         t[scales] = u8({3, 64, 2});
       },
       "gate_up_proj_scales is [3, 64, 2]"},
      {[&](Tensors& t) {
         t[scales] = u8({3, 63, 1});
       },
       "gate_up_proj_scales is [3, 63, 1]"},
      {[&](Tensors& t) {
         t[blocks] = u8({3, 64, 1, 8});
       },
       "wants [experts, outputs, inputs / 32, 16]"},
      {[&](Tensors& t) {
         t[blocks] = u8({3, 64, 16});
       },
       "gate_up_proj_blocks is [3, 64, 16]"},
      {[&](Tensors& t) {
         t[blocks] = u8({3, 63, 1, 16});
         t[scales] = u8({3, 63, 1});
       },
       "even number"},
      {[&](Tensors& t) { t[blocks].dtype = DType::boolean; }, "wants [experts, outputs, inputs / 32, 16] of u8"},
      {[&](Tensors& t) {
         t[blocks] = u8({3, 64, 2, 16});
         t[scales] = u8({3, 64, 2});
       },
       blocks + " is [3, 64, 2, 16], wants [3, 64, 1, 16]"},
      {[&](Tensors& t) {
         t[blocks] = u8({5, 64, 1, 16});
         t[scales] = u8({5, 64, 1});
       },
       blocks + " is [5, 64, 1, 16], wants [3, 64, 1, 16]"},
      {[&](Tensors& t) {
         t[blocks] = u8({3, 0, 1, 16});
         t[scales] = u8({3, 0, 1});
       },
       "gate_up_proj_blocks is [3, 0, 1, 16]"},
      {[&](Tensors& t) { t[experts + "down_proj"] = t[experts + "down_proj_bias"]; }, "down_proj is [3, 32]"},
      {[&](Tensors& t) { t[experts + "gate_up_proj_bias"] = t[experts + "down_proj_bias"]; },
       experts + "gate_up_proj_bias is [3, 32], wants [3, 64]"}};
  for (const auto& [edit, words] : cases) {
    save_in_mxfp4(edit);
    EXPECT_PRED2(says, refusal(), words);
    EXPECT_PRED2(says, refusal(), folder_.path().string());
  }
}

// A tensor of the file holds all experts: it is named once.
TEST_F(GptOssFiles, MissingAndMisshapenExpertsAreNamedAsInTheFile) {
  save({});
  edit_config({{"intermediate_size", 16}});
  const std::string problem = refusal();
  EXPECT_PRED2(says, problem, experts + "down_proj is [4, 20, 12], wants [4, 16, 12]");
  EXPECT_FALSE(says(problem, experts + "0.")) << problem;
  edit_config({{"intermediate_size", 20}, {"num_local_experts", 5}, {"num_experts", 5}});
  EXPECT_PRED2(says, refusal(), experts + "gate_up_proj is [4, 12, 40], wants [5, 12, 40]");
}

TEST_F(GptOssFiles, TwoFormsOfOneMatrixAreRefused) {
  static std::vector<float> numbers(size_t{3} * 32 * 32);
  save_in_mxfp4([&](Tensors& tensors) {
    tensors[experts + "down_proj"] = Tensor(numbers.data(), DType::f32, DeviceKind::cpu, {3, 32, 32});
  });
  EXPECT_PRED2(says, refusal(), "the file must have one of them");
}

TEST_F(GptOssFiles, OtherQuantizationsAreRefused) {
  save_in_mxfp4();
  edit_config({{"quantization_config", JsonObject{{"quant_method", "awq"}}}});
  EXPECT_PRED2(says, refusal(), "quantization_config.quant_method 'awq' is not supported; supported: mxfp4");
  edit_config({{"quantization_config", 3}});
  EXPECT_PRED2(says, refusal(), "quantization_config is an integer, wants an object");
  edit_config({{"quantization_config", Json()}});
  EXPECT_EQ(refusal(), "loaded");
}

}  // namespace
}  // namespace hone::test
