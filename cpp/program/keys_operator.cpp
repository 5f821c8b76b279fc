// The operator key: an operator's terms as a product of factors (program/operator_terms.hpp), each
// fingerprinted up to renaming, joined so that the order of factors, sums, reads and weights does not count.
#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <unordered_map>

#include "program/keys.hpp"
#include "program/operator_terms.hpp"
#include "support/checked.hpp"
#include "support/error.hpp"
#include "symbolic/simplify.hpp"

namespace syno::program {

struct OperatorKeyCache::State {
  std::unordered_map<Hash128, detail::Fingerprint, HashKey> fingerprints;
  std::unordered_map<Hash128, bool, HashKey> products;
};

OperatorKeyCache::OperatorKeyCache() : state_(std::make_unique<State>()) {}
OperatorKeyCache::~OperatorKeyCache() = default;
OperatorKeyCache::OperatorKeyCache(OperatorKeyCache&&) noexcept = default;
OperatorKeyCache& OperatorKeyCache::operator=(OperatorKeyCache&&) noexcept = default;

namespace {

using detail::Factor;
using detail::Fingerprint;
using detail::Name;
using detail::Naming;
using detail::Place;
using detail::PlaceKind;
using detail::Space;
using symbolic::Expr;
using symbolic::Op;

constexpr std::size_t kMostCached = 1 << 18;  ///< entries; then the cache starts anew

/// The reads and the constant of a product of reads.
struct Product {
  std::vector<const Scalar*> reads;
  Rational constant = 1;
};

void gather(const Program& program, ScalarId id, Product& out) {
  const Scalar& scalar = program.scalar(id);
  switch (scalar.kind) {
    case ScalarKind::Read:
      out.reads.push_back(&scalar);
      return;
    case ScalarKind::Literal:
      out.constant = out.constant * scalar.literal;
      return;
    case ScalarKind::Unary:
      if (scalar.function == Function::Negate) {
        out.constant = out.constant * Rational(-1);
        gather(program, scalar.a, out);
        return;
      }
      break;
    case ScalarKind::Binary:
      if (scalar.function == Function::Multiply) {
        gather(program, scalar.a, out);
        gather(program, scalar.b, out);
        return;
      }
      if (scalar.function == Function::Divide && program.scalar(scalar.b).kind == ScalarKind::Literal &&
          program.scalar(scalar.b).literal != Rational(0)) {
        out.constant = out.constant / program.scalar(scalar.b).literal;
        gather(program, scalar.a, out);
        return;
      }
      break;
    default:
      break;
  }
  fail<VerifyError>("operator_key",
                    "operators are compared as sums of products of reads, but the body holds {}",
                    scalar.kind == ScalarKind::Unary || scalar.kind == ScalarKind::Binary
                        ? fmt::format("the function '{}'", name_of(scalar.function))
                        : std::string("a select or an index used as a number"));
}

class OperatorTerms {
 public:
  OperatorTerms(const Program& program, const std::vector<UnorderedDim>& unordered,
                OperatorKeyCache::State& cache)
      : program_(program),
        scope_(program.scopes.front()),
        unordered_(unordered),
        cache_(cache),
        space_{arena_, program.sizes, {}, {}, {}} {}

  Hash128 key() {
    gather(program_, scope_.body, product_);
    choose_rows();
    number_iterators();
    simplify_places();
    choose_namings();
    connect();
    return joined();
  }

 private:
  bool is_unordered(TensorId tensor, std::size_t dim) const {
    return std::find(unordered_.begin(), unordered_.end(), UnorderedDim{tensor, dim}) != unordered_.end();
  }
  bool is_weight(TensorId tensor) const { return program_.tensor(tensor).role == Role::Weight; }

