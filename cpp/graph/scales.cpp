#include "graph/scales.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "graph/fresh_name.hpp"
#include "graph/rebuild.hpp"
#include "graph/views.hpp"
#include "program/scalars.hpp"
#include "support/error.hpp"
#include "support/shown.hpp"
#include "symbolic/affine.hpp"

namespace syno::graph {

namespace {

using program::Program;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using program::Scope;

/// Which tensors weights alone give, by id.
std::vector<bool> constants(const Graph& graph) {
  std::vector<bool> found(graph.tensors().size());
  for (const TensorId weight : graph.with_role(Role::Weight)) found[place(weight)] = true;
  for (const std::string& name : constant_nodes(graph))
    for (const TensorId output : graph.nodes()[graph.node_named(name)].outputs) found[place(output)] = true;
  return found;
}

/// A program whose scopes only say what an element is, none of them adding to what is there.
bool is_plain(const Program& program) {
  return std::all_of(program.scopes.begin(), program.scopes.end(),
                     [](const Scope& scope) { return scope.target.empty(); });
}

/// Whether a read is of [i0, i1, ...], all that the scope writes and in its order.
bool reads_in_place(const Program& program, const Scope& scope, const Scalar& read) {
  if (read.indices.size() != scope.traversal.size()) return false;
  const auto from = program::shape_of(program, read.tensor);
  for (std::size_t d = 0; d < read.indices.size(); ++d) {
    const auto range = program::extent_of(program, scope.traversal[d].range, 0);
    if (symbolic::slot_of(program.arena, read.indices[d]) != scope.traversal[d].slot || range.begin != 0 ||
        range.end != from[d])
      return false;
  }
  return true;
}

// The factor
// ---------------------------------------------------------------------------------------------------

/// What one element of a node's input is multiplied by.
struct Scaling {
  std::vector<ScalarId> scalars;   ///< of the node's body: their product ...
  std::vector<ScalarId> divisors;  ///< ... divided by these
  std::set<std::size_t> dims;      ///< of the input, along which it differs
  ScalarId product{};              ///< of the body: the term that has it
  std::vector<ScalarId> left;      ///< what is left of the term
};

class ScalingOf {
 public:
  ScalingOf(const Program& program, program::TensorId input, const std::vector<bool>& constant)
      : program_(program), input_(input), constant_(constant) {}

  std::optional<Scaling> find() {
    const Scope& scope = program_.scopes[0];
    if (program_.scopes.size() != 1 || scope.reduction != program::Reduction::None || !is_plain(program_) ||
        program_.outputs.size() != 1 || program::count_reads(program_, scope.body, input_) != 1)
      return std::nullopt;
    Scaling made;
    if (!look(scope.body, made) || (made.scalars.empty() && made.divisors.empty())) return std::nullopt;
    return made;
  }

 private:
  bool has_input(ScalarId id) const { return program::reads_tensor(program_, id, input_); }

  bool look(ScalarId id, Scaling& made) const {
    const Scalar& scalar = program_.scalar(id);
    using enum program::Function;
    if (program::is_call(scalar, Add) || program::is_call(scalar, Subtract))
      return look(has_input(scalar.a) ? scalar.a : scalar.b, made);
    if (program::is_call(scalar, Negate)) return look(scalar.a, made);
    made.product = id;
    if (program::is_call(scalar, Divide)) {
      const auto dims = dims_of(scalar.b);
      if (!dims) return false;
      made.divisors.push_back(scalar.b);
      made.dims = *dims;
      return product(scalar.a, made);
    }
    return program::is_call(scalar, Multiply) && product(id, made);
  }

  bool product(ScalarId id, Scaling& made) const {
    for (const ScalarId factor : program::factors_of(program_, id)) {
      if (has_input(factor)) {
        const Scalar& read = program_.scalar(factor);
        if (read.kind != ScalarKind::Read || !reads_in_place(program_, program_.scopes[0], read))
          return false;
        made.left.push_back(factor);
      } else if (auto dims = dims_of(factor)) {
        made.scalars.push_back(factor);
        made.dims.insert(dims->begin(), dims->end());
      } else {
        made.left.push_back(factor);
      }
    }
    return true;
  }

