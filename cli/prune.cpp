// hone prune: removes layers, heads and channels of the MLP from a dense model.
#include <charconv>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "cli/command.h"
#include "core/base/log.h"
#include "core/io/file.h"
#include "core/text/tokenizer/tokenizer.h"
#include "data/calibration_text.h"
#include "model/io/adapter.h"
#include "model/io/import.h"
#include "model/prune/importance.h"
#include "model/prune/pruned_model.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

// The options that name sizes: a number, or a fraction of the model's. "" = as in the model.
struct PruneSizeOptions {
  std::string layers, intermediate_size, heads, kv_heads;
  int64_t block = 1;
};

template <class Number>
bool parse_whole(const std::string& text, Number& value) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc() && end == text.data() + text.size();
}

// The size that an option says. A fraction is rounded to a multiple of `step`, at least one.
int64_t size_of_option(const char* option, const std::string& text, int64_t full, int64_t step) {
  if (text.empty()) return full;
  int64_t size = 0;
  double fraction = 0;
  if (!parse_whole(text, size)) {
    const bool is_fraction = parse_whole(text, fraction) && fraction > 0 && fraction < 1;
    require_usage(is_fraction, "prune: ", option, " is '", text, "'; give the number to keep (1 to ", full,
                  "), or a fraction of it between 0 and 1, as 0.75");
    const double steps = std::round(fraction * static_cast<double>(full) / static_cast<double>(step));
    size = std::max(step, static_cast<int64_t>(steps) * step);
  }
  require_usage(size >= 1 && size <= full, "prune: ", option, " is ", text, "; the model has ", full,
                ": give the number to keep, 1 to ", full);
  return size;
}

// Whole groups if the number is a multiple of a group, else equally many heads of each group.
int64_t kv_heads_for(const ModelShape& shape, int64_t heads) {
  const int64_t group = shape.num_attention_heads / shape.num_kv_heads;
  if (heads % group == 0) return heads / group;
  require_usage(heads % shape.num_kv_heads == 0, "prune: --heads is ", heads, "; the model has ",
                shape.num_attention_heads, " heads, ", group, " for each of ", shape.num_kv_heads,
                " KV heads: give a multiple of ", group, " to remove KV heads with their heads, or of ",
                shape.num_kv_heads, " to remove heads of each");
  return shape.num_kv_heads;
}

// Throws UsageError, which says what would be right.
PruneSizes prune_sizes(const ModelShape& shape, const PruneSizeOptions& options) {
  const int64_t group = shape.num_attention_heads / shape.num_kv_heads;
  PruneSizes out = sizes_of(shape);
  out.num_layers = size_of_option("--layers", options.layers, shape.num_layers, 1);
  require_usage(options.block >= 1, "prune: --block is ", options.block, "; it must be 1 or more");
  out.intermediate_size = size_of_option("--intermediate-size", options.intermediate_size, shape.intermediate_size,
                                         std::min(options.block, shape.intermediate_size));
  const bool cuts_channels = out.intermediate_size < shape.intermediate_size;
  require_usage(!cuts_channels || shape.intermediate_size % options.block == 0, "prune: --block is ", options.block,
                "; it must divide the model's intermediate_size ", shape.intermediate_size);
  require_usage(!cuts_channels || out.intermediate_size % options.block == 0, "prune: --intermediate-size is ",
                out.intermediate_size, "; it must be a multiple of --block ", options.block);
  out.num_kv_heads = size_of_option("--kv-heads", options.kv_heads, shape.num_kv_heads, 1);
  out.num_attention_heads = options.heads.empty()
                                ? out.num_kv_heads * group
                                : size_of_option("--heads", options.heads, shape.num_attention_heads, group);
  if (options.kv_heads.empty()) out.num_kv_heads = kv_heads_for(shape, out.num_attention_heads);
  const bool shared =
      out.num_attention_heads % out.num_kv_heads == 0 && out.num_attention_heads / out.num_kv_heads <= group;
  require_usage(shared, "prune: --heads ", out.num_attention_heads, " cannot share --kv-heads ", out.num_kv_heads,
                ": each KV head needs equally many heads, at most ", group);
  require_usage(out != sizes_of(shape),
                "prune: nothing to remove: give --layers, --intermediate-size, --heads or --kv-heads below ",
                shape.num_layers, ", ", shape.intermediate_size, ", ", shape.num_attention_heads, " and ",
                shape.num_kv_heads);
  return out;
}