  /// Different valuations, the least first: an order that depends on the sizes only.
  void choose_rows() {
    const Sizes& sizes = program_.sizes;
    if (sizes.valuation_count() == 0) {
      fail<SpecError>("operator_key",
                      "the program's sizes have no valuation yet; give its variables values first");
    }
    std::map<std::pair<double, std::vector<std::int64_t>>, std::size_t> rows;
    for (std::size_t v = 0; v < sizes.valuation_count(); ++v) {
      const auto values = sizes.valuation(v);
      double product = 1;
      for (const std::int64_t value : values) product *= static_cast<double>(value);
      rows.try_emplace({product, {values.begin(), values.end()}}, v);
    }
    for (const auto& [values, row] : rows) space_.rows.push_back(row);
    // The least valuation may be degenerate (a block that is a whole dimension); what is listed first decides
    // ties of effort only, so the order need not be better than this.
  }

  /// Slots here: traversal first, then sums. An iterator with one value at every row becomes that value.
  void number_iterators() {
    std::vector<const Iterator*> iterators;
    for (const Iterator& iterator : scope_.traversal) iterators.push_back(&iterator);
    for (const Iterator& iterator : scope_.sums) iterators.push_back(&iterator);
    replacement_.assign(program_.next_slot, ExprId{});
    for (const Iterator* iterator : iterators) {
      const auto slot = static_cast<std::uint32_t>(ranges_.size());
      const Range range{arena_.import(program_.arena, iterator->range.begin),
                        arena_.import(program_.arena, iterator->range.end)};
      ranges_.push_back(range);
      space_.begin.emplace_back();
      space_.extent.emplace_back();
      bool single = true;
      for (const std::size_t row : space_.rows) {
        const auto begin = evaluate(arena_, range.begin, program_.sizes, row, {});
        const auto end = evaluate(arena_, range.end, program_.sizes, row, {});
        if (!begin || !end || *end < *begin) {
          fail<VerifyError>("operator_key", "the range of iterator '{}' is empty or holds an inside()",
                            iterator->name);
        }
        space_.begin.back().push_back(*begin);
        space_.extent.back().push_back(*end - *begin);
        single &= *end - *begin == 1;
      }
      replacement_[iterator->slot] = single ? range.begin : arena_.iterator(slot);
    }
    parent_.resize(ranges_.size());
    std::iota(parent_.begin(), parent_.end(), 0u);
  }

  void simplify_places() {
    simplifier_.emplace(
        arena_, symbolic::Context{&program_.sizes, [this](std::uint32_t slot) { return ranges_[slot]; }});
    const auto renumbered = [&](ExprId id) {
      const ExprId here = arena_.import(program_.arena, id);
      return (*simplifier_)(arena_.substitute(here, [&](std::uint32_t slot) { return replacement_[slot]; }));
    };
    const auto legal = [&](const Range& range) {
      return Range{arena_.import(program_.arena, range.begin), arena_.import(program_.arena, range.end)};
    };
    const TensorId output = scope_.output;
    for (std::size_t d = 0; d < scope_.traversal.size(); ++d) {
      Place place;
      place.kind = is_unordered(output, d) ? PlaceKind::Unordered : PlaceKind::Ordered;
      place.dim = static_cast<std::uint32_t>(d);
      place.family = family(output, d);
      place.index = replacement_[scope_.traversal[d].slot];
      place.legal = legal(program_.tensor(output).dims[d]);
      places_.push_back(place);
    }
    for (std::size_t r = 0; r < product_.reads.size(); ++r) {
      const Scalar& read = *product_.reads[r];
      if (read.fill != Rational(0)) {
        fail<VerifyError>("operator_key",
                          "tensor '{}' is read with fill {}; operators are compared with fill 0 only",
                          program_.tensor(read.tensor).name, read.fill.to_text());
      }
      for (std::size_t d = 0; d < read.indices.size(); ++d) {
        Place place;
        const bool weight = is_weight(read.tensor);
        place.kind = weight                         ? PlaceKind::Weight
                     : is_unordered(read.tensor, d) ? PlaceKind::Unordered
                                                    : PlaceKind::Ordered;
        place.read = static_cast<std::uint32_t>(r + 1);
        place.dim = static_cast<std::uint32_t>(d);
        place.family = family(read.tensor, weight ? 0 : d);
        place.index = renumbered(read.indices[d]);
        place.legal = legal(program_.tensor(read.tensor).dims[d]);
        places_.push_back(place);
      }
    }
  }
  static std::uint32_t family(TensorId tensor, std::size_t dim) {
    return static_cast<std::uint32_t>(tensor) * 64 + static_cast<std::uint32_t>(dim);
  }
  bool read_again(TensorId tensor) const {
    return std::count_if(product_.reads.begin(), product_.reads.end(),
                         [&](const Scalar* read) { return read->tensor == tensor; }) > 1;
  }

