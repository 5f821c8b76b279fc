#include "pgraph/named.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "support/error.hpp"

namespace syno::pgraph {
namespace {

/// Applies steps one by one and hands out the coordinates they yield.
class Grower {
 public:
  explicit Grower(const Signature& signature) : graph_(signature), input_(signature.input.size()) {
    for (const auto& [out, in] : signature.fixed) input_[in] = static_cast<CoordinateId>(out);
  }

  /// Each place of an enlarged dimension stands for several of the output, its phases.
  Grower(const Signature& signature, const Roles& roles) : Grower(signature) {
    for (const auto& [output, input, stride, enlarged] : roles.spatial) {
      places_.push_back(Grower::output(output));
      if (enlarged.is_one()) continue;
      const auto [place, phase] = merge(Grower::output(output), enlarged);
      places_.back() = place;
      phases_.push_back(phase);
    }
  }

  static CoordinateId output(std::size_t dim) { return static_cast<CoordinateId>(dim); }
  CoordinateId place(std::size_t spatial) const { return places_[spatial]; }
  /// What a weight matches, phases besides: each has a weight of its own.
  std::vector<CoordinateId> in_each_phase(std::vector<CoordinateId> matched) const {
    matched.insert(matched.end(), phases_.begin(), phases_.end());
    return matched;
  }
  CoordinateId reduce(const Size& extent) { return apply(Step::reduce(extent)); }
  std::pair<CoordinateId, CoordinateId> merge(CoordinateId i, const Size& block) {
    const CoordinateId major = apply(Step::merge(i, block));
    return {major, static_cast<CoordinateId>(static_cast<std::uint32_t>(major) + 1)};
  }
  CoordinateId split(CoordinateId i, CoordinateId j) { return apply(Step::split(i, j)); }
  CoordinateId unfold(CoordinateId i, CoordinateId window) { return apply(Step::unfold(i, window)); }
  CoordinateId shift(CoordinateId i, int amount) { return apply(Step::shift(i, amount)); }
  CoordinateId stride(CoordinateId i, const Size& factor) {
    return factor.is_one() ? i : apply(Step::stride(i, factor));
  }
  void contract(std::vector<CoordinateId> shared, std::vector<CoordinateId> matched) {
    apply(Step::contraction(std::move(shared), std::move(matched)));
  }
  /// Brings in the next further input at these coordinates, fixed ones included.
  void read(std::vector<CoordinateId> dims, const std::vector<CoordinateId>& shared,
            const std::vector<CoordinateId>& matched) {
    further_.push_back(std::move(dims));
    apply(Step::contraction(shared, matched, further_.size()));
  }
  void assign(std::size_t input_dim, CoordinateId id) { input_[input_dim] = id; }
  CompleteGraph finish() { return complete(std::move(graph_), std::move(input_), std::move(further_)); }

