#include "emit/triton_scope.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "emit/triton_access.hpp"
#include "emit/triton_body.hpp"
#include "emit/triton_split.hpp"
#include "emit/triton_ways.hpp"
#include "program/scalars.hpp"
#include "support/checked.hpp"
#include "support/error.hpp"
#include "support/random.hpp"

namespace syno::emit {
namespace {

using program::Function;
using program::Reduction;
using program::Role;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using program::Scope;
using program::TensorId;

constexpr Frame kFlat = {"", "", nullptr};
constexpr Frame kRowsByDepth = {"[:, None]", nullptr, "[None, :]"};
constexpr Frame kDepthByColumns = {nullptr, "[None, :]", "[:, None]"};
constexpr Frame kRowsByColumns = {"[:, None]", "[None, :]", nullptr};
constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 31) - 1;
/// Positions that 32 bits surely hold, padding and offsets included.
constexpr std::int64_t kNarrow = std::int64_t{1} << 30;
/// By how much digits must be faster: they hide from the compiler what lies side by side.
constexpr double kWorthDigits = 0.9;
constexpr std::int64_t kSummedAtOnce = 256;  // results of a block that adds up parts

int bytes_of(const std::string& dtype) { return dtype == "float64" ? 8 : dtype == "float32" ? 4 : 2; }

class TritonScopeWriter {
 public:
  TritonScopeWriter(TritonContext& context, std::size_t scope, std::vector<ExprId> at,
                    const std::string& name)
      : context_(context),
        program_(*context.program),
        scope_number_(scope),
        scope_(program_.scopes[scope]),
        at_(std::move(at)),
        ranges_(program_),
        lines_(ranges_, taken(context)),
        accesses_(program_, ranges_, slots(scope_)) {
    made_.name = name;
    made_.tile.seconds = std::numeric_limits<double>::infinity();
    for (const auto* iterators : {&scope_.traversal, &scope_.sums}) {
      for (const program::Iterator& i : *iterators) {
        if (i.range.live.parameter != 0)
          fail<ShapeError>("to_triton", "the end of {} is known at run time only; choose a size", i.name);
        (iterators == &scope_.traversal ? traversal_ : sums_).push_back(i.slot);
      }
    }
    for (const program::Range& range : program_.tensor(scope_.output).dims)
      dims_.push_back(program::extent_of(program_, range, 0));
    elements_ = 1;
    for (const program::Extent& dim : dims_) elements_ = checked_multiply(elements_, dim.end - dim.begin);
    results_ = lines_.extent(traversal_);
    terms_ = lines_.extent(sums_);
  }

  /// Of the best kernel, predicted.
  double least_seconds() {
    consider_all();
    return made_.tile.seconds;
  }

  ScopeKernel write() {
    choose();
    kernel();
    launch();
    return std::move(made_);
  }

 private:
  static std::vector<Slot> slots(const Scope& scope) {
    std::vector<Slot> all;
    for (const auto* iterators : {&scope.traversal, &scope.sums})
      for (const program::Iterator& i : *iterators) all.push_back(i.slot);
    return all;
  }
  static std::set<std::string> taken(const TritonContext& context) {
    std::set<std::string> names = context.used;
    names.insert({"pid", "parts", "step", "total"});
    return names;
  }
  const std::string& name(TensorId id) const { return context_.names[static_cast<std::size_t>(id)]; }
  const std::string& dtype(TensorId id) const { return context_.dtypes[static_cast<std::size_t>(id)]; }
  bool accumulates() const { return !scope_.target.empty(); }
  bool adds_up() const { return scope_.reduction == Reduction::Sum || scope_.reduction == Reduction::Mean; }

  // ---- What it is as a kernel

  double bytes_read() const {
    std::set<TensorId> read;
    program::over_reads(program_, scope_.body,
                        [&](ScalarId, const Scalar& each) { read.insert(each.tensor); });
    double total = static_cast<double>(elements_) * bytes_of(dtype(scope_.output));
    for (const TensorId id : read) {
      double all = bytes_of(dtype(id));
      for (const std::int64_t extent : program::shape_of(program_, id)) all *= static_cast<double>(extent);
      total += all;
    }
    return total;
  }

