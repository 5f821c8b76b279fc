#include "emit/triton_tiles.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "support/error.hpp"

namespace syno::emit {
namespace {

using machine::Gpu;

constexpr int kWarp = 32;
/// Registers of a thread beside sums: addresses, masks, what is loaded next.
constexpr double kOtherRegisters = 40;
/// Sums of a thread that hide the latency of a multiply-add, and warps that fill a multiprocessor with them.
constexpr double kUsefulSums = 8, kFullWarps = 16;
/// Threads of a multiprocessor that keep memory busy.
constexpr double kBusyThreads = 512;
constexpr std::int64_t kMostParts = 256;
/// Seconds that a multiprocessor takes to begin a block.
constexpr double kBlock = 15e-9;
/// What products reach of the rate of their units, and what follows from the sums that a thread of one has:
/// with fewer, operands are read again for few of them; with more, registers run short. Judged by 600 kernels
/// on an H100, as is how much longer a product without tensor cores takes where its operands are deep.
constexpr double kReached = 0.5, kFewSums = 32, kManySums = 64, kStrain = 0.37;
/// Of what is not the longest, what it does not hide.
constexpr double kNotHidden = 0.15;
constexpr double kShallow = 16, kDeepStrain = 0.22;

std::int64_t power_above(double value) {
  std::int64_t power = 1;
  while (static_cast<double>(power) < value) power *= 2;
  return power;
}

/// The rows and columns that warps read of a block's operands at each term, least over how they are arranged.
double fragment(std::int64_t rows, std::int64_t columns, int warps) {
  double least = 1e300;
  for (int across = 1; across <= warps; across *= 2) {
    const double high = std::max(1.0, static_cast<double>(rows) / across);
    const double wide = std::max(1.0, static_cast<double>(columns) * across / warps);
    least = std::min(least, high + wide);
  }
  return least;
}

/// Times of a candidate; nothing where it does not fit.
class Prediction {
 public:
  Prediction(const Gpu& gpu, const TileWork& work, const Tile& tile) : gpu_(gpu), work_(work), tile_(tile) {
    depth_ = static_cast<double>(tile.depth * tile.steps);
    blocks_ = work.batch * std::ceil(work.rows / static_cast<double>(tile.rows)) *
              std::ceil(work.columns / static_cast<double>(tile.columns)) * static_cast<double>(tile.parts);
  }

  bool fits() {
    const double threads = kWarp * tile_.warps;
    const double words = work_.wide ? 2 : 1;
    double held = static_cast<double>(tile_.rows * tile_.columns) / threads;
    if (tile_.kind == TileKind::Reduced) held = static_cast<double>(tile_.rows * tile_.depth) / threads;
    sums_ = held;
    const double registers = std::max(1.0, held) * words + kOtherRegisters;
    if (registers > gpu_.registers_per_thread) return false;
    const double shared = shared_bytes();
    if (shared > static_cast<double>(gpu_.shared_bytes_per_block)) return false;
    resident_ = std::min({static_cast<double>(gpu_.blocks), std::floor(gpu_.threads / threads),
                          std::floor(gpu_.registers / (registers * threads)),
                          shared > 0 ? std::floor(static_cast<double>(gpu_.shared_bytes) / shared) : 1e9});
    return resident_ >= 1;
  }

