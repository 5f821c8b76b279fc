#include "emit/torch_convolution.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace syno::emit {
namespace {

std::size_t position(const std::vector<Slot>& slots, Slot slot) {
  return static_cast<std::size_t>(std::find(slots.begin(), slots.end(), slot) - slots.begin());
}

/// One dimension of the data that is read at a place and a tap.
struct Window {
  Slot place, tap;
  std::int64_t stride, dilation, low, high, extent;
  bool deferred;  ///< the tap stays in the result
  bool flipped;   ///< the last tap looks at the first element
};

class Convolution {
 public:
  Convolution(const ConvolutionScope& scope, TorchView data, TorchView weight)
      : indices_(scope.indices), scope_(scope), data_(std::move(data)), weight_(std::move(weight)) {}

  std::optional<ConvolutionText> run() {
    weight_.peel();
    weight_.resolve();
    for (const ViewDim& dim : weight_.dims()) of_weight_.push_back(dim.slot);
    data_.peel();
    if (!find_windows() || !find_roles() || !order_weight()) return std::nullopt;
    if (data_.copies_much()) return std::nullopt;  // read by a table of places, it may be less
    // Without a window a matrix product is faster, unless it falls into groups.
    if (windows_.empty() && (group_slots_.empty() || channel_slots_.empty() || spatial_.empty()))
      return std::nullopt;
    std::string text = call();
    std::vector<Slot> have = opened(text);
    look_further(text, have);
    return ordered(std::move(text), have);
  }

 private:
  bool in_weight(Slot slot) const { return contains(of_weight_, slot); }

  bool find_windows() {
    for (std::size_t d = 0; d < data_.dims().size(); ++d) {
      const ViewDim& dim = data_.dims()[d];
      if (dim.resolved) continue;
      const auto form = indices_.affine(dim.index);
      if (form.terms.size() != 2) continue;
      std::optional<std::pair<Slot, std::int64_t>> place, tap;
      for (const auto& [atom, factor] : form.terms) {
        const Slot slot = symbolic::slot_of(indices_.arena(), atom);
        if (slot == symbolic::kNoSlot) continue;
        if (contains(scope_.traversal, slot) && !in_weight(slot) && factor > 0) place = {slot, factor};
        if (in_weight(slot)) tap = {slot, factor};
      }
      if (!place || !tap) continue;
      const bool deferred = contains(scope_.traversal, tap->first), flipped = tap->second < 0;
      if (deferred && (flipped || place->second != 1)) return false;
      const symbolic::Interval reach = indices_.bounds(dim.index);
      windows_.push_back({place->first, tap->first, place->second, std::abs(tap->second), reach.least,
                          reach.greatest, dim.extent, deferred, flipped});
      data_.keep(d);
    }
    for (std::size_t i = 0; i < windows_.size(); ++i)
      for (std::size_t j = i + 1; j < windows_.size(); ++j)
        if (windows_[i].place == windows_[j].place || windows_[i].tap == windows_[j].tap) return false;
    return windows_.size() <= 3;
  }

  /// Every dimension of the data must have a role, and a window's iterators no other.
  bool find_roles() {
    data_.resolve();
    std::size_t next_window = 0, plain_spatial = 0;
    bool channels_seen = false;
    for (std::size_t d = 0; d < data_.dims().size(); ++d) {
      const ViewDim& dim = data_.dims()[d];
      if (dim.kept) {
        add_spatial(d, windows_[next_window].place, &windows_[next_window]);
        ++next_window;
        continue;
      }
      const bool summed = contains(scope_.sums, dim.slot), weighed = in_weight(dim.slot);
      if (std::any_of(windows_.begin(), windows_.end(),
                      [&](const Window& w) { return dim.slot == w.place || dim.slot == w.tap; }))
        return false;
      if (summed && !weighed) return false;
      if (summed) {
        channel_.push_back(d);
        channel_slots_.push_back(dim.slot);
      } else if (weighed) {
        group_.push_back(d);
        group_slots_.push_back(dim.slot);
      } else if (channels_seen && windows_.size() + plain_spatial < 2) {
        ++plain_spatial;
        add_spatial(d, dim.slot, nullptr);
      } else {
        batch_.push_back(d);
        batch_slots_.push_back(dim.slot);
      }
      channels_seen = channels_seen || weighed;
    }
    return true;
  }

