#pragma once
// Fixture for tests of model folders: saves tiny models, edits their files, and says why they are refused.
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "tests/model/tiny_model.h"

namespace hone::test {

// A folder's tensors in memory, to be changed and written back.
struct Stored {
  std::vector<char> bytes;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
};
using Store = std::map<std::string, Stored>;

class ModelIoTest : public testing::Test {
 protected:
  std::unique_ptr<Model> save(const std::string& family, const JsonObject& changes = {}) {
    auto model = make_tiny(context_, with(tiny_config(family), changes), false);
    save_model(context_, *model, folder(), DType::f32);
    return model;
  }
  const std::filesystem::path& folder() const { return folder_.path(); }
  Store read() {
    Store out;
    const SafetensorsReader file(folder());
    for (const std::string& name : file.names()) {
      const Tensor tensor = file.at(name);
      const char* data = static_cast<const char*>(tensor.data);
      out[name] = {{data, data + tensor.bytes()}, tensor.dtype, {tensor.dims().begin(), tensor.dims().end()}};
    }
    return out;
  }
  void write(const Store& store, uint64_t max_shard_bytes = uint64_t{1} << 30) {
    std::filesystem::remove(folder() / "model.safetensors");
    std::vector<NamedTensor> tensors;
    for (const auto& [name, stored] : store) tensors.push_back({name, view(stored)});
    write_safetensors(folder() / "model.safetensors", tensors, {}, max_shard_bytes);
  }
  static Tensor view(const Stored& stored) {
    return Tensor(const_cast<char*>(stored.bytes.data()), stored.dtype, DeviceKind::cpu, stored.shape);
  }
  void edit_config(const JsonObject& changes) {
    const auto path = folder() / "config.json";
    write_file_atomic(path, with(parse_json(read_file(path), "config.json"), changes).dump());
  }
  std::string refusal() {
    try {
      load_model(context_, folder());
    } catch (const Error& error) {
      return error.what();
    }
    return "loaded";
  }
  static std::string refusal_of(const Json& config) {
    try {
      make_model(config, "test.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "made";
  }

  std::unique_ptr<Device> device_ = cpu_device();
  Context context_{*device_};
  TemporaryFolder folder_;
};

}  // namespace hone::test
