#pragma once
// The models that benches know by name, and random weights for them.
#include <memory>
#include <string>
#include <vector>

#include "model/model.h"

namespace hone {

std::vector<std::string> model_bench_shapes();
// A name of model_bench_shapes() or a config.json; without memory.
std::unique_ptr<Model> make_bench_model(const std::string& shape);
// Random weights; on a GPU such as are quick to make: one piece of draws, over and over.
void fill_weights(Context& context, Model& model);

}  // namespace hone
