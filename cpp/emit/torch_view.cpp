#include "emit/torch_view.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/checked.hpp"
#include "support/error.hpp"

namespace syno::emit {

namespace {

/// Views may copy so many times what is read: a table of places is slower to read than memory in order.
constexpr double kMostCopied = 4;

}  // namespace

using symbolic::Expr;
using symbolic::Op;

TorchView::TorchView(Indices& indices, std::string value, std::vector<std::int64_t> extents,
                     std::vector<ExprId> reads, std::string fill)
    : indices_(indices), value_(std::move(value)), fill_(std::move(fill)) {
  for (std::size_t d = 0; d < extents.size(); ++d) {
    dims_.push_back({false, 0, indices.simplified(reads[d]), extents[d]});
  }
  begun_ = elements();
}

TorchView::TorchView(Indices& indices, std::string value, const std::vector<Slot>& slots)
    : indices_(indices), value_(std::move(value)) {
  for (const Slot slot : slots) {
    ViewDim dim;
    dim.resolved = true;
    dim.slot = slot;
    dim.extent = indices.extent(slot);
    dims_.push_back(dim);
  }
}

double TorchView::elements() const {
  double product = 1;
  for (const ViewDim& dim : dims_) product *= static_cast<double>(dim.extent);
  return product;
}

void TorchView::copied() { largest_copy_ = std::max(largest_copy_, elements()); }

bool TorchView::copies_much() const { return largest_copy_ > kMostCopied * std::max(elements(), begun_); }

void TorchView::pad(const std::vector<std::pair<std::int64_t, std::int64_t>>& amounts) {
  const auto apply = [&](const auto& amount_of) {
    std::vector<std::int64_t> list;
    std::size_t needed = 0;
    for (std::size_t d = amounts.size(); d-- > 0;) {
      list.push_back(amount_of(amounts[d].first));
      list.push_back(amount_of(amounts[d].second));
      if (list.back() != 0 || list[list.size() - 2] != 0) needed = list.size();
    }
    if (needed == 0) return;
    list.resize(needed);
    value_ = fmt::format("F.pad({}, [{}]{})", value_, fmt::join(list, ", "),
                         fill_ == "0.0" ? "" : ", value=" + fill_);
  };
  // PyTorch crops before it pads: where more is cropped than there is, pad first.
  bool beyond = false;
  for (std::size_t d = 0; d < amounts.size(); ++d) {
    beyond = beyond || -std::min(amounts[d].first, amounts[d].second) >= dims_[d].extent;
    dims_[d].extent += amounts[d].first + amounts[d].second;
  }
  if (std::any_of(amounts.begin(), amounts.end(), [](const auto& a) { return a.first > 0 || a.second > 0; }))
    copied();
  if (!beyond) return apply([](std::int64_t amount) { return amount; });
  apply([](std::int64_t amount) { return std::max<std::int64_t>(amount, 0); });
  apply([](std::int64_t amount) { return std::min<std::int64_t>(amount, 0); });
}

void TorchView::select(std::size_t d, std::int64_t start, std::int64_t step, std::int64_t count) {
  const std::int64_t last = start + step * (count - 1);
  const std::int64_t low = std::min(start, last), high = std::max(start, last);
  std::vector<std::pair<std::int64_t, std::int64_t>> amounts(dims_.size());
  amounts[d] = {-low, high - (dims_[d].extent - 1)};
  pad(amounts);
  if (step == 0) {
    repeat(d, count);  // only a guard depends on the place
  } else if (step != 1 && step != -1) {
    std::string index;
    for (std::size_t i = 0; i < d; ++i) index += ":, ";
    append("[{}::{}]", index, std::abs(step));
  }
  if (step < 0) append(".flip({})", d);
  dims_[d].extent = count;
}

void TorchView::repeat(std::size_t d, std::int64_t count) {
  std::vector<std::int64_t> shape(dims_.size(), -1);
  shape[d] = count;
  append(".expand({})", fmt::join(shape, ", "));
  dims_[d].extent = count;
}

bool TorchView::peel_once(std::size_t d) {
  ViewDim& dim = dims_[d];
  symbolic::Arena& arena = indices_.arena();
  const auto form = indices_.affine(dim.index);
  if (form.terms.size() != 1) return false;
  const auto [atom, factor] = form.terms[0];
  const Expr node = arena[atom];
  if (node.op == Op::Iterator) {
    const auto slot = static_cast<Slot>(node.a);
    if (factor != 1 || form.constant != -indices_.range(slot).begin || dim.extent != indices_.extent(slot))
      return false;
    dim.resolved = true;
    dim.slot = slot;
    return false;
  }
  const std::int64_t size = symbolic::integer_of(arena, node.size);
  const symbolic::Interval inner = indices_.bounds(node.a);
  if (node.op == Op::Inside) {
    select(d, form.constant, factor, size);
    dims_[d].index = node.a;
    return true;
  }
  if (node.op == Op::Modulo) {
    select(d, form.constant, factor, size);
    const std::int64_t turn = floor_modulo(inner.least, size);
    if (turn != 0) append(".roll({}, {})", -turn, d);
    const std::int64_t span = inner.greatest - inner.least + 1;
    if (span > size) {
      std::vector<std::int64_t> repeats(dims_.size(), 1);
      repeats[d] = (span + size - 1) / size;
      append(".repeat({})", fmt::join(repeats, ", "));
      dims_[d].extent = repeats[d] * size;
      copied();
    }
    dims_[d].index = indices_.simplified(arena.add(node.a, arena.constant(-inner.least)));
    return true;
  }
  SYNO_ASSERT(node.op == Op::Divide, "an atom is an iterator, a guard, a remainder or a quotient");
  const std::int64_t first = floor_divide(inner.least, size), last = floor_divide(inner.greatest, size);
  select(d, form.constant + factor * first, factor, last - first + 1);
  append(".repeat_interleave({}, {})", size, d);
  dims_[d].extent *= size;
  copied();
  dims_[d].index = indices_.simplified(arena.add(node.a, arena.constant(-first * size)));
  return true;
}

/// [a / B, a % B] over [G, B] is one flat dimension read at a.
void TorchView::join_pairs() {
  const symbolic::Arena& arena = indices_.arena();
  const auto quotient_of = [&](ExprId id, ExprId inner, std::int64_t by) -> bool {
    const Expr& node = arena[id];
    if (node.op != Op::Divide) return false;
    if (node.a == inner) return symbolic::integer_of(arena, node.size) == by;
    const Expr& below = arena[inner];  // (a / C) / B is written a / (C*B)
    return below.op == Op::Divide && node.a == below.a &&
           symbolic::integer_of(arena, node.size) == symbolic::integer_of(arena, below.size) * by;
  };
  for (bool joined = true; joined;) {
    joined = false;
    for (std::size_t minor = 0; minor < dims_.size() && !joined; ++minor) {
      const Expr remainder = arena[dims_[minor].index];
      if (dims_[minor].resolved || remainder.op != Op::Modulo) continue;
      const std::int64_t block = symbolic::integer_of(arena, remainder.size);
      if (block != dims_[minor].extent) continue;
      for (std::size_t major = 0; major < dims_.size() && !joined; ++major) {
        if (dims_[major].resolved || !quotient_of(dims_[major].index, remainder.a, block)) continue;
        std::vector<std::size_t> order(dims_.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        order.erase(order.begin() + static_cast<std::ptrdiff_t>(minor));
        const auto at = std::find(order.begin(), order.end(), major);
        const auto position = static_cast<std::size_t>(at - order.begin());
        order.insert(at + 1, minor);
        permute(order);
        flatten(position, 2);
        dims_[position].index = remainder.a;
        joined = true;
      }
    }
  }
}

void TorchView::peel() {
  join_pairs();
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    while (!dims_[d].resolved && !dims_[d].kept && peel_once(d)) {
    }
  }
}

void TorchView::window(std::size_t d) {
  struct Term {
    ViewDim dim;
    std::int64_t factor;
    bool flip;
  };
  symbolic::Arena& arena = indices_.arena();
  const auto form = indices_.affine(dims_[d].index);
  std::vector<Term> terms, ones;
  for (const auto& [atom, factor] : form.terms) {
    const Slot slot = symbolic::slot_of(arena, atom);
    const symbolic::Interval range = indices_.bounds(atom);
    Term term{{}, std::abs(factor), factor < 0};
    term.dim.extent = range.greatest - range.least + 1;
    if (slot != symbolic::kNoSlot) {
      term.dim.resolved = true;
      term.dim.slot = slot;
    } else {
      term.dim.index = indices_.simplified(arena.add(atom, arena.constant(-range.least)));
    }
    (term.dim.extent == 1 || factor == 0 ? ones : terms).push_back(term);
  }
  std::stable_sort(terms.begin(), terms.end(),
                   [](const Term& a, const Term& b) { return a.factor > b.factor; });
  bool blocks = !terms.empty() && terms.back().factor == 1;
  for (std::size_t t = 0; t + 1 < terms.size(); ++t) {
    blocks = blocks && terms[t].factor == terms[t + 1].factor * terms[t + 1].dim.extent;
  }
  dims_.erase(dims_.begin() + static_cast<std::ptrdiff_t>(d));
  const auto insert = [&](std::size_t position, const Term& term) {
    dims_.insert(dims_.begin() + static_cast<std::ptrdiff_t>(position), term.dim);
    if (term.flip) append(".flip({})", position);
  };
  if (terms.empty()) {
    append(".squeeze({})", d);
  } else if (blocks) {
    std::vector<std::int64_t> extents;
    for (const Term& term : terms) extents.push_back(term.dim.extent);
    if (terms.size() > 1) append(".unflatten({}, ({}))", d, fmt::join(extents, ", "));
    for (std::size_t t = 0; t < terms.size(); ++t) insert(d + t, terms[t]);
  } else {
    // The longest walk stays in place; each further one is a window at the end.
    std::stable_sort(terms.begin(), terms.end(),
                     [](const Term& a, const Term& b) { return a.dim.extent > b.dim.extent; });
    std::size_t at = d;
    for (std::size_t t = 0; t < terms.size(); ++t) {
      if (t + 1 == terms.size()) {
        if (terms[t].factor != 1) {
          std::string index;
          for (std::size_t i = 0; i < at; ++i) index += ":, ";
          append("[{}::{}]", index, terms[t].factor);
        }
        insert(at, terms[t]);
        break;
      }
      std::int64_t rest = 1;
      for (std::size_t u = t + 1; u < terms.size(); ++u) rest += terms[u].factor * (terms[u].dim.extent - 1);
      append(".unfold({}, {}, {})", at, rest, terms[t].factor);
      insert(at, terms[t]);
      at = dims_.size();
    }
  }
  for (const Term& one : ones) {
    append(".unsqueeze({})", dims_.size());
    insert(dims_.size(), one);
    if (one.dim.extent != 1) repeat(dims_.size() - 1, one.dim.extent);
  }
}

void TorchView::resolve() {
  for (;;) {
    std::vector<std::pair<std::int64_t, std::int64_t>> amounts(dims_.size());
    bool open = false;
    for (std::size_t d = 0; d < dims_.size(); ++d) {
      if (dims_[d].resolved || dims_[d].kept) continue;
      open = true;
      const symbolic::Interval reach = indices_.bounds(dims_[d].index);
      amounts[d] = {-reach.least, reach.greatest - (dims_[d].extent - 1)};
    }
    if (!open) break;
    pad(amounts);
    for (std::size_t d = dims_.size(); d-- > 0;) {  // what window() adds comes at d or after
      if (!dims_[d].resolved && !dims_[d].kept) window(d);
    }
    peel();
  }
  take_diagonals();
}

void TorchView::take_diagonals() {
  for (std::size_t a = 0; a < dims_.size(); ++a) {
    for (std::size_t b = a + 1; b < dims_.size(); ++b) {
      if (!dims_[a].resolved || !dims_[b].resolved || dims_[a].slot != dims_[b].slot) continue;
      append(".diagonal(0, {}, {})", a, b);
      const ViewDim dim = dims_[a];
      dims_.erase(dims_.begin() + static_cast<std::ptrdiff_t>(b));
      dims_.erase(dims_.begin() + static_cast<std::ptrdiff_t>(a));
      dims_.push_back(dim);
      return take_diagonals();
    }
  }
}

void TorchView::permute(const std::vector<std::size_t>& order) {
  SYNO_ASSERT(order.size() == dims_.size(), "a permutation names every dimension");
  std::vector<ViewDim> permuted;
  for (const std::size_t d : order) permuted.push_back(dims_[d]);
  dims_ = std::move(permuted);
  if (!std::is_sorted(order.begin(), order.end())) append(".permute({})", fmt::join(order, ", "));
}

void TorchView::flip(const std::vector<std::size_t>& dims) {
  if (dims.empty()) return;
  append(".flip({})", fmt::join(dims, ", "));
  copied();
}

void TorchView::flatten(std::size_t first, std::size_t count) {
  ViewDim flat;
  flat.extent = 1;
  for (std::size_t d = first; d < first + count; ++d) flat.extent *= dims_[d].extent;
  if (count == 0) append(".unsqueeze({})", first);
  if (count == 1) flat = dims_[first];
  if (count > 1) append(".flatten({}, {})", first, first + count - 1);
  dims_.erase(dims_.begin() + static_cast<std::ptrdiff_t>(first),
              dims_.begin() + static_cast<std::ptrdiff_t>(first + count));
  dims_.insert(dims_.begin() + static_cast<std::ptrdiff_t>(first), flat);
}

void TorchView::sum(const std::vector<Slot>& slots) {
  std::vector<std::size_t> positions;
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    if (dims_[d].resolved && std::find(slots.begin(), slots.end(), dims_[d].slot) != slots.end())
      positions.push_back(d);
  }
  if (positions.empty()) return;
  append(".sum(({},))", fmt::join(positions, ", "));
  for (std::size_t i = positions.size(); i-- > 0;)
    dims_.erase(dims_.begin() + static_cast<std::ptrdiff_t>(positions[i]));
}

}  // namespace syno::emit
