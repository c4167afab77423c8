#pragma once
// A tiny model under training, and samples for it.
#include "tests/model/tiny_model.h"
#include "train/trainer.h"

namespace hone::test {

inline std::vector<float> weights_of(const Model& model) {
  const std::span<float> values = model.flat_values().as<float>();
  return {values.begin(), values.end()};
}

// Random sequences, trained on past a prompt of two tokens (of one where there are but two).
inline std::vector<Sample> make_samples(std::span<const size_t> lengths) {
  std::vector<Sample> out;
  for (size_t i = 0; i < lengths.size(); ++i) {
    Sample& sample = out.emplace_back();
    sample.tokens = random_tokens(lengths[i], 19, static_cast<uint32_t>(i + 1));
    sample.columns.assign(columns::mask, lengths[i], 1);
    sample.columns[columns::mask][0] = 0;
    if (lengths[i] > 2) sample.columns[columns::mask][1] = 0;
  }
  return out;
}

inline std::vector<const Sample*> pointers(const std::vector<Sample>& samples) {
  std::vector<const Sample*> out;
  for (const Sample& sample : samples) out.push_back(&sample);
  return out;
}

struct Rig {
  explicit Rig(TrainerConfig config = {}, const std::string& family = "llama", const LoraConfig& lora = {})
      : context(*device),
        model(make_tiny(context, tiny_config(family), true, lora)),
        trainer(context, *model, std::move(config)) {}
  std::unique_ptr<Device> device = cpu_device();
  Context context;
  std::unique_ptr<Model> model;
  Trainer trainer;
};

}  // namespace hone::test
