#pragma once
// TeacherScorer: the log-probs of given tokens under a teacher: a model of this process, workers, or a server.
#include <memory>
#include <span>
#include <vector>

#include "train/stage.h"
#include "train/teacher.h"

namespace hone {

// All ranks make the same calls with equal sequences and get equal results. One thread a rank.
class TeacherScorer {
 public:
  virtual ~TeacherScorer() = default;
  // Entry t of a result is the log-prob of token t given the tokens before it; entry 0 is 0. Throws an Error that says
  // why if a log-prob is missing.
  virtual std::vector<std::vector<float>> logprobs(std::span<const std::vector<int32_t>> sequences,
                                                   double temperature) = 0;
};

// Each of these keeps references to its arguments.
std::unique_ptr<TeacherScorer> make_local_teacher(const StageContext& stage, Model& teacher);
// Sends the weights of `teacher` to the workers. The model is not needed afterwards; null on ranks other than 0.
std::unique_ptr<TeacherScorer> make_worker_teacher(StageContext& stage, const TeacherConfig& config,
                                                   std::unique_ptr<Model> teacher);
// A token of the server that has another text in the student's vocabulary is an Error.
std::unique_ptr<TeacherScorer> make_endpoint_teacher(const StageContext& stage, const TeacherConfig& config);

// The log-probs of sequences as bytes for other ranks, and back. Throws an Error if they do not fit the sequences.
std::string logprob_bytes(std::span<const std::vector<float>> logprobs);
std::vector<std::vector<float>> logprobs_of(std::string_view bytes, std::span<const std::vector<int32_t>> sequences);

}  // namespace hone
