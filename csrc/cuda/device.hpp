#pragma once

#include <stdexcept>

#include "core/error.hpp"
#include "core/types.hpp"

namespace cuvee::cuda {

/// A call of the CUDA runtime or the launch of a kernel failed.
struct cuda_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A stream that the caller owns: cudaStream_t, as `torch.cuda.current_stream().cuda_stream`. 0 is the default one.
struct Stream {
  u64 handle;
};

/// An array in device memory that the caller owns, as `tensor.data_ptr()`; read and written in the stream's order.
template <class T>
struct DeviceSpan {
  T* data;
  u64 size;
};

/// A device address as an integer, as Python has it.
template <class T>
T* device_pointer(u64 address) {
  return reinterpret_cast<T*>(address);
}

}  // namespace cuvee::cuda

/// Throws cuda_error unless a call of the CUDA runtime succeeds; clears the runtime's error first. For .cu files.
#define CUVEE_CUDA_TRY(call)                                                                                 \
  do {                                                                                                       \
    const cudaError_t cuvee_status = (call);                                                                 \
    if (cuvee_status != cudaSuccess) {                                                                       \
      (void)cudaGetLastError();                                                                              \
      throw ::cuvee::cuda::cuda_error(::cuvee::msg(#call, " failed: ", cudaGetErrorName(cuvee_status), ": ", \
                                                   cudaGetErrorString(cuvee_status), " at ", __FILE__, ":",  \
                                                   __LINE__));                                               \
    }                                                                                                        \
  } while (0)
