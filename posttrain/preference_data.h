#pragma once
// Reads rows of preferences. A prompt is the text of a template. It is a list of messages if the template is one {name}
// of a list, or if the row has `messages`. Completions are text or messages, too. If chosen and rejected are complete
// conversations without a separate prompt, the messages that both begin with are the prompt.
#include "data/dataset.h"

namespace hone {

struct PreferenceSource {
  RowSource rows;
  std::string prompt = "{prompt}", chosen = "{chosen}", rejected = "{rejected}";
  std::string margin;  // template of a number, the pair's margin column; only the reward model stage has the key
  SampleFormat sample;
  void fields(Fields& f);
  void source_fields(Fields& f);  // those that each source of a stage may have: all but lengths
};
// Groups of two samples: chosen, rejected.
std::vector<Group> load_preferences(const PreferenceSource& source, const Tokenizer& tokenizer);

// Rows of single completions, each desirable or not. A row with chosen and rejected but no label is two completions. If
// a row has `messages`, the last message is the completion.
struct UnpairedSource {
  RowSource rows;
  std::string prompt = "{prompt}", completion = "{completion}", label = "{label}";
  SampleFormat sample;
  void fields(Fields& f);
  void source_fields(Fields& f);
};
// Groups of two samples. The first is the completion, with reward 1 (desirable) or 0. The second is the same prompt
// with the completion of another group, cut to max_length: the nearest group before it that has another prompt, where
// the last group comes before the first.
std::vector<Group> load_unpaired(const UnpairedSource& source, const Tokenizer& tokenizer);

}  // namespace hone