  /// The dimensions along which what weights alone give differs; nothing for anything else.
  std::optional<std::set<std::size_t>> dims_of(ScalarId id) const {
    bool constant = true;
    std::set<std::size_t> dims;
    const Scope& scope = program_.scopes[0];
    program::visit(program_, id, [&](ScalarId, const Scalar& scalar) {
      constant = constant && (scalar.kind != ScalarKind::Read || constant_[place_of(scalar.tensor)]);
      program::over_indices(scalar, [&](symbolic::ExprId index) {
        for (const std::uint32_t slot : program_.arena.iterators(index))
          for (std::size_t d = 0; d < scope.traversal.size(); ++d)
            if (scope.traversal[d].slot == slot) dims.insert(d);
      });
      return constant;
    });
    if (!constant) return std::nullopt;
    return dims;
  }
  static std::size_t place_of(program::TensorId tensor) { return static_cast<std::size_t>(tensor); }

  const Program& program_;
  program::TensorId input_;
  const std::vector<bool>& constant_;  ///< by tensor of the program
};

// The weights that take it
// ------------------------------------------------------------------------------------------

/// A tensor that a program is given, and which of its dimensions are those of the factor.
struct Taker {
  program::TensorId tensor{};
  std::map<std::size_t, std::size_t> dims;  ///< of the factor's input -> of the tensor
};

/// Which weights of a layer are to be multiplied so that its result is.
class Takers {
 public:
  Takers(const Program& program, const std::vector<bool>& constant, const std::set<std::size_t>& dims)
      : program_(program), constant_(constant), dims_(dims) {}

  std::optional<std::vector<Taker>> find() {
    if (program_.outputs.size() != 1 || !is_plain(program_) || !computed(program_.outputs[0]))
      return std::nullopt;
    std::map<program::TensorId, std::int64_t> reads;
    for (const Scope& scope : program_.scopes)
      for (const ScalarId id : program::reads_in(program_, scope.body)) ++reads[program_.scalar(id).tensor];
    for (const program::TensorId once : touched_)
      if (reads[once] != 1) return std::nullopt;
    return std::move(found_);
  }

 private:
  bool computed(program::TensorId tensor) {
    const Scope* writer = nullptr;
    for (const Scope& scope : program_.scopes)
      if (scope.output == tensor) {
        if (writer != nullptr) return false;
        writer = &scope;
      }
    if (writer == nullptr) return false;
    using enum program::Reduction;
    if (writer->reduction != None && writer->reduction != Sum && writer->reduction != Mean) return false;
    for (const program::Iterator& iterator : writer->traversal)
      if (program::extent_of(program_, iterator.range, 0).begin != 0) return false;
    return linear(*writer, writer->body);
  }

  /// Each term of a body has one factor that can take it.
  bool linear(const Scope& scope, ScalarId id) {
    const Scalar& scalar = program_.scalar(id);
    using enum program::Function;
    switch (scalar.kind) {
      case ScalarKind::Literal:
        return scalar.literal == Rational(0);
      case ScalarKind::Read:
        return read(scope, scalar);
      case ScalarKind::Unary:
        return scalar.function == Negate && linear(scope, scalar.a);
      case ScalarKind::Select:
        return linear(scope, scalar.b) && linear(scope, scalar.c);
      case ScalarKind::Binary:
        break;
      case ScalarKind::Index:
        return false;
    }
    if (scalar.function == Add || scalar.function == Subtract)
      return linear(scope, scalar.a) && linear(scope, scalar.b);
    if (scalar.function == Divide) return linear(scope, scalar.a);
    if (scalar.function != Multiply) return false;
    for (const ScalarId factor : program::factors_of(program_, id)) {
      const auto found = found_.size(), touched = touched_.size();
      if (linear(scope, factor)) return true;
      found_.resize(found);
      touched_.resize(touched);
    }
    return false;
  }

  bool read(const Scope& scope, const Scalar& scalar) {
    if (scalar.fill != Rational(0)) return false;
    touched_.push_back(scalar.tensor);
    const program::Role role = program_.tensor(scalar.tensor).role;
    if (role == program::Role::Computed)
      return reads_in_place(program_, scope, scalar) && computed(scalar.tensor);
    if (role == program::Role::Constant || !constant_[static_cast<std::size_t>(scalar.tensor)]) return false;
    Taker taker{scalar.tensor, {}};
    const auto shape = program::shape_of(program_, scalar.tensor);
    for (std::size_t t = 0; t < scalar.indices.size(); ++t) {
      const std::uint32_t slot = symbolic::slot_of(program_.arena, scalar.indices[t]);
      for (const std::size_t d : dims_)
        if (d < scope.traversal.size() && slot == scope.traversal[d].slot &&
            program::extent_of(program_, scope.traversal[d].range, 0).end == shape[t])
          taker.dims.emplace(d, t);
    }
    if (taker.dims.size() != dims_.size()) return false;
    found_.push_back(std::move(taker));
    return true;
  }

