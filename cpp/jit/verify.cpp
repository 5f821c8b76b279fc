// A kernel against the interpreter, at the points where kernels go wrong and at random ones.
#include "program/verify.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "jit/kernel.hpp"
#include "program/interpret.hpp"
#include "support/bfloat16.hpp"
#include "support/error.hpp"
#include "support/memory.hpp"
#include "support/random.hpp"

namespace syno::jit {

namespace {

using schedule::Buffer;
using schedule::BufferKind;
using schedule::Dtype;
using schedule::LoopNest;
using Point = std::vector<std::int64_t>;

constexpr std::size_t kRandomPoints = 256;
constexpr std::size_t kLargestBreakpoints = 64;  // a dimension
constexpr double kMostTerms = 1 << 26;           // that the interpreter adds up for one output: a second
constexpr std::size_t kLeastPoints = 32;

double rounded(Dtype dtype, double value) {
  if (dtype == Dtype::F64) return value;
  if (dtype == Dtype::F32) return static_cast<double>(static_cast<float>(value));
  return static_cast<double>(from_bfloat16(to_bfloat16(static_cast<float>(value))));
}

/// An argument's memory as its strides want it.
class Memory {
 public:
  explicit Memory(const Buffer& buffer) : buffer_(buffer), size_(schedule::byte_size(buffer.dtype)) {
    std::int64_t low = 0, high = 0;
    for (std::size_t d = 0; d < buffer.extents.size(); ++d) {
      const std::int64_t reach = std::max<std::int64_t>(buffer.extents[d] - 1, 0) * buffer.strides[d];
      (reach < 0 ? low : high) += reach;
    }
    offset_ = -low;
    // What the kernel must not touch is not a number, and what it leaves unwritten shows.
    bytes_.assign(static_cast<std::size_t>(high - low + 1) * size_, '\xff');
  }
  void* first() { return bytes_.data() + static_cast<std::size_t>(offset_) * size_; }
  void set(const Point& at, double value) {
    char* place = address(at);
    if (buffer_.dtype == Dtype::F64) {
      std::memcpy(place, &value, sizeof value);
    } else {
      const auto narrow = static_cast<float>(value);
      const std::uint16_t half = to_bfloat16(narrow);
      if (buffer_.dtype == Dtype::F32)
        std::memcpy(place, &narrow, sizeof narrow);
      else
        std::memcpy(place, &half, sizeof half);
    }
  }
  double get(const Point& at) {
    const char* place = address(at);
    if (buffer_.dtype == Dtype::F64) {
      double value = 0;
      std::memcpy(&value, place, sizeof value);
      return value;
    }
    if (buffer_.dtype == Dtype::F32) {
      float value = 0;
      std::memcpy(&value, place, sizeof value);
      return static_cast<double>(value);
    }
    std::uint16_t half = 0;
    std::memcpy(&half, place, sizeof half);
    return static_cast<double>(from_bfloat16(half));
  }

