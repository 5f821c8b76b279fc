// bindings/bind_builders.cpp — programs of the usual operators, built from their attributes, in Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "program/builders.hpp"
#include "program/program.hpp"
#include "support/error.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using namespace syno;
using namespace syno::program;

using Shape = std::vector<std::int64_t>;

Program build_conv(bool transposed, std::int64_t batch, std::int64_t in_channels, std::int64_t out_channels,
                   Shape in_size, Shape kernel, Shape stride, Shape dilation, Shape pad_begin, Shape pad_end,
                   Shape output_padding, std::int64_t groups, bool bias) {
  ConvAttributes a;
  a.batch = batch;
  a.in_channels = in_channels;
  a.out_channels = out_channels;
  a.groups = groups;
  a.in_size = std::move(in_size);
  a.kernel = std::move(kernel);
  a.stride = std::move(stride);
  a.dilation = std::move(dilation);
  a.pad_begin = std::move(pad_begin);
  a.pad_end = std::move(pad_end);
  a.output_padding = std::move(output_padding);
  a.bias = bias;
  return transposed ? conv_transposed(a) : conv(a);
}

Program build_pool(const std::string& kind, std::int64_t batch, std::int64_t channels, Shape in_size,
                   Shape kernel, Shape stride, Shape dilation, Shape pad_begin, Shape pad_end,
                   bool count_include_pad) {
  if (kind != "max" && kind != "average")
    throw UnknownName("pool", unknown_name("kind", kind, {"max", "average"}));
  PoolAttributes a;
  a.batch = batch;
  a.channels = channels;
  a.in_size = std::move(in_size);
  a.kernel = std::move(kernel);
  a.stride = std::move(stride);
  a.dilation = std::move(dilation);
  a.pad_begin = std::move(pad_begin);
  a.pad_end = std::move(pad_end);
  a.count_include_pad = count_include_pad;
  return pool(kind == "max" ? Pool::Max : Pool::Average, a);
}

}  // namespace

