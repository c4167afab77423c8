#pragma once
// What every command that loads a model folder shares.
#include <memory>
#include <optional>
#include <string>

#include "cli/command.h"
#include "core/text/tokenizer/tokenizer.h"
#include "model/model.h"
#include "rollout/engine.h"

namespace hone {

// --model, --device, --dtype and --numerics, and what they stand for once opened.
class ModelArguments {
 public:
  // required: that --model be given; otherwise open() asks for it.
  void arguments(Arguments& a, bool required = true);
  // Loads the model, and the tokenizer where the folder has one.
  void open();
  Context& context() { return *context_; }
  Model& model() const { return *model_; }
  bool has_tokenizer() const { return tokenizer_.has_value(); }
  const std::string& folder() const { return folder_; }
  // An Error if the folder has none.
  const Tokenizer& tokenizer() const;

 private:
  std::string folder_, device_name_ = "auto", dtype_ = "auto", numerics_ = "exact";
  std::unique_ptr<Device> device_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<Model> model_;
  std::optional<Tokenizer> tokenizer_;
};

// The options that decide which numbers an engine computes with.
void quantization_arguments(Arguments& a, EngineConfig& engine);
// The options that decide how replies are drawn.
void sampling_arguments(Arguments& a, SamplingParams& sampling);
// The options that decide how tokens are guessed ahead; they change no reply.
void speculative_arguments(Arguments& a, SpeculativeConfig& speculative);

}  // namespace hone