  std::vector<program::Extent> dims_of(TensorId tensor) const {
    std::vector<program::Extent> dims;
    for (const auto& range : program_.tensor(tensor).dims)
      dims.push_back(program::extent_of(program_, range, 0));
    return dims;
  }

  /// Integer operations and bytes for an element of what some scalars make.
  void price(const std::vector<ScalarId>& roots, double& operations, int& bytes) {
    operations = 0;
    bytes = 0;
    for (const ScalarId root : roots)
      program::over_reads(program_, root, [&](ScalarId, const Scalar& read) {
        operations += lines_.operations(read.indices, dims_of(read.tensor));
        bytes += bytes_of(dtype(read.tensor));
      });
    bytes = std::max(bytes, 1);
  }

  Access access_of(const Scalar& read) const {
    return {read.indices, dims_of(read.tensor), bytes_of(dtype(read.tensor))};
  }
  /// Bytes from L2 for an element of what some scalars read, where neighbouring lanes go along a group or
  /// along the terms, whichever is less.
  double fetched(const std::vector<ScalarId>& roots, const std::vector<Slot>& group,
                 const std::vector<Slot>& sums) {
    double total = 0;
    for (const ScalarId root : roots)
      program::over_reads(program_, root, [&](ScalarId, const Scalar& read) {
        const Access access = access_of(read);
        double least = accesses_.fetched(access, group);
        if (!sums.empty()) least = std::min(least, accesses_.fetched(access, sums));
        total += least;
      });
    return total;
  }

  TileWork work() {
    TileWork made;
    made.memory_bytes = bytes_read();
    made.result_bytes = bytes_of(dtype(scope_.output));
    made.wide = context_.compute == "float64";
    made.depth = static_cast<double>(std::max<std::int64_t>(1, terms_));
    made.splits = !accumulates() && !sums_.empty();
    return made;
  }

  void consider_all() {
    TileWork points = work();
    points.rows = static_cast<double>(std::max<std::int64_t>(1, results_));
    price({scope_.body}, points.row_ops, points.row_bytes);
    const auto scalars = program::scalars_of(program_, scope_.body);
    points.row_fetched = fetched({scope_.body}, traversal_, {});
    points.multiply_adds =
        std::max(1.0, static_cast<double>(std::count_if(scalars.begin(), scalars.end(), [&](ScalarId id) {
                   return program::operand_count(program_.scalar(id).kind) > 0;
                 })));
    consider(points, std::nullopt);
    if (!sums_.empty() && terms_ > 1) {
      TileWork reduced = points;
      reduced.kind = TileKind::Reduced;
      reduced.row_fetched = fetched({scope_.body}, traversal_, sums_);
      consider(reduced, std::nullopt);
    }
    const bool products = adds_up() && !sums_.empty();
    for (const Operands& operands : products ? ways_of(context_, ranges_, scope_) : std::vector<Operands>{}) {
      TileWork product = work();
      product.kind = TileKind::Product;
      product.batch = static_cast<double>(lines_.extent(operands.batch));
      product.rows = static_cast<double>(lines_.extent(operands.rows));
      product.columns = static_cast<double>(lines_.extent(operands.columns));
      price(operands.left, product.row_ops, product.row_bytes);
      price(operands.right, product.column_ops, product.column_bytes);
      if (!operands.sums.empty() && ranges_.extent(operands.sums.back()) % kLeastDepth == 0) {
        product.row_ops = std::min(product.row_ops, 3.0 * static_cast<double>(operands.left.size()));
        product.column_ops = std::min(product.column_ops, 3.0 * static_cast<double>(operands.right.size()));
      }
      product.row_fetched = fetched(operands.left, operands.rows, operands.sums);
      product.column_fetched = fetched(operands.right, operands.columns, operands.sums);
      product.tensor_cores = operands.narrow;
      consider(product, operands);
      if (operands.narrow || !context_.split_tf32 || context_.gpu->tf32_tflops <= 0) continue;
      product.split_tf32 = true;
      consider(product, operands);
    }
  }

