// Next-token training on a corpus.
#include <algorithm>
#include <optional>

#include "core/io/jsonl.h"
#include "pretrain/corpus.h"
#include "pretrain/token_loader.h"
#include "train/loop.h"
#include "train/parallel/zero.h"
#include "train/shown_sample.h"
#include "train/stage.h"

namespace hone {
namespace {

class Pretrain : public Stage {
 public:
  void fields(Fields& f) override {
    corpus_.fields(f);
    f("max_length", max_length_, "longest sequence in tokens");
    f("packing", packing_,
      "windows: every max_length tokens of the corpus are a sequence; tokens after the last whole window are not used "
      "| documents: each document of 2 tokens or more is a sequence, truncated to max_length");
    f("batch_size", batch_size_, "sequences per optimizer step");
    loop_.fields(f);
    f.require("packing", packing_ == "windows" || packing_ == "documents", "packing must be windows or documents");
    f.require("max_length", max_length_ >= 2 && max_length_ <= max_sample_length,
              concat("max_length must be in [2, ", max_sample_length, "]"));
    f.require("batch_size", batch_size_ > 0 && batch_size_ <= max_step_samples,
              concat("batch_size must be in [1, ", max_step_samples, "]"));
  }
  std::string default_name() const override { return "pretrain"; }
  bool trains_adapters() const override { return false; }
  int64_t steps() const override { return loop_.steps; }
  std::vector<std::string> warnings() const override { return loop_.warnings(); }
  PlannedStep planned_step(const ModelShape&, const Tokenizer*) const override {
    return {.sequences = batch_size_,
            .length = max_length_,
            .equal_lengths = packing_ == "windows",
            .objective = objective_,
            .trainer = &loop_.trainer,
            .evaluates = loop_.eval_steps > 0};
  }
  // Windows or documents in the order of the corpus; training draws them in another order.
  std::vector<ShownSample> show(const ShowRequest& request) const override {
    const TokenFile tokens = first_tokens(request);
    const bool by_document = packing_ == "documents";
    const int64_t count = by_document ? tokens.num_documents() : tokens.num_tokens() / max_length_;
    check_size(tokens);
    std::vector<ShownSample> out;
    for (int64_t i = 0; i < count && std::ssize(out) < request.rows; ++i) {
      ShownSample shown{.where = concat(by_document ? "document " : "window ", i + 1),
                        .part = {},
                        .sample = by_document ? read_document(tokens, i) : read_window(tokens, max_length_, i),
                        .roles = {}};
      if (shown.sample.tokens.empty()) continue;
      shown.roles.assign(shown.sample.tokens.size(), TokenRole::text);
      shown.full_length = by_document ? document_length(tokens, i) : max_length_;
      out.push_back(std::move(shown));
    }
    return out;
  }
  // A resumed stage reads the tokens that it wrote, and the corpus may be gone.
  void check(const StageCheck& check) const override {
    if (std::filesystem::exists(token_file_path(data_folder(check.run_folder, check.name)))) return;
    check_corpus(corpus_, check.problems);
  }

  void run(StageContext& stage) const override {
    const TokenFile tokens(stage.ranks.on_first("tokens of the corpus", [&] {
      return tokenize_corpus(corpus_, *stage.tokenizer, data_folder(stage.run_folder, stage.name)).string();
    }));
    HONE_CHECK(tokens.vocab_size() <= stage.model->shape().vocab_size, "pretrain: the corpus has ids up to ",
               tokens.vocab_size(), ", the model's vocabulary is ", stage.model->shape().vocab_size);
    LoopConfig loop = loop_;
    loop.trainer.micro_batch_multiple = stage.micro_batch_multiple;
    const std::unique_ptr<StepExchange> exchange = make_exchange(stage.ranks, stage.zero);
    Trainer trainer(stage.context, *stage.model, loop.trainer, exchange.get());
    const uint64_t seed = stage.data_seed;
    const bool by_document = packing_ == "documents";
    check_size(tokens);
    std::optional<TokenLoader> windows;
    std::optional<IndexLoader> documents;
    if (by_document)
      documents.emplace(tokens.num_documents(), seed);
    else
      windows.emplace(tokens, max_length_, seed);
    std::vector<Sample> samples(static_cast<size_t>(batch_size_));
    std::vector<const Sample*> batch;
    for (const Sample& sample : samples) batch.push_back(&sample);
    Stateful* loader = by_document ? static_cast<Stateful*>(&*documents) : &*windows;
    const double steps_per_epoch = static_cast<double>(by_document ? usable_documents(tokens) : windows->count()) /
                                   static_cast<double>(batch_size_);
    loop.steps = loop_.num_steps(steps_per_epoch);
    train_loop(stage, loop, trainer, {{"loader", loader}}, [&](int64_t step, double learning_rate) {
      const Rollback undo(*loader);
      for (Sample& sample : samples) sample = by_document ? next_document(tokens, *documents) : windows->next();
      StepReport report = trainer.step(batch, *objective_, learning_rate);
      report.metrics["epoch"] = static_cast<double>(step + 1) / steps_per_epoch;
      return report;
    });
  }

