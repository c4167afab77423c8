// Trains a byte-level BPE tokenizer on rows or text files. It becomes the tokenizer of the run.
#include "pretrain/corpus.h"
#include "train/stage.h"

namespace hone {
namespace {

class TokenizerStage : public Stage {
 public:
  void fields(Fields& f) override {
    corpus_.fields(f);
    f("vocab_size", options_.vocab_size, "size of the vocabulary, with special tokens and the 256 bytes");
    f("special_tokens", options_.special_tokens,
      "special tokens; they have the first ids, and the first one ends a document (eos)");
    f("pattern", options_.pattern, "regular expression of the pre-tokenizer; empty = GPT-2's");
    f("min_frequency", options_.min_frequency, "least number of occurrences of a pair that is merged");
    f.require("special_tokens", !options_.special_tokens.empty(),
              "special_tokens is empty: give at least the end-of-document token");
  }
  std::string default_name() const override { return "tokenizer"; }
  bool trains() const override { return false; }
  int64_t vocab_size() const override { return options_.vocab_size; }
  std::optional<Tokenizer> untrained_tokenizer() const override {
    const auto no_text = [](std::string&) { return false; };
    const Json config = JsonObject{{"eos_token", options_.special_tokens.at(0)}};
    return Tokenizer::from_json(bpe_tokenizer_json(train_bpe(no_text, options_), options_), "tokenizer stage", config);
  }
  void check(const StageCheck& check) const override {
    check_corpus(corpus_, check.problems);
    check.problems.attempt("vocab_size", [&] { untrained_tokenizer(); });
  }

  void run(StageContext& stage) const override {
    stage.ranks.do_on_first("training of the tokenizer",
                            [&] { train_tokenizer(corpus_, options_, stage.run_folder / "tokenizer"); });
    stage.tokenizer = Tokenizer::load(stage.run_folder / "tokenizer");
  }

 private:
  CorpusSource corpus_;
  BpeTrainOptions options_{.vocab_size = 4096, .special_tokens = {"<|endoftext|>"}, .pattern = {}};
};

[[maybe_unused]] const bool added =
    stages().add("tokenizer", [] { return std::unique_ptr<Stage>(new TokenizerStage); });

}  // namespace
}  // namespace hone
