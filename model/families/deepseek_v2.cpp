// DeepSeek-V2 and V2-Lite (DeepSeek-AI 2024): a softmax router, with expert groups or without. As in transformers, the
// weights of the chosen experts are not normalized, and norm_topk_prob is not read.
#include "model/families/deepseek.h"

namespace hone {
namespace {

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  DeepseekConfig out =
      read_deepseek(config, "DeepseekV2ForCausalLM",
                    {.num_experts = 64, .num_choices = 6, .expert_size = 1407, .shared_experts = 2, .dense_layers = 0});
  out.decoder.mlp_bias = config.flag("mlp_bias", false);
  out.experts.moe.rule.scale = static_cast<float>(config.positive("routed_scaling_factor", 1));
  config.accept("scoring_func", "softmax", {"softmax"});
  config.accept("topk_method", "greedy", {"greedy", "group_limited_greedy"});
  if (config.text("topk_method", "greedy") == "group_limited_greedy") read_expert_groups(config, out.experts.moe, 0, 0);
  read_balance(config, out.experts.moe, 0);
  out.decoder.resolved = config.resolved();
  return make_deepseek(out);
}

[[maybe_unused]] const bool added = families().add("deepseek_v2", make);

}  // namespace
}  // namespace hone