  void choose() {
    consider_all();
    take_rank();
    // Any candidate, each way of going over the scope as likely as another.
    if (!context_.variant) return;
    Random random = Random(*context_.variant).fork(made_.name);
    const std::size_t way = random.below(considered_.size());
    made_.tile = considered_[way][random.below(considered_[way].size())];
    operands_ = operands_of_[way];
  }

  /// The candidate that the caller asks for by its place in the order of predicted times.
  void take_rank() {
    made_.candidates = 0;
    for (const auto& tiles : considered_) made_.candidates += tiles.size();
    if (scope_number_ >= context_.ranks.size()) return;
    const std::vector<TileChoice> order = by_promise(considered_);
    const TileChoice& chosen = order[std::min(context_.ranks[scope_number_], order.size() - 1)];
    made_.tile = considered_[chosen.way][chosen.tile];
    operands_ = operands_of_[chosen.way];
  }

  void consider(const TileWork& work, const std::optional<Operands>& operands) {
    std::vector<Tile> tiles = tile_candidates(*context_.gpu, work);
    for (const Tile& tile : tiles) {
      if (tile.seconds >= made_.tile.seconds) continue;
      made_.tile = tile;
      operands_ = operands;
    }
    considered_.push_back(std::move(tiles));
    operands_of_.push_back(operands);
  }

  // ---- The kernel

  void kernel() {
    const Tile& tile = made_.tile;
    const std::vector<Slot>& rows = operands_ ? operands_->rows : traversal_;
    const std::vector<Slot> columns = operands_ ? operands_->columns : std::vector<Slot>{};
    const std::vector<Slot> batch = operands_ ? operands_->batch : std::vector<Slot>{};
    const auto blocks_along = [](std::int64_t extent, std::int64_t each) {
      return (extent + each - 1) / each;
    };
    const std::int64_t row_blocks = blocks_along(lines_.extent(rows), tile.rows);
    const std::int64_t column_blocks = blocks_along(lines_.extent(columns), tile.columns);
    blocks_ = 1;
    // Neighbours share their rows, which are many; then parts of a result, whose operands differ, come last.
    for (const std::int64_t count : {column_blocks, row_blocks, lines_.extent(batch), tile.parts})
      blocks_ = checked_multiply(blocks_, count);
    if (blocks_ > kMostBlocks)
      fail<KernelError>("to_triton", "{} would need {} blocks, more than the {} that a GPU starts at once",
                        made_.name, blocks_, kMostBlocks);
    const bool wide = largest() > kNarrow;
    const auto cast = [&](const char* text) {
      return wide ? fmt::format("{}.to(tl.int64)", text) : std::string(text);
    };
    std::vector<std::string>& before = lines_.before;
    if (blocks_ > 1) before.push_back("pid = " + cast("tl.program_id(0)"));
    std::int64_t stride = 1;
    const auto digit = [&](std::int64_t count, const char* wanted) -> std::string {
      if (count <= 1) return "0";
      std::string text = "pid";
      if (stride > 1) text = fmt::format("{} // {}", text, stride);
      stride *= count;
      if (stride < blocks_) text = fmt::format("{} % {}", text, count);
      return lines_.assign({text, 0, false}, wanted).text;
    };
    const std::string column_block = digit(column_blocks, "column_block");
    const std::string row_block = digit(row_blocks, "row_block");
    const std::string batch_at = digit(lines_.extent(batch), "batch_at");
    part_ = digit(tile.parts, "part");
    const auto lanes = [&](std::int64_t each) { return cast(fmt::format("tl.arange(0, {})", each).c_str()); };
    LaneMasks masks;
    const auto along = [&](Axis axis, const std::string& block, std::int64_t each, std::int64_t extent,
                           const char* wanted) {
      TileIndices::Position at;
      at.each = each;
      at.lanes = lines_.assign({lanes(each), 1u << axis, false}, "lanes");
      at.base = {"0", 0, false};
      at.all = at.lanes;
      if (block != "0") {
        at.base = lines_.assign({fmt::format("{} * {}", block, each), 0, false}, "base");
        at.all =
            lines_.assign({fmt::format("{} + {}", at.base.text, at.lanes.text), 1u << axis, false}, wanted);
      }
      if (extent % each != 0)
        masks[axis] =
            lines_.assign({fmt::format("{} < {}", at.all.text, extent), 1u << axis, false}, "c").text;
      return at;
    };
    lines_.walk(rows, along(kRow, row_block, tile.rows, lines_.extent(rows), "row"));
    if (tile.kind == TileKind::Product)
      lines_.walk(columns, along(kColumn, column_block, tile.columns, lines_.extent(columns), "column"));
    const TileText part_of_batch{lines_.extent(batch) > 1 ? batch_at : "0", 0, false};
    lines_.walk(batch, {part_of_batch, part_of_batch, {}, 1});
    const bool loops = !sums_.empty();
    if (loops) depth(masks, wide);
    body(masks, loops);
    assemble(loops);
  }

