#pragma once
// Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2): modules behind the last layer, which in training
// predict tokens further ahead. Module k = 1, 2, ... has at token i
//
//   x_i = eh_proj([enorm(embedding(token i + k)), hnorm(h_i)]),   h'_i = norm(layer(x)_i)
//
// and predicts token i + k + 1 of the same sequence with the model's own lm_head. h is the input of lm_head (the
// model's final norm included) for module 1, and h' of the module before it for others, as in SGLang and Megatron. The
// loss is loss_coef times the mean over modules of the cross-entropy; it is a loss made inside the model
// (model/aux_loss.h). Scoring and generation do not run the modules.
#include "model/layer.h"

namespace hone {

struct MtpModule {
  Norm enorm, hnorm;   // of the embedding, and of the hidden state
  Linear eh_proj;      // [D, 2 D]
  DecoderLayer layer;  // of any kind
  Norm norm;           // shared_head.norm

  // Without the layer. prefix: "model.layers.N.".
  static MtpModule make(const std::string& prefix, int64_t width, double init_std, double norm_eps, double norm_offset);
};

// What the modules see of a training pass.
struct MtpPass {
  const Batch& batch;
  Tensor rows;  // [R] i32: the tokens whose next one is trained on
  AuxLoss aux;  // the sums are the modules' own range
  Tape& tape;
};

class Mtp {
 public:
  // loss_coef 0: the modules are kept as they are.
  Mtp(std::vector<MtpModule> modules, double loss_coef);
  Mtp(const Mtp&) = delete;
  Mtp& operator=(const Mtp&) = delete;
  size_t size() const { return modules_.size(); }
  const MtpModule& module(size_t index) const { return modules_[index]; }

  // The parameters. Adapters and 8-bit copies do not concern the modules, so their matrices are not listed.
  void add_to(ModuleList& list) const;
  // The loss and its gradient in one go, as parts of a backward pass: adds to the sums, to the gradients of the
  // modules, of the final norm, lm_head and embedding, and to dx, the gradient of the last layer's output x [T, D].
  // Leaves the tape as it was.
  void learn(Context&, Model& model, const MtpPass& pass, Tensor dx, Tensor x) const;
  // Of each module: sums of weight * -logp, weight * hit and weight, then those of its layer.
  int64_t num_aux_sums() const;
  void end_step(Context&, std::span<const double> sums, AuxReport& report);

 private:
  struct Step;
  void forward(Context&, Model&, const MtpPass&, size_t index, Step& step, Tensor hidden, int64_t first_sum) const;
  void backward(Context&, Model&, const MtpPass&, size_t index, const Step& step, Tensor dhidden) const;

  std::vector<MtpModule> modules_;
  std::vector<Param*> params_;  // trained ones first: in flat memory they are neighbors (model/units.h)
  double loss_coef_;
};

// A model that may have such modules.
class MtpSource {
 public:
  virtual ~MtpSource() = default;
  virtual Mtp* mtp() const = 0;  // null: none
};
Mtp* mtp_of(const Model& model);

// True if the backward pass of the back unit adds to the gradients of the front unit, too: a tied lm_head is the
// embedding, and modules read it.
bool back_adds_to_front(Model& model);

// The tensors that published files have for each module beside its own: copies of the embedding and of lm_head.
struct MtpCopy {
  std::string name;
  const Param* of;
};
std::vector<MtpCopy> mtp_copies(Model& model);

}  // namespace hone
