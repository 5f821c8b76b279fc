// Random graphs for property tests: programs of several kinds, calls, diamonds, equal nodes, several outputs.
#pragma once

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.hpp"
#include "graph/interpret.hpp"
#include "program/builders.hpp"
#include "program/text.hpp"
#include "support/error.hpp"
#include "support/random.hpp"

namespace syno::graph::testing {

inline Program parsed(const std::string& text) { return program::parse(text); }

/// `i0: 3, i1: 4` and `i0, i1`: iterators over a shape.
inline std::string ranges(const Shape& shape, const std::string& letter = "i") {
  std::vector<std::string> all;
  for (std::size_t d = 0; d < shape.size(); ++d) all.push_back(fmt::format("{}{}: {}", letter, d, shape[d]));
  return fmt::format("{}", fmt::join(all, ", "));
}
inline std::string iterators(std::size_t rank, const std::string& letter = "i") {
  std::vector<std::string> all;
  for (std::size_t d = 0; d < rank; ++d) all.push_back(fmt::format("{}{}", letter, d));
  return fmt::format("{}", fmt::join(all, ", "));
}

/// y[i...] = body, where body says `X` for x[i...] and `B` for b[i...].
inline Program elementwise(const Shape& shape, std::string body, bool two = false) {
  const auto put = [&](const std::string& what, const std::string& with) {
    for (std::size_t at = 0; (at = body.find(what, at)) != std::string::npos; at += with.size())
      body.replace(at, what.size(), with);
  };
  const std::string at = iterators(shape.size());
  put("X", fmt::format("x[{}]", at));
  put("B", fmt::format("b[{}]", at));
  const std::string extents = fmt::format("{}", fmt::join(shape, ", "));
  return parsed(fmt::format("input x[{}]\n{}y[{}] = {}\n", extents,
                            two ? fmt::format("input b[{}]\n", extents) : "", ranges(shape), body));
}

/// y[i...] = x[indices], of an input of shape `from`.
inline Program reading(const Shape& from, const Shape& to, const std::vector<std::string>& indices) {
  return parsed(fmt::format("input x[{}]\ny[{}] = x[{}]\n", fmt::join(from, ", "), ranges(to),
                            fmt::join(indices, ", ")));
}

/// The same elements in their order: indices are digits of the place.
inline Program reshape(const Shape& from, const Shape& to) {
  std::vector<std::string> terms, indices;
  std::int64_t stride = 1;
  for (std::size_t d = to.size(); d-- > 0; stride *= to[d]) terms.push_back(fmt::format("i{}*{}", d, stride));
  const std::string place = terms.empty() ? "0" : fmt::format("{}", fmt::join(terms, " + "));
  stride = 1;
  for (std::size_t d = from.size(); d-- > 0; stride *= from[d])
    indices.insert(indices.begin(), fmt::format("({}) / {} % {}", place, stride, from[d]));
  return reading(from, to, indices);
}

inline Program permuted(const Shape& from, const std::vector<std::size_t>& order) {
  Shape to;
  std::vector<std::string> indices(from.size());
  for (std::size_t d = 0; d < order.size(); ++d) {
    to.push_back(from[order[d]]);
    indices[order[d]] = fmt::format("i{}", d);
  }
  return reading(from, to, indices);
}

class RandomGraph {
 public:
  explicit RandomGraph(std::uint64_t seed) : random_(seed) {}

  Graph operator()(std::size_t nodes = 12) {
    graph_ = Graph(below(3) == 0 ? "a name \"of\" words" : "net");
    const std::size_t inputs = 1 + below(3);
    for (std::size_t i = 0; i < inputs; ++i)
      graph_.add_input(tensor_name(fmt::format("x{}", i)), shape(),
                       below(5) == 0 ? ElementType::F64 : ElementType::F32);
    while (graph_.nodes().size() < nodes) step();
    const std::size_t outputs = 1 + below(4);
    for (std::size_t i = 0; i < outputs; ++i) graph_.outputs.push_back(any());
    if (below(4) == 0) graph_.outputs.push_back(graph_.outputs[0]);
    return std::move(graph_);
  }

