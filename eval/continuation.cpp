#include "eval/continuation.h"

#include <algorithm>

#include "model/token_logprobs.h"
#include "rewards/answers/text.h"

namespace hone {

ContinuationEncoder::ContinuationEncoder(const PromptRenderer& renderer, const Tokenizer& tokenizer, int64_t max_length)
    : renderer_(renderer),
      tokenizer_(tokenizer),
      chat_(renderer.format(), tokenizer),
      max_length_(static_cast<size_t>(max_length)) {}

Continuation ContinuationEncoder::encode(const EvalExample& doc, const std::string& tail,
                                         const std::string& continuation) {
  Continuation out;
  Task task = renderer_.task(doc);
  if (!task.messages.empty()) {
    task.messages.back().content += tail;
    out.ids = chat_.prompt(task);
    out.first = out.ids.size();
    const std::string completion =
        continuation.substr(std::min(continuation.find_first_not_of(' '), continuation.size()));
    for (const int32_t id : tokenizer_.encode(completion, true, false)) out.ids.push_back(id);
  } else if (const std::string context = task.prompt + tail; !trimmed(context).empty()) {
    size_t end = context.size();
    while (is_space(context[end - 1])) --end;
    out.ids = tokenizer_.encode_document(context + continuation);
    out.first = tokenizer_.encode_document(context.substr(0, end)).size();
  } else {
    if (const auto prefix = tokenizer_.bos() ? tokenizer_.bos() : tokenizer_.eos()) out.ids.push_back(*prefix);
    out.first = out.ids.size();
    for (const int32_t id : tokenizer_.encode(context + continuation)) out.ids.push_back(id);
  }
  HONE_CHECK(out.ids.size() >= 2, doc.where, ": '", excerpt(continuation), "' has no tokens");
  out.first = std::clamp<size_t>(out.first, 1, out.ids.size() - 1);
  HONE_CHECK(out.ids.size() - out.first < max_length_, doc.where, ": the continuation has ", out.ids.size() - out.first,
             " tokens; the model takes ", max_length_);
  if (const size_t excess = out.ids.size() - std::min(out.ids.size(), max_length_); excess > 0) {
    out.ids.erase(out.ids.begin(), out.ids.begin() + static_cast<std::ptrdiff_t>(excess));
    out.first -= excess;
    out.cut = true;
  }
  return out;
}

std::vector<double> log_likelihoods(const EvalTarget& target, std::span<const Continuation> continuations) {
  std::vector<std::vector<int32_t>> sequences;
  for (const Continuation& one : continuations) sequences.push_back(one.ids);
  const std::vector<TokenLogprobs> logprobs = compute_logprobs(target.context, target.model, sequences, {});
  std::vector<double> out(continuations.size());
  for (size_t i = 0; i < out.size(); ++i)
    for (size_t t = continuations[i].first; t < logprobs[i].logp.size(); ++t) out[i] += logprobs[i].logp[t];
  return out;
}

}  // namespace hone
