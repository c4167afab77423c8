#include "run/plan/plan.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/config/config.h"
#include "core/io/file.h"
#include "run/recipe/check.h"
#include "run/recipe/start.h"
#include "tests/model/characters.h"
#include "tests/model/tiny_model.h"
#include "tests/rollout/tiny_draft.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone {
namespace {

constexpr const char* recipe = R"(
[model]
hidden_size = 32
intermediate_size = 64
num_hidden_layers = 2
num_attention_heads = 2
max_position_embeddings = 64
[[stage]]
kind = "tokenizer"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
vocab_size = 270
[[stage]]
kind = "pretrain"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
max_length = 32
batch_size = 8
steps = 10
[[stage]]
kind = "rl"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
prompts_per_step = 4
num_generations = 4
num_mini_batches = 2
num_iterations = 3
steps = 10
beta = 0.1
reward = { kind = "number" }
)";

Recipe read(const std::vector<std::string>& overrides = {}) {
  return read_recipe(Config::from_text(recipe, "recipe.toml", overrides));
}

std::string error_of(const std::vector<std::string>& overrides) {
  return test::error_of([&] { check_recipe(read(overrides)); });
}

TEST(PlanRecipe, CountsEveryStagesTokensAndMemory) {
  const Json plan = plan_recipe(read());
  const int64_t block = 4 * 32 * 32 + 3 * 32 * 64 + 2 * 32;  // attention, MLP, norms
  EXPECT_EQ(plan.at("params").as_int(), 270 * 32 + 2 * block + 32);
  const JsonArray& stages = plan.at("stages").as_array();
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].at("tokens_per_step").as_int(), 8 * 32);
  // Three passes over 16 completions of at most 64 tokens.
  EXPECT_EQ(stages[1].at("tokens_per_step").as_int(), 3 * 4 * 4 * 64);
  const Json& memory = stages[1].at("memory");
  EXPECT_EQ(memory.at("weights").as_int(), memory.at("reference").as_int());
  EXPECT_EQ(memory.at("optimizer").as_int(), 2 * memory.at("weights").as_int());
  EXPECT_GT(memory.at("kv_cache").as_int(), 0);
  EXPECT_EQ(stages[0].at("memory").at("kv_cache").as_int(), 0);
  EXPECT_EQ(stages[0].at("kv_bytes_per_token").as_int(), 0);
  // The model's rows, whether a stage has a cache or not: two layers with two heads of 16 numbers.
  const JsonArray& groups = plan.at("kv_groups").as_array();
  ASSERT_EQ(groups.size(), 1u);
  for (const auto& [key, value] :
       JsonObject{{"planes", 2}, {"num_kv_heads", 2}, {"key_dim", 16}, {"value_dim", 16}, {"window", 0}})
    EXPECT_EQ(groups[0].at(key), value) << key;
}

// What the plan says of the KV cache is what an engine of the same model has.
TEST(PlanRecipe, TheKvCacheIsTheEngines) {
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context(*device);
  const test::TemporaryFolder folder;
  const std::string config = (folder.path() / "config.json").string();
  write_file_atomic(config, Json(JsonObject{{"model_type", "gemma3_text"},
                                            {"hidden_size", 32},
                                            {"intermediate_size", 64},
                                            {"num_hidden_layers", 6},
                                            {"num_attention_heads", 2},
                                            {"num_key_value_heads", 1},
                                            {"head_dim", 16},
                                            {"vocab_size", 270},
                                            {"sliding_window", 16},
                                            {"sliding_window_pattern", 6},
                                            {"max_position_embeddings", 64}})
                                .dump());
  const std::vector<std::string> windows{"model={config=\"" + config + "\"}", "rollout.kv_cache_tokens=999"};
  const std::vector<std::vector<std::string>> all{
      {}, {"rollout.kv_cache_dtype=fp8", "rollout.kv_block_size=7"}, windows};
  for (const std::vector<std::string>& overrides : all) {
    const Recipe planned = read(overrides);
    const Json stage = plan_recipe(planned).at("stages").as_array().at(1);
    const std::unique_ptr<Model> model = start_model(planned);
    model->allocate(context, DType::f32, false);
    const size_t before = device->used_bytes();
    const Engine engine(context, *model, nullptr, planned.rollout);
    EXPECT_EQ(engine.stats().kv_window_tokens > 0, &overrides == &all.back());
    EXPECT_EQ(stage.at("kv_bytes_per_token").as_int(), engine.stats().kv_bytes_per_token);
    EXPECT_EQ(stage.at("kv_window_tokens").as_int(), engine.stats().kv_window_tokens);
    EXPECT_EQ(static_cast<size_t>(stage.at("memory").at("kv_cache").as_int()), device->used_bytes() - before);
  }
}

