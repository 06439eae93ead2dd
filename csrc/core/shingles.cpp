#include "shingles.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "error.hpp"
#include "lowercase.hpp"
#include "vector_clones.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace cuvee {
namespace {

constexpr u64 kBlock = 64;                  // bytes whose spaces are found together
constexpr u64 kKeptScratch = u64{1} << 22;  // entries that stay allocated after a long text

/// Bit i says whether the i-th of kBlock bytes is a space.
#if defined(__SSE2__)
u64 spaces_of_block(const char* bytes) {
  u64 mask = 0;
  for (u64 at = 0; at < kBlock; at += 16) {
    const __m128i chunk = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + at));
    const auto equal = static_cast<u32>(_mm_movemask_epi8(_mm_cmpeq_epi8(chunk, _mm_set1_epi8(' '))));
    mask |= u64{equal} << at;
  }
  return mask;
}
#else
u64 spaces_of_block(const char* bytes) {
  u64 mask = 0;
  for (u64 at = 0; at < kBlock; ++at) mask |= u64{bytes[at] == ' '} << at;
  return mask;
}
#endif

/// Writes where a word begins behind each space of bytes[0, size), which whole blocks may be read of; returns the end
/// of what was written. Up to three entries behind it are written to as well, so that few branches depend on the text.
CUVEE_VECTOR_CLONES u32* places_after_spaces(const char* bytes, u64 size, u32* out) {
  constexpr u64 kLast = u64{1} << 63;  // stands for the place of what is written too much
  for (u64 at = 0; at < size; at += kBlock) {
    u64 mask = spaces_of_block(bytes + at);
    u32* const end = out + std::popcount(mask);
    do {
      for (int i = 0; i < 4; ++i, mask &= mask - 1)
        *out++ = static_cast<u32>(at) + static_cast<u32>(std::countr_zero(mask | kLast)) + 1;
    } while (out < end);
    out = end;
  }
  return out;
}

/// Copies ASCII, makes every space ' ' and adds `to_lower` to capitals. Returns whether spaces are left to collapse.
CUVEE_VECTOR_CLONES bool copy_with_spaces(const u8* from, u8* to, u64 length, u8 to_lower) {
  for (u64 i = 0; i < length; ++i) {
    const u8 c = from[i];
    const bool space = (c == ' ') | (static_cast<u8>(c - 9) < 5) | (static_cast<u8>(c - 0x1c) < 4);
    const bool upper = static_cast<u8>(c - 'A') < 26;
    to[i] = space ? u8{' '} : static_cast<u8>(c + (upper ? to_lower : 0));
  }
  if (length == 0) return false;
  u8 doubles = static_cast<u8>((to[0] == ' ') | (to[length - 1] == ' '));
  for (u64 i = 1; i < length; ++i) doubles |= static_cast<u8>((to[i] == ' ') & (to[i - 1] == ' '));
  return doubles != 0;
}

CUVEE_VECTOR_CLONES bool all_ascii(const char* text, u64 length) {
  u8 seen = 0;
  for (u64 i = 0; i < length; ++i) seen |= static_cast<u8>(text[i]);
  return seen < 0x80;
}

/// Reads one code point of UTF-8 and moves on; U+FFFD for a byte that begins none.
u32 next_of_utf8(const u8*& at, const u8* end) {
  const u32 first = *at++;
  if (first < 0x80) return first;
  const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
  if (first < 0xc2 || first > 0xf4 || end - at < more) return 0xfffd;
  u32 point = first & (0x3fU >> more);
  for (int i = 0; i < more; ++i) {
    if ((at[i] & 0xc0) != 0x80) return 0xfffd;
    point = point << 6 | (at[i] & 0x3fU);
  }
  at += more;
  return point;
}

}  // namespace

Shingler::Shingler(ShingleRule rule) : rule_(rule) {
  CUVEE_EXPECTS(rule.size >= 1, std::invalid_argument, "size must be at least 1, but got ", rule.size);
}

std::span<const u64> Shingler::hashes(const TextView& text) {
  release_excess();
  normalise(text);
  CUVEE_EXPECTS(size_ < std::numeric_limits<u32>::max(), std::length_error,
                "a document must have fewer than 2**32 - 1 bytes, but got ", size_);
  if (size_ == 0) return {};
  rule_.characters ? find_characters() : find_words();
  const u64 count = units_ > rule_.size ? units_ - rule_.size + 1 : 1;
  const u64 width = std::min<u64>(rule_.size, units_);
  const u32 gap = rule_.characters ? 0 : 1;
  hashes_.resize(std::max<u64>(hashes_.size(), count));
  for (u64 i = 0; i < count; ++i)
    hashes_[i] = XXH3_64bits(bytes_.data() + begins_[i], begins_[i + width] - gap - begins_[i]);
  return {hashes_.data(), count};
}

void Shingler::release_excess() {
  if (bytes_.capacity() > kKeptScratch) bytes_ = {};
  if (begins_.capacity() > kKeptScratch) begins_ = {};
  if (hashes_.capacity() > kKeptScratch) hashes_ = {};
}

