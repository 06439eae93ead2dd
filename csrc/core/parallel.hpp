#pragma once

#include <exception>
#include <thread>
#include <vector>

#include "types.hpp"

namespace cuvee {

/// Calls work(part, first, last) for `threads` contiguous parts of [0, n), each on its own thread (the first on this
/// one). The first exception thrown by any part is thrown again here, after all have ended.
template <class Work>
void split_over_threads(u64 n, u32 threads, const Work& work) {
  if (threads <= 1 || n < threads) return work(u32{0}, u64{0}, n);
  std::vector<std::exception_ptr> failed(threads);
  const auto run = [&](u32 part) {
    try {
      const auto first = static_cast<u64>(static_cast<u128>(n) * part / threads);
      const auto last = static_cast<u64>(static_cast<u128>(n) * (part + 1) / threads);
      work(part, first, last);
    } catch (...) {
      failed[part] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    others.reserve(threads - 1);
    for (u32 part = 1; part < threads; ++part) others.emplace_back(run, part);
    run(0);
  }
  for (const auto& error : failed)
    if (error) std::rethrow_exception(error);
}

}  // namespace cuvee