// Muon has one state for each number of the layers' matrices, Adafactor one for each row and column.
TEST(PlanRecipe, CountsTheStatesOfEachOptimizer) {
  const auto bytes = [](std::vector<std::string> overrides) {
    return plan_recipe(read(overrides)).at("stages").as_array()[0].at("memory").at("optimizer").as_int();
  };
  const int64_t matrices = 2 * (4 * 32 * 32 + 3 * 32 * 64), rest = 270 * 32 + 5 * 64;  // norms begin at multiples of 64
  EXPECT_EQ(bytes({"stage.pretrain.optimizer=adamw"}), 4 * 2 * (matrices + rest));
  EXPECT_EQ(bytes({"stage.pretrain.optimizer=muon"}), 4 * (matrices + 2 * rest));
  EXPECT_EQ(bytes({"stage.pretrain.optimizer=muon", "stage.pretrain.moments=bf16"}), 2 * (matrices + 2 * rest));
  EXPECT_EQ(bytes({"stage.pretrain.optimizer=lion"}), 4 * (matrices + rest));
  EXPECT_LT(bytes({"stage.pretrain.optimizer=adafactor"}), 4 * (matrices + rest) / 5);
}

// The stage samples 4 * 6 completions and trains on two pairs of each prompt.
TEST(PlanRecipe, OnlinePairsAreFewerThanTheCompletions) {
  const auto stage = [](std::vector<std::string> keys) {
    for (std::string& key : keys) key = "stage.2." + key;
    keys.insert(keys.begin(), {"stage.2.kind=online_dpo", "stage.2.num_generations=6", "stage.2.num_mini_batches=1",
                               "stage.2.num_iterations=1"});
    return plan_recipe(read(keys)).at("stages").as_array().at(1);
  };
  EXPECT_EQ(stage({"pairs_per_prompt=2"}).at("tokens_per_step").as_int(), 4 * 2 * 2 * 64);
  EXPECT_EQ(stage({"pairs_per_prompt=9"}).at("tokens_per_step").as_int(), 4 * 3 * 2 * 64);
  const auto bytes = [&](const std::vector<std::string>& keys, const char* name) {
    return stage(keys).at("memory").at(name).as_int();
  };
  EXPECT_EQ(bytes({}, "engine_buffers"), bytes({"pairs_per_prompt=3"}, "engine_buffers"));
  // A reference that moves takes the memory of one that does not.
  EXPECT_EQ(bytes({}, "reference"), bytes({}, "weights"));
  EXPECT_EQ(bytes({"sync_ref_model=true"}, "total"), bytes({}, "total"));
  EXPECT_EQ(bytes({"objective=simpo"}, "reference"), 0);
}

TEST(PlanRecipe, SamplesLongerThanAMicroBatchArePlannedFor) {
  const auto activations = [](const std::vector<std::string>& overrides, size_t stage) {
    return plan_recipe(read(overrides)).at("stages").as_array()[stage].at("memory").at("activations").as_int();
  };
  for (const size_t stage : {0u, 1u}) {
    const std::string name = concat("stage.", stage + 1, ".micro_batch_tokens=");
    const int64_t longest = stage == 0 ? 32 : 64;  // max_length; the model's positions, since there is no tokenizer yet
    EXPECT_EQ(activations({name + "1"}, stage), activations({concat(name, longest)}, stage));
    EXPECT_LT(activations({concat(name, longest)}, stage), activations({concat(name, 2 * longest)}, stage));
    const Json plan = plan_recipe(read({name + "1"}));
    EXPECT_EQ(plan.at("stages").as_array()[stage].at("tokens_per_step").as_int(),
              plan_recipe(read()).at("stages").as_array()[stage].at("tokens_per_step").as_int());
  }
}