// The numbers of a run, for prune.json.
struct PruneReport {
  PruneSizes before, after;
  int64_t params_before = 0, params_after = 0, num_sequences = 0, num_tokens = 0;
  double perplexity_before = 0, perplexity_after = 0;
  std::vector<LayerImportance> importance;
  std::vector<LayerRemoval> removals;  // with --metric perplexity
  PrunePlan plan;
  bool gpu_bits = false;
};

Json before_and_after(const Json& before, const Json& after) {
  return JsonObject{{"before", before}, {"after", after}};
}

// An object with a member per kept layer, named by the layer's index in the full model. Layers of which nothing was
// removed have none.
template <class Kept>
Json removed_parts(const PrunePlan& plan, int64_t count, Kept kept) {
  JsonObject out;
  for (size_t i = 0; i < plan.layers.size(); ++i)
    if (const std::vector<int64_t> removed = removed_of(kept(plan.parts[i]), count); !removed.empty())
      out.emplace_back(std::to_string(plan.layers[i]), Json::array(removed));
  return out;
}

Json scores_json(const PruneReport& report) {
  JsonArray influence, heads, channels, removals;
  for (const LayerImportance& layer : report.importance) {
    influence.emplace_back(layer.block_influence);
    heads.push_back(Json::array(layer.heads));
    channels.push_back(Json::array(layer.channels));
  }
  for (const LayerRemoval& removal : report.removals)
    removals.push_back(JsonObject{{"layer", removal.layer}, {"perplexity", removal.perplexity}});
  JsonObject out{{"block_influence", std::move(influence)}};
  if (!report.removals.empty()) out.emplace_back("removals", std::move(removals));
  out.emplace_back("heads", std::move(heads));
  out.emplace_back("channels", std::move(channels));
  return out;
}

Json summary_json(const PruneReport& report) {
  const PruneSizes &a = report.before, &b = report.after;
  return JsonObject{
      {"parameters", before_and_after(report.params_before, report.params_after)},
      {"perplexity", before_and_after(report.perplexity_before, report.perplexity_after)},
      {"layers", before_and_after(a.num_layers, b.num_layers)},
      {"heads", before_and_after(a.num_attention_heads, b.num_attention_heads)},
      {"kv_heads", before_and_after(a.num_kv_heads, b.num_kv_heads)},
      {"intermediate_size", before_and_after(a.intermediate_size, b.intermediate_size)},
      {"calibration", JsonObject{{"sequences", report.num_sequences}, {"tokens", report.num_tokens}}},
      {"equal_bits", JsonObject{{"cpu", true}, {"gpu", report.gpu_bits}}},
      {"removed",
       JsonObject{
           {"layers", Json::array(removed_of(report.plan.layers, a.num_layers))},
           {"heads", removed_parts(report.plan, a.num_attention_heads, [](const KeptParts& p) { return p.heads; })},
           {"kv_heads", removed_parts(report.plan, a.num_kv_heads, [](const KeptParts& p) { return p.kv_heads; })},
           {"channels",
            removed_parts(report.plan, a.intermediate_size, [](const KeptParts& p) { return p.channels; })}}}};
}

