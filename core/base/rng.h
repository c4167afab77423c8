#pragma once
// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"). A random number is a pure function
// of (seed, stream, index) on every device. It does not depend on batching, threads or order. Usable in device code.
#include <cstdint>

#ifdef __CUDACC__
#define HONE_HOST_DEVICE __host__ __device__
#else
#define HONE_HOST_DEVICE
#endif

namespace hone {

struct Philox4 {
  uint32_t word[4];
};

HONE_HOST_DEVICE inline Philox4 philox(uint64_t seed, uint64_t stream, uint64_t index) {
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  Philox4 c{{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(stream),
             static_cast<uint32_t>(stream >> 32)}};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c.word[0], p1 = uint64_t{0xCD9E8D57u} * c.word[2];
    c = {{static_cast<uint32_t>(p1 >> 32) ^ c.word[1] ^ k0, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ c.word[3] ^ k1, static_cast<uint32_t>(p0)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// In [0, 1), 24 bits: each value is exact in float.
HONE_HOST_DEVICE inline float unit_float(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
// In (0, 1): its logarithm is finite.
HONE_HOST_DEVICE inline float open_unit_float(uint32_t word) {
  return (static_cast<float>(word >> 9) + 0.5f) * 0x1p-23f;
}

// A sequence of random numbers of one stream, for host code. Its whole state is (seed, stream, index).
class Rng {
 public:
  explicit Rng(uint64_t seed, uint64_t stream = 0, uint64_t index = 0) : seed_(seed), stream_(stream), index_(index) {}
  uint64_t next() {
    const Philox4 out = philox(seed_, stream_, index_++);
    return (uint64_t{out.word[1]} << 32) | out.word[0];
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  // In [0, bound); bound > 0. Without modulo bias (Lemire 2019).
  uint64_t below(uint64_t bound) {
    for (;;) {
      const unsigned __int128 wide = static_cast<unsigned __int128>(next()) * bound;
      const uint64_t low = static_cast<uint64_t>(wide);
      if (low >= bound || low >= (0 - bound) % bound) return static_cast<uint64_t>(wide >> 64);
    }
  }
  // Standard normal (Box and Muller).
  double normal();
  uint64_t index() const { return index_; }

 private:
  uint64_t seed_, stream_, index_;
};

// The stream number of a named use ("loader", "init/model.embed_tokens.weight"): FNV-1a of the name. Checkpoints and
// results depend on these names.
constexpr uint64_t stream_of(const char* name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *name; ++name) hash = (hash ^ static_cast<uint8_t>(*name)) * 0x100000001b3u;
  return hash;
}

}  // namespace hone
