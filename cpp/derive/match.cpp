#include "derive/match.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "derive/tools.hpp"
#include "support/error.hpp"

namespace syno::derive::packed {

namespace {

/// Groups of iterators by (first operand, second operand, result), EINNET's table 2.
enum Group : std::uint8_t { kBatch, kRows, kColumns, kSummed, kOther };

constexpr int kFar = 1000;

std::int64_t extent_of(const State& state, const Term& term) {
  const std::int64_t digits = (state.extent[at(term.iterator)] + term.over - 1) / term.over;
  return term.modulo == 0 ? digits : std::min<std::int64_t>(digits, term.modulo);
}

/// A dimension that an iterator of the traversal slides along, and one that stands beside it there.
struct Pair {
  int slides = 0, beside = 0;
  std::int64_t stride = 0, dilation = 0, constant = 0;
};

/// One way to see a state as an operator: which operand is the first, and what that lacks.
struct View {
  int first = 0;  ///< operand
  std::array<Group, kIterators> group{};
  std::array<int, 5> count{};
  int apart = 0;  ///< mismatched iterators, as distance() counts
  std::vector<Pair> pairs;
  std::vector<std::string> reasons;  ///< where they are asked for
};

class Matcher {
 public:
  Matcher(const State& state, Operator op, const Target& target, const Space* explained)
      : state_(state), op_(op), target_(target), explained_(explained) {
    masks_.fill(0);
    for (int d = 0; d < state.dims; ++d) {
      const Dim& dim = state.dim[at(d)];
      operands_ = std::max(operands_, dim.operand + 1);
      if (dim.operand < 2)
        for (int t = dim.first; t < dim.first + dim.count; ++t)
          masks_[at(state.term[at(t)].iterator)] |= static_cast<std::uint8_t>(1 << dim.operand);
    }
  }

  /// The better one of both ways; apart kFar where there are not two operands.
  View best(int limit) {
    View found;
    found.apart = kFar;
    if (operands_ != 2) {
      if (explained_) found.reasons.push_back("it is no product of two tensors");
      return found;
    }
    for (const int first : {0, 1}) {
      View view = groups(first);
      if (view.apart > limit && !explained_) {
        found.apart = std::min(found.apart, view.apart);
        continue;
      }
      if (op_ == Operator::Conv)
        convolution(view);
      else if (op_ == Operator::G2bmm)
        banded(view);
      for (int operand : {0, 1}) addressed(view, operand);
      if (view.apart < found.apart) found = std::move(view);
      if (found.apart == 0) break;
    }
    return found;
  }

 private:
  void reason(View& view, int count, std::string_view what, int iterator = -1) {
    view.apart += count;
    if (explained_)
      view.reasons.push_back(iterator < 0 ? std::string(what)
                                          : fmt::format("{} {}", iterator_name(iterator), what));
  }
  std::string iterator_name(int i) const {
    return state_.sum(i) ? fmt::format("r{}", i - state_.traversals) : fmt::format("z{}", i);
  }

  View groups(int first) {
    View view;
    view.first = first;
    for (int i = 0; i < state_.iterators; ++i) {
      const bool a = (masks_[at(i)] >> first & 1) != 0, b = (masks_[at(i)] >> (1 - first) & 1) != 0;
      Group group = kOther;
      if (state_.sum(i))
        group = a && b ? kSummed : kOther;
      else if (a || b)
        group = a && b ? kBatch : a ? kRows : kColumns;
      view.group[at(i)] = group;
      ++view.count[group];
      if (group == kOther) reason(view, 1, "moves no two of the three tensors", i);
    }
    const auto wanted = [&](Group group, std::string_view name) {
      if (view.count[group] == 0) reason(view, 1, fmt::format("no iterator is {}", name));
    };
    wanted(kSummed, "summed over in both operands");
    wanted(kColumns, "of the second operand alone");
    if (op_ == Operator::G2bmm) {
      wanted(kBatch, "common to both operands");
      for (int i = 0; i < state_.iterators; ++i)
        if (view.group[at(i)] == kRows) reason(view, 1, "moves the first operand alone", i);
    } else {
      wanted(kRows, "of the first operand alone");
    }
    if (op_ == Operator::BatchedMatmul) wanted(kBatch, "common to both operands");
    if (op_ == Operator::Matmul)
      for (int i = 0; i < state_.iterators; ++i)
        if (view.group[at(i)] == kBatch) reason(view, 1, "moves both operands and the result", i);
    return view;
  }