  /// Every renaming of weights among themselves and of the reads of one tensor.
  void choose_namings() {
    std::vector<std::uint32_t> weights;
    for (const Scalar* read : product_.reads) {
      const auto tensor = static_cast<std::uint32_t>(read->tensor);
      if (is_weight(read->tensor) && std::find(weights.begin(), weights.end(), tensor) == weights.end()) {
        weights.push_back(tensor);
      }
    }
    std::vector<std::uint32_t> data;  // data tensors are told apart by their place among the inputs
    for (const TensorId id : program_.inputs()) {
      if (!is_weight(id)) data.push_back(static_cast<std::uint32_t>(id));
    }
    std::map<std::uint32_t, std::vector<std::size_t>> reads_of;
    for (std::size_t r = 0; r < product_.reads.size(); ++r) {
      reads_of[static_cast<std::uint32_t>(product_.reads[r]->tensor)].push_back(r + 1);
    }
    std::vector<Naming> result{Naming(product_.reads.size() + 1, Name{0, 0})};
    const auto extend = [&](const auto& ways, std::size_t count) {
      std::vector<std::uint32_t> order(count);
      std::iota(order.begin(), order.end(), 0u);
      std::vector<Naming> extended;
      do {
        for (const Naming& naming : result) extended.push_back(ways(naming, order));
      } while (std::next_permutation(order.begin(), order.end()));
      if (extended.size() > 720) {
        fail<VerifyError>("operator_key",
                          "{} weights and repeated reads can be exchanged in more than 720 ways",
                          product_.reads.size());
      }
      result = std::move(extended);
    };
    extend(
        [&](Naming naming, const std::vector<std::uint32_t>& order) {
          for (std::size_t w = 0; w < weights.size(); ++w) {
            for (const std::size_t r : reads_of[weights[w]]) naming[r].tensor = 1 + order[w];
          }
          return naming;
        },
        weights.size());
    for (const auto& [tensor, reads] : reads_of) {
      const auto place = std::find(data.begin(), data.end(), tensor) - data.begin();
      const bool weight = is_weight(TensorId{tensor});
      extend(
          [&](Naming naming, const std::vector<std::uint32_t>& order) {
            for (std::size_t i = 0; i < reads.size(); ++i) {
              if (!weight) naming[reads[i]].tensor = 0x1000 + static_cast<std::uint32_t>(place);
              naming[reads[i]].read = order[i];
            }
            return naming;
          },
          reads.size());
    }
    namings_ = std::move(result);
  }

  std::uint32_t root(std::uint32_t slot) {
    while (parent_[slot] != slot) slot = parent_[slot] = parent_[parent_[slot]];
    return slot;
  }
  void unite(std::span<const std::uint32_t> slots) {
    for (const std::uint32_t slot : slots)
      parent_[std::max(root(slot), root(slots[0]))] = std::min(root(slot), root(slots[0]));
  }

