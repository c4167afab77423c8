#include "pretrain/token_loader.h"

namespace hone {

static int64_t count_windows(const TokenFile& file, int64_t length) {
  HONE_CHECK(length >= 2, "loader: windows of ", length, " tokens; at least 2 are needed");
  HONE_CHECK(file.num_tokens() >= length, "loader: the corpus has ", file.num_tokens(),
             " tokens, fewer than one window of ", length);
  return file.num_tokens() / length;
}

TokenLoader::TokenLoader(const TokenFile& file, int64_t length, uint64_t seed)
    : file_(file), length_(length), windows_(count_windows(file, length), seed) {}

Sample read_window(const TokenFile& file, int64_t length, int64_t index) {
  Sample out;
  out.tokens.resize(static_cast<size_t>(length));
  file.read(index * length, out.tokens);
  set_mask(out);
  return out;
}

Sample TokenLoader::next() { return read_window(file_, length_, windows_.next()); }

double TokenLoader::epochs_done() const { return windows_.epochs_done(); }

void TokenLoader::save_state(StateSection& section) const {
  windows_.save_state(section);
  section.values.set("length", length_);
}

void TokenLoader::load_state(const StateSection& section) {
  const int64_t saved = section.values.at("length", "loader state").as_int("length");
  HONE_CHECK(saved == length_, "loader state: length was ", saved, " when it was saved, and is ", length_,
             " now; the data or the recipe changed");
  windows_.load_state(section);
}

}  // namespace hone
