#pragma once

#include "core/logits.hpp"
#include "tensors.hpp"

namespace cuvee::bindings {

/// A tensor of logits on `device`.
inline Tensor logits_tensor(const py::object& given, dlpack::Device device) {
  return {given, "logits", device, {dlpack::kFloat32, dlpack::kFloat16, dlpack::kBfloat16}};
}

/// Logits of shape (rows, vocabulary) or (blocks, rows, vocabulary), the vocabulary contiguous.
inline Logits logits_of(const Tensor& tensor) {
  const auto shape = tensor.shape();
  const std::size_t last = shape.size() - 1;
  CUVEE_EXPECTS(shape.size() == 2 || shape.size() == 3, std::invalid_argument, "logits must be 2-D or 3-D, but got ",
                shape.size(), "-D");
  CUVEE_EXPECTS(tensor.stride(last) == 1 || shape[last] == 1, std::invalid_argument,
                "logits must be contiguous over the vocabulary, but got a stride of ", tensor.stride(last));
  const bool blocks = last == 2;
  return {.data = tensor.data(),
          .type = tensor.type() == dlpack::kFloat32   ? LogitType::f32
                  : tensor.type() == dlpack::kFloat16 ? LogitType::f16
                                                      : LogitType::bf16,
          .blocks = blocks ? static_cast<u64>(shape[0]) : 1,
          .rows = static_cast<u64>(shape[last - 1]),
          .vocabulary = static_cast<u64>(shape[last]),
          .block_stride = blocks ? tensor.stride(0) : 0,
          .row_stride = tensor.stride(last - 1)};
}

}  // namespace cuvee::bindings
