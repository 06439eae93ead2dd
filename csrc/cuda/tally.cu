#include <algorithm>

#include "tally.hpp"

namespace cuvee::cuda {
namespace {

constexpr u32 kWarp = 32;
constexpr u32 kBlock = 256;
constexpr u32 kMostBlocks = 1 << 12;

__device__ void add_to(i64& total, i64 amount) {
  for (u32 width = kWarp / 2; width > 0; width /= 2) amount += __shfl_xor_sync(0xffffffff, amount, width);
  if (threadIdx.x % kWarp == 0 && amount != 0)  // two's complement: unsigned sums are signed ones
    atomicAdd(reinterpret_cast<unsigned long long*>(&total), static_cast<unsigned long long>(amount));
}

/// One warp for each row at a time.
__global__ void __launch_bounds__(kBlock) sum_rows(ValueArrays arrays, u64 width) {
  constexpr u32 kWarps = kBlock / kWarp;
  const u64 first = u64{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  for (u64 t = first; t < arrays.source.size; t += u64{gridDim.x} * kWarps) {
    const i32 source = arrays.source.data[t];
    if (source < 0 || static_cast<u64>(source) >= arrays.totals.size) continue;
    FixedSum own;
    for (u64 at = t * width + threadIdx.x % kWarp; at < (t + 1) * width; at += kWarp)
      if (arrays.mask == nullptr || arrays.mask[at] != 0) own.add(arrays.values.data[at]);
    FixedSum& total = arrays.totals.data[source];
    add_to(total.count, own.count);
    add_to(total.high, own.high);
    add_to(total.low, own.low);
    add_to(total.outside, own.outside);
  }
}

__global__ void __launch_bounds__(kBlock) write_sums(ValueArrays arrays) {
  const u64 stride = u64{gridDim.x} * kBlock;
  for (u64 k = u64{blockIdx.x} * kBlock + threadIdx.x; k < arrays.totals.size; k += stride) {
    arrays.counts[k] = arrays.totals.data[k].count;
    arrays.sums[k] = arrays.totals.data[k].value();
  }
}

}  // namespace

void tally_values(const ValueArrays& arrays, Stream stream) {
  const u64 rows = arrays.source.size, sources = arrays.totals.size, values = arrays.values.size;
  const u64 width = rows == 0 ? 0 : values / rows;
  CUVEE_EXPECTS(values == rows * width && values < FixedSum::kMaxCount, std::invalid_argument,
                "values must have as many entries for each of ", rows, " source ids, fewer than ", FixedSum::kMaxCount,
                " in all, but got ", values);
  if (sources == 0) return;
  const auto queue = reinterpret_cast<cudaStream_t>(stream.handle);
  CUVEE_CUDA_TRY(cudaMemsetAsync(arrays.totals.data, 0, sources * sizeof(FixedSum), queue));
  if (values > 0) {
    sum_rows<<<static_cast<u32>(std::min<u64>((rows * kWarp + kBlock - 1) / kBlock, kMostBlocks)), kBlock, 0, queue>>>(
        arrays, width);
    CUVEE_CUDA_TRY(cudaGetLastError());
  }
  const u64 blocks = (sources + kBlock - 1) / kBlock;
  write_sums<<<static_cast<u32>(std::min<u64>(blocks, kMostBlocks)), kBlock, 0, queue>>>(arrays);
  CUVEE_CUDA_TRY(cudaGetLastError());
}

}  // namespace cuvee::cuda
