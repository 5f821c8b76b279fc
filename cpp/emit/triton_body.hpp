// emit/triton_body.hpp — what a scope computes on a tile, as statements of Triton.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "emit/triton_index.hpp"
#include "emit/triton_scope.hpp"

namespace syno::emit {

/// Which lanes of each axis stand for something; empty where all do.
using LaneMasks = std::array<std::string, 3>;

class TileBody {
 public:
  TileBody(TritonContext& context, TileIndices& indices, LaneMasks masks)
      : context_(context), program_(*context.program), indices_(indices), masks_(std::move(masks)) {}

  /// How many neighbouring lanes of an axis read neighbouring elements; may be empty.
  std::function<int(const program::Scalar& read, Axis axis)> side_by_side;

  /// The value of a scalar on a tile, in the dtype that is computed in.
  TileText value(program::ScalarId root, const Frame& frame);
  /// What a read loads, in the dtype of the tensor's memory; 0 on lanes of `depth` that stand for nothing.
  TileText loaded(const program::Scalar& read, const Frame& frame);
  /// A place with what the compiler cannot see: along which of two axes it lies side by side, so that
  /// neighbouring lanes go along that.
  std::string hinted(const program::Scalar& read, const std::string& place, unsigned axes,
                     const Frame& frame) const;
  /// The conditions and the masks of `axes`, in one; empty where all lanes count.
  TileText mask(std::vector<TileText> conditions, unsigned axes, const Frame& frame);
  std::string number(Rational value) const;
  std::string literal(Rational value) const;
  /// A quotient, correctly rounded.
  std::string quotient(const std::string& a, const std::string& b) const;

 private:
  using Known = std::map<program::ScalarId, TileText>;
  std::string unary(program::Function function, const std::string& a);
  std::string binary(const program::Scalar& scalar, const Known& known, const Known& integers);
  std::string power(const std::string& a, const program::Scalar& exponent);
  std::string helper(const char* name, const std::string& arguments);

  TritonContext& context_;
  const program::Program& program_;
  TileIndices& indices_;
  LaneMasks masks_;
};

}  // namespace syno::emit