TEST(PlanRecipe, ALongestSampleIsTheLongestPromptAndMaxTokens) {
  const test::TemporaryFolder folder;
  const Tokenizer tokenizer = test::character_tokenizer(folder.path());
  std::ofstream(folder.path() / "tasks.jsonl") << R"({"prompt": "ab", "answer": ""})"
                                               << "\n"
                                               << R"({"prompt": "abcabcabc", "answer": ""})"
                                               << "\n";
  const std::string rl = concat("tokenizer = \"", folder.path().string(), R"("
[model]
hidden_size = 32
num_attention_heads = 2
max_position_embeddings = 4096
[[stage]]
kind = "rl"
files = [")",
                                (folder.path() / "tasks.jsonl").string(), R"("]
prompts_per_step = 4
num_generations = 4
reward = { kind = "number" }
sampling = { max_tokens = 20 }
)");
  const auto tokens = [&](const std::vector<std::string>& overrides) {
    const Recipe read = read_recipe(Config::from_text(rl, "recipe.toml", overrides));
    return plan_recipe(read).at("stages").as_array().at(0).at("tokens_per_step").as_int();
  };
  const auto prompt = static_cast<int64_t>(tokenizer.encode_document("abcabcabc").size());
  EXPECT_EQ(tokens({}), 16 * (prompt + 20));
  EXPECT_EQ(tokens({"model.max_position_embeddings=24"}), 16 * 24);
}

TEST(PlanRecipe, EpochsAreStepsWhereTheRowsTellHowMany) {
  const Json plan = plan_recipe(read({"stage.pretrain.steps=0", "stage.pretrain.num_train_epochs=2"}));
  EXPECT_EQ(plan.at("stages").as_array()[0].at("steps").as_int(), 0);
  EXPECT_NE(plan_text(plan).find("as many as num_train_epochs makes"), std::string::npos) << plan_text(plan);
}

TEST(PlanRecipe, ADraftModelTakesItsWeightsAndItsCache) {
  const test::TemporaryFolder folder;
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context(*device);
  test::save_stranger(context, 270, 40, folder.path());
  const Json plan = plan_recipe(
      read({"rollout.speculative.method=draft_model", "rollout.speculative.model=" + folder.path().string()}));
  const Json &rl = plan.at("stages").as_array()[1].at("memory"),
             plain = plan_recipe(read()).at("stages").as_array()[1].at("memory");
  // Cache of one layer of width 16; weights: the embeddings.
  const int64_t cache = 2 * 65536 * 16 * 4, weights = (270 + 40) * 16 * 4;
  EXPECT_EQ(plain.at("draft_model").as_int(), 0);
  EXPECT_GT(rl.at("draft_model").as_int(), cache + weights);
  EXPECT_LT(rl.at("draft_model").as_int(), cache + 2 * weights);
  EXPECT_EQ(rl.at("total").as_int(), plain.at("total").as_int() + rl.at("draft_model").as_int());
}

TEST(PlanRecipe, ModulesThatProposeTokensTakeACache) {
  const std::string modules = "model.num_nextn_predict_layers=1";
  const auto memory = [&](const std::vector<std::string>& overrides) {
    return plan_recipe(read(overrides)).at("stages").as_array()[1].at("memory");
  };
  const Json with_drafts = memory({modules, "rollout.speculative.method=mtp"}), plain = memory({modules});
  // Of each token of the cache the module's keys and values, as wide as those of a layer, and for each block of 16
  // tokens six hidden states.
  const int64_t layers = plain.at("kv_cache").as_int(), drafts = with_drafts.at("draft_model").as_int();
  EXPECT_EQ(plain.at("draft_model").as_int(), 0);
  EXPECT_EQ(drafts, layers / 2 + (65536 / 16 + 1) * 6 * 32 * 4);
  EXPECT_EQ(with_drafts.at("kv_cache").as_int(), layers);
  EXPECT_EQ(with_drafts.at("total").as_int(), plain.at("total").as_int() + drafts);
}

// As the run, the plan leaves out layers of multi-token prediction that config.json promises and the files lack.
TEST(PlanRecipe, LayersThatTheFilesLackAreNotCounted) {
  const test::TemporaryFolder folder;
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context(*device);
  const std::unique_ptr<Model> saved = test::make_tiny(context, test::tiny_config("deepseek_v3"));
  save_model(context, *saved, folder.path(), DType::f32);
  const std::filesystem::path config = folder.path() / "config.json";
  Json promised = parse_json(read_file(config), config.string());
  promised.set("num_nextn_predict_layers", 1);
  write_file_atomic(config, promised.dump());
  const std::unique_ptr<Model> planned = start_model(read({concat("model={path='", folder.path().string(), "'}")}));
  EXPECT_EQ(planned->num_params(), saved->num_params());
  EXPECT_EQ(planned->num_params(), load_model(context, folder.path())->num_params());
}