class PruneCommand : public Command {
 public:
  std::string summary() const override {
    return "remove the least important layers, heads and MLP channels of a dense model";
  }
  std::string example() const override {
    return "hone prune SmolLM2-135M pruned --data calibration.jsonl --layers 24 --intermediate-size 0.75\n"
           "  hone prune --model DIR --out DIR2 --data texts.jsonl --heads 6 --json";
  }
  void arguments(Arguments& a) override {
    a.positional("path", path_, "the same as --model", false);
    a.positional("to", to_, "the same as --out", false);
    a.option("model", model_, "folder of a dense model, or .gguf file");
    a.option("out", out_,
             "folder to write: config.json, model.safetensors, tokenizer, prune.json; it must not exist yet");
    a.option("data", rows_.data,
             "calibration text: file or dataset folder with rows {text}, {ids}, {messages} or {prompt, completion}",
             true);
    a.option("limit", rows_.limit, "rows of --data to read; 0 = all");
    a.option("max-length", rows_.max_length, "first tokens of a row to use; 0 = up to the model's positions");
    a.option("layers", sizes_.layers, "layers to keep: a number, or a fraction between 0 and 1; empty = all");
    a.option("intermediate-size", sizes_.intermediate_size,
             "channels of each MLP to keep: a number, or a fraction; empty = all");
    a.option("heads", sizes_.heads,
             "query heads of each layer to keep: a number, or a fraction. KV heads go with all their heads if it is a "
             "multiple of the heads of a KV head, else each KV head loses equally many; empty = as --kv-heads says");
    a.option("kv-heads", sizes_.kv_heads,
             "KV heads of each layer to keep: a number, or a fraction; empty = as --heads "
             "says");
    a.option("metric", metric_,
             "what decides on layers: block_influence (1 - cosine similarity of hidden states before and after the "
             "layer) | perplexity (remove one after another the layer whose removal costs least)");
    a.option(
        "block", sizes_.block,
        "remove channels in aligned blocks of this many. On a CPU each block keeps the bits of the full model with "
        "zeros; on a GPU 512 does, and 16 does up to an intermediate_size of 512");
    a.option("zeroed", zeroed_,
             "folder to write, too: the full model with the removed parts set to zero, which has the same logits; "
             "empty = none");
    a.option("device", device_, "cpu | cuda | auto: where the calibration text is computed");
    a.option("dtype", dtype_, "dtype of weights and activations there: f32 | bf16 | auto (bf16 on cuda, f32 on cpu)");
    a.flag("json", json_, "print one JSON object: prune.json without scores");
  }
  int run() override {
    require_usage(model_.empty() != path_.empty(), "prune: give the model once, as --model or as a path");
    require_usage(out_.empty() != to_.empty(), "prune: give the folder to write once, as --out or as a second path");
    require_usage(rows_.limit >= 0 && rows_.max_length >= 0 && rows_.max_length != 1,
                  "prune: --limit must be 0 or more, and --max-length 0, or 2 or more");
    require_usage(metric_ == "block_influence" || metric_ == "perplexity", "prune: --metric is '", metric_,
                  "'; it must be block_influence or perplexity");
    from_ = expand_path(model_.empty() ? path_ : model_);
    HONE_CHECK(!is_adapter(from_), from_.string(),
               ": an adapter cannot be pruned; merge it first: hone export --model ", from_.string(), " --out DIR");
    to_ = expand_path(out_.empty() ? to_ : out_);
    zeroed_ = expand_path(zeroed_);
    require_usage(zeroed_ != to_, "prune: --zeroed names the folder of the pruned model; give another one");
    for (const std::string& folder : {to_, zeroed_})
      if (!folder.empty()) check_new_folder(folder);  // before the work, not after it
    PruneReport report;
    measure(report);
    write(report);
    print(report);
    return 0;
  }

 private:
  // Calibrates on the device, and decides what to keep.
  void measure(PruneReport& report) {
    const std::unique_ptr<Device> device = open_device(device_);
    Context context(*device);
    const std::unique_ptr<Model> model = load(context, from_);
    report.before = sizes_of(model->shape());
    report.after = prune_sizes(model->shape(), sizes_);
    check_prunable(*model, report.after);
    read_text(*model);
    report.num_sequences = std::ssize(text_);
    for (const auto& sequence : text_) report.num_tokens += std::ssize(sequence);
    std::vector<int64_t> layers(static_cast<size_t>(report.before.num_layers));
    std::iota(layers.begin(), layers.end(), 0);
    report.params_before = model->num_params();
    report.perplexity_before = calibration_perplexity(context, *model, text_, layers);
    {
      log::Progress progress("prune", report.num_sequences, "sequence");
      report.importance = measure_importance(context, *model, text_, [&](int64_t done) { progress.update(done); });
    }
    if (metric_ == "perplexity") {
      log::Progress progress("prune", report.before.num_layers - report.after.num_layers, "layer");
      GreedyLayers greedy = remove_layers_by_perplexity(context, *model, text_, report.after.num_layers,
                                                        [&](int64_t done) { progress.update(done); });
      layers = std::move(greedy.kept);
      report.removals = std::move(greedy.removals);
    } else {
      std::vector<double> influence;
      for (const LayerImportance& layer : report.importance) influence.push_back(layer.block_influence);
      layers = most_important(influence, report.after.num_layers);
    }
    report.plan = plan_pruning(model->shape(), report.after, std::move(layers), report.importance, sizes_.block);
    report.gpu_bits = keeps_gpu_sums(model->shape(), report.plan);
  }
  std::unique_ptr<Model> load(Context& context, const fs::path& folder) const {
    return load_model(context, folder, {.dtype = model_dtype(dtype_, context.kind())});
  }
  void read_text(const Model& model) {
    std::optional<Tokenizer> tokenizer;
    if (Tokenizer::is_in(from_)) tokenizer = Tokenizer::load(from_);
    if (tokenizer) check_tokenizer(model, *tokenizer);
    const int64_t positions = model.shape().max_positions;
    if (rows_.max_length == 0 || rows_.max_length > positions) rows_.max_length = positions;
    rows_.vocab_size = model.shape().vocab_size;
    text_ = read_calibration_text(rows_, tokenizer ? &*tokenizer : nullptr);
  }

