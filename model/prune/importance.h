#pragma once
// How much the parts of a model matter on calibration text.
//
// layers    block influence, 1 - cosine similarity of a token's hidden states before and after the layer, averaged over
//           tokens (ShortGPT, Men et al. 2024); or the perplexity without the layer (SLEB, Song et al. 2024)
// heads     the norm of a head's output; channels: |activation|, the input of the MLP's last matrix. Averaged over the
//           tokens of a sequence, then the root of the sum of squares over sequences (Minitron, Muralidharan et al.
//           2024)
#include <functional>
#include <span>
#include <vector>

#include "model/prune/prune_plan.h"

namespace hone {

// Sequences of at least 2 and at most max_positions + 1 tokens. The last token of each is predicted, not read.
using CalibrationText = std::span<const std::vector<int32_t>>;

// Importance of each layer's parts. The model must be of a dense family. progress: called with the number of sequences
// that are done.
std::vector<LayerImportance> measure_importance(Context& context, Model& model, CalibrationText text,
                                                const std::function<void(int64_t done)>& progress);

// The perplexity of the text under the given layers of the model.
double calibration_perplexity(Context& context, Model& model, CalibrationText text, std::span<const int64_t> layers);

// Removes one layer after another: always the one without which the perplexity is lowest. Returns the kept layers.
struct LayerRemoval {
  int64_t layer = 0;
  double perplexity = 0;  // without it and those removed before
};
struct GreedyLayers {
  std::vector<int64_t> kept;
  std::vector<LayerRemoval> removals;  // in order
};
GreedyLayers remove_layers_by_perplexity(Context& context, Model& model, CalibrationText text, int64_t num_kept,
                                         const std::function<void(int64_t done)>& progress);

}  // namespace hone
