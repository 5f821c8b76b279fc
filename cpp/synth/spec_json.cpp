#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "support/error.hpp"
#include "support/json.hpp"
#include "synth/spec.hpp"

namespace syno::synth {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// A JSON value and the path to it; every complaint names the path.
class Node {
 public:
  Node(const OrderedJson& value, std::string path) : value_(value), path_(std::move(path)) {}

  template <class... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) const {
    fail<FormatError>("spec", "{}: {}", path_.empty() ? "the document" : path_,
                      fmt::format(format, std::forward<Args>(args)...));
  }
  const Node& object(std::initializer_list<std::string_view> keys) const {
    if (!value_.is_object()) wrong("expected an object, not {}", described(value_));
    for (const auto& [key, unused] : value_.items()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
        wrong("{}", unknown_name("key", key, {keys.begin(), keys.end()}));
      }
    }
    return *this;
  }
  bool has(std::string_view key) const { return value_.contains(key); }
  Node at(std::string_view key) const {
    if (!has(key)) wrong("the field '{}' is missing", key);
    return {value_[std::string(key)], path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key)};
  }
  std::vector<Node> list() const {
    if (!value_.is_array()) wrong("expected a list, not {}", described(value_));
    std::vector<Node> nodes;
    for (std::size_t i = 0; i < value_.size(); ++i)
      nodes.emplace_back(value_[i], fmt::format("{}[{}]", path_, i));
    return nodes;
  }
  std::string text() const {
    if (!value_.is_string()) wrong("expected a text, not {}", described(value_));
    return value_.get<std::string>();
  }
  std::int64_t integer() const {
    const bool large = value_.is_number_unsigned() && value_.get<std::uint64_t>() > INT64_MAX;
    if (!value_.is_number_integer() || large)
      wrong("expected an integer of 64 bits, not {}", described(value_));
    return value_.get<std::int64_t>();
  }
  bool boolean() const {
    if (!value_.is_boolean()) wrong("expected true or false, not {}", described(value_));
    return value_.get<bool>();
  }
  void read(int& field) const {
    if (value_.is_null()) {
      field = kNoLimit;
      return;
    }
    const std::int64_t value = integer();
    if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) {
      wrong("{} does not fit 32 bits", value);
    }
    field = static_cast<int>(value);
  }
  void read(double& field) const {
    if (value_.is_null()) {
      field = kUnbounded;
      return;
    }
    if (!value_.is_number()) wrong("expected a number, not {}", described(value_));
    field = value_.get<double>();
  }
  const OrderedJson& value() const { return value_; }

 private:
  const OrderedJson& value_;
  std::string path_;
};

/// The fields of Budgets and Thresholds, once, for reading and writing.
template <class Visit, class B>
void visit_budgets(Visit&& visit, B& b) {
  visit("max_steps", b.max_steps);
  visit("max_chain", b.max_chain);
  visit("max_weights", b.max_weights);
  visit("max_reductions", b.max_reductions);
  visit("max_merges", b.max_merges);
  visit("max_splits", b.max_splits);
  visit("max_shifts", b.max_shifts);
  visit("max_strides", b.max_strides);
  visit("max_unfolds", b.max_unfolds);
  visit("max_expands", b.max_expands);
  visit("max_flops", b.max_flops);
  visit("min_flops", b.min_flops);
  visit("max_params", b.max_params);
  visit("max_bytes", b.max_bytes);
  visit("max_reduction_ratio", b.max_reduction_ratio);
  visit("max_pooling", b.max_pooling);
  visit("min_weight_params", b.min_weight_params);
  visit("max_variables_in_size", b.max_variables_in_size);
  visit("max_powers_in_size", b.max_powers_in_size);
  visit("max_tree_mb", b.max_tree_mb);
}
template <class Visit, class T>
void visit_thresholds(Visit&& visit, T& t) {
  visit("unfold_ratio", t.unfold_ratio);
  visit("max_window", t.max_window);
  visit("max_stride", t.max_stride);
  visit("shift_ratio", t.shift_ratio);
  visit("max_matched", t.max_matched);
  visit("min_matched_reduce", t.min_matched_reduce);
  visit("max_matched_reduce", t.max_matched_reduce);
  visit("max_repeat", t.max_repeat);
  visit("similar_share", t.similar_share);
  visit("promising_share", t.promising_share);
}

