// nest/loop_nest.hpp — loop nests: what a schedule makes of a concrete program. Explicit loops, buffers
// and register tiles; prints, parses back, interprets (the second oracle) and is what the JIT compiles.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "program/interpret.hpp"
#include "program/program.hpp"
#include "symbolic/condition.hpp"

namespace syno::nest {

using symbolic::Condition;  ///< over the loop variables
using symbolic::ExprId;

enum class Dtype : std::uint8_t { F32, F64, BF16 };
std::string_view name_of(Dtype dtype);
std::size_t byte_size(Dtype dtype);

enum class BufferId : std::uint32_t {};
inline std::uint32_t raw(BufferId id) { return static_cast<std::uint32_t>(id); }
enum class StatementId : std::uint32_t {};
enum class ValueId : std::uint32_t {};

/// Argument buffers are the caller's, in call order. Temporary: memory the kernel's runtime provides for the
/// extent of its Allocate. Register: a tile with constant extents whose indices are constant after unrolling;
/// held in SSA values, never in memory. Constant: literal values in the kernel.
enum class BufferKind : std::uint8_t { Input, Output, Constant, Temporary, Register };

struct Buffer {
  std::string name;
  Dtype dtype = Dtype::F32;
  BufferKind kind = BufferKind::Input;
  std::vector<std::int64_t> extents;
  std::vector<std::int64_t> strides;  ///< elements; may be any integers for arguments, row-major otherwise
  std::vector<double> literal;        ///< Constant only
  /// Extents at run time, over the nest's parameters; empty: they are `extents`, else those are the largest
  /// they can be. Only of arguments, which lie row-major by the extents that they have in a call.
  std::vector<ExprId> live = {};
  /// Of so many leading dimensions code does not know the stride: a call brings along an extent behind them.
  /// What specialised() leaves of `live`, for predictions.
  std::size_t strides_of_calls = 0;
};

/// A size that a call brings along. Bounds of loops, conditions, indices and extents of arguments may hold
/// it.
struct Parameter {
  std::string name;
  std::uint32_t slot = 0;
  std::int64_t least = 0, greatest = 0;  ///< inclusive
};

enum class LoopKind : std::uint8_t {
  Serial,
  Unroll,    ///< constant bounds; the body is repeated at compile time
  Vector,    ///< constant bounds, any extent; iterations are independent except for reductions (a Store with
             ///< mode Add, Max, ...); runs as SIMD lanes, a tail is masked by an If inside
  Parallel,  ///< iterations are independent: threads share them
};

enum class ValueKind : std::uint8_t { Literal, Load, Index, Unary, Binary, Select };
/// A scalar computation. Load reads a buffer where all `guards` hold and is `literal` elsewhere; an index
/// outside a buffer without a guard is a defect of the nest (verify() finds it).
struct Value {
  ValueKind kind = ValueKind::Literal;
  program::Function function{};
  ValueId a{}, b{}, c{};
  double literal = 0;
  ExprId index{};
  BufferId buffer{};
  std::vector<ExprId> indices;
  std::vector<Condition> guards;
};

enum class StatementKind : std::uint8_t { Sequence, For, If, Store, Allocate, Prefetch };
enum class StoreMode : std::uint8_t { Assign, Add, Max, Min, Multiply };

struct Statement {
  StatementKind kind = StatementKind::Sequence;
  std::vector<StatementId> children;  ///< Sequence: all; For, If, Allocate: the body
  // For
  std::uint32_t slot = 0;
  std::string name;       ///< of the loop variable
  ExprId begin{}, end{};  ///< over outer loop variables and parameters; constant for Unroll and Vector
  LoopKind loop = LoopKind::Serial;
  // If
  std::vector<Condition> conditions;
  // Store: buffer[indices] <mode>= value. Allocate: buffer. Prefetch: the line of buffer[indices], which may
  // lie outside: it is asked for, not read.
  BufferId buffer{};
  std::vector<ExprId> indices;
  ValueId value{};
  StoreMode mode = StoreMode::Assign;
};

/// A value. `arena` holds the index expressions; every size in them is a concrete integer.
struct LoopNest {
  std::string name;  ///< a C identifier: the kernel's symbol
  symbolic::Arena arena;
  std::vector<Parameter> parameters;
  std::vector<Buffer> buffers;  ///< arguments first, in call order: inputs, then outputs
  std::vector<Value> values;
  std::vector<Statement> statements;
  StatementId root{};
  std::uint32_t next_slot = 0;

