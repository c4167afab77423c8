#pragma once
// Where a teacher is: a model folder, the student as its stage began, a server, or workers.
#include <cstdint>
#include <string>
#include <vector>

#include "core/config/model_api_config.h"

namespace hone {

// A server of a teacher, which returns log-probs of given tokens.
struct TeacherEndpoint : ModelApiConfig {
  std::string api = "auto";  // auto | vllm | echo
  int64_t concurrency = 8;   // requests at the same time
  void fields(Fields& f);
};

struct TeacherConfig {
  std::string folder = {};
  // Field of a task's row whose text the teacher reads before the prompt; "": none. Without another teacher the teacher
  // is then the model as the stage began.
  std::string context_field = {};
  TeacherEndpoint endpoint = {};          // base_url "": none
  std::vector<std::string> workers = {};  // URLs of workers that hold the folder's model; empty: the learner holds it
  bool has_endpoint() const { return !endpoint.base_url.empty(); }
  // True if the learner's process runs the teacher.
  bool is_local() const { return !has_endpoint() && workers.empty(); }
};

}  // namespace hone
