#include <algorithm>
#include <array>

#include "support/error.hpp"
#include "synth/spec.hpp"

namespace syno::synth {
namespace {

using symbolic::VariableKind;

struct Variable {
  const char* name;
  VariableKind kind;
  int occurrences;
};
constexpr auto kPrimary = VariableKind::Primary;
constexpr auto kCoefficient = VariableKind::Coefficient;

Spec make(std::string name, const std::vector<Variable>& table,
          std::vector<std::vector<std::int64_t>> valuations) {
  Spec spec;
  spec.name = std::move(name);
  std::vector<symbolic::Variable> variables;
  for (const Variable& variable : table) {
    variables.push_back({variable.name, variable.kind});
    spec.occurrences.push_back(variable.occurrences);
  }
  spec.signature.sizes = Sizes(std::move(variables), std::move(valuations));
  return spec;
}

/// The authors' experiments judge every limit at every layer, and let a second weight match Reduces of
/// `least` to 8 points at the largest one, however many elements the two weights have.
void as_the_authors(Spec& spec, double least = 8) {
  spec.thresholds.promising_share = 1;
  spec.thresholds.min_matched_reduce = least;
  spec.thresholds.max_matched_reduce = 8;
  spec.disabled_rules = {"weights-larger-than-product"};
}

/// `N C_out* H H`: a `*` marks an unordered dimension. Names are the iterators' letters.
std::vector<pgraph::Dim> dims(const Spec& spec, std::initializer_list<const char*> extents) {
  std::vector<pgraph::Dim> result;
  const char* letters[] = {"n", "c", "h", "w", "d"};
  for (std::string_view extent : extents) {
    const bool unordered = extent.ends_with('*');
    if (unordered) extent.remove_suffix(1);
    result.push_back({letters[result.size()], spec.signature.sizes.parse(extent), unordered});
  }
  return result;
}

/// Thirteen distinct rows would do; the layers are listed one by one, so that sums weigh them as the model
/// does.
Spec resnet18() {
  constexpr std::int64_t kBatch = 128;
  struct Layer {
    std::int64_t in, out, size;
    int times;
  };
  constexpr std::array<Layer, 7> kLayers = {{{64, 64, 56, 4},
                                             {64, 128, 28, 2},
                                             {128, 128, 28, 3},
                                             {128, 256, 14, 2},
                                             {256, 256, 14, 3},
                                             {256, 512, 7, 2},
                                             {512, 512, 7, 3}}};
  std::vector<std::vector<std::int64_t>> rows;
  for (const Layer& layer : kLayers) {
    for (int i = 0; i < layer.times; ++i)
      rows.push_back({kBatch, layer.in, layer.out, layer.size, 3, 7, 2, 32});
  }
  Spec spec = make("resnet18",
                   {{"N", kPrimary, 0},
                    {"C_in", kPrimary, 2},
                    {"C_out", kPrimary, 4},
                    {"H", kPrimary, 0},
                    {"k_1", kCoefficient, 2},
                    {"k_2", kCoefficient, 2},
                    {"s", kCoefficient, 2},
                    {"g", kCoefficient, 3}},
                   std::move(rows));
  spec.signature.output = dims(spec, {"N", "C_out*", "H", "H"});
  spec.signature.input = dims(spec, {"N", "C_in*", "H", "H"});
  spec.signature.fixed = {{0, 0}};
  auto& b = spec.budgets;
  b.max_steps = 12;
  b.max_merges = 1;
  b.max_splits = 3;
  b.max_shifts = 2;
  b.max_flops = 193'682'833'408.0;
  b.min_flops = 18'578'837'504.0;
  b.max_bytes = 40.0 * 1024 * 1024 * 1024;
  spec.thresholds.unfold_ratio = 2.3;
  as_the_authors(spec);
  return spec;
}

Spec test() {
  Spec spec = make("test",
                   {{"N", kPrimary, 0},
                    {"C_in", kPrimary, 2},
                    {"C_out", kPrimary, 2},
                    {"H", kPrimary, 0},
                    {"W", kPrimary, 0},
                    {"k_1", kCoefficient, 4},
                    {"s_1", kCoefficient, 0}},
                   {{3, 3, 8, 64, 64, 3, 2}});
  spec.signature.output = dims(spec, {"N", "C_out*", "H", "W"});
  spec.signature.input = dims(spec, {"N", "C_in*", "H", "W"});
  spec.signature.fixed = {{0, 0}};
  auto& b = spec.budgets;
  b.max_chain = 5;
  b.max_reductions = 3;
  b.max_flops = 5e6;
  b.max_bytes = 6.0 * 1024 * 1024 * 1024;
  b.max_reduction_ratio = 32;
  b.min_weight_params = 1;
  b.max_variables_in_size = 16;
  b.max_powers_in_size = 127;
  auto& t = spec.thresholds;
  t.shift_ratio = 5;
  t.max_matched = 512;
  as_the_authors(spec, 3);
  return spec;
}

Spec simple() {
  Spec spec = make("simple",
                   {{"N", kPrimary, 0},
                    {"C_in", kPrimary, 2},
                    {"C_out", kPrimary, 2},
                    {"H", kPrimary, 0},
                    {"W", kPrimary, 0},
                    {"k_1", kCoefficient, 2},
                    {"s", kCoefficient, 2},
                    {"g", kCoefficient, 2}},
                   {{1, 64, 64, 56, 56, 3, 2, 4}});
  spec.signature.output = dims(spec, {"N", "C_out*", "H", "W"});
  spec.signature.input = dims(spec, {"N", "C_in*", "H", "W"});
  spec.signature.fixed = {{0, 0}};
  auto& b = spec.budgets;
  b.max_steps = 8;
  b.max_reductions = 4;
  b.max_flops = 115'605'504.0;
  b.max_bytes = 6.0 * 1024 * 1024 * 1024;
  auto& t = spec.thresholds;
  t.shift_ratio = 5;
  as_the_authors(spec, 3);
  return spec;
}

/// ViT-B/16 at 224: 196 patches and a class token; the two linear layers of the MLP of each of 12 blocks.
Spec vit() {
  std::vector<std::vector<std::int64_t>> rows;
  for (int block = 0; block < 12; ++block) {
    rows.push_back({1, 197, 768, 3072, 3, 3, 384});
    rows.push_back({1, 197, 3072, 768, 3, 3, 384});
  }
  Spec spec = make("vit",
                   {{"N", kPrimary, 0},
                    {"seq_len", kPrimary, 0},
                    {"H_in", kPrimary, 2},
                    {"H_out", kPrimary, 3},
                    {"k_1", kCoefficient, 3},
                    {"s", kCoefficient, 3},
                    {"g", kCoefficient, 3}},
                   std::move(rows));
  for (auto* side : {&spec.signature.output, &spec.signature.input}) {
    *side = dims(spec, {"N", "seq_len", side == &spec.signature.output ? "H_out*" : "H_in*"});
  }
  spec.signature.fixed = {{0, 0}};
  auto& b = spec.budgets;
  b.max_merges = 2;
  b.max_splits = 3;
  const double dense = 24.0 * 197 * 768 * 3072;
  b.min_flops = 0.05 * dense;
  b.max_flops = 0.9 * dense;
  auto& t = spec.thresholds;
  t.max_matched = 6144;
  as_the_authors(spec, 4);
  return spec;
}

/// ResNeXt-29 2x64d on 32x32 images: the grouped 3x3 convolution of each of the nine blocks.
Spec resnext() {
  std::vector<std::vector<std::int64_t>> rows;
  for (const auto& [width, size] : {std::pair{128, 32}, {256, 16}, {512, 8}}) {
    for (int i = 0; i < 3; ++i) rows.push_back({128, width, width, size, 3, 2, 32});
  }
  Spec spec = make("resnext",
                   {{"N", kPrimary, 0},
                    {"C_in", kPrimary, 2},
                    {"C_out", kPrimary, 4},
                    {"H", kPrimary, 0},
                    {"k_1", kCoefficient, 2},
                    {"s", kCoefficient, 2},
                    {"g", kCoefficient, 3}},
                   std::move(rows));
  spec.signature.output = dims(spec, {"N", "C_out*", "H", "H"});
  spec.signature.input = dims(spec, {"N", "C_in*", "H", "H"});
  spec.signature.fixed = {{0, 0}};
  auto& b = spec.budgets;
  b.max_merges = 2;
  b.max_splits = 3;
  b.max_shifts = 2;
  double dense = 0;
  for (const double width : {128.0, 256.0, 512.0})
    dense += 3 * 128 * 9 * width * width * (4096 / width) * (4096 / width);
  b.max_flops = 0.95 * dense;
  spec.thresholds.unfold_ratio = 2.3;
  spec.thresholds.max_matched = 4096;
  as_the_authors(spec);
  return spec;
}

/// GPT-2 (117M): the QKV projection of each of 12 blocks, 2048 tokens.
Spec gpt2() {
  Spec spec = make("gpt2",
                   {{"N", kPrimary, 0},
                    {"seq_len", kPrimary, 0},
                    {"H_in", kPrimary, 2},
                    {"H_out", kPrimary, 3},
                    {"k_1", kCoefficient, 3},
                    {"s", kCoefficient, 3},
                    {"g", kCoefficient, 3}},
                   std::vector<std::vector<std::int64_t>>(12, {1, 2048, 768, 2304, 3, 2, 32}));
  spec.signature.output = dims(spec, {"N", "seq_len", "H_out*"});
  spec.signature.input = dims(spec, {"N", "seq_len", "H_in*"});
  spec.signature.fixed = {{0, 0}};
  auto& b = spec.budgets;
  b.max_steps = 7;
  b.max_chain = 5;
  b.max_merges = 2;
  b.max_splits = 2;
  b.max_expands = kNoLimit;
  b.max_flops = 1.2 * 12 * 2048.0 * 768 * 2304;
  b.min_weight_params = 100'000;
  spec.thresholds.max_repeat = 5;
  spec.thresholds.max_matched = 6144;
  as_the_authors(spec);
  spec.extensions = {"repeat", "tile"};
  return spec;
}

/// Three widths of a small residual network for 28x28 images; limits relative to its dense 3x3 convolutions.
Spec conv() {
  Spec spec = make("conv",
                   {{"N", kPrimary, 0},
                    {"C_in", kPrimary, 2},
                    {"C_out", kPrimary, 4},
                    {"H", kPrimary, 0},
                    {"W", kPrimary, 0},
                    {"k", kCoefficient, 2},
                    {"s", kCoefficient, 2},
                    {"g", kCoefficient, 3}},
                   {{1, 16, 16, 28, 28, 3, 2, 4}, {1, 32, 32, 14, 14, 3, 2, 4}, {1, 64, 64, 7, 7, 3, 2, 4}});
  spec.signature.output = dims(spec, {"N", "C_out*", "H", "W"});
  spec.signature.input = dims(spec, {"N", "C_in*", "H", "W"});
  spec.signature.fixed = {{0, 0}};
  auto& b = spec.budgets;
  b.max_steps = 9;
  b.max_merges = 1;
  b.max_splits = 3;
  b.max_shifts = 2;
  b.max_flops = 9.0 * (16.0 * 16 * 784 + 32.0 * 32 * 196 + 64.0 * 64 * 49);
  b.min_weight_params = 16;
  b.max_unfolds = 2;
  spec.extensions = {"depthwise"};
  return spec;
}

/// Scores of queries and keys in ViT-S/16's attention at 224 and at 384, where the batch is fixed; heads are
/// not, so that weights may mix them.
Spec attention() {
  Spec spec = make("attention",
                   {{"N", kPrimary, 0},
                    {"heads", kPrimary, 1},
                    {"L", kPrimary, 1},
                    {"D", kPrimary, 3},
                    {"k", kCoefficient, 1},
                    {"s", kCoefficient, 1}},
                   {{1, 6, 196, 64, 3, 2}, {1, 6, 576, 64, 3, 2}});
  const auto dims = [&](std::initializer_list<std::pair<const char*, const char*>> list) {
    std::vector<pgraph::Dim> result;
    for (const auto& [name, extent] : list) result.push_back({name, spec.signature.sizes.parse(extent)});
    return result;
  };
  spec.signature.output = dims({{"n", "N"}, {"h", "heads"}, {"i", "L"}, {"j", "L"}});
  spec.signature.input = dims({{"n", "N"}, {"h", "heads"}, {"i", "L"}, {"d", "D"}});
  spec.signature.fixed = {{0, 0}};
  spec.signature.further = {{dims({{"n", "N"}, {"h", "heads"}, {"j", "L"}, {"d", "D"}}), {{0, 0}}}};
  auto& b = spec.budgets;
  b.max_steps = 5;
  b.max_weights = 1;
  b.max_reductions = 3;
  b.max_merges = 1;
  b.max_splits = 1;
  b.max_shifts = 1;
  b.max_unfolds = 1;
  return spec;
}

struct Row {
  std::string_view name;
  Spec (*make)();
};
constexpr std::array kRows = {Row{"resnet18", resnet18}, Row{"test", test},          Row{"simple", simple},
                              Row{"vit", vit},           Row{"resnext", resnext},    Row{"gpt2", gpt2},
                              Row{"conv", conv},         Row{"attention", attention}};

}  // namespace

std::vector<std::string_view> spec_names() {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) names.push_back(row.name);
  return names;
}

Spec spec_named(std::string_view name) {
  const auto* row = std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.name == name; });
  if (row == kRows.end()) {
    std::vector<std::string> names;
    for (const Row& r : kRows) names.emplace_back(r.name);
    throw UnknownName("spec", unknown_name("spec", name, names));
  }
  Spec spec = row->make();
  check(spec);
  return spec;
}

}  // namespace syno::synth
