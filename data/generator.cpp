#include "data/generator.h"

namespace hone {

Registry<GeneratorFactory>& generators() {
  static Registry<GeneratorFactory> registry("generator");
  return registry;
}

void GeneratorSpec::fields(Fields& f) {
  f("kind", kind, "name of the generator (hone list generators); empty = none");
  if (kind.empty()) return;
  if (f.reading()) {
    f.require("kind", generators().contains(kind), generators().unknown(kind));
    generator = generators().at(kind)();
  }
  generator->fields(f);
  if (f.reading()) generator->prepare();
}

}  // namespace hone