  /// x[.., stride*h + dilation*r + c, ..] in the first operand.
  void convolution(View& view) {
    for (int d = 0; d < state_.dims; ++d) {
      const Dim& dim = state_.dim[at(d)];
      if (dim.operand != view.first || dim.count != 2) continue;
      const Term *s = &state_.term[at(dim.first)], *t = s + 1;
      if (view.group[at(s->iterator)] == kSummed) std::swap(s, t);
      if (view.group[at(s->iterator)] != kRows || view.group[at(t->iterator)] != kSummed) continue;
      if (s->over != 1 || s->modulo != 0 || t->over != 1 || t->modulo != 0) continue;
      if (!alone(*s, dim.operand) || !alone(*t, dim.operand)) continue;
      if (s->coefficient < 0 || nested(d)) continue;
      view.pairs.push_back({s->iterator, t->iterator, s->coefficient, t->coefficient, dim.constant});
    }
    if (view.pairs.empty()) {
      reason(view, 1, "no index of the first operand slides over a sum");
      return;
    }
    constrain(view, "kernel", [&](const Pair& pair) { return state_.extent[at(pair.beside)]; });
    constrain(view, "stride", [](const Pair& pair) { return pair.stride; });
    constrain(view, "dilation", [](const Pair& pair) { return std::abs(pair.dilation); });
  }

  /// c[b, m + dilation*w + c, k] in the second operand.
  void banded(View& view) {
    for (int d = 0; d < state_.dims; ++d) {
      const Dim& dim = state_.dim[at(d)];
      if (dim.operand == view.first || dim.count != 2) continue;
      const Term *s = &state_.term[at(dim.first)], *t = s + 1;
      if (view.group[at(s->iterator)] == kColumns) std::swap(s, t);
      if (view.group[at(s->iterator)] != kBatch || view.group[at(t->iterator)] != kColumns) continue;
      if (s->over != 1 || s->modulo != 0 || t->over != 1 || t->modulo != 0) continue;
      if (!alone(*s, dim.operand) || !alone(*t, dim.operand) || s->coefficient != 1 || nested(d)) continue;
      view.pairs.push_back({s->iterator, t->iterator, 1, t->coefficient, dim.constant});
    }
    if (view.pairs.size() != 1) {
      reason(view, 1, "not one index of the second operand is a band");
      return;
    }
    constrain(view, "dilation", [](const Pair& pair) { return std::abs(pair.dilation); });
  }

  template <class Value>
  void constrain(View& view, const std::string& name, const Value& value) {
    const auto wanted = target_.attributes.find(name);
    if (wanted == target_.attributes.end()) return;
    std::vector<std::int64_t> has;
    for (const Pair& pair : view.pairs) has.push_back(value(pair));
    std::vector<std::int64_t> want = wanted->second;
    if (want.size() == 1) want.assign(has.size(), want[0]);
    std::sort(has.begin(), has.end());  // which dimension is the first one is nobody's business
    std::sort(want.begin(), want.end());
    int differ = static_cast<int>(std::max(has.size(), want.size()) - std::min(has.size(), want.size()));
    for (std::size_t i = 0; i < std::min(has.size(), want.size()); ++i) differ += has[i] != want[i] ? 1 : 0;
    if (differ > 0) reason(view, differ, fmt::format("its {} is {}", name, fmt::join(has, "x")));
  }

  /// Whether the iterator of a term moves no other dimension of the operand.
  bool alone(const Term& term, int operand) const {
    int times = 0;
    for (int d = 0; d < state_.dims; ++d) {
      const Dim& dim = state_.dim[at(d)];
      if (dim.operand != operand) continue;
      for (int t = dim.first; t < dim.first + dim.count; ++t)
        times += state_.term[at(t)].iterator == term.iterator ? 1 : 0;
    }
    return times == 1;
  }

  /// Whether the two terms of a dimension count like digits: then nothing slides.
  bool nested(int d) const {
    const Dim& dim = state_.dim[at(d)];
    const Term &s = state_.term[at(dim.first)], &t = state_.term[at(dim.first + 1)];
    const std::int64_t a = std::abs(s.coefficient), b = std::abs(t.coefficient);
    return a >= b * extent_of(state_, t) || b >= a * extent_of(state_, s);
  }

