#pragma once
// A StageContext on a temporary folder.
#include "train/stage.h"

namespace hone::test {

struct StageFixture {
  StageFixture(Context& context, const std::filesystem::path& folder) : log(folder) {
    stage = std::make_unique<StageContext>(StageContext{.context = context,
                                                        .log = log,
                                                        .tokenizer = tokenizer,
                                                        .model = model,
                                                        .run_folder = folder,
                                                        .checkpoints = folder / "checkpoints" / "stage",
                                                        .name = "stage"});
  }
  MetricsLog log;
  std::optional<Tokenizer> tokenizer;
  std::unique_ptr<Model> model;
  std::unique_ptr<StageContext> stage;
};

}  // namespace hone::test
