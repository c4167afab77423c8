// Trains a byte-level BPE tokenizer on rows or text files and makes it the run's.
#include "core/bpe_train.h"
#include "core/file.h"
#include "core/log.h"
#include "posttrain/corpus.h"
#include "posttrain/stage.h"

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
    f.require("special_tokens", !options_.special_tokens.empty(), "special_tokens needs at least the end-of-document token");
  }
  std::string default_name() const override { return "tokenizer"; }
  bool trains() const override { return false; }
  void check(const Recipe&) const override { check_corpus(corpus_); }

  void run(Run& run) override {
    const BpeTrainResult result = train_bpe(corpus_reader(corpus_), options_);
    Json json = bpe_tokenizer_json(result, options_);
    const std::filesystem::path folder = run.folder / "tokenizer";
    make_folder(folder);
    write_file_atomic(folder / "tokenizer.json", json.dump() + "\n");
    write_file_atomic(folder / "tokenizer_config.json", Json(JsonObject{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"eos_token", options_.special_tokens[0]}}).dump(2) + "\n");
    run.tokenizer = Tokenizer::load(folder);
    log::info("tokenizer: ", run.tokenizer->vocab_size(), " tokens, ", result.merges.size(), " merges");
  }

 private:
  CorpusSource corpus_;
  BpeTrainOptions options_{.vocab_size = 4096, .special_tokens = {"<|endoftext|>"}, .pattern = {}};
};

[[maybe_unused]] const bool added = stages().add("tokenizer", [] { return std::unique_ptr<Stage>(new TokenizerStage); });

}  // namespace
}  // namespace hone