  /// The position among the terms, and which of them there are.
  void depth(LaneMasks& masks, bool wide) {
    const Tile& tile = made_.tile;
    const std::int64_t chunk = tile.depth * tile.steps;
    const unsigned axes = 1u << kDepth;
    const char* type = wide ? "int64" : "int32";
    std::string base = tile.depth == 1 ? fmt::format("tl.full([], 0, tl.{}) + step", type)
                                       : fmt::format("step * {}", tile.depth);
    if (part_ != "0") base = fmt::format("{} * {} + {}", part_, chunk, base);
    if (wide && tile.depth > 1) base = fmt::format("tl.full([], 0, tl.int64) + {}", base);
    TileIndices::Position at;
    at.each = tile.depth;
    if (tile.depth == 1) {
      at.all = at.base = lines_.assign({base, axes, true}, "term");
    } else {
      at.base = lines_.assign({base, 0, true}, "base");
      at.lanes = lines_.assign({fmt::format("tl.arange(0, {})", tile.depth), axes, false}, "lanes");
      at.all = lines_.assign({fmt::format("{} + {}", at.base.text, at.lanes.text), axes, true}, "term");
    }
    if (chunk * tile.parts != terms_)
      masks[kDepth] = lines_.assign({fmt::format("{} < {}", at.all.text, terms_), axes, true}, "c").text;
    lines_.walk(operands_ ? operands_->sums : sums_, at);
  }

  std::string start() const {
    if (scope_.reduction == Reduction::Max) return "float(\"-inf\")";
    if (scope_.reduction == Reduction::Min) return "float(\"inf\")";
    return scope_.reduction == Reduction::Product ? "1.0" : "0.0";
  }
  /// `total` with one more term, or with those of another part.
  std::string folded(const std::string& total, const std::string& term) {
    switch (scope_.reduction) {
      case Reduction::Max:
        context_.helpers.insert("_maximum");
        return fmt::format("_maximum({}, {})", total, term);
      case Reduction::Min:
        context_.helpers.insert("_minimum");
        return fmt::format("_minimum({}, {})", total, term);
      case Reduction::Product:
        return fmt::format("{} * {}", total, term);
      default:
        return fmt::format("{} + {}", total, term);
    }
  }
  std::string across_depth() {
    switch (scope_.reduction) {
      case Reduction::Max:
        context_.helpers.insert("_maximum");
        return "tl.reduce(total, 1, _maximum)";
      case Reduction::Min:
        context_.helpers.insert("_minimum");
        return "tl.reduce(total, 1, _minimum)";
      case Reduction::Product:
        context_.helpers.insert("_multiply");
        return "tl.reduce(total, 1, _multiply)";
      default:
        return "tl.sum(total, 1)";
    }
  }

