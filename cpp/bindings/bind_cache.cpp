// bindings/bind_cache.cpp — what kernels' files are known and trusted by in Python: secrets, keys and
// digests.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>

#include "jit/content_digest.hpp"
#include "jit/object_cache.hpp"
#include "support/error.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using namespace syno;

/// The bytes of a contiguous buffer.
std::string_view content_of(const py::buffer_info& info) {
  if (info.ndim != 1 || info.itemsize != 1 || (info.size > 0 && info.strides[0] != 1))
    fail<ShapeError>("digest", "{} dimensions of {} bytes; give contiguous bytes", info.ndim, info.itemsize);
  return {static_cast<const char*>(info.ptr), static_cast<std::size_t>(info.size)};
}

}  // namespace

void bind_cache(py::module_& m) {
  m.def(
      "set_cache_secret",
      [](const py::bytes& secret) {
        const std::string_view bytes = secret;
        jit::CacheSecret key;
        if (bytes.size() != key.size())
          fail<KernelError>("cache", "a secret of {} bytes; give {}", bytes.size(), key.size());
        std::copy(bytes.begin(), bytes.end(), key.begin());
        jit::set_cache_secret(key);
      },
      "secret"_a, R"doc(
    The secret under which compiled objects are written to and read from cache directories; until it is set, one of
    this process alone.

    Args:
        secret: 32 bytes.
    Raises:
        KernelError: of another length.
)doc");
  m.def(
      "cache_entry_key", [](const py::bytes& entry) { return jit::entry_key(std::string_view(entry)); },
      "entry"_a,
      "The key of a compiled object as it lies in a cache directory; '' where it is damaged or of another "
      "secret.");
  m.def(
      "adopt_cache_entry",
      [](const py::bytes& entry) { return py::bytes(jit::adopt_entry(std::string_view(entry))); }, "entry"_a,
      "The same compiled object under this process's secret, for code that is trusted; b'' where it is "
      "none.");

  py::class_<jit::ContentDigest>(m, "ContentDigest", R"doc(
    A digest of very many bytes, some at a time, that nobody finds a second content for (BLAKE3).
)doc")
      .def(py::init<>())
      .def(
          "update",
          [](jit::ContentDigest& self, const py::buffer& bytes) {
            const py::buffer_info info = bytes.request();
            self.update(content_of(info));
          },
          "bytes"_a, R"doc(
    Further bytes, those of any contiguous buffer.

    Args:
        bytes: ``bytes``, a ``bytearray``, or a ``memoryview`` of one.
    Raises:
        ShapeError: not contiguous, or no bytes.
)doc")
      .def("digits", &jit::ContentDigest::digits, "Of everything so far: 64 hexadecimal digits.");

  m.def(
      "part_digests",
      [](const py::buffer& bytes, std::size_t size) {
        const py::buffer_info info = bytes.request();
        const std::string_view content = content_of(info);
        if (size == 0) fail<ShapeError>("digest", "parts of 0 bytes; give at least 1");
        std::string found;
        {
          const py::gil_scoped_release others_run;
          found = jit::part_digests(content, size);
        }
        return py::bytes(found);
      },
      "bytes"_a, "size"_a, R"doc(
    A digest of each part of a buffer (BLAKE3), 16 bytes each, one after the other.

    Args:
        bytes: ``bytes``, a ``bytearray``, or a ``memoryview`` of one.
        size: bytes of a part; the last one may be shorter.
    Raises:
        ShapeError: not contiguous, or no bytes, or parts of nothing.
)doc");
}
