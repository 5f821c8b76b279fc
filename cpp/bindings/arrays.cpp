#include "bindings/arrays.hpp"

#include <pybind11/numpy.h>

#include <utility>

#include "bindings/dtypes.hpp"
#include "support/error.hpp"

namespace py = pybind11;

namespace syno::bindings {

namespace {

using nest::Dtype;

// The part of the DLPack interface (github.com/dmlc/dlpack, version 0.8) that is read here.
struct DlDevice {
  std::int32_t type;
  std::int32_t id;
};
struct DlType {
  std::uint8_t code;  // 2: floating point, 4: bfloat
  std::uint8_t bits;
  std::uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  std::int32_t rank;
  DlType type;
  std::int64_t* shape;
  std::int64_t* strides;  // elements; null: row-major
  std::uint64_t byte_offset;
};
struct DlManagedTensor {
  DlTensor tensor;
  void* manager;
  void (*deleter)(DlManagedTensor*);
};
/// What a tensor is lent as since DLPack 1.0; whoever has it calls its deleter.
struct DlVersioned {
  std::uint32_t major, minor;
  void* manager;
  void (*deleter)(DlVersioned*);
  std::uint64_t flags;
  DlTensor tensor;
};
/// The table of C functions that a type of tensors lends, `__dlpack_c_exchange_api__` (DLPack 1.3): what
/// takes microseconds through Python's `__dlpack__` takes a tenth of one.
struct DlExchange {
  std::uint32_t major, minor;
  DlExchange* before;
  void* allocator;
  int (*managed_of)(void* object, DlVersioned** made);
};
constexpr std::int32_t kCpu = 1;

/// The table of an object's type; null where it has none that is known.
const DlExchange* exchange_of(const py::handle& object) {
  static PyTypeObject* last = nullptr;  // most calls' arrays are of one type; under the GIL
  static const DlExchange* of_last = nullptr;
  PyTypeObject* const type = Py_TYPE(object.ptr());
  if (type == last) return of_last;
  const py::object capsule =
      py::getattr(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__", py::none());
  const DlExchange* found = nullptr;
  if (PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api") != 0)
    found = static_cast<const DlExchange*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  while (found != nullptr && found->major != 1) found = found->before;
  Py_INCREF(type);  // so that no other type is at this address
  Py_XDECREF(last);
  last = type;
  of_last = found;
  return found;
}

/// Whether a tensor's memory holds its elements as they are, outside of any graph of gradients.
bool is_plain(const py::handle& object) {
  return !(py::hasattr(object, "requires_grad") && object.attr("requires_grad").cast<bool>()) &&
         !(py::hasattr(object, "is_neg") && object.attr("is_neg")().cast<bool>());
}

[[noreturn]] void wrong_dtype(const std::string& name, const std::string& found, Dtype wanted) {
  fail<KernelError>("kernel", "`{}` is {}, and this kernel takes {}{}; convert it, or compile for that dtype",
                    name, found, long_name(wanted),
                    wanted == Dtype::BF16 ? " (NumPy: ml_dtypes.bfloat16)" : "");
}

/// NumPy knows bfloat16 only as somebody else's dtype, which it does not lend; its bits it does.
bool is_bfloat16(const py::handle& array) {
  // Asking a dtype for its name takes a microsecond; NumPy's own have small numbers.
  constexpr int kFirstOfOthers = 256;
  const py::dtype dtype = py::reinterpret_borrow<py::array>(array).dtype();
  return dtype.num() >= kFirstOfOthers && py::str(dtype.attr("name")).cast<std::string>() == "bfloat16";
}

std::string type_name(const py::handle& object) {
  return py::str(py::type::handle_of(object).attr("__name__")).cast<std::string>();
}

jit::View view_of(const DlTensor& tensor, const py::handle& object, const std::string& name, Dtype dtype) {
  const DlType wanted = dtype == Dtype::F32   ? DlType{2, 32, 1}
                        : dtype == Dtype::F64 ? DlType{2, 64, 1}
                                              : DlType{4, 16, 1};
  if (tensor.type.code != wanted.code || tensor.type.bits != wanted.bits || tensor.type.lanes != 1) {
    const std::string found = py::hasattr(object, "dtype") ? py::str(object.attr("dtype")).cast<std::string>()
                                                           : fmt::format("of DLPack type ({}, {})",
                                                                         tensor.type.code, tensor.type.bits);
    wrong_dtype(name, found, dtype);
  }
  jit::View view;
  view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  view.shape.assign(tensor.shape, tensor.shape + tensor.rank);
  if (tensor.strides != nullptr)
    view.strides.assign(tensor.strides, tensor.strides + tensor.rank);
  else
    view.strides = nest::row_major_strides(view.shape);
  for (std::size_t d = 0; d < view.shape.size(); ++d)
    if (view.shape[d] < 2) view.strides[d] = 1;  // means nothing, and libraries put odd values there
  return view;
}

}  // namespace

BorrowedArray::BorrowedArray(const py::handle& object, const std::string& name, Dtype dtype, bool writable) {
  try {
    const bool bits = py::isinstance<py::array>(object) && is_bfloat16(object);
    if (bits && dtype != Dtype::BF16) wrong_dtype(name, "bfloat16", dtype);
    if (bits)
      from_buffer(object.attr("view")("uint16"), name, dtype, writable);
    else if (PyObject_CheckBuffer(object.ptr()))
      from_buffer(object, name, dtype, writable);
    else if (from_exchange(object, name, dtype))
      return;
    else if (py::hasattr(object, "__dlpack__"))
      from_dlpack(object, name, dtype, writable);
    else
      fail<KernelError>("kernel",
                        "`{}` is a {}; pass something with the buffer protocol or __dlpack__ (a NumPy array, "
                        "a torch tensor)",
                        name, type_name(object));
  } catch (...) {
    if (has_buffer_) PyBuffer_Release(&buffer_);  // the destructor does not run
    throw;
  }
}

BorrowedArray::BorrowedArray(BorrowedArray&& other) noexcept
    : view_(std::move(other.view_)),
      buffer_(other.buffer_),
      has_buffer_(std::exchange(other.has_buffer_, false)),
      capsule_(std::move(other.capsule_)),
      managed_(std::move(other.managed_)) {}

BorrowedArray::~BorrowedArray() {
  if (has_buffer_) PyBuffer_Release(&buffer_);
}

void BorrowedArray::from_buffer(const py::handle& object, const std::string& name, Dtype dtype,
                                bool writable) {
  if (PyObject_GetBuffer(object.ptr(), &buffer_,
                         PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)) != 0) {
    const py::error_already_set reason;
    fail<KernelError>("kernel", "`{}` cannot be {} in place: {}", name, writable ? "written" : "read",
                      reason.what());
  }
  has_buffer_ = true;
  std::string_view format = buffer_.format == nullptr ? "B" : buffer_.format;
  if (format.starts_with('@') || format.starts_with('=') || format.starts_with('<')) format.remove_prefix(1);
  const std::string_view wanted = dtype == Dtype::F32 ? "f" : dtype == Dtype::F64 ? "d" : "H";
  if (format != wanted) {
    const std::string found = py::hasattr(object, "dtype") ? py::str(object.attr("dtype")).cast<std::string>()
                                                           : fmt::format("of format '{}'", format);
    wrong_dtype(name, found, dtype);
  }
  view_.data = buffer_.buf;
  for (int d = 0; d < buffer_.ndim; ++d) {
    view_.shape.push_back(buffer_.shape[d]);
    if (buffer_.shape[d] > 1 && buffer_.strides[d] % buffer_.itemsize != 0)
      fail<ShapeError>("kernel",
                       "`{}` has a stride of {} bytes in dimension {}, no multiple of its {}-byte elements; "
                       "copy it",
                       name, buffer_.strides[d], d, buffer_.itemsize);
    view_.strides.push_back(buffer_.shape[d] > 1 ? buffer_.strides[d] / buffer_.itemsize : 1);
  }
  const auto address = reinterpret_cast<std::uintptr_t>(view_.data);
  if (address % static_cast<std::uintptr_t>(buffer_.itemsize) != 0)
    fail<ShapeError>("kernel",
                     "`{}` begins at an address that is no multiple of its {}-byte elements; copy it", name,
                     buffer_.itemsize);
}

/// False where the type lends no such functions, or Python's way has more to say.
bool BorrowedArray::from_exchange(const py::handle& object, const std::string& name, Dtype dtype) {
  const DlExchange* exchange = exchange_of(object);
  if (exchange == nullptr || exchange->managed_of == nullptr || !is_plain(object)) return false;
  DlVersioned* made = nullptr;
  if (exchange->managed_of(object.ptr(), &made) != 0) {
    PyErr_Clear();
    return false;
  }
  managed_ = {made, [](void* owned) {
                auto* versioned = static_cast<DlVersioned*>(owned);
                if (versioned->deleter != nullptr) versioned->deleter(versioned);
              }};
  if (made->tensor.device.type != kCpu || made->flags != 0) return false;
  view_ = view_of(made->tensor, object, name, dtype);
  return true;
}

void BorrowedArray::from_dlpack(const py::handle& object, const std::string& name, Dtype dtype,
                                bool writable) {
  if (py::hasattr(object, "__dlpack_device__")) {
    const auto device = object.attr("__dlpack_device__")().cast<std::pair<int, int>>();
    if (device.first != kCpu) {
      const std::string where = py::hasattr(object, "device")
                                    ? py::str(object.attr("device")).cast<std::string>()
                                    : fmt::format("DLPack device {}", device.first);
      fail<KernelError>("kernel", "`{}` is on {}; native kernels run on the CPU: move it there first", name,
                        where);
    }
  }
  try {
    capsule_ = object.attr("__dlpack__")();
  } catch (const py::error_already_set& reason) {
    fail<KernelError>("kernel",
                      "`{}` cannot be {} in place (a tensor that requires a gradient: pass .detach()): {}",
                      name, writable ? "written" : "read", reason.what());
  }
  auto* managed = static_cast<DlManagedTensor*>(PyCapsule_GetPointer(capsule_.ptr(), "dltensor"));
  if (managed == nullptr) {
    PyErr_Clear();
    fail<KernelError>("kernel", "`{}` gives a DLPack capsule of another kind", name);
  }
  view_ = view_of(managed->tensor, object, name, dtype);
}

}  // namespace syno::bindings