  /// Every element of an operand must be read by one value of its iterators: terms count like digits. Pairs
  /// slide, they need not.
  void addressed(View& view, int operand) {
    const bool sliding = op_ == Operator::Conv ? operand == view.first : operand != view.first;
    std::array<std::int64_t, kIterators> digits{};  // values that an operand tells apart
    digits.fill(1);
    for (int d = 0; d < state_.dims; ++d) {
      const Dim& dim = state_.dim[at(d)];
      if (dim.operand != operand) continue;
      std::array<const Term*, kTerms> terms;
      for (int t = 0; t < dim.count; ++t) {
        terms[at(t)] = &state_.term[at(dim.first + t)];
        digits[at(terms[at(t)]->iterator)] *= extent_of(state_, *terms[at(t)]);
      }
      const bool pair =
          sliding && dim.count == 2 && std::any_of(view.pairs.begin(), view.pairs.end(), [&](auto& p) {
            return (p.slides == terms[0]->iterator && p.beside == terms[1]->iterator) ||
                   (p.slides == terms[1]->iterator && p.beside == terms[0]->iterator);
          });
      if (pair || dim.count < 2) continue;
      std::sort(terms.begin(), terms.begin() + dim.count, [](const Term* a, const Term* b) {
        return std::abs(a->coefficient) < std::abs(b->coefficient);
      });
      std::int64_t reach = 0;
      for (int t = 0; t < dim.count; ++t) {
        const std::int64_t c = std::abs(terms[at(t)]->coefficient);
        if (c <= reach) reason(view, 1, "shares an index with another iterator", terms[at(t)]->iterator);
        reach += c * (extent_of(state_, *terms[at(t)]) - 1);
      }
    }
    for (int i = 0; i < state_.iterators; ++i)
      if ((masks_[at(i)] >> operand & 1) != 0 && digits[at(i)] < state_.extent[at(i)])
        reason(view, 1, "is read by some of its digits alone", i);
  }

