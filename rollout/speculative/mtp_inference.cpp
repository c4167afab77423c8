#include "rollout/speculative/mtp_inference.h"

#include "core/base/check.h"

namespace hone {

std::vector<KvGroupShape> mtp_kv_groups(const Mtp& mtp) {
  std::vector<KvGroupShape> out(mtp.size());
  for (size_t k = 0; k < mtp.size(); ++k) {
    const KvPlace place = mtp.module(k).layer.mixer.sublayer->kv_place();
    HONE_CHECK(place.kv_layer && *place.kv_layer < out.size(), "module ", k + 1,
               " of multi-token prediction keeps no keys and values, so it cannot propose tokens");
    KvGroupShape& group = out[*place.kv_layer];
    group = place.shape;
    group.planes = 1;
  }
  return out;
}

void infer_mtp_module(Context& context, Model& model, size_t index, const LayerPass& pass, Tensor out, Tensor hidden) {
  const OpRange range(context, "mtp");
  const ScratchScope scope(context);
  const MtpModule& module = mtp_of(model)->module(index);
  const int64_t T = hidden.dim(0), D = hidden.dim(1);
  const auto wide = [&](int64_t columns) { return context.scratch().take(hidden.dtype, {T, columns}); };
  const Tensor embedded = wide(D), joined = wide(2 * D), x = wide(D);
  Frame frame(context, nullptr);
  model.embed(context, pass.batch, embedded);
  module.enorm.forward(context, joined.columns(0, D), embedded, module.enorm.save(frame, T));
  module.hnorm.forward(context, joined.columns(D, D), hidden, module.hnorm.save(frame, T));
  module.eh_proj.forward(context, x, joined);
  module.layer.forward(context, pass, x, x);
  module.norm.forward(context, out, x, module.norm.save(frame, T));
}

}  // namespace hone
