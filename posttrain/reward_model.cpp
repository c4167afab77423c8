#include "posttrain/reward_model.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "core/base/rank_thread.h"
#include "core/device/cuda_facts.h"
#include "core/io/file.h"
#include "core/text/tokenizer/pieces.h"
#include "data/prompt.h"
#include "kernels/elementwise/cast.h"
#include "kernels/gemm/gemm.h"
#include "model/forward.h"
#include "model/io/adapter.h"
#include "model/io/model_folder.h"
#include "rewards/reward.h"

namespace hone {

static void check_head(std::span<const float> head, const Model& model, const std::filesystem::path& folder) {
  HONE_CHECK(!head.empty(), folder.string(),
             ": has no score.weight; a reward model's folder does (a reward_model stage's checkpoint)");
  HONE_CHECK(static_cast<int64_t>(head.size()) == model.shape().hidden_size, folder.string(), ": score.weight has ",
             head.size(), " numbers, the model's hidden size is ", model.shape().hidden_size);
}

std::string device_of_rank(const std::string& device) {
  const char* own = rank_thread().device;
  if (!own || device.find(':') != std::string::npos) return device;
  return device_kind(device) == device_kind(own) ? own : device;
}

RewardModel::RewardModel(const std::filesystem::path& folder, const std::string& device)
    : device_(open_device(device_of_rank(device))), context_(*device_), tokenizer_(Tokenizer::load(folder)) {
  model_ = load_model(context_, folder, {.dtype = model_dtype("auto", context_.kind())});
  head_ = load_value_head(context_, folder);
  check_head(head_, *model_, folder);
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
  gemm_forward(
      context_,
      {.y = value, .x = hidden, .w = upload(context_, scratch, std::span<const float>(head_)).view({1, width})});
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
    pack.clear();
    tokens = 0;
  };
  for (const std::vector<int32_t>& sequence : sequences) {
    const std::span<const int32_t> read = std::span(sequence).last(std::min(sequence.size(), longest));
    if (read.empty() || tokens + read.size() > batch_tokens) flush();
    if (read.empty()) {
      scores.push_back(0);
      continue;
    }
    check_tokens(*model_, read, "reward model");
    pack.push_back(read);
    tokens += read.size();
  }
  flush();
  return scores;
}

void add_score_position(Sample& sample) {
  HONE_CHECK(!sample.tokens.empty(), "reward model: a sample without tokens has no score");
  sample.tokens.push_back(sample.tokens.back());  // any token: its value comes from the state before it
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
  // Last, as save_model() has them: a resumed run writes the same bytes.
  std::ranges::stable_partition(
      config.object_ref(), [](const auto& member) { return member.first != "torch_dtype" && member.first != "dtype"; });
  write_file_atomic(path, config.dump(2) + "\n");
}

namespace {

// The reward "model": the score of a reward model. The file is here because rewards/ knows no models. The reward scores
// the prompt with the completion. A finished completion gets the end of turn that the reward model was trained with. A
// truncated completion does not, and missing_eos_penalty is subtracted from its score. The model is loaded at the first
// score, on a device of its own, since a recipe may name a folder that an earlier stage writes.
class ModelReward : public Reward {
 public:
  void fields(Fields& f) override {
    f("path", path_,
      "folder of the reward model (a reward_model stage's checkpoint, or Hugging Face's with score.weight [1, D])");
    format_.fields(f);
    f("missing_eos_penalty", missing_eos_penalty_,
      "subtracted from the score of a completion that ended at its length limit (finish_reason \"length\"); 0 = none");
    f("device", device_, "device of the reward model: cpu | cuda | auto");
    f.require("path", !path_.empty(), "path is missing: give the folder of the reward model");
    f.require("missing_eos_penalty", std::isfinite(missing_eos_penalty_) && missing_eos_penalty_ >= 0,
              "missing_eos_penalty must be 0 or more, since it is subtracted");
    f.require("device", device_ == "auto" || devices().contains(device_), unknown_device(device_));
  }
  bool on_host() const override { return false; }
  // Reads the folder up to its weights, unless an earlier stage writes it.
  void check(const RewardTrial& trial) const override {
    const std::filesystem::path folder = expand_path(path_);
    if (!std::filesystem::exists(folder) && trial.is_made_earlier && trial.is_made_earlier(folder)) return;
    const std::unique_ptr<Model> model = read_model_folder(folder);
    const Tokenizer tokenizer = Tokenizer::load(tokenizer_folder(folder));
    check_tokenizer(*model, tokenizer);
    PromptEncoder encoder(format_, tokenizer);
    if (trial.task) encoder.prompt(*trial.task);
    const std::unique_ptr<Device> device = devices().at("cpu")(0);
    Context context(*device);
    check_head(load_value_head(context, folder), *model, folder);
  }

  RewardScore score(const Task& task, const Completion& completion) const override {
    RewardScore out;
    score_group(task, {&completion, 1}, {&out, 1});
    return out;
  }
  void score_group(const Task& task, std::span<const Completion> completions,
                   std::span<RewardScore> scores) const override {
    const GroupScores group{.task = task, .completions = completions, .scores = scores};
    score_groups({&group, 1});
  }
  void score_groups(std::span<const GroupScores> groups) const override {
    const std::lock_guard lock(mutex_);
    if (!model_) {
      model_ = std::make_unique<RewardModel>(expand_path(path_), device_);
      encoder_.emplace(format_, model_->tokenizer());
    }
    std::vector<std::vector<int32_t>> sequences;
    for (const GroupScores& group : groups)
      for (const Completion& completion : group.completions) sequences.push_back(tokens(group.task, completion));
    const std::vector<double> scores = model_->score(sequences);
    auto next = scores.begin();
    for (const GroupScores& group : groups)
      for (size_t i = 0; i < group.scores.size(); ++i) {
        const bool cut = was_cut(group.completions[i]);
        group.scores[i].score = *next++ - (cut ? missing_eos_penalty_ : 0);
        if (cut) group.scores[i].note = "cut off at its length";
      }
  }

 private:
  static bool was_cut(const Completion& completion) { return completion.finish_reason == "length"; }
  // The tokens that the reward model reads: up to the end of the assistant's turn, or up to the last token if the
  // completion is truncated.
  std::vector<int32_t> tokens(const Task& task, const Completion& completion) const {
    if (!completion.messages.empty()) return encoder_->sample(encoder_->messages(task), completion.messages).tokens;
    if (was_cut(completion)) {
      std::vector<int32_t> out = encoder_->prompt(task);
      append_ids(out, completion.text, model_->tokenizer());
      return out;
    }
    if (task.messages.empty() && !encoder_->is_chat()) return encoder_->sample(task.prompt, completion.text).tokens;
    return encoder_->sample(encoder_->messages(task), {{"assistant", completion.text, {}}}).tokens;
  }

  std::string path_, device_ = "auto";
  double missing_eos_penalty_ = 0;
  PromptFormat format_;
  mutable std::mutex mutex_;  // guards the members below
  mutable std::unique_ptr<RewardModel> model_;
  mutable std::optional<PromptEncoder> encoder_;
};

[[maybe_unused]] const bool added =
    rewards().add("reward_model", [] { return std::unique_ptr<Reward>(new ModelReward); });

}  // namespace
}  // namespace hone
