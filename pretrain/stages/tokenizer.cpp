// Trains a byte-level BPE tokenizer on rows or text files and makes it the run's.
#include "pretrain/corpus.h"
#include "train/stage.h"

namespace hone {
namespace {

class TokenizerStage : public Stage {
 public:
  void fields(Fields& f) override {
    corpus_.fields(f);
    f("vocab_size", options_.vocab_size, "of the tokenizer, special tokens and the 256 bytes included");
    f("special_tokens", options_.special_tokens, "take the first ids; the first is the end of a document");
    f("pattern", options_.pattern, "pre-tokenisation regex; empty = GPT-2's");
    f("min_frequency", options_.min_frequency, "pairs rarer than this are not merged");
    f.require("special_tokens", !options_.special_tokens.empty(),
              "special_tokens needs at least the end-of-document token");
  }
  std::string default_name() const override { return "tokenizer"; }
  bool trains() const override { return false; }
  int64_t vocab_size() const override { return options_.vocab_size; }
  void check(const Recipe&) const override { check_corpus(corpus_); }

  void run(Run& run) override {
    train_tokenizer(corpus_, options_, run.folder / "tokenizer");
    run.tokenizer = Tokenizer::load(run.folder / "tokenizer");
  }

 private:
  CorpusSource corpus_;
  BpeTrainOptions options_{.vocab_size = 4096, .special_tokens = {"<|endoftext|>"}, .pattern = {}};
};

[[maybe_unused]] const bool added =
    stages().add("tokenizer", [] { return std::unique_ptr<Stage>(new TokenizerStage); });

}  // namespace
}  // namespace hone
