#include <cooperative_groups.h>

#include "bandit.hpp"

namespace cuvee::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kMostValues = 5;  // of one reduction

// One thread for each source, one block for each chunk of them: the reductions run down the tree of bandit::halve.
template <bool many_blocks>
class Threads {
 public:
  __device__ Threads(u32 count, double* shared, double* workspace)
      : k_(blockIdx.x * bandit::kChunk + threadIdx.x), count_(count), shared_(shared), workspace_(workspace) {}

  template <class Visit>
  __device__ void each(const Visit& visit) const {
    if (k_ < count_) visit(k_);
  }

  template <class Act>
  __device__ void once(const Act& act) const {
    if (k_ == 0) act();
  }

  template <int kSums, int kMaxima, class Values>
  __device__ bandit::Reduced<kSums, kMaxima> reduce(const Values& values) {
    constexpr int kAll = kSums + kMaxima;
    static_assert(kAll <= kMostValues);
    double own[kAll];
    for (int a = 0; a < kAll; ++a) own[a] = identity<kSums>(a);
    if (k_ < count_) values(k_, own);
    for (int a = 0; a < kAll; ++a) own[a] = down_the_tree<kSums>(a, own[a]);
    if constexpr (many_blocks) {
      double* const totals = workspace_ + parity_ * kMostValues * bandit::kMaxChunks;
      if (threadIdx.x == 0)
        for (int a = 0; a < kAll; ++a) totals[a * bandit::kMaxChunks + blockIdx.x] = own[a];
      cooperative_groups::this_grid().sync();
      for (int a = 0; a < kAll; ++a) {
        const bool present = threadIdx.x < gridDim.x;
        own[a] = down_the_tree<kSums>(a, present ? totals[a * bandit::kMaxChunks + threadIdx.x] : identity<kSums>(a));
      }
      parity_ ^= 1;  // the next reduction's totals must not overwrite what slower blocks still read
    }
    return shared_by_all<kSums, kMaxima>(own);
  }

 private:
  template <int kSums>
  __device__ static double identity(int a) {
    return a < kSums ? 0 : -scalar_math::kInfinity;
  }

  template <int kSums>
  __device__ static double combine(int a, double x, double y) {
    return a < kSums ? bandit::add(x, y) : bandit::larger(x, y);
  }

  // The block's values combined as bandit::halve does; thread 0 has the result.
  template <int kSums>
  __device__ double down_the_tree(int a, double value) const {
    shared_[threadIdx.x] = value;
    __syncthreads();
    for (u32 half = bandit::kChunk / 2; half >= kWarp; half /= 2) {
      if (threadIdx.x < half) {
        value = combine<kSums>(a, value, shared_[threadIdx.x + half]);
        shared_[threadIdx.x] = value;
      }
      __syncthreads();
    }
    if (threadIdx.x < kWarp)
      for (int half = kWarp / 2; half > 0; half /= 2)
        value = combine<kSums>(a, value, __shfl_down_sync(0xffffffff, value, half));
    return value;
  }

  template <int kSums, int kMaxima>
  __device__ bandit::Reduced<kSums, kMaxima> shared_by_all(const double* own) const {
    bandit::Reduced<kSums, kMaxima> result;
    if (threadIdx.x == 0)
      for (int a = 0; a < kSums + kMaxima; ++a) shared_[a] = own[a];
    __syncthreads();
    for (int a = 0; a < kSums + kMaxima; ++a) result.value[a] = shared_[a];
    __syncthreads();
    return result;
  }

  u32 k_, count_;
  double* shared_;
  double* workspace_;
  int parity_ = 0;
};

template <bool many_blocks>
__global__ void __launch_bounds__(bandit::kChunk)
    update_kernel(bandit::Step step, bandit::Arms arms, double* workspace) {
  __shared__ double shared[bandit::kChunk];
  Threads<many_blocks> team(arms.count, shared, workspace);
  bandit::update(team, step, arms);
}

}  // namespace

void update_bandit(const bandit::Step& step, const bandit::Arms& arms, DeviceSpan<double> workspace, Stream stream) {
  CUVEE_EXPECTS(arms.count >= 1 && arms.count <= bandit::kMaxSources, std::out_of_range, "sources must be 1..",
                bandit::kMaxSources, ", but got ", arms.count);
  CUVEE_EXPECTS(workspace.size >= kBanditWorkspace, std::invalid_argument, "workspace must have ", kBanditWorkspace,
                " entries, but got ", workspace.size);
  const auto queue = reinterpret_cast<cudaStream_t>(stream.handle);
  const u32 blocks = (arms.count + bandit::kChunk - 1) / bandit::kChunk;
  if (blocks == 1) {
    update_kernel<false><<<1, bandit::kChunk, 0, queue>>>(step, arms, workspace.data);
    CUVEE_CUDA_TRY(cudaGetLastError());
    return;
  }
  // blocks that wait for each other must all run at once: a cooperative launch fails where they cannot
  bandit::Step step_copy = step;
  bandit::Arms arms_copy = arms;
  void* arguments[] = {&step_copy, &arms_copy, &workspace.data};
  CUVEE_CUDA_TRY(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&update_kernel<true>), dim3(blocks),
                                             dim3(bandit::kChunk), arguments, 0, queue));
}

}  // namespace cuvee::cuda
