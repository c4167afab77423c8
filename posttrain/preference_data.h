#pragma once
// Rows of preferences. A prompt is a template's text; or messages, where the template is one {name} of a list or the
// row has `messages`. Completions are text or messages, too; whole conversations without a prompt of their own share
// the messages they begin with.
#include "data/dataset.h"

namespace hone {

struct PreferenceSource {
  RowSource rows;
  std::string prompt = "{prompt}", chosen = "{chosen}", rejected = "{rejected}";
  std::string margin;  // template of a number, the pair's margin column; a key of the reward model's stage alone
  SampleFormat sample;
  void fields(Fields& f);
};
// Groups of two samples: chosen, rejected.
std::vector<Group> load_preferences(const PreferenceSource& source, const Tokenizer& tokenizer);

// Completions that are each desirable or not. A row of a pair (chosen and rejected, no label) is two of them. The
// completion of `messages` is the last message.
struct UnpairedSource {
  RowSource rows;
  std::string prompt = "{prompt}", completion = "{completion}", label = "{label}";
  SampleFormat sample;
  void fields(Fields& f);
};
// Groups of two samples: the completion, with reward 1 (desirable) or 0; and the same prompt with the completion of the
// nearest group before it (around the start to the end) that has another prompt, cut to max_length.
std::vector<Group> load_unpaired(const UnpairedSource& source, const Tokenizer& tokenizer);

}  // namespace hone