  const State& state_;
  Operator op_;
  const Target& target_;
  const Space* explained_;
  std::array<std::uint8_t, kIterators> masks_;
  int operands_ = 0;
};

std::string sizes(const State& state, const View& view, Group group) {
  std::int64_t product = 1;
  std::vector<std::string> of;
  for (int i = 0; i < state.iterators; ++i)
    if (view.group[at(i)] == group) {
      product *= state.extent[at(i)];
      of.push_back(fmt::format("{}{}: {}", state.sum(i) ? 'r' : 'z', state.sum(i) ? i - state.traversals : i,
                               state.extent[at(i)]));
    }
  return of.size() < 2 ? std::to_string(product) : fmt::format("{} ({})", product, fmt::join(of, ", "));
}

std::int64_t product(const State& state, const View& view, Group group) {
  std::int64_t all = 1;
  for (int i = 0; i < state.iterators; ++i)
    if (view.group[at(i)] == group) all *= state.extent[at(i)];
  return all;
}

/// How an operand lies in memory as the library sees it: of each group the steps of its iterators in
/// elements.
struct Lying {
  bool copied = false;  ///< it has to be laid out: padded, or groups that are no one index
  std::map<Group, std::int64_t> steps;
  std::int64_t offset = 0;
};

Lying lying(const Space& space, const State& state, const View& view, int operand) {
  Lying found;
  const auto& shape = space.shapes[at(operand)];
  std::array<std::int64_t, kIterators> step{};
  std::vector<std::int64_t> dim_steps(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) dim_steps[d - 1] = dim_steps[d] * shape[d];
  for (int d = 0; d < state.dims; ++d) {
    const Dim& dim = state.dim[at(d)];
    if (dim.operand != operand) continue;
    const std::int64_t by = dim_steps[at(dim.source)] * dim.radix;
    std::int64_t least = dim.constant, most = dim.constant;
    found.offset += by * dim.constant;
    for (int t = dim.first; t < dim.first + dim.count; ++t) {
      const Term& term = state.term[at(t)];
      if (term.over != 1 || term.modulo != 0) found.copied = true;
      const std::int64_t reach = term.coefficient * (extent_of(state, term) - 1);
      (reach < 0 ? least : most) += reach;
      step[at(term.iterator)] += by * term.coefficient;
    }
    if (least < 0 || most >= dim.extent) found.copied = true;  // it is read outside: padding
  }
  for (const Group group : {kBatch, kRows, kColumns, kSummed}) {
    std::vector<std::pair<std::int64_t, std::int64_t>> own;  // step, extent
    for (int i = 0; i < state.iterators; ++i)
      if (view.group[at(i)] == group && step[at(i)] != 0) own.emplace_back(step[at(i)], state.extent[at(i)]);
    std::sort(own.begin(), own.end());
    for (std::size_t i = 0; i + 1 < own.size(); ++i)  // one index over all of them
      if (own[i + 1].first != own[i].first * own[i].second) found.copied = true;
    if (!own.empty()) found.steps[group] = own.front().first;
  }
  return found;
}

void add(Label& label, std::string name, std::vector<std::int64_t> values) {
  label.text += fmt::format(", {} {}", name, fmt::join(values, "x"));
  label.attributes.emplace_back(std::move(name), std::move(values));
}

void attributes_of_product(Label& label, const Space& space, const State& state, const View& view) {
  for (const int operand : {view.first, 1 - view.first}) {
    const Lying lies = lying(space, state, view, operand);
    const std::string& name = space.operand_names[at(operand)];
    const Group own = operand == view.first ? kRows : kColumns;
    const auto steps = [&](Group group) {
      const auto found = lies.steps.find(group);
      return found == lies.steps.end() ? 0 : found->second;
    };
    const std::int64_t k = steps(kSummed), m = steps(own);
    if (lies.copied || (k != 1 && m != 1) || m <= 0 || k <= 0 || lies.offset < 0) {
      label.copied.push_back(name);
      continue;
    }
    const bool transposed = operand == view.first ? k != 1 : k == 1;
    label.text += fmt::format(", {}{} as it lies", name, transposed ? " transposed" : "");
    add(label, fmt::format("transposed {}", name), {transposed ? 1 : 0});
    add(label, fmt::format("leading dimension {}", name), {std::max(k, m)});
    if (lies.offset != 0) add(label, fmt::format("offset {}", name), {lies.offset});
    if (view.count[kBatch] > 0) add(label, fmt::format("batch step {}", name), {steps(kBatch)});
  }
}

Label label_of(const Space& space, const State& state, Operator op, const View& view) {
  Label label;
  label.op = op;
  label.text = std::string(name_of(op));
  if (op == Operator::Matmul || op == Operator::BatchedMatmul) {
    if (op == Operator::BatchedMatmul) {
      label.attributes.emplace_back("b", std::vector{product(state, view, kBatch)});
      label.text += " b " + sizes(state, view, kBatch);
    }
    for (const auto& [name, group] :
         {std::pair("m", kRows), std::pair("n", kColumns), std::pair("k", kSummed)}) {
      label.attributes.emplace_back(name, std::vector{product(state, view, group)});
      label.text += fmt::format(" {} {}", name, sizes(state, view, group));
    }
    attributes_of_product(label, space, state, view);
  } else if (op == Operator::Conv) {
    std::vector<std::int64_t> kernel, stride, dilation, padding, size;
    std::int64_t channels = product(state, view, kSummed), batch = product(state, view, kRows);
    for (const Pair& pair : view.pairs) {
      kernel.push_back(state.extent[at(pair.beside)]);
      size.push_back(state.extent[at(pair.slides)]);
      stride.push_back(pair.stride);
      dilation.push_back(std::abs(pair.dilation));
      padding.push_back(-pair.constant - std::min<std::int64_t>(0, pair.dilation * (kernel.back() - 1)));
      channels /= kernel.back();
      batch /= size.back();
    }
    add(label, "kernel", kernel);
    add(label, "stride", stride);
    add(label, "dilation", dilation);
    add(label, "padding", padding);
    if (std::any_of(view.pairs.begin(), view.pairs.end(), [](const Pair& pair) { return pair.dilation < 0; }))
      add(label, "flipped", {1});
    add(label, "size", size);
    add(label, "batch", {batch});
    add(label, "groups", {product(state, view, kBatch)});
    add(label, "channels", {channels});
    add(label, "channels out", {product(state, view, kColumns)});
  } else {
    const Pair& pair = view.pairs.front();
    const std::int64_t length = state.extent[at(pair.slides)];
    add(label, "b", {product(state, view, kBatch) / length});
    add(label, "m", {length});
    add(label, "w", {product(state, view, kColumns)});
    add(label, "k", {product(state, view, kSummed)});
    add(label, "dilation", {std::abs(pair.dilation)});
    add(label, "first", {pair.constant});
  }
  for (int d = 0; d < state.dims; ++d) {
    const Dim& dim = state.dim[at(d)];
    const std::string& name = space.operand_names[at(dim.operand)];
    if (dim.radix != 1 && std::find(label.copied.begin(), label.copied.end(), name) == label.copied.end())
      label.copied.push_back(name);
  }
  if (!label.copied.empty()) label.text += fmt::format("; laid out anew: {}", fmt::join(label.copied, ", "));
  return label;
}

}  // namespace

std::string_view name_of(Operator op) {
  static constexpr std::array<std::string_view, kOperators> kNames{"matmul", "bmm", "conv", "g2bmm"};
  return kNames[static_cast<std::size_t>(op)];
}

Target parse_target(std::string_view text) {
  Target target;
  target.text = text;
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  for (int op = 0; op < kOperators; ++op)
    if (name == "any" || name == name_of(static_cast<Operator>(op)))
      target.operators.push_back(static_cast<Operator>(op));
  if (target.operators.empty())
    throw UnknownName(kWhere,
                      unknown_name("target", std::string(name), {"any", "matmul", "bmm", "conv", "g2bmm"}));
  if (colon == std::string_view::npos) return target;
  static const std::map<std::string_view, std::vector<std::string>> kAttributes{
      {"any", {}},
      {"matmul", {}},
      {"bmm", {}},
      {"conv", {"kernel", "stride", "dilation"}},
      {"g2bmm", {"dilation"}}};
  std::string_view rest = text.substr(colon + 1);
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    more = comma != std::string_view::npos;
    const std::string_view one = rest.substr(0, comma);
    rest = more ? rest.substr(comma + 1) : std::string_view{};
    const std::size_t equals = one.find('=');
    const std::string attribute(one.substr(0, equals));
    const auto& valid = kAttributes.at(name);
    if (std::find(valid.begin(), valid.end(), attribute) == valid.end()) {
      if (valid.empty()) fail<ParseError>(kWhere, "target '{}': {} has no attributes to choose", text, name);
      throw UnknownName(kWhere, unknown_name(fmt::format("attribute of {}", name), attribute, valid));
    }
    auto& values = target.attributes[attribute];
    std::string_view numbers = equals == std::string_view::npos ? std::string_view{} : one.substr(equals + 1);
    for (bool last = false; !last;) {
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(numbers.data(), numbers.data() + numbers.size(), value);
      const auto taken = static_cast<std::size_t>(end - numbers.data());
      last = taken == numbers.size();
      if (error != std::errc{} || value < 1 || (!last && numbers[taken] != 'x'))
        fail<ParseError>(kWhere, "target '{}': {} is a number of at least 1, or several as 3x3", text,
                         attribute);
      if (!last) numbers = numbers.substr(taken + 1);
      values.push_back(value);
    }
  }
  return target;
}

int distance(const State& state, Operator op, const Target& target, int limit) {
  return Matcher(state, op, target, nullptr).best(limit).apart;
}

int distance(const State& state, const Target& target, int limit) {
  int least = kFar;
  for (const Operator op : target.operators) {
    least = std::min(least, distance(state, op, target, std::min(limit, least)));
    if (least == 0) break;
  }
  return least;
}

std::vector<Label> labels_of(const Space& space, const State& state, const Target& target) {
  std::vector<Label> found;
  for (const Operator op : target.operators) {
    const View view = Matcher(state, op, target, nullptr).best(0);
    if (view.apart == 0) found.push_back(label_of(space, state, op, view));
  }
  return found;
}

std::string missing(const Space& space, const State& state, const Target& target) {
  std::string text;
  int least = kFar + 1;
  for (const Operator op : target.operators) {
    const View view = Matcher(state, op, target, &space).best(kFar);
    if (view.apart >= least || view.apart == 0) continue;
    least = view.apart;
    text = fmt::format("{}: {}", name_of(op), fmt::join(view.reasons, "; "));
  }
  return text;
}

}  // namespace syno::derive::packed