  const Program& program_;
  const std::vector<bool>& constant_;
  const std::set<std::size_t>& dims_;
  std::vector<Taker> found_;
  std::vector<program::TensorId> touched_;  ///< tensors on the way: nothing else may read them
};

// Sites
// ---------------------------------------------------------------------------------------------------------

struct Site {
  std::size_t scaled = 0, layer = 0;  ///< nodes
  std::size_t input = 0;              ///< of the scaled one: the layer's result
  Scaling factor;
  std::vector<Taker> takers;
};

/// By tensor of a node's program: whether weights alone give it.
std::vector<bool> constants_of(const Node& node, const std::vector<bool>& constant) {
  const Program& program = node.program->program;
  std::vector<bool> made(program.tensors.size());
  const auto inputs = program.inputs();
  for (std::size_t i = 0; i < inputs.size(); ++i)
    made[static_cast<std::size_t>(inputs[i])] = constant[place(node.inputs[i])];
  for (std::size_t t = 0; t < made.size(); ++t)
    if (program.tensors[t].role == program::Role::Constant) made[t] = true;
  return made;
}

class Search {
 public:
  explicit Search(const Graph& graph)
      : graph_(graph), constant_(constants(graph)), producers_(producers(graph)), readers_(readers(graph)) {}

  std::optional<Site> at(std::size_t n) const {
    const Node& node = graph_.nodes()[n];
    if (node.is_call()) return std::nullopt;
    const Program& program = node.program->program;
    const auto inputs = program.inputs();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const TensorId tensor = node.inputs[i];
      const auto layer = producers_[place(tensor)];
      if (!layer || constant_[place(tensor)] || graph_.nodes()[*layer].is_call() ||
          readers_[place(tensor)].size() != 1 ||
          std::count(node.inputs.begin(), node.inputs.end(), tensor) != 1 ||
          std::find(graph_.outputs.begin(), graph_.outputs.end(), tensor) != graph_.outputs.end() ||
          type_of(graph_, node) != type_of(graph_, graph_.nodes()[*layer]))
        continue;
      auto factor = ScalingOf(program, inputs[i], constants_of(node, constant_)).find();
      if (!factor) continue;
      const Node& made = graph_.nodes()[*layer];
      auto takers = Takers(made.program->program, constants_of(made, constant_), factor->dims).find();
      if (takers && !takers->empty()) return Site{n, *layer, i, std::move(*factor), std::move(*takers)};
    }
    return std::nullopt;
  }