  void add_spatial(std::size_t d, Slot slot, const Window* window) {
    spatial_.push_back(d);
    spatial_slots_.push_back(slot);
    window_of_.push_back(window);
  }

  /// [groups, out, channels, taps...]; every sum must have been met.
  bool order_weight() {
    const auto take = [&](Slot slot) { weight_order_.push_back(position(of_weight_, slot)); };
    for (const Slot slot : group_slots_) take(slot);
    for (const Slot slot : of_weight_) {
      if (contains(group_slots_, slot) || contains(channel_slots_, slot)) continue;
      if (std::any_of(windows_.begin(), windows_.end(),
                      [&](const Window& w) { return !w.deferred && w.tap == slot; }))
        continue;
      if (contains(scope_.sums, slot)) return false;  // summed over the weight alone
      out_slots_.push_back(slot);
      take(slot);
    }
    for (const Slot slot : channel_slots_) take(slot);
    for (const Window* window : window_of_) {
      if (window == nullptr || window->deferred) continue;
      take(window->tap);
      ++taps_;
    }
    return channel_slots_.size() + taps_ == scope_.sums.size();
  }

  std::string call() {
    std::vector<std::int64_t> padding, stride, dilation;
    for (const Window* window : window_of_) {
      padding.push_back(window == nullptr ? 0 : -window->low);
      stride.push_back(window == nullptr ? 1 : window->stride);
      dilation.push_back(window == nullptr || window->deferred ? 1 : window->dilation);
    }
    std::int64_t groups = 1;
    for (const Slot slot : group_slots_) groups *= indices_.extent(slot);
    const std::string data = data_text(padding);
    std::string text = fmt::format("F.conv{}d({}, {}", spatial_.size(), data, weight_text());
    const auto add = [&](const char* name, const std::vector<std::int64_t>& values, std::int64_t usual) {
      if (std::all_of(values.begin(), values.end(), [&](std::int64_t v) { return v == usual; })) return;
      text += values.size() == 1 ? fmt::format(", {}={}", name, values[0])
                                 : fmt::format(", {}=({})", name, fmt::join(values, ", "));
    };
    add("stride", stride, 1);
    add("padding", padding, 0);
    add("dilation", dilation, 1);
    if (groups != 1) text += ", groups=" + std::to_string(groups);
    return text + ")";
  }

  /// [batch, groups * channels, places...], padded where the function's own padding cannot say it: that is 0
  /// then.
  std::string data_text(std::vector<std::int64_t>& padding) {
    std::vector<std::size_t> order = batch_;
    for (const auto* part : {&group_, &channel_, &spatial_})
      order.insert(order.end(), part->begin(), part->end());
    data_.permute(order);
    std::vector<std::pair<std::int64_t, std::int64_t>> pads(order.size());
    bool symmetric = true;
    for (std::size_t i = 0; i < window_of_.size(); ++i) {
      const Window* window = window_of_[i];
      if (window == nullptr) continue;
      auto& pad = pads[order.size() - spatial_.size() + i];
      pad = {-window->low, window->high - (window->extent - 1)};
      symmetric = symmetric && pad.first == pad.second && window->low <= 0;
    }
    if (!symmetric) {
      data_.pad(pads);
      std::fill(padding.begin(), padding.end(), 0);
    }
    data_.flatten(batch_.size(), group_.size() + channel_.size());
    data_.flatten(0, batch_.size());
    return data_.value();
  }

  /// [groups * out, channels, taps...]; dimensions without a window get one tap.
  std::string weight_text() {
    weight_.permute(weight_order_);
    std::vector<std::size_t> flips;
    for (std::size_t d = 0; d < weight_order_.size(); ++d)
      if (std::any_of(windows_.begin(), windows_.end(),
                      [&](const Window& w) { return w.flipped && w.tap == of_weight_[weight_order_[d]]; }))
        flips.push_back(d);
    weight_.flip(flips);
    weight_.flatten(group_slots_.size() + out_slots_.size(), channel_slots_.size());
    weight_.flatten(0, group_slots_.size() + out_slots_.size());
    if (taps_ == spatial_.size()) return weight_.value();
    std::string index = ":, :";
    for (const Window* window : window_of_) index += window == nullptr || window->deferred ? ", None" : ", :";
    return fmt::format("{}[{}]", weight_.value(), index);
  }

