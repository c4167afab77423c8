#pragma once
// Checkpoints. A checkpoint is a Hugging Face model folder (config.json, model.safetensors, tokenizer.json, ...) with
// trainer/ for all other state, and manifest.json {"files": {name: {bytes, crc32}}}. It is written as NAME.tmp,
// flushed, listed in the manifest and renamed. So a folder named step-N is complete, or its damage is detected.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "core/io/safetensors.h"

namespace hone {

// One object's part of a checkpoint: small values as JSON, arrays as tensors. The owner names it ("optimizer",
// "loader").
struct StateSection {
  Json values = JsonObject{};
  // On the host. While saving, the owner keeps the bytes alive. While loading, each is aligned for its type.
  std::vector<NamedTensor> tensors;
};

// An object whose state a resumed run restores.
class Stateful {
 public:
  virtual ~Stateful() = default;
  virtual void save_state(StateSection& section) const = 0;
  // The tensors are valid during the call only. Throws an Error that names the member that does not fit.
  virtual void load_state(const StateSection& section) = 0;
};

// Writes root/step-<step> and returns it. `fill` writes the model files into the temporary folder that it gets;
// sections go to trainer/<name>.json and trainer/<name>.safetensors. Keeps the newest keep_last checkpoints (0 = all),
// and those with a file named "keep". On failure (disk full) it removes the temporary folder; earlier checkpoints are
// unchanged.
std::filesystem::path save_checkpoint(const std::filesystem::path& root, int64_t step, int keep_last,
                                      const std::function<void(const std::filesystem::path&)>& fill,
                                      const std::map<std::string, const Stateful*>& sections);

// Steps of the checkpoints under root, ascending; temporaries do not count.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& root);

// Throws an Error that names the first missing, short or altered file.
void verify_checkpoint(const std::filesystem::path& folder);

// The newest checkpoint under root that verifies; empty if there is none. A warning names each damaged one it skips.
std::filesystem::path newest_checkpoint(const std::filesystem::path& root);

// Loads every section. Tensors are read from trainer/NAME.safetensors, or from the parts of several ranks:
// trainer/NAME-00001-of-00004.safetensors and so on. Throws Error if a section or a part is missing.
void load_sections(const std::filesystem::path& folder, const std::map<std::string, Stateful*>& sections);

}  // namespace hone