  void body(const LaneMasks& masks, bool loops) {
    const Tile& tile = made_.tile;
    TileBody body(context_, lines_, masks);
    body.side_by_side = [this](const Scalar& read, Axis axis) {
      return accesses_.side_by_side(access_of(read), group_of(axis));
    };
    const std::string ct = "tl." + context_.compute;
    std::string total_shape = fmt::format("[{}]", tile.rows);
    Frame frame = kFlat;
    if (tile.kind == TileKind::Product) {
      total_shape = fmt::format("[{}, {}]", tile.rows, tile.columns);
      const std::string left = operand(body, operands_->left, kRow, tile.rows, masks);
      const std::string right = operand(body, operands_->right, kColumn, tile.columns, masks);
      lines_.inside.push_back(fmt::format("total = tl.dot({}, {}, total, input_precision=\"{}\")", left,
                                          right, tile.split_tf32 ? "tf32x3" : "ieee"));
      frame = kRowsByColumns;
    } else if (tile.kind == TileKind::Reduced) {
      total_shape = fmt::format("[{}, {}]", tile.rows, tile.depth);
      TileText value = body.value(scope_.body, kRowsByDepth);
      if (!masks[kDepth].empty()) {
        const TileText valid = body.mask({}, 1u << kDepth, kRowsByDepth);
        value.text = fmt::format("tl.where({}, {}, {})", valid.text, value.text, start());
        value.looped = true;
        value = lines_.assign(value, "v");
      }
      lines_.inside.push_back("total = " + folded("total", value.text));
    } else {
      TileText value = body.value(scope_.body, kFlat);
      if (!loops) {
        lines_.before.push_back(fmt::format("total = tl.broadcast_to({}, {})", value.text, total_shape));
      } else {
        if (!masks[kDepth].empty())
          value.text = fmt::format("tl.where({}, {}, {})", masks[kDepth], value.text, start());
        lines_.inside.push_back("total = " + folded("total", value.text));
      }
    }
    if (loops) lines_.before.push_back(fmt::format("total = tl.full({}, {}, {})", total_shape, start(), ct));
    lines_.finish();
    if (tile.kind == TileKind::Reduced) lines_.after.push_back("total = " + across_depth());
    store(body, frame, masks);
  }

  /// A factor of tl.dot: `extent` rows by the depth, or the depth by `extent` columns.
  std::string operand(TileBody& body, const std::vector<ScalarId>& factors, Axis own, std::int64_t extent,
                      const LaneMasks& masks) {
    const Frame& frame = own == kRow ? kRowsByDepth : kDepthByColumns;
    const std::int64_t depth = made_.tile.depth;
    const std::string shape =
        own == kRow ? fmt::format("[{}, {}]", extent, depth) : fmt::format("[{}, {}]", depth, extent);
    TileText value;
    bool zero_beyond = factors.size() == 1;  // what lies beyond the last term was loaded as 0
    for (const ScalarId factor : factors) {
      const Scalar& scalar = program_.scalar(factor);
      const TileText next = operands_->narrow ? body.loaded(scalar, frame) : body.value(factor, frame);
      zero_beyond = zero_beyond && scalar.kind == ScalarKind::Read && scalar.fill == Rational(0);
      value = value.text.empty() ? next
                                 : lines_.assign({fmt::format("{} * {}", value.text, next.text),
                                                  value.axes | next.axes, value.looped || next.looped},
                                                 "v");
    }
    zero_beyond = zero_beyond && (value.axes & 1u << kDepth) != 0;
    if (!zero_beyond && !masks[kDepth].empty()) {
      const TileText valid = body.mask({}, 1u << kDepth, frame);
      value = lines_.assign(
          {fmt::format("tl.where({}, {}, 0.0)", valid.text, value.text), value.axes | valid.axes, true}, "v");
    }
    std::string text = fmt::format("tl.broadcast_to({}, {})", value.text, shape);
    if (operands_->narrow && dtype(program_.scalar(factors[0]).tensor) == "bfloat16") {
      text += ".to(OPERAND)";
    }
    return lines_.assign({text, 7, value.looped}, "v").text;
  }