  /// Of the kernel, and of a second one that adds up parts.
  double seconds(TileTimes& times) const {
    const double each = std::ceil(blocks_ / gpu_.multiprocessors);  // blocks of the busiest multiprocessor
    const double together = std::min(each, resident_);
    const double waves = std::ceil(each / resident_);
    const double per_second = 1.0 / gpu_.multiprocessors;
    const double points =
        static_cast<double>(tile_.rows * tile_.columns) * depth_;  // of a block, padding included
    const double loaded =
        depth_ *
        (static_cast<double>(tile_.rows) * work_.row_ops +
         (tile_.kind == TileKind::Product ? static_cast<double>(tile_.columns) * work_.column_ops : 0.0));
    const double rate = (work_.tensor_cores ? gpu_.tensor_tflops
                         : work_.split_tf32 ? gpu_.tf32_tflops / 3
                         : work_.wide       ? gpu_.fp64_tflops
                                            : gpu_.fp32_tflops) *
                        0.5e12 * per_second * (tile_.kind == TileKind::Product ? kReached : 1.0);
    const double hidden = std::min(1.0, tile_.warps * together * std::min(kUsefulSums, std::max(1.0, sums_)) /
                                            (kFullWarps * kUsefulSums / 2));
    const double busy = std::min(1.0, kWarp * tile_.warps * together / kBusyThreads);
    const double arithmetic = each * points * work_.multiply_adds / (rate * hidden);
    const double indices = each * loaded / (gpu_.int32_tops * 1e12 * per_second * busy);
    const double shared = each * depth_ * (shared_reads() + fetched_bytes()) /
                          (gpu_.shared_bytes_per_cycle * gpu_.cycles_per_second());
    const double fetched = blocks_ * depth_ * fetched_bytes();
    const double cached = fetched / (gpu_.l2_gbs * 1e9 * busy);
    const double memory = work_.memory_bytes / (gpu_.memory_gbs * 1e9 * busy);
    const double step = gpu_.latency_ns * 1e-9;
    const double waiting = waves * step * (1 + static_cast<double>(loads()) / std::max(1, tile_.stages - 1));
    times = {arithmetic, indices, shared, cached, memory, waiting};
    const double longest = std::max({arithmetic + indices, shared, cached, memory});
    const double others = arithmetic + indices + shared + cached + memory - longest;
    double total =
        gpu_.launch_us * 1e-6 + each * kBlock + std::max(strain() * (longest + kNotHidden * others), waiting);
    if (tile_.parts > 1) {
      const double results = work_.batch * work_.rows * work_.columns;
      total += gpu_.launch_us * 1e-6 + results * (static_cast<double>(tile_.parts) * 8 + work_.result_bytes) /
                                           (gpu_.memory_gbs * 1e9);
    }
    return total;
  }

  std::int64_t blocks() const { return static_cast<std::int64_t>(std::min(blocks_, 0x1p62)); }

 private:
  double strain() const {
    if (tile_.kind != TileKind::Product) return 1;
    const double sums = std::max({1.0, kFewSums / std::max(1.0, sums_), sums_ / kManySums});
    const bool units = work_.tensor_cores || work_.split_tf32;
    return std::pow(sums, kStrain) *
           (units ? 1.0 : std::pow(static_cast<double>(tile_.depth) / kShallow, kDeepStrain));
  }
  double operand_bytes() const {  // of a block, a term
    const double rows = static_cast<double>(tile_.rows) * work_.row_bytes;
    return tile_.kind == TileKind::Product ? rows + static_cast<double>(tile_.columns) * work_.column_bytes
                                           : rows;
  }
  double fetched_bytes() const {  // the same, from L2
    const double rows = static_cast<double>(tile_.rows) * work_.row_fetched;
    return tile_.kind == TileKind::Product ? rows + static_cast<double>(tile_.columns) * work_.column_fetched
                                           : rows;
  }
  double shared_bytes() const {
    if (tile_.kind != TileKind::Product) return 0;
    const auto depth = static_cast<double>(tile_.depth);
    const double loaded = operand_bytes() * depth * std::max(1, tile_.stages - 1);
    // Both parts of a right operand that is split lie there, too.
    return work_.split_tf32 ? loaded + 2 * 4 * depth * static_cast<double>(tile_.columns) : loaded;
  }
  double shared_reads() const {
    if (tile_.kind != TileKind::Product) return 0;
    return tile_.warps * fragment(tile_.rows, tile_.columns, tile_.warps) * work_.row_bytes;
  }
  /// Loads that wait for one another. Terms of a result do not: several are on their way at a time.
  double loads() const {
    const auto steps = static_cast<double>(tile_.steps);
    return tile_.kind == TileKind::Product ? steps : std::ceil(steps / 8);
  }

