// Layered drawing (Sugiyama, Tagawa, Toda 1981): layers are given, dummies stand for edges that cross a
// layer, orders come from barycentre sweeps, positions from a few relaxations that keep nodes apart.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "pgraph/drawing.hpp"

namespace syno::pgraph {
namespace {

constexpr double kLayerHeight = 78;
constexpr double kGap = 26;
constexpr double kNodeHeight = 30;
constexpr double kMargin = 24;

struct Place {
  std::size_t node = 0;  ///< of the drawing; dummies: npos
  int layer = 0;
  double width = 0;
  double x = 0;  ///< centre
  std::vector<std::size_t> below, above;
};

double text_width(std::string_view text) { return 7.4 * static_cast<double>(text.size()) + 22; }

std::string escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '&':
        result += "&amp;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

class Layout {
 public:
  explicit Layout(const Drawing& drawing) : drawing_(drawing), place_of_(drawing.nodes.size(), kNone) {
    lift_reduces();
    place_nodes();
    route_edges();
    order_layers();
    position();
    place_weights();
  }

  std::string svg() const {
    std::string edges;
    std::string labels;
    for (std::size_t e = 0; e < drawing_.edges.size(); ++e) draw_edge(e, edges, labels);
    std::string nodes;
    for (std::size_t n = 0; n < drawing_.nodes.size(); ++n) draw_node(n, nodes);
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" "
        "font-family=\"system-ui, sans-serif\" font-size=\"13\" role=\"img\" aria-label=\"pGraph\">\n"
        "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
        "markerHeight=\"7\" "
        "orient=\"auto\"><path d=\"M0 0.8 L7 4 L0 7.2 z\" fill=\"#66707c\"/></marker></defs>\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{2}{3}{4}</svg>\n",
        width_, height_, edges, nodes, labels);
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  bool is_weight(std::size_t node) const { return drawing_.nodes[node].kind == NodeKind::Weight; }

  /// A Reduce stands just below its first user, not beside the output.
  void lift_reduces() {
    for (const DrawnNode& node : drawing_.nodes) layer_.push_back(node.layer);
    for (std::size_t n = 0; n < drawing_.nodes.size(); ++n) {
      if (drawing_.nodes[n].kind != NodeKind::Reduce) continue;
      int lowest = 1 << 20;
      for (const DrawnEdge& edge : drawing_.edges) {
        if (edge.from == n && !is_weight(edge.to)) lowest = std::min(lowest, drawing_.nodes[edge.to].layer);
      }
      layer_[n] = std::max(0, lowest - 1);
    }
  }