  // Copies weights on the CPU in f32, which holds every file's numbers.
  void write(PruneReport& report) const {
    const std::unique_ptr<Device> device = devices().at("cpu")(0);
    Context context(*device);
    const std::unique_ptr<Model> full = load_model(context, from_);
    write_folder_atomic(to_, [&](const fs::path& folder) {
      const std::unique_ptr<Model> pruned = make_pruned(context, *full, report.plan);
      report.params_after = pruned->num_params();
      save_derived_model(context, *pruned, from_, folder);
      if (Tokenizer::is_in(from_)) Tokenizer::load(from_).save(folder);
      report.perplexity_after = perplexity_of(folder);
      Json json = summary_json(report);
      json.set("model", from_.string());
      json.set("data", rows_.data);
      json.set("metric", metric_);
      json.set("block", sizes_.block);
      json.set("scores", scores_json(report));
      write_file_atomic(folder / "prune.json", json.dump() + "\n");
    });
    if (zeroed_.empty()) return;
    zero_removed(*full, report.plan);
    write_folder_atomic(zeroed_, [&](const fs::path& folder) {
      save_derived_model(context, *full, from_, folder);
      if (Tokenizer::is_in(from_)) Tokenizer::load(from_).save(folder);
    });
  }
  double perplexity_of(const fs::path& folder) const {
    const std::unique_ptr<Device> device = open_device(device_);
    Context context(*device);
    const std::unique_ptr<Model> model = load(context, folder);
    std::vector<int64_t> layers(static_cast<size_t>(model->shape().num_layers));
    std::iota(layers.begin(), layers.end(), 0);
    return calibration_perplexity(context, *model, text_, layers);
  }

  void print(const PruneReport& report) const {
    if (json_) {
      std::printf("%s\n", summary_json(report).dump().c_str());
      return;
    }
    const auto line = [](const char* name, int64_t before, int64_t after) {
      std::printf("%-18s %14lld %14lld\n", name, static_cast<long long>(before), static_cast<long long>(after));
    };
    std::printf("%-18s %14s %14s\n", "", "before", "after");
    line("layers", report.before.num_layers, report.after.num_layers);
    line("heads", report.before.num_attention_heads, report.after.num_attention_heads);
    line("KV heads", report.before.num_kv_heads, report.after.num_kv_heads);
    line("intermediate size", report.before.intermediate_size, report.after.intermediate_size);
    line("parameters", report.params_before, report.params_after);
    std::printf("%-18s %14.3f %14.3f\n", "perplexity", report.perplexity_before, report.perplexity_after);
    const std::vector<int64_t> removed = removed_of(report.plan.layers, report.before.num_layers);
    std::string list;
    for (const int64_t layer : removed) list += (list.empty() ? "" : ", ") + std::to_string(layer);
    if (!removed.empty()) std::printf("removed layers     %s\n", list.c_str());
  }

  std::string path_, to_, model_, out_, metric_ = "block_influence", zeroed_, device_ = "auto", dtype_ = "auto";
  PruneSizeOptions sizes_;
  CalibrationRows rows_;
  bool json_ = false;
  fs::path from_;
  std::vector<std::vector<int32_t>> text_;
};

[[maybe_unused]] const bool added = commands().add("prune", [] { return std::unique_ptr<Command>(new PruneCommand); });

}  // namespace
}  // namespace hone
