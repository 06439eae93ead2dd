#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "types.hpp"

namespace cuvee {

/// How a text is taken apart; docs/dedup.md states every rule.
struct ShingleRule {
  u32 size = 5;             ///< words or characters in a shingle
  bool characters = false;  ///< else words
  bool lowercase = true;    ///< whether case is forgotten
};

enum class Encoding : u8 { kUtf8, kLatin1, kUcs2, kUcs4 };

/// A text that belongs to somebody else. Surrogates without a partner are characters like any other; bytes that are no
/// UTF-8 are read as U+FFFD.
struct TextView {
  const void* data = nullptr;
  u64 length = 0;  ///< in units of the encoding
  Encoding encoding = Encoding::kUtf8;
};

/// Takes texts apart. It keeps its scratch memory, so one of them per thread serves any number of texts.
class Shingler {
 public:
  explicit Shingler(ShingleRule rule);

  /// XXH3-64 of the UTF-8 bytes of each shingle of `text`, in the order of the text and with repeats. A text shorter
  /// than a shingle is one shingle, one without words or characters has none. Valid until the next call.
  std::span<const u64> hashes(const TextView& text);

  /// The text that was taken apart last: lower-cased, words separated by one space.
  std::string_view normal() const { return {bytes_.data(), size_}; }

  /// Words or characters of the text that was taken apart last, if it has any.
  u64 units() const { return units_; }

 private:
  void normalise(const TextView& text);
  bool copy_ascii(const char* text, u64 length);
  void copy_utf8(const u8* at, u64 length);
  void collapse_spaces();
  template <class Next>
  void copy_points(u64 most_bytes, Next next);
  void append_point(u32 point);
  void find_words();
  void find_characters();
  void release_excess();

  ShingleRule rule_;
  std::vector<char> bytes_;  // the normal text, and room behind it
  u64 size_ = 0;             // of the normal text
  std::vector<u32> begins_;  // of each word or character, then where another one would begin
  u64 units_ = 0;            // words or characters
  std::vector<u64> hashes_;
};

/// Writes numbers to `out`, of their size, sorted. They should be spread evenly but for their first `common` bits,
/// which all share: the next bits put them into about as many buckets as there are numbers, so that few are then out of
/// place.
void sort_spread(std::span<const u64> values, std::span<u64> out, int common = 0);

/// Writes hashes to the front of `out` sorted and without repeats; returns how many are left. `out` must have room for
/// all of them. Fast because hashes are spread evenly.
u64 sort_distinct(std::span<const u64> hashes, std::span<u64> out);

}  // namespace cuvee
