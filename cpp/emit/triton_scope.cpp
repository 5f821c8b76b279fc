#include "emit/triton_scope.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "emit/triton_body.hpp"
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
/// Operands of a product beyond which not every way to share them out is looked at.
constexpr std::size_t kMostFactors = 8;
constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 31) - 1;
/// Positions that 32 bits surely hold, padding and offsets included.
constexpr std::int64_t kNarrow = std::int64_t{1} << 30;
constexpr std::int64_t kSummedAtOnce = 256;  // results of a block that adds up parts

int bytes_of(const std::string& dtype) { return dtype == "float64" ? 8 : dtype == "float32" ? 4 : 2; }

/// Which factors of a product stand left and right, and which iterators are walked how.
struct Operands {
  std::vector<ScalarId> left, right;
  std::vector<Slot> batch, rows, columns;
  bool narrow = false;  ///< both as they are loaded, 16 bits
};

class TritonScopeWriter {
 public:
  TritonScopeWriter(TritonContext& context, const Scope& scope, const std::string& name)
      : context_(context),
        program_(*context.program),
        scope_(scope),
        ranges_(program_),
        lines_(ranges_, taken(context)) {
    made_.name = name;
    made_.tile.seconds = std::numeric_limits<double>::infinity();
    for (const auto* iterators : {&scope.traversal, &scope.sums}) {
      for (const program::Iterator& i : *iterators) {
        if (i.range.live.parameter != 0)
          fail<ShapeError>("to_triton", "the end of {} is known at run time only; choose a size", i.name);
        (iterators == &scope.traversal ? traversal_ : sums_).push_back(i.slot);
      }
    }
    for (const program::Range& range : program_.tensor(scope.output).dims)
      dims_.push_back(program::extent_of(program_, range, 0));
    elements_ = 1;
    for (const program::Extent& dim : dims_) elements_ = checked_multiply(elements_, dim.end - dim.begin);
    results_ = lines_.extent(traversal_);
    terms_ = lines_.extent(sums_);
  }

  ScopeKernel write() {
    choose();
    kernel();
    launch();
    return std::move(made_);
  }

 private:
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

  std::set<Slot> slots_of(ScalarId root) const {
    std::set<Slot> found;
    for (const ScalarId id : program::scalars_of(program_, root))
      program::over_indices(program_.scalar(id), [&](ExprId index) {
        for (const Slot slot : program_.arena.iterators(index)) found.insert(slot);
      });
    return found;
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

  TileWork work() {
    TileWork made;
    made.memory_bytes = bytes_read();
    made.result_bytes = bytes_of(dtype(scope_.output));
    made.wide = context_.compute == "float64";
    made.depth = static_cast<double>(std::max<std::int64_t>(1, terms_));
    made.splits = !accumulates() && !sums_.empty();
    return made;
  }

  void choose() {
    TileWork points = work();
    points.rows = static_cast<double>(std::max<std::int64_t>(1, results_));
    price({scope_.body}, points.row_ops, points.row_bytes);
    const auto scalars = program::scalars_of(program_, scope_.body);
    points.multiply_adds =
        std::max(1.0, static_cast<double>(std::count_if(scalars.begin(), scalars.end(), [&](ScalarId id) {
                   return program::operand_count(program_.scalar(id).kind) > 0;
                 })));
    consider(points, std::nullopt);
    if (!sums_.empty() && terms_ > 1) {
      TileWork reduced = points;
      reduced.kind = TileKind::Reduced;
      consider(reduced, std::nullopt);
    }
    for (const Operands& operands : adds_up() && !sums_.empty() ? ways() : std::vector<Operands>{}) {
      TileWork product = work();
      product.kind = TileKind::Product;
      product.batch = static_cast<double>(lines_.extent(operands.batch));
      product.rows = static_cast<double>(lines_.extent(operands.rows));
      product.columns = static_cast<double>(lines_.extent(operands.columns));
      price(operands.left, product.row_ops, product.row_bytes);
      price(operands.right, product.column_ops, product.column_bytes);
      product.tensor_cores = operands.narrow;
      consider(product, operands);
    }
    // Any candidate, each way of going over the scope as likely as another.
    if (!context_.variant) return;
    Random random = Random(*context_.variant).fork(made_.name);
    const auto& [tiles, operands] = considered_[random.below(considered_.size())];
    made_.tile = tiles[random.below(tiles.size())];
    operands_ = operands;
  }

  void consider(const TileWork& work, const std::optional<Operands>& operands) {
    std::vector<Tile> tiles = tile_candidates(*context_.gpu, work);
    for (const Tile& tile : tiles) {
      if (tile.seconds >= made_.tile.seconds) continue;
      made_.tile = tile;
      operands_ = operands;
    }
    if (context_.variant && !tiles.empty()) considered_.emplace_back(std::move(tiles), operands);
  }

  /// The ways to see the scope as a product of matrices: its factors shared out to left and right.
  std::vector<Operands> ways() const {
    std::vector<Operands> found;
    if (context_.compute != "float32") return found;  // tl.dot has no float64 everywhere
    const std::vector<ScalarId> factors = program::factors_of(program_, scope_.body);
    if (factors.size() < 2 || factors.size() > kMostFactors) return found;
    std::vector<std::set<Slot>> slots;
    for (const ScalarId factor : factors) slots.push_back(slots_of(factor));
    // The first factor stands left: the other half of the ways are these, transposed.
    for (std::size_t ways = 1; ways < std::size_t{1} << (factors.size() - 1); ++ways) {
      Operands operands;
      std::set<Slot> left, right;
      for (std::size_t f = 0; f < factors.size(); ++f) {
        const bool to_right = f > 0 && (ways >> (f - 1) & 1) != 0;
        (to_right ? operands.right : operands.left).push_back(factors[f]);
        (to_right ? right : left).insert(slots[f].begin(), slots[f].end());
      }
      for (const Slot slot : traversal_) {
        const bool in_left = left.contains(slot), in_right = right.contains(slot);
        (in_left && in_right ? operands.batch : in_right ? operands.columns : operands.rows).push_back(slot);
      }
      const auto plain = [&](const std::vector<ScalarId>& side) {
        if (side.size() != 1) return false;
        const Scalar& scalar = program_.scalar(side[0]);
        return scalar.kind == ScalarKind::Read && dtype(scalar.tensor) != context_.compute;
      };
      operands.narrow = plain(operands.left) && plain(operands.right);
      if (operands.narrow)
        operands.narrow = dtype(program_.scalar(operands.left[0]).tensor) ==
                          dtype(program_.scalar(operands.right[0]).tensor);
      found.push_back(std::move(operands));
    }
    return found;
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
      const std::string text =
          block == "0" ? lanes(each) : fmt::format("{} * {} + {}", block, each, lanes(each));
      const TileText made = lines_.assign({text, 1u << axis, false}, wanted);
      if (extent % each != 0)
        masks[axis] = lines_.assign({fmt::format("{} < {}", made.text, extent), 1u << axis, false}, "c").text;
      return made;
    };
    lines_.walk(rows, along(kRow, row_block, tile.rows, lines_.extent(rows), "row"));
    if (tile.kind == TileKind::Product)
      lines_.walk(columns, along(kColumn, column_block, tile.columns, lines_.extent(columns), "column"));
    if (lines_.extent(batch) > 1)
      lines_.walk(batch, {batch_at, 0, false});
    else
      lines_.walk(batch, {"0", 0, false});
    const bool loops = !sums_.empty();
    if (loops) depth(masks, wide);
    body(masks, loops);
    assemble(loops);
  }

