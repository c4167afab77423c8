// hone quant-error: the error of quantized weights and KV caches on given texts.
#include <cstdio>

#include "cli/command.h"
#include "cli/ids.h"
#include "cli/model_arguments.h"
#include "core/io/rows/rows.h"
#include "rollout/quantization_error.h"

namespace hone {
namespace {

// An engine's arithmetic that differs from the model's own.
struct Arithmetic {
  const char *quantization, *kv_cache_dtype;
};
constexpr Arithmetic arithmetics[] = {
    {"int8", "auto"}, {"fp8", "auto"}, {"none", "fp8"}, {"int8", "fp8"}, {"fp8", "fp8"}};

class QuantErrorCommand : public Command {
 public:
  std::string summary() const override {
    return "measure the error of int8 and fp8 weights and KV caches on given texts";
  }
  std::string example() const override { return "hone quant-error --model DIR --in texts.jsonl"; }
  std::string old_name() const override { return "quantization"; }
  void arguments(Arguments& a) override {
    model_.arguments(a);
    a.option("in", in_, "texts: file of rows {text} or {ids}; - = standard input", true);
    a.option("max-length", max_length_,
             "use only this many first tokens of each text; 0 = up to the model's positions");
    a.flag("json", json_, "print one JSON object per kind of arithmetic");
  }
  int run() override {
    require_usage(max_length_ == 0 || max_length_ > 1, "quant-error: --max-length is ", max_length_,
                  "; it must be 0, or 2 or more");
    model_.open();
    const int64_t positions = model_.model().shape().max_positions;
    const auto length = static_cast<size_t>(max_length_ == 0 ? positions : std::min(max_length_, positions));
    std::vector<std::vector<int32_t>> sequences;
    each_row(in_, [&](const Json& row, const std::string& where) {
      const Json* ids = row.find("ids");
      std::vector<int32_t> sequence = ids ? parse_ids(*ids, model_.model().shape().vocab_size, where)
                                          : model_.tokenizer().encode_document(row.at("text", where).as_string(where));
      HONE_CHECK(!sequence.empty(), where, ": the text has no tokens");
      sequence.resize(std::min(sequence.size(), length));
      sequences.push_back(std::move(sequence));
    });
    if (!json_)
      std::printf("%-12s %-8s %8s %12s %12s %12s %9s %11s %11s\n", "quantization", "kv cache", "tokens", "max |dlogp|",
                  "mean |dlogp|", "KL", "same top", "perplexity", "quantized");
    for (const Arithmetic& arithmetic : arithmetics) {
      EngineConfig config;
      config.quantization = arithmetic.quantization;
      config.kv_cache_dtype = arithmetic.kv_cache_dtype;
      print(arithmetic, quantization_error(model_.context(), model_.model(), config, sequences));
    }
    return 0;
  }

 private:
  void print(const Arithmetic& arithmetic, const QuantizationError& error) const {
    if (json_)
      std::printf("%s\n", Json(JsonObject{{"quantization", arithmetic.quantization},
                                          {"kv_cache_dtype", arithmetic.kv_cache_dtype},
                                          {"tokens", error.tokens},
                                          {"max_difference", error.max_difference},
                                          {"mean_difference", error.mean_difference},
                                          {"kl", error.kl},
                                          {"same_top", error.same_top},
                                          {"perplexity", error.perplexity},
                                          {"engine_perplexity", error.engine_perplexity}})
                              .dump()
                              .c_str());
    else
      std::printf("%-12s %-8s %8lld %12.3g %12.3g %12.3g %8.2f%% %11.4f %11.4f\n", arithmetic.quantization,
                  arithmetic.kv_cache_dtype, static_cast<long long>(error.tokens), error.max_difference,
                  error.mean_difference, error.kl, 100 * error.same_top, error.perplexity, error.engine_perplexity);
  }

  ModelArguments model_;
  std::string in_;
  int64_t max_length_ = 0;
  bool json_ = false;
};

[[maybe_unused]] const bool added =
    commands().add("quant-error", [] { return std::unique_ptr<Command>(new QuantErrorCommand); });

}  // namespace
}  // namespace hone