  /// Unites the iterators that share a coordinate, then those a weight ties together.
  void connect() {
    for (const Place& place : places_) {
      if (place.kind != PlaceKind::Weight) unite(arena_.iterators(place.index));
    }
    for (std::size_t r = 0; r < product_.reads.size(); ++r) {
      const TensorId tensor = product_.reads[r]->tensor;
      if (read_again(tensor)) {  // its elements are shared between the reads: all in one factor
        std::vector<std::uint32_t> slots;
        for (const Place& place : places_) {
          if (place.read == 0 || product_.reads[place.read - 1]->tensor != tensor) continue;
          if (place.kind == PlaceKind::Ordered) continue;
          const auto more = arena_.iterators(place.index);
          slots.insert(slots.end(), more.begin(), more.end());
        }
        if (!slots.empty()) unite(slots);
      } else if (is_weight(tensor)) {
        connect_weight(static_cast<std::uint32_t>(r + 1));
      }
    }
  }

  std::vector<Place> weight_places(std::uint32_t read) const {
    std::vector<Place> result;
    for (const Place& place : places_) {
      if (place.read == read) result.push_back(place);
    }
    return result;
  }

  void connect_weight(std::uint32_t read) {
    // Dimensions without a common factor are independent as they stand; only the others need a look at
    // values.
    std::vector<Place> left = weight_places(read);
    while (!left.empty()) {
      std::vector<Place> group{left.back()};
      left.pop_back();
      std::vector<std::uint32_t> roots = roots_of(group);
      for (bool grown = true; grown;) {
        grown = false;
        for (std::size_t i = 0; i < left.size(); ++i) {
          const auto other = roots_of({&left[i], 1});
          const bool touches = std::any_of(other.begin(), other.end(), [&](std::uint32_t r) {
            return std::find(roots.begin(), roots.end(), r) != roots.end();
          });
          if (!touches) continue;
          group.push_back(left[i]);
          left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
          roots = roots_of(group);
          grown = true;
          break;
        }
      }
      split_group(group, roots);
    }
  }
  std::vector<std::uint32_t> roots_of(std::span<const Place> places) {
    std::vector<std::uint32_t> roots;
    for (const Place& place : places) {
      for (const std::uint32_t slot : arena_.iterators(place.index)) roots.push_back(root(slot));
    }
    std::sort(roots.begin(), roots.end());
    roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
    return roots;
  }

  /// The finest split of `roots` into sets over which the weight's index is a product; each set is united.
  void split_group(const std::vector<Place>& group, std::vector<std::uint32_t> roots) {
    std::vector<std::uint32_t> slots;  // only iterators the index depends on
    for (const Place& place : group) {
      const auto more = arena_.iterators(place.index);
      slots.insert(slots.end(), more.begin(), more.end());
    }
    std::sort(slots.begin(), slots.end());
    slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
    while (roots.size() > 1) {
      const std::size_t rest = roots.size() - 1;
      std::size_t best = (std::size_t{1} << rest) - 1;
      if (rest <= 10) {
        std::vector<std::size_t> subsets((std::size_t{1} << rest) - 1);
        std::iota(subsets.begin(), subsets.end(), std::size_t{0});
        std::stable_sort(subsets.begin(), subsets.end(),
                         [](std::size_t a, std::size_t b) { return std::popcount(a) < std::popcount(b); });
        for (const std::size_t subset : subsets) {  // which of the others stay with the first
          std::vector<std::uint32_t> with, without;
          for (const std::uint32_t slot : slots) {
            const auto at =
                static_cast<std::size_t>(std::find(roots.begin(), roots.end(), root(slot)) - roots.begin());
            if (at == roots.size()) continue;  // split off before
            (at == 0 || (subset >> (at - 1) & 1) ? with : without).push_back(slot);
          }
          if (!splits(group, with, without)) continue;
          best = subset;
          break;
        }
      }
      std::vector<std::uint32_t> together{roots[0]}, others;
      for (std::size_t i = 0; i < rest; ++i) (best >> i & 1 ? together : others).push_back(roots[i + 1]);
      unite(together);
      roots = std::move(others);
    }
  }

