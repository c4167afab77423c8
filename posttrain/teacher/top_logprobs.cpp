#include "posttrain/teacher/top_logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/forward.h"
#include "rollout/sampler.h"
#include "train/teacher.h"

namespace hone {
namespace {

constexpr size_t width = max_teacher_top;
constexpr double most_probability = 1.001;  // rounding of servers

// The list of a token; empty if it is null.
std::span<const Json> list_of(const Json& all, size_t t, const std::string& what) {
  const Json& one = all.as_array(what)[t];
  if (one.is_null()) return {};
  return one.as_array(what);
}

void check_tokens(const Json& row, const std::string& where, const Sample& sample) {
  const std::string what = where + ": ids";
  const JsonArray& ids = row.at("ids", where).as_array(what);
  HONE_CHECK(ids.size() >= sample.tokens.size(), where, ": ids has ", ids.size(), " tokens, the stage makes ",
             sample.tokens.size(),
             " of the row: write the log-probs with the tokenizer and prompt format of the stage");
  for (size_t t = 0; t < sample.tokens.size(); ++t)
    HONE_CHECK(ids[t].as_int(what) == sample.tokens[t], where, ": ids[", t, "] is ", ids[t].as_int(what),
               ", and the stage makes ", sample.tokens[t], " of the row: write the log-probs with the tokenizer and ",
               "prompt format of the stage");
}

// Writes the entries of one token.
void read_entry(std::span<const Json> ids, std::span<const Json> logp, const std::string& where, int64_t vocab_size,
                std::span<float> out_ids, std::span<float> out_logp) {
  HONE_CHECK(ids.size() == logp.size(), where, ": ", ids.size(), " ids in top_ids and ", logp.size(),
             " log-probs in top_logp");
  HONE_CHECK(ids.size() <= width, where, ": top_ids has ", ids.size(), " ids; at most ", width, " are read");
  double sum = 0;
  for (size_t k = 0; k < ids.size(); ++k) {
    const int64_t id = ids[k].as_int(where + ": top_ids");
    const double value = logp[k].as_double(where + ": top_logp");
    HONE_CHECK(id >= 0 && id < vocab_size, where, ": top_ids has ", id, "; the student's vocabulary has ", vocab_size,
               " tokens: distillation compares probabilities token by token, so both need the same tokenizer");
    HONE_CHECK(std::find(out_ids.begin(), out_ids.begin() + static_cast<std::ptrdiff_t>(k), static_cast<float>(id)) ==
                   out_ids.begin() + static_cast<std::ptrdiff_t>(k),
               where, ": top_ids has ", id, " twice");
    HONE_CHECK(std::isfinite(value), where, ": top_logp has ", value, "; it must be finite");
    sum += std::exp(value);
    out_ids[k] = static_cast<float>(id);
    out_logp[k] = static_cast<float>(value);
  }
  HONE_CHECK(sum <= most_probability, where, ": the probabilities of top_logp sum to ", sum,
             ": they must be natural logarithms of probabilities at temperature 1");
}

// One pass over several sequences. The hidden state of token t predicts token t + 1.
void top_of_pack(Context& context, Model& model, std::span<const std::vector<int32_t>> sequences, int64_t top,
                 std::span<TopLogprobs> out) {
  const ScratchScope scope(context);
  std::vector<BatchPart> parts;
  std::vector<int32_t> rows, targets;
  int32_t first = 0;
  for (const std::vector<int32_t>& sequence : sequences) {
    if (sequence.size() < 2) continue;
    parts.push_back({std::span(sequence).first(sequence.size() - 1)});
    for (size_t t = 1; t < sequence.size(); ++t) {
      rows.push_back(first + static_cast<int32_t>(t) - 1);
      targets.push_back(sequence[t]);
    }
    first += static_cast<int32_t>(sequence.size()) - 1;
  }
  PromptLogprobs found;
  if (!rows.empty()) {
    Arena& scratch = context.scratch();
    const Tensor hidden = infer(context, model, pack_batch(context, scratch, parts),
                                upload(context, scratch, std::span<const int32_t>(rows)), nullptr);
    found = prompt_logprobs(context, model, hidden, targets, top);
  }
  auto next = found.top_logprobs.begin();
  for (size_t s = 0; s < sequences.size(); ++s) {
    out[s].resize(sequences[s].size());
    for (size_t t = 1; t < sequences[s].size(); ++t, ++next)
      for (const TokenLogp& one : *next) out[s][t].emplace_back(one.id, one.logp);
  }
}

}  // namespace

std::vector<TopLogprobs> compute_top_logprobs(Context& context, Model& model,
                                              std::span<const std::vector<int32_t>> sequences, int64_t top) {
  constexpr int64_t batch_tokens = 4096;
  std::vector<TopLogprobs> out(sequences.size());
  for (size_t begin = 0, end = 0; begin < sequences.size(); begin = end) {
    int64_t tokens = 0;
    do tokens += std::ssize(sequences[end++]);
    while (end < sequences.size() && tokens + std::ssize(sequences[end]) <= batch_tokens);
    top_of_pack(context, model, sequences.subspan(begin, end - begin), top, std::span(out).subspan(begin, end - begin));
  }
  return out;
}

void write_top_logprobs(Json& row, const TopLogprobs& top) {
  JsonArray all_ids, all_logp;
  for (const auto& entry : top) {
    std::vector<int32_t> ids;
    std::vector<float> logp;
    for (const auto& [id, value] : entry) {
      ids.push_back(id);
      logp.push_back(value);
    }
    all_ids.push_back(entry.empty() ? Json() : Json::array(ids));
    all_logp.push_back(entry.empty() ? Json() : Json::array(logp));
  }
  row.set("top_ids", std::move(all_ids));
  row.set("top_logp", std::move(all_logp));
}

void read_top_logprobs(const Json& row, const std::string& where, int64_t vocab_size, Sample& sample) {
  check_tokens(row, where, sample);
  const Json &ids = row.at("top_ids", where), &logp = row.at("top_logp", where);
  const size_t tokens = sample.tokens.size(), given = row.at("ids").as_array().size();
  for (const auto& [name, value] : {std::pair("top_ids", &ids), std::pair("top_logp", &logp)})
    HONE_CHECK(value->as_array(where + ": " + name).size() == given, where, ": ", name, " has ",
               value->as_array().size(), " entries for ", given, " ids");
  std::vector<float> out_ids(tokens * width, -1), out_logp(tokens * width, 0);
  const std::span<const float> mask = std::as_const(sample.columns)[columns::mask];
  for (size_t t = 1; t < tokens; ++t) {
    if (mask[t] == 0) continue;
    const std::string token = concat(where, ": token ", t);
    const std::span<const Json> entry = list_of(ids, t, token);
    HONE_CHECK(!entry.empty(), token, " is trained on and has no top_ids");
    read_entry(entry, list_of(logp, t, token), token, vocab_size, std::span(out_ids).subspan(t * width, width),
               std::span(out_logp).subspan(t * width, width));
  }
  sample.columns.set(columns::teacher_top_ids, std::move(out_ids));
  sample.columns.set(columns::teacher_top_logp, std::move(out_logp));
}

}  // namespace hone