 private:
  const Graph& graph_;
  std::vector<bool> constant_;
  std::vector<std::optional<std::size_t>> producers_;
  std::vector<std::vector<std::size_t>> readers_;
};

GraphSite named(const Graph& graph, const Site& site) {
  return {graph.nodes()[site.scaled].name, graph.nodes()[site.layer].name};
}

// What it makes
// ---------------------------------------------------------------------------------------------------

/// v[...] = w[...] * factor, and which of the graph's tensors it reads.
struct ScaledWeight {
  ProgramPointer program;
  std::vector<TensorId> inputs;
};

ScaledWeight scaled_weight(const Graph& graph, const Site& site, const Taker& taker) {
  const Node &node = graph.nodes()[site.scaled], &layer = graph.nodes()[site.layer];
  const Program &from = node.program->program, &before = layer.program->program;
  Program made;
  ScaledWeight result;
  const auto add = [&](const Program& other, program::TensorId tensor, const std::string& name) {
    program::Tensor copy = other.tensor(tensor);
    copy.name = name;
    if (copy.role != program::Role::Constant) copy.role = program::Role::Input;
    for (program::Range& dim : copy.dims)
      dim = {made.arena.import(other.arena, dim.begin), made.arena.import(other.arena, dim.end)};
    return made.add_tensor(std::move(copy));
  };
  const auto tensor_of = [&](const Node& of, program::TensorId tensor) {
    const auto inputs = of.program->program.inputs();
    return of
        .inputs[static_cast<std::size_t>(std::find(inputs.begin(), inputs.end(), tensor) - inputs.begin())];
  };

  const program::TensorId weight = add(before, taker.tensor, "w");
  result.inputs.push_back(tensor_of(layer, taker.tensor));
  program::Tensor output = made.tensor(weight);
  Scope scope;
  std::vector<symbolic::ExprId> indices;
  for (std::size_t d = 0; d < output.dims.size(); ++d) {
    scope.traversal.push_back(made.new_iterator(fmt::format("i{}", d), output.dims[d]));
    indices.push_back(made.arena.iterator(scope.traversal[d].slot));
  }
  std::map<std::uint32_t, symbolic::ExprId> places;  // the factor's iterators
  for (const auto& [of_input, of_weight] : taker.dims)
    places.emplace(from.scopes[0].traversal[of_input].slot, indices[of_weight]);

  ScalarId body = made.read(weight, indices);
  std::map<program::TensorId, program::TensorId> tensors;
  std::map<ScalarId, ScalarId> copies;
  const auto in_weight = [&](symbolic::ExprId index) {
    return made.arena.substitute(made.arena.import(from.arena, index),
                                 [&](std::uint32_t slot) { return places.at(slot); });
  };
  const auto here = [&](ScalarId factor) {
    return program::copy_body(from, factor, made, copies, [&](Scalar& scalar) {
      if (scalar.kind == ScalarKind::Read) {
        const auto [known, is_new] = tensors.try_emplace(scalar.tensor);
        if (is_new) {
          known->second = add(from, scalar.tensor, fmt::format("s{}", tensors.size()));
          if (from.tensor(scalar.tensor).role != program::Role::Constant)
            result.inputs.push_back(tensor_of(node, scalar.tensor));
        }
        scalar.tensor = known->second;
      }
      program::over_indices(scalar, [&](symbolic::ExprId& index) { index = in_weight(index); });
    });
  };
  for (const ScalarId factor : site.factor.scalars)
    body = made.binary(program::Function::Multiply, body, here(factor));
  for (const ScalarId divisor : site.factor.divisors)
    body = made.binary(program::Function::Divide, body, here(divisor));
  output.name = "v";
  output.role = program::Role::Computed;
  scope.output = made.add_tensor(std::move(output));
  scope.body = body;
  made.outputs = {scope.output};
  made.scopes.push_back(std::move(scope));
  result.program = shared_program(made);
  return result;
}

/// The scaled node's program without the factor, and which of its inputs that still reads.
std::pair<ProgramPointer, std::vector<TensorId>> without_factor(const Graph& graph, const Site& site) {
  const Node& node = graph.nodes()[site.scaled];
  const Program& from = node.program->program;
  Program body = from;
  ScalarId left = site.factor.left[0];
  for (std::size_t i = 1; i < site.factor.left.size(); ++i)
    left = body.binary(program::Function::Multiply, left, site.factor.left[i]);
  const ScalarId root = program::rebuild(body, body.scopes[0].body, [&](ScalarId id) {
    return id == site.factor.product ? std::optional(left) : std::nullopt;
  });
  // Only what is read: in a program of its own.
  Program made;
  std::map<program::TensorId, program::TensorId> tensors;
  std::vector<TensorId> inputs;
  const auto known = from.inputs();
  const auto add = [&](program::TensorId tensor) {
    program::Tensor copy = body.tensor(tensor);
    for (program::Range& dim : copy.dims)
      dim = {made.arena.import(body.arena, dim.begin), made.arena.import(body.arena, dim.end)};
    tensors.emplace(tensor, made.add_tensor(std::move(copy)));
  };
  for (std::size_t i = 0; i < known.size(); ++i)
    if (program::reads_tensor(body, root, known[i])) {
      add(known[i]);
      inputs.push_back(node.inputs[i]);
    }
  program::over_reads(body, root, [&](ScalarId, const Scalar& read) {
    if (!tensors.contains(read.tensor)) add(read.tensor);  // the program's own constants
  });
  Scope scope = body.scopes[0];
  add(scope.output);
  scope.output = tensors.at(scope.output);
  made.next_slot = body.next_slot;
  for (program::Iterator& iterator : scope.traversal)
    iterator.range = {made.arena.import(body.arena, iterator.range.begin),
                      made.arena.import(body.arena, iterator.range.end)};
  std::map<ScalarId, ScalarId> copies;
  scope.body = program::copy_body(body, root, made, copies, [&](Scalar& scalar) {
    if (scalar.kind == ScalarKind::Read) scalar.tensor = tensors.at(scalar.tensor);
    program::over_indices(scalar,
                          [&](symbolic::ExprId& index) { index = made.arena.import(body.arena, index); });
  });
  made.outputs = {scope.output};
  made.scopes.push_back(std::move(scope));
  return {shared_program(made), std::move(inputs)};
}

/// Sites of which no two have a node in common.
Graph applied(const Graph& graph, const std::vector<Site>& sites) {
  std::map<std::size_t, const Site*> by_scaled;
  std::set<std::size_t> layers;
  for (const Site& site : sites) {
    by_scaled.emplace(site.scaled, &site);
    layers.insert(site.layer);
  }
  Rebuilt result(graph);
  const auto here = [&](std::vector<TensorId> inputs) {
    for (TensorId& input : inputs) input = result.at(input);
    return inputs;
  };
  const auto add = [&](const Node& as, const ProgramPointer& program, std::vector<TensorId> inputs) {
    const std::size_t made = result.graph.add_program(as.name, program, std::move(inputs),
                                                      {graph.tensor(as.outputs[0]).name}, type_of(graph, as));
    result.stands_for(as.outputs[0], result.graph.nodes()[made].outputs[0]);
  };
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const auto found = by_scaled.find(n);
    if (found == by_scaled.end()) {
      // A layer waits for the factor, which may be computed behind it.
      if (!layers.contains(n)) result.keep(n);
      continue;
    }
    const Site& site = *found->second;
    const Node &node = graph.nodes()[n], &layer = graph.nodes()[site.layer];
    const auto known = layer.program->program.inputs();
    std::vector<TensorId> inputs = here(layer.inputs);
    for (const Taker& taker : site.takers) {
      const auto i =
          static_cast<std::size_t>(std::find(known.begin(), known.end(), taker.tensor) - known.begin());
      const ScaledWeight weight = scaled_weight(graph, site, taker);
      const std::string wanted = graph.tensor(layer.inputs[i]).name + "_scaled";
      const std::size_t made = result.graph.add_program(
          fresh_name(wanted, [&](const auto& x) { return graph.find_node(x) || result.graph.find_node(x); }),
          weight.program, here(weight.inputs),
          {fresh_name(wanted,
                      [&](const auto& x) { return graph.find_tensor(x) || result.graph.find_tensor(x); })},
          type_of(graph, layer));
      inputs[i] = result.graph.nodes()[made].outputs[0];
    }
    add(layer, layer.program, std::move(inputs));
    const auto [program, reads] = without_factor(graph, site);
    add(node, program, here(reads));
  }
  return result.finish();
}

}  // namespace

