#include "train/teacher_config.h"

namespace hone {

void TeacherEndpoint::fields(Fields& f) {
  ModelApiConfig::fields(f);
  f("api", api,
    "how the server returns log-probs of given tokens: vllm = prompt_logprobs, echo = echo and logprobs of the older "
    "completions API, auto = the first that the server knows");
  f("concurrency", concurrency, "requests at the same time");
  f.require("api", api == "auto" || api == "vllm" || api == "echo", "api must be auto, vllm or echo");
  f.require("concurrency", concurrency >= 1 && concurrency <= 1024, "concurrency must be in [1, 1024]");
  f.require("model", base_url.empty() || !model.empty(), "model is missing: give the teacher's name on the server");
}

}  // namespace hone
