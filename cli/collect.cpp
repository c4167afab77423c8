// hone collect: samples and judges completions of a data file's rows, and writes them as data. hone pairs is the same
// command with one output file.
#include <cstdio>
#include <filesystem>

#include "cli/command.h"
#include "cli/model_arguments.h"
#include "collect/collection.h"
#include "collect/identity.h"
#include "core/base/interrupt.h"
#include "core/base/log.h"
#include "core/io/file.h"
#include "core/io/folder_lock.h"
#include "core/io/scratch_folder.h"
#include "posttrain/rl/worker_source.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

class CollectCommand : public Command {
 public:
  explicit CollectCommand(bool pairs_only) : pairs_only_(pairs_only) {}
  std::string summary() const override {
    return pairs_only_ ? "sample completions, score them, and write preference pairs (hone collect writes more)"
                       : "sample completions, score them, and write SFT rows, preference pairs and tasks by difficulty";
  }
  std::string example() const override {
    if (pairs_only_) return "hone pairs configs/experiment/pairs.toml --model DIR --out pairs.jsonl num_generations=8";
    return "hone collect tasks.toml --model DIR --out data\n  hone collect problems.jsonl --reward math --model DIR "
           "--num-generations 8 --out data --prompt '{question}'\n  hone collect tasks.toml --base-url "
           "http://localhost:8000/v1 --model NAME --out data";
  }
  void arguments(Arguments& a) override {
    a.positional("file", file_,
                 "TOML file (docs/reference/recipes/collect.md has its keys), or a file of rows, whose settings are "
                 "options and key=value");
    model_.arguments(a, false);
    a.option("base-url", base_url_,
             "sample from an OpenAI-compatible server (http://localhost:8000/v1); --model is the model's name there");
    a.options("worker", workers_, "URL of a `hone worker` that samples with the model (may be repeated)");
    if (pairs_only_) {
      a.option("out", out_, "file to write: JSON Lines of {prompt, chosen, rejected, ...}; - = standard output", true);
    } else {
      a.option(
          "out", out_,
          "folder to write: sft.jsonl, pairs.jsonl, tasks.jsonl, completions.jsonl, summary.json. The same command "
          "continues what a stopped one began",
          true);
    }
    a.option("reward", reward_, "reward: a kind (hone list rewards), or an inline table {kind = \"...\", ...}");
    a.option("prompt", prompt_,
             "template of the prompt: {name} is a column of the row; empty = the file's, else {prompt}");
    a.option("answer", answer_, "template of the reference answer; empty = the file's, else {answer}");
    a.option("num-generations", num_generations_, "completions of each row; empty = the file's, else 8");
    a.option("limit", limit_, "use only this many first rows; 0 = all; empty = the file's");
    a.option(
        "shard", shard_,
        "K/N: collect the K-th of N parts of the rows, counted from 0; the parts' files in this order are those of "
        "all rows");
    a.flag("allow-changes", allow_changes_,
           "continue a folder with other settings: rows that are done stay as they are");
    a.flag("export-only", export_only_, "sample nothing: write the files of the rows that are done");
    a.flag("json", json_, "print one JSON object as the summary");
    a.rest("settings", settings_, "key=value that override keys of the file");
  }

  int run() override {
    const Config document = read_document();
    config_ = document.as<CollectConfig>();
    if (config_.has_endpoint() && !model_.folder().empty()) config_.endpoint.model = model_.folder();
    require_usage(!model_.folder().empty() || (config_.has_endpoint() && !config_.endpoint.model.empty()),
                  "--model is missing: give a model folder or a .gguf file, or with --base-url the model's name");
    if (pairs_only_) HONE_CHECK(config_.has_scores(), file_, ": pairs need a reward ([reward] kind = \"...\")");
    check_collect(config_);
    install_interrupt_handlers();
    open_folder();
    const FolderLock lock(folder_);
    Collection collection(config_, folder_);
    if (!export_only_) {
      collection.check_settings(collect_identity(config_, document, model_identity()), allow_changes_);
      if (collection.num_missing() > 0) sample(collection);
      HONE_CHECK(!interrupted(), "collect: stopped; the rows that are done are in ", folder_.string(),
                 ": the same command continues");
    }
    finish(collection);
    return 0;
  }

 private:
  Config read_document() {
    std::vector<std::string> overrides;
    const auto set = [&](const std::string& key, const std::string& value) {
      if (!value.empty()) overrides.push_back(key + "=" + value);
    };
    // In place of the file's table.
    set("reward",
        reward_.empty() || reward_.starts_with('{') ? reward_ : concat("{kind = ", Json(reward_).dump(), "}"));
    if (!prompt_.empty()) set("prompt", Json(prompt_).dump());
    if (!answer_.empty()) set("answer", Json(answer_).dump());
    set("num_generations", num_generations_);
    set("limit", limit_);
    if (!base_url_.empty()) set("endpoint.base_url", Json(base_url_).dump());
    if (!workers_.empty()) set("rollout.workers", Json::array(workers_).dump());
    if (!shard_.empty()) {
      const size_t slash = shard_.find('/');
      require_usage(slash != std::string::npos && slash > 0 && slash + 1 < shard_.size() &&
                        shard_.find_first_not_of("0123456789/") == std::string::npos,
                    "--shard is '", shard_, "'; it must be K/N, such as 0/4");
      set("num_shards", shard_.substr(slash + 1));
      set("shard_index", shard_.substr(0, slash));
    }
    overrides.insert(overrides.end(), settings_.begin(), settings_.end());
    if (file_.ends_with(".toml")) return Config::from_file(file_, overrides);
    return Config::from_text(concat("files = [", Json(file_).dump(), "]\n"), "--file", overrides);
  }

