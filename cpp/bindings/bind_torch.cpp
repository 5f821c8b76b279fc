// bindings/bind_torch.cpp — kernels called on torch tensors, with nothing but the call: no torch headers are
// needed, and no key is made for each call.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "jit/kernel.hpp"
#include "support/error.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using namespace syno;

constexpr std::size_t kMostArguments = 32;

/// Kernels of one operator by the shapes, dtypes and threads of a call. There are few: they are compared in
/// order, and one that was found moves a place forward.
class TensorCalls {
  /// A kernel that writes some of the results.
  struct Part {
    std::shared_ptr<jit::Kernel> kernel;
    std::vector<std::size_t> order;  ///< which tensors the kernel takes
    int runs_on = 1;                 ///< threads

    std::size_t results() const { return kernel->argument_count() - order.size(); }
  };
  struct Call {
    std::vector<Part> parts;
    std::vector<py::tuple> shapes;    ///< of all tensors of a call
    std::vector<py::object> strides;  ///< None: any that are row-major
    std::vector<py::object> dtypes;
    py::object result_dtype;
    std::vector<py::tuple> result_shapes;
    std::vector<py::object> result_formats;  ///< memory formats; None: row-major
    int threads = 1;                         ///< that torch has
  };

 public:
  TensorCalls(py::object empty, py::object thread_count, std::size_t kept)
      : empty_(std::move(empty)), thread_count_(std::move(thread_count)), kept_(kept) {
    if (kept == 0) fail<KernelError>("torch", "kept={} must be at least 1", kept);
  }

  void add(const std::vector<std::shared_ptr<jit::Kernel>>& kernels, const std::vector<py::tuple>& shapes,
           std::vector<py::object> dtypes, py::object result_dtype, std::vector<py::tuple> result_shapes,
           const std::vector<std::vector<std::size_t>>& orders, int threads, std::vector<int> runs_on,
           std::vector<py::object> strides, std::vector<py::object> result_formats) {
    runs_on.resize(runs_on.empty() ? kernels.size() : runs_on.size(), threads);
    if (kernels.empty() || orders.size() != kernels.size() || runs_on.size() != kernels.size())
      fail<ShapeError>("torch", "{} orders and {} numbers of threads for {} kernels", orders.size(),
                       runs_on.size(), kernels.size());
    std::vector<Part> parts;
    std::size_t results = 0;
    for (std::size_t k = 0; k < kernels.size(); ++k) {
      kernels[k]->require_runs_here();
      const std::size_t count = kernels[k]->argument_count();
      if (count > kMostArguments || orders[k].size() >= count)
        fail<ShapeError>("torch", "{} inputs for a kernel of {} arguments", orders[k].size(), count);
      for (const std::size_t i : orders[k])
        if (i >= shapes.size()) fail<ShapeError>("torch", "input {} of {} tensors", i, shapes.size());
      parts.push_back({kernels[k], orders[k], runs_on[k] > 0 ? runs_on[k] : threads});
      results += parts.back().results();
    }
    strides.resize(strides.empty() ? shapes.size() : strides.size(), py::none());
    result_formats.resize(result_formats.empty() ? result_shapes.size() : result_formats.size(), py::none());
    if (strides.size() != shapes.size() || dtypes.size() != shapes.size() ||
        result_shapes.size() != results || result_formats.size() != results)
      fail<ShapeError>("torch",
                       "{} strides, {} dtypes and {} formats for {} tensors and {} results, of which {} are "
                       "written",
                       strides.size(), dtypes.size(), result_formats.size(), shapes.size(),
                       result_shapes.size(), results);
    if (calls_.size() >= kept_) calls_.pop_back();
    calls_.insert(calls_.begin(), std::make_shared<const Call>(
                                      Call{std::move(parts), shapes, std::move(strides), std::move(dtypes),
                                           std::move(result_dtype), std::move(result_shapes),
                                           std::move(result_formats), threads}));
  }

  void clear() { calls_.clear(); }
  std::size_t size() const { return calls_.size(); }
  std::uint64_t used() const { return used_; }

  py::object call(const py::tuple& tensors) {
    used_ = ++all_calls_;
    const py::object threads = thread_count_();
    const long wanted = PyLong_AsLong(threads.ptr());
    if (wanted == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const std::shared_ptr<const Call> call = calls_[i];  // torch lets other threads run, which may add some
      if (call->threads != wanted || !fits(*call, tensors)) continue;
      if (i > 0 && i < calls_.size()) std::swap(calls_[i], calls_[i - 1]);
      return run(*call, tensors);
    }
    return py::none();
  }