 private:
  std::uint64_t below(std::uint64_t n) { return random_.below(n); }
  Shape shape() {
    Shape made;
    for (std::size_t d = 1 + below(3); d > 0; --d) made.push_back(1 + static_cast<std::int64_t>(below(4)));
    return made;
  }
  std::string tensor_name(const std::string& wanted) {
    return graph_.fresh_tensor_name(below(8) == 0   ? wanted + " \"ä\\"
                                    : below(4) == 0 ? "a." + wanted
                                                    : wanted);
  }
  std::string node_name() { return graph_.fresh_node_name(below(6) == 0 ? "ein Knoten" : "n"); }
  TensorId any() { return TensorId{static_cast<std::uint32_t>(below(graph_.tensors().size()))}; }
  /// A tensor that programs read; late ones often, so that chains grow.
  TensorId operand() {
    for (;;) {
      const std::size_t count = graph_.tensors().size();
      const auto id =
          below(2) == 0
              ? any()
              : TensorId{static_cast<std::uint32_t>(count - 1 - below(std::min<std::size_t>(count, 3)))};
      const Tensor& tensor = graph_.tensor(id);
      if (computes(tensor.type) && element_count(tensor) <= 64) return id;
    }
  }
  void add(const Program& program, std::vector<TensorId> inputs) {
    const ElementType type = graph_.tensor(inputs[0]).type;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < program.outputs.size(); ++i) {
      std::string wanted = tensor_name(fmt::format("t{}", graph_.tensors().size()));
      if (i > 0) wanted += "_b";
      names.push_back(wanted);
    }
    graph_.add_program(node_name(), program, std::move(inputs), names, type);
  }
  void call(const std::string& function, const std::string& attributes, std::vector<TensorId> inputs,
            Shape to, ElementType type) {
    const std::string name = tensor_name(fmt::format("c{}", graph_.tensors().size()));
    graph_.add_call(node_name(), function, attributes, std::move(inputs),
                    {{name, std::move(to), type, Role::Computed}});
  }

  void step() {
    const TensorId x = operand();
    const Shape s = graph_.tensor(x).shape;
    const ElementType type = graph_.tensor(x).type;
    const std::size_t rank = s.size();
    switch (below(16)) {
      case 0:
      case 1: {
        const char* bodies[] = {"max(X, 0)", "X * X - 1/2", "tanh(X)", "X + index(i0)"};
        return add(elementwise(s, rank > 0 ? bodies[below(4)] : "X * 2"), {x});
      }
      case 2: {
        for (std::uint32_t t = static_cast<std::uint32_t>(graph_.tensors().size()); t-- > 0;)
          if (graph_.tensors()[t].shape == s && graph_.tensors()[t].type == type && below(2) == 0)
            return add(elementwise(s, below(2) == 0 ? "X + B" : "X * B - X", true), {x, TensorId{t}});
        return;
      }
      case 3: {  // a reduction over the last dimension
        if (rank < 2) return;
        const Shape to(s.begin(), s.end() - 1);
        return add(
            parsed(fmt::format("input x[{}]\ny[{}] = {}[k: {}] x[{}, k]\n", fmt::join(s, ", "), ranges(to),
                               below(2) == 0 ? "sum" : "max", s.back(), iterators(to.size()))),
            {x});
      }
      case 4:
        if (rank == 0) return;
        return add(program::softmax(s, below(rank)), {x});
      case 5: {  // with a weight, which later nodes may read, too
        if (rank < 2) return;
        const auto columns = 1 + static_cast<std::int64_t>(below(3));
        Shape to(s.begin(), s.end() - 1);
        const Program layer = parsed(fmt::format(
            "input x[{}]\nweight w[{}, {}]\ny[{}, j: {}] = sum[k: {}] x[{}, k] * w[k, j]\n",
            fmt::join(s, ", "), s.back(), columns, ranges(to), columns, s.back(), iterators(to.size())));
        for (std::uint64_t layers = below(3) == 0 ? 2 : 1; layers > 0;
             --layers) {  // alone, or beside another
          const TensorId w = graph_.add_weight(tensor_name(fmt::format("w{}", graph_.tensors().size())),
                                               {s.back(), columns}, type);
          add(layer, {x, w});
        }
        if (below(2) == 0) return;
        // ... whose result has a scale and a shift
        const TensorId made = graph_.nodes().back().outputs[0];
        to.push_back(columns);
        const auto further = [&] {
          return graph_.add_weight(tensor_name(fmt::format("s{}", graph_.tensors().size())), {columns}, type);
        };
        const TensorId scale = further(), shift = further();
        const std::string at = iterators(to.size()), last = fmt::format("i{}", to.size() - 1);
        return add(
            parsed(fmt::format("input x[{}]\ninput s[{}]\ninput t[{}]\ny[{}] = x[{}] * s[{}] + t[{}]\n",
                               fmt::join(to, ", "), columns, columns, ranges(to), at, last, last)),
            {made, scale, shift});
      }
      case 6:
      case 7: {
        std::vector<std::size_t> order(rank);
        for (std::size_t d = 0; d < rank; ++d) order[d] = d;
        for (std::size_t d = rank; d > 1; --d) std::swap(order[d - 1], order[below(d)]);
        return add(permuted(s, order), {x});
      }
      case 8:
      case 9: {
        std::int64_t count = element_count(graph_.tensor(x));
        Shape to;
        for (std::int64_t factor = 2; factor <= 4; ++factor)
          if (count % factor == 0 && below(2) == 0) {
            to.push_back(factor);
            count /= factor;
          }
        to.push_back(count);
        return add(reshape(s, to), {x});
      }
      case 10:
        return add(elementwise(s, "X"), {x});
      case 11: {  // a slice, an expansion, a padding, a reversal of the first dimension
        if (rank == 0) return;
        Shape to = s;
        std::vector<std::string> indices;
        for (std::size_t d = 0; d < rank; ++d) indices.push_back(fmt::format("i{}", d));
        const std::uint64_t kind = below(4);
        if (kind == 0 && s[0] > 1) --to[0], indices[0] = "i0 + 1";
        if (kind == 1) to[0] *= 2, indices[0] = "i0 / 2";
        if (kind == 2) to[0] += 2, indices[0] = "i0 - 1";
        if (kind == 3) indices[0] = fmt::format("{} - i0", s[0] - 1);
        return add(reading(s, to, indices), {x});
      }
      case 12: {  // two outputs, one of which reads the other
        const std::string at = iterators(rank), over = ranges(s);
        return add(
            parsed(fmt::format("input x[{}]\ny[{}] = x[{}] * 2\nz[{}] = y[{}] + x[{}]\nreturn {}\n",
                               fmt::join(s, ", "), over, at, over, at, at, below(2) == 0 ? "y, z" : "z, y")),
            {x});
      }
      case 13:
        switch (below(4)) {
          case 0:
            return call("copy", fmt::format("{{\"shape\": [{}]}}", element_count(graph_.tensor(x))), {x},
                        {element_count(graph_.tensor(x))}, type);
          case 1:
            return call("cast", R"({"to": "float64"})", {x}, s, ElementType::F64);
          case 2:
            return call("cast", R"({"to": "float32"})", {x}, s, ElementType::F32);
          default: {
            if (rank == 0) return;
            Shape to = s;
            to.erase(to.begin());
            call("argmax", R"({"axis": 0})", {x}, to, ElementType::I64);
            const TensorId indices = graph_.nodes().back().outputs[0];
            to.insert(to.end(), s.begin() + 1, s.end());
            return call("gather", R"({"negative": true})", {x, indices}, to, type);
          }
        }
      case 14:
        return call("host.mix",
                    below(3) == 0 ? R"({"k": 2, "random": true})" : fmt::format(R"({{"k": {}}})", below(2)),
                    {x, x}, s, type);
      default: {  // an equal node
        if (graph_.nodes().empty()) return;
        const Node node = graph_.nodes()[below(graph_.nodes().size())];
        if (!node.is_call()) return add(node.program->program, node.inputs);
        const Tensor made = graph_.tensor(node.outputs[0]);
        return call(node.function, node.attributes, node.inputs, made.shape, made.type);
      }
    }
  }