// A teacher in the learner's process takes its weights, and shares of them under ZeRO-3.
TEST(PlanRecipe, ATeacherTakesItsWeights) {
  const test::TemporaryFolder folder;
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context(*device);
  test::save_stranger(context, 270, 40, folder.path());
  const auto memory = [&](std::vector<std::string> more) {
    more.insert(more.end(),
                {"stage.rl.name=\"rl\"", "stage.rl.objective=\"distill\"", "stage.rl.lmbda=1.0", "stage.rl.beta=1.0"});
    return plan_recipe(read(more)).at("stages").as_array()[1].at("memory");
  };
  const std::string teacher = "stage.rl.teacher=" + folder.path().string();
  const int64_t weights = (270 + 40) * 16 * 4;  // at least: the embeddings
  const Json plain = plan_recipe(read()).at("stages").as_array()[1].at("memory"), full = memory({teacher});
  EXPECT_EQ(plain.at("teacher").as_int(), 0);
  EXPECT_GT(full.at("teacher").as_int(), weights);
  EXPECT_LT(full.at("teacher").as_int(), 2 * weights);
  EXPECT_EQ(memory({teacher, "stage.rl.loss=\"sampled\""}).at("teacher"), full.at("teacher"));
  const Json itself = memory({"stage.rl.teacher_context=\"prompt\""});
  EXPECT_EQ(itself.at("teacher"), itself.at("weights"));
  const Json server =
      memory({"stage.rl.loss=\"sampled\"", "stage.rl.teacher_endpoint={base_url=\"http://h/v1\", model=\"m\"}"});
  EXPECT_EQ(server.at("teacher").as_int(), 0);
}

TEST(PlanRecipe, ALocalJudgeTakesItsMemory) {
  const test::TemporaryFolder folder;
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context(*device);
  test::save_stranger(context, 270, 40, folder.path());
  const auto memory = [](const std::vector<std::string>& overrides) {
    return plan_recipe(read(overrides)).at("stages").as_array()[1].at("memory");
  };
  const Json plain = memory({});
  EXPECT_EQ(plain.at("judges").as_int(), 0);

  const std::string judge = R"(stage.rl.reward={kind="judge", path=")" + folder.path().string() + "\"";
  const Json judged = memory({judge + "}"});
  const int64_t cache = 2 * 65536 * 16 * 4, weights = (270 + 40) * 16 * 4;
  EXPECT_GT(judged.at("judges").as_int(), cache + weights);
  EXPECT_EQ(judged.at("total").as_int(), plain.at("total").as_int() + judged.at("judges").as_int());
  EXPECT_EQ(memory({judge + R"(, device="cuda"})"}).at("judges").as_int(), 0);  // not beside a learner on the CPU
}

// The layers' matrices take one byte per number plus scales; all other memory is unchanged.
TEST(PlanRecipe, QuantizedRolloutsHaveCopiesOfTheWeights) {
  const Json plain = plan_recipe(read()), plan = plan_recipe(read({"rollout.quantization=\"int8\""}));
  const Json &memory = plan.at("stages").as_array()[1].at("memory"),
             &before = plain.at("stages").as_array()[1].at("memory");
  const int64_t numbers = 2 * (4 * 32 * 32 + 3 * 32 * 64), rows = 2 * (3 * 32 + 32 + 2 * 64 + 32),
                copies = memory.at("rollout_weights").as_int();
  EXPECT_GE(copies, numbers + 4 * rows);
  EXPECT_LE(copies, numbers + 4 * rows + 16 * 256);
  // The engine's op bodies may take other buffers and scratch memory.
  const auto shared = [](const Json& bytes) {
    return bytes.at("total").as_int() - bytes.at("engine_buffers").as_int() - bytes.at("scratch").as_int();
  };
  EXPECT_EQ(shared(memory), shared(before) + copies);
  EXPECT_EQ(plan.at("stages").as_array()[0].dump(), plain.at("stages").as_array()[0].dump());
  EXPECT_NE(plan_text(plan).find("rollout_weights"), std::string::npos);
  EXPECT_NE(error_of({"rollout.quantization=\"int4\""}).find("unknown quantization 'int4'; did you mean 'int8'?"),
            std::string::npos)
      << error_of({"rollout.quantization=\"int4\""});
}

