// The "library" reward: a shared library with the interface of rewards/plugins/hone_reward.h.
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <mutex>

#include "core/io/file.h"
#include "core/io/json.h"
#include "rewards/plugins/hone_reward.h"
#include "rewards/plugins/text.h"
#include "rewards/reward.h"

namespace hone {
namespace {

using Description = hone_reward_plugin_description;

struct CloseLibrary {
  void operator()(void* handle) const { ::dlclose(handle); }
};

class LibraryReward : public Reward {
 public:
  ~LibraryReward() override {
    if (reward_) description_->destroy(reward_);
  }

  void fields(Fields& f) override {
    f.alias("file", "path");
    f("path", path_, "the shared library");
    f("options", options_, "JSON text passed to the library's create()");
  }

  void prepare() override {
    HONE_CHECK(!path_.empty(), "path is empty; set the shared library");
    if (!options_.empty()) parse_json(options_, "options");
  }

  std::string unavailable_reason() const override {
    try {
      open();
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
  // Loading it is the trial: a score may have costs.
  void check(const RewardTrial&) const override { open(); }

  RewardScore score(const Task& task, const Completion& completion) const override {
    RewardScore out;
    score_group(task, {&completion, 1}, {&out, 1});
    return out;
  }

  void score_group(const Task& task, std::span<const Completion> completions,
                   std::span<RewardScore> scores) const override {
    open();
    const std::string messages = task.messages.empty() ? "" : messages_json(task.messages).dump();
    const std::string columns = task.columns.is_object() ? task.columns.dump() : "";
    const auto text = [](const std::string& s) { return hone_text{s.data(), s.size()}; };
    std::vector<hone_reward_item> items;
    for (const Completion& c : completions)
      items.push_back({text(task.prompt), text(messages), text(task.answer), text(columns), text(c.text),
                       text(c.finish_reason), c.ids.data(), c.ids.size()});
    std::vector<hone_reward_result> results(items.size(), {.status = HONE_REWARD_FAILED, .score = 0, .note = {}});
    std::array<char, 1024> error{};
    int problem = 1;
    try {
      std::unique_lock lock(one_thread_, std::defer_lock);
      if (description_->flags & HONE_REWARD_ONE_THREAD) lock.lock();
      problem = description_->score(reward_, items.data(), items.size(), results.data(), error.data(), error.size());
    } catch (const std::exception& e) {  // a C++ library may throw
      std::snprintf(error.data(), error.size(), "it threw: %s", e.what());
    } catch (...) {
      std::snprintf(error.data(), error.size(), "it threw an exception");
    }
    for (size_t i = 0; i < scores.size(); ++i)
      scores[i] = problem ? failed_score(error_text_of(error)) : to_score(results[i]);
  }

 private:
  // Loads the library and makes the reward, once.
  void open() const {
    const std::lock_guard lock(opening_);
    if (reward_) return;
    // Without a slash dlopen searches the system's folders.
    const std::string file = expand_path(path_), name = file.find('/') == std::string::npos ? "./" + file : file;
    ::close(open_file(name));  // dlopen would block on a FIFO
    library_.reset(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL));
    HONE_CHECK(library_, ::dlerror());
    const auto describe =
        reinterpret_cast<decltype(&hone_reward_plugin)>(::dlsym(library_.get(), "hone_reward_plugin"));
    HONE_CHECK(describe, name, ": it does not export hone_reward_plugin (rewards/plugins/hone_reward.h)");
    description_ = describe(HONE_REWARD_ABI);
    HONE_CHECK(description_, name, ": it does not speak version ", HONE_REWARD_ABI, " of hone_reward.h");
    HONE_CHECK(description_->abi == HONE_REWARD_ABI, name, ": it speaks version ", description_->abi,
               " of hone_reward.h, this is version ", HONE_REWARD_ABI);
    HONE_CHECK(description_->create && description_->score && description_->destroy, name,
               ": its description lacks create, score or destroy");
    std::array<char, 1024> error{};
    reward_ = description_->create({options_.data(), options_.size()}, error.data(), error.size());
    HONE_CHECK(reward_, name, ": ", error_text_of(error));
  }

  static std::string error_text_of(std::array<char, 1024>& error) {
    error.back() = 0;
    return error.front() ? plain_text(error.data()) : "it failed without a message";
  }

  static RewardScore to_score(hone_reward_result& result) {
    std::end(result.note)[-1] = 0;
    const std::string note = plain_text(result.note);
    switch (result.status) {
      case HONE_REWARD_SCORED:
        return checked_score(result.score, note);
      case HONE_REWARD_SKIPPED:
        return {.note = note, .skipped = true};
      default:
        return failed_score(note.empty() ? "it gave no score" : note);
    }
  }

  std::string path_, options_;
  mutable std::mutex opening_;
  mutable std::unique_ptr<void, CloseLibrary> library_;
  mutable const Description* description_ = nullptr;
  mutable void* reward_ = nullptr;
  mutable std::mutex one_thread_;
};

[[maybe_unused]] const bool added = rewards().add("library", [] { return std::unique_ptr<Reward>(new LibraryReward); });

}  // namespace
}  // namespace hone
