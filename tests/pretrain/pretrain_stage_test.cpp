// The stage `pretrain` on small corpora: it trains on what there is, or says what is missing.
#include <gtest/gtest.h>

#include "core/config/config.h"
#include "core/io/file.h"
#include "pretrain/corpus.h"
#include "tests/model/tiny_model.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"
#include "tests/train/stage_context.h"

namespace hone::test {
namespace {

// A stage of two steps on the rows of a JSON Lines file, with windows of 64 tokens or documents of at most as many.
class PretrainStage : public ::testing::Test {
 protected:
  std::string run(const std::string& rows, const std::string& packing) {
    const TemporaryFolder folder;
    const std::string file = (folder.path() / "corpus.jsonl").string();
    write_file_atomic(file, rows);
    train_tokenizer({.files = {file}, .generator = {}}, {.vocab_size = 257, .special_tokens = {"<|end|>"}},
                    folder.path() / "tokenizer");
    StageFixture fixture(context_, folder.path());
    fixture.tokenizer = Tokenizer::load(folder.path() / "tokenizer");
    fixture.model = make_tiny(context_, with(tiny_config("llama"), {{"vocab_size", 257}}));
    const std::unique_ptr<Stage> stage = stages().at("pretrain")();
    Config::from_text(
        concat("files = ['", file, "']\npacking = '", packing, "'\nmax_length = 64\nbatch_size = 2\nsteps = 2\n"),
        "recipe.toml")
        .read([&](Fields& f) { stage->fields(f); });
    return error_of([&] { stage->run(*fixture.stage); });
  }

  std::unique_ptr<Device> device_ = cpu_device();
  Context context_{*device_};
};

const std::string few = "{\"text\": \"abcdef\"}\n{\"text\": \"gh\"}\n";  // 7 and 3 tokens with eos

TEST_F(PretrainStage, ShortDocumentsAreTrainedOn) { EXPECT_EQ(run(few, "documents"), "no error"); }

TEST_F(PretrainStage, ACorpusOfLessThanAWindowSaysWhatItHas) {
  EXPECT_EQ(run(few, "windows"),
            "pretrain: the corpus has 10 tokens, fewer than one window of max_length = 64; lower max_length, give it "
            "more text, or set packing to \"documents\"");
}

TEST_F(PretrainStage, DocumentsWithoutATokenToPredictSayWhatTheyHave) {
  EXPECT_EQ(
      run("{\"text\": \"\"}\n{\"text\": \"\"}\n", "documents"),
      "pretrain: the corpus has 2 documents with 2 tokens, and a sequence needs a document of 2 tokens or more, its "
      "end included; give it more text");
}

}  // namespace
}  // namespace hone::test