template <class Visitor, class Fields>
void read_fields(const Node& node, Visitor&& visitor, Fields& fields) {
  std::vector<std::string> keys;
  visitor([&](const char* key, auto&) { keys.emplace_back(key); }, fields);
  if (!node.value().is_object()) node.wrong("expected an object, not {}", described(node.value()));
  for (const auto& [key, unused] : node.value().items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      node.wrong("{}", unknown_name("key", key, keys));
  }
  visitor(
      [&](const char* key, auto& field) {
        if (node.has(key)) node.at(key).read(field);
      },
      fields);
}

void read_variables(const Node& root, std::vector<symbolic::Variable>& variables,
                    std::vector<int>& occurrences) {
  for (const Node& node : root.at("variables").list()) {
    node.object({"name", "kind", "occurrences"});
    const std::string kind = node.at("kind").text();
    if (kind != "primary" && kind != "coefficient") {
      node.at("kind").wrong("{}", unknown_name("kind of variable", kind, {"primary", "coefficient"}));
    }
    variables.push_back({node.at("name").text(), kind == "primary" ? symbolic::VariableKind::Primary
                                                                   : symbolic::VariableKind::Coefficient});
    occurrences.push_back(0);
    node.at("occurrences").read(occurrences.back());
  }
}

std::vector<std::vector<std::int64_t>> read_valuations(const Node& root,
                                                       const std::vector<symbolic::Variable>& variables) {
  std::vector<std::vector<std::int64_t>> rows;
  for (const Node& node : root.at("valuations").list()) {
    if (!node.value().is_object()) node.wrong("expected an object, not {}", described(node.value()));
    std::vector<std::int64_t> row;
    for (const auto& variable : variables) {
      row.push_back(node.at(variable.name).integer());
      if (row.back() < 1) node.at(variable.name).wrong("a size must be at least 1, not {}", row.back());
    }
    if (node.value().size() != variables.size()) {
      node.wrong("has {} values for {} variables", node.value().size(), variables.size());
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<pgraph::Dim> read_dims(const Node& node, const Sizes& sizes) {
  std::vector<pgraph::Dim> dims;
  for (const Node& item : node.list()) {
    item.object({"name", "extent", "unordered"});
    pgraph::Dim dim;
    dim.name = item.at("name").text();
    const Node extent = item.at("extent");
    if (extent.value().is_number_integer()) {
      dim.extent = Size(extent.integer());
    } else {
      try {
        dim.extent = sizes.parse(extent.text());
      } catch (const FormatError&) {
        throw;
      } catch (const Error& error) {
        extent.wrong("{}", error.what());
      }
    }
    if (item.has("unordered")) dim.unordered = item.at("unordered").boolean();
    if (dim.name.empty()) item.at("name").wrong("a dimension needs a name");
    dims.push_back(std::move(dim));
  }
  return dims;
}

pgraph::FixedPairs read_fixed(const Node& node) {
  pgraph::FixedPairs fixed;
  for (const Node& pair : node.list()) {
    const auto ends = pair.list();
    if (ends.size() != 2 || ends[0].integer() < 0 || ends[1].integer() < 0) {
      pair.wrong("expected [output dimension, input dimension]");
    }
    fixed.emplace_back(ends[0].integer(), ends[1].integer());
  }
  return fixed;
}

}  // namespace

Spec spec_from_json(std::string_view json) {
  const auto document = parse_json<OrderedJson>("spec", json);
  const Node root(document, "");
  root.object({"format", "name", "variables", "valuations", "weights", "output", "input", "fixed",
               "further_inputs", "budgets", "thresholds", "extensions", "disabled_rules"});
  if (root.has("format")) {
    const std::int64_t format = root.at("format").integer();
    if (format != 1) root.at("format").wrong("version {} is not one this build reads (1)", format);
  }
  Spec spec;
  if (root.has("name")) spec.name = root.at("name").text();
  std::vector<symbolic::Variable> variables;
  read_variables(root, variables, spec.occurrences);
  try {
    spec.signature.sizes = Sizes(variables, read_valuations(root, variables));
  } catch (const FormatError&) {
    throw;
  } catch (const Error& error) {
    root.at("valuations").wrong("{}", error.what());
  }
  if (root.has("weights")) {
    for (const Node& node : root.at("weights").list()) node.read(spec.weights.emplace_back());
  }
  spec.signature.output = read_dims(root.at("output"), spec.signature.sizes);
  spec.signature.input = read_dims(root.at("input"), spec.signature.sizes);
  if (root.has("fixed")) spec.signature.fixed = read_fixed(root.at("fixed"));
  if (root.has("further_inputs")) {
    for (const Node& node : root.at("further_inputs").list()) {
      node.object({"dims", "fixed"});
      pgraph::FurtherInput& input = spec.signature.further.emplace_back();
      input.dims = read_dims(node.at("dims"), spec.signature.sizes);
      if (node.has("fixed")) input.fixed = read_fixed(node.at("fixed"));
    }
  }
  if (root.has("budgets")) {
    read_fields(root.at("budgets"), [](auto&& v, auto& b) { visit_budgets(v, b); }, spec.budgets);
  }
  if (root.has("thresholds")) {
    read_fields(root.at("thresholds"), [](auto&& v, auto& t) { visit_thresholds(v, t); }, spec.thresholds);
  }
  for (const auto& [key, names] :
       {std::pair{"extensions", &spec.extensions}, {"disabled_rules", &spec.disabled_rules}}) {
    if (!root.has(key)) continue;
    for (const Node& name : root.at(key).list()) names->insert(name.text());
  }
  check(spec);
  return spec;
}

std::string spec_to_json(const Spec& spec) {
  const Sizes& sizes = spec.signature.sizes;
  OrderedJson json;
  json["format"] = 1;
  json["name"] = spec.name;
  json["variables"] = OrderedJson::array();
  for (std::size_t i = 0; i < sizes.variables().size(); ++i) {
    const auto& variable = sizes.variables()[i];
    json["variables"].push_back(
        {{"name", variable.name},
         {"kind", variable.kind == symbolic::VariableKind::Primary ? "primary" : "coefficient"},
         {"occurrences", spec.occurrences[i]}});
  }
  json["valuations"] = OrderedJson::array();
  for (std::size_t v = 0; !sizes.variables().empty() && v < sizes.valuation_count(); ++v) {
    OrderedJson row = OrderedJson::object();
    for (std::size_t i = 0; i < sizes.variables().size(); ++i)
      row[sizes.variables()[i].name] = sizes.valuation(v)[i];
    json["valuations"].push_back(std::move(row));
  }
  const auto dims_json = [&](const std::vector<pgraph::Dim>& dims) {
    OrderedJson list = OrderedJson::array();
    for (const auto& dim : dims) {
      list.push_back(
          {{"name", dim.name}, {"extent", sizes.to_text(dim.extent)}, {"unordered", dim.unordered}});
    }
    return list;
  };
  const auto fixed_json = [](const pgraph::FixedPairs& fixed) {
    OrderedJson list = OrderedJson::array();
    for (const auto& [out, in] : fixed) list.push_back(OrderedJson::array({out, in}));
    return list;
  };
  if (!spec.weights.empty()) json["weights"] = spec.weights;
  json["output"] = dims_json(spec.signature.output);
  json["input"] = dims_json(spec.signature.input);
  json["fixed"] = fixed_json(spec.signature.fixed);
  for (const pgraph::FurtherInput& input : spec.signature.further)
    json["further_inputs"].push_back({{"dims", dims_json(input.dims)}, {"fixed", fixed_json(input.fixed)}});
  const auto write = [](OrderedJson& object) {
    return [&object](const char* key, const auto& value) {
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, int>) {
        object[key] = value == kNoLimit ? OrderedJson() : OrderedJson(value);
      } else {
        object[key] = std::isinf(value) ? OrderedJson() : OrderedJson(value);
      }
    };
  };
  json["budgets"] = OrderedJson::object();
  visit_budgets(write(json["budgets"]), spec.budgets);
  json["thresholds"] = OrderedJson::object();
  visit_thresholds(write(json["thresholds"]), spec.thresholds);
  json["extensions"] = spec.extensions;
  json["disabled_rules"] = spec.disabled_rules;
  return json.dump(2);
}

}  // namespace syno::synth
