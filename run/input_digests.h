#pragma once
// Digests of the files that a run starts from and that its folder does not hold: the model, its config, the tokenizer.
// They may move while a run is half done. Other contents would make another run: the reference of the first stage is
// read from them again.
#include "core/io/json.h"
#include "run/recipe.h"

namespace hone {

// An object with those of "model.path", "model.config", "tokenizer" and files of chat templates that the recipe has and
// that exist: a run that needs a missing one says so by itself. Weights are sampled, at most 256 KiB of each file: this
// notices a mistake, not an attack.
Json input_digests(const Recipe& recipe);

}  // namespace hone
