#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>

#include "core/error.hpp"
#include "core/types.hpp"

namespace cuvee::bindings {

namespace py = pybind11;

/// The structures of the DLPack protocol: how array libraries hand each other tensors that NumPy has no type for.
namespace dlpack {

enum class Device : i32 { cpu = 1, cuda = 2 };
enum class Kind : u8 { integer = 0, unsigned_integer = 1, real = 2, brain = 4, boolean = 6 };

struct Type {
  Kind kind;
  u8 bits;
  u16 lanes;
  bool operator==(const Type&) const = default;
};

inline std::string name_of(const Type& type) {
  const char* const kind = type.kind == Kind::integer            ? "int"
                           : type.kind == Kind::unsigned_integer ? "uint"
                           : type.kind == Kind::real             ? "float"
                           : type.kind == Kind::brain            ? "bfloat"
                           : type.kind == Kind::boolean          ? "bool"
                                                                 : "another type of ";
  return msg(kind, int{type.bits});
}

struct View {
  void* data;
  Device device;
  i32 device_index;
  i32 dimensions;
  Type type;
  const i64* shape;
  const i64* strides;  // in elements; may be null: contiguous
  u64 offset;          // in bytes
};

inline constexpr Type kFloat16{Kind::real, 16, 1};
inline constexpr Type kFloat32{Kind::real, 32, 1};
inline constexpr Type kFloat64{Kind::real, 64, 1};
inline constexpr Type kBfloat16{Kind::brain, 16, 1};
inline constexpr Type kInt32{Kind::integer, 32, 1};
inline constexpr Type kInt64{Kind::integer, 64, 1};
inline constexpr Type kBool{Kind::boolean, 8, 1};

}  // namespace dlpack

/// The one gate for tensors, of torch or any library that speaks DLPack: never copied, kept alive while this lives.
class Tensor {
 public:
  /// Throws std::invalid_argument unless `given` is a tensor on `device` with one of the types.
  Tensor(const py::object& given, const char* name, dlpack::Device device, std::initializer_list<dlpack::Type> types) {
    CUVEE_EXPECTS(py::hasattr(given, "__dlpack__") && py::hasattr(given, "__dlpack_device__"), py::type_error, name,
                  " must be a tensor, but got ", py::str(py::type::of(given)).cast<std::string>());
    const auto place = given.attr("__dlpack_device__")().cast<py::tuple>()[0].cast<i32>();
    const bool on_cpu = device == dlpack::Device::cpu;
    CUVEE_EXPECTS(place == static_cast<i32>(device), std::invalid_argument, name, " must be on ",
                  on_cpu ? "the CPU" : "a CUDA device", ", but got DLPack device ", place);
    // stream -1: the work goes to the caller's own stream, nothing has to wait
    capsule_ = on_cpu ? given.attr("__dlpack__")() : given.attr("__dlpack__")(py::arg("stream") = -1);
    view_ = static_cast<const dlpack::View*>(PyCapsule_GetPointer(capsule_.ptr(), "dltensor"));
    if (view_ == nullptr) throw py::error_already_set();
    CUVEE_EXPECTS(std::ranges::find(types, view_->type) != types.end(), std::invalid_argument, name, " must be of ",
                  names_of(types), ", but got ", dlpack::name_of(view_->type));
  }

  void* data() const { return static_cast<std::byte*>(view_->data) + view_->offset; }
  dlpack::Type type() const { return view_->type; }
  i32 device_index() const { return view_->device_index; }
  std::span<const i64> shape() const { return {view_->shape, static_cast<std::size_t>(view_->dimensions)}; }
  u64 size() const {
    u64 product = 1;
    for (const i64 extent : shape()) product *= static_cast<u64>(extent);
    return product;
  }

  /// The elements of a contiguous tensor of `size` elements.
  template <class T>
  T* elements(u64 expected, const char* name) const {
    CUVEE_EXPECTS(size() == expected, std::invalid_argument, name, " must have ", expected, " elements, but got ",
                  size());
    i64 step = 1;
    for (std::size_t d = shape().size(); d-- > 0; step *= shape()[d])
      CUVEE_EXPECTS(shape()[d] == 1 || stride(d) == step, std::invalid_argument, name,
                    " must be contiguous, but got a stride of ", stride(d));
    return static_cast<T*>(data());
  }

  /// How many elements it is from one index of `dimension` to the next.
  i64 stride(std::size_t dimension) const {
    if (view_->strides != nullptr) return view_->strides[dimension];
    i64 product = 1;
    for (std::size_t d = dimension + 1; d < shape().size(); ++d) product *= view_->shape[d];
    return product;
  }

 private:
  static std::string names_of(std::initializer_list<dlpack::Type> types) {
    std::string names;
    for (const dlpack::Type& type : types)
      names += (names.empty() ? "" : &type == types.end() - 1 ? " or " : ", ") + dlpack::name_of(type);
    return names;
  }

  py::object capsule_;
  const dlpack::View* view_ = nullptr;
};

}  // namespace cuvee::bindings