  bool splits(const std::vector<Place>& group, const std::vector<std::uint32_t>& with,
              const std::vector<std::uint32_t>& without) {
    Hasher request;
    describe_slots(request, with);
    describe_slots(request, without);
    std::vector<std::uint32_t> slots = with;
    slots.insert(slots.end(), without.begin(), without.end());
    for (const Place& place : group) describe_place(request, place, slots);
    const Hash128 id = request.add(sizes_hash()).finish();
    const auto known = cache_.products.find(id);
    if (known != cache_.products.end()) return known->second;
    return remember(cache_.products, id, detail::is_product(space_, group, with, without));
  }

  /// The factors: united iterators with their coordinates. Those of one weight stand for its part here.
  std::vector<Factor> factors() {
    std::map<std::uint32_t, Factor> by_root;
    for (std::uint32_t slot = 0; slot < ranges_.size(); ++slot) {
      if (replacement_is_iterator(slot)) by_root[root(slot)].slots.push_back(slot);
    }
    std::vector<Factor> result;
    Factor constant;
    for (auto& [r, factor] : by_root) {
      for (const Place& place : places_) {
        const auto slots = arena_.iterators(place.index);
        const bool here =
            std::any_of(slots.begin(), slots.end(), [&](std::uint32_t s) { return root(s) == r; });
        if (!here && !(place.kind == PlaceKind::Weight && shared_here(place, r))) continue;
        factor.places.push_back(place);
        const bool foreign =
            std::any_of(slots.begin(), slots.end(), [&](std::uint32_t s) { return root(s) != r; });
        if (foreign) {  // of a weight's index: this factor's part is what is left with the others at rest
          factor.places.back().index = (*simplifier_)(arena_.substitute(place.index, [&](std::uint32_t slot) {
            return root(slot) == r ? arena_.iterator(slot) : ranges_[slot].begin;
          }));
        }
      }
      order_slots(factor);
      result.push_back(std::move(factor));
    }
    for (const Place& place : places_) {  // coordinates that stand still
      if (place.kind != PlaceKind::Weight && !arena_.has_iterator(place.index))
        constant.places.push_back(place);
    }
    result.push_back(std::move(constant));
    return result;
  }
  bool replacement_is_iterator(std::uint32_t slot) const {
    return std::any_of(space_.extent[slot].begin(), space_.extent[slot].end(),
                       [](std::int64_t e) { return e != 1; });
  }
  /// A weight that is read more than once is compared by its whole index.
  bool shared_here(const Place& place, std::uint32_t r) {
    const TensorId tensor = product_.reads[place.read - 1]->tensor;
    if (!read_again(tensor)) return false;
    return std::any_of(places_.begin(), places_.end(), [&](const Place& other) {
      if (other.read == 0 || product_.reads[other.read - 1]->tensor != tensor) return false;
      const auto slots = arena_.iterators(other.index);
      return std::any_of(slots.begin(), slots.end(), [&](std::uint32_t s) { return root(s) == r; });
    });
  }
  /// Iterators in the order they occur in the coordinates: equal factors then mostly read the same.
  void order_slots(Factor& factor) {
    std::vector<std::uint32_t> order;
    const auto visit = [&](auto&& self, ExprId id) -> void {
      if (!arena_.has_iterator(id)) return;
      const Expr& node = arena_[id];
      if (node.op == Op::Iterator) {
        const auto slot = static_cast<std::uint32_t>(node.a);
        if (std::find(order.begin(), order.end(), slot) == order.end()) order.push_back(slot);
        return;
      }
      self(self, node.a);
      if (node.op == Op::Add) self(self, arena_[id].b);
    };
    for (const Place& place : factor.places) visit(visit, place.index);
    for (const std::uint32_t slot : factor.slots) {
      if (std::find(order.begin(), order.end(), slot) == order.end()) order.push_back(slot);
    }
    factor.slots = std::move(order);
  }