// The frozen model is the reference. Gradients and optimizer states exist for the adapters only.
TEST(PlanRecipe, AdaptersTakeWhatTheyTrain) {
  const Json whole = plan_recipe(read()), plan = plan_recipe(read({"model.lora.r=2"}));
  const Json &pretrain = plan.at("stages").as_array()[0], &rl = plan.at("stages").as_array()[1];
  EXPECT_EQ(pretrain.dump(), whole.at("stages").as_array()[0].dump());
  const int64_t adapters = 2 * 2 * 2 * (32 + 32);  // q and v of two layers
  EXPECT_EQ(rl.at("trained_params").as_int(), adapters);
  EXPECT_EQ(rl.at("memory").at("gradients").as_int(), 4 * adapters);
  EXPECT_EQ(rl.at("memory").at("optimizer").as_int(), 8 * adapters);
  EXPECT_EQ(rl.at("memory").at("reference").as_int(), 0);
  EXPECT_EQ(rl.at("memory").at("weights").as_int(), pretrain.at("memory").at("weights").as_int() + 4 * adapters);
  EXPECT_NE(plan_text(plan).find("512 parameters trained"), std::string::npos) << plan_text(plan);
}

TEST(PlanRecipe, RepliesWrittenWhileTheLearnerLearnsTakeCopiesOfTheWeights) {
  const auto copies = [](const std::vector<std::string>& overrides) {
    const Json plan = plan_recipe(read(overrides));
    const Json& memory = plan.at("stages").as_array()[1].at("memory");
    return std::pair(memory.at("weight_copies").as_int(), memory.at("weights").as_int());
  };
  EXPECT_EQ(copies({}).first, 0);
  const int64_t weights = copies({}).second, adapters = 4 * 512;
  EXPECT_EQ(copies({"stage.rl.max_staleness=1"}).first, 3 * weights);
  EXPECT_EQ(copies({"stage.rl.max_staleness=3"}).first, 5 * weights);
  EXPECT_EQ(copies({"stage.rl.max_staleness=3", "stage.rl.deterministic=false"}).first, 4 * weights);
  EXPECT_EQ(copies({"stage.rl.max_staleness=1", "rollout.device=\"cpu:1\""}).first, 2 * weights);
  EXPECT_EQ(copies({"stage.rl.max_staleness=1", "model.lora.r=2"}).first, weights + adapters + 2 * adapters);
}

// Activations and the engine's memory are held in turn: the peak has the larger of the two.
TEST(PlanRecipe, AnEngineThatRestsSharesItsMemoryWithTheActivations) {
  const auto memory = [](std::vector<std::string> overrides, bool rests, size_t ranks = 1) {
    if (rests) overrides.emplace_back("rollout.free_cache_engine=true");
    return plan_recipe(read(overrides), ranks).at("stages").as_array()[1].at("memory");
  };
  const auto bytes = [](const Json& of, std::initializer_list<const char*> names) {
    int64_t out = 0;
    for (const char* name : names) out += of.at(name).as_int();
    return out;
  };
  const std::vector<std::string> small{"rollout.kv_cache_tokens=128", "rollout.max_num_seqs=2"}, large{},
      quantized{"rollout.quantization=\"int8\""};
  for (const std::vector<std::string>& overrides : {small, large, quantized}) {
    const Json kept = memory(overrides, false), rests = memory(overrides, true);
    const int64_t engine = bytes(rests, {"kv_cache", "engine_buffers", "rollout_weights"}),
                  activations = bytes(rests, {"activations"});
    EXPECT_EQ(kept.at("overlap").as_int(), 0);
    EXPECT_EQ(rests.at("overlap").as_int(), -std::min(engine, activations));
    EXPECT_EQ(rests.at("total").as_int(), kept.at("total").as_int() - std::min(engine, activations));
    EXPECT_EQ(overrides == small, engine < activations);
    int64_t sum = 0;
    for (const auto& [name, count] : rests.as_object()) sum += name == "total" ? 0 : count.as_int();
    EXPECT_EQ(rests.at("total").as_int(), sum);
  }
  // Other stages have no engine.
  const std::vector<std::string> divided{"parallel.zero=3"};
  EXPECT_EQ(memory(divided, false, 2).at("overlap").as_int(), 0);
  EXPECT_LT(memory(divided, true, 2).at("overlap").as_int(), 0);
  const Json plan = plan_recipe(read({"rollout.free_cache_engine=true"}));
  EXPECT_EQ(plan.at("stages").as_array()[0].dump(), plan_recipe(read()).at("stages").as_array()[0].dump());
  EXPECT_NE(plan_text(plan).find(" overlap -"), std::string::npos) << plan_text(plan);
}

