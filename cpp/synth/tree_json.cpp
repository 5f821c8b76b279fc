// The tree as JSON: the nodes in the order they were made (each names its parent and its place among the
// parent's choices) and the tickets. Statistics follow from both and are not stored, so that they cannot
// disagree.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "support/error.hpp"
#include "support/json.hpp"
#include "synth/tree_impl.hpp"

namespace syno::synth {
namespace {

using Json = nlohmann::json;

constexpr int kTreeFormat = 3;
constexpr std::uint64_t kMostFruitless = 0xffffffffU;

std::string spec_key(const Spec& spec) { return to_hex(hash_text(spec_to_json(spec))); }

template <class T>
T field(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key))
    fail<FormatError>("tree", "the field '{}' is missing", key);
  try {
    return object.at(key).get<T>();
  } catch (const Json::exception&) {
    fail<FormatError>("tree", "the field '{}' has the wrong type: {}", key, described(object.at(key)));
  }
}

}  // namespace

std::string Tree::to_json() const {
  const Impl& tree = *impl_;
  Json json;
  json["format"] = kTreeFormat;
  json["spec"] = spec_key(tree.spec);
  json["seed"] = std::to_string(tree.seed);
  json["attempts"] = tree.attempts;
  json["options"] = {{"exploration", tree.options.exploration},
                     {"widening", tree.options.widening},
                     {"rave_random", tree.options.rave_random},
                     {"rave_equivalence", tree.options.rave_equivalence},
                     {"pending_penalty", tree.options.pending_penalty}};
  json["nodes"] = Json::array();
  for (std::size_t n = 1; n < tree.nodes.size(); ++n) {
    const auto& node = tree.nodes[n];
    json["nodes"].push_back(
        {node.parent, node.type, fmt::format("{:016x}", node.choice.arc), node.dead(), node.fruitless});
  }
  json["root_dead"] = tree.nodes[0].dead();
  json["tickets"] = Json::array();
  for (const auto& record : tree.records) {
    std::vector<std::string> arcs;
    for (const std::uint64_t arc : record.arcs) arcs.push_back(fmt::format("{:016x}", arc));
    json["tickets"].push_back({{"graph", pgraph::to_text(record.graph)},
                               {"leaf", record.leaf},
                               {"arcs", arcs},
                               {"reward", record.reward ? Json(*record.reward) : Json()}});
  }
  return json.dump();
}

Tree Tree::from_json(const Spec& spec, std::string_view text) {
  const Json json = parse_json("tree", text);
  if (const int format = field<int>(json, "format"); format != kTreeFormat) {
    fail<FormatError>("tree", "version {} is not one this build reads ({})", format, kTreeFormat);
  }
  if (field<std::string>(json, "spec") != spec_key(spec)) {
    fail<SpecError>("tree", "this tree was grown for another spec than '{}'", spec.name);
  }
  TreeOptions options;
  const Json stored = field<Json>(json, "options");
  options.exploration = field<double>(stored, "exploration");
  options.widening = field<double>(stored, "widening");
  options.rave_random = field<double>(stored, "rave_random");
  options.rave_equivalence = field<double>(stored, "rave_equivalence");
  options.pending_penalty = field<double>(stored, "pending_penalty");
  const auto number = [](const std::string& digits, int base) {
    std::size_t used = 0;
    std::uint64_t value = 0;
    try {
      value = std::stoull(digits, &used, base);
    } catch (const std::exception&) {
      used = 0;
    }
    if (used == 0 || used != digits.size()) fail<FormatError>("tree", "'{}' is not a number", shown(digits));
    return value;
  };
  auto impl = std::make_unique<Impl>(spec, number(field<std::string>(json, "seed"), 10), options);
  impl->attempts = field<std::uint64_t>(json, "attempts");
  const Json rows = field<Json>(json, "nodes");
  if (!rows.is_array()) fail<FormatError>("tree", "'nodes' is {}, not a list", described(rows));
  std::vector<std::uint32_t> to_come(rows.size() + 1);  // children not read yet, by node
  const auto checked = [&](std::size_t n) -> const Json& {
    const Json& row = rows[n - 1];
    if (!row.is_array() || row.size() != 5 || !row[0].is_number_unsigned() || !row[1].is_number_unsigned() ||
        !row[2].is_string() || !row[3].is_boolean() || !row[4].is_number_unsigned() ||
        row[4].get<std::uint64_t>() > kMostFruitless) {
      fail<FormatError>("tree", "node {} is malformed", n);
    }
    if (row[0].get<std::uint64_t>() >= n || row[1].get<std::uint64_t>() >= Impl::kTypes)
      fail<FormatError>("tree", "node {} has no such parent or type", n);
    return row;
  };
  for (std::size_t n = 1; n <= rows.size(); ++n) ++to_come[checked(n)[0].get<std::size_t>()];
  std::vector<bool> dead(rows.size() + 1);
  const auto drop_when_done = [&](std::uint32_t node) {
    if (dead[node] && to_come[node] == 0) impl->drop_body(node);
  };
  for (std::size_t n = 1; n <= rows.size(); ++n) {
    const Json& row = checked(n);
    const auto parent = row[0].get<std::uint32_t>();
    const auto type = row[1].get<std::size_t>();
    const std::uint64_t arc = number(row[2].get<std::string>(), 16);
    impl->expand(*impl->nodes[parent].body);
    const auto& hidden = impl->nodes[parent].body->branches[type].hidden;
    const auto found =
        std::find_if(hidden.begin(), hidden.end(), [&](const auto& choice) { return choice.arc == arc; });
    if (found == hidden.end())
      fail<FormatError>("tree", "node {} is not a step of its parent in this build", n);
    const std::uint32_t id = impl->add_node(parent, type, static_cast<std::size_t>(found - hidden.begin()));
    dead[id] = row[3].get<bool>();
    --to_come[parent];
    impl->nodes[id].fruitless = row[4].get<std::uint32_t>();
    impl->count_fruitless(id, impl->nodes[id].fruitless);
    drop_when_done(id);
    drop_when_done(parent);
  }
  if (field<bool>(json, "root_dead")) impl->drop_body(0);
  for (const Json& ticket : field<Json>(json, "tickets")) {
    Impl::Record record{impl->records.size(),
                        pgraph::parse(field<std::string>(ticket, "graph")),
                        field<std::uint32_t>(ticket, "leaf"),
                        {},
                        std::nullopt,
                        false};
    if (!(record.graph.graph.signature() == spec.signature))
      fail<FormatError>("tree", "the operator of ticket {} is not of this tree's spec", record.number);
    if (record.leaf >= impl->nodes.size())
      fail<FormatError>("tree", "ticket {} has no such leaf", record.number);
    for (const std::string& arc : field<std::vector<std::string>>(ticket, "arcs"))
      record.arcs.push_back(number(arc, 16));
    if (const Json reward = field<Json>(ticket, "reward"); !reward.is_null())
      record.reward = field<double>(ticket, "reward");
    impl->novelty.is_new(record.graph);
    impl->remember_beginnings(record.graph.graph);
    impl->count_pending(record.leaf, 1);
    impl->records.push_back(std::move(record));
  }
  impl->fold_ready();
  return Tree(std::move(impl));
}

}  // namespace syno::synth
