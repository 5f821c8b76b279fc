#include "derive/roughness.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "derive/tools.hpp"
#include "support/error.hpp"

namespace syno::derive {

namespace {

double square_sum(const std::vector<Rational>& row) {
  double sum = 0;
  for (const Rational& value : row) sum += value.to_double() * value.to_double();
  return sum;
}

/// A matrix that results are taken out of products with.
struct Known {
  std::vector<std::int64_t> shape;
  std::vector<Rational> values;
  double growth = 1;
};

Known of_tile(std::int64_t m, std::int64_t n, PointSet set) {
  const ToomCook made = toom_cook_matrices(m, n, set);
  return {{m, m + n - 1}, values_of(made.output), growth(made.output, made.weights, made.input, n)};
}

std::vector<Known> all_known() {
  std::vector<Known> known;
  for (std::int64_t m = 2; m < kMostPoints; ++m)
    for (std::int64_t n = 2; m + n - 1 <= kMostPoints; ++n)
      for (const PointSet set : {PointSet::Balanced, PointSet::Integers}) known.push_back(of_tile(m, n, set));
  const Strassen made = strassen_matrices();
  known.push_back({{2, 2, 7}, values_of(made.result), growth(made.result, made.left, made.right, 2)});
  return known;
}

const std::vector<Known>& known_matrices() {
  static const std::vector<Known> known = all_known();
  return known;
}

double growth_of(const Program& program, TensorId constant) {
  const Tensor& tensor = program.tensor(constant);
  for (const Known& each : known_matrices())
    if (tensor.literal == each.values && program::shape_of(program, constant) == each.shape)
      return each.growth;
  return 1;
}

/// Of a value: what matrices multiply it with, and the roughness of what they multiply; none of what
/// constants alone are made into, as where they are laid out otherwise.
struct Rough {
  double growth = 1;
  std::optional<double> inside = {};
  double total() const { return growth * inside.value_or(1); }
};

class Roughness {
 public:
  explicit Roughness(const Program& program) : program_(program), of_(program.tensors.size()) {
    for (std::size_t t = 0; t < of_.size(); ++t) {
      const program::Role role = program.tensors[t].role;
      if (role == program::Role::Constant) of_[t] = Rough{growth_of(program, static_cast<TensorId>(t)), {}};
      if (role == program::Role::Input || role == program::Role::Weight) of_[t] = Rough{1, 1};
    }
  }

  double operator()() {
    for (const Scope& scope : program_.scopes) {
      Rough& made = of_[static_cast<std::size_t>(scope.output)];
      const Rough part = of(scope.body);
      if (part.inside)
        made = {1, std::max(made.inside.value_or(1), part.total())};
      else
        made.growth = std::max(made.growth, part.growth);
    }
    double worst = 1;
    for (const TensorId output : program_.outputs)
      worst = std::max(worst, of_[static_cast<std::size_t>(output)].total());
    return worst;
  }

 private:
  Rough of(ScalarId id) const {
    const Scalar& scalar = program_.scalar(id);
    if (scalar.kind == ScalarKind::Read) return of_[static_cast<std::size_t>(scalar.tensor)];
    const bool product = scalar.kind == ScalarKind::Binary && scalar.function == Function::Multiply;
    Rough made;
    program::over_operands(scalar, [&](ScalarId operand) {
      const Rough part = of(operand);
      if (product) made.growth *= part.growth;
      if (!product && !part.inside) made.growth = std::max(made.growth, part.growth);
      if (part.inside) made.inside = std::max(made.inside.value_or(1), product ? *part.inside : part.total());
    });
    if (!product && made.inside) made = {1, std::max(*made.inside, made.growth)};
    return made;
  }

  const Program& program_;
  std::vector<Rough> of_;  // by tensor
};

}  // namespace

double growth(const Matrix& c, const Matrix& a, const Matrix& b, std::int64_t terms) {
  double worst = 0;
  for (const auto& row : c) {
    double sum = 0;
    for (std::size_t p = 0; p < row.size(); ++p)
      sum += square_sum({row[p]}) * square_sum(a[p]) * square_sum(b[p]);
    worst = std::max(worst, sum);
  }
  return std::sqrt(worst / static_cast<double>(terms));
}

double toom_cook_growth(const Site& site) {
  const std::int64_t m = site.numbers[0], n = site.numbers[1];
  for (const Known& each : known_matrices())  // balanced points come first
    if (each.shape[0] == m && each.shape[1] == m + n - 1) return each.growth;
  SYNO_ASSERT(false, "there are points for each site");
}

double strassen_growth(const Site&) { return known_matrices().back().growth; }

double roughness(const Program& program) { return Roughness(program)(); }

}  // namespace syno::derive