TEST(PlanRecipe, OnlyAnEngineThatWaitsForTheLearnerRests) {
  const std::string rests = "rollout.free_cache_engine=true";
  EXPECT_EQ(error_of({rests}), "no error");
  EXPECT_NE(error_of({rests, "stage.rl.max_staleness=1"}).find("rollout.free_cache_engine needs max_staleness = 0"),
            std::string::npos);
  EXPECT_NE(error_of({rests, "rollout.workers=[\"http://localhost:1\"]"}).find("remove it, or remove workers"),
            std::string::npos);
  EXPECT_NE(error_of({rests, "rollout.device=\"cpu:1\"", "stage.rl.max_staleness=1"}).find("or remove device"),
            std::string::npos);
}

TEST(PlanRecipe, AdaptersWantTrainedWeightsBelowThem) {
  EXPECT_EQ(error_of({"model.lora.r=2"}), "no error");
  EXPECT_NE(error_of({"model.lora.r=2", "stage.pretrain.kind=\"sft\""}).find("adapts weights that were trained"),
            std::string::npos);
  EXPECT_NE(error_of({"model.lora.r=2", "model.lora.target_modules=\"q_prj\""}).find("did you mean 'q_proj'"),
            std::string::npos);
  EXPECT_NE(error_of({"model.lora.r=-1"}).find("r must be in"), std::string::npos);
  EXPECT_NE(error_of({"model.lora.lora_dropout=1"}).find("lora_dropout must be in [0, 1)"), std::string::npos);
}

TEST(PlanRecipe, AnEngineElsewhereWantsALearnerThatGoesOn) {
  EXPECT_NE(error_of({"rollout.device=\"cpu:1\""}).find("set max_staleness to 1 or more"), std::string::npos);
  EXPECT_EQ(error_of({"rollout.device=\"cpu:1\"", "stage.rl.max_staleness=1", "device=cpu"}), "no error");
  EXPECT_NE(error_of({"rollout.device=\"meta\"", "stage.rl.max_staleness=1", "device=cpu"}).find("of one kind"),
            std::string::npos);
  EXPECT_THROW(read({"rollout.device=\"gpu:1\""}), Error);
}

TEST(PlanRecipe, TimesFollowFromTheMachinesRates) {
  Json plan = plan_recipe(read()), twice = plan;
  add_times(plan, {.source = "a test", .flops = 1e9, .memory_bandwidth = 1e9, .link_bandwidth = 1e9});
  add_times(twice, {.source = "a test", .flops = 2e9, .memory_bandwidth = 2e9, .link_bandwidth = 2e9});
  for (size_t i = 0; i < 2; ++i) {
    const Json& stage = plan.at("stages").as_array()[i];
    const Json& step = stage.at("step_seconds");
    EXPECT_DOUBLE_EQ(step.at("passes").as_double() * 1e9 * stage.at("steps").as_double(),
                     stage.at("flops").as_double());
    EXPECT_GT(step.at("update").as_double(), 0);
    EXPECT_EQ(step.at("exchange").as_double(), 0);
    EXPECT_DOUBLE_EQ(stage.at("seconds").as_double(), 2 * twice.at("stages").as_array()[i].at("seconds").as_double());
  }
  EXPECT_NE(plan_text(plan).find("estimates"), std::string::npos);
}

TEST(PlanRecipe, MistakesAreFoundBeforeAnythingIsWritten) {
  EXPECT_EQ(error_of({}), "no error");
  EXPECT_NE(error_of({"device=\"tpu\""}).find("unknown device 'tpu'"), std::string::npos);
  EXPECT_NE(error_of({"threads=-1"}).find("threads"), std::string::npos);
  EXPECT_NE(error_of({"name=\"a/b\""}).find("may not be empty, have a /"), std::string::npos);
  EXPECT_NE(error_of({"stage.pretrain.batch_size=9223372036854775807"}).find("batch_size"), std::string::npos);
  EXPECT_NE(error_of({"stage.rl.prompts_per_step=9223372036854775807"}).find("prompts_per_step"), std::string::npos);
  EXPECT_NE(error_of({"model.hidden_size=9223372036854775807"}).find("hidden_size"), std::string::npos);
  EXPECT_NE(error_of({"model={path=\"/nowhere\"}"}).find("/nowhere"), std::string::npos);
  EXPECT_NE(error_of({"tokenizer=\"/nowhere\""}).find("/nowhere"), std::string::npos);
}

}  // namespace
}  // namespace hone
