#pragma once
// ModelArguments: options shared by the commands that load a model or generate.
#include <memory>
#include <optional>
#include <string>

#include "cli/command.h"
#include "core/text/chat_settings.h"
#include "core/text/tokenizer/tokenizer.h"
#include "model/model.h"
#include "rollout/engine.h"

namespace hone {

// --model, --device, --dtype and --numerics, and after open() the objects that they specify.
class ModelArguments {
 public:
  // required: the parser demands --model; otherwise open() does.
  void arguments(Arguments& a, bool required = true);
  // --chat-template and --chat-template-kwargs, which open() applies to the tokenizer.
  void chat_arguments(Arguments& a);
  // Loads the model, and the tokenizer if the folder has one.
  void open();
  Context& context() { return *context_; }
  Model& model() const { return *model_; }
  bool has_tokenizer() const { return tokenizer_.has_value(); }
  const std::string& folder() const { return folder_; }
  const std::string& dtype_name() const { return dtype_; }
  const std::string& numerics_name() const { return numerics_; }
  // What chat_arguments() gave. Throws UsageError if --chat-template-kwargs is no JSON object.
  ChatSettings chat_settings() const;
  // Throws if the folder has none.
  const Tokenizer& tokenizer() const;

 private:
  bool use_long_rope_ = false;
  std::string chat_template_, chat_template_kwargs_;
  std::string folder_, device_name_ = "auto", dtype_ = "auto", numerics_ = "exact";
  std::unique_ptr<Device> device_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<Model> model_;
  std::optional<Tokenizer> tokenizer_;
};

// Options for the engine's arithmetic.
void quantization_arguments(Arguments& a, EngineConfig& engine);
// Options for sampling.
void sampling_arguments(Arguments& a, SamplingParams& sampling);
// Options of structured output. Schemas and grammars are files or the text itself: read_structured_files() reads the
// files.
void structured_arguments(Arguments& a, StructuredOutput& structured);
void read_structured_files(StructuredOutput& structured);
// Options for speculative decoding, which changes the speed and never a completion.
void speculative_arguments(Arguments& a, SpeculativeConfig& speculative);

}  // namespace hone