  const Gpu& gpu_;
  const TileWork& work_;
  const Tile& tile_;
  double depth_ = 1, blocks_ = 1, resident_ = 1, sums_ = 1;
};

}  // namespace

std::vector<Tile> tile_candidates(const Gpu& gpu, const TileWork& work) {
  std::vector<Tile> found;
  const bool product = work.kind == TileKind::Product;
  // tl.dot takes nothing smaller than 16.
  const std::int64_t least_rows = product ? 16 : 1;
  const std::int64_t most_rows =
      std::max(least_rows, std::min<std::int64_t>(product ? 256 : 1024, power_above(work.rows)));
  const std::int64_t most_columns =
      product ? std::max<std::int64_t>(16, std::min<std::int64_t>(256, power_above(work.columns))) : 1;
  const std::int64_t least_depth = product ? 16 : work.kind == TileKind::Reduced ? 2 : 1;
  const std::int64_t most_depth =
      work.kind == TileKind::Points
          ? 1
          : std::max(least_depth, std::min<std::int64_t>(product ? 64 : 1024, power_above(work.depth)));
  const auto depth = static_cast<std::int64_t>(work.depth);
  for (std::int64_t rows = most_rows; rows >= least_rows; rows /= 2)
    for (std::int64_t columns = most_columns; columns >= (product ? 16 : 1); columns /= 2)
      for (std::int64_t deep = most_depth; deep >= least_depth; deep /= 2)
        for (const int warps : {4, 8, 2, 1})
          for (const int stages : {3, 2, 4}) {
            if (!product && stages != 3) continue;
            const std::int64_t all = std::max<std::int64_t>(1, (depth + deep - 1) / deep);
            for (std::int64_t parts = 1; parts <= (work.splits ? kMostParts : 1) && parts <= all;
                 parts *= 2) {
              Tile tile;
              tile.kind = work.kind;
              tile.split_tf32 = work.split_tf32;
              tile.rows = rows;
              tile.columns = columns;
              tile.depth = deep;
              tile.warps = warps;
              tile.stages = stages;
              tile.steps = (all + parts - 1) / parts;
              tile.parts = std::max<std::int64_t>(1, (all + tile.steps - 1) / tile.steps);
              Prediction prediction(gpu, work, tile);
              if (!prediction.fits()) continue;
              tile.seconds = prediction.seconds(tile.times);
              tile.blocks = prediction.blocks();
              found.push_back(tile);
            }
          }
  SYNO_ASSERT(!found.empty(), "the smallest tile fits every GPU that a file may describe");
  return found;
}

std::vector<TileChoice> by_promise(const std::vector<std::vector<Tile>>& ways) {
  std::vector<TileChoice> order, others;
  for (std::size_t way = 0; way < ways.size(); ++way)
    for (std::size_t tile = 0; tile < ways[way].size(); ++tile) order.push_back({way, tile});
  const auto at = [&](const TileChoice& choice) -> const Tile& { return ways[choice.way][choice.tile]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](const TileChoice& a, const TileChoice& b) { return at(a).seconds < at(b).seconds; });
  std::set<std::tuple<std::size_t, std::int64_t, std::int64_t, std::int64_t>> shapes;
  std::vector<TileChoice> firsts;
  for (const TileChoice& choice : order) {
    const Tile& tile = at(choice);
    const bool first = shapes.insert({choice.way, tile.rows, tile.columns, tile.depth}).second;
    (first ? firsts : others).push_back(choice);
  }
  firsts.insert(firsts.end(), others.begin(), others.end());
  return firsts;
}

}  // namespace syno::emit
