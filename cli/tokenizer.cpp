// hone tokenizer: trains a tokenizer, or encodes or decodes standard input.
#include "core/text/tokenizer/tokenizer.h"

#include <cstdio>
#include <iostream>
#include <iterator>
#include <sstream>

#include "cli/command.h"
#include "cli/ids.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "pretrain/corpus.h"

namespace hone {
namespace {

class TokenizerCommand : public Command {
 public:
  std::string summary() const override { return "train a tokenizer, or encode or decode standard input"; }
  std::string example() const override {
    return "hone tokenizer train --in stories.jsonl --vocab-size 4096 --out tok\n  echo -n 'Hello' | hone tokenizer "
           "encode --tokenizer tok --json\n  "
           "echo '[15496]' | hone tokenizer decode --tokenizer tok";
  }
  void arguments(Arguments& a) override {
    a.choice("action", action_, {"train", "encode", "decode"}, "what to do: train | encode | decode");
    a.option("tokenizer", tokenizer_, "encode, decode: tokenizer folder or file, or .gguf file");
    a.options("in", corpus_.files, "train: file of rows or plain text (may be repeated)");
    a.option("text-key", corpus_.text_key, "train: column of the text in a file of rows");
    a.option("vocab-size", options_.vocab_size, "train: vocabulary size");
    a.options("special-token", options_.special_tokens,
              "train: special token (may be repeated; the first ends documents); none = <|endoftext|>");
    a.option("pattern", options_.pattern, "train: pre-tokenization regular expression; empty = GPT-2's");
    a.option("out", out_, "train: folder to write");
    a.flag("json", json_, "encode: print the ids as a JSON list");
  }
  int run() override {
    if (action_ == "train") return train();
    require_usage(!tokenizer_.empty(), "tokenizer ", action_, ": --tokenizer is missing");
    const Tokenizer tokenizer = Tokenizer::load(expand_path(tokenizer_));
    const std::string input{std::istreambuf_iterator<char>(std::cin), {}};
    return action_ == "encode" ? encode(tokenizer, input) : decode(tokenizer, input);
  }

 private:
  int train() {
    require_usage(!out_.empty(), "tokenizer train: --out is missing; give a folder");
    require_usage(!corpus_.files.empty(), "tokenizer train: --in is missing; give text files");
    if (options_.special_tokens.empty()) options_.special_tokens = {"<|endoftext|>"};
    train_tokenizer(corpus_, options_, expand_path(out_));
    return 0;
  }
  int encode(const Tokenizer& tokenizer, const std::string& input) const {
    const std::vector<int32_t> ids = tokenizer.encode(input);
    if (json_) {
      std::printf("%s\n", Json::array(ids).dump().c_str());
      return 0;
    }
    for (size_t i = 0; i < ids.size(); ++i) std::printf(i ? " %d" : "%d", ids[i]);
    std::printf("\n");
    return 0;
  }
  // Input: a JSON list of ids, or ids separated by white space.
  static int decode(const Tokenizer& tokenizer, const std::string& input) {
    std::vector<int32_t> ids;
    if (const size_t first = input.find_first_not_of(" \t\r\n"); first != std::string::npos && input[first] == '[') {
      ids = parse_ids(parse_json(input, "standard input"), tokenizer.vocab_size(), "standard input");
    } else {
      std::istringstream words(input);
      for (std::string word; words >> word;) {
        const Json id = parse_json(word, "standard input");
        ids.push_back(static_cast<int32_t>(parse_ids(JsonArray{id}, tokenizer.vocab_size(), "standard input").front()));
      }
    }
    const std::string text = tokenizer.decode(ids);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;
  }
  std::string action_, tokenizer_, out_;
  CorpusSource corpus_;
  BpeTrainOptions options_{.vocab_size = 4096, .special_tokens = {}, .pattern = {}};
  bool json_ = false;
};

[[maybe_unused]] const bool added =
    commands().add("tokenizer", [] { return std::unique_ptr<Command>(new TokenizerCommand); });

}  // namespace
}  // namespace hone