std::vector<GraphSite> find_scales(const Graph& graph) {
  const Search search(graph);
  std::vector<GraphSite> sites;
  for (std::size_t n = 0; n < graph.nodes().size(); ++n)
    if (const auto site = search.at(n)) sites.push_back(named(graph, *site));
  return sites;
}

Graph scale_weights(const Graph& graph, const GraphSite& site) {
  const auto node = graph.find_node(site.node);
  const auto found = node ? Search(graph).at(*node) : std::nullopt;
  if (!found || named(graph, *found) != site)
    fail<ScheduleError>("graph rewrite", "`scales` does not apply at node '{}'{}", shown(site.node),
                        site.other.empty() ? "" : fmt::format(" and '{}'", shown(site.other)));
  return applied(graph, {*found});
}

Graph scales_in_weights(const Graph& graph) {
  for (Graph made = graph;;) {
    const Search search(made);
    std::vector<Site> sites;
    std::set<std::size_t> taken;
    for (std::size_t n = 0; n < made.nodes().size(); ++n) {
      auto site = search.at(n);
      if (!site || taken.contains(site->scaled) || taken.contains(site->layer)) continue;
      taken.insert({site->scaled, site->layer});
      sites.push_back(std::move(*site));
    }
    if (sites.empty()) return made;
    made = applied(made, sites);
  }
}

}  // namespace syno::graph
