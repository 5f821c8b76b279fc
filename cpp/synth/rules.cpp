#include "synth/rules.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "synth/places.hpp"

namespace syno::synth {
namespace {

using P = pgraph::Primitive;

double greatest(const Candidate& c, SizeNumber size) { return c.sizes[size].greatest; }

/// `a >= factor * b` at every valuation.
bool at_least(const Candidate& c, SizeNumber a, SizeNumber b, double factor = 1) {
  for (std::size_t v = 0; v < c.sizes.valuation_count(); ++v) {
    if (c.sizes.value(a, v) < factor * c.sizes.value(b, v)) return false;
  }
  return true;
}

bool divides_everywhere(const Candidate& c, SizeNumber divisor, SizeNumber size) {
  for (std::size_t v = 0; v < c.sizes.valuation_count(); ++v) {
    const double quotient = c.sizes.value(size, v) / c.sizes.value(divisor, v);
    if (quotient != static_cast<double>(static_cast<std::int64_t>(quotient))) return false;
  }
  return true;
}

/// What a rule takes for the same differs at no more than the stated share of points, at every valuation.
template <class Share>
bool similar_everywhere(const Candidate& c, Share&& share) {
  for (std::size_t v = 0; v < c.sizes.valuation_count(); ++v) {
    if (share(v) > c.spec.thresholds.similar_share) return false;
  }
  return true;
}
/// Of windows of `extent` taps that slide over `block` places: the share of taps that lie beyond them.
double beyond(double extent, double block) {
  const double reach = std::floor(extent / 2);
  return std::min(1.0, reach * (reach + 1) / (extent * block));
}
/// Two windows over `extent` places in either order: the share of points at which one order leaves them and
/// comes back.
double swapped(double one, double other, double extent) {
  double points = 0;
  for (double a = 1; a <= std::floor(one / 2); ++a)
    for (double b = 1; b <= std::floor(other / 2); ++b) points += 4 * std::min(a, b);
  return points / (one * other * extent);
}
/// A Shift by one place leaves most of a block within it, at the largest valuation.
bool hardly_shifts(const Candidate& c, SizeNumber block) {
  return greatest(c, block) > c.spec.thresholds.shift_ratio &&
         similar_everywhere(c, [&](std::size_t v) { return 1 / c.sizes.value(block, v); });
}

// --- Shift
// -----------------------------------------------------------------------------------------------------

bool shift_above_reduce(const Candidate& c) { return c.node_i().kind == Kind::Reduce && c.i().shared == 0; }
bool shift_above_share(const Candidate& c) { return c.weights(c.i()) != 0; }
bool shift_above_shift(const Candidate& c) { return c.node_i().kind == Kind::Shift && !c.read(c.i()); }
bool shift_unordered(const Candidate& c) { return c.node_i().unordered && !c.read_below(c.i()); }
/// (B*i + j + a) % (G*B) and B*i + (j + a) % B differ where j wraps: a share a/B of the points.
bool shift_above_split(const Candidate& c) {
  return c.node_i().kind == Kind::Split && !c.read(c.i()) && hardly_shifts(c, c.pool[c.node_i().b].extent);
}

// --- Merge
// -----------------------------------------------------------------------------------------------------

bool merge_above_reduce(const Candidate& c) { return c.node_i().kind == Kind::Reduce && c.i().shared == 0; }
bool merge_above_share(const Candidate& c) { return c.weights(c.i()) != 0; }
/// One of block and the Split's block is the other times an extent: the pair simplifies (Fig. 4a).
bool blocks_nest(const Candidate& c) {
  const PackedSize inner = c.sizes[c.pool[c.node_i().b].extent].packed;
  const PackedSize block = c.sizes[c.move.parameter].packed;
  const auto extent = [&](PackedSize size) {
    const RatioFacts facts = c.sizes.ratio(size);
    return facts.integral && !facts.negative_primary;
  };
  return extent(block / inner) || extent(inner / block);
}
bool merge_above_split(const Candidate& c) {
  return c.node_i().kind == Kind::Split && !c.read(c.i()) && blocks_nest(c);
}
bool merge_above_uneven_split(const Candidate& c) {
  return c.node_i().kind == Kind::Split && !c.read(c.i()) && !c.extension("uneven_blocks") && !blocks_nest(c);
}
bool merge_left_chain(const Candidate& c) { return c.node_i().kind == Kind::MergeMajor && !c.read(c.i()); }
bool merge_above_shift(const Candidate& c) {
  return c.node_i().kind == Kind::Shift && !c.read(c.i()) && hardly_shifts(c, c.move.parameter);
}
bool merge_above_unfold(const Candidate& c) {
  if (c.node_i().kind != Kind::Unfold || c.read(c.i())) return false;
  const SizeNumber window = c.pool[c.node_i().b].extent;
  return at_least(c, c.move.parameter, window) && similar_everywhere(c, [&](std::size_t v) {
           return beyond(c.sizes.value(window, v), c.sizes.value(c.move.parameter, v));
         });
}
/// A window of A*B taps as one of A over blocks of B places and one of B within them: the two share a centre
/// where halves round down alike.
bool merge_within_window(const Candidate& c) {
  if (c.node_i().kind != Kind::Unfold || c.read(c.i())) return false;
  const SizeNumber taps = c.pool[c.node_i().b].extent;
  const PackedSize ratio = c.sizes[taps].packed / c.sizes[c.move.parameter].packed;
  const RatioFacts blocks = c.sizes.ratio(ratio);
  if (!blocks.integral || !blocks.coefficient || ratio.is_zero()) return false;
  return similar_everywhere(c, [&](std::size_t v) {
    const double block = c.sizes.value(c.move.parameter, v);
    const double window = c.sizes.value(taps, v);
    const double centre = block * std::floor(window / block / 2) + std::floor(block / 2);
    return centre == std::floor(window / 2) ? beyond(block, block) : 2;
  });
}
bool merge_above_stride(const Candidate& c) {
  return c.node_i().kind == Kind::Stride && !c.read(c.i()) &&
         at_least(c, c.move.parameter, c.node_i().parameter) &&
         divides_everywhere(c, c.node_i().parameter, c.move.parameter);
}
/// Channels may be permuted, so [i / B, i % B] and its transpose are one operator: the larger part goes
/// right.
bool merge_unordered_order(const Candidate& c) {
  if (!c.node_i().unordered || c.read_below(c.i())) return false;
  const symbolic::Size& whole = c.sizes[c.i().extent].size;
  const symbolic::Size& block = c.sizes[c.move.parameter].size;
  const symbolic::Size group = whole / block;
  const auto& variables = c.spec.signature.sizes.variables();
  for (const auto kind : {symbolic::VariableKind::Primary, symbolic::VariableKind::Coefficient}) {
    for (std::size_t v = 0; v < variables.size(); ++v) {
      if (variables[v].kind != kind || block.exponent(v) == group.exponent(v)) continue;
      return block.exponent(v) < group.exponent(v);
    }
  }
  return false;
}
/// A chain of Merges of channels, [a, b, c], is kept in one order of its parts.
bool merge_unordered_chain(const Candidate& c) {
  if (!c.node_i().unordered || c.node_i().kind != Kind::MergeMinor || c.read_below(c.i())) return false;
  const SizeNumber block = c.node_i().parameter;
  const symbolic::Size first = c.sizes[c.pool[c.node_i().a].extent].size / c.sizes[block].size;
  const symbolic::Size second = c.sizes[block].size / c.sizes[c.move.parameter].size;
  const auto& variables = c.spec.signature.sizes.variables();
  for (const auto kind : {symbolic::VariableKind::Primary, symbolic::VariableKind::Coefficient}) {
    for (std::size_t v = 0; v < variables.size(); ++v) {
      if (variables[v].kind != kind || first.exponent(v) == second.exponent(v)) continue;
      return second.exponent(v) < first.exponent(v);
    }
  }
  return false;
}

// --- Split
// -----------------------------------------------------------------------------------------------------

bool split_left_chain(const Candidate& c) { return c.node_i().kind == Kind::Split && c.i().shared == 0; }
struct Seam {
  Coordinate left, right;
  std::uint8_t left_weights, right_weights;
};
Seam seam(const Candidate& c) {
  const Coordinate left = last_part(c.pool, c.i().coordinate);
  const Coordinate right = first_part(c.pool, c.j().coordinate);
  return {left, right, weights_sharing(c.state, left), weights_sharing(c.state, right)};
}
bool split_undoes_merge(const Candidate& c) {
  if (c.read_below(c.i()) || c.read_below(c.j())) return false;
  const Seam s = seam(c);
  return s.left_weights == s.right_weights && adjacent(c.pool, s.left, s.right);
}
bool split_of_reduces(const Candidate& c) {
  if (c.read_below(c.i()) || c.read_below(c.j())) return false;
  const Seam s = seam(c);
  return s.left_weights == s.right_weights && c.pool[s.left].kind == Kind::Reduce &&
         c.pool[s.right].kind == Kind::Reduce;
}
bool split_of_one_weight(const Candidate& c) {
  const Seam s = seam(c);
  return (s.left_weights & s.right_weights & ~c.state.data) != 0;
}
Coordinate merge_root(const CoordinatePool& pool, Coordinate coordinate) {
  while (pool[coordinate].kind == Kind::MergeMajor || pool[coordinate].kind == Kind::MergeMinor) {
    coordinate = pool[coordinate].a;
  }
  return coordinate;
}
/// Parts of one unordered dimension, joined in another order: the channels are only permuted.
bool split_unordered_parts(const Candidate& c) {
  if (c.read_below(c.i()) || c.read_below(c.j())) return false;
  const Seam s = seam(c);
  return s.left_weights == s.right_weights && c.pool[s.left].unordered && c.pool[s.right].unordered &&
         s.left != s.right && merge_root(c.pool, s.left) == merge_root(c.pool, s.right);
}

/// The coordinate stands somewhere below another.
bool stands_below(const CoordinatePool& pool, Coordinate part, Coordinate whole) {
  if (whole == 0 || part == whole) return whole != 0;
  return stands_below(pool, part, pool[whole].a) || stands_below(pool, part, pool[whole].b);
}
/// Output dimensions, or parts of them, that a coordinate is made of.
void add_output_parts(const CoordinatePool& pool, Coordinate coordinate, std::vector<Coordinate>& parts) {
  const CoordinateNode& node = pool[coordinate];
  if (only_reduces(pool, coordinate)) return;
  if (node.kind == Kind::Output || node.kind == Kind::MergeMajor || node.kind == Kind::MergeMinor) {
    if (std::find(parts.begin(), parts.end(), coordinate) == parts.end()) parts.push_back(coordinate);
    return;
  }
  if (node.a != 0) add_output_parts(pool, node.a, parts);
  if (node.b != 0) add_output_parts(pool, node.b, parts);
}
/// Whether weights, all of them further than `views`, have fewer elements than one that takes `place` for
/// these: it indexes all else that they do, but for Reduces that they meet in.
bool fewer_elements_than_one(const Candidate& c, unsigned weights, std::initializer_list<Coordinate> views,
                             SizeNumber place) {
  std::vector<Coordinate> others;
  std::vector<Coordinate> met;
  const auto within = [&](Coordinate one) {
    return std::any_of(views.begin(), views.end(),
                       [&](Coordinate view) { return stands_below(c.pool, one, view); });
  };
  const auto each = [&](auto&& look) {
    for (std::size_t w = 0; w < c.state.weight_count; ++w) {
      if ((weights >> w & 1) != 0) look(c.state.weights[w]);
    }
  };
  const auto add = [](std::vector<Coordinate>& list, Coordinate one) {
    if (std::find(list.begin(), list.end(), one) == list.end()) list.push_back(one);
  };
  each([&](const WeightRecord& weight) {
    for (std::size_t k = 0; k < weight.outer_count; ++k)
      add(c.pool[weight.outer[k]].kind == Kind::Reduce ? met : others, weight.outer[k]);
  });
  each([&](const WeightRecord& weight) {
    for (std::size_t k = 0; k < weight.inner_count; ++k) {
      const Coordinate one = weight.inner[k];
      if (!within(one) && std::find(met.begin(), met.end(), one) == met.end()) add(others, one);
    }
  });
  for (const Coordinate view : views) add_output_parts(c.pool, view, others);
  return c.sizes.mostly([&](std::size_t v) {
    double one = c.sizes.value(place, v);
    for (const Coordinate other : others) one *= c.sizes.value(c.pool[other].extent, v);
    double all = 0;
    each([&](const WeightRecord& weight) {
      double elements = 1;
      for (std::size_t k = 0; k < weight.inner_count; ++k)
        elements *= c.sizes.value(c.pool[weight.inner[k]].extent, v);
      for (std::size_t k = 0; k < weight.outer_count; ++k)
        elements *= c.sizes.value(c.pool[weight.outer[k]].extent, v);
      all += elements;
    });
    return all < one;
  });
}

// --- Unfold
// ----------------------------------------------------------------------------------------------------

/// A window that does not fit into a block never stays within one.
bool unfold_above_split(const Candidate& c) {
  if (c.node_i().kind != Kind::Split || c.i().shared != 0) return false;
  const SizeNumber inner = c.pool[c.node_i().b].extent;
  return c.sizes.fits_inside(c.j().extent, inner) && similar_everywhere(c, [&](std::size_t v) {
           return beyond(c.sizes.value(c.j().extent, v), c.sizes.value(inner, v));
         });
}
/// They differ where the last place wraps, and beside it where a window ends at the border.
bool unfold_above_shift(const Candidate& c) {
  return c.node_i().kind == Kind::Shift && c.i().shared == 0 && similar_everywhere(c, [&](std::size_t v) {
           const double window = c.sizes.value(c.j().extent, v);
           return 2 * (window - 1) / (window * c.sizes.value(c.i().extent, v));
         });
}
bool unfold_window_unshared(const Candidate& c) {
  return c.node_j().kind == Kind::Reduce && c.j().shared == 0 && !c.extension("weightless");
}
bool made_by_stride(const CoordinatePool& pool, Coordinate coordinate) {
  const CoordinateNode& node = pool[coordinate];
  return node.kind == Kind::Stride || (node.a != 0 && made_by_stride(pool, node.a)) ||
         (node.b != 0 && made_by_stride(pool, node.b));
}
/// A Stride of a sum passes for one of a window until it is taken apart, or a window slides over it.
bool merge_of_strided_sum(const Candidate& c) {
  return !c.extension("strided_inputs") && only_reduces(c.pool, c.i().coordinate) &&
         made_by_stride(c.pool, c.i().coordinate);
}
bool unfold_of_strided_sum(const Candidate& c) {
  return !c.extension("strided_inputs") && only_reduces(c.pool, c.i().coordinate) &&
         made_by_stride(c.pool, c.i().coordinate);
}
/// The window slides over sums alone. Summed over i, x[i + j] is the sum of x whatever j is; where weights
/// index the sum, they and the window's are one weight of the places that are read. It is no loss unless they
/// have fewer elements than that one.
bool unfold_of_reduces(const Candidate& c) {
  if (!only_reduces(c.pool, c.i().coordinate) || c.read_below(c.i())) return false;
  if (c.i().history == 0) return true;
  if (c.read_below(c.j())) return false;
  return !fewer_elements_than_one(c, c.i().history | c.j().history, {c.i().coordinate, c.j().coordinate},
                                  c.i().extent);
}
/// The window's place in the output says which elements of the weights meet which places: it shifts them.
bool unfold_shifts_weights(const Candidate& c) {
  return !c.extension("shifted_weights") && c.i().history != 0 && !c.read_below(c.i()) &&
         !c.read_below(c.j()) && only_reduces(c.pool, c.i().coordinate) &&
         !only_reduces(c.pool, c.j().coordinate);
}
bool unfold_even_window(const Candidate& c) {
  if (c.sizes[c.j().extent].odd || c.extension("even_windows")) return false;
  return !(c.node_j().kind == Kind::Shift || c.node_j().kind == Kind::Stride) ||
         !c.extension("dilated_windows");
}
bool unfold_large_window(const Candidate& c) { return !c.sizes.promising_window(c.j().extent, c.i().extent); }
bool unfold_window_order(const Candidate& c) {
  if (c.node_i().kind != Kind::Unfold || c.i().shared != 0) return false;
  const SizeNumber below = c.pool[c.node_i().b].extent;
  return below != c.j().extent && !at_least(c, c.j().extent, below) &&
         similar_everywhere(c, [&](std::size_t v) {
           return swapped(c.sizes.value(below, v), c.sizes.value(c.j().extent, v),
                          c.sizes.value(c.i().extent, v));
         });
}

// --- Stride and Expand
// -------------------------------------------------------------------------------------------

bool stride_above_stride(const Candidate& c) { return c.node_i().kind == Kind::Stride && !c.read(c.i()); }
bool stride_above_split(const Candidate& c) { return c.node_i().kind == Kind::Split && !c.read(c.i()); }
bool stride_large(const Candidate& c) {
  return !c.sizes.mostly(
      [&](std::size_t v) { return c.sizes.value(c.move.parameter, v) <= c.spec.thresholds.max_stride; });
}
/// A Stride of a whole dimension drops data unless a window fills its gaps; of a window, it dilates.
bool stride_without_use(const Candidate& c) {
  const bool window = only_reduces(c.pool, c.i().coordinate);
  return window ? !c.extension("dilated_windows") : !c.extension("strided_inputs");
}
bool expand_not_above_merge(const Candidate& c) {
  const Kind kind = c.node_i().kind;
  return !(kind == Kind::MergeMinor && c.extension("repeat")) &&
         !(kind == Kind::MergeMajor && c.extension("tile"));
}
bool expand_large(const Candidate& c) {
  return !c.sizes.mostly([&](std::size_t v) {
    double product = c.sizes.value(c.i().extent, v);
    for (std::size_t k = 0; k < c.state.expanded_count; ++k)
      product *= c.sizes.value(c.pool[c.state.expanded[k]].extent, v);
    return product <= c.spec.thresholds.max_repeat;
  });
}

// --- Contraction
// -------------------------------------------------------------------------------------------------

bool weight_without_shared(const Candidate& c) { return c.move.inner == 0 && c.move.source == 0; }
bool weight_without_matched(const Candidate& c) {
  return c.move.outer == 0 && c.move.source == 0 && !c.extension("depthwise");
}
bool weight_matches_adjacent(const Candidate& c) {
  if (c.move.source != 0) return false;
  for (std::size_t a = 0; a < c.state.dim_count; ++a) {
    if ((c.move.outer >> a & 1) == 0 || c.read(c.state.dims[a])) continue;
    for (std::size_t b = 0; b < c.state.dim_count; ++b) {
      if (a != b && (c.move.outer >> b & 1) != 0 && c.state.dims[a].shared == c.state.dims[b].shared &&
          adjacent(c.pool, c.state.dims[a].coordinate, c.state.dims[b].coordinate)) {
        return true;
      }
    }
  }
  return false;
}
/// Parts of one Merge matched by two weights that see nothing else of it: the new channels are an outer
/// product, of which each weight learns one factor. A weight that shared the part before the other one
/// matched it has weights of its own for every new channel.
bool weights_match_adjacent(const Candidate& c) {
  if (c.move.source != 0) return false;
  for (std::size_t a = 0; a < c.state.dim_count; ++a) {
    if ((c.move.outer >> a & 1) == 0) continue;
    const Coordinate matched = c.state.dims[a].coordinate;
    for (std::size_t w = 0; w < c.state.weight_count; ++w) {
      const WeightRecord& weight = c.state.weights[w];
      if ((c.state.dims[a].shared >> w & 1) != 0) continue;
      for (std::size_t k = 0; k < weight.outer_count && weight.source == 0; ++k) {
        if (adjacent(c.pool, matched, weight.outer[k]) || adjacent(c.pool, weight.outer[k], matched))
          return true;
      }
    }
  }
  return false;
}
/// Two weights that meet in a sum: for each point of what both index, a product of two matrices.
struct Product {
  double rank = 1;    ///< the sum's points
  double before = 1;  ///< rows: what only the first weight indexes
  double beyond = 1;  ///< columns: what only the second one indexes
  double both = 1;
};
/// `holds(products at each valuation)` for one of the weights that the new one meets in Reduces of no one
/// else.
template <class Holds>
bool any_product(const Candidate& c, Holds&& holds) {
  if (c.move.source != 0) return false;
  for (std::size_t w = 0; w < c.state.weight_count; ++w) {
    const WeightRecord& first = c.state.weights[w];
    if (first.source != 0) continue;
    const auto summed = [&](std::size_t k) {
      const FrontierDim& dim = c.state.dims[k];
      return (c.move.outer >> k & 1) != 0 && dim.shared == 1U << w &&
             c.pool[dim.coordinate].kind == Kind::Reduce;
    };
    bool meet = false;
    for (std::size_t k = 0; k < c.state.dim_count; ++k) meet = meet || summed(k);
    if (!meet) continue;
    const auto product_at = [&](std::size_t v) {
      Product product;
      for (std::size_t k = 0; k < c.state.dim_count; ++k) {
        const FrontierDim& dim = c.state.dims[k];
        if (((c.move.inner | c.move.outer) >> k & 1) == 0) continue;
        double& side = summed(k) ? product.rank : (dim.shared >> w & 1) != 0 ? product.both : product.beyond;
        side *= c.sizes.value(dim.extent, v);
      }
      for (std::size_t k = 0; k < first.inner_count; ++k)
        product.before *= c.sizes.value(c.pool[first.inner[k]].extent, v);
      for (std::size_t k = 0; k < first.outer_count; ++k)
        product.before *= c.sizes.value(c.pool[first.outer[k]].extent, v);
      product.before /= product.rank * product.both;
      return product;
    };
    if (holds(product_at)) return true;
  }
  return false;
}
/// Two weights that meet in a sum are a product of matrices; where the sum is no shorter than either side,
/// that is any matrix.
bool weights_without_bottleneck(const Candidate& c) {
  return any_product(c, [&](const auto& product_at) {
    for (std::size_t v = 0; v < c.sizes.valuation_count(); ++v) {
      const Product p = product_at(v);
      if (p.rank < std::min(p.before, p.beyond)) return false;
    }
    return true;
  });
}
bool weights_larger_than_product(const Candidate& c) {
  return any_product(c, [&](const auto& product_at) {
    return !c.sizes.mostly([&](std::size_t v) {
      const Product p = product_at(v);
      return p.rank * (p.before + p.beyond) < p.before * p.beyond;
    });
  });
}
/// The Reduces that a coordinate is made of, each once.
void add_reduces(const CoordinatePool& pool, Coordinate coordinate, std::vector<Coordinate>& reduces) {
  const CoordinateNode& node = pool[coordinate];
  if (node.kind == Kind::Reduce && std::find(reduces.begin(), reduces.end(), coordinate) == reduces.end())
    reduces.push_back(coordinate);
  if (node.a != 0) add_reduces(pool, node.a, reduces);
  if (node.b != 0) add_reduces(pool, node.b, reduces);
}
/// What passes from the new weight to one below it is all that the one below sums: the Reduces that they meet
/// in, windows and groups besides.
bool weight_only_scales(const Candidate& c) {
  if (c.move.source != 0) return false;
  std::vector<Coordinate> reduces;
  for (std::size_t w = 0; w < c.state.weight_count; ++w) {
    const WeightRecord& below = c.state.weights[w];
    bool meet = false;
    for (std::size_t k = 0; k < c.state.dim_count && below.source == 0; ++k) {
      const FrontierDim& dim = c.state.dims[k];
      meet = meet || ((c.move.outer >> k & 1) != 0 && (dim.shared >> w & 1) != 0 &&
                      c.pool[dim.coordinate].kind == Kind::Reduce);
    }
    if (!meet) continue;
    reduces.clear();
    for (std::size_t k = 0; k < below.inner_count; ++k) add_reduces(c.pool, below.inner[k], reduces);
    if (std::all_of(reduces.begin(), reduces.end(),
                    [&](Coordinate one) { return greatest(c, c.pool[one].extent) < 2; }))
      return true;
  }
  return false;
}
/// Coordinates below Strides leave some places of their extents untaken, at every layer.
bool leave_gaps(const CoordinatePool& pool, const SizePool& sizes,
                const std::vector<const FrontierDim*>& dims) {
  std::vector<Coordinate> strided;
  for (const FrontierDim* dim : dims) {
    if (dim->gaps) return true;
    if (dim->discards) strided.push_back(dim->coordinate);
  }
  if (strided.empty()) return false;
  for (std::size_t v = 0; v < sizes.valuation_count(); ++v) {
    if (take_every_place(pool, sizes, strided, v)) return false;
  }
  return true;
}
/// A further input drops the data at gaps that it matches as well.
bool weight_shares_gaps(const Candidate& c) {
  const int indexes = c.move.source == 0 ? c.move.inner : c.move.inner | c.move.outer;
  std::vector<const FrontierDim*> dims;
  for (std::size_t a = 0; a < c.state.dim_count; ++a) {
    if ((indexes >> a & 1) != 0 && c.state.dims[a].discards) dims.push_back(&c.state.dims[a]);
  }
  return leave_gaps(c.pool, c.sizes, dims);
}

// --- Finished operators
// --------------------------------------------------------------------------------------------

bool pools_too_much(const Finished& f) {
  Pooled pooled;
  for (const std::uint8_t position : f.position)
    pooled.add(f.state, f.pool, f.state.dims[position].coordinate);
  for (std::size_t w = 0; w < f.state.weight_count && f.state.data != 0; ++w) {
    const WeightRecord& input = f.state.weights[w];
    for (std::size_t k = 0; k < input.outer_count && input.source != 0; ++k)
      pooled.add(f.state, f.pool, input.outer[k]);
  }
  return !f.sizes.mostly(
      [&](std::size_t v) { return pooled.product(f.sizes, v) <= f.spec.budgets.max_pooling; });
}
bool discards_data(const Finished& f) {
  std::vector<const FrontierDim*> dims;
  for (const std::uint8_t position : f.position) dims.push_back(&f.state.dims[position]);
  return leave_gaps(f.pool, f.sizes, dims);
}
bool has_no_weight(const Finished& f) {
  return f.state.weight_count == 0 && !f.spec.extensions.contains("weightless");
}

bool shifts_unordered(const Finished& f, Coordinate coordinate) {
  const CoordinateNode& node = f.pool[coordinate];
  if (node.kind == Kind::Shift) return true;
  if (node.kind == Kind::Split) return shifts_unordered(f, node.a) || shifts_unordered(f, node.b);
  return false;
}
bool splits_out_of_order(const Finished& f, Coordinate coordinate) {
  const CoordinateNode& node = f.pool[coordinate];
  if (node.kind != Kind::Split) return false;
  const SizeNumber left = f.pool[node.a].extent;
  const SizeNumber right = f.pool[first_part(f.pool, node.b)].extent;
  return f.sizes.lexicographic_less(right, left) || splits_out_of_order(f, node.b) ||
         splits_out_of_order(f, node.a);
}
template <class Test>
bool any_unordered_input(const Finished& f, Test&& test) {
  for (std::size_t k = 0; k < f.position.size(); ++k) {
    const FrontierDim& dim = f.state.dims[f.position[k]];
    const bool read_below = (dim.history & f.state.data) != 0;
    if (f.spec.signature.input[f.input_dim[k]].unordered && !read_below && test(dim.coordinate)) return true;
  }
  return false;
}
bool input_unordered_shift(const Finished& f) {
  return any_unordered_input(f, [&](Coordinate c) { return shifts_unordered(f, c); });
}
bool input_unordered_split(const Finished& f) {
  return any_unordered_input(f, [&](Coordinate c) { return splits_out_of_order(f, c); });
}

constexpr auto kRules = [] {
  using enum RuleClass;
  return std::array{
      Rule{"shift-above-reduce", Exact, P::Shift, "a sum over all i is the sum over all (i + a) % N",
           shift_above_reduce, nullptr},
      Rule{"shift-above-share", Exact, P::Shift, "shift first, share after: the weight is rotated offline",
           shift_above_share, nullptr},
      Rule{"shift-above-shift", Exact, P::Shift, "two Shifts are one Shift by the sum", shift_above_shift,
           nullptr},
      Rule{"shift-unordered", Exact, P::Shift, "a Shift of channels permutes them", shift_unordered, nullptr},
      Rule{"shift-above-split", Similar, P::Shift,
           "(B*i + j + a) % (G*B) is B*i + (j + a) % B but for a/B of the points", shift_above_split,
           nullptr},
      Rule{"merge-above-reduce", Exact, P::Merge, "a sum over G*B is a sum over G and one over B",
           merge_above_reduce, nullptr},
      Rule{"merge-above-share", Exact, P::Merge,
           "merge first, share both parts: the weight is reshaped offline", merge_above_share, nullptr},
      Rule{"merge-above-split", Exact, P::Merge,
           "(C*i + j) / (B*C) is i / B, and (C*i + j) % (B*C) is C*(i % B) + j", merge_above_split, nullptr},
      Rule{"merge-above-uneven-split", Limit, P::Merge,
           "blocks of which neither is, as a formula, the other times a whole size group places across the "
           "Split's blocks (extension uneven_blocks)",
           merge_above_uneven_split, nullptr},
      Rule{"merge-left-chain", Exact, P::Merge,
           "chains of Merges grow to the right: (i / B) / C is i / (B*C)", merge_left_chain, nullptr},
      Rule{"merge-above-shift", Similar, P::Merge, "(i + a) / B is i / B but for a/B of the points",
           merge_above_shift, nullptr},
      Rule{"merge-above-unfold", Similar, P::Merge,
           "(i + j - K/2) / B is i / B where B is not less than K, but near the blocks' borders (Fig. 4c)",
           merge_above_unfold, nullptr},
      Rule{"merge-within-window", Similar, P::Merge,
           "a window of A*B taps, in blocks of B, is one of A over the blocks and one of B within them, but "
           "near the "
           "blocks' borders",
           merge_within_window, nullptr},
      Rule{"merge-above-stride", Exact, P::Merge, "(S*i) / (S*B) is i / B, and (S*i) % (S*B) is S*(i % B)",
           merge_above_stride, nullptr},
      Rule{"merge-of-strided-sum", Limit, P::Merge, "parts of a sum with gaps (extension strided_inputs)",
           merge_of_strided_sum, nullptr},
      Rule{"merge-unordered-order", Exact, P::Merge,
           "channels may be permuted: of [G, B] and [B, G] the larger part goes right", merge_unordered_order,
           nullptr},
      Rule{"merge-unordered-chain", Exact, P::Merge, "channels may be permuted: the parts of a chain ascend",
           merge_unordered_chain, nullptr},
      Rule{"split-left-chain", Exact, P::Split,
           "chains of Splits grow to the right: C*(B*i + j) + k is B*C*i + (C*j + k)", split_left_chain,
           nullptr},
      Rule{"split-undoes-merge", Exact, P::Split, "B*(i / B) + i % B is i", split_undoes_merge, nullptr},
      Rule{"split-of-reduces", Exact, P::Split, "two sums joined are one sum over the product",
           split_of_reduces, nullptr},
      Rule{"split-of-one-weight", Exact, P::Split,
           "split first, share the result: the weight is reshaped offline", split_of_one_weight, nullptr},
      Rule{"split-unordered-parts", Exact, P::Split,
           "parts of one channel dimension rejoined: the channels are permuted", split_unordered_parts,
           nullptr},
      Rule{"unfold-above-split", Similar, P::Unfold,
           "windows over B*i + j that fit into a block stay within it but near its borders",
           unfold_above_split, nullptr},
      Rule{"unfold-above-shift", Similar, P::Unfold, "unfold first, shift after: they differ at the border",
           unfold_above_shift, nullptr},
      Rule{"unfold-window-unshared", Futile, P::Unfold, "a window summed without a weight only blurs",
           unfold_window_unshared, nullptr},
      Rule{"unfold-of-strided-sum", Limit, P::Unfold,
           "a window over a sum with gaps (extension strided_inputs)", unfold_of_strided_sum, nullptr},
      Rule{"unfold-of-reduces", Futile, P::Unfold,
           "a window over a sum only changes a multiplier where no weight indexes the sum; where weights do, "
           "they are, with as many elements, one weight over the sum",
           unfold_of_reduces, nullptr},
      Rule{"unfold-shifts-weights", Limit, P::Unfold,
           "a window that the output indexes, over a sum that weights index, shifts the weights (extension "
           "shifted_weights)",
           unfold_shifts_weights, nullptr},
      Rule{"unfold-even-window", Limit, P::Unfold, "an even window has no centre (extension even_windows)",
           unfold_even_window, nullptr},
      Rule{
          "unfold-large-window", Limit, P::Unfold,
          "a window of more taps than max_window, or than its dimension has places over unfold_ratio, mostly",
          unfold_large_window, nullptr},
      Rule{"unfold-window-order", Similar, P::Unfold,
           "nested windows commute but at the border: they grow towards the input", unfold_window_order,
           nullptr},
      Rule{"stride-above-stride", Exact, P::Stride, "two Strides are one Stride by the product",
           stride_above_stride, nullptr},
      Rule{"stride-above-split", Exact, P::Stride, "S*(B*i + j) is S*B*i + S*j: stride the parts",
           stride_above_split, nullptr},
      Rule{"stride-large", Limit, P::Stride, "gaps of more than max_stride places, mostly", stride_large,
           nullptr},
      Rule{"stride-without-use", Limit, P::Stride,
           "a Stride of a dimension (extension strided_inputs) or of a window (extension dilated_windows)",
           stride_without_use, nullptr},
      Rule{
          "expand-not-above-merge", Futile, P::Expand,
          "repeating a whole dimension discards where the output stands, and what a weight shares is matched "
          "instead; parts of a Merge repeat by the extensions repeat and tile",
          expand_not_above_merge, nullptr},
      Rule{"expand-large", Limit, P::Expand, "repeating more often than max_repeat, mostly", expand_large,
           nullptr},
      Rule{"weight-without-shared", Futile, P::Contraction,
           "a weight that shares nothing with the data only scales", weight_without_shared, nullptr},
      Rule{"weight-without-matched", Limit, P::Contraction,
           "a weight that matches nothing makes no new coordinate (extension depthwise)",
           weight_without_matched, nullptr},
      Rule{"weight-matches-adjacent", Exact, P::Contraction,
           "match the dimension before it is merged: the weight is reshaped offline", weight_matches_adjacent,
           nullptr},
      Rule{"weights-match-adjacent", Futile, P::Contraction,
           "parts of one Merge matched by two weights, neither of which sees both, are an outer product of "
           "which each learns one factor",
           weights_match_adjacent, nullptr},
      Rule{"weights-without-bottleneck", Exact, P::Contraction,
           "two weights that meet in a sum no shorter than a side of their product are any one weight",
           weights_without_bottleneck, nullptr},
      Rule{"weights-larger-than-product", Futile, P::Contraction,
           "two weights that meet in a sum are, with as many elements as their product, less than it as one "
           "weight",
           weights_larger_than_product, nullptr},
      Rule{"weight-only-scales", Futile, P::Contraction,
           "a weight that sums one value of another only scales it", weight_only_scales, nullptr},
      Rule{"weight-shares-gaps", Futile, P::Contraction,
           "elements of a weight or a further input at a Stride's gaps are never used", weight_shares_gaps,
           nullptr},
      Rule{"pools-too-much", Limit, P::Reduce,
           "sums that meet no weight average more than max_pooling places away, mostly", nullptr,
           pools_too_much},
      Rule{"discards-data", Futile, P::Reduce, "a Stride's gaps are never filled", nullptr, discards_data},
      Rule{"has-no-weight", Futile, P::Reduce,
           "nothing can be learnt without a weight (extension weightless)", nullptr, has_no_weight},
      Rule{"input-unordered-shift", Exact, P::Reduce, "a Shift of input channels permutes them", nullptr,
           input_unordered_shift},
      Rule{"input-unordered-split", Exact, P::Reduce,
           "input channels may be permuted: of B*i + j and G*j + i the larger part goes right", nullptr,
           input_unordered_split},
  };
}();

}  // namespace

std::string_view name_of(RuleClass kind) {
  constexpr std::array<std::string_view, 4> kNames = {"exact", "similar", "futile", "limit"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::span<const Rule> rules() { return kRules; }

}  // namespace syno::synth
