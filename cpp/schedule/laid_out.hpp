// schedule/laid_out.hpp — programs whose tensors lie in other layouts: ALT's rewriting pass (§4.1), on the
// one representation of computation there is.
#pragma once

#include <string_view>

#include "program/program.hpp"
#include "schedule/layout.hpp"

namespace syno::schedule {

/// The concrete program in which `tensor` is the tensor S(shape) that `layout` makes of it; a place that
/// holds no element (of padding, behind the last tile, of slots) holds 0. Who computes it runs over its
/// places, each reading at S⁻¹(place); who reads x[i] reads x[S(i)]. What a scope sums over is split where
/// that spares quotients: of x[n, c, h, w] split into channels of 8 and reordered, y[n, o, h, w] = sum[c: 32]
/// x[n, c, h, w] * k[o, c] becomes
///
///     y[n, o, h, w] = sum[c: 4, cm: 8] x[n, c, h, w, cm] * k[o, c * 8 + cm]
///
/// A read x[V*i + r] of an unfolded dimension takes all of a window from one tile, where they fit (the
/// paper's access; it needs a stride of V times the windows of a tile); any other the element's first tile.
///
/// ScheduleError where a primitive does not fit the shape, ShapeError for a program with size variables or a
/// layout whose places cannot be counted.
program::Program laid_out(program::Program concrete, program::TensorId tensor, const Layout& layout);

/// The inverse: `tensor` lies as `layout` says of a tensor of `shape`; in what comes out it has that shape.
/// The program must keep to it that places without an element hold 0, and all copies of an unfolded element
/// its value.
program::Program without_layout(program::Program concrete, program::TensorId tensor, const Layout& layout,
                                const Shape& shape);

/// The program in which, where `tensor` is an argument, a copy of it called `copy` lies so: who reads an
/// input reads its copy, made before all else, and what writes an output writes its copy, from which the
/// output is copied. The caller's memory stays as it is. Other tensors get the layout themselves; `copy` is
/// not looked at.
///
/// Throws as laid_out() does, and ScheduleError where there is a tensor of that name.
program::Program laid_out_copied(program::Program concrete, program::TensorId tensor, const Layout& layout,
                                 std::string_view copy);

/// Whether each place holds exactly one element: sequences of split, reorder and fuse, and what is no more
/// than them. The others are the paper's advanced primitives, which propagation leaves alone.
bool is_bijective(const Layout& layout, const Shape& shape);

}  // namespace syno::schedule
