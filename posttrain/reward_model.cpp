#include "posttrain/reward_model.h"

#include <algorithm>

#include "core/io/file.h"
#include "kernels/elementwise/cast.h"
#include "kernels/gemm/gemm.h"
#include "model/forward.h"

namespace hone {

RewardModel::RewardModel(const std::filesystem::path& folder, const std::string& device)
    : device_(open_device(device)), context_(*device_), tokenizer_(Tokenizer::load(folder)) {
  model_ = load_model(context_, folder, {.dtype = model_dtype("auto", context_.kind())});
  head_ = load_value_head(context_, folder);
  HONE_CHECK(!head_.empty(), folder.string(),
             ": has no score.weight; a reward model's folder does (a reward_model stage's checkpoint)");
  HONE_CHECK(static_cast<int64_t>(head_.size()) == model_->shape().hidden_size, folder.string(), ": score.weight has ",
             head_.size(), " numbers, the model is ", model_->shape().hidden_size, " wide");
  check_tokenizer(*model_, tokenizer_);
}

void RewardModel::score_pack(std::span<const std::span<const int32_t>> sequences, std::vector<double>& scores) {
  const ScratchScope scope(context_);
  Arena& scratch = context_.scratch();
  std::vector<BatchPart> parts;
  std::vector<int32_t> last;
  int32_t end = 0;
  for (const std::span<const int32_t> sequence : sequences) {
    parts.push_back({.tokens = sequence});
    last.push_back((end += static_cast<int32_t>(sequence.size())) - 1);
  }
  const auto count = static_cast<int64_t>(last.size()), width = model_->shape().hidden_size;
  const Tensor value = scratch.take(DType::f32, {count, 1});
  Tensor hidden = infer(context_, *model_, pack_batch(context_, scratch, parts),
                        upload(context_, scratch, std::span<const int32_t>(last)), nullptr);
  if (hidden.dtype != DType::f32) {
    const Tensor wide = scratch.take(DType::f32, hidden.dims());
    cast(context_, wide, hidden);
    hidden = wide;
  }
  gemm_forward(context_, value, hidden, upload(context_, scratch, std::span<const float>(head_)).view({1, width}),
               Tensor(), Tensor());
  for (const float score : download(context_, value.view({count}))) scores.push_back(score);
}

std::vector<double> RewardModel::score(std::span<const std::vector<int32_t>> sequences) {
  constexpr size_t batch_tokens = 8192;
  const auto longest = static_cast<size_t>(model_->shape().max_positions);
  std::vector<double> scores;
  std::vector<std::span<const int32_t>> pack;
  size_t tokens = 0;
  const auto flush = [&] {
    if (!pack.empty()) score_pack(pack, scores);
    pack.clear(), tokens = 0;
  };
  for (const std::vector<int32_t>& sequence : sequences) {
    const std::span<const int32_t> read = std::span(sequence).last(std::min(sequence.size(), longest));
    if (read.empty() || tokens + read.size() > batch_tokens) flush();
    if (read.empty()) {
      scores.push_back(0);
      continue;
    }
    check_tokens(*model_, read, "reward model");
    pack.push_back(read), tokens += read.size();
  }
  flush();
  return scores;
}

void add_score_position(Sample& sample) {
  HONE_CHECK(!sample.tokens.empty(), "reward model: a sample without tokens has no score");
  sample.tokens.push_back(sample.tokens.back());  // any token: what is read is the state before it
  set_mask(sample, sample.tokens.size() - 1);
}

void write_classifier_config(const std::filesystem::path& folder, const Tokenizer& tokenizer) {
  const std::string path = (folder / "config.json").string();
  Json config = parse_json(read_file(path), path);
  constexpr std::string_view language_model = "ForCausalLM";
  JsonArray architectures;
  for (const Json& name : config.at("architectures", path).as_array("architectures")) {
    std::string text = name.as_string("architectures");
    if (const size_t at = text.find(language_model); at != std::string::npos)
      text.replace(at, language_model.size(), "ForSequenceClassification");
    architectures.push_back(std::move(text));
  }
  config.set("architectures", std::move(architectures));
  config.set("num_labels", 1);
  config.set("id2label", JsonObject{{"0", "LABEL_0"}});
  config.set("label2id", JsonObject{{"LABEL_0", 0}});
  if (const std::optional<int32_t> pad = tokenizer.find(tokenizer.special_token("pad_token"));
      pad && pad != tokenizer.eos())
    config.set("pad_token_id", int64_t{*pad});
  write_file_atomic(path, config.dump(2) + "\n");
}

}  // namespace hone
