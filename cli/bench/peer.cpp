#include "cli/bench/peer.h"

#include <algorithm>

#include "core/base/format.h"
#include "core/base/suggest.h"
#include "core/io/jsonl.h"

namespace hone {
namespace {

constexpr const char* sizes[] = {"model", "B", "T", "ctx", "prompt", "new", "P", "G"};
// Programs that run one model only do not name it.
constexpr const char* only_model = "qwen2.5-0.5b";

bool measured_the_same(const Json& ours, const Json& theirs) {
  for (const char* size : sizes) {
    const Json *a = ours.find(size), *b = theirs.find(size);
    if (a && b ? *a != *b : a && std::string_view(size) == "model" && *a != Json(only_model)) return false;
  }
  return true;
}

const Json* rate_of(const Json& row) {
  const Json* whole_step = row.find("completion_tok_s");
  return whole_step ? whole_step : row.find("tok_s");
}

}  // namespace

std::string add_peers(Json& row, const std::vector<std::string>& names, const std::string& path) {
  JsonArray peers;
  std::string text;
  read_jsonl(path, [&](const Json& theirs, int64_t) {
    const Json *bench = theirs.find("bench"), *rate = rate_of(theirs);
    if (!bench || !rate || std::find(names.begin(), names.end(), bench->as_string("bench")) == names.end() ||
        !measured_the_same(row, theirs))
      return;
    const double speed = rate->as_double("tok_s"), ratio = row.at("tokens_per_second").as_double() / speed;
    peers.push_back(theirs);
    peers.back().set("ratio", ratio);
    text += format_text("\n  %.2fx of %s's %.1f tokens/s", ratio, bench->as_string().c_str(), speed);
  });
  HONE_CHECK(!peers.empty(), path, ": no row of ", names.empty() ? "any bench" : join(names),
             " has the sizes of this bench");
  row.set("peers", std::move(peers));
  return text;
}

}  // namespace hone
