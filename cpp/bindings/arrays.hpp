// bindings/arrays.hpp — any array a Python caller has, seen in place: the buffer protocol or DLPack.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "jit/kernel.hpp"
#include "nest/loop_nest.hpp"

namespace syno::bindings {

/// Memory of a Python object, kept valid while this lives.
class BorrowedArray {
 public:
  /// KernelError for another dtype, device or memory that cannot be written; ShapeError for a stride that is
  /// no multiple of an element. `name` is the argument's, for the message.
  BorrowedArray(const pybind11::handle& object, const std::string& name, nest::Dtype dtype, bool writable);
  ~BorrowedArray();
  BorrowedArray(BorrowedArray&& other) noexcept;
  BorrowedArray(const BorrowedArray&) = delete;
  BorrowedArray& operator=(const BorrowedArray&) = delete;

  const jit::View& view() const { return view_; }

 private:
  void from_buffer(const pybind11::handle& object, const std::string& name, nest::Dtype dtype, bool writable);
  void from_dlpack(const pybind11::handle& object, const std::string& name, nest::Dtype dtype, bool writable);
  bool from_exchange(const pybind11::handle& object, const std::string& name, nest::Dtype dtype);
  jit::View view_;
  Py_buffer buffer_{};
  bool has_buffer_ = false;
  pybind11::object capsule_;  ///< DLPack: its destructor gives the memory back
  std::unique_ptr<void, void (*)(void*)> managed_{nullptr, nullptr};  ///< the same of a C interface
};

}  // namespace syno::bindings
