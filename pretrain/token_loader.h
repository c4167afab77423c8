#pragma once
#include "data/index_loader.h"
#include "data/sample.h"
#include "pretrain/token_file.h"

namespace hone {

// Window `index` of `length` tokens. The mask is 0 on its first token and 1 on the others.
Sample read_window(const TokenFile& file, int64_t length, int64_t index);

// Windows of `length` tokens of a token file, end to end, in a new order each epoch. The mask is 0 on a window's first
// token and 1 on the others. Tokens past the last complete window are not used. The file must outlive the loader.
class TokenLoader : public Stateful {
 public:
  TokenLoader(const TokenFile& file, int64_t length, uint64_t seed);
  Sample next();
  int64_t count() const { return windows_.count(); }  // windows of an epoch
  double epochs_done() const;
  void save_state(StateSection& section) const override;
  void load_state(const StateSection& section) override;

 private:
  const TokenFile& file_;
  int64_t length_;
  IndexLoader windows_;
};

}  // namespace hone
