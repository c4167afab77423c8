#pragma once
// LayerPass: what every layer of a forward or backward pass gets.
#include "model/aux_loss.h"
#include "model/batch.h"
#include "model/tape.h"

namespace hone {

struct LayerPass {
  const Batch& batch;
  Tape* tape = nullptr;        // null: nothing is kept for a backward pass
  const KvView* kv = nullptr;  // null: queries read the keys and values of the batch
  AuxLoss aux{};
};

}  // namespace hone