  /// Back to one dimension per iterator: which ones.
  std::vector<Slot> opened(std::string& text) const {
    std::vector<Slot> channels_out = group_slots_;
    channels_out.insert(channels_out.end(), out_slots_.begin(), out_slots_.end());
    const auto open = [&](std::size_t at, const std::vector<Slot>& slots) {
      if (slots.size() > 1) text += fmt::format(".unflatten({}, {})", at, scope_.extents_text(slots));
      if (slots.empty()) text += fmt::format(".squeeze({})", at);
    };
    open(1, channels_out);
    open(0, batch_slots_);
    std::vector<Slot> have = batch_slots_;
    have.insert(have.end(), channels_out.begin(), channels_out.end());
    have.insert(have.end(), spatial_slots_.begin(), spatial_slots_.end());
    return have;
  }

  /// Has each tap that stays in the result look at its own place.
  void look_further(std::string& text, const std::vector<Slot>& have) const {
    std::vector<std::int64_t> extents;
    for (const Slot slot : have) extents.push_back(indices_.extent(slot));
    for (const Window& window : windows_)
      if (window.deferred) extents[position(have, window.place)] = window.high - window.low + 1;
    for (const Window& window : windows_) {
      if (!window.deferred) continue;
      // [tap, ..., place] flat is tap*R + place: with d more elements a row, tap*(R + d) + place is place +
      // tap*d.
      const std::size_t tap = position(have, window.tap), place = position(have, window.place);
      std::int64_t row = 1;
      for (std::size_t d = tap + 1; d <= place; ++d) row *= extents[d];
      std::vector<std::int64_t> more(2 * (have.size() - place), 0);
      more.back() = extents[tap] * window.dilation;
      text =
          fmt::format("F.pad({}.flatten({}, {}), [{}]).unflatten({}, ({}, {})).narrow({}, 0, {})", text, tap,
                      place, fmt::join(more, ", "), tap, extents[tap], row + window.dilation, tap + 1, row);
      if (place > tap + 1) {
        text += fmt::format(".unflatten({}, ({}))", tap + 1,
                            fmt::join(extents.begin() + static_cast<std::ptrdiff_t>(tap) + 1,
                                      extents.begin() + static_cast<std::ptrdiff_t>(place) + 1, ", "));
      }
      extents[place] = indices_.extent(window.place);
      text += fmt::format(".narrow({}, 0, {})", place, extents[place]);
    }
  }

  ConvolutionText ordered(std::string text, const std::vector<Slot>& have) const {
    ConvolutionText made{std::move(text), {}};
    std::vector<std::size_t> order;
    for (const Slot slot : scope_.traversal) {
      if (!contains(have, slot)) continue;
      made.present.push_back(slot);
      order.push_back(position(have, slot));
    }
    if (!std::is_sorted(order.begin(), order.end()))
      made.text += fmt::format(".permute({})", fmt::join(order, ", "));
    return made;
  }

  Indices& indices_;
  const ConvolutionScope& scope_;
  TorchView data_, weight_;
  std::vector<Slot> of_weight_;
  std::vector<Window> windows_;
  std::vector<std::size_t> batch_, group_, channel_, spatial_;  ///< dimensions of the data
  std::vector<Slot> batch_slots_, group_slots_, channel_slots_, spatial_slots_, out_slots_;
  std::vector<const Window*> window_of_;  ///< by spatial dimension; none: it has no window
  std::vector<std::size_t> weight_order_;
  std::size_t taps_ = 0;
};

}  // namespace

std::optional<ConvolutionText> torch_convolution(const ConvolutionScope& scope, TorchView data,
                                                 TorchView weight) {
  return Convolution(scope, std::move(data), std::move(weight)).run();
}

}  // namespace syno::emit
