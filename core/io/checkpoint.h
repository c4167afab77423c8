#pragma once
// What a resumable run saves. A checkpoint is a folder: a Hugging Face model folder (config.json, model.safetensors,
// tokenizer.json, ...) with trainer/ inside for everything else, and manifest.json {"files": {name: {bytes, crc32}}}.
// It is written as NAME.tmp, flushed, checked off in the manifest and renamed, so a folder named step-N is whole or
// detectably damaged.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "core/io/safetensors.h"

namespace hone {

// A stateful object's part of a checkpoint: small values as JSON, arrays as tensors. Sections are named by their owner
// ("optimizer", "loader").
struct StateSection {
  Json values = JsonObject{};
  std::vector<NamedTensor>
      tensors;  // host; when saving the owner keeps the bytes alive; when loading each is aligned for its type
};

// Anything that a resumed run must find as it was.
class Stateful {
 public:
  virtual ~Stateful() = default;
  virtual void save_state(StateSection& section) const = 0;
  // The Error of a section that does not fit says which member. The tensors live only during the call.
  virtual void load_state(const StateSection& section) = 0;
};

// Writes root/step-<step>: `fill` writes the model files into the (temporary) folder it is given, then the sections go
// to trainer/<name>.json and trainer/<name>.safetensors. Keeps the newest keep_last (0 = all); folders marked by a file
// named "keep" stay. If anything fails (disk full) the temporary folder is removed and earlier checkpoints are
// untouched. Returns the folder.
std::filesystem::path save_checkpoint(const std::filesystem::path& root, int64_t step, int keep_last,
                                      const std::function<void(const std::filesystem::path&)>& fill,
                                      const std::map<std::string, const Stateful*>& sections);

// Steps of the checkpoints under root, ascending; temporaries do not count.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& root);

// An Error names the first file that is missing, short or altered.
void verify_checkpoint(const std::filesystem::path& folder);

// The newest folder under root that verifies (a torn one is refused by name in a warning, and the one before is used);
// empty if there is none.
std::filesystem::path newest_checkpoint(const std::filesystem::path& root);

// Loads every section; one that is missing is an Error.
void load_sections(const std::filesystem::path& folder, const std::map<std::string, Stateful*>& sections);

}  // namespace hone