  /// The iterators along an axis of the tile.
  const std::vector<Slot>& group_of(Axis axis) const {
    if (axis == kDepth) return operands_ ? operands_->sums : sums_;
    return !operands_ ? traversal_ : axis == kColumn ? operands_->columns : operands_->rows;
  }

  void store(TileBody& body, const Frame& frame, const LaneMasks& masks) {
    const Tile& tile = made_.tile;
    const bool splits = tile.parts > 1;
    std::vector<std::string>& after = lines_.after;
    if (scope_.reduction == Reduction::Mean && !splits) after.push_back("total = " + mean(body));
    std::vector<TileText> conditions;
    TileText place = lines_.offset(at_, dims_, frame, conditions);
    const bool product = tile.kind == TileKind::Product;
    const unsigned axes = 1u << kRow | (product ? 1u << kColumn : 0u);
    LaneMasks here = masks;
    here[kDepth].clear();
    TileBody outside(context_, lines_, here);
    const TileText condition = outside.mask(std::move(conditions), axes, frame);
    const std::string shape =
        product ? fmt::format("[{}, {}]", tile.rows, tile.columns) : fmt::format("[{}]", tile.rows);
    if (place.axes != axes)
      place = lines_.assign({fmt::format("tl.zeros({}, tl.int32) + {}", shape, place.text), axes, false});
    std::string to = splits ? "parts" : name(scope_.output);
    if (splits) to += fmt::format(" + {} * {}", part_, elements_);
    const std::string given = condition.text.empty() ? "" : fmt::format(", mask={}", condition.text);
    Scalar written;
    written.indices = at_;
    written.tensor = scope_.output;
    if (product) place.text = body.hinted(written, place.text, axes, frame);
    after.push_back(fmt::format("{}({} + {}, total{}{})", accumulates() ? "tl.atomic_add" : "tl.store", to,
                                place.text, given, accumulates() ? ", sem=\"relaxed\"" : ""));
  }

  std::string mean(const TileBody& body) const {
    return body.quotient("total", fmt::format("tl.full([], {}.0, tl.{})", terms_, context_.compute));
  }

  /// The largest number of positions in anything that is indexed.
  std::int64_t largest() const {
    std::int64_t most = std::max({results_, terms_, checked_multiply(elements_, made_.tile.parts)});
    program::over_reads(program_, scope_.body, [&](ScalarId, const Scalar& read) {
      std::int64_t all = 1;
      for (const std::int64_t extent : program::shape_of(program_, read.tensor))
        all = checked_multiply(all, extent);
      most = std::max(most, all);
    });
    return most;
  }

  std::vector<std::string> arguments() const {
    std::vector<std::string> names;
    std::set<TensorId> seen;
    program::over_reads(program_, scope_.body, [&](ScalarId, const Scalar& read) {
      if (seen.insert(read.tensor).second) names.push_back(name(read.tensor));
    });
    names.push_back(made_.tile.parts > 1 ? "parts" : name(scope_.output));
    return names;
  }

  void assemble(bool loops) {
    std::vector<std::string>& text = made_.definition;
    text.push_back("@triton.jit");
    text.push_back(fmt::format("def {}({}):", made_.name, fmt::join(arguments(), ", ")));
    const auto put = [&](const std::vector<std::string>& lines, int depth) {
      for (const std::string& line : lines)
        text.push_back(std::string(4 * static_cast<std::size_t>(depth), ' ') + line);
    };
    put(lines_.before, 1);
    if (loops) {
      text.push_back(fmt::format("    for step in range(0, {}):", made_.tile.steps));
      put(lines_.inside, 2);
    }
    put(lines_.after, 1);
    if (made_.tile.parts <= 1) return;
    // The parts of each result, in order.
    const std::int64_t rows = kSummedAtOnce;
    TileIndices names(ranges_, taken(context_));
    TileBody body(context_, names, {});
    const bool wide = largest() > kNarrow;
    const std::string out = name(scope_.output);
    text.insert(text.end(), {"", "", "@triton.jit", fmt::format("def {}_sum(parts, {}):", made_.name, out)});
    std::vector<std::string> lines;
    lines.push_back(fmt::format("pid = tl.program_id(0){} * {} + tl.arange(0, {})",
                                wide ? ".to(tl.int64)" : "", rows, rows));
    lines.push_back(fmt::format("total = tl.full([{}], {}, tl.{})", rows, start(), context_.compute));
    lines.push_back(fmt::format("for step in range(0, {}):", made_.tile.parts));
    lines.push_back("    total = " +
                    folded("total", fmt::format("tl.load(parts + step * {} + pid, mask=pid < {}, other={})",
                                                elements_, elements_, start())));
    if (scope_.reduction == Reduction::Mean) lines.push_back("total = " + mean(body));
    lines.push_back(fmt::format("tl.store({} + pid, total, mask=pid < {})", out, elements_));
    put(lines, 1);
  }

