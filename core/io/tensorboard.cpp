// TensorBoard event files: TFRecords {u64 length, masked crc of the length, bytes, masked crc of the bytes} of protobuf
// Events. The protobuf is written by hand, since it needs five fields only: Event {1: double wall_time, 2: int64 step,
// 3: string file_version, 5: Summary, 7: SessionLog}, Summary {1: repeated Value {1: string tag, 2: float
// simple_value}}, SessionLog {1: status, START = 1}.
#include <array>
#include <chrono>
#include <cstring>

#include "core/io/file.h"
#include "core/io/metrics.h"

namespace hone {
namespace {

constexpr auto kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit)
      c = (c >> 1) ^ (0x82F63B78u & (0u - (c & 1u)));  // CRC-32C (Castagnoli), reflected
    table[i] = c;
  }
  return table;
}();

uint32_t masked_crc(std::string_view bytes) {
  uint32_t c = ~0u;
  for (const char byte : bytes) c = kCrcTable[(c ^ static_cast<uint8_t>(byte)) & 255u] ^ (c >> 8);
  c = ~c;
  return ((c >> 15) | (c << 17)) + 0xa282ead8u;
}

template <class T>
std::string little_endian(T value) {
  std::string out(sizeof value, '\0');
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 128; value >>= 7) out += static_cast<char>(value | 128);
  return out += static_cast<char>(value);
}

// A protobuf field: its number with the wire type, then the payload.
std::string field_varint(uint32_t number, uint64_t value) { return varint(number << 3) + varint(value); }
std::string field_double(uint32_t number, double value) { return varint(number << 3 | 1) + little_endian(value); }
std::string field_float(uint32_t number, float value) { return varint(number << 3 | 5) + little_endian(value); }
std::string field_bytes(uint32_t number, std::string_view value) {
  return varint(number << 3 | 2) + varint(value.size()) + std::string(value);
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// A file name that sorts after the earlier files of the folder: TensorBoard reads them in that order.
std::filesystem::path new_file(const std::filesystem::path& folder) {
  make_folder(folder);
  for (int i = 0;; ++i) {
    const std::string part = std::to_string(i);
    const std::string name = concat("events.out.tfevents.", static_cast<int64_t>(wall_time()), ".",
                                    std::string(6 - std::min<size_t>(part.size(), 6), '0'), part, ".hone");
    if (!std::filesystem::exists(folder / name)) return folder / name;
  }
}

class TensorboardSink : public MetricsSink {
 public:
  TensorboardSink(const std::filesystem::path& folder, int64_t first_step) : writer_(new_file(folder)) {
    event(0, field_bytes(3, "brain.Event:2"));
    if (first_step > 0) event(first_step, field_bytes(7, field_varint(1, 1)));
    writer_.flush();
  }
  void write(int64_t step, const Metrics& metrics) override {
    std::string summary;
    for (const auto& [name, value] : metrics)
      summary += field_bytes(1, field_bytes(1, name) + field_float(2, static_cast<float>(value)));
    event(step, field_bytes(5, summary));
    writer_.flush();
  }
  void flush() override { writer_.sync(); }

 private:
  void event(int64_t step, const std::string& what) {
    const std::string bytes =
        field_double(1, wall_time()) + (step == 0 ? "" : field_varint(2, static_cast<uint64_t>(step))) + what;
    const std::string length = little_endian(static_cast<uint64_t>(bytes.size()));
    writer_.write(length + little_endian(masked_crc(length)) + bytes + little_endian(masked_crc(bytes)));
  }
  FileWriter writer_;
};

}  // namespace

std::unique_ptr<MetricsSink> make_tensorboard_sink(const std::filesystem::path& folder, int64_t first_step) {
  return std::make_unique<TensorboardSink>(folder, first_step);
}

}  // namespace hone