  std::size_t add_place(std::size_t node, int layer, double width) {
    Place place;
    place.node = node;
    place.layer = layer;
    place.width = width;
    places_.push_back(std::move(place));
    if (layers_.size() <= static_cast<std::size_t>(layer))
      layers_.resize(static_cast<std::size_t>(layer) + 1);
    layers_[static_cast<std::size_t>(layer)].push_back(places_.size() - 1);
    return places_.size() - 1;
  }
  void place_nodes() {
    for (std::size_t n = 0; n < drawing_.nodes.size(); ++n) {
      if (!is_weight(n)) place_of_[n] = add_place(n, layer_[n], text_width(drawing_.nodes[n].label));
    }
  }
  void route_edges() {
    for (const DrawnEdge& edge : drawing_.edges) {
      std::vector<std::size_t> route{place_of_[edge.from]};
      if (!is_weight(edge.to)) {
        for (int layer = layer_[edge.from] + 1; layer < layer_[edge.to]; ++layer) {
          route.push_back(add_place(kNone, layer, 34));
        }
        route.push_back(place_of_[edge.to]);
        for (std::size_t i = 0; i + 1 < route.size(); ++i) {
          places_[route[i]].above.push_back(route[i + 1]);
          places_[route[i + 1]].below.push_back(route[i]);
        }
      }
      routes_.push_back(std::move(route));
    }
  }
  void order_layers() {
    std::vector<double> rank(places_.size());
    const auto number = [&](const std::vector<std::size_t>& layer) {
      for (std::size_t i = 0; i < layer.size(); ++i)
        rank[layer[i]] = static_cast<double>(i) - 0.5 * static_cast<double>(layer.size());
    };
    for (const auto& layer : layers_) number(layer);
    for (int sweep = 0; sweep < 8; ++sweep) {
      for (std::size_t step = 0; step < layers_.size(); ++step) {
        auto& layer = layers_[sweep % 2 == 0 ? step : layers_.size() - 1 - step];
        const auto centre = [&](std::size_t p) {
          const auto& near = sweep % 2 == 0 ? places_[p].below : places_[p].above;
          if (near.empty()) return rank[p];
          double sum = 0;
          for (const std::size_t q : near) sum += rank[q];
          return sum / static_cast<double>(near.size());
        };
        std::vector<std::pair<double, std::size_t>> keyed;
        for (const std::size_t p : layer) keyed.emplace_back(centre(p), p);
        std::stable_sort(keyed.begin(), keyed.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
        for (std::size_t i = 0; i < layer.size(); ++i) layer[i] = keyed[i].second;
        number(layer);
      }
    }
  }
  double apart(std::size_t a, std::size_t b) const {
    return (places_[a].width + places_[b].width) / 2 + kGap;
  }
  void position() {
    for (const auto& layer : layers_) {
      double x = 0;
      for (std::size_t i = 0; i < layer.size(); ++i) {
        if (i > 0) x += apart(layer[i - 1], layer[i]);
        places_[layer[i]].x = x;
      }
      for (const std::size_t p : layer) places_[p].x -= x / 2;
    }
    for (int round = 0; round < 24; ++round) {
      for (auto& layer : layers_) relax(layer);
    }
    double least = 1e9;
    double most = -1e9;
    for (const Place& place : places_) {
      least = std::min(least, place.x - place.width / 2);
      most = std::max(most, place.x + place.width / 2);
    }
    for (Place& place : places_) place.x += kMargin - least;
    graph_width_ = most - least + 2 * kMargin;
    width_ = graph_width_;
    height_ = kLayerHeight * static_cast<double>(layers_.size() - 1) + kNodeHeight + 2 * kMargin;
  }
  void relax(const std::vector<std::size_t>& layer) {
    std::vector<double> wanted;
    for (const std::size_t p : layer) {
      const Place& place = places_[p];
      double sum = 0;
      for (const std::size_t q : place.below) sum += places_[q].x;
      for (const std::size_t q : place.above) sum += places_[q].x;
      const auto count = static_cast<double>(place.below.size() + place.above.size());
      wanted.push_back(count == 0 ? place.x : sum / count);
    }
    // Least movement that keeps the order: left and right packings, averaged.
    std::vector<double> left = wanted;
    std::vector<double> right = wanted;
    for (std::size_t i = 1; i < layer.size(); ++i)
      left[i] = std::max(left[i], left[i - 1] + apart(layer[i - 1], layer[i]));
    for (std::size_t i = layer.size(); i-- > 1;)
      right[i - 1] = std::min(right[i - 1], right[i] - apart(layer[i - 1], layer[i]));
    for (std::size_t i = 0; i < layer.size(); ++i) places_[layer[i]].x = (left[i] + right[i]) / 2;
  }
  double layer_y(int layer) const { return height_ - kMargin - kNodeHeight / 2 - kLayerHeight * layer; }

  /// Weights stand in a column to the right, each at the mean height of what it shares and matches.
  void place_weights() {
    weight_x_.assign(drawing_.nodes.size(), 0);
    weight_y_.assign(drawing_.nodes.size(), 0);
    double widest = 0;
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t n = 0; n < drawing_.nodes.size(); ++n) {
      if (!is_weight(n)) continue;
      double sum = 0;
      double count = 0;
      for (const DrawnEdge& edge : drawing_.edges) {
        if (edge.to != n) continue;
        sum += layer_y(layer_[edge.from]);
        ++count;
      }
      order.emplace_back(-(count > 0 ? sum / count : 0), n);
      widest = std::max(widest, text_width(drawing_.nodes[n].label));
    }
    if (order.empty()) return;
    std::stable_sort(order.begin(), order.end());
    double lowest = height_;
    for (const auto& [key, n] : order) {
      weight_x_[n] = graph_width_ + 40 + widest / 2;
      weight_y_[n] = std::min(-key, lowest - 2 * kNodeHeight);
      lowest = weight_y_[n];
    }
    width_ = graph_width_ + 40 + widest + kMargin;
  }