  // The folder of the rows that are done: for hone pairs beside the file, while it is made.
  void open_folder() {
    if (!pairs_only_) {
      folder_ = expand_path(out_);
    } else if (out_ == "-") {
      folder_ = scratch_.emplace().path();
    } else {
      folder_ = expand_path(out_) + ".collect";
    }
    if (export_only_)
      HONE_CHECK(fs::is_directory(folder_), folder_.string(), ": no such folder; --export-only reads one");
    make_folder(folder_);
  }

  Json model_identity() {
    if (config_.has_endpoint()) return JsonObject{{"name", config_.endpoint.model}};
    return JsonObject{{"digest", model_digest(expand_path(model_.folder()))},
                      {"dtype", model_.dtype_name()},
                      {"numerics", model_.numerics_name()}};
  }

  void sample(Collection& collection) {
    if (config_.actor.reward.reward) config_.actor.reward.reward->begin({.folder = folder_, .rank = 0});
    if (config_.has_endpoint()) return collection.run(*endpoint_source(config_));
    model_.open();
    const CollectEngine& engine = config_.rollout;
    std::unique_ptr<GenerationBackend> backend;
    if (engine.pool.workers.empty())
      backend = std::make_unique<LocalBackend>(model_.context(), model_.model(), model_.tokenizer(), engine);
    else
      backend = worker_backend(model_.context(), model_.model(), model_.tokenizer(), engine, engine.pool, folder_);
    const auto source = model_source(*backend, model_.tokenizer(), config_, model_.model().shape().max_positions);
    collection.run(*source);
  }

  void finish(Collection& collection) {
    CollectFiles files;
    if (pairs_only_)
      files.pairs = out_ == "-" ? fs::path(out_) : fs::path(expand_path(out_));
    else
      files = {.sft = folder_ / "sft.jsonl", .pairs = folder_ / "pairs.jsonl", .tasks = folder_ / "tasks.jsonl"};
    const CollectSummary summary = collection.write(files);
    if (!pairs_only_) write_file_atomic(folder_ / "summary.json", summary.to_json().dump(2) + "\n");
    warn(summary);
    print(summary, collection.speed());
    if (pairs_only_ && !export_only_ && summary.rows_with_failures == 0) fs::remove_all(folder_);
  }

  static void warn(const CollectSummary& summary) {
    if (summary.rows_done < summary.rows)
      log::warning("collect: ", summary.rows - summary.rows_done, " of ", summary.rows,
                   " rows are not done, and are in no file");
    const RowCounts& counts = summary.counts;
    if (counts.failed() > 0)
      log::warning("collect: ", counts.failed(), " of ", counts.completions, " completions failed (",
                   counts.failed_completions, " could not be sampled, ", counts.failed_rewards,
                   " could not be scored, in ", counts.failed_environments,
                   " the environment broke) and are in no file; the same command tries their rows again");
  }

  void print(const CollectSummary& summary, const CollectSpeed& speed) const {
    // Standard output may be the file.
    std::FILE* const to = pairs_only_ && !json_ ? stderr : stdout;
    if (json_) {
      Json all = summary.to_json();
      const Json times = speed.to_json();
      for (const auto& [name, value] : times.as_object()) all.set(name, value);
      std::fprintf(pairs_only_ && out_ == "-" ? stderr : to, "%s\n", all.dump().c_str());
      return;
    }
    const RowCounts& counts = summary.counts;
    const auto number = [](int64_t value) { return static_cast<long long>(value); };
    if (pairs_only_) {
      std::fprintf(to, "%lld pairs of %lld prompts, mean reward %.4f\n", number(summary.pairs),
                   number(summary.rows_done), counts.reward / static_cast<double>(std::max<int64_t>(1, counts.scored)));
      return;
    }
    std::fprintf(to, "%lld of %lld rows, %lld completions, %lld tokens", number(summary.rows_done),
                 number(summary.rows), number(counts.completions), number(counts.tokens));
    if (speed.rows > 0 && speed.seconds > 0)
      std::fprintf(to, "; %.1f rows/s, %.0f tokens/s", static_cast<double>(speed.rows) / speed.seconds,
                   static_cast<double>(speed.tokens) / speed.seconds);
    std::fprintf(to, "\n");
    if (summary.has_scores)
      std::fprintf(to, "accepted     %lld of %lld scored completions (%.1f%%), mean reward %.4f\n",
                   number(counts.passed), number(counts.scored),
                   100 * static_cast<double>(counts.passed) / static_cast<double>(std::max<int64_t>(1, counts.scored)),
                   counts.reward / static_cast<double>(std::max<int64_t>(1, counts.scored)));
    std::fprintf(to, "sft.jsonl    %lld rows\n", number(summary.sft_rows));
    if (!summary.has_scores) return;
    std::fprintf(to, "pairs.jsonl  %lld rows\n", number(summary.pairs));
    std::fprintf(to, "tasks.jsonl  %lld rows; %lld tasks are too hard, %lld too easy, %lld without a score\n",
                 number(summary.tasks), number(summary.tasks_below_min_pass_rate),
                 number(summary.tasks_above_max_pass_rate), number(summary.tasks_without_score));
  }

  const bool pairs_only_;
  ModelArguments model_;
  CollectConfig config_;
  std::string file_, out_, base_url_, reward_, prompt_, answer_, num_generations_, limit_, shard_;
  std::vector<std::string> workers_, settings_;
  bool allow_changes_ = false, export_only_ = false, json_ = false;
  fs::path folder_;
  std::optional<ScratchFolder> scratch_;
};

[[maybe_unused]] const bool added = commands().add("collect", [] {
  return std::unique_ptr<Command>(new CollectCommand(false));
}) && commands().add("pairs", [] { return std::unique_ptr<Command>(new CollectCommand(true)); });

}  // namespace
}  // namespace hone
