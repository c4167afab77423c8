// A reward library that breaks in the way that HONE_TEST_LIBRARY (what it is) or its options (what it does) name.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "hone_reward.h"

namespace {

struct Broken {
  std::string how;
  int inside = 0;
};

void* create(hone_text options, char* error, size_t error_size) {
  const std::string how(options.data, options.size);
  if (how == "\"nothing\"") return nullptr;
  if (how == "\"refuses\"") {
    std::snprintf(error, error_size, "these options are no good");
    return nullptr;
  }
  if (how == "\"fills the error\"") {
    std::memset(error, 'e', error_size);
    return nullptr;
  }
  return new Broken{how};
}

int score(void* self, const hone_reward_item* items, size_t count, hone_reward_result* results, char* error,
          size_t error_size) {
  Broken& broken = *static_cast<Broken*>(self);
  const std::string& how = broken.how;
  if (how == "\"throws\"") throw std::runtime_error("oh dear");
  if (how == "\"fails\"") {
    std::snprintf(error, error_size, "the disk is full");
    return 7;
  }
  if (how == "\"says nothing\"") return 0;
  if (how == "\"one thread\"") {
    const int inside = ++broken.inside;  // a data race unless calls come one at a time
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --broken.inside;
    for (size_t i = 0; i < count; ++i) results[i].status = HONE_REWARD_SCORED, results[i].score = inside;
    return 0;
  }
  for (size_t i = 0; i < count; ++i) {
    results[i].status = HONE_REWARD_SCORED;
    results[i].score = how == "\"nan\""        ? std::nan("")
                       : how == "\"infinite\"" ? HUGE_VAL
                       : how == "\"huge\""     ? 1e300
                                               : 1;
    if (how == "\"fills the note\"") std::memset(results[i].note, 'n', sizeof results[i].note);
    if (how == "\"what it got\"") {
      const auto text = [](hone_text t) { return std::string(t.data, t.size); };
      const hone_reward_item& item = items[i];
      const std::string all = text(item.prompt) + "|" + text(item.messages) + "|" + text(item.answer) + "|" +
                              text(item.columns) + "|" + text(item.completion) + "|" + text(item.finish_reason) + "|" +
                              std::to_string(item.num_ids > 0 ? item.ids[0] : -1);
      std::snprintf(results[i].note, sizeof results[i].note, "%s", all.c_str());
    }
    if (how == "\"another status\"") results[i].status = 17;
  }
  return 0;
}

void destroy(void* self) { delete static_cast<Broken*>(self); }

}  // namespace

extern "C" const hone_reward_plugin_description* hone_reward_plugin(uint32_t) {
  const char* set = std::getenv("HONE_TEST_LIBRARY");
  const std::string what = set ? set : "";
  static hone_reward_plugin_description description;
  description = {HONE_REWARD_ABI, HONE_REWARD_ONE_THREAD, create, score, destroy};
  if (what == "other version") description.abi = HONE_REWARD_ABI + 1;
  if (what == "no score") description.score = nullptr;
  return what == "speaks nothing" ? nullptr : &description;
}
