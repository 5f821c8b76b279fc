// program/text.hpp — the text form of programs: what logs, tests, files and papers share.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.hpp"

namespace syno::program {

struct ParseOptions {
  std::map<std::string, std::int64_t, std::less<>> sizes;  ///< extent of an iterator or value of a size variable, by name
  std::map<std::string, std::vector<std::int64_t>, std::less<>> shapes;  ///< override an input's shape
  std::vector<std::string> weights;  ///< names of weights; default: every input but the first one read
  std::vector<std::string> data;     ///< names of data inputs; the rest are weights
};

/// Short form, one scope a line (or separated by `;`), the last scope's output is the program's:
///
///     y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]
///
/// A dimension of an input whose least index is -p counts as padded by p on both sides (extent = greatest
/// index + 1 - p), otherwise greatest + 1. Sizes that follow from given shapes may be left out. ParseError
/// points at the place with a caret; ShapeError names sizes that are missing or contradict each other.
///
/// Full form, as to_text prints it (every range, shape, role and fill explicit):
///
///     size N, C : primary = (1, 64), (1, 128); size k : coefficient = 3, 3
///     input x[N, C, H]; weight w[C, k]; constant t[2] = {1, 1/2}
///     y[n: N, h: -1..H+1] = sum[c: C] x[n, c, inside(h + r - k/2, H)] * w[c, r]
///     z[n: N] = max[h: H] y[n, h] fill -inf
///     dx[N, C, H] : [n: N, h: H][h + 1] += ...
///     return y, z
Program parse(std::string_view text, const ParseOptions& options = {});

/// Full form; parse(to_text(p)) is p up to ids.
std::string to_text(const Program& program);

/// Short form of a program or scope, for people: `y[n,o,h,w] = sum[c,r,s] ...`.
std::string to_short_text(const Program& program);

}  // namespace syno::program