 private:
  char* address(const Point& at) {
    std::int64_t index = offset_;
    for (std::size_t d = 0; d < at.size(); ++d) index += at[d] * buffer_.strides[d];
    return bytes_.data() + static_cast<std::size_t>(index) * size_;
  }
  const Buffer& buffer_;
  std::size_t size_;
  std::int64_t offset_ = 0;
  std::string bytes_;
};

/// Calls visit(point) for every point of a shape, last index fastest.
template <class Visit>
void for_each_point(const std::vector<std::int64_t>& shape, const Visit& visit) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  Point at(shape.size(), 0);
  for (;;) {
    visit(at);
    std::size_t d = shape.size();
    for (; d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
    if (d == static_cast<std::size_t>(-1)) return;
  }
}

/// Where code changes along a dimension: its ends, the tails of loops split by any extent of the nest, and
/// the bounds of conditions.
std::vector<std::int64_t> breakpoints(const LoopNest& nest, std::int64_t extent) {
  std::set<std::int64_t> found;
  const auto around = [&](std::int64_t at) {
    for (const std::int64_t index : {at - 1, at})
      if (index >= 0 && index < extent) found.insert(index);
  };
  for (const std::int64_t near : {0, 1, 2, 3, 4}) {
    around(near);
    around(extent - near);
  }
  std::set<std::int64_t> tiles, bounds;
  for (const schedule::Statement& statement : nest.statements) {
    if (statement.kind == schedule::StatementKind::For) {
      const symbolic::Expr& begin = nest.arena[statement.begin];
      const symbolic::Expr& end = nest.arena[statement.end];
      if (begin.op == symbolic::Op::Constant && end.op == symbolic::Op::Constant)
        tiles.insert(end.value - begin.value);
    }
    for (const schedule::Condition& condition : statement.conditions)
      bounds.insert({condition.begin, condition.end});
  }
  for (const schedule::Value& value : nest.values)
    for (const schedule::Condition& condition : value.guards) bounds.insert({condition.begin, condition.end});
  // Products of tile sizes are tile sizes too: splits nest.
  const std::set<std::int64_t> single = tiles;
  for (const std::int64_t a : single)
    for (const std::int64_t b : single)
      if (a > 1 && b > 1 && a < extent && b <= extent / a) tiles.insert(a * b);
  for (const std::int64_t tile : tiles) {
    if (tile < 2 || tile >= extent) continue;
    around(tile);
    around(extent / tile * tile);
  }
  for (const std::int64_t bound : bounds) {
    around(bound);
    around(extent - bound);
  }
  std::vector<std::int64_t> all(found.begin(), found.end());
  if (all.size() > kLargestBreakpoints) {
    std::vector<std::int64_t> fewer;
    for (std::size_t i = 0; i < kLargestBreakpoints; ++i)
      fewer.push_back(all[i * (all.size() - 1) / (kLargestBreakpoints - 1)]);
    all = fewer;
  }
  return all;
}

std::vector<Point> points_of(const LoopNest& nest, const std::vector<std::int64_t>& shape, Random& random) {
  std::set<Point> points;
  const std::size_t rank = shape.size();
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return {};
  const auto any = [&](std::size_t d) {
    return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(shape[d])));
  };
  const std::size_t corners = std::size_t{1} << std::min<std::size_t>(rank, 10);
  for (std::size_t corner = 0; corner < corners; ++corner) {
    Point at(rank);
    for (std::size_t d = 0; d < rank; ++d)
      at[d] = (corner >> std::min<std::size_t>(d, 63)) & 1 ? shape[d] - 1 : 0;
    points.insert(at);
  }
  std::map<std::int64_t, std::vector<std::int64_t>> known;
  for (std::size_t d = 0; d < rank; ++d) {
    if (!known.count(shape[d])) known[shape[d]] = breakpoints(nest, shape[d]);
    for (const std::int64_t index : known[shape[d]]) {
      // Once among random others, once among others that are breakpoints themselves.
      for (const bool others_break : {false, true}) {
        Point at(rank);
        for (std::size_t e = 0; e < rank; ++e) {
          at[e] = any(e);
          if (!others_break) continue;
          if (!known.count(shape[e])) known[shape[e]] = breakpoints(nest, shape[e]);
          const auto& choices = known[shape[e]];
          at[e] = choices[random.below(choices.size())];
        }
        at[d] = index;
        points.insert(at);
      }
    }
  }
  std::int64_t total = 1;
  for (const std::int64_t extent : shape) total = std::min<std::int64_t>(total * extent, 1 << 20);
  if (total <= static_cast<std::int64_t>(2 * kRandomPoints)) {
    for_each_point(shape, [&](const Point& at) { points.insert(at); });
  } else {
    for (std::size_t i = 0; i < kRandomPoints; ++i) {
      Point at(rank);
      for (std::size_t d = 0; d < rank; ++d) at[d] = any(d);
      points.insert(at);
    }
  }
  return {points.begin(), points.end()};
}

/// Fewer points, the first and the last among them, where each is a sum of very many terms. `elements`: of
/// the output; each of them has its part of the program's multiply-adds at most.
void keep_affordable(std::vector<Point>& points, double multiply_adds, std::int64_t elements) {
  const double each = std::max(1.0, multiply_adds / static_cast<double>(elements));
  const auto kept = std::max(kLeastPoints, static_cast<std::size_t>(kMostTerms / each));
  if (points.size() <= kept) return;
  std::vector<Point> fewer;
  for (std::size_t i = 0; i < kept; ++i) fewer.push_back(points[i * (points.size() - 1) / (kept - 1)]);
  points = std::move(fewer);
}