void bind_builders(py::module_& m) {
  const Shape none;
  m.def(
      "conv",
      [](std::int64_t batch, std::int64_t in_channels, std::int64_t out_channels, Shape in_size, Shape kernel,
         Shape stride, Shape dilation, Shape pad_begin, Shape pad_end, std::int64_t groups, bool bias) {
        return build_conv(false, batch, in_channels, out_channels, std::move(in_size), std::move(kernel),
                          std::move(stride), std::move(dilation), std::move(pad_begin), std::move(pad_end),
                          {}, groups, bias);
      },
      py::kw_only(), "batch"_a = 1, "in_channels"_a, "out_channels"_a, "in_size"_a, "kernel"_a,
      "stride"_a = none, "dilation"_a = none, "pad_begin"_a = none, "pad_end"_a = none, "groups"_a = 1,
      "bias"_a = false, R"doc(
    A convolution of any rank, as ``torch.nn.functional.conv1d/2d/3d``.

    Inputs ``x`` (batch, in_channels, *in_size), weights ``w`` (out_channels, in_channels/groups, *kernel) and with
    ``bias`` ``b`` (out_channels,); output ``y``.

    Args:
        in_size, kernel: extents per spatial dimension; their length is the rank.
        stride, dilation: per spatial dimension; empty for ones.
        pad_begin, pad_end: zeros before and after, per spatial dimension; empty for none.
        groups: divides both channels; ``groups=in_channels`` is depthwise.
    Raises:
        ShapeError: attributes that do not fit together.
    Example:
        >>> from syno._core import conv
        >>> conv(in_channels=8, out_channels=16, in_size=[32], kernel=[4], stride=[2], pad_begin=[1]).shape("y")
        [1, 16, 15]
)doc");
  m.def(
      "conv_transposed",
      [](std::int64_t batch, std::int64_t in_channels, std::int64_t out_channels, Shape in_size, Shape kernel,
         Shape stride, Shape dilation, Shape pad_begin, Shape pad_end, Shape output_padding,
         std::int64_t groups, bool bias) {
        return build_conv(true, batch, in_channels, out_channels, std::move(in_size), std::move(kernel),
                          std::move(stride), std::move(dilation), std::move(pad_begin), std::move(pad_end),
                          std::move(output_padding), groups, bias);
      },
      py::kw_only(), "batch"_a = 1, "in_channels"_a, "out_channels"_a, "in_size"_a, "kernel"_a,
      "stride"_a = none, "dilation"_a = none, "pad_begin"_a = none, "pad_end"_a = none,
      "output_padding"_a = none, "groups"_a = 1, "bias"_a = false, R"doc(
    A transposed convolution of any rank, as ``torch.nn.functional.conv_transpose1d/2d/3d``.

    Weights ``w`` (in_channels, out_channels/groups, *kernel); the other arguments as for ``conv``. Output extents are
    (in - 1)*stride - pad_begin - pad_end + dilation*(kernel - 1) + output_padding + 1.

    Raises:
        ShapeError: attributes that do not fit together.
)doc");
  m.def("pool", &build_pool, "kind"_a, py::kw_only(), "batch"_a = 1, "channels"_a, "in_size"_a, "kernel"_a,
        "stride"_a = none, "dilation"_a = none, "pad_begin"_a = none, "pad_end"_a = none,
        "count_include_pad"_a = true,
        R"doc(
    Pooling of any rank over ``x`` (batch, channels, *in_size).

    Args:
        kind: ``"max"`` (what is outside counts as minus infinity) or ``"average"``.
        stride: per spatial dimension; empty for the kernel's extents.
        count_include_pad: average divides by the kernel's size; otherwise by the number of elements inside.
    Raises:
        ShapeError: attributes that do not fit together.
        UnknownName: another kind.
)doc");
  m.def("matmul", &matmul, py::kw_only(), "m"_a, "n"_a, "k"_a, "batch"_a = none, "transpose_a"_a = false,
        "transpose_b"_a = false, R"doc(
    ``y[*batch, m, n] = sum_k a[*batch, m, k] * b[*batch, k, n]``; ``b`` is the weight.

    Args:
        batch: leading extents of both operands.
        transpose_a, transpose_b: whether the operand's last two dimensions are swapped.
    Raises:
        ShapeError: an extent below 1.
)doc");
  m.def("g2bmm", &g2bmm, py::kw_only(), "batch"_a, "length"_a, "features"_a, "width"_a, "dilation"_a, R"doc(
    EINNET's general-to-band matrix product (§6).

    ``y[b, m, w] = sum_k a[b, m, k] * c[b, m + dilation*(w - width), k]`` for w in [0, 2*width]; ``a`` and ``c`` have
    shape (batch, length, features), and are zero outside.

    Raises:
        ShapeError: an extent below 1.
)doc");
  m.def("softmax", &softmax, py::kw_only(), "shape"_a, "dim"_a, R"doc(
    Softmax of ``x`` along ``dim`` (from 0), computed with the greatest element subtracted; output ``y``.

    Raises:
        ShapeError: no such dimension.
)doc");
  m.def("layer_norm", &layer_norm, py::kw_only(), "shape"_a, "normalized_dims"_a = 1, "epsilon"_a = 1e-5,
        "affine"_a = true, R"doc(
    Layer normalisation of ``x`` over its last ``normalized_dims`` dimensions.

    With ``affine`` it has weights ``gamma`` and ``beta`` of the normalised shape. ``epsilon`` is kept as the exact
    decimal that it prints as.

    Raises:
        ShapeError: no such dimensions, or an epsilon that is no such decimal.
)doc");
  m.def(
      "elementwise",
      [](const std::string& function, const Shape& a, const Shape& b) {
        return elementwise(function_named(function), a, b);
      },
      "function"_a, py::kw_only(), "a"_a, "b"_a = none, R"doc(
    ``y = f(a)`` or ``y = f(a, b)`` with numpy broadcasting between the two shapes (``[]`` is a scalar).

    Args:
        function: ``neg exp log sqrt rsqrt erf tanh sigmoid relu abs gelu floor ceil round trunc sin cos atan``, or with two
            operands ``add sub mul div max min pow fmod less less_equal equal not_equal and or``; comparisons give 0 or 1.
        a, b: shapes of the operands.
    Raises:
        UnknownName: another function.
        ShapeError: shapes that do not broadcast.
)doc");
}
