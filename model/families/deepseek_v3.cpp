// DeepSeek-V3 (DeepSeek-AI 2024): a sigmoid router whose choice has a bias of its own, and multi-token prediction.
#include "model/families/deepseek.h"

namespace hone {
namespace {

std::unique_ptr<Model> make(const Json& json, std::string_view source) {
  ConfigReader config(json, source);
  DeepseekConfig out = read_deepseek(config, "DeepseekV3ForCausalLM", {});
  out.latent.interleaved = config.flag("rope_interleave", true);
  out.experts.moe.has_choice_bias = true;
  out.experts.moe.rule.scores = RouterScores::sigmoid;
  out.experts.moe.rule.normalize = config.flag("norm_topk_prob", true);
  out.experts.moe.rule.scale = static_cast<float>(config.positive("routed_scaling_factor", 2.5));
  read_expert_groups(config, out.experts.moe, 8, 4);
  config.accept("scoring_func", "sigmoid", {"sigmoid"});
  config.accept("topk_method", "noaux_tc", {"noaux_tc"});
  read_balance(config, out.experts.moe, 0);
  config.set("num_nextn_predict_layers", out.decoder.num_mtp_modules);
  out.decoder.resolved = config.resolved();
  return make_deepseek(out);
}

[[maybe_unused]] const bool added = families().add("deepseek_v3", make);

}  // namespace
}  // namespace hone