  Random random_;
  Graph graph_;
};

/// Values for all inputs and weights, by name: multiples of 1/8.
inline std::map<std::string, Values> random_values(const Graph& graph, std::uint64_t seed) {
  std::map<std::string, Values> made;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role == Role::Computed) continue;
    Random random = Random(seed).fork(tensor.name);
    Values values{tensor.shape, {}};
    for (std::int64_t i = element_count(tensor); i > 0; --i)
      values.data.push_back((static_cast<double>(random.below(33)) - 16) / 8);
    made.emplace(tensor.name, std::move(values));
  }
  return made;
}

/// What the host's function is: of its attributes and inputs, and where it is random of its name.
inline std::vector<Values> host(const Node& node, const std::vector<Values>& inputs) {
  Values made = inputs[0];
  const double shift = is_random(node) ? static_cast<double>(hash_text(node.name).low % 97) : 1;
  for (std::size_t i = 0; i < made.data.size(); ++i)
    made.data[i] = made.data[i] * 3 - inputs[1].data[i] + shift + static_cast<double>(node.attributes.size());
  return {made};
}

/// The outputs in the graph's order.
inline std::vector<Values> outputs_of(const Graph& graph, const std::map<std::string, Values>& given) {
  const auto made = interpret(graph, given, host);
  std::vector<Values> all;
  for (const TensorId output : graph.outputs) all.push_back(made.at(graph.tensor(output).name));
  return all;
}

/// `about`: up to the rounding of a few operations.
inline bool equal(const std::vector<Values>& a, const std::vector<Values>& b, bool about = false) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].shape != b[i].shape || a[i].data.size() != b[i].data.size()) return false;
    for (std::size_t j = 0; j < a[i].data.size(); ++j)
      if (!(a[i].data[j] == b[i].data[j] || (std::isnan(a[i].data[j]) && std::isnan(b[i].data[j])) ||
            (about && std::abs(a[i].data[j] - b[i].data[j]) <= 1e-9 * (1 + std::abs(a[i].data[j])))))
        return false;
  }
  return true;
}

}  // namespace syno::graph::testing