  const Buffer& buffer(BufferId id) const { return buffers[static_cast<std::uint32_t>(id)]; }
  const Value& value(ValueId id) const { return values[static_cast<std::uint32_t>(id)]; }
  const Statement& statement(StatementId id) const { return statements[static_cast<std::uint32_t>(id)]; }
  BufferId add(Buffer buffer);  ///< empty strides become row-major ones
  ValueId add(Value value);
  StatementId add(Statement statement);
  std::uint32_t new_slot() { return next_slot++; }

  // Builders of the common nodes.
  ValueId literal(double value);
  ValueId load(BufferId buffer, std::vector<ExprId> indices, std::vector<Condition> guards = {},
               double fill = 0);
  ValueId index_value(ExprId index);
  ValueId unary(program::Function function, ValueId a);
  ValueId binary(program::Function function, ValueId a, ValueId b);
  ValueId select(ValueId condition, ValueId yes, ValueId no);
  StatementId sequence(std::vector<StatementId> children);
  StatementId loop(std::string loop_name, std::uint32_t slot, ExprId begin, ExprId end, LoopKind kind,
                   StatementId body);
  StatementId loop(std::string loop_name, std::uint32_t slot, std::int64_t extent, LoopKind kind,
                   StatementId body);
  StatementId guard(std::vector<Condition> conditions, StatementId body);
  StatementId store(BufferId buffer, std::vector<ExprId> indices, ValueId value,
                    StoreMode mode = StoreMode::Assign);
  StatementId allocate(BufferId buffer, StatementId body);
  StatementId prefetch(BufferId buffer, std::vector<ExprId> indices);
};

std::vector<BufferId> arguments(const LoopNest& nest);  ///< inputs and outputs, in call order
std::vector<std::int64_t> row_major_strides(const std::vector<std::int64_t>& extents);
/// Whether an element of an array, which has some, may stand at several indices.
bool strides_overlap(const std::vector<std::int64_t>& extents, const std::vector<std::int64_t>& strides);

/// The nest for one value of each parameter: without parameters. ShapeError where a value is outside of its
/// range, or there are too few or too many.
LoopNest specialised(const LoopNest& nest, const std::vector<std::int64_t>& parameters);

/// Throws ScheduleError naming the loop, buffer and index: ids and ranks that do not fit, loop variables used
/// outside their loop or hidden by an inner one of the same name, reads of buffers nothing has written,
/// indices that can leave their buffer (interval arithmetic under loops and guards), Register buffers indexed
/// by a loop that is not unrolled or vectorised, Vector loops nested in one another, races in Vector and
/// Parallel loops that can be seen statically. `inside` does not occur in a nest: guards say it. What is said
/// of a nest with parameters holds for all their values.
void verify(const LoopNest& nest);

/// Text form; parse_loop_nest(to_text(n)) is n up to ids:
///
///     nest axpy
///     input x: f32[100]
///     input a: f32[] strides[]
///     output y: f32[100]
///     register t: f32[16]
///     for i in 0..7 parallel
///       allocate t
///         for v in 0..16 vector
///           t[v] = x[i * 16 + v] {i * 16 + v in 0..100 else 0} * a[]
///         for v in 0..16 vector
///           if i * 16 + v in 0..100
///             y[i * 16 + v] = max(t[v], 0)
///
/// A nest with a parameter, and what it is where n is 40:
///
///     nest total
///     parameter n in 1..513
///     input x: f32[n]
///     output y: f32[]
///     y[] = 0
///     for i in 0..n / 16
///       for v in 0..16 vector
///         y[] += x[i * 16 + v]
///     for i in n / 16..(n + 15) / 16
///       for v in 0..16 vector
///         if i * 16 + v - n in -512..0
///           y[] += x[i * 16 + v]
///
/// Two spaces a level; stores are `=`, `+=`, `max=`, `min=`, `*=`; `index(e)` is an index as a number;
/// `prefetch x[i]` asks for a line; constants end in `= {1, 2.5, inf}`.
std::string to_text(const LoopNest& nest);
LoopNest parse_loop_nest(std::string_view text);  ///< ParseError with the line and a caret; not verified

/// An index, a bound or a condition's expression, loop variables and parameters by slot.
std::int64_t evaluate(const LoopNest& nest, ExprId id, const std::vector<std::int64_t>& variables);
/// Whether all of them hold.
bool hold(const LoopNest& nest, const std::vector<Condition>& conditions,
          const std::vector<std::int64_t>& variables);

/// Runs the nest, one iteration after the other, in double precision. Arguments by buffer name.
std::map<std::string, program::Values<double>> interpret(
    const LoopNest& nest, const std::map<std::string, program::Values<double>>& inputs,
    const std::vector<std::int64_t>& parameters = {});

}  // namespace syno::nest
