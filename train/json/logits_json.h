#pragma once
// Evaluates the divergence of a TeacherObjective on logits from a file (`hone objective distill`).
#include <string_view>

#include "core/io/json.h"
#include "train/teacher.h"

namespace hone {

// True if the file has logits instead of log-probs of tokens.
bool has_logits(const Json& input);

// Fields:
//   student_logits, teacher_logits  [[[number a token of the vocabulary] a position] a sequence], or without the level
//                                   of sequences. Log-probs are logits, too; student_logprobs and teacher_logprobs are
//                                   other names
//   teacher_top_ids, teacher_top_logp
//                                   with loss = 'top_k', instead of the teacher's logits: [ids] and [log-probs] of the
//                                   teacher's most likely tokens at each position
//   labels      nested as the positions: -100 takes a position out of the loss; or mask: 0 does
//   reduction   batchmean (default): the mean over positions in the loss; without labels and mask the sum divided by
//               the size of the outermost list, as in TRL's generalized_jsd_loss. sum, mean (over positions and
//               vocabulary)
//   num_items_in_batch  divides the sum instead
// Returns {loss, grad (dLoss/dstudent_logits, nested alike), divergence (one number a position), metrics}. An Error
// names `source` and the field.
Json evaluate_on_logits(const TeacherObjective& objective, const Json& input, std::string_view source);

}  // namespace hone
