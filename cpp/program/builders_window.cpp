// Operators with sliding windows: convolutions, transposed convolutions, pooling.
#include <algorithm>

#include "program/builder_tools.hpp"
#include "program/builders.hpp"
#include "program/verify.hpp"

namespace syno::program {
namespace {

using detail::Composer;
using detail::concat;
using detail::numbered;
using detail::per_dimension;
using detail::require_positive;
using detail::Shape;

// Attributes with every default written out.
struct Window {
  std::size_t rank = 0;
  Shape in, kernel, stride, dilation, pad_begin, pad_end;
};

Window window_of(std::string_view where, const Shape& in_size, const Shape& kernel, const Shape& stride,
                 const Shape& dilation, const Shape& pad_begin, const Shape& pad_end) {
  Window window;
  window.rank = in_size.size();
  if (window.rank == 0) fail<ShapeError>(where, "in_size is empty, but there must be a spatial dimension");
  require_positive(where, "in_size", in_size);
  if (kernel.size() != window.rank)
    fail<ShapeError>(where, "kernel has {} values for {} spatial dimensions", kernel.size(), window.rank);
  require_positive(where, "kernel", kernel);
  window.in = in_size;
  window.kernel = kernel;
  window.stride = per_dimension(where, "stride", stride, window.rank, 1, 1);
  window.dilation = per_dimension(where, "dilation", dilation, window.rank, 1, 1);
  window.pad_begin = per_dimension(where, "pad_begin", pad_begin, window.rank, 0, 0);
  window.pad_end = per_dimension(where, "pad_end", pad_end, window.rank, 0, 0);
  return window;
}

// The extent along dimension d of what slides over the padded input.
std::int64_t positions(std::string_view where, const Window& window, std::size_t d) {
  const std::int64_t padded = window.in[d] + window.pad_begin[d] + window.pad_end[d];
  const std::int64_t reach = window.dilation[d] * (window.kernel[d] - 1) + 1;
  if (reach > padded)
    fail<ShapeError>(where,
                     "the kernel reaches over {} elements of dimension {}, but the padded input has {}",
                     reach, d, padded);
  return (padded - reach) / window.stride[d] + 1;
}

std::vector<std::string> spatial_names(std::size_t rank) {
  if (rank == 1) return {"w"};
  if (rank == 2) return {"h", "w"};
  if (rank == 3) return {"d", "h", "w"};
  return numbered("h", rank);
}
std::vector<std::string> tap_names(std::size_t rank) {
  if (rank == 1) return {"s"};
  if (rank == 2) return {"r", "s"};
  if (rank == 3) return {"q", "r", "s"};
  return numbered("r", rank);
}

void check_channels(std::string_view where, const ConvAttributes& a) {
  require_positive(where, "batch", a.batch);
  require_positive(where, "in_channels", a.in_channels);
  require_positive(where, "out_channels", a.out_channels);
  require_positive(where, "groups", a.groups);
  if (a.in_channels % a.groups != 0 || a.out_channels % a.groups != 0)
    fail<ShapeError>(where, "groups {} must divide in_channels {} and out_channels {}", a.groups,
                     a.in_channels, a.out_channels);
}

// Channel c of the group of output channel o.
ExprId input_channel(Program& program, ExprId o, ExprId c, const ConvAttributes& a) {
  if (a.groups == 1) return c;
  const ExprId group = program.arena.divide(o, Size(a.out_channels / a.groups));
  return program.arena.add(program.arena.multiply(group, a.in_channels / a.groups), c);
}

// stride*h + dilation*r - pad for every spatial dimension.
std::vector<ExprId> window_indices(Composer& composer, const Window& window,
                                   const std::vector<Iterator>& points, const std::vector<Iterator>& taps) {
  Arena& arena = composer.program.arena;
  std::vector<ExprId> result;
  for (std::size_t d = 0; d < window.rank; ++d) {
    const ExprId moved = arena.add(arena.multiply(composer.index(points[d]), window.stride[d]),
                                   arena.multiply(composer.index(taps[d]), window.dilation[d]));
    result.push_back(arena.add(moved, arena.constant(-window.pad_begin[d])));
  }
  return result;
}

// Adds `+ b[o]` as a scope of its own and finishes.
Program with_bias(Composer& composer, TensorId sum, std::optional<TensorId> bias, const Shape& shape) {
  Program& program = composer.program;
  if (!bias) {
    program.outputs = {sum};
    return std::move(program);
  }
  std::vector<std::string> names = {"n", "o"};
  for (const std::string& name : spatial_names(shape.size() - 2)) names.push_back(name);
  const std::vector<Iterator> iterators = composer.iterators(names, shape);
  const ScalarId body = program.binary(Function::Add, program.read(sum, composer.indices(iterators)),
                                       program.read(*bias, {composer.index(iterators[1])}));
  return composer.finish(composer.scope("y", iterators, Reduction::None, {}, body));
}

}  // namespace

Program conv(const ConvAttributes& a) {
  constexpr std::string_view kWhere = "conv";
  check_channels(kWhere, a);
  const Window window = window_of(kWhere, a.in_size, a.kernel, a.stride, a.dilation, a.pad_begin, a.pad_end);
  if (!a.output_padding.empty()) fail<ShapeError>(kWhere, "output_padding is for transposed convolutions");
  Shape out;
  for (std::size_t d = 0; d < window.rank; ++d) out.push_back(positions(kWhere, window, d));

  Composer composer;
  Program& program = composer.program;
  const TensorId x = composer.tensor("x", Role::Input, concat({a.batch, a.in_channels}, window.in));
  const TensorId w =
      composer.tensor("w", Role::Weight, concat({a.out_channels, a.in_channels / a.groups}, window.kernel));
  std::optional<TensorId> bias;
  if (a.bias) bias = composer.tensor("b", Role::Weight, {a.out_channels});

  const std::vector<Iterator> outer = composer.iterators({"n", "o"}, {a.batch, a.out_channels});
  const std::vector<Iterator> points = composer.iterators(spatial_names(window.rank), out);
  const std::vector<Iterator> channel = composer.iterators({"c"}, {a.in_channels / a.groups});
  const std::vector<Iterator> taps = composer.iterators(tap_names(window.rank), window.kernel);

  std::vector<ExprId> at = {composer.index(outer[0]),
                            input_channel(program, composer.index(outer[1]), composer.index(channel[0]), a)};
  for (const ExprId index : window_indices(composer, window, points, taps)) at.push_back(index);
  std::vector<ExprId> tap = {composer.index(outer[1]), composer.index(channel[0])};
  for (const ExprId index : composer.indices(taps)) tap.push_back(index);
  const ScalarId body = program.binary(Function::Multiply, program.read(x, at), program.read(w, tap));
  const TensorId sum = composer.scope(a.bias ? "y_sum" : "y", concat(outer, points), Reduction::Sum,
                                      concat(channel, taps), body);
  return with_bias(composer, sum, bias, concat({a.batch, a.out_channels}, out));
}

Program conv_transposed(const ConvAttributes& a) {
  constexpr std::string_view kWhere = "conv_transposed";
  check_channels(kWhere, a);
  const Window window = window_of(kWhere, a.in_size, a.kernel, a.stride, a.dilation, a.pad_begin, a.pad_end);
  const Shape extra = per_dimension(kWhere, "output_padding", a.output_padding, window.rank, 0, 0);
  Shape out;
  for (std::size_t d = 0; d < window.rank; ++d) {
    if (extra[d] >= std::max(window.stride[d], window.dilation[d]))
      fail<ShapeError>(kWhere,
                       "output_padding {} of dimension {} must be less than its stride {} or dilation {}",
                       extra[d], d, window.stride[d], window.dilation[d]);
    out.push_back((window.in[d] - 1) * window.stride[d] - window.pad_begin[d] - window.pad_end[d] +
                  window.dilation[d] * (window.kernel[d] - 1) + extra[d] + 1);
    if (out[d] < 1)
      fail<ShapeError>(
          kWhere, "the output would have size {} in dimension {}: less padding or a larger input is needed",
          out[d], d);
  }

  Composer composer;
  Program& program = composer.program;
  Arena& arena = program.arena;
  const std::int64_t group_out = a.out_channels / a.groups;
  const TensorId x = composer.tensor("x", Role::Input, concat({a.batch, a.in_channels}, window.in));
  const TensorId w = composer.tensor("w", Role::Weight, concat({a.in_channels, group_out}, window.kernel));
  std::optional<TensorId> bias;
  if (a.bias) bias = composer.tensor("b", Role::Weight, {a.out_channels});

  const std::vector<Iterator> outer = composer.iterators({"n", "o"}, {a.batch, a.out_channels});
  const std::vector<Iterator> points = composer.iterators(spatial_names(window.rank), out);
  const std::vector<Iterator> channel = composer.iterators({"c"}, {a.in_channels / a.groups});
  const std::vector<Iterator> taps = composer.iterators(tap_names(window.rank), window.kernel);

  const ExprId o = composer.index(outer[1]);
  const ExprId in = input_channel(program, o, composer.index(channel[0]), a);
  std::vector<ExprId> at = {composer.index(outer[0]), in};
  std::vector<ExprId> tap = {in, a.groups == 1 ? o : arena.modulo(o, Size(group_out))};
  for (std::size_t d = 0; d < window.rank; ++d) {
    // The input element i that tap r carries to output h: stride*i = h + pad - dilation*r, where that
    // divides.
    const ExprId scaled = arena.add(arena.add(composer.index(points[d]), arena.constant(window.pad_begin[d])),
                                    arena.multiply(composer.index(taps[d]), -window.dilation[d]));
    const Size stride(window.stride[d]);
    at.push_back(window.stride[d] == 1 ? scaled
                                       : arena.add(arena.divide(scaled, stride),
                                                   arena.inside(arena.modulo(scaled, stride), Size(1))));
    tap.push_back(composer.index(taps[d]));
  }
  const ScalarId body = program.binary(Function::Multiply, program.read(x, at), program.read(w, tap));
  const TensorId sum = composer.scope(a.bias ? "y_sum" : "y", concat(outer, points), Reduction::Sum,
                                      concat(channel, taps), body);
  return with_bias(composer, sum, bias, concat({a.batch, a.out_channels}, out));
}

Program pool(Pool kind, const PoolAttributes& a) {
  constexpr std::string_view kWhere = "pool";
  require_positive(kWhere, "batch", a.batch);
  require_positive(kWhere, "channels", a.channels);
  const Window window = window_of(kWhere, a.in_size, a.kernel, a.stride.empty() ? a.kernel : a.stride,
                                  a.dilation, a.pad_begin, a.pad_end);
  Shape out;
  for (std::size_t d = 0; d < window.rank; ++d) out.push_back(positions(kWhere, window, d));

  Composer composer;
  Program& program = composer.program;
  const TensorId x = composer.tensor("x", Role::Input, concat({a.batch, a.channels}, window.in));
  const auto traversal = [&] {
    return concat(composer.iterators({"n", "c"}, {a.batch, a.channels}),
                  composer.iterators(spatial_names(window.rank), out));
  };
  const auto spatial = [&](const std::vector<Iterator>& all) {
    return std::vector<Iterator>(all.begin() + 2, all.end());
  };

  const std::vector<Iterator> points = traversal();
  const std::vector<Iterator> taps = composer.iterators(tap_names(window.rank), window.kernel);
  std::vector<ExprId> at = {composer.index(points[0]), composer.index(points[1])};
  for (const ExprId index : window_indices(composer, window, spatial(points), taps)) at.push_back(index);
  const Rational outside = kind == Pool::Max ? Rational::infinity(true) : Rational(0);
  const ScalarId body = program.read(x, at, outside);
  if (kind == Pool::Max) return composer.finish(composer.scope("y", points, Reduction::Max, taps, body));
  if (a.count_include_pad) return composer.finish(composer.scope("y", points, Reduction::Mean, taps, body));

  // Divided by how many taps are inside, which depends on the position only.
  const TensorId total = composer.scope("total", points, Reduction::Sum, taps, body);
  const std::vector<Iterator> where = composer.iterators(spatial_names(window.rank), out);
  const std::vector<Iterator> counted = composer.iterators(tap_names(window.rank), window.kernel);
  std::optional<ScalarId> inside;
  const std::vector<ExprId> indices = window_indices(composer, window, where, counted);
  for (std::size_t d = 0; d < window.rank; ++d) {
    const ScalarId index = program.index_value(indices[d]);
    const ScalarId both =
        program.binary(Function::And, program.binary(Function::LessEqual, program.literal(0), index),
                       program.binary(Function::Less, index, program.literal(window.in[d])));
    inside = inside ? program.binary(Function::And, *inside, both) : both;
  }
  const TensorId count = composer.scope("count", where, Reduction::Sum, counted, *inside);
  const std::vector<Iterator> last = traversal();
  const ScalarId quotient = program.binary(Function::Divide, program.read(total, composer.indices(last)),
                                           program.read(count, composer.indices(spatial(last))));
  return composer.finish(composer.scope("y", last, Reduction::None, {}, quotient));
}

}  // namespace syno::program
