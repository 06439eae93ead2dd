#pragma once

#include "core/bandit.hpp"
#include "device.hpp"

namespace cuvee::cuda {

/// Doubles of device memory that `update_bandit` needs between its blocks; their values do not matter.
inline constexpr u64 kBanditWorkspace = 2 * 5 * bandit::kMaxChunks;

/// `bandit::update` on a GPU: one launch, the same bits. All arrays of `arms` are in device memory.
///
/// Returns when the launch is queued. Throws std::out_of_range unless 1 <= arms.count <= bandit::kMaxSources.
void update_bandit(const bandit::Step& step, const bandit::Arms& arms, DeviceSpan<double> workspace, Stream stream);

}  // namespace cuvee::cuda