  void launch() {
    const Tile& tile = made_.tile;
    std::vector<std::string>& text = made_.launch;
    const auto shape = program::shape_of(program_, scope_.output);
    const std::string& out = name(scope_.output);
    const bool empty = elements_ == 0;
    // What Triton's interpreter rounds wrongly is stored in float32 there.
    const std::string stored =
        dtype(scope_.output) == "bfloat16" ? "STORED" : "torch." + dtype(scope_.output);
    text.push_back(fmt::format("{} = torch.{}(({}{}), dtype={}, device=device)", out,
                               accumulates() ? "zeros" : "empty", fmt::join(shape, ", "),
                               shape.size() == 1 ? "," : "", stored));
    if (blocks_ == 0 || empty) return;
    if (tile.parts > 1)
      text.push_back(fmt::format("parts = torch.empty(({}, {}), dtype=torch.{}, device=device)", tile.parts,
                                 elements_, context_.compute));
    text.push_back(fmt::format("{}[({},)]({}, num_warps={}, num_stages={})", made_.name, blocks_,
                               fmt::join(arguments(), ", "), tile.warps, tile.stages));
    if (tile.parts > 1)
      text.push_back(fmt::format("{}_sum[({},)](parts, {}, num_warps=4)", made_.name,
                                 (elements_ + kSummedAtOnce - 1) / kSummedAtOnce, out));
  }

  TritonContext& context_;
  const program::Program& program_;
  std::size_t scope_number_;
  const Scope& scope_;
  std::vector<ExprId> at_;  ///< where it writes
  Indices ranges_;
  TileIndices lines_;
  Accesses accesses_;
  std::vector<Slot> traversal_, sums_;
  std::vector<program::Extent> dims_;
  std::int64_t elements_ = 1, results_ = 1, terms_ = 1, blocks_ = 1;
  std::optional<Operands> operands_;
  std::vector<std::vector<Tile>> considered_;         ///< candidates, by way of going over the scope
  std::vector<std::optional<Operands>> operands_of_;  ///< by way
  std::string part_ = "0";
  ScopeKernel made_;
};

}  // namespace

ScopeKernel write_triton_scope(TritonContext& context, std::size_t scope, const std::string& name) {
  const DigitScope plain = as_it_is(*context.program, scope), digits = in_digits(*context.program, scope);
  const program::Program* whole = context.program;
  const auto over = [&](const DigitScope& each, auto&& use) {
    context.program = &each.program;
    use(TritonScopeWriter(context, scope, each.at, name));
    context.program = whole;
  };
  const DigitScope* chosen = &plain;
  if (digits.program.next_slot > plain.program.next_slot) {
    double undivided = 0, divided = 0;
    over(plain, [&](TritonScopeWriter&& writer) { undivided = writer.least_seconds(); });
    over(digits, [&](TritonScopeWriter&& writer) { divided = writer.least_seconds(); });
    if (divided < kWorthDigits * undivided) chosen = &digits;
  }
  ScopeKernel made;
  over(*chosen, [&](TritonScopeWriter&& writer) { made = writer.write(); });
  return made;
}

}  // namespace syno::emit