 private:
  CoordinateId apply(Step step) {
    const auto first = static_cast<CoordinateId>(graph_.coordinate_count());
    graph_ = apply_all(std::move(graph_), {std::move(step)});
    return first;
  }
  PGraph graph_;
  std::vector<CoordinateId> places_;  ///< of each spatial dimension
  std::vector<CoordinateId> phases_;
  std::vector<CoordinateId> input_;
  std::vector<std::vector<CoordinateId>> further_;
};

const Size& out_channels(const Signature& s, const Roles& roles) {
  return s.output[roles.channel_out].extent;
}
const Size& in_channels(const Signature& s, const Roles& roles) { return s.input[roles.channel_in].extent; }

bool has_window(std::size_t spatial, const NamedParameters& parameters) {
  return !parameters.kernel.is_one() && (parameters.windowed >> spatial & 1) != 0;
}

/// The taps of spatial dimensions with a window, in order.
std::vector<CoordinateId> windows(Grower& grow, const Roles& roles, const NamedParameters& parameters) {
  std::vector<CoordinateId> result;
  for (std::size_t i = 0; i < roles.spatial.size(); ++i)
    if (has_window(i, parameters)) result.push_back(grow.reduce(parameters.kernel));
  return result;
}

CoordinateId strided(Grower& grow, const Roles& roles, std::size_t i) {
  return grow.stride(grow.place(i), roles.spatial[i].stride);
}

/// Spatial dimensions without a window as they are; strided ones drop points.
void pass(Grower& grow, const Roles& roles, const NamedParameters& parameters) {
  for (std::size_t i = 0; i < roles.spatial.size(); ++i)
    if (!has_window(i, parameters)) grow.assign(roles.spatial[i].input, strided(grow, roles, i));
}

/// [h] -> [stride*h + window - k/2] for every spatial dimension with a window, assigned to the input.
void slide(Grower& grow, const Roles& roles, const std::vector<CoordinateId>& windows,
           const NamedParameters& parameters) {
  auto window = windows.begin();
  for (std::size_t i = 0; i < roles.spatial.size(); ++i) {
    const CoordinateId place = strided(grow, roles, i);
    grow.assign(roles.spatial[i].input, has_window(i, parameters) ? grow.unfold(place, *window++) : place);
  }
}

std::vector<CoordinateId> with(std::vector<CoordinateId> list, const std::vector<CoordinateId>& more) {
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

CompleteGraph conv1x1(const Signature& signature, const NamedParameters&) {
  const Roles roles = roles_of(signature);
  Grower grow(signature, roles);
  const CoordinateId c = grow.reduce(in_channels(signature, roles));
  grow.contract({c}, grow.in_each_phase({Grower::output(roles.channel_out)}));
  grow.assign(roles.channel_in, c);
  slide(grow, roles, {}, {.kernel = Size()});
  return grow.finish();
}

CompleteGraph conv(const Signature& signature, const NamedParameters& parameters) {
  const Roles roles = roles_of(signature);
  Grower grow(signature, roles);
  const CoordinateId c = grow.reduce(in_channels(signature, roles));
  const auto r = windows(grow, roles, parameters);
  grow.contract(with({c}, r), grow.in_each_phase({Grower::output(roles.channel_out)}));
  grow.assign(roles.channel_in, c);
  slide(grow, roles, r, parameters);
  return grow.finish();
}

CompleteGraph grouped_conv(const Signature& signature, const NamedParameters& parameters) {
  const Roles roles = roles_of(signature);
  Grower grow(signature, roles);
  const CoordinateId c = grow.reduce(in_channels(signature, roles) / parameters.groups);
  const auto r = windows(grow, roles, parameters);
  const auto [group, within] =
      grow.merge(Grower::output(roles.channel_out), out_channels(signature, roles) / parameters.groups);
  const CoordinateId channel = grow.split(group, c);
  grow.contract(with({channel}, r), grow.in_each_phase({within}));
  grow.assign(roles.channel_in, channel);
  slide(grow, roles, r, parameters);
  return grow.finish();
}

/// Stride spreads the taps, Shift centres them: d*r + d/2 never reaches d*k, so that the shift never wraps.
CompleteGraph dilated_conv(const Signature& signature, const NamedParameters& parameters) {
  const Roles roles = roles_of(signature);
  const std::int64_t dilation = signature.sizes.integer_value(parameters.dilation, 0);
  if (!signature.sizes.equal_values(parameters.dilation, Size(dilation))) {
    fail<SpecError>("dilated_conv",
                    "the dilation {} has different values at different valuations; give one number",
                    signature.sizes.to_text(parameters.dilation));
  }
  Grower grow(signature, roles);
  const CoordinateId c = grow.reduce(in_channels(signature, roles));
  auto r = windows(grow, roles, parameters);
  grow.contract(with({c}, r), grow.in_each_phase({Grower::output(roles.channel_out)}));
  grow.assign(roles.channel_in, c);
  for (CoordinateId& window : r) {
    window = grow.stride(window, parameters.dilation);
    if (dilation > 1) window = grow.shift(window, static_cast<int>(dilation / 2));
  }
  slide(grow, roles, r, parameters);
  return grow.finish();
}

void require_equal_channels(std::string_view name, const Signature& signature, const Roles& roles) {
  if (out_channels(signature, roles) != in_channels(signature, roles)) {
    fail<SpecError>(name, "output channels {} and input channels {} must be the same size",
                    signature.sizes.to_text(out_channels(signature, roles)),
                    signature.sizes.to_text(in_channels(signature, roles)));
  }
}

CompleteGraph depthwise_conv(const Signature& signature, const NamedParameters& parameters) {
  const Roles roles = roles_of(signature);
  require_equal_channels("depthwise_conv", signature, roles);
  Grower grow(signature, roles);
  const auto r = windows(grow, roles, parameters);
  grow.contract(with({Grower::output(roles.channel_out)}, r), grow.in_each_phase({}));
  grow.assign(roles.channel_in, Grower::output(roles.channel_out));
  slide(grow, roles, r, parameters);
  return grow.finish();
}

CompleteGraph separable_conv(const Signature& signature, const NamedParameters& parameters) {
  const Roles roles = roles_of(signature);
  Grower grow(signature, roles);
  const CoordinateId c = grow.reduce(in_channels(signature, roles));
  const auto r = windows(grow, roles, parameters);
  grow.contract({c}, {Grower::output(roles.channel_out)});  // pointwise
  grow.contract(with({c}, r), grow.in_each_phase({}));      // depthwise
  grow.assign(roles.channel_in, c);
  slide(grow, roles, r, parameters);
  return grow.finish();
}

void require_no_enlarging(std::string_view name, std::size_t output, const Size& enlarged) {
  if (enlarged.is_one()) return;
  fail<SpecError>(
      name, "output dimension {} is larger than the input's; the operator has no weight to make it", output);
}

/// Sums blocks of `stride` neighbours; divide by the block for the mean.
CompleteGraph average_pool(const Signature& signature, const NamedParameters&) {
  const Roles roles = roles_of(signature);
  require_equal_channels("average_pool", signature, roles);
  Grower grow(signature, roles);
  for (const auto& [output, input, stride, enlarged] : roles.spatial) {
    require_no_enlarging("average_pool", output, enlarged);
    grow.assign(input, stride.is_one() ? Grower::output(output)
                                       : grow.split(Grower::output(output), grow.reduce(stride)));
  }
  grow.assign(roles.channel_in, Grower::output(roles.channel_out));
  return grow.finish();
}

/// out[i] = in[(H/B) * (i % B) + i / B] along every spatial dimension.
CompleteGraph pixel_shuffle(const Signature& signature, const NamedParameters& parameters) {
  const Roles roles = roles_of(signature);
  require_equal_channels("pixel_shuffle", signature, roles);
  Grower grow(signature, roles);
  for (const auto& [output, input, stride, enlarged] : roles.spatial) {
    require_no_enlarging("pixel_shuffle", output, enlarged);
    if (!stride.is_one()) {
      fail<SpecError>("pixel_shuffle", "output and input dimension {} must be the same size", output);
    }
    const auto [block, within] = grow.merge(Grower::output(output), parameters.block);
    grow.assign(input, grow.split(within, block));
  }
  grow.assign(roles.channel_in, Grower::output(roles.channel_out));
  return grow.finish();
}

/// Windows along two dimensions, or none where the kernel is 1.
std::vector<CoordinateId> plane_windows(std::string_view name, Grower& grow, const Roles& roles,
                                        const NamedParameters& parameters) {
  auto made = windows(grow, roles, parameters);
  if (!made.empty() && made.size() != 2) {
    fail<SpecError>(name,
                    "the signature has {} spatial dimensions; with a window the operator is defined for 2, "
                    "with kernel 1 for any number",
                    roles.spatial.size());
  }
  return made;
}

/// The two dimensions that have a window.
std::pair<std::size_t, std::size_t> plane(const Roles& roles, const NamedParameters& parameters) {
  std::size_t first = roles.spatial.size(), second = first;
  for (std::size_t i = roles.spatial.size(); i-- > 0;)
    if (has_window(i, parameters)) second = std::exchange(first, i);
  return {first, second};
}

/// What the paper's two-stage operators share: the channels between the stages, [groups,
/// C_out/groups/shrink], and the input channels within a group.
struct Middle {
  Middle(Grower& grow, const Signature& signature, const Roles& roles, const NamedParameters& parameters)
      : group(grow.reduce(parameters.groups)),
        channel(grow.reduce(out_channels(signature, roles) / parameters.groups / parameters.shrink)),
        within(grow.reduce(in_channels(signature, roles) / parameters.groups)) {}
  CoordinateId group, channel, within;
};

/// Figs. 8 and 9: two stages joined by a window that the first weight indexes and only the second reduces.
CompleteGraph operator1(const Signature& signature, const NamedParameters& parameters) {
  const Roles roles = roles_of(signature);
  Grower grow(signature, roles);
  const auto window = plane_windows("operator1", grow, roles, parameters);
  const Middle middle(grow, signature, roles, parameters);
  grow.contract(with(window, {middle.group, middle.channel}), {Grower::output(roles.channel_out)});
  const CoordinateId channel = grow.split(middle.group, middle.within);
  if (window.empty()) {
    grow.contract({channel}, grow.in_each_phase({middle.channel}));
  } else {
    const auto [first, second] = plane(roles, parameters);
    grow.assign(roles.spatial[first].input, grow.unfold(strided(grow, roles, first), window[0]));
    grow.contract({window[1], channel}, grow.in_each_phase({middle.channel}));
    grow.assign(roles.spatial[second].input, grow.unfold(strided(grow, roles, second), window[1]));
  }
  pass(grow, roles, parameters);
  grow.assign(roles.channel_in, channel);
  return grow.finish();
}

/// A reading of section 9.2, which describes Operator 2 without a listing: "a variant of Operator 1", "two 1D
/// convolutions with weights connected using Share in a similar manner", "less than 1/4" of a convolution's
/// parameters. The first stage convolves along W, once for each tap of the second's window along H; that tap
/// is Shared by both weights and only the second stage reduces it.
CompleteGraph operator2(const Signature& signature, const NamedParameters& parameters) {
  const Roles roles = roles_of(signature);
  Grower grow(signature, roles);
  const auto window = plane_windows("operator2", grow, roles, parameters);
  const Middle middle(grow, signature, roles, parameters);
  std::vector<CoordinateId> second{middle.group, middle.channel};
  if (!window.empty()) second.push_back(window[0]);
  grow.contract(second, {Grower::output(roles.channel_out)});
  const CoordinateId channel = grow.split(middle.group, middle.within);
  grow.contract(with(window, {channel}), grow.in_each_phase({middle.channel}));
  slide(grow, roles, window, parameters);
  grow.assign(roles.channel_in, channel);
  return grow.finish();
}

/// Fig. 10: Operator 1 with the window along W reduced in the first stage and W unfolded again in the second,
/// which makes it two grouped convolutions: as many FLOPs and parameters, a field of 3 x 5 instead of 3 x 3.
CompleteGraph stacked_conv(const Signature& signature, const NamedParameters& parameters) {
  const Roles roles = roles_of(signature);
  Grower grow(signature, roles);
  const auto window = plane_windows("stacked_conv", grow, roles, parameters);
  std::vector<CoordinateId> first;
  if (!window.empty()) first.push_back(grow.reduce(parameters.kernel));
  const Middle middle(grow, signature, roles, parameters);
  grow.contract(with(window, {middle.group, middle.channel}), {Grower::output(roles.channel_out)});
  const CoordinateId channel = grow.split(middle.group, middle.within);
  if (window.empty()) {
    grow.contract({channel}, grow.in_each_phase({middle.channel}));
  } else {
    const auto [one, other] = plane(roles, parameters);
    grow.assign(roles.spatial[one].input, grow.unfold(strided(grow, roles, one), window[0]));
    const CoordinateId between = grow.unfold(strided(grow, roles, other), window[1]);
    grow.contract({first[0], channel}, grow.in_each_phase({middle.channel}));
    grow.assign(roles.spatial[other].input, grow.unfold(between, first[0]));
  }
  pass(grow, roles, parameters);
  grow.assign(roles.channel_in, channel);
  return grow.finish();
}

/// NAS-PTE's bottlenecking (Turner et al., ASPLOS 2021) where the output has to keep its channels.
CompleteGraph bottleneck_conv(const Signature& signature, const NamedParameters& parameters) {
  const Roles roles = roles_of(signature);
  Grower grow(signature, roles);
  const auto r = windows(grow, roles, parameters);
  const CoordinateId middle = grow.reduce(out_channels(signature, roles) / parameters.shrink);
  const CoordinateId c = grow.reduce(in_channels(signature, roles));
  grow.contract({middle}, {Grower::output(roles.channel_out)});
  grow.contract(with({c}, r), grow.in_each_phase({middle}));
  grow.assign(roles.channel_in, c);
  slide(grow, roles, r, parameters);
  return grow.finish();
}

/// Dimensions of one name are one index, as in an einsum; what the output lacks is summed. A dimension of a
/// further input that is a multiple of the output's is read in blocks, whose elements are summed.
CompleteGraph product(std::string_view operator_name, const Signature& signature, bool blocks) {
  if (signature.further.empty()) {
    fail<SpecError>(operator_name, "the signature has one data input; name a further one");
  }
  Grower grow(signature);
  std::map<std::string, CoordinateId> index;
  for (std::size_t d = 0; d < signature.output.size(); ++d) {
    if (!index.emplace(signature.output[d].name, Grower::output(d)).second) {
      fail<SpecError>(operator_name, "two output dimensions are named '{}'; give each its own name",
                      signature.output[d].name);
    }
  }
  const auto extent_in_output = [&](const std::string& name) -> const Size* {
    for (const Dim& dim : signature.output) {
      if (dim.name == name) return &dim.extent;
    }
    return nullptr;
  };
  for (const std::size_t d : open_dims(signature.input, signature.fixed)) {
    const Dim& dim = signature.input[d];
    const Size* extent = extent_in_output(dim.name);
    if (extent != nullptr && *extent != dim.extent) {
      fail<SpecError>(operator_name, "dimension '{}' has extent {} in the output and {} in the input",
                      dim.name, signature.sizes.to_text(*extent), signature.sizes.to_text(dim.extent));
    }
    if (extent == nullptr) index.emplace(dim.name, grow.reduce(dim.extent));
    grow.assign(d, index.at(dim.name));
  }
  const auto holds = [](const std::vector<Dim>& dims, const std::string& name) {
    return std::any_of(dims.begin(), dims.end(), [&](const Dim& dim) { return dim.name == name; });
  };
  for (auto input = signature.further.begin(); input != signature.further.end(); ++input) {
    std::vector<CoordinateId> dims(input->dims.size()), shared, matched;
    for (const auto& [out, in] : input->fixed) dims[in] = Grower::output(out);
    for (const std::size_t d : open_dims(input->dims, input->fixed)) {
      const Dim& dim = input->dims[d];
      if (!index.contains(dim.name)) {
        fail<SpecError>(operator_name,
                        "dimension '{}' of a further input is neither the output's nor the first input's",
                        dim.name);
      }
      dims[d] = index.at(dim.name);
      const Size* extent = extent_in_output(dim.name);
      if (extent != nullptr && dim.extent != *extent) {
        const Size block = dim.extent / *extent;
        if (!blocks || !signature.sizes.integral(block)) {
          fail<SpecError>(operator_name,
                          "dimension '{}' has extent {} in the output and {} in a further input{}", dim.name,
                          signature.sizes.to_text(*extent), signature.sizes.to_text(dim.extent),
                          blocks ? ", which is no multiple of it" : "");
        }
        dims[d] = grow.split(dims[d], grow.reduce(block));
      }
      const bool stays = holds(signature.input, dim.name) ||
                         std::any_of(std::next(input), signature.further.end(),
                                     [&](const FurtherInput& later) { return holds(later.dims, dim.name); });
      (stays ? shared : matched).push_back(dims[d]);
    }
    grow.read(std::move(dims), shared, matched);
  }
  return grow.finish();
}

CompleteGraph scores(const Signature& signature, const NamedParameters&) {
  return product("scores", signature, false);
}
CompleteGraph pooled_scores(const Signature& signature, const NamedParameters&) {
  return product("pooled_scores", signature, true);
}

constexpr std::array kNamed = {
    NamedOperator{"matmul", "matrix product over the channel dimension: y[m,n] = sum_k x[m,k] * w[n,k]",
                  conv1x1},
    NamedOperator{"conv", "dense convolution, one window per spatial dimension (Fig. 3)", conv},
    NamedOperator{"conv1x1", "pointwise convolution", conv1x1},
    NamedOperator{"grouped_conv", "convolution within each of `groups` groups of channels", grouped_conv},
    NamedOperator{"dilated_conv", "convolution whose taps are `dilation` apart", dilated_conv},
    NamedOperator{"depthwise_conv", "one window per channel", depthwise_conv},
    NamedOperator{"separable_conv", "depthwise then pointwise convolution, as two weights", separable_conv},
    NamedOperator{"average_pool", "sum over blocks of stride neighbours (Table 2); no weight", average_pool},
    NamedOperator{"pixel_shuffle", "exchange blocks and their elements along space (Table 2); no weight",
                  pixel_shuffle},
    NamedOperator{"bottleneck_conv", "convolution to `shrink` times fewer channels, then pointwise",
                  bottleneck_conv},
    NamedOperator{"operator1", "two grouped stages that share an unreduced window (Figs. 8 and 9)",
                  operator1},
    NamedOperator{"operator2", "two 1-D stages whose weights share a window (a reading of section 9.2)",
                  operator2},
    NamedOperator{"stacked_conv", "two grouped convolutions of Operator 1's cost (Fig. 10)", stacked_conv},
    NamedOperator{"scores",
                  "product of several data inputs, summed over what the output lacks, as an einsum over the "
                  "dimensions' names: y[i,j] = sum_d x[i,d] * x2[j,d]",
                  scores},
    NamedOperator{"pooled_scores",
                  "scores with the further inputs summed over blocks where they are a multiple of the "
                  "output: y[i,j] = sum_{d,r} x[i,d] * x2[s*j+r,d]",
                  pooled_scores},
};

}  // namespace

Roles roles_of(const Signature& signature) {
  Roles roles;
  const auto open = [&](const std::vector<Dim>& dims, bool output, std::vector<std::size_t>& spatial) {
    std::vector<std::size_t> channels;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const bool fixed = std::any_of(signature.fixed.begin(), signature.fixed.end(), [&](const auto& pair) {
        return (output ? pair.first : pair.second) == i;
      });
      if (!fixed) (dims[i].unordered ? channels : spatial).push_back(i);
    }
    if (channels.size() != 1) {
      fail<SpecError>(
          "named operator",
          "the {} has {} unordered dimensions that are not fixed; a named operator needs exactly one, its "
          "channels",
          output ? "output" : "input", channels.size());
    }
    return channels.front();
  };
  std::vector<std::size_t> spatial_out;
  std::vector<std::size_t> spatial_in;
  roles.channel_out = open(signature.output, true, spatial_out);
  roles.channel_in = open(signature.input, false, spatial_in);
  if (spatial_out.size() != spatial_in.size()) {
    fail<SpecError>("named operator", "the output has {} spatial dimensions and the input {}",
                    spatial_out.size(), spatial_in.size());
  }
  for (std::size_t i = 0; i < spatial_out.size(); ++i) {
    const Size stride = signature.input[spatial_in[i]].extent / signature.output[spatial_out[i]].extent;
    const Size enlarged = Size() / stride;
    if (signature.sizes.integral(stride)) {
      roles.spatial.push_back({spatial_out[i], spatial_in[i], stride, Size()});
    } else if (signature.sizes.integral(enlarged)) {
      roles.spatial.push_back({spatial_out[i], spatial_in[i], Size(), enlarged});
    } else {
      fail<SpecError>(
          "named operator",
          "spatial input dimension {} is {} times its output, and neither is an integer times the "
          "other",
          i, signature.sizes.to_text(stride));
    }
  }
  return roles;
}

std::span<const NamedOperator> named_operators() { return kNamed; }

const NamedOperator& named_operator(std::string_view name) {
  const auto* found =
      std::find_if(kNamed.begin(), kNamed.end(), [&](const NamedOperator& row) { return row.name == name; });
  if (found == kNamed.end()) {
    std::vector<std::string> names;
    for (const NamedOperator& row : kNamed) names.emplace_back(row.name);
    throw UnknownName("named operator", unknown_name("operator", name, names));
  }
  return *found;
}

}  // namespace syno::pgraph