 private:
  static std::filesystem::path data_folder(const std::filesystem::path& run_folder, const std::string& name) {
    return run_folder / "data" / name;
  }
  // Counts the documents of at least two tokens; shorter ones have nothing to predict.
  static int64_t usable_documents(const TokenFile& tokens) {
    int64_t out = 0;
    for (int64_t i = 0; i < tokens.num_documents(); ++i)
      out += tokens.document_start(i + 1) - tokens.document_start(i) >= 2;
    return out;
  }
  // Throws an Error if the corpus has no sequence.
  void check_size(const TokenFile& tokens) const {
    if (packing_ == "documents")
      HONE_CHECK(usable_documents(tokens) > 0, "pretrain: the corpus has ", tokens.num_documents(), " documents with ",
                 tokens.num_tokens(),
                 " tokens, and a sequence needs a document of 2 tokens or more, its end included; ",
                 "give it more text");
    else
      HONE_CHECK(tokens.num_tokens() >= max_length_, "pretrain: the corpus has ", tokens.num_tokens(),
                 " tokens, fewer than one window of max_length = ", max_length_,
                 "; lower max_length, give it more text, or set packing to \"documents\"");
  }
  static int64_t document_length(const TokenFile& tokens, int64_t document) {
    return tokens.document_start(document + 1) - tokens.document_start(document);
  }
  // Empty if the document has fewer than two tokens.
  Sample read_document(const TokenFile& tokens, int64_t document) const {
    Sample out;
    const int64_t length = std::min(document_length(tokens, document), max_length_);
    if (length < 2) return out;
    out.tokens.resize(static_cast<size_t>(length));
    tokens.read(tokens.document_start(document), out.tokens);
    set_mask(out);
    return out;
  }
  Sample next_document(const TokenFile& tokens, IndexLoader& order) const {
    for (;;)
      if (Sample out = read_document(tokens, order.next()); !out.tokens.empty()) return out;
  }

  // Tokenizes as many documents as the first `rows` samples need.
  TokenFile first_tokens(const ShowRequest& request) const {
    const std::filesystem::path documents = request.scratch / "documents.jsonl", out = request.scratch / "tokens.bin";
    const bool by_document = packing_ == "documents";
    const int64_t wanted = by_document ? request.rows : request.rows * max_length_;
    const auto next = corpus_reader(corpus_);
    JsonlWriter file(documents);
    int64_t found = 0;
    for (std::string text; found < wanted && next(text);) {
      const int64_t length = std::ssize(request.tokenizer.encode(text)) + 1;  // with eos
      found += by_document ? length >= 2 : length;
      file.write(JsonObject{{"text", text}});
    }
    file.flush();
    write_token_file(out, std::vector<std::string>{documents.string()}, "text", request.tokenizer);
    return TokenFile(out);
  }

  CorpusSource corpus_;
  int64_t max_length_ = 256, batch_size_ = 32;
  std::string packing_ = "windows";
  std::shared_ptr<Objective> objective_ = make_objective("sft");
  LoopConfig loop_;
};

[[maybe_unused]] const bool added = stages().add("pretrain", [] { return std::unique_ptr<Stage>(new Pretrain); });

}  // namespace
}  // namespace hone
