#include "model/layer.h"

#include <algorithm>

#include "kernels/elementwise/cast.h"

namespace hone {

void ResidualBranch::forward(Context& context, const LayerPass& pass, Tensor out, Tensor x, Tensor residual) const {
  Frame own(context, pass.tape);
  Tensor in = x;
  if (before) {
    in = own.save_cheap(x.dtype, x.dims());
    before->forward(context, in, x, before->save(own, x.dim(0)));
  }
  if (!after) {
    Frame frame(context, pass.tape);
    return sublayer->forward(context, pass, out, in, residual, frame);
  }
  const Tensor result = own.save(x.dtype, x.dims());
  const Norm::Stats stats = after->save(own, x.dim(0));
  {
    Frame frame(context, pass.tape);
    sublayer->forward(context, pass, result, in, {}, frame);
  }
  const bool in_place = out.data == residual.data;
  const Tensor normed = in_place ? context.scratch().take(x.dtype, x.dims()) : out;
  after->forward(context, normed, result, stats);
  add_into(context, out, in_place ? normed : residual);
}

ResidualBranch::Frames ResidualBranch::restore(Tape& tape) const {
  Saved of_sublayer = tape.pop_frame();
  return {tape.pop_frame(), std::move(of_sublayer)};
}

void ResidualBranch::backward(Context& context, const LayerPass& pass, Tensor dx, Tensor dout, Tensor x,
                              Frames saved) const {
  const ScratchScope scope(context);
  const auto like_x = [&] { return context.scratch().take(x.dtype, x.dims()); };
  const Tensor din = like_x();
  Tensor in = x;
  Norm::Stats before_stats;
  if (before) {
    in = saved.own.next();
    before_stats = before->restore(saved.own);
    if (!in) {  // recomputed
      in = like_x();
      before->forward(context, in, x, before_stats);
    }
  }
  Tensor dresult = dout;
  if (after) {
    const Tensor result = saved.own.next();
    dresult = like_x();
    after->backward(context, dresult, dout, result, after->restore(saved.own), false);
  }
  sublayer->backward(context, pass, din, dresult, in, saved.of_sublayer);
  if (before)
    before->backward(context, dx, din, x, before_stats, true);
  else
    add_into(context, dx, din);
}

void ResidualBranch::add_to(ModuleList& list) {
  if (before) before->add_to(list);
  sublayer->add_to(list);
  if (after) after->add_to(list);
}

// The pass as a sublayer sees it: with its own range of the sums, which begins at `first`.
static LayerPass pass_of(const LayerPass& pass, const Sublayer& sublayer, int64_t first) {
  LayerPass out = pass;
  if (pass.aux.sums) out.aux.sums = pass.aux.sums.rows(first, sublayer.num_aux_sums());
  return out;
}

void DecoderLayer::forward(Context& context, const LayerPass& pass, Tensor out, Tensor x) const {
  const ScratchScope scope(context);
  const LayerPass mixer_pass = pass_of(pass, *mixer.sublayer, 0),
                  mlp_pass = pass_of(pass, *mlp.sublayer, mixer.sublayer->num_aux_sums());
  Frame own(context, pass.tape);
  Tensor in = x;
  if (shared_norm) {
    in = own.save_cheap(x.dtype, x.dims());
    shared_norm->forward(context, in, x, shared_norm->save(own, x.dim(0)));
  }
  const Tensor mid = own.save(x.dtype, x.dims());
  mixer.forward(context, mixer_pass, mid, in, x);
  mlp.forward(context, mlp_pass, out, parallel ? in : mid, mid);
}

void DecoderLayer::backward(Context& context, const LayerPass& pass, Tensor dx, Tensor x) const {
  const ScratchScope scope(context);
  const LayerPass mixer_pass = pass_of(pass, *mixer.sublayer, 0),
                  mlp_pass = pass_of(pass, *mlp.sublayer, mixer.sublayer->num_aux_sums());
  // Popped in the order of the tape, before anything is computed.
  ResidualBranch::Frames of_mlp = mlp.restore(*pass.tape), of_mixer = mixer.restore(*pass.tape);
  Saved own = pass.tape->pop_frame();
  Tensor in = x, din = dx, dout = dx;
  Norm::Stats stats;
  if (shared_norm) {
    in = own.next();
    stats = shared_norm->restore(own);
    if (!in) {  // recomputed
      in = context.scratch().take(x.dtype, x.dims());
      shared_norm->forward(context, in, x, stats);
    }
    din = context.scratch().take(x.dtype, x.dims());
    context.zero(din);
  }
  const Tensor mid = own.next();
  if (parallel) {  // both branches read the gradient of out, and add to dx
    dout = context.scratch().take(dx.dtype, dx.dims());
    context.copy(dout, dx);
  }
  mlp.backward(context, mlp_pass, din, dout, parallel ? in : mid, std::move(of_mlp));
  mixer.backward(context, mixer_pass, din, dout, in, std::move(of_mixer));
  if (shared_norm) shared_norm->backward(context, dx, din, x, stats, true);
}

void DecoderLayer::add_to(ModuleList& list) {
  if (shared_norm) shared_norm->add_to(list);
  mixer.add_to(list);
  mlp.add_to(list);
}

void DecoderLayer::end_step(Context& context, std::span<const double> sums, AuxReport& report) {
  const auto of_mixer = static_cast<size_t>(mixer.sublayer->num_aux_sums());
  mixer.sublayer->end_step(context, sums.first(of_mixer), report);
  mlp.sublayer->end_step(context, sums.subspan(of_mixer), report);
}

void AuxReport::add(const std::string& name, double value) {
  Entry& entry = entries_[name];
  const bool first = entry.count++ == 0;
  if (name.ends_with("max"))
    entry.value = first ? value : std::max(entry.value, value);
  else if (name.ends_with("min"))
    entry.value = first ? value : std::min(entry.value, value);
  else
    entry.value += value;
}

Metrics AuxReport::metrics() const {
  Metrics out;
  for (const auto& [name, entry] : entries_) {
    const bool extreme = name.ends_with("max") || name.ends_with("min");
    out[name] = extreme ? entry.value : entry.value / static_cast<double>(entry.count);
  }
  return out;
}

}  // namespace hone