/// Sums, differences and products only: the error of every element is bounded by its own terms.
bool linear(const program::Program& program) {
  using program::Function;
  using program::Reduction;
  for (const program::Scope& scope : program.scopes)
    if (scope.reduction == Reduction::Max || scope.reduction == Reduction::Min ||
        scope.reduction == Reduction::Product)
      return false;
  return std::all_of(program.scalars.begin(), program.scalars.end(), [](const program::Scalar& scalar) {
    switch (scalar.kind) {
      case program::ScalarKind::Literal:
      case program::ScalarKind::Read:
      case program::ScalarKind::Index:
        return true;
      case program::ScalarKind::Select:
        return false;
      case program::ScalarKind::Unary:
        return scalar.function == Function::Negate;
      case program::ScalarKind::Binary:
        return scalar.function == Function::Add || scalar.function == Function::Subtract ||
               scalar.function == Function::Multiply;
    }
    return false;
  });
}

Dtype loosest(const LoopNest& nest) {
  Dtype found = Dtype::F64;
  for (const Buffer& buffer : nest.buffers) {
    if (buffer.dtype == Dtype::BF16) return Dtype::BF16;
    if (buffer.dtype == Dtype::F32) found = Dtype::F32;
  }
  return found;
}

/// A kernel's arguments by name: inputs, then outputs, of the program.
using Arguments = std::map<std::string, void*>;

Verification verify_run(const LoopNest& nest, const std::vector<Buffer>& arguments,
                        const std::function<void(const Arguments&)>& run, const program::Program& program,
                        std::uint64_t seed) {
  const std::string where = "verify " + nest.name;
  const auto inputs = program.inputs();
  if (arguments.size() != inputs.size() + program.outputs.size())
    fail<KernelError>(where, "the kernel has {} arguments, the program {} inputs and {} outputs",
                      arguments.size(), inputs.size(), program.outputs.size());
  // Twice: the kernel's memory, and the interpreter's values of the inputs.
  for (const Buffer& buffer : arguments)
    require_memory(where, fmt::format("`{}` of shape [{}]", buffer.name, fmt::join(buffer.extents, ", ")),
                   program::checked_product(where, buffer.extents),
                   static_cast<std::int64_t>(schedule::byte_size(buffer.dtype) +
                                             (buffer.kind == BufferKind::Input ? sizeof(double) : 0)));
  Random random(seed);
  std::vector<Memory> memory;
  std::map<std::string, program::Values<double>> values;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Buffer& buffer = arguments[i];
    const bool input = i < inputs.size();
    const program::TensorId tensor = input ? inputs[i] : program.outputs[i - inputs.size()];
    const auto shape = program::shape_of(program, tensor);
    if (shape != buffer.extents || (buffer.kind == BufferKind::Input) != input)
      fail<KernelError>(where, "argument {} of the kernel, `{}`, has shape [{}]; the program's `{}` has [{}]",
                        i, buffer.name, fmt::join(buffer.extents, ", "), program.tensor(tensor).name,
                        fmt::join(shape, ", "));
    memory.emplace_back(buffer);
    if (!input) continue;
    Random stream = random.fork(i);
    program::Values<double> made{shape, {}};
    for_each_point(shape, [&](const Point& at) {
      const double value = rounded(buffer.dtype, 2 * stream.unit() - 1);
      made.data.push_back(value);
      memory.back().set(at, value);
    });
    values[program.tensor(tensor).name] = std::move(made);
  }
  Arguments pointers;
  for (std::size_t i = 0; i < arguments.size(); ++i) pointers[arguments[i].name] = memory[i].first();
  run(pointers);

  Verification result;
  const bool by_terms = linear(program);
  switch (loosest(nest)) {
    case Dtype::F32:
      result.limit = by_terms ? 1e-5 : 1e-4;
      break;
    case Dtype::F64:
      result.limit = by_terms ? 1e-12 : 1e-10;
      break;
    case Dtype::BF16:
      result.limit = 0x1p-8;  // an output is rounded once, by at most half of this
      break;
  }
  const auto multiply_adds = static_cast<double>(program::cost(program, 0).flops);
  for (std::size_t o = 0; o < program.outputs.size(); ++o) {
    const program::TensorId tensor = program.outputs[o];
    const std::string& name = program.tensor(tensor).name;
    const auto shape = program::shape_of(program, tensor);
    Random stream = random.fork(name);
    std::vector<Point> points = points_of(nest, shape, stream);
    if (points.empty()) continue;
    std::int64_t elements = 1;
    for (const std::int64_t extent : shape) elements *= extent;
    keep_affordable(points, multiply_adds, elements);
    std::vector<Point> shifted = points;  // a computed tensor's indices may start elsewhere than at 0
    for (Point& at : shifted)
      for (std::size_t d = 0; d < at.size(); ++d)
        at[d] +=
            *symbolic::evaluate(program.arena, program.tensor(tensor).dims[d].begin, program.sizes, 0, {});
    const program::PointValues reference = program::interpret_points(program, values, name, shifted);
    double largest = 0;
    for (const double value : reference.values)
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < points.size(); ++i) {
      const double got = memory[inputs.size() + o].get(points[i]);
      const double wanted = reference.values[i];
      double error = 0;
      if (std::isnan(wanted) || std::isinf(wanted)) {
        const bool same = std::isnan(wanted) ? std::isnan(got) : got == wanted;
        error = same ? 0 : std::numeric_limits<double>::infinity();
      } else {
        const double scale = by_terms ? reference.absolute_terms[i] : largest;
        const double apart = std::abs(got - wanted);
        error = apart == 0 ? 0 : apart / std::max(scale, std::numeric_limits<double>::min());
        if (std::isnan(got)) error = std::numeric_limits<double>::infinity();
      }
      ++result.points;
      if (result.detail.empty() || error > result.max_rel_err) {
        result.max_rel_err = std::max(result.max_rel_err, error);
        result.detail =
            fmt::format("{}[{}] = {:.9g}, reference {:.9g}", name, fmt::join(points[i], ", "), got, wanted);
      }
    }
  }
  result.passed = result.max_rel_err <= result.limit;
  return result;
}

