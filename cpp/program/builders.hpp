// program/builders.hpp — programs of the usual operators, general in their attributes, concrete in their
// sizes. Every builder throws ShapeError, before building anything, where attributes do not fit together.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.hpp"

namespace syno::program {

struct ConvAttributes {
  std::int64_t batch = 1, in_channels = 1, out_channels = 1, groups = 1;
  std::vector<std::int64_t> in_size;           ///< spatial; its length (at least 1) is the convolution's rank
  std::vector<std::int64_t> kernel;            ///< taps per spatial dimension, odd or even
  std::vector<std::int64_t> stride, dilation;  ///< default ones
  std::vector<std::int64_t> pad_begin, pad_end;  ///< per side, default zeros
  std::vector<std::int64_t> output_padding;      ///< transposed only
  bool bias = false;
};
/// y[n, o, h...] = sum_{c, r...} x[n, group(o) + c, stride*h + dilation*r - pad_begin...] * w[o, c, r...] (+
/// b[o]). x: [batch, in_channels, in_size...]; w: [out_channels, in_channels/groups, kernel...]; depthwise by
/// groups.
Program conv(const ConvAttributes& attributes);

/// The gradient of conv in its input, as torch.nn.ConvTranspose: w: [in_channels, out_channels/groups,
/// kernel...], extent (in - 1)*stride - pad_begin - pad_end + dilation*(kernel - 1) + output_padding + 1.
/// Strides become guards `inside(... % stride, 1)`, so that it stays a sum of products.
Program conv_transposed(const ConvAttributes& attributes);

enum class Pool : std::uint8_t { Max, Average };
struct PoolAttributes {
  std::int64_t batch = 1, channels = 1;
  std::vector<std::int64_t> in_size, kernel;
  std::vector<std::int64_t> stride;  ///< default: the kernel
  std::vector<std::int64_t> dilation, pad_begin, pad_end;
  bool count_include_pad = true;  ///< Average: divide by the kernel's size, otherwise by the elements inside
};
Program pool(Pool kind, const PoolAttributes& attributes);

/// y[b..., m, n] = sum_k a[b..., m, k] * b[b..., k, n]; a transposed operand swaps its last two dimensions.
Program matmul(std::int64_t m, std::int64_t n, std::int64_t k, const std::vector<std::int64_t>& batch = {},
               bool transpose_a = false, bool transpose_b = false);

/// EINNET's general-to-band matmul (§6): y[b, m, w] = sum_k a[b, m, k] * c[b, m + dilation*(w - width), k], w
/// in [0, 2*width].
Program g2bmm(std::int64_t batch, std::int64_t length, std::int64_t features, std::int64_t width,
              std::int64_t dilation);

Program softmax(const std::vector<std::int64_t>& shape, std::size_t dim);

/// Over the last `normalized_dims` dimensions, with weights gamma and beta when `affine`; epsilon is kept as
/// the exact decimal it prints as.
Program layer_norm(const std::vector<std::int64_t>& shape, std::size_t normalized_dims, double epsilon,
                   bool affine);

/// y = f(a), or y = f(a, b) with numpy broadcasting between the two shapes; an empty shape is a scalar.
Program elementwise(Function function, const std::vector<std::int64_t>& a,
                    const std::vector<std::int64_t>& b = {});

/// The function called `name` in the text form; UnknownName lists the valid ones.
Function function_named(std::string_view name);

}  // namespace syno::program