  void describe(Hasher& out, ExprId id, std::span<const std::uint32_t> slots) const {
    const Expr& node = arena_[id];
    out.add(node.op).add(node.value);
    if (node.op == Op::Iterator) {
      const auto at = std::find(slots.begin(), slots.end(), static_cast<std::uint32_t>(node.a));
      out.add(static_cast<std::uint32_t>(at - slots.begin()));
      return;
    }
    const Size& size = arena_[node.size];
    out.add(size.factor().num()).add(size.factor().den());
    for (std::size_t v = 0; v < program_.sizes.variables().size(); ++v) {
      out.add(static_cast<std::int8_t>(size.exponent(v)));
    }
    if (node.op == Op::Constant || node.op == Op::SizeValue) return;
    describe(out, node.a, slots);
    if (node.op == Op::Add) describe(out, arena_[id].b, slots);
  }
  void describe_slots(Hasher& out, std::span<const std::uint32_t> slots) const {
    out.add(static_cast<std::uint32_t>(slots.size()));
    for (const std::uint32_t slot : slots) {
      describe(out, ranges_[slot].begin, {});
      describe(out, ranges_[slot].end, {});
    }
  }
  void describe_place(Hasher& out, const Place& place, std::span<const std::uint32_t> slots) const {
    out.add(place.kind).add(place.read).add(place.dim).add(place.family);
    describe(out, place.index, slots);
    describe(out, place.legal.begin, {});
    describe(out, place.legal.end, {});
  }
  Hash128 sizes_hash() {
    if (!sizes_hash_) {
      Hasher out;
      for (std::size_t v = 0; v < program_.sizes.valuation_count(); ++v) {
        for (const std::int64_t value : program_.sizes.valuation(v)) out.add(value);
      }
      sizes_hash_ = out.add(static_cast<std::uint64_t>(program_.sizes.variables().size())).finish();
    }
    return *sizes_hash_;
  }

  template <class Map, class Value>
  static typename Map::mapped_type& remember(Map& map, const Hash128& id, Value&& value) {
    if (map.size() >= kMostCached) map.clear();
    return map.insert_or_assign(id, std::forward<Value>(value)).first->second;
  }

  Fingerprint fingerprint(const Factor& factor) {
    Hasher request;
    describe_slots(request, factor.slots);
    for (const Place& place : factor.places) describe_place(request, place, factor.slots);
    for (const Naming& naming : namings_) {
      for (const Name& name : naming) request.add(name.tensor).add(name.read);
    }
    const Hash128 id = request.add(sizes_hash()).finish();
    const auto known = cache_.fingerprints.find(id);
    if (known != cache_.fingerprints.end()) return known->second;
    return remember(cache_.fingerprints, id, detail::fingerprint(space_, factor, namings_));
  }