void Shingler::normalise(const TextView& text) {
  const auto* narrow_text = static_cast<const char*>(text.data);
  const bool bytewise = text.encoding == Encoding::kUtf8 || text.encoding == Encoding::kLatin1;
  if (bytewise && all_ascii(narrow_text, text.length)) {
    if (copy_ascii(narrow_text, text.length)) collapse_spaces();
    return;
  }
  const auto read_units = [&]<class Unit>(const Unit* at, u64 bytes_each) {
    const Unit* end = at + text.length;
    copy_points(text.length * bytes_each, [=](u32& point) mutable {
      if (at == end) return false;
      point = *at++;
      return true;
    });
  };
  switch (text.encoding) {
    case Encoding::kLatin1:
      read_units(static_cast<const u8*>(text.data), 2);
      break;
    case Encoding::kUcs2:
      read_units(static_cast<const u16*>(text.data), 3);
      break;
    case Encoding::kUcs4:
      read_units(static_cast<const u32*>(text.data), 4);
      break;
    case Encoding::kUtf8:
      copy_utf8(static_cast<const u8*>(text.data), text.length);
      break;
  }
}

void Shingler::copy_utf8(const u8* at, u64 length) {
  const u8* end = at + length;
  copy_points(length * 3, [=](u32& point) mutable {
    if (at == end) return false;
    point = next_of_utf8(at, end);
    return true;
  });
}

/// Copies, lower-cases and makes every space ' '. Returns whether spaces are left to collapse.
bool Shingler::copy_ascii(const char* text, u64 length) {
  bytes_.resize(std::max<u64>(bytes_.size(), length + kBlock));
  size_ = length;
  return copy_with_spaces(reinterpret_cast<const u8*>(text), reinterpret_cast<u8*>(bytes_.data()), length,
                          rule_.lowercase ? 32 : 0);
}

void Shingler::collapse_spaces() {
  char* bytes = bytes_.data();
  u64 kept = 0;
  bool after_space = true;
  for (u64 i = 0; i < size_; ++i) {
    const char c = bytes[i];
    bytes[kept] = c;
    const bool space = c == ' ';
    kept += !(space && after_space);
    after_space = space;
  }
  size_ = kept > 0 && bytes[kept - 1] == ' ' ? kept - 1 : kept;
}

template <class Next>
void Shingler::copy_points(u64 most_bytes, Next next) {
  bytes_.resize(std::max<u64>(bytes_.size(), most_bytes + kBlock));
  size_ = 0;
  bool owes_space = false;
  for (u32 point = 0; next(point);) {
    if (is_space(point)) {
      owes_space = size_ > 0;
      continue;
    }
    if (owes_space) bytes_[size_++] = ' ';
    owes_space = false;
    append_point(rule_.lowercase ? lower_case(point) : point);
  }
}

void Shingler::append_point(u32 point) {
  const auto put = [&](u32 byte) { bytes_[size_++] = static_cast<char>(byte); };
  const int more = point < 0x80 ? 0 : point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;  // bytes after the first
  constexpr std::array<u32, 4> kFirst{0, 0xc0, 0xe0, 0xf0};
  put(kFirst[static_cast<std::size_t>(more)] | point >> (6 * more));
  for (int left = more - 1; left >= 0; --left) put(0x80 | (point >> (6 * left) & 0x3f));
}

void Shingler::find_words() {
  std::memset(bytes_.data() + size_, 0, kBlock);
  begins_.resize(std::max<u64>(begins_.size(), size_ / 2 + 2 + kBlock));  // a word and its space are two bytes at least
  begins_[0] = 0;
  u32* out = places_after_spaces(bytes_.data(), size_, begins_.data() + 1);
  units_ = static_cast<u64>(out - begins_.data());
  *out = static_cast<u32>(size_) + 1;
}

void Shingler::find_characters() {
  begins_.resize(std::max<u64>(begins_.size(), size_ + 1));
  units_ = 0;
  for (u64 i = 0; i < size_; ++i) {
    begins_[units_] = static_cast<u32>(i);
    units_ += (static_cast<u8>(bytes_[i]) & 0xc0) != 0x80;
  }
  begins_[units_] = static_cast<u32>(size_);
}

namespace {

void insertion_sort(std::span<u64> values) {
  for (std::size_t i = 1; i < values.size(); ++i) {
    const u64 value = values[i];
    std::size_t at = i;
    for (; at > 0 && values[at - 1] > value; --at) values[at] = values[at - 1];
    values[at] = value;
  }
}

}  // namespace

void sort_spread(std::span<const u64> values, std::span<u64> out, int common) {
  constexpr u64 kFewest = 32, kMost = u64{1} << 14;
  if (values.size() <= kFewest || values.size() > kMost) {
    std::ranges::copy(values, out.begin());
    if (values.size() > kMost)
      std::ranges::sort(out);
    else
      insertion_sort(out);
    return;
  }
  const int bits = static_cast<int>(std::bit_width(values.size() - 1));
  const auto bucket_of = [=](u64 value) { return value << common >> (64 - bits); };
  std::array<u32, kMost + 1> ends;  // of each bucket
  std::fill_n(ends.begin(), (u64{1} << bits) + 1, 0);
  for (const u64 value : values) ++ends[bucket_of(value) + 1];
  for (u64 bucket = 1; bucket <= u64{1} << bits; ++bucket) ends[bucket] += ends[bucket - 1];
  for (const u64 value : values) out[ends[bucket_of(value)]++] = value;
  insertion_sort(out);
}

u64 sort_distinct(std::span<const u64> hashes, std::span<u64> out) {
  sort_spread(hashes, out.first(hashes.size()));
  u64 kept = 0, last = hashes.empty() ? 0 : ~out[0];
  for (u64 i = 0; i < hashes.size(); ++i) {
    const u64 hash = out[i];
    kept += hash != last;
    out[kept - 1] = last = hash;
  }
  return kept;
}

}  // namespace cuvee
