#pragma once
// Digests of the files that a run starts from and that its folder does not hold: the model, its config, the tokenizer,
// the rows of its stages. They may move while a run is half done. Other contents would make another run: the reference
// of the first stage and the rows of the current one are read from them again.
#include "core/io/json.h"
#include "run/recipe/recipe.h"

namespace hone {

// An object with those of "model.path", "model.config", "tokenizer" and files of chat templates that the recipe has and
// that exist: a run that needs a missing one says so by itself. Weights are sampled, at most 256 KiB of each file: this
// notices a mistake, not an attack.
Json input_digests(const Recipe& recipe);

// The files of rows that a stage reads: a list of digests, in the order of reading, for each of the keys
// "stage.NAME.files", "stage.NAME.eval_files" and "stage.NAME.source.0.files". They cover all bytes. Nothing of a key
// with a file that does not exist or is no regular one. A stage without a prompt format (pretrain) has none: resumed,
// it reads the token file that it wrote.
Json row_digests(const StageSpec& spec);
// Throws an Error with the key and the file if the rows of a stage are no longer those of `began`, the digests of
// run.json. where: begins the message.
void check_same_rows(const StageSpec& spec, const Json& began, const std::string& where);

}  // namespace hone
