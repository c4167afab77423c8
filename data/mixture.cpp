#include "data/mixture.h"

#include "core/base/rng.h"

namespace hone {

Mixture::Mixture(std::vector<MixturePart> parts, uint64_t seed, bool shuffle) {
  HONE_CHECK(!parts.empty(), "mixture: there are no sources");
  const bool several = parts.size() > 1;
  int64_t first = 0;
  for (MixturePart& part : parts) {
    HONE_CHECK(!several || part.count > 0, "source ", part.name, " has no samples");
    if (part.weight == 0) part.weight = static_cast<double>(part.count);
    const IndexLoader order(part.count, several ? seed ^ stream_of(part.name.c_str()) : seed, shuffle);
    const int64_t count = part.count;
    sources_.push_back({std::move(part), order, first});
    first += count;
  }
}

size_t Mixture::next_source() const {
  const auto due = [&](size_t s) { return (static_cast<double>(sources_[s].drawn) + 0.5) / sources_[s].part.weight; };
  size_t best = 0;
  for (size_t s = 1; s < sources_.size(); ++s)
    if (due(s) < due(best)) best = s;
  return best;
}

int64_t Mixture::next(const Accept& accept) {
  last_ = next_source();
  Source& source = sources_[last_];
  for (;;) {
    const int64_t index = source.first + source.order.next();
    if (accept && !accept(index, source.order.epoch())) continue;
    ++source.drawn;
    return index;
  }
}

int64_t Mixture::num_given() const {
  int64_t sum = 0;
  for (const Source& source : sources_) sum += source.order.num_given();
  return sum;
}

int64_t Mixture::count() const { return sources_.back().first + sources_.back().part.count; }

Metrics Mixture::metrics() const {
  Metrics out;
  if (sources_.size() > 1)
    for (const Source& source : sources_) out["epoch/" + source.part.name] = source.order.epochs_done();
  return out;
}

void Mixture::save_state(StateSection& section) const {
  if (sources_.size() == 1) return sources_[0].order.save_state(section);
  JsonArray saved;
  for (const Source& source : sources_) {
    StateSection order;
    source.order.save_state(order);
    order.values.set("name", source.part.name);
    order.values.set("weight", source.part.weight);
    order.values.set("drawn", source.drawn);
    saved.push_back(std::move(order.values));
  }
  section.values.set("sources", std::move(saved));
  section.values.set("last", static_cast<int64_t>(last_));
}

void Mixture::load_state(const StateSection& section) {
  if (sources_.size() == 1) return sources_[0].order.load_state(section);
  const JsonArray& saved = section.values.at("sources", "mixture state").as_array("sources");
  HONE_CHECK(saved.size() == sources_.size(), "mixture state: there were ", saved.size(),
             " sources when it was saved, and there are ", sources_.size(), " now; the recipe changed");
  std::vector<Source> loaded = sources_;
  for (size_t s = 0; s < loaded.size(); ++s) {
    Source& source = loaded[s];
    const std::string name = saved[s].at("name", "mixture state").as_string("name");
    HONE_CHECK(name == source.part.name, "mixture state: source ", s, " was ", name, " when it was saved, and is ",
               source.part.name, " now; the recipe changed");
    const double weight = saved[s].at("weight", "mixture state").as_double("weight");
    HONE_CHECK(weight == source.part.weight, "mixture state: the weight of source ", name, " was ", weight,
               " when it was saved, and is ", source.part.weight, " now; the data or the recipe changed");
    StateSection order;
    order.values = saved[s];
    source.order.load_state(order);
    source.drawn = saved[s].at("drawn", "mixture state").as_int("drawn");
    HONE_CHECK(source.drawn >= 0 && source.drawn <= source.order.num_given(), "mixture state: source ", name, " gave ",
               source.drawn, " samples at position ", source.order.num_given());
  }
  const int64_t last = section.values.at("last", "mixture state").as_int("last");
  HONE_CHECK(last >= 0 && last < std::ssize(loaded), "mixture state: source ", last, " of ", loaded.size());
  sources_ = std::move(loaded);
  last_ = static_cast<size_t>(last);
}

}  // namespace hone
