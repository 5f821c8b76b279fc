// Fusion of a program's scopes into one per output: sums of products put into sums of products.
#include <algorithm>
#include <map>
#include <optional>

#include "equality/keys.hpp"
#include "program/scalars.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "symbolic/simplify.hpp"

namespace syno::equality {
namespace {

/// Nodes of a fused body. What reads a product twice doubles with each scope; operators have some dozens.
constexpr std::size_t kMostNodes = 2000;

Refusal cannot_fuse(const Program& program, const Scope& producer, const Scope& consumer,
                    std::string_view why) {
  Refusal refusal = refuse("one_scope_form", "'{}' cannot be put into '{}': {}",
                           program.tensor(producer.output).name, program.tensor(consumer.output).name, why);
  return Refusal(refusal.where(), "{}", {refusal.reason()}, Refusal::Kind::Verify);
}

class Fusion {
 public:
  explicit Fusion(const Program& program) : program_(program) {}

  OrRefusal<Program> run() {
    std::vector<std::optional<std::size_t>> writers(program_.tensors.size());
    for (std::size_t s = program_.scopes.size(); s-- > 0;)
      writers[static_cast<std::size_t>(program_.scopes[s].output)] = s;
    const auto written_by = [&](TensorId id) { return writers[static_cast<std::size_t>(id)]; };
    std::vector<Scope> fused;
    for (const TensorId output : program_.outputs) {
      const auto place = written_by(output);
      SYNO_ASSERT(place.has_value(), "an output is written by a scope");
      Scope scope = program_.scopes[*place];
      for (;;) {  // the latest producer first, so that each is met once per read of it
        std::optional<std::size_t> producer;
        over_reads(program_, scope.body, [&](ScalarId, const Scalar& read) {
          const auto writer = written_by(read.tensor);
          if (writer && (!producer || *writer > *producer)) producer = writer;
        });
        if (!producer) break;
        interruption_point();
        SYNO_ACCEPT(absorb(scope, program_.scopes[*producer]));
      }
      fused.push_back(std::move(scope));
    }
    program_.scopes = std::move(fused);
    return pruned();
  }

 private:
  /// Whether the body is a product of reads and numbers: what sums can be pulled out of.
  bool is_product(ScalarId id) const {
    return !any_scalar(program_, id, [](const Scalar& scalar) {
      return scalar.kind != ScalarKind::Read && scalar.kind != ScalarKind::Literal &&
             !is_call(scalar, Function::Negate) && !is_call(scalar, Function::Multiply);
    });
  }

  Refused absorb(Scope& consumer, const Scope& producer) {
    if (!producer.target.empty())
      return cannot_fuse(program_, producer, consumer, "it accumulates at an index");
    const bool copies = producer.reduction == Reduction::None;
    if (!copies && producer.reduction != Reduction::Sum) {
      return cannot_fuse(program_, producer, consumer, "it is reduced by other than a sum");
    }
    if (!copies && (!is_product(consumer.body) ||
                    (consumer.reduction != Reduction::None && consumer.reduction != Reduction::Sum))) {
      return cannot_fuse(program_, producer, consumer, "a sum can be put only into a sum of products");
    }
    if (!is_product(producer.body))
      return cannot_fuse(program_, producer, consumer, "its body is not a product of reads");
    consumer.body = rebuilt(consumer.body, consumer, producer);
    if (refused_) return refused_;
    if (scalars_of(program_, consumer.body).size() > kMostNodes)
      return cannot_fuse(program_, producer, consumer,
                         fmt::format("the expression would have more than {} parts", kMostNodes));
    if (!consumer.sums.empty() && consumer.reduction == Reduction::None) consumer.reduction = Reduction::Sum;
    return std::nullopt;
  }

  ScalarId rebuilt(ScalarId id, Scope& consumer, const Scope& producer) {
    return rebuild(program_, id, [&](ScalarId part) -> std::optional<ScalarId> {
      const Scalar scalar = program_.scalar(part);
      if (scalar.kind != ScalarKind::Read || scalar.tensor != producer.output) return std::nullopt;
      auto body = inlined(scalar, consumer, producer);
      if (body) return *body;
      if (!refused_) refused_ = body.refusal();
      return part;  // nothing is made of it
    });
  }

  /// The producer's body at the indices it is read at. Where they leave the produced tensor the read is worth
  /// its fill: zero in a product, which an inside() on the indices says.
  OrRefusal<ScalarId> inlined(const Scalar& read, Scope& consumer, const Scope& producer) {
    symbolic::Arena& arena = program_.arena;
    std::vector<std::optional<ExprId>> value(program_.next_slot);
    std::vector<ExprId> guards;
    const symbolic::Context context = context_of(program_, consumer);
    symbolic::Simplifier simple(arena, context);
    for (std::size_t d = 0; d < producer.traversal.size(); ++d) {
      const Range range = program_.tensor(producer.output).dims[d];
      const ExprId index = read.indices[d];
      const ExprId extent = simple(arena.subtract(range.end, range.begin));
      const auto size = size_of(extent);
      if (!size)
        return cannot_fuse(program_, producer, consumer, "the extent of a dimension of it is not one size");
      const ExprId guarded =
          simple(arena.add(arena.inside(simple(arena.subtract(index, range.begin)), *size), range.begin));
      value[producer.traversal[d].slot] = guarded;
      if (arena.has_inside(guarded)) guards.push_back(guarded);
    }
    if (!guards.empty() && read.fill != Rational(0)) {
      return cannot_fuse(program_, producer, consumer, "it is read outside, with a fill other than 0");
    }
    for (const Iterator& sum : producer.sums) {
      const Iterator renewed = program_.new_iterator(sum.name, sum.range);
      value.resize(program_.next_slot);
      value[sum.slot] = arena.iterator(renewed.slot);
      consumer.sums.push_back(renewed);
    }
    // One read of the producer carries every guard, so that none is lost where an index is not used.
    ExprId all_guards = arena.constant(0);
    for (const ExprId guard : guards) all_guards = arena.add(all_guards, arena.multiply(guard, 0));
    bool carried = guards.empty();
    const ScalarId body = moved(producer.body, value, all_guards, carried);
    if (!carried)
      return cannot_fuse(program_, producer, consumer, "it is a constant that is read outside its tensor");
    return body;
  }

