// ALT's store_at: the elements of one constant tensor behind the rows of another, so that who reads both
// finds them together (§4.1.1).
#include <algorithm>
#include <set>

#include "derive/moved.hpp"
#include "graph/layout.hpp"
#include "graph/merge.hpp"
#include "graph/rebuild.hpp"
#include "graph/views.hpp"
#include "program/scalars.hpp"
#include "schedule/laid_out.hpp"
#include "support/error.hpp"
#include "support/shown.hpp"

namespace syno::graph {

namespace {

constexpr std::string_view kStoreAt = "store_at";

/// y[i.., c, ...] = c < C ? host[i.., c, ...] : guest[i..] at the first place of what follows c, 0 elsewhere.
Program stored(const Shape& host, std::size_t dim) {
  Program program;
  auto& arena = program.arena;
  program::Tensor w{"host", program::Role::Weight, {}, {}}, b{"guest", program::Role::Weight, {}, {}},
      y{"y", program::Role::Computed, {}, {}};
  program::Scope scope;
  std::vector<symbolic::ExprId> at;
  for (std::size_t d = 0; d < host.size(); ++d) {
    w.dims.push_back(derive::make_range(program, 0, host[d]));
    if (d < dim) b.dims.push_back(w.dims.back());
    y.dims.push_back(derive::make_range(program, 0, host[d] + (d == dim ? 1 : 0)));
    scope.traversal.push_back(program.new_iterator(fmt::format("i{}", d), y.dims.back()));
    at.push_back(arena.iterator(scope.traversal.back().slot));
  }
  const program::TensorId host_id = program.add_tensor(std::move(w)),
                          guest_id = program.add_tensor(std::move(b));
  scope.output = program.add_tensor(std::move(y));
  std::vector<symbolic::ExprId> guest_at(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(dim));
  for (std::size_t d = dim + 1; d < host.size(); ++d)
    guest_at[0] = arena.add(guest_at[0], arena.multiply(arena.inside(at[d], symbolic::Size(1)), 0));
  const program::ScalarId in_slot =
      program.binary(program::Function::Less, program.literal(host[dim] - 1), program.index_value(at[dim]));
  scope.body = program.select(in_slot, program.read(guest_id, std::move(guest_at)),
                              program.read(host_id, std::move(at)));
  program.outputs = {scope.output};
  program.scopes.push_back(std::move(scope));
  return program;
}

/// The program whose `tensor`, a guest, is the whole tensor, read in its slots.
Program reading_slots(Program program, program::TensorId tensor, const Shape& host, std::size_t dim) {
  auto& dims = program.tensors[static_cast<std::size_t>(tensor)].dims;
  for (std::size_t d = dim; d < host.size(); ++d)
    dims.push_back(derive::make_range(program, 0, host[d] + (d == dim ? 1 : 0)));
  for (program::Scalar& scalar : program.scalars) {
    if (scalar.kind != program::ScalarKind::Read || scalar.tensor != tensor) continue;
    for (std::size_t d = dim; d < host.size(); ++d)
      scalar.indices.push_back(program.arena.constant(d == dim ? host[dim] : 0));
  }
  return program;
}

void check(const Graph& graph, TensorId guest, TensorId host, std::size_t dim,
           const std::vector<std::string>& constant) {
  const auto made = producers(graph);
  for (const TensorId id : {guest, host}) {
    if (place(id) >= graph.tensors().size())
      fail<ShapeError>(kStoreAt, "tensor {} asked for, but the graph has {}", place(id),
                       graph.tensors().size());
    const Tensor& tensor = graph.tensor(id);
    const auto maker = made[place(id)];
    const bool stays =
        tensor.role == Role::Weight ||
        (maker && std::find(constant.begin(), constant.end(), graph.nodes()[*maker].name) != constant.end());
    if (!stays)
      fail<ScheduleError>(kStoreAt, "'{}' is no constant: it is stored with another once, before any run",
                          shown(tensor.name));
    if (!computes(tensor.type) || !tensor.layout.empty())
      fail<ScheduleError>(kStoreAt,
                          "'{}' is {}; row-major tensors that programs compute on are stored together",
                          shown(tensor.name), described(tensor));
  }
  const Tensor &one = graph.tensor(guest), &other = graph.tensor(host);
  const bool fits =
      dim > 0 && dim < other.shape.size() && one.type == other.type && guest != host &&
      element_count(other) > 0 &&
      one.shape == Shape(other.shape.begin(), other.shape.begin() + static_cast<std::ptrdiff_t>(dim));
  if (!fits)
    fail<ShapeError>(
        kStoreAt,
        "'{}', {}, cannot be stored behind dimension {} of '{}', {}: it needs the same type and the "
        "shape of the dimensions before that one, of which there is at least one",
        shown(one.name), described(one), dim, shown(other.name), described(other));
}

}  // namespace

Graph store_at(const Graph& graph, TensorId guest, TensorId host, std::size_t dim) {
  const auto constant = constant_nodes(graph);
  check(graph, guest, host, dim, constant);
  const Shape shape = graph.tensor(host).shape;
  const std::set<std::string, std::less<>> first(constant.begin(), constant.end());
  Rebuilt result(graph);
  for (std::size_t n = 0; n < graph.nodes().size(); ++n)
    if (first.contains(graph.nodes()[n].name)) result.keep(n);
  const std::size_t node = result.graph.add_program(
      graph.fresh_node_name("store." + graph.tensor(host).name), stored(shape, dim),
      {result.at(host), result.at(guest)}, {graph.fresh_tensor_name(graph.tensor(host).name + ".stored")},
      graph.tensor(host).type);
  const TensorId whole = result.graph.nodes()[node].outputs[0];
  std::vector<std::string> twice;  // nodes that read both
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& was = graph.nodes()[n];
    if (first.contains(was.name)) continue;
    const auto reads = [&](TensorId id) {
      return std::find(was.inputs.begin(), was.inputs.end(), id) != was.inputs.end();
    };
    if (was.is_call() || (!reads(guest) && !reads(host))) {
      result.keep(n);
      continue;
    }
    Program program = was.program->program;
    std::vector<TensorId> inputs;
    const auto mine = program.inputs();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const TensorId edge = was.inputs[i];
      if (edge == guest) program = reading_slots(std::move(program), mine[i], shape, dim);
      if (edge == host)
        program =
            schedule::laid_out(std::move(program), mine[i], {{schedule::LayoutKind::StoreAt, dim, {1}}});
      inputs.push_back(edge == guest || edge == host ? whole : result.at(edge));
    }
    std::vector<std::string> names;
    for (const TensorId output : was.outputs) names.push_back(graph.tensor(output).name);
    const std::size_t made =
        result.graph.add_program(was.name, program, std::move(inputs), names, type_of(graph, was));
    for (std::size_t i = 0; i < was.outputs.size(); ++i)
      result.stands_for(was.outputs[i], result.graph.nodes()[made].outputs[i]);
    if (reads(guest) && reads(host)) twice.push_back(was.name);
  }
  Graph stored_graph = result.finish();
  // A node that read both reads one tensor now: as one input of its program.
  for (const std::string& name : twice)
    stored_graph = std::get<Graph>(merged(stored_graph, {stored_graph.node_named(name)}, name));
  return stored_graph;
}

}  // namespace syno::graph