 private:
  static py::object get(PyObject* object, PyObject* name) {
    PyObject* found = PyObject_GetAttr(object, name);
    if (found == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(found);
  }
  static py::object ask(PyObject* object, PyObject* method) {
    PyObject* found = PyObject_CallMethodNoArgs(object, method);
    if (found == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(found);
  }

  static bool equal(const py::object& a, const py::object& b) {
    const int same = PyObject_RichCompareBool(a.ptr(), b.ptr(), Py_EQ);
    if (same < 0) throw py::error_already_set();
    return same != 0;
  }

  bool fits(const Call& call, const py::tuple& tensors) const {
    if (tensors.size() != call.shapes.size()) return false;
    for (std::size_t i = 0; i < call.shapes.size(); ++i) {
      PyObject* tensor = PyTuple_GET_ITEM(tensors.ptr(), static_cast<Py_ssize_t>(i));
      if (get(tensor, dtype_.ptr()).ptr() != call.dtypes[i].ptr()) return false;
      if (!equal(get(tensor, shape_.ptr()), call.shapes[i])) return false;
      const bool lies = call.strides[i].is_none() ? ask(tensor, is_contiguous_.ptr()).ptr() == Py_True
                                                  : equal(ask(tensor, stride_.ptr()), call.strides[i]);
      if (!lies) return false;
    }
    return true;
  }

  py::object run(const Call& call, const py::tuple& tensors) const {
    const auto address = [&](PyObject* tensor) {
      void* found = PyLong_AsVoidPtr(ask(tensor, data_ptr_.ptr()).ptr());
      if (PyErr_Occurred() != nullptr) throw py::error_already_set();
      return found;
    };
    py::tuple results(call.result_shapes.size());
    std::size_t next = 0;
    for (const Part& part : call.parts) {
      std::array<void*, kMostArguments> pointers{};
      std::size_t count = 0;
      for (const std::size_t i : part.order)
        pointers[count++] = address(PyTuple_GET_ITEM(tensors.ptr(), static_cast<Py_ssize_t>(i)));
      for (const std::size_t end = next + part.results(); next < end; ++next) {
        const py::object& format = call.result_formats[next];
        const std::array<PyObject*, 3> arguments{call.result_shapes[next].ptr(), call.result_dtype.ptr(),
                                                 format.ptr()};
        const py::tuple& keywords = format.is_none() ? dtype_alone_ : dtype_and_format_;
        PyObject* made = PyObject_Vectorcall(empty_.ptr(), arguments.data(), 1, keywords.ptr());
        if (made == nullptr) throw py::error_already_set();
        results[next] = py::reinterpret_steal<py::object>(made);
        pointers[count++] = address(made);
      }
      const py::gil_scoped_release unlocked;
      part.kernel->call_unchecked(pointers.data(), part.runs_on);
    }
    return results.size() == 1 ? py::object(results[0]) : py::object(results);
  }

  inline static std::uint64_t all_calls_ = 0;  // of every object; under Python's lock
  std::uint64_t used_ = 0;
  py::object empty_, thread_count_;
  std::size_t kept_;
  py::str dtype_{"dtype"}, shape_{"shape"}, stride_{"stride"}, is_contiguous_{"is_contiguous"},
      data_ptr_{"data_ptr"};
  py::tuple dtype_alone_ = py::make_tuple(dtype_);
  py::tuple dtype_and_format_ = py::make_tuple(dtype_, py::str("memory_format"));
  std::vector<std::shared_ptr<const Call>> calls_;
};

}  // namespace

void bind_torch(py::module_& m) {
  py::class_<TensorCalls>(m, "TensorCalls", R"doc(
    Kernels of one operator, called on torch tensors of known strides as fast as they can be from Python.
)doc")
      .def(py::init<py::object, py::object, std::size_t>(), "empty"_a, "thread_count"_a, py::kw_only(),
           "kept"_a = 64, R"doc(
    Args:
        empty: makes the result: ``torch.empty``.
        thread_count: says how many threads a call is for: ``torch.get_num_threads``.
        kept: how many kernels are held; a further one takes the place of one that was found rarely.
    Raises:
        KernelError: kept is 0.
)doc")
      .def("add", &TensorCalls::add, "kernels"_a, py::kw_only(), "shapes"_a, "dtypes"_a, "result_dtype"_a,
           "result_shapes"_a, "orders"_a, "threads"_a, "runs_on"_a = std::vector<int>{},
           "strides"_a = std::vector<py::object>{}, "result_formats"_a = std::vector<py::object>{}, R"doc(
    Serve calls on tensors of these shapes and dtypes while ``thread_count`` says ``threads``.

    Args:
        kernels: one after the other each writes the next of the results.
        runs_on: threads that each kernel gets; default ``threads``.
        result_shapes: of each result, as torch sees it.
        orders: of each kernel, which of a call's tensors are its inputs, in its order.
        strides: of each tensor of a call; None where it has to be contiguous. Default all are.
        result_formats: memory format of each result, as its kernel writes it; None: contiguous. Default all are.
    Raises:
        ShapeError: a kernel takes another number of arguments.
)doc")
      .def("clear", &TensorCalls::clear, "Lets all kernels go.")
      .def_property_readonly("used", &TensorCalls::used,
                             "When it was last called, counted in calls of all there are; 0: never.")
      .def("__len__", &TensorCalls::size, "How many kernels are held.")
      .def("__call__", &TensorCalls::call, "tensors"_a, R"doc(
    The result for a tuple of CPU tensors, a tuple where there are several; None where no kernel was added for them or
    one has other strides.
)doc");
}