  /// The position among the terms, and which of them there are.
  void depth(LaneMasks& masks, bool wide) {
    const Tile& tile = made_.tile;
    const std::int64_t chunk = tile.depth * tile.steps;
    std::string text =
        tile.depth == 1 ? "step" : fmt::format("step * {} + tl.arange(0, {})", tile.depth, tile.depth);
    if (tile.depth == 1) text = fmt::format("tl.full([], 0, tl.{}) + step", wide ? "int64" : "int32");
    if (part_ != "0") text = fmt::format("{} * {} + {}", part_, chunk, text);
    if (wide && tile.depth > 1) text = fmt::format("({}).to(tl.int64)", text);
    const unsigned axes = 1u << kDepth;
    const TileText position = lines_.assign({text, axes, true}, "term");
    if (chunk * tile.parts != terms_) {
      masks[kDepth] = lines_.assign({fmt::format("{} < {}", position.text, terms_), axes, true}, "c").text;
    }
    lines_.walk(sums_, position);
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
    const std::string ct = "tl." + context_.compute;
    std::string total_shape = fmt::format("[{}]", tile.rows);
    Frame frame = kFlat;
    if (tile.kind == TileKind::Product) {
      total_shape = fmt::format("[{}, {}]", tile.rows, tile.columns);
      const std::string left =
          operand(body, operands_->left, kRowsByDepth, masks, fmt::format("[{}, {}]", tile.rows, tile.depth));
      const std::string right = operand(body, operands_->right, kDepthByColumns, masks,
                                        fmt::format("[{}, {}]", tile.depth, tile.columns));
      lines_.inside.push_back(
          fmt::format("total = tl.dot({}, {}, total, input_precision=\"ieee\")", left, right));
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

  std::string operand(TileBody& body, const std::vector<ScalarId>& factors, const Frame& frame,
                      const LaneMasks& masks, const std::string& shape) {
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

  void store(TileBody& body, const Frame& frame, const LaneMasks& masks) {
    const Tile& tile = made_.tile;
    const bool splits = tile.parts > 1;
    std::vector<std::string>& after = lines_.after;
    if (scope_.reduction == Reduction::Mean && !splits) after.push_back("total = " + mean(body));
    std::vector<ExprId> at = scope_.target;
    if (at.empty())
      for (const program::Iterator& i : scope_.traversal) at.push_back(ranges_.arena().iterator(i.slot));
    std::vector<TileText> conditions;
    TileText place = lines_.offset(at, dims_, frame, conditions);
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
  const Scope& scope_;
  Indices ranges_;
  TileIndices lines_;
  std::vector<Slot> traversal_, sums_;
  std::vector<program::Extent> dims_;
  std::int64_t elements_ = 1, results_ = 1, terms_ = 1, blocks_ = 1;
  std::optional<Operands> operands_;
  std::vector<std::pair<std::vector<Tile>, std::optional<Operands>>> considered_;
  std::string part_ = "0";
  ScopeKernel made_;
};

}  // namespace

ScopeKernel write_triton_scope(TritonContext& context, const Scope& scope, const std::string& name) {
  return TritonScopeWriter(context, scope, name).write();
}

}  // namespace syno::emit
