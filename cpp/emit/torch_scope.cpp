#include "emit/torch_scope.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "emit/index_text.hpp"
#include "emit/python_names.hpp"
#include "emit/torch_convolution.hpp"
#include "program/scalars.hpp"
#include "support/error.hpp"

namespace syno::emit {
namespace {

using program::Function;
using program::Reduction;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using symbolic::Expr;
using symbolic::Op;

std::string number(Rational value) {
  if (!value.finite()) return value.num() > 0 ? "float(\"inf\")" : "float(\"-inf\")";
  std::string text = fmt::format("{}", value.to_double());
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

/// A value as Python text with one dimension per iterator of `slots`; a plain number when `slots` is nothing.
struct Value {
  std::string text;
  bool number = false;   ///< a Python float
  bool boolean = false;  ///< a tensor of truth values
};

class TorchScopeWriter {
 public:
  TorchScopeWriter(TorchContext& context, const program::Scope& scope, std::vector<std::string>& lines)
      : context_(context), program_(*context.program), scope_(scope), lines_(lines), indices_(program_) {}

  void write() {
    for (const program::Iterator& i : scope_.traversal) traversal_.push_back(start_at_zero(i.slot));
    for (const program::Iterator& i : scope_.sums) sums_.push_back(start_at_zero(i.slot));
    split_iterators();
    std::string value;
    if (const auto factors = product()) {
      value = convolution(*factors);
      if (value.empty()) value = contraction(*factors);
    }
    if (value.empty()) value = general();
    lines_.push_back(
        fmt::format("{} = {}", context_.variables[index_of(scope_.output)], finished(std::move(value))));
  }

 private:
  /// Iterators walk from 0 from here on; `shift_` has what indices must add.
  Slot start_at_zero(Slot slot) {
    const std::int64_t begin = indices_.range(slot).begin;
    const Slot fresh = indices_.new_slot(indices_.extent(slot));
    replacement_[slot] =
        indices_.arena().add(indices_.arena().iterator(fresh), indices_.arena().constant(begin));
    if (context_.batch_slots.contains(slot)) batch_.insert(fresh);
    return fresh;
  }

  ExprId rewritten(ExprId root) {
    const auto replace = [&](Slot slot) {
      const auto found = replacement_.find(slot);
      return found == replacement_.end() ? indices_.arena().iterator(slot) : found->second;
    };
    ExprId result = indices_.simplified(indices_.arena().substitute(root, replace));
    while (!splits_.empty()) {
      const ExprId next = indices_.simplified(indices_.arena().substitute(result, [&](Slot slot) {
        const auto split = splits_.find(slot);
        return split == splits_.end() ? indices_.arena().iterator(slot) : split->second;
      }));
      if (next == result) break;
      result = next;
    }
    return result;
  }

  std::vector<ExprId> all_indices() {
    std::vector<ExprId> all;
    program::over_reads(program_, scope_.body, [&](ScalarId, const Scalar& read) {
      all.insert(all.end(), read.indices.begin(), read.indices.end());
    });
    for (ExprId& index : all) index = rewritten(index);
    return all;
  }

  /// i becomes i1*B + i0 where i / B or i % B occurs and B divides its extent: most quotients then vanish.
  void split_iterators() {
    for (;;) {
      std::optional<std::pair<Slot, std::int64_t>> found;
      const std::vector<ExprId> all = all_indices();
      for (const ExprId root : all) find_split(root, found);
      if (!found) return;
      const auto [slot, block] = *found;
      const Slot major = indices_.new_slot(indices_.extent(slot) / block), minor = indices_.new_slot(block);
      splits_[slot] = indices_.arena().add(indices_.arena().multiply(indices_.arena().iterator(major), block),
                                           indices_.arena().iterator(minor));
      for (auto* slots : {&traversal_, &sums_}) {
        const auto at = std::find(slots->begin(), slots->end(), slot);
        if (at == slots->end()) continue;
        *at = major;
        slots->insert(at + 1, minor);
      }
    }
  }

  void find_split(ExprId root, std::optional<std::pair<Slot, std::int64_t>>& found) {
    const Expr node = indices_.arena()[root];
    if (node.op == Op::Iterator || node.op == Op::Constant || node.op == Op::SizeValue) return;
    if (node.op == Op::Divide || node.op == Op::Modulo) {
      const Slot slot = symbolic::slot_of(indices_.arena(), node.a);
      const std::int64_t block = symbolic::integer_of(indices_.arena(), node.size);
      if (slot != symbolic::kNoSlot && block > 1 && block < indices_.extent(slot) &&
          indices_.extent(slot) % block == 0) {
        if (!found || block < found->second) found = {slot, block};
      }
    }
    find_split(node.a, found);
    if (node.op == Op::Add) find_split(node.b, found);
  }

  /// A read's indices, from a tensor's first element on.
  std::vector<ExprId> places(program::TensorId tensor, const std::vector<ExprId>& read) {
    std::vector<ExprId> made;
    for (std::size_t d = 0; d < read.size(); ++d) {
      const std::int64_t begin = program::extent_of(program_, program_.tensor(tensor).dims[d], 0).begin;
      made.push_back(
          indices_.simplified(indices_.arena().add(rewritten(read[d]), indices_.arena().constant(-begin))));
    }
    return made;
  }

  TorchView view(const Scalar& read) {
    return TorchView(indices_, context_.variables[index_of(read.tensor)],
                     program::shape_of(program_, read.tensor), places(read.tensor, read.indices),
                     number(read.fill));
  }

  /// A read with a dimension for each iterator: by views, or by a table of places where views copy several
  /// times what is read on the way.
  TorchView resolved(const Scalar& read) {
    TorchView made = view(read);
    made.peel();
    made.resolve();
    if (!made.copies_much()) return made;
    auto by_table = gathered(read);
    return by_table ? std::move(*by_table) : std::move(made);
  }

  /// The read by a table of places in the dimensions that no iterator walks alone; nothing where there is
  /// none, or where places depend on a size that is not known.
  std::optional<TorchView> gathered(const Scalar& read) {
    const std::vector<std::int64_t> extents = program::shape_of(program_, read.tensor);
    const std::vector<ExprId> indices = places(read.tensor, read.indices);
    std::map<Slot, std::size_t> met;
    for (const ExprId index : indices)
      for (const Slot slot : indices_.arena().iterators(index)) ++met[slot];
    std::vector<std::size_t> order, others;
    std::vector<Slot> alone, walked;
    for (std::size_t d = 0; d < extents.size(); ++d) {
      const Slot slot = symbolic::slot_of(indices_.arena(), indices[d]);
      if (slot != symbolic::kNoSlot && met[slot] == 1 && extents[d] == indices_.extent(slot)) {
        order.push_back(d);
        alone.push_back(slot);
      } else {
        others.push_back(d);
      }
    }
    std::vector<ExprId> looked_up;
    std::vector<std::int64_t> shape;
    for (const std::size_t d : others) {
      for (const Slot slot : indices_.arena().iterators(indices[d])) {
        if (batch_.contains(slot)) return std::nullopt;
        if (!contains(walked, slot)) walked.push_back(slot);
      }
      looked_up.push_back(indices[d]);
      shape.push_back(extents[d]);
    }
    if (walked.empty()) return std::nullopt;
    const auto [table, outside] = place_table(looked_up, shape, walked, walked);
    const std::size_t first = order.size();
    order.insert(order.end(), others.begin(), others.end());
    std::string value = context_.variables[index_of(read.tensor)];
    if (!std::is_sorted(order.begin(), order.end()))
      value += fmt::format(".permute({})", fmt::join(order, ", "));
    if (others.size() > 1) value += fmt::format(".flatten({}, {})", first, order.size() - 1);
    if (outside) {
      const std::string fill = number(read.fill);
      value = fmt::format("F.pad({}, [0, 1]{})", value, fill == "0.0" ? "" : ", value=" + fill);
    }
    value += fmt::format(".index_select({}, self.{})", first, table);
    if (walked.size() > 1) value += fmt::format(".unflatten({}, {})", first, extents_text(walked));
    alone.insert(alone.end(), walked.begin(), walked.end());
    return TorchView(indices_, std::move(value), alone);
  }

  struct PlaceTable {
    std::string name;
    bool outside;  ///< some places are: the first one behind the tensor stands for them
  };
  /// A buffer with places in a tensor of this shape, flat, for all values of `slots`; indices are written
  /// with a dimension for each of `space`.
  PlaceTable place_table(const std::vector<ExprId>& indices, const std::vector<std::int64_t>& shape,
                         const std::vector<Slot>& slots, const std::vector<Slot>& space) {
    const IndexLanguage words = language("", space);
    std::string place = "0";
    std::vector<std::string> conditions;
    std::int64_t elements = 1;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      guard_texts(indices_.arena(), indices[d], words, conditions);
      const std::string text = index_text(indices_.arena(), indices[d], words);
      const symbolic::Interval reach = indices_.bounds(indices[d]);
      if (reach.least < 0) conditions.push_back(fmt::format("({} >= 0)", text));
      if (reach.greatest >= shape[d]) conditions.push_back(fmt::format("({} < {})", text, shape[d]));
      place = d == 0 ? text : fmt::format("({} * {} + {})", place, shape[d], text);
      elements *= shape[d];
    }
    PlaceTable made{fmt::format("place_{}", context_.buffers.size() + 1), !conditions.empty()};
    std::string line = fmt::format("torch.as_tensor({})", place);
    if (made.outside)
      line = fmt::format("torch.where({}, {}, {})", fmt::join(conditions, " & "), line, elements);
    context_.buffers.push_back(
        fmt::format("self.register_buffer(\"{}\", {}.expand({}).flatten(), persistent=False)", made.name,
                    line, extents_text(slots)));
    return made;
  }

  std::string extent_text(Slot slot) const {
    return batch_.contains(slot) ? "batch" : std::to_string(indices_.extent(slot));
  }
  std::string extents_text(const std::vector<Slot>& slots) const {
    std::vector<std::string> texts;
    for (const Slot slot : slots) texts.push_back(extent_text(slot));
    return tuple(texts);
  }

  // ---- products of reads, summed or not ----
  struct Product {
    std::vector<const Scalar*> reads;
    Rational scale = 1;
    std::int64_t terms = 1;  ///< that a mean divides by
  };
  /// The body as a product of reads with numbers; nothing where it is more than that, or not summed.
  std::optional<Product> product() {
    if (!scope_.target.empty()) return std::nullopt;
    if (scope_.reduction != Reduction::None && scope_.reduction != Reduction::Sum &&
        scope_.reduction != Reduction::Mean) {
      return std::nullopt;
    }
    Product result;
    if (!collect(scope_.body, result) || result.reads.empty()) return std::nullopt;
    if (scope_.reduction == Reduction::Mean) {
      for (const Slot slot : sums_) {
        if (batch_.contains(slot)) return std::nullopt;
        result.terms *= indices_.extent(slot);
      }
    }
    return result;
  }
  bool collect(ScalarId id, Product& result) {
    for (const ScalarId factor : program::factors_of(program_, id)) {
      const Scalar& scalar = program_.scalar(factor);
      if (scalar.kind == ScalarKind::Read)
        result.reads.push_back(&scalar);
      else if (scalar.kind == ScalarKind::Literal && scalar.literal.finite())
        result.scale = result.scale * scalar.literal;
      else
        return false;
    }
    return true;
  }

  std::string scaled(std::string text, const Product& factors) {
    if (!(factors.scale == Rational(1))) text = fmt::format("{} * {}", text, number(factors.scale));
    return factors.terms == 1 ? text : fmt::format("{} / {}", text, factors.terms);
  }

  std::string contraction(Product factors) {
    std::vector<TorchView> views;
    std::set<Slot> present;
    for (const Scalar* read : factors.reads) {
      TorchView next = resolved(*read);
      for (const ViewDim& dim : next.dims()) present.insert(dim.slot);
      views.push_back(std::move(next));
    }
    // A sum over an iterator that nothing depends on multiplies by its extent.
    for (const Slot slot : sums_) {
      if (present.contains(slot)) continue;
      if (batch_.contains(slot)) return {};
      if (scope_.reduction == Reduction::Mean)
        factors.terms /= indices_.extent(slot);
      else
        factors.scale = factors.scale * Rational(indices_.extent(slot));
    }
    std::vector<Slot> result;
    for (const Slot slot : traversal_) {
      if (present.contains(slot)) result.push_back(slot);
    }
    std::string text;
    if (views.size() == 1) {
      views[0].sum(sums_);
      arrange(views[0], result);
      text = views[0].value();
    } else {
      std::map<Slot, char> letters;
      if (present.size() > 52) return {};
      for (const Slot slot : present) {
        const auto next = letters.size();
        letters[slot] = static_cast<char>(next < 26 ? 'a' + next : 'A' + (next - 26));
      }
      std::string equation;
      std::string operands;
      for (const TorchView& next : views) {
        if (!operands.empty()) equation += ",";
        for (const ViewDim& dim : next.dims()) equation += letters[dim.slot];
        operands += ", " + next.value();
      }
      equation += "->";
      for (const Slot slot : result) equation += letters[slot];
      text = fmt::format("torch.einsum(\"{}\"{})", equation, operands);
    }
    return scaled(expanded(std::move(text), result), factors);
  }

  void arrange(TorchView& view, const std::vector<Slot>& wanted) {
    std::vector<std::size_t> order;
    for (const Slot slot : wanted)
      for (std::size_t d = 0; d < view.dims().size(); ++d)
        if (view.dims()[d].slot == slot) order.push_back(d);
    view.permute(order);
  }

  /// Repeats along the traversal iterators that the value (over `present`, in order) does not depend on.
  std::string expanded(std::string text, const std::vector<Slot>& present) {
    if (present.size() == traversal_.size()) return text;
    std::string index;
    for (const Slot slot : traversal_) index += contains(present, slot) ? ":, " : "None, ";
    index.resize(index.size() - 2);
    return fmt::format("{}[{}].expand({})", text, index, extents_text(traversal_));
  }

  /// The scope as a convolution with one factor as data and the other as weight. Empty where it is none.
  std::string convolution(const Product& factors) {
    if (factors.reads.size() != 2) return {};
    for (const std::size_t data : {std::size_t{0}, std::size_t{1}}) {
      const Scalar& read = *factors.reads[data];
      if (!(read.fill == Rational(0))) continue;
      const auto made = torch_convolution(
          {indices_, traversal_, sums_, [&](const auto& slots) { return extents_text(slots); }}, view(read),
          view(*factors.reads[1 - data]));
      if (made) return scaled(expanded(made->text, made->present), factors);
    }
    return {};
  }

  // ---- everything else: element-wise over the whole iteration space, then a reduction ----
  std::vector<Slot> space() const {
    std::vector<Slot> all = traversal_;
    all.insert(all.end(), sums_.begin(), sums_.end());
    return all;
  }

  /// A value over some iterators, spread over the dimensions of space().
  std::string spread(const TorchView& view) {
    std::string index;
    bool all = true;
    for (const Slot slot : space()) {
      const bool present = std::any_of(view.dims().begin(), view.dims().end(),
                                       [&](const ViewDim& dim) { return dim.slot == slot; });
      index += present ? ":, " : "None, ";
      all = all && present;
    }
    if (all || index.empty()) return view.value();
    index.resize(index.size() - 2);
    return fmt::format("{}[{}]", view.value(), index);
  }

  /// Indices as tensors of integers, a dimension for each iterator of the space.
  IndexLanguage language(const std::string& device) { return language(device, space()); }
  IndexLanguage language(const std::string& device, const std::vector<Slot>& all) {
    const auto places = [this, device, all](Slot slot) {
      std::vector<std::string> shape(all.size(), "1");
      for (std::size_t d = 0; d < all.size(); ++d) {
        if (all[d] == slot) shape[d] = "-1";
      }
      return fmt::format("torch.arange({}{}).view({})", extent_text(slot), device, fmt::join(shape, ", "));
    };
    return {places, "({} // {})", "({} % {})", "({} >= 0)", "({} < {})"};
  }

  std::string assign(std::string text) {
    std::string name;
    do {
      name = fmt::format("e{}", ++temporaries_);
    } while (std::find(context_.variables.begin(), context_.variables.end(), name) !=
             context_.variables.end());
    lines_.push_back(fmt::format("{} = {}", name, text));
    return name;
  }

  std::string full(const std::string& text) {
    return fmt::format("torch.full((), {}, dtype={}.dtype, device={}.device)", text, context_.like,
                       context_.like);
  }
  std::string tensor_of(const Value& value) {
    if (value.number) return full(value.text);
    if (value.boolean) return fmt::format("{}.to({}.dtype)", value.text, context_.like);
    return value.text;
  }
  std::string operand(const Value& value) { return value.number ? value.text : tensor_of(value); }
  std::string truth(const Value& value) {
    return value.boolean ? value.text : fmt::format("({} != 0)", tensor_of(value));
  }

  Value unary(Function function, const Value& a) {
    if (function == Function::Negate) return {fmt::format("-{}", tensor_of(a))};
    static const std::map<Function, std::string> kNames = {
        {Function::Exp, "torch.exp"},         {Function::Log, "torch.log"},
        {Function::Sqrt, "torch.sqrt"},       {Function::Rsqrt, "torch.rsqrt"},
        {Function::Erf, "torch.erf"},         {Function::Tanh, "torch.tanh"},
        {Function::Sigmoid, "torch.sigmoid"}, {Function::Relu, "torch.relu"},
        {Function::Abs, "torch.abs"},         {Function::Gelu, "F.gelu"},
        {Function::Floor, "torch.floor"},     {Function::Ceil, "torch.ceil"},
        {Function::Round, "torch.round"},     {Function::Trunc, "torch.trunc"},
        {Function::Sin, "torch.sin"},         {Function::Cos, "torch.cos"},
        {Function::Atan, "torch.atan"}};
    return {fmt::format("{}({})", kNames.at(function), tensor_of(a))};
  }

  Value binary(Function function, Value a, Value b) {
    if (a.number && b.number) a = {tensor_of(a)};
    static const std::map<Function, std::string> kOperators = {
        {Function::Add, "+"}, {Function::Subtract, "-"}, {Function::Multiply, "*"}, {Function::Divide, "/"}};
    static const std::map<Function, std::string> kComparisons = {{Function::Less, "<"},
                                                                 {Function::LessEqual, "<="},
                                                                 {Function::Equal, "=="},
                                                                 {Function::NotEqual, "!="}};
    if (const auto found = kOperators.find(function); found != kOperators.end()) {
      return {fmt::format("{} {} {}", operand(a), found->second, operand(b))};
    }
    if (const auto found = kComparisons.find(function); found != kComparisons.end()) {
      return {fmt::format("{} {} {}", operand(a), found->second, operand(b)), false, true};
    }
    switch (function) {
      case Function::Maximum:
        return {fmt::format("torch.maximum({}, {})", tensor_of(a), tensor_of(b))};
      case Function::Minimum:
        return {fmt::format("torch.minimum({}, {})", tensor_of(a), tensor_of(b))};
      case Function::Power:
        // A number that is not whole would become a square root, which knows no -inf.
        if (b.number && b.text.ends_with(".0")) return {fmt::format("torch.pow({}, {})", operand(a), b.text)};
        return {fmt::format("torch.pow({}, {})", operand(a), tensor_of(b))};
      case Function::Fmod:
        return {fmt::format("torch.fmod({}, {})", tensor_of(a), tensor_of(b))};
      case Function::And:
        return {fmt::format("{} & {}", truth(a), truth(b)), false, true};
      default:
        return {fmt::format("{} | {}", truth(a), truth(b)), false, true};
    }
  }

  std::string general() {
    std::map<ScalarId, Value> values;
    const std::string device = fmt::format(", device={}.device", context_.like);
    for (const ScalarId id : program::scalars_of(program_, scope_.body)) {
      const Scalar& scalar = program_.scalar(id);
      Value value;
      switch (scalar.kind) {
        case ScalarKind::Literal:
          values[id] = {number(scalar.literal), true};
          continue;
        case ScalarKind::Read: {
          TorchView next = resolved(scalar);
          std::vector<Slot> present;
          for (const Slot slot : space()) {
            if (std::any_of(next.dims().begin(), next.dims().end(),
                            [&](const auto& d) { return d.slot == slot; })) {
              present.push_back(slot);
            }
          }
          arrange(next, present);
          value.text = spread(next);
          break;
        }
        case ScalarKind::Index: {
          const ExprId index = rewritten(scalar.index);
          if (indices_.arena().iterators(index).empty()) {
            const auto form = indices_.affine(index);
            values[id] = {number(Rational(form.constant)), true};
            continue;
          }
          value.text = fmt::format("{}.to({}.dtype)", index_text(indices_.arena(), index, language(device)),
                                   context_.like);
          break;
        }
        case ScalarKind::Unary:
          value = unary(scalar.function, values.at(scalar.a));
          break;
        case ScalarKind::Binary:
          value = binary(scalar.function, values.at(scalar.a), values.at(scalar.b));
          break;
        case ScalarKind::Select:
          value.text = fmt::format("torch.where({}, {}, {})", truth(values.at(scalar.a)),
                                   tensor_of(values.at(scalar.b)), tensor_of(values.at(scalar.c)));
          break;
      }
      value.text = assign(std::move(value.text));
      values[id] = std::move(value);
    }
    std::string body = tensor_of(values.at(scope_.body));
    // Broadcast to the whole space: reductions count every point.
    const std::vector<Slot> all = space();
    if (!all.empty()) body = assign(fmt::format("{}.expand({})", body, extents_text(all)));
    if (!sums_.empty()) {
      std::vector<std::size_t> positions(sums_.size());
      std::iota(positions.begin(), positions.end(), traversal_.size());
      const std::string dims = fmt::format("({},)", fmt::join(positions, ", "));
      switch (scope_.reduction) {
        case Reduction::Sum:
          body = fmt::format("{}.sum({})", body, dims);
          break;
        case Reduction::Mean:
          body = fmt::format("{}.mean({})", body, dims);
          break;
        case Reduction::Max:
          body = fmt::format("{}.amax({})", body, dims);
          break;
        case Reduction::Min:
          body = fmt::format("{}.amin({})", body, dims);
          break;
        default:
          body = fmt::format("{}.flatten({}).prod({})", body, traversal_.size(), traversal_.size());
          break;
      }
    }
    return scope_.target.empty() ? body : accumulated(std::move(body));
  }

  /// y[target] += value, as one index_add into the flat output; what falls outside lands in an extra element.
  std::string accumulated(std::string body) {
    const std::vector<std::int64_t> shape = program::shape_of(program_, scope_.output);
    std::int64_t elements = 1;
    for (const std::int64_t extent : shape) elements *= extent;
    // The target does not depend on sums.
    const std::string name =
        place_table(places(scope_.output, scope_.target), shape, traversal_, traversal_).name;
    body = assign(fmt::format("{}.flatten()", body));
    accumulates_ = true;
    return fmt::format("{}.new_zeros({}).index_add(0, self.{}, {})[:{}].view({})", body, elements + 1, name,
                       body, elements, fmt::join(shape, ", "));
  }

  /// The split iterators of the traversal joined again.
  std::string finished(std::string text) {
    if (accumulates_ || traversal_.size() == scope_.traversal.size()) return text;
    std::vector<std::string> shape;
    for (const program::Iterator& i : scope_.traversal) {
      shape.push_back(context_.batch_slots.contains(i.slot) ? "batch"
                                                            : std::to_string(indices_.extent(i.slot)));
    }
    return fmt::format("({}).reshape({})", text, fmt::join(shape, ", "));
  }

  TorchContext& context_;
  const program::Program& program_;
  const program::Scope& scope_;
  std::vector<std::string>& lines_;
  Indices indices_;
  std::vector<Slot> traversal_, sums_;
  std::map<Slot, ExprId> replacement_, splits_;
  std::set<Slot> batch_;
  std::size_t temporaries_ = 0;
  bool accumulates_ = false;
};

}  // namespace

void write_torch_scope(TorchContext& context, const program::Scope& scope, std::vector<std::string>& lines) {
  TorchScopeWriter(context, scope, lines).write();
}

}  // namespace syno::emit
