// emit/torch_convolution.hpp — a product of two reads as one of PyTorch's convolutions, where it is one.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "emit/torch_view.hpp"

namespace syno::emit {

/// The scope that is to be a convolution: its iterators, from 0 on each.
struct ConvolutionScope {
  Indices& indices;
  const std::vector<Slot>& traversal;
  const std::vector<Slot>& sums;
  std::function<std::string(const std::vector<Slot>&)> extents_text;
};

/// Python text with one dimension for each iterator of `present`, in the order of the traversal.
struct ConvolutionText {
  std::string text;
  std::vector<Slot> present;
};

/// The scope as F.conv1d, 2d or 3d: the data has windows h*s + r*d + c in which r indexes the weight. Where r
/// is summed it is a tap of the kernel, of a flipped one where d is negative, as in gradients of
/// convolutions. Where r stays in the result (Operator 1's first stage), the sum over channels does not need
/// the window: it is taken at every place first, and each r then looks r*d further. Nothing where it is no
/// convolution.
std::optional<ConvolutionText> torch_convolution(const ConvolutionScope& scope, TorchView data,
                                                 TorchView weight);

}  // namespace syno::emit