  void draw_edge(std::size_t e, std::string& edges, std::string& labels) const {
    const DrawnEdge& edge = drawing_.edges[e];
    const auto label = [&](double x, double y) {
      // A white outline first, the letters on it: not every viewer knows paint-order.
      for (const std::string_view look :
           {"stroke=\"#ffffff\" stroke-width=\"4\" fill=\"none\"", "fill=\"#3b4552\""}) {
        labels += fmt::format(
            "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"11\" text-anchor=\"middle\" {}>{}</text>\n", x, y,
            look, escape(edge.label));
      }
    };
    const Place& from = places_[routes_[e].front()];
    const double start_y = layer_y(from.layer) - kNodeHeight / 2;
    if (is_weight(edge.to)) {
      const double x1 = weight_x_[edge.to] - text_width(drawing_.nodes[edge.to].label) / 2;
      const double y1 = weight_y_[edge.to];
      const double x0 = from.x + std::min(from.width / 2, 20.0);
      edges += fmt::format(
          "<path d=\"M{:.1f} {:.1f} C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}\" fill=\"none\" "
          "stroke=\"#c9a227\" "
          "stroke-width=\"1.4\" stroke-dasharray=\"5 3\" marker-end=\"url(#tip)\"/>\n",
          x0, start_y, x0 + 30, start_y - 30, x1 - 70, y1, x1, y1);
      if (drawing_.nodes[edge.from].kind != NodeKind::Share) label(x0 + (x1 - x0) * 0.3, start_y - 16);
      return;
    }
    double x = spread(e, from.x, from.width);
    double y = start_y;
    std::string path = fmt::format("M{:.1f} {:.1f}", x, y);
    for (std::size_t i = 1; i < routes_[e].size(); ++i) {
      const Place& to = places_[routes_[e][i]];
      const bool last = i + 1 == routes_[e].size();
      const double tx = last ? arrive(e, to) : to.x;
      const double ty = layer_y(to.layer) + (last ? kNodeHeight / 2 + 1 : 0);
      const double bend = (y - ty) / 2;
      path += fmt::format(" C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", x, y - bend, tx, ty + bend, tx, ty);
      if (i == 1) label((x + tx) / 2, (y + ty) / 2 + 4);
      x = tx;
      y = ty;
    }
    edges += fmt::format(
        "<path d=\"{}\" fill=\"none\" stroke=\"#66707c\" stroke-width=\"1.5\" marker-end=\"url(#tip)\"/>\n",
        path);
  }
  /// Edges leave and reach a node side by side, in the order of where they lead.
  double spread(std::size_t e, double x, double width) const {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t other = 0; other < drawing_.edges.size(); ++other) {
      if (drawing_.edges[other].from != drawing_.edges[e].from || is_weight(drawing_.edges[other].to))
        continue;
      order.emplace_back(places_[routes_[other][1]].x, other);
    }
    return fan(order, e, x, width);
  }
  double arrive(std::size_t e, const Place& to) const {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t other = 0; other < drawing_.edges.size(); ++other) {
      if (drawing_.edges[other].to != drawing_.edges[e].to) continue;
      order.emplace_back(places_[routes_[other][routes_[other].size() - 2]].x, other);
    }
    return fan(order, e, to.x, to.width);
  }
  static double fan(std::vector<std::pair<double, std::size_t>>& order, std::size_t e, double x,
                    double width) {
    std::stable_sort(order.begin(), order.end());
    const auto count = static_cast<double>(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (order[i].second == e) {
        return x + (static_cast<double>(i) - (count - 1) / 2) *
                       std::min(28.0, (width - 16) / std::max(count, 1.0));
      }
    }
    return x;
  }
  void draw_node(std::size_t n, std::string& nodes) const {
    const DrawnNode& node = drawing_.nodes[n];
    const double width = text_width(node.label);
    const double x = is_weight(n) ? weight_x_[n] : places_[place_of_[n]].x;
    const double y = is_weight(n) ? weight_y_[n] : layer_y(layer_[n]);
    static constexpr std::string_view kFill[] = {"#f6b26b", "#f6b26b", "#fff2b3",
                                                 "#a9c9ea", "#cfe8cf", "#dbe7f6"};
    static constexpr std::string_view kLine[] = {"#b86a14", "#b86a14", "#c9a227",
                                                 "#3f74ad", "#4f8f4f", "#6f93bf"};
    const auto kind = static_cast<std::size_t>(node.kind);
    const double round = node.kind == NodeKind::View || node.kind == NodeKind::Reduce ? 8
                         : node.kind == NodeKind::Share                               ? kNodeHeight / 2
                                                                                      : 2;
    nodes += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\" rx=\"{:.0f}\" fill=\"{}\" "
        "stroke=\"{}\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"#1d2733\">{}</text>\n",
        x - width / 2, y - kNodeHeight / 2, width, kNodeHeight, round, kFill[kind], kLine[kind], x, y + 4.5,
        escape(node.label));
  }

  const Drawing& drawing_;
  std::vector<int> layer_;
  std::vector<std::size_t> place_of_;
  std::vector<Place> places_;
  std::vector<std::vector<std::size_t>> layers_;
  std::vector<std::vector<std::size_t>> routes_;  ///< per edge: its places, bottom to top
  std::vector<double> weight_x_, weight_y_;
  double graph_width_ = 0;
  double width_ = 0;
  double height_ = 0;
};

}  // namespace

std::string to_svg(const CompleteGraph& graph) { return Layout(drawing_of(graph)).svg(); }

}  // namespace syno::pgraph
