// program/text.hpp — the text form of programs: what logs, tests, files and papers share.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.hpp"

namespace syno::program {

struct ParseOptions {
  std::map<std::string, std::int64_t, std::less<>>
      sizes;  ///< extent of an iterator or value of a size, by name
  std::map<std::string, std::vector<std::int64_t>, std::less<>> shapes;  ///< shapes of inputs
  std::vector<std::string> weights;  ///< names of weights; the rest is data
  std::vector<std::string> data;     ///< names of data inputs; the rest are weights
  bool no_weights = false;           ///< every input is data
  // With neither, every input but the first one read is a weight.
};

/// One statement a line (or separated by `;`); a line ending or beginning with an operator goes on; `#`
/// begins a comment. What a statement leaves out is inferred, so the short form is the full form with less
/// said:
///
///     y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]
///
/// An iterator that alone indexes a dimension runs over that dimension. A dimension of an input whose least
/// index is -p counts as padded by p on both sides (extent = greatest index + 1 - p), otherwise greatest + 1;
/// given the shape instead, the unknown iterator in an index gets the greatest range that fits. Reads outside
/// a tensor give the fill, 0 unless said: `x[n, 2*h+r-1] fill -inf`. Without `return` the last output is
/// returned.
///
/// Bodies have `+ - * / **`, comparisons, `and`, `or`, `select(condition, a, b)`, exp log sqrt rsqrt erf tanh
/// sigmoid relu abs gelu floor ceil round trunc sin cos atan, max(a, b), min(a, b), fmod(a, b); iterators and
/// `index(i % 4)` as numbers; `ratio(1, 3)`, `inf`. Reductions `sum max min prod mean` take the product on
/// their right, so that `sum[k] a[k] * b[k] + c` adds c once; what a reduction inside an expression sums
/// becomes a scope of its own, one element for every value of the outer iterators it uses: `y[i,j] =
/// exp(x[i,j]) / sum[k] exp(x[i,k])` has two scopes. `y[h + r] += x[h] * w[r]` accumulates over the iterators
/// of its left side.
///
/// The full form, as to_text prints it, states every range, shape, role and fill:
///
///     size N, C : primary = (1, 64), (1, 128); size k : coefficient = 3, 3
///     input x[N, C, H]; weight w[C, k]; constant t[2] = {1, 1/2}
///     y[n: N, h: -1..H+1] = sum[c: C] x[n, c, inside(h + r - k/2, H)] * w[c, r] @conv(stride=1)
///     z[n: N] = max[h: H] y[n, h] fill -inf
///     dx[N, C, H] : [n: N, h: H][n, 0, h + 1] += ...
///     return y, z
///
/// `@name(attribute=1)` labels a scope with the operator it was recognised as. ParseError points at the place
/// with a caret; ShapeError names sizes that are missing or contradict each other; UnknownName names options
/// that match nothing in the text; what is built is verified.
Program parse(std::string_view text, const ParseOptions& options = {});

/// Full form; parse(to_text(p)) is p up to ids.
std::string to_text(const Program& program);

/// Short form of a program or scope, for people: `y[n,o,h,w] = sum[c,r,s] ...`.
std::string to_short_text(const Program& program);

/// The program as nested loops, for people: `for n in range(N): ...`, one nest a scope, in order.
std::string to_loops(const Program& program);

}  // namespace syno::program