  ScalarId moved(ScalarId id, const std::vector<std::optional<ExprId>>& value, ExprId guards, bool& carried) {
    return rebuild(program_, id, [&](ScalarId part) -> std::optional<ScalarId> {
      Scalar scalar = program_.scalar(part);
      if (operand_count(scalar.kind) > 0) return std::nullopt;
      for (ExprId& index : scalar.indices)
        index = program_.arena.substitute(index, [&](std::uint32_t slot) {
          SYNO_ASSERT(slot < value.size() && value[slot], "a body uses the iterators of its scope");
          return *value[slot];
        });
      if (!carried && !scalar.indices.empty() && scalar.fill == Rational(0)) {
        scalar.indices[0] = program_.arena.add(scalar.indices[0], guards);
        carried = true;
      }
      return program_.add_scalar(std::move(scalar));
    });
  }

  std::optional<Size> size_of(ExprId extent) const {
    const symbolic::Expr& node = program_.arena[extent];
    if (node.op == symbolic::Op::Constant && node.value > 0) return Size(node.value);
    if (node.op == symbolic::Op::SizeValue) return program_.arena[node.size];
    return std::nullopt;
  }

  /// The ranges of all iterators, those the scope has taken over included.
  static symbolic::Context context_of(const Program& program, const Scope& scope) {
    symbolic::Context context;
    context.sizes = &program.sizes;
    std::vector<Range> ranges(program.next_slot);
    const auto note = [&](const Scope& from) {
      for (const Iterator& iterator : from.traversal) ranges[iterator.slot] = iterator.range;
      for (const Iterator& iterator : from.sums) ranges[iterator.slot] = iterator.range;
    };
    for (const Scope& other : program.scopes) note(other);
    note(scope);
    context.range = [ranges = std::move(ranges)](std::uint32_t slot) { return ranges[slot]; };
    return context;
  }

  /// Without the tensors and scalars nothing refers to any more, and with simple indices.
  Program pruned() {
    Program result;
    result.sizes = program_.sizes;
    result.next_slot = program_.next_slot;
    std::vector<std::optional<TensorId>> place(program_.tensors.size());
    const auto expr = [&](ExprId id) { return result.arena.import(program_.arena, id); };
    const auto range = [&](const Range& r) {
      const ExprId begin = expr(r.begin);
      return Range{begin, expr(r.end)};
    };
    const auto keep = [&](TensorId id) {
      Tensor tensor = program_.tensor(id);
      for (Range& dim : tensor.dims) dim = range(dim);
      place[static_cast<std::size_t>(id)] = result.add_tensor(std::move(tensor));
    };
    for (std::uint32_t i = 0; i < program_.tensors.size(); ++i) {
      if (program_.tensors[i].role != Role::Computed) keep(TensorId{i});
    }
    for (const Scope& scope : program_.scopes) {
      if (!place[static_cast<std::size_t>(scope.output)]) keep(scope.output);
    }
    for (const TensorId output : program_.outputs) {
      result.outputs.push_back(*place[static_cast<std::size_t>(output)]);
    }
    for (std::size_t s = 0; s < program_.scopes.size(); ++s) {
      const Scope& scope = program_.scopes[s];
      if (std::find(result.outputs.begin(), result.outputs.begin() + static_cast<std::ptrdiff_t>(s),
                    result.outputs[s]) != result.outputs.begin() + static_cast<std::ptrdiff_t>(s)) {
        continue;  // an output named twice
      }
      Scope moved_scope;
      moved_scope.output = *place[static_cast<std::size_t>(scope.output)];
      moved_scope.reduction = scope.reduction;
      for (Iterator iterator : scope.traversal) {
        iterator.range = range(iterator.range);
        moved_scope.traversal.push_back(std::move(iterator));
      }
      for (Iterator iterator : scope.sums) {
        iterator.range = range(iterator.range);
        moved_scope.sums.push_back(std::move(iterator));
      }
      const symbolic::Context context = context_of(result, moved_scope);
      symbolic::Simplifier simple(result.arena, context);
      const auto simplified = [&](ExprId id) { return simple(expr(id)); };
      for (const ExprId target : scope.target) moved_scope.target.push_back(simplified(target));
      std::map<ScalarId, ScalarId> copies;
      moved_scope.body = copy_body(program_, scope.body, result, copies, [&](Scalar& scalar) {
        if (scalar.kind == ScalarKind::Read) scalar.tensor = *place[static_cast<std::size_t>(scalar.tensor)];
        over_indices(scalar, [&](ExprId& index) { index = simplified(index); });
      });
      result.scopes.push_back(std::move(moved_scope));
    }
    return result;
  }

  Program program_;
  Refused refused_;
};

}  // namespace

OrRefusal<Program> try_one_scope_form(const Program& program) { return Fusion(program).run(); }
Program one_scope_form(const Program& program) { return try_one_scope_form(program).or_raise(); }

}  // namespace syno::equality
