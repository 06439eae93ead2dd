#include "bandit.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "error.hpp"
#include "kernels.hpp"

namespace cuvee::bandit {
namespace {

// A team of one thread, which does in turn what the threads of a GPU do at once.
class OneThread {
 public:
  explicit OneThread(u32 count) : count_(count) {}

  template <class Visit>
  void each(const Visit& visit) const {
    for (u32 k = 0; k < count_; ++k) visit(k);
  }

  template <class Act>
  void once(const Act& act) const {
    act();
  }

  template <int kSums, int kMaxima, class Values>
  Reduced<kSums, kMaxima> reduce(const Values& values) const {
    constexpr int kAll = kSums + kMaxima;
    std::array<std::array<double, kChunk>, kAll> chunk;       // NOLINT(cppcoreguidelines-pro-type-member-init)
    std::array<std::array<double, kMaxChunks>, kAll> chunks;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    u32 c = 0, first = 0;
    do {  // there is at least one source
      const u32 present = std::min(count_ - first, kChunk);
      for (u32 i = 0; i < present; ++i) {
        std::array<double, kAll> out;
        values(first + i, out.data());
        for (int a = 0; a < kAll; ++a) chunk[a][i] = out[a];
      }
      for (int a = 0; a < kAll; ++a) chunks[a][c] = combined<kSums>(a, chunk[a].data(), present);
      ++c;
      first += kChunk;
    } while (first < count_);
    Reduced<kSums, kMaxima> result;
    for (int a = 0; a < kAll; ++a) result.value[a] = combined<kSums>(a, chunks[a].data(), c);
    return result;
  }

 private:
  template <int kSums>
  static double combined(int a, double* values, u32 present) {
    if (a < kSums) {
      halve(values, present, add);
    } else {
      halve(values, present, larger);
    }
    return values[0];
  }

  u32 count_;
};

void expect_count(std::size_t count) {
  CUVEE_EXPECTS(count >= 1 && count <= kMaxSources, std::out_of_range, "sources must be 1..", kMaxSources, ", but got ",
                count);
}

void update_anywhere(const Step& step, const Arms& arms) {
  OneThread team(arms.count);
  update(team, step, arms);
}

#ifdef CUVEE_X86
// Everything below it becomes part of this function, and so wider vector code; nothing is contracted: the same bits.
[[gnu::target("avx2"), gnu::flatten]] void update_avx2(const Step& step, const Arms& arms) {
  OneThread team(arms.count);
  update(team, step, arms);
}
#endif

using Update = void (*)(const Step&, const Arms&);

Update update_here() {
#ifdef CUVEE_X86
  if (std::string_view(kernels_for("auto").name) != "scalar") return update_avx2;
#endif
  return update_anywhere;
}

}  // namespace

void update(const Step& step, const Arms& arms) {
  static const Update best = update_here();
  expect_count(arms.count);
  best(step, arms);
}

void keep_limits(std::span<double> p, std::span<const double> floor, std::span<const double> cap) {
  expect_count(p.size());
  Arms arms{};
  arms.p = p.data();
  arms.floor = floor.empty() ? nullptr : floor.data();
  arms.cap = cap.empty() ? nullptr : cap.data();
  arms.count = static_cast<u32>(p.size());
  OneThread team(arms.count);
  keep_limits(team, arms);
}

}  // namespace cuvee::bandit
