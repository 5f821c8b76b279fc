// Random programs of two to six scopes, as text: chains and DAGs of reductions, element-wise functions,
// windows and rearrangements at small odd extents, with several operands, consumers and outputs.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/random.hpp"

namespace syno::testing {

class RandomChain {
 public:
  explicit RandomChain(std::uint64_t seed) : random_(seed) {}

  /// A text that program::parse() takes without options; the same for the same seed.
  std::string operator()() {
    const std::int64_t scopes = 2 + below(5);
    for (std::int64_t s = 0; s < scopes; ++s) add_scope();
    std::string text;
    for (const std::string& line : inputs_) text += line + "\n";
    for (const std::string& line : lines_) text += line + "\n";
    std::vector<std::string> outputs;
    for (const Tensor& tensor : tensors_)
      if (tensor.computed && (!tensor.read || chance(6))) outputs.push_back(tensor.name);
    return text + fmt::format("return {}\n", fmt::join(outputs, ", "));
  }

 private:
  using Extents = std::vector<std::int64_t>;
  struct Tensor {
    std::string name;
    Extents shape;
    bool computed = false, read = false;
  };
  struct Iterator {
    std::string name;
    std::int64_t extent = 1;
  };
  using Iterators = std::vector<Iterator>;

  static constexpr std::int64_t kMostElements = 3000, kMostPoints = 30'000;

  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(n)));
  }
  bool chance(std::int64_t n) { return below(n) == 0; }
  template <class T>
  const T& any(const std::vector<T>& from) {
    return from[random_.below(from.size())];
  }
  static std::int64_t product(const Iterators& iterators) {
    std::int64_t points = 1;
    for (const Iterator& iterator : iterators) points *= iterator.extent;
    return points;
  }

  std::int64_t extent() {
    static const Extents kOdd{1, 2, 3, 3, 4, 5, 5, 6, 7, 8, 9, 11, 13, 16, 17, 19};
    return any(kOdd);
  }

  std::string add_input(const Extents& shape) {
    const std::string name = fmt::format("{}{}", chance(2) ? "x" : "w", inputs_.size());
    inputs_.push_back(
        fmt::format("{} {}[{}]", name[0] == 'x' ? "input" : "weight", name, fmt::join(shape, ", ")));
    tensors_.push_back({name, shape});
    return name;
  }

  std::size_t source() {
    std::vector<std::size_t> computed;
    for (std::size_t t = 0; t < tensors_.size(); ++t)
      if (tensors_[t].computed) computed.push_back(t);
    if (!computed.empty() && !chance(6)) return chance(3) ? any(computed) : computed.back();
    if (!tensors_.empty() && chance(4)) return random_.below(tensors_.size());
    Extents shape;
    std::int64_t elements = 1;
    for (std::int64_t rank = 1 + below(4); rank > 0; --rank) {
      shape.push_back(extent());
      while (elements * shape.back() > kMostElements) shape.back() = (shape.back() + 1) / 2;
      elements *= shape.back();
    }
    add_input(shape);
    return tensors_.size() - 1;
  }

  /// What one scope is made of: its iterators, and how it reads its source.
  struct Draft {
    Iterators out, sums;
    std::string read;     ///< of the source
    bool covered = true;  ///< every window has a tap inside, so that -inf may stand for those outside
  };

  std::string letter() {
    static const std::string kLetters = "ijhwuvabcdefg";
    const auto n = static_cast<std::size_t>(letters_++);
    return n < kLetters.size() ? std::string(1, kLetters[n]) : fmt::format("i{}", n);
  }

  /// One dimension of `n` elements becomes an index over iterators that may be made for it.
  std::string index(Draft& draft, std::int64_t n, bool reduces) {
    const auto iterate = [&](Iterators& where, std::int64_t count) {
      where.push_back({letter(), count});
      return where.back().name;
    };
    switch (below(reduces ? 14 : 10)) {
      case 0:  // a slice, or further than the tensor reaches
        draft.covered = false;
        return fmt::format("{}+{}", iterate(draft.out, std::max<std::int64_t>(1, n - 1 + below(2))),
                           below(2));
      case 1:
        draft.covered = false;
        return fmt::format("{}-{}", iterate(draft.out, n + below(3)), 1 + below(2));
      case 2:
        switch (below(5)) {
          case 0:
            return fmt::format("({}+1)%{}", iterate(draft.out, n), n);
          case 1:
            return fmt::format("{}-{}", n - 1, iterate(draft.out, n));
          case 2:
            return fmt::format("{}/2", iterate(draft.out, std::min<std::int64_t>(2 * n, 19)));
          case 3:
            return fmt::format("2*{}", iterate(draft.out, (n + 1) / 2));
          default: {
            draft.covered = draft.covered && n % 2 == 0;
            const std::string blocks = iterate(draft.out, (n + 1) / 2);
            return fmt::format("2*{}+{}", blocks, iterate(draft.out, 2));
          }
        }
      case 3:
        if (n > 1 && chance(3)) return fmt::format("{}", below(n));
        return iterate(draft.out, n);
      default:
        return iterate(draft.out, n);
      case 10:
      case 11:
        return iterate(draft.sums, n);
      case 12:
      case 13: {
        const std::int64_t stride = chance(2) ? 1 : 1 + below(3), dilation = chance(3) ? 2 : 1;
        const std::int64_t taps = 1 + below(std::min<std::int64_t>(4, n + 1));
        const std::int64_t padding = below(dilation * (taps - 1) + 1);
        std::int64_t places = (n + 2 * padding - dilation * (taps - 1) - 1) / stride + 1;
        if (chance(6)) places += below(3) - 1;
        places = std::max<std::int64_t>(1, places);
        for (std::int64_t i = 0; i < places; ++i) {
          bool inside = false;
          for (std::int64_t r = 0; r < taps; ++r) {
            const std::int64_t at = stride * i + dilation * r - padding;
            inside = inside || (at >= 0 && at < n);
          }
          draft.covered = draft.covered && inside;
        }
        const std::string place = iterate(draft.out, places), tap = iterate(draft.sums, taps);
        return fmt::format("{}*{}+{}*{}-{}", stride, place, dilation, tap, padding);
      }
    }
  }

  static std::string list(const Iterators& iterators) {
    std::vector<std::string> words;
    for (const Iterator& iterator : iterators)
      words.push_back(fmt::format("{}: {}", iterator.name, iterator.extent));
    return fmt::format("{}", fmt::join(words, ", "));
  }

  /// Another operand over some of the iterators: a tensor there is whose extents fit, or a new one.
  std::string operand(const Iterators& iterators, bool all) {
    Iterators over;
    for (const Iterator& iterator : iterators)
      if (all || !chance(3)) over.push_back(iterator);
    for (std::size_t t = tensors_.size(); t-- > 0 && chance(2);) {
      std::vector<std::string> indices;
      std::vector<bool> used(iterators.size(), false);
      for (const std::int64_t n : tensors_[t].shape)
        for (std::size_t i = 0; i < iterators.size(); ++i)
          if (!used[i] && iterators[i].extent == n) {
            used[i] = true;
            indices.push_back(iterators[i].name);
            break;
          }
      if (indices.size() != tensors_[t].shape.size()) continue;
      tensors_[t].read = true;
      return fmt::format("{}[{}]", tensors_[t].name, fmt::join(indices, ", "));
    }
    if (over.size() > 1 && chance(3)) std::swap(over.front(), over.back());
    while (over.size() > 4 || product(over) > kMostElements) over.pop_back();
    Extents shape;
    std::vector<std::string> names;
    for (const Iterator& iterator : over) {
      shape.push_back(iterator.extent);
      names.push_back(iterator.name);
    }
    return fmt::format("{}[{}]", add_input(shape), fmt::join(names, ", "));
  }

  std::string function(const std::string& of) {
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
        return fmt::format("relu({})", of);
      case 3:
        return fmt::format("tanh({})", of);
      case 4:
        return fmt::format("sigmoid({})", of);
      case 5:
        return fmt::format("abs({})", of);
      case 6:
        return fmt::format("max({}, 0.1)", of);
      case 7:
        return fmt::format("-({})", of);
      case 8:
        return fmt::format("2*({})", of);
      case 9:
        return fmt::format("gelu({})", of);
      case 10:
        return fmt::format("exp(tanh({}))", of);
      default:
        return fmt::format("min({}, 0.3)", of);
    }
  }

  std::string joined(const std::string& a, const std::string& b) {
    static const std::vector<std::string> kOperators{" + ", " * ", " * ", " - "};
    return fmt::format("({}{}{})", a, any(kOperators), b);
  }

  Draft draft(std::size_t from, bool reduces) {
    Draft made;
    letters_ = 0;
    std::vector<std::string> indices;
    const Extents shape = tensors_[from].shape;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (d + 1 < shape.size() && chance(14)) {  // two dimensions flattened
        const std::int64_t whole = shape[d] * shape[d + 1];
        made.out.push_back({letter(), whole});
        indices.push_back(fmt::format("{}/{}", made.out.back().name, shape[d + 1]));
        indices.push_back(fmt::format("{}%{}", made.out.back().name, shape[d + 1]));
        ++d;
      } else {
        indices.push_back(index(made, shape[d], reduces));
      }
    }
    if (chance(reduces ? 2 : 6)) made.out.push_back({letter(), extent()});
    if (made.out.size() > 1 && chance(3))
      std::swap(made.out.front(), made.out[random_.below(made.out.size())]);
    made.read = fmt::format("{}[{}]", tensors_[from].name, fmt::join(indices, ", "));
    return made;
  }

  static bool small(const Draft& draft) {
    return draft.out.size() <= 5 && draft.sums.size() <= 4 && product(draft.out) <= kMostElements &&
           product(draft.out) * product(draft.sums) <= kMostPoints;
  }

  void add_scope() {
    const std::size_t from = source();
    const bool reduces = !chance(3);
    Draft made = draft(from, reduces);
    for (int tries = 0; !small(made) || (reduces && made.sums.empty() && tries < 6); ++tries) {
      if (tries == 60) return add_scope();  // a source too large for any: another one
      made = draft(from, reduces && tries < 40);
    }
    tensors_[from].read = true;
    if (chance(12) && !tensors_[from].shape.empty()) return add_softmax(from);
    if (chance(12)) return add_scatter(made);

    Iterators all = made.out;
    all.insert(all.end(), made.sums.begin(), made.sums.end());
    std::string body;
    if (made.sums.empty()) {
      body = made.read;
      if (chance(2)) body = joined(body, operand(made.out, false));
      if (chance(5)) body = fmt::format("({} + {}*{})", body, made.read, made.read);
      if (made.out.size() > 1 && chance(8))
        body =
            fmt::format("select({} < {}, {}, 0.5*{})", made.out[0].name, made.out[1].name, body, made.read);
      if (!chance(3)) body = function(body);
    } else {
      static const std::vector<std::string> kReductions{"sum", "sum", "sum",  "sum",  "max",
                                                        "min", "sum", "mean", "prod", "max"};
      std::string reduction = any(kReductions);
      if (reduction == "prod" && product(made.sums) > 6) reduction = "mean";
      body = made.read;
      if (made.covered && reduction == "max" && !chance(4)) body += " fill -inf";
      if (made.covered && reduction == "min" && !chance(4)) body += " fill inf";
      const bool plain = body == made.read;
      if (plain && chance(5)) body = function(body);
      if (plain && !chance(3)) body = joined(body, operand(all, chance(2)));
      if (reduction == "prod") body = fmt::format("(1 + {})", body);
      body = fmt::format("{}[{}] {}", reduction, list(made.sums), body);
      if (chance(4)) body = joined(fmt::format("({})", body), operand(made.out, false));
      if (chance(4)) body = function(body);
    }
    write(made.out, body);
  }

  void write(const Iterators& out, const std::string& body) {
    const std::string name = fmt::format("t{}", lines_.size());
    lines_.push_back(fmt::format("{}[{}] = {}", name, list(out), body));
    Extents shape;
    for (const Iterator& iterator : out) shape.push_back(iterator.extent);
    tensors_.push_back({name, std::move(shape), true});
  }

  void add_softmax(std::size_t from) {
    letters_ = 0;
    Iterators out;
    std::vector<std::string> rows;
    for (const std::int64_t n : tensors_[from].shape) {
      out.push_back({letter(), n});
      rows.push_back(out.back().name);
    }
    const auto read = [&](const std::string& last) {
      rows.back() = last;
      return fmt::format("{}[{}]", tensors_[from].name, fmt::join(rows, ", "));
    };
    const std::string here = read(out.back().name);
    const auto over = [&](const char* reduction, const std::string& name, const std::string& body) {
      return fmt::format("{}[{}: {}] {}", reduction, name, out.back().extent, body);
    };
    const std::string most = over("max", "l", read("l"));
    write(out, fmt::format("exp({} - ({})) / ({})", here, most,
                           over("sum", "k", fmt::format("exp({} - ({}))", read("k"), most))));
  }

  /// Results added to where an index says, as derivatives of windows are.
  void add_scatter(const Draft& made) {
    Iterators all = made.out;
    all.insert(all.end(), made.sums.begin(), made.sums.end());
    Extents shape;
    std::vector<std::string> target;
    for (std::size_t i = 0; i < made.out.size(); ++i) {
      const Iterator& place = made.out[i];
      if (i == 0 && !made.sums.empty()) {
        const std::int64_t stride = 1 + below(2);
        shape.push_back(stride * (place.extent - 1) + made.sums[0].extent);
        target.push_back(fmt::format("{}*{}+{}", stride, place.name, made.sums[0].name));
      } else {
        shape.push_back(place.extent);
        target.push_back(place.name);
      }
    }
    if (shape.empty())
      return write({}, made.sums.empty() ? made.read : fmt::format("sum[{}] {}", list(made.sums), made.read));
    const std::string name = fmt::format("t{}", lines_.size());
    lines_.push_back(fmt::format("{}[{}] : [{}][{}] += {}", name, fmt::join(shape, ", "), list(all),
                                 fmt::join(target, ", "), joined(made.read, operand(all, false))));
    tensors_.push_back({name, std::move(shape), true});
  }

  Random random_;
  std::vector<Tensor> tensors_;
  std::vector<std::string> inputs_, lines_;
  int letters_ = 0;
};

}  // namespace syno::testing