  /// Row by row, so that it does not matter which iterators a part came from.
  Hash128 joined() {
    std::vector<Fingerprint> prints;
    std::size_t rows = space_.rows.size();
    std::vector<Rational> scale(rows, product_.constant);
    for (const Factor& factor : factors()) {
      if (factor.places.empty()) {  // sums that nothing depends on count as often as they run
        for (std::size_t row = 0; row < space_.rows.size(); ++row) {
          for (const std::uint32_t slot : factor.slots)
            scale[row] = scale[row] * Rational(space_.extent[slot][row]);
        }
        continue;
      }
      prints.push_back(fingerprint(factor));
      if (!prints.back().rows.empty()) rows = std::min(rows, prints.back().rows.size());
    }
    if (scope_.reduction == Reduction::Mean) {
      for (std::size_t row = 0; row < scale.size(); ++row) {
        for (std::size_t i = scope_.traversal.size(); i < ranges_.size(); ++i) {
          scale[row] = scale[row] / Rational(space_.extent[i][row]);
        }
      }
    }
    Hasher common;
    common.add(std::string_view("operator 1")).add(static_cast<std::uint64_t>(product_.reads.size()));
    common.add(static_cast<std::uint64_t>(scope_.traversal.size()));
    for (std::size_t row = 0; row < space_.rows.size(); ++row) {
      for (std::size_t d = 0; d < scope_.traversal.size(); ++d) common.add(space_.extent[d][row]);
    }
    for (std::size_t row = 0; row < rows; ++row) {
      for (const Fingerprint& print : prints) {
        if (row < print.rows.size()) scale[row] = scale[row] * Rational(print.rows[row].multiplicity);
      }
      common.add(scale[row].num()).add(scale[row].den());
    }
    std::optional<Hash128> least;
    for (std::size_t n = 0; n < namings_.size(); ++n) {
      Hasher whole = common;
      std::vector<Hash128> parts;
      for (std::size_t row = 0; row < rows; ++row) {
        std::map<std::uint32_t, Rational> free;  // by name of the weight
        parts.clear();
        for (const Fingerprint& print : prints) {
          if (row >= print.rows.size()) continue;
          for (const auto& [read, copies] : print.rows[row].free) {
            Rational& count = free.try_emplace(namings_[n][read].tensor, 1).first->second;
            count = count * Rational(copies);
          }
          const auto& more = print.rows[row].parts[n];
          parts.insert(parts.end(), more.begin(), more.end());
        }
        whole.add(static_cast<std::uint32_t>(free.size()));
        for (const auto& [name, copies] : free) whole.add(name).add(copies.num());
        add_sorted(whole, parts);
      }
      parts.clear();
      for (const Fingerprint& print : prints) {
        if (print.rows.empty()) parts.push_back(print.written[n]);
      }
      add_sorted(whole, parts);
      const Hash128 hash = whole.finish();
      if (!least || hash < *least) least = hash;
    }
    return *least;
  }
  static void add_sorted(Hasher& out, std::vector<Hash128>& parts) {
    std::sort(parts.begin(), parts.end());
    out.add(static_cast<std::uint32_t>(parts.size()));
    for (const Hash128& part : parts) out.add(part);
  }

  const Program& program_;
  const Scope& scope_;
  const std::vector<UnorderedDim>& unordered_;
  OperatorKeyCache::State& cache_;
  symbolic::Arena arena_;
  Space space_;
  Product product_;
  std::vector<ExprId> replacement_;  ///< by slot of the program
  std::vector<Range> ranges_;        ///< by slot here
  std::optional<symbolic::Simplifier> simplifier_;
  std::vector<Place> places_;
  std::vector<Naming> namings_;
  std::vector<std::uint32_t> parent_;  ///< union-find over slots
  std::optional<Hash128> sizes_hash_;
};

}  // namespace

Hash128 operator_key(const Program& program, const std::vector<UnorderedDim>& unordered,
                     OperatorKeyCache* cache) {
  if (program.outputs.size() != 1) {
    fail<VerifyError>("operator_key", "an operator has one output, this program has {}",
                      program.outputs.size());
  }
  if (program.scopes.size() != 1) {
    const Program fused = one_scope_form(program);
    SYNO_ASSERT(fused.scopes.size() == 1, "fusion leaves one scope for one output");
    return operator_key(fused, unordered, cache);
  }
  const Scope& scope = program.scopes.front();
  if (!scope.target.empty()) {
    fail<VerifyError>("operator_key", "'{}' accumulates at an index; operators are compared as gathers",
                      program.tensor(scope.output).name);
  }
  if (scope.reduction != Reduction::None && scope.reduction != Reduction::Sum &&
      scope.reduction != Reduction::Mean) {
    fail<VerifyError>("operator_key", "'{}' is reduced by other than a sum",
                      program.tensor(scope.output).name);
  }
  OperatorKeyCache own;
  return OperatorTerms(program, unordered, (cache ? *cache : own).state()).key();
}

}  // namespace syno::program
