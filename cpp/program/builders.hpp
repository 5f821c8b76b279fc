// program/builders.hpp — programs of the usual operators, general in their attributes, concrete in their
// sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.hpp"

namespace syno::program {

struct ConvAttributes {
  std::int64_t batch = 1, in_channels = 1, out_channels = 1, groups = 1;
  std::vector<std::int64_t> in_size;  ///< spatial; its length (1..3) is the convolution's rank
  std::vector<std::int64_t> kernel;
  std::vector<std::int64_t> stride, dilation;    ///< default ones
  std::vector<std::int64_t> pad_begin, pad_end;  ///< per side, default zeros
  std::vector<std::int64_t> output_padding;      ///< transposed only
  bool bias = false;
};
Program conv(const ConvAttributes& attributes);             ///< y = conv(x, w[, b]); depthwise by groups
Program conv_transposed(const ConvAttributes& attributes);  ///< w: [in, out/groups, kernel...]

enum class Pool : std::uint8_t { Max, Average };
struct PoolAttributes {
  std::int64_t batch = 1, channels = 1;
  std::vector<std::int64_t> in_size, kernel, stride, dilation, pad_begin, pad_end;
  bool count_include_pad = true;
};
Program pool(Pool kind, const PoolAttributes& attributes);

/// y[b..., m, n] = sum_k a[b..., m, k] * b[b..., k, n]
Program matmul(std::int64_t m, std::int64_t n, std::int64_t k, const std::vector<std::int64_t>& batch = {},
               bool transpose_a = false, bool transpose_b = false);
/// EINNET's general-to-band matmul: y[b, m, w] = sum_k a[b, m, k] * c[b, m + dilation*(w - width), k], w in
/// [0, 2*width].
Program g2bmm(std::int64_t batch, std::int64_t length, std::int64_t features, std::int64_t width,
              std::int64_t dilation);
Program softmax(const std::vector<std::int64_t>& shape, std::size_t dim);
Program layer_norm(const std::vector<std::int64_t>& shape, std::size_t normalized_dims, double epsilon,
                   bool affine);
/// y = f(a) or f(a, b) with numpy broadcasting between the two shapes.
Program elementwise(Function function, const std::vector<std::int64_t>& a,
                    const std::vector<std::int64_t>& b = {});

}  // namespace syno::program
