#include "emit/torch_scope.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "emit/index_text.hpp"
#include "emit/python_names.hpp"
#include "program/scalars.hpp"
#include "support/checked.hpp"
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

/// Views may copy so many times what is read: a table of places is slower to read than memory in order.
constexpr double kMostCopied = 4;

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
    double taken = 1, held = 1;
    for (const ViewDim& dim : made.dims()) taken *= static_cast<double>(dim.extent);
    for (const std::int64_t extent : program::shape_of(program_, read.tensor))
      held *= static_cast<double>(extent);
    if (made.largest_copy() <= kMostCopied * std::max(taken, held)) return made;
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

  static bool contains(const std::vector<Slot>& slots, Slot slot) {
    return std::find(slots.begin(), slots.end(), slot) != slots.end();
  }

  static std::size_t position(const std::vector<Slot>& slots, Slot slot) {
    return static_cast<std::size_t>(std::find(slots.begin(), slots.end(), slot) - slots.begin());
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
    for (const Slot slot : wanted) {
      for (std::size_t d = 0; d < view.dims().size(); ++d) {
        if (view.dims()[d].slot == slot) order.push_back(d);
      }
    }
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

  /// The scope as torch.conv1d/2d/3d where it is one: one factor (the data) has windows h*s + r*d + c in
  /// which r indexes the other factor (the weight). Where r is summed it is a tap of the kernel, of a flipped
  /// one where d is negative, as in gradients of convolutions. Where r stays in the result (Operator 1's
  /// first stage), the sum over channels does not need the window: it is taken at every place first, and each
  /// r then looks r*d further. Empty where it is no convolution.
  std::string convolution(const Product& factors) {
    if (factors.reads.size() != 2) return {};
    for (const std::size_t data : {std::size_t{0}, std::size_t{1}}) {
      std::string text = convolution(factors, *factors.reads[data], *factors.reads[1 - data]);
      if (!text.empty()) return text;
    }
    return {};
  }

  std::string convolution(const Product& factors, const Scalar& data_read, const Scalar& weight_read) {
    if (!(data_read.fill == Rational(0))) return {};
    TorchView weight = view(weight_read);
    weight.peel();
    weight.resolve();
    std::vector<Slot> of_weight;
    for (const ViewDim& dim : weight.dims()) of_weight.push_back(dim.slot);
    const auto in_weight = [&](Slot slot) { return contains(of_weight, slot); };

    TorchView data = view(data_read);
    data.peel();
    struct Window {
      Slot place, tap;
      std::int64_t stride, dilation, low, high, extent;
      bool deferred;  ///< the tap stays in the result
      bool flipped;   ///< the last tap looks at the first element
    };
    std::vector<Window> windows;
    for (std::size_t d = 0; d < data.dims().size(); ++d) {
      const ViewDim& dim = data.dims()[d];
      if (dim.resolved) continue;
      const auto form = indices_.affine(dim.index);
      if (form.terms.size() != 2) continue;
      std::optional<std::pair<Slot, std::int64_t>> place, tap;
      for (const auto& [atom, factor] : form.terms) {
        const Slot slot = symbolic::slot_of(indices_.arena(), atom);
        if (slot == symbolic::kNoSlot) continue;
        if (contains(traversal_, slot) && !in_weight(slot) && factor > 0) place = {slot, factor};
        if (in_weight(slot)) tap = {slot, factor};
      }
      if (!place || !tap) continue;
      const bool deferred = contains(traversal_, tap->first), flipped = tap->second < 0;
      if (deferred && (flipped || place->second != 1)) return {};
      const symbolic::Interval reach = indices_.bounds(dim.index);
      windows.push_back({place->first, tap->first, place->second, std::abs(tap->second), reach.least,
                         reach.greatest, dim.extent, deferred, flipped});
      data.keep(d);
    }
    if (windows.size() > 3) return {};
    data.resolve();

    // Roles. Every iterator must have one, and a window's iterators no other.
    std::vector<std::size_t> batch, group, channel, spatial;
    std::vector<Slot> batch_slots, group_slots, channel_slots, spatial_slots, out_slots;
    std::vector<const Window*> window_of;
    std::size_t next_window = 0;
    bool channels_seen = false;
    std::size_t plain_spatial = 0;
    for (std::size_t d = 0; d < data.dims().size(); ++d) {
      const ViewDim& dim = data.dims()[d];
      if (dim.kept) {
        const Window& window = windows[next_window++];
        spatial.push_back(d);
        spatial_slots.push_back(window.place);
        window_of.push_back(&window);
        continue;
      }
      const bool summed = contains(sums_, dim.slot), weighed = in_weight(dim.slot);
      for (const Window& window : windows) {
        if (dim.slot == window.place || dim.slot == window.tap) return {};
      }
      if (summed && !weighed) return {};
      if (summed) {
        channel.push_back(d);
        channel_slots.push_back(dim.slot);
      } else if (weighed) {
        group.push_back(d);
        group_slots.push_back(dim.slot);
      } else if (channels_seen && windows.size() + plain_spatial < 2) {
        ++plain_spatial;
        spatial.push_back(d);
        spatial_slots.push_back(dim.slot);
        window_of.push_back(nullptr);
      } else {
        batch.push_back(d);
        batch_slots.push_back(dim.slot);
      }
      channels_seen = channels_seen || weighed;
    }
    for (std::size_t i = 0; i < windows.size(); ++i) {
      for (std::size_t j = i + 1; j < windows.size(); ++j) {
        if (windows[i].place == windows[j].place || windows[i].tap == windows[j].tap) return {};
      }
    }
    std::vector<std::size_t> weight_order;
    const auto take = [&](Slot slot) { weight_order.push_back(position(of_weight, slot)); };
    for (const Slot slot : group_slots) take(slot);
    for (const Slot slot : of_weight) {
      if (contains(group_slots, slot) || contains(channel_slots, slot)) continue;
      if (std::any_of(windows.begin(), windows.end(),
                      [&](const Window& w) { return !w.deferred && w.tap == slot; })) {
        continue;
      }
      if (contains(sums_, slot)) return {};  // summed over the weight alone
      out_slots.push_back(slot);
      take(slot);
    }
    for (const Slot slot : channel_slots) take(slot);
    std::size_t taps = 0;
    for (const Window* window : window_of) {
      if (window == nullptr || window->deferred) continue;
      take(window->tap);
      ++taps;
    }
    // Every sum must have been met.
    if (channel_slots.size() + taps != sums_.size()) return {};
    // Without a window a matrix product is faster, unless it falls into groups.
    if (windows.empty() && (group_slots.empty() || channel_slots.empty() || spatial.empty())) return {};

    std::vector<std::size_t> order = batch;
    for (const auto* part : {&group, &channel, &spatial})
      order.insert(order.end(), part->begin(), part->end());
    data.permute(order);
    std::vector<std::pair<std::int64_t, std::int64_t>> pads(order.size());
    std::vector<std::int64_t> padding, stride, dilation;
    bool symmetric = true;
    const std::size_t first_spatial = order.size() - spatial.size();
    for (std::size_t i = 0; i < window_of.size(); ++i) {
      const Window* window = window_of[i];
      padding.push_back(0);
      stride.push_back(window == nullptr ? 1 : window->stride);
      dilation.push_back(window == nullptr || window->deferred ? 1 : window->dilation);
      if (window == nullptr) continue;
      pads[first_spatial + i] = {-window->low, window->high - (window->extent - 1)};
      padding.back() = -window->low;
      symmetric =
          symmetric && pads[first_spatial + i].first == pads[first_spatial + i].second && window->low <= 0;
    }
    if (!symmetric) {
      data.pad(pads);
      std::fill(padding.begin(), padding.end(), 0);
    }
    data.flatten(batch.size(), group.size() + channel.size());
    data.flatten(0, batch.size());

    weight.permute(weight_order);
    std::vector<std::size_t> flips;
    for (std::size_t d = 0; d < weight_order.size(); ++d)
      if (std::any_of(windows.begin(), windows.end(),
                      [&](const Window& w) { return w.flipped && w.tap == of_weight[weight_order[d]]; }))
        flips.push_back(d);
    weight.flip(flips);
    std::int64_t groups = 1;
    for (const Slot slot : group_slots) groups *= indices_.extent(slot);
    // [groups * out, channels, taps...]; dimensions without a window get one tap.
    weight.flatten(group_slots.size() + out_slots.size(), channel_slots.size());
    weight.flatten(0, group_slots.size() + out_slots.size());
    std::string weight_text = weight.value();
    if (taps < spatial.size()) {
      std::string index = ":, :";
      for (const Window* window : window_of)
        index += window == nullptr || window->deferred ? ", None" : ", :";
      weight_text += fmt::format("[{}]", index);
    }
    const auto list = [](const std::vector<std::int64_t>& values) {
      return values.size() == 1 ? std::to_string(values[0]) : fmt::format("({})", fmt::join(values, ", "));
    };
    const auto differs = [](const std::vector<std::int64_t>& values, std::int64_t from) {
      return std::any_of(values.begin(), values.end(), [&](std::int64_t v) { return v != from; });
    };
    std::string text = fmt::format("F.conv{}d({}, {}", spatial.size(), data.value(), weight_text);
    if (differs(stride, 1)) text += ", stride=" + list(stride);
    if (differs(padding, 0)) text += ", padding=" + list(padding);
    if (differs(dilation, 1)) text += ", dilation=" + list(dilation);
    if (groups != 1) text += ", groups=" + std::to_string(groups);
    text += ")";
    // Back to one dimension per iterator, in traversal order.
    std::vector<Slot> channels_out = group_slots;
    channels_out.insert(channels_out.end(), out_slots.begin(), out_slots.end());
    const auto open = [&](std::size_t at, const std::vector<Slot>& slots) {
      if (slots.size() > 1) text += fmt::format(".unflatten({}, {})", at, extents_text(slots));
      if (slots.empty()) text += fmt::format(".squeeze({})", at);
    };
    open(1, channels_out);
    open(0, batch_slots);
    std::vector<Slot> have = batch_slots;
    have.insert(have.end(), channels_out.begin(), channels_out.end());
    have.insert(have.end(), spatial_slots.begin(), spatial_slots.end());
    std::vector<std::int64_t> extents;
    for (const Slot slot : have) extents.push_back(indices_.extent(slot));
    for (const Window& window : windows) {
      if (window.deferred) extents[position(have, window.place)] = window.high - window.low + 1;
    }
    for (const Window& window : windows) {
      if (!window.deferred) continue;
      // [tap, ..., place] flat is tap*R + place: with d more elements a row, tap*(R + d) + place is place +
      // tap*d.
      const std::size_t tap = position(have, window.tap), place = position(have, window.place);
      std::int64_t row = 1;
      for (std::size_t d = tap + 1; d <= place; ++d) row *= extents[d];
      std::vector<std::int64_t> more(2 * (have.size() - place), 0);
      more.back() = extents[tap] * window.dilation;
      text =
          fmt::format("F.pad({}.flatten({}, {}), [{}]).unflatten({}, ({}, {})).narrow({}, 0, {})", text, tap,
                      place, fmt::join(more, ", "), tap, extents[tap], row + window.dilation, tap + 1, row);
      if (place > tap + 1) {
        text += fmt::format(".unflatten({}, ({}))", tap + 1,
                            fmt::join(extents.begin() + static_cast<std::ptrdiff_t>(tap) + 1,
                                      extents.begin() + static_cast<std::ptrdiff_t>(place) + 1, ", "));
      }
      extents[place] = indices_.extent(window.place);
      text += fmt::format(".narrow({}, 0, {})", place, extents[place]);
    }
    std::vector<Slot> present;
    std::vector<std::size_t> final_order;
    for (const Slot slot : traversal_) {
      const auto at = std::find(have.begin(), have.end(), slot);
      if (at == have.end()) continue;
      present.push_back(slot);
      final_order.push_back(static_cast<std::size_t>(at - have.begin()));
    }
    if (!std::is_sorted(final_order.begin(), final_order.end())) {
      text += fmt::format(".permute({})", fmt::join(final_order, ", "));
    }
    return scaled(expanded(std::move(text), present), factors);
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
