#include "hash.hpp"

#include <xxhash.h>

#include <array>
#include <cstdio>
#include <new>
#include <vector>

namespace cuvee {
namespace {

void append_little_endian(std::vector<unsigned char>& bytes, u64 value) {
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<unsigned char>(value >> shift));
}

}  // namespace

u64 key64(std::string_view purpose, u64 seed, std::string_view name, u64 epoch) {
  std::vector<unsigned char> bytes(purpose.begin(), purpose.end());
  bytes.push_back(0);
  append_little_endian(bytes, seed);
  append_little_endian(bytes, epoch);
  bytes.insert(bytes.end(), name.begin(), name.end());
  return XXH3_64bits(bytes.data(), bytes.size());
}

struct Digest::State {
  alignas(64) XXH3_state_t xxh;
};

Digest::Digest() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::update(std::span<const std::byte> data) { XXH3_128bits_update(&state_->xxh, data.data(), data.size()); }

std::string Digest::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text.data();
}

}  // namespace cuvee
