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

#include "core/base/check.h"
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

// An Error about the tensors of a section, not its values: load_sections() names their file.
class SectionTensorError : public Error {
 public:
  using Error::Error;
};

// An object whose state a resumed run restores.
class Stateful {
 public:
  virtual ~Stateful() = default;
  virtual void save_state(StateSection& section) const = 0;
  // The tensors are valid during the call only. Throws an Error that names the member that does not fit.
  virtual void load_state(const StateSection& section) = 0;
};

// The writer of a file with a part of a section's tensors.
struct SectionPart {
  int index = 0, count = 1;
};

// Writes root/step-<step> in steps, which may belong to several writers: one begins; then each may write files and
// parts of sections at the same time; then one commits. A writer that was destroyed or killed before that leaves a
// temporary folder, which no reader takes for a checkpoint. Earlier checkpoints are unchanged until commit().
class CheckpointWriter {
 public:
  CheckpointWriter(std::filesystem::path root, int64_t step);
  // Removes what killed saves left, and makes the temporary folder.
  void begin() const;
  const std::filesystem::path& folder() const { return folder_; }        // of the complete checkpoint
  const std::filesystem::path& temporary() const { return temporary_; }  // for the model files
  // Writes trainer/NAME.json and trainer/NAME.safetensors. A part of several has the tensors of this owner alone, in
  // trainer/NAME-00001-of-00004.safetensors, and part 0 has the values.
  void write_section(const std::string& name, const Stateful& owner, SectionPart part = {}) const;
  // Lists the files, renames the folder, and removes old checkpoints: it keeps the newest keep_last (0 = all) and those
  // with a file named "keep". Returns the folder.
  std::filesystem::path commit(int keep_last) const;
  // Removes the temporary folder and throws an Error that says so. cause: what went wrong.
  [[noreturn]] void give_up(const std::string& cause) const;

 private:
  std::filesystem::path root_, folder_, temporary_;
};

// All steps by one writer. `fill` writes the model files into the temporary folder that it gets. On failure (disk full)
// it gives up.
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
// trainer/NAME-00001-of-00004.safetensors and so on. Throws Error if a section or a part is missing, or if an owner
// refuses its section: the message names the file with what it refuses.
void load_sections(const std::filesystem::path& folder, const std::map<std::string, Stateful*>& sections);

}  // namespace hone