std::vector<Buffer> arguments_of(const LoopNest& nest) {
  std::vector<Buffer> buffers;
  for (const schedule::BufferId id : schedule::arguments(nest)) buffers.push_back(nest.buffer(id));
  return buffers;
}

void run_by_name(const Kernel& kernel, const Arguments& arguments) {
  std::vector<void*> pointers;
  for (const Buffer& buffer : arguments_of(kernel.nest())) pointers.push_back(arguments.at(buffer.name));
  kernel.call_unchecked(pointers.data(), 1);
}

}  // namespace

Verification verify(const Kernel& kernel, const program::Program& program, std::uint64_t seed) {
  const auto arguments = arguments_of(kernel.nest());
  // A program's tensors are known by their place: the nest may call them by other names.
  return verify_run(
      kernel.nest(), arguments, [&](const Arguments& at) { run_by_name(kernel, at); }, program, seed);
}

Verification verify(const Kernel& prepack, const Kernel& call, const program::Program& program,
                    std::uint64_t seed) {
  const auto before = arguments_of(prepack.nest()), during = arguments_of(call.nest());
  const auto named = [&](const std::string& name) -> Buffer {
    for (const auto* buffers : {&during, &before})
      for (const Buffer& buffer : *buffers)
        if (buffer.name == name) return buffer;
    Buffer unused;  // an input nothing reads
    unused.name = name;
    unused.extents = program::shape_of(program, *program.find_tensor(name));
    unused.strides = schedule::row_major_strides(unused.extents);
    return unused;
  };
  std::vector<Buffer> arguments;
  for (const program::TensorId id : program.inputs()) arguments.push_back(named(program.tensor(id).name));
  for (const program::TensorId id : program.outputs) arguments.push_back(named(program.tensor(id).name));
  const auto run = [&](const Arguments& given) {
    Arguments all = given;
    std::vector<Memory> packed;
    packed.reserve(before.size());
    for (const Buffer& buffer : before)
      if (buffer.kind == BufferKind::Output) all[buffer.name] = packed.emplace_back(buffer).first();
    run_by_name(prepack, all);
    run_by_name(call, all);
  };
  return verify_run(call.nest(), arguments, run, program, seed);
}

}  // namespace syno::jit
