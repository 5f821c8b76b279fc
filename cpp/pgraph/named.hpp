// pgraph/named.hpp — operators people know, as sequences of primitives for any signature that fits (Syno
// Table 2, Figs. 3, 8).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "pgraph/pgraph.hpp"

namespace syno::pgraph {

/// Sizes a named operator takes beside its signature's; those it does not use are ignored. Each is a size
/// over the signature's variables (`k`) or a number.
struct NamedParameters {
  Size kernel = Size(3);  ///< window of spatial dimensions; odd at every valuation; 1: no windows
  /// Which of the spatial dimensions have one, as bits; the others are passed through.
  std::uint32_t windowed = ~std::uint32_t{0};
  Size groups = Size(2);    ///< divides both channel counts
  Size dilation = Size(2);  ///< the same value at every valuation
  Size shrink = Size(2);    ///< of the two-stage operators: the factor s by which the middle channels shrink
  Size block = Size(2);     ///< pixel_shuffle: the block B
};

/// What the dimensions of a signature are for: fixed pairs are batch, the unordered ones channels, the others
/// spatial, matched in order. A spatial input that is S times its output means stride S; an output that is E
/// times its input is enlarged, as by a transposed convolution.
struct Roles {
  struct Spatial {
    std::size_t output = 0;
    std::size_t input = 0;
    Size stride;
    Size enlarged;
  };
  std::size_t channel_out = 0;
  std::size_t channel_in = 0;
  std::vector<Spatial> spatial;
};
Roles roles_of(const Signature& signature);  ///< SpecError, saying which dimensions do not fit

struct NamedOperator {
  std::string_view name;
  std::string_view description;
  CompleteGraph (*build)(const Signature& signature, const NamedParameters& parameters);
};

/// matmul, conv, conv1x1, grouped_conv, dilated_conv, depthwise_conv, separable_conv, average_pool,
/// pixel_shuffle, bottleneck_conv, operator1, operator2, stacked_conv; of several data inputs: scores,
/// pooled_scores. `conv` is conv2d where the signature has two spatial dimensions.
std::span<const NamedOperator> named_operators();
const NamedOperator& named_operator(std::string_view name);  ///< UnknownName

}  // namespace syno::pgraph
