#pragma once
// A small model of random weights with a tokenizer of bytes.
#include <filesystem>
#include <memory>

#include "core/text/chat.h"
#include "model/model.h"
#include "tests/core/text/tokenizer/byte_tokenizer.h"

namespace hone::test {

struct TinyModel {
  TinyModel()
      : device(devices().at("cpu")(0)),
        context(*device),
        tokenizer(byte_tokenizer()),
        chat(ChatFormat::make("chatml", tokenizer)) {
    model = make_model(JsonObject{{"model_type", "llama"},
                                  {"hidden_size", 32},
                                  {"intermediate_size", 48},
                                  {"num_hidden_layers", 2},
                                  {"num_attention_heads", 4},
                                  {"num_key_value_heads", 2},
                                  {"vocab_size", 258},
                                  {"max_position_embeddings", 512},
                                  {"rms_norm_eps", 1e-5},
                                  {"initializer_range", 0.3},
                                  {"hidden_act", "silu"},
                                  {"tie_word_embeddings", false}},
                       "test");
    model->allocate(context, DType::f32, false);
    model->initialize(context, 5);
  }
  // Writes a model folder.
  void save(const std::filesystem::path& folder) {
    save_model(context, *model, folder, DType::f32);
    tokenizer.save(folder);
  }

  std::unique_ptr<Device> device;
  Context context;
  std::unique_ptr<Model> model;
  Tokenizer tokenizer;
  ChatFormat chat;
};

}  // namespace hone::test
