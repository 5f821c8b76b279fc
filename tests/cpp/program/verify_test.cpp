#include "program/verify.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "program/builders.hpp"
#include "program/text.hpp"
#include "support/error.hpp"

namespace syno::program {
namespace {

// A program with two scopes, symbolic sizes and an accumulation, to be broken in one place at a time.
Program sample() {
  return parse(R"(
    size N, H : primary = (2, 6), (3, 4); size k : coefficient = 3, 2
    input x[N, H]; weight w[k]; constant t[2] = {1, 1/2}
    y[n: N, h: H] = sum[r: k] x[n, h + r - k/2] * w[r]
    z[N, H] : [n: N, h: H][n, (h + 1) % H] += y[n, h] * t[1]
    return z
  )");
}

struct Break {
  const char* name;
  std::function<void(Program&)> apply;
  const char* part;  // of the message
};
void PrintTo(const Break& b, std::ostream* out) { *out << b.name; }

class Verify : public ::testing::TestWithParam<Break> {};
TEST_P(Verify, NamesWhatIsWrong) {
  Program p = sample();
  ASSERT_NO_THROW(verify(p));
  GetParam().apply(p);
  try {
    verify(p);
    FAIL() << "not noticed";
  } catch (const VerifyError& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().part), std::string::npos) << error.what();
  }
}

ScalarId first_read(const Program& p) {
  for (std::uint32_t i = 0; i < p.scalars.size(); ++i)
    if (p.scalars[i].kind == ScalarKind::Read) return ScalarId{i};
  return {};
}
Scalar& read_of(Program& p) { return p.scalars[static_cast<std::size_t>(first_read(p))]; }

INSTANTIATE_TEST_SUITE_P(
    Table, Verify,
    ::testing::Values(
        Break{"tensor_id", [](Program& p) { read_of(p).tensor = TensorId{99}; }, "tensor 99"},
        Break{"output_id", [](Program& p) { p.scopes[0].output = TensorId{99}; }, "tensor 99"},
        Break{"body_id", [](Program& p) { p.scopes[0].body = ScalarId{999}; },
              "scope of 'y': its body is scalar 999"},
        Break{"expression_id", [](Program& p) { read_of(p).indices[0] = ExprId{9999}; }, "expression 9999"},
        Break{"cycle",
              [](Program& p) {
                p.scalars.back().kind = ScalarKind::Unary, p.scalars.back().function = Function::Exp,
                p.scalars.back().a = ScalarId{static_cast<std::uint32_t>(p.scalars.size() - 1)};
              },
              "does not precede"},
        Break{"read_before_written", [](Program& p) { std::swap(p.scopes[0], p.scopes[1]); },
              "reads 'y' before"},
        Break{"written_twice",
              [](Program& p) {
                p.scopes.push_back(p.scopes[0]);
                for (Iterator& i : p.scopes.back().traversal) i.slot = p.next_slot++;
                for (Iterator& i : p.scopes.back().sums) i.slot = p.next_slot++;
              },
              "written twice"},
        Break{"writes_an_input", [](Program& p) { p.scopes[0].output = TensorId{0}; },
              "passed in or constant"},
        Break{"rank", [](Program& p) { read_of(p).indices.pop_back(); },
              "'x' with 1 indices, but that has 2"},
        Break{"target_rank", [](Program& p) { p.scopes[1].target.pop_back(); }, "target has 1 indices"},
        Break{"empty_range",
              [](Program& p) { p.scopes[0].sums[0].range.begin = p.scopes[0].sums[0].range.end; },
              "is empty"},
        Break{"empty_at_one_valuation",
              [](Program& p) { p.scopes[0].sums[0].range.begin = p.arena.constant(2); }, "N=3, H=4, k=2"},
        Break{"range_with_iterator", [](Program& p) { p.scopes[0].sums[0].range.end = p.arena.iterator(0); },
              "holds an iterator"},
        Break{"foreign_slot",
              [](Program& p) { read_of(p).indices[0] = p.arena.iterator(p.scopes[1].traversal[0].slot); },
              "index 0 of 'x' uses an iterator of another scope"},
        Break{"unknown_slot", [](Program& p) { read_of(p).indices[0] = p.arena.iterator(77); },
              "another scope"},
        Break{"shared_slot", [](Program& p) { p.scopes[1].traversal[0].slot = 0; }, "shares slot 0"},
        Break{"slot_beyond", [](Program& p) { p.scopes[0].traversal[0].slot = 1000; }, "slot 1000"},
        Break{"sums_without_reduction", [](Program& p) { p.scopes[0].reduction = Reduction::None; },
              "no reduction"},
        Break{"target_with_sum",
              [](Program& p) {
                p.scopes[1].sums.push_back(p.new_iterator("q", p.range_of(Size(2))));
                p.scopes[1].reduction = Reduction::Sum;
                p.scopes[1].target[0] = p.arena.iterator(p.scopes[1].sums[0].slot);
              },
              "target uses a summation iterator"},
        Break{"accumulation_starts_elsewhere",
              [](Program& p) {
                p.tensors[static_cast<std::size_t>(*p.find_tensor("z"))].dims[1].begin = p.arena.constant(-1);
              },
              "must start at 0"},
        Break{"output_extent",
              [](Program& p) {
                p.tensors[static_cast<std::size_t>(*p.find_tensor("y"))].dims[1].end = p.arena.constant(5);
              },
              "iterator 'h' runs over 0..6, but dimension 1 of the tensor is 0..5"},
        Break{"input_starts_elsewhere", [](Program& p) { p.tensors[0].dims[0].begin = p.arena.constant(1); },
              "starts at 0"},
        Break{"fractional_size",
              [](Program& p) {
                p.tensors[0].dims[1].end = p.arena.size(Size::variable(1) / Size::variable(2) / Size(3));
              },
              "must be a positive integer"},
        Break{"literal_length",
              [](Program& p) { p.tensors[static_cast<std::size_t>(*p.find_tensor("t"))].literal.pop_back(); },
              "2 elements, but 1 values"},
        Break{"literal_of_an_input", [](Program& p) { p.tensors[0].literal.push_back(1); },
              "only a constant"},
        Break{"name", [](Program& p) { p.tensors[0].name = "a b"; }, "its name"},
        Break{"reserved_name", [](Program& p) { p.tensors[0].name = "sum"; }, "its name"},
        Break{"two_of_a_name", [](Program& p) { p.tensors[0].name = "w"; }, "two tensors"},
        Break{"no_outputs", [](Program& p) { p.outputs.clear(); }, "has none"},
        Break{"output_twice", [](Program& p) { p.outputs.push_back(p.outputs[0]); }, "returned twice"},
        Break{"output_is_an_input", [](Program& p) { p.outputs = {TensorId{0}}; }, "never written"},
        Break{"never_written", [](Program& p) { p.add_tensor({"u", Role::Computed, {}, {}}); },
              "'u' is never written"},
        Break{"guard_in_a_number",
              [](Program& p) {
                p.scopes[1].body =
                    p.index_value(p.arena.inside(p.arena.iterator(p.scopes[1].traversal[0].slot), Size(1)));
              },
              "guard"},
        Break{"unary_with_a_binary_function",
              [](Program& p) {
                p.scalars[static_cast<std::size_t>(p.scopes[0].body)].kind = ScalarKind::Unary;
              },
              "takes two operands"}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(DescribeShapes, SaysEveryValuation) {
  EXPECT_EQ(describe_shapes(sample()),
            "input x [2, 6], [3, 4]\nweight w [3], [2]\nconstant t [2]\ncomputed y [2, 6], [3, 4]\noutput z "
            "[2, 6], [3, 4]\n");
}

TEST(Cost, CountsAsTheDefinitionSays) {
  const auto flops = [](std::string_view text, std::map<std::string, std::int64_t, std::less<>> sizes) {
    ParseOptions options;
    options.sizes = std::move(sizes);
    return cost(parse(text, options), 0).flops;
  };
  EXPECT_EQ(flops("y[i] = x[i]", {{"i", 5}}), 0);                                    // a copy
  EXPECT_EQ(flops("y[i] = x[i] * w[i]", {{"i", 5}}), 5);                             // one multiplication
  EXPECT_EQ(flops("y[i] = exp(x[i]) + w[i]", {{"i", 5}}), 10);                       // two functions
  EXPECT_EQ(flops("y[i] = sum[j] x[i,j]", {{"i", 5}, {"j", 3}}), 15);                // an addition a point
  EXPECT_EQ(flops("y[i] = sum[j] x[i,j] * w[j]", {{"i", 5}, {"j", 3}}), 15);         // a multiply-add
  EXPECT_EQ(flops("y[i] = sum[j] x[i,j] * w[j] * v[j]", {{"i", 5}, {"j", 3}}), 30);  // and one multiplication
  EXPECT_EQ(flops("y[i] = sum[j] x[i,j] * w[j] / 8", {{"i", 5}, {"j", 3}}), 20);     // of a result each
  EXPECT_EQ(flops("y[i] = sum[j] 2 * x[i,j]", {{"i", 5}, {"j", 3}}), 20);
  EXPECT_EQ(flops("y[i] = max[j] 2 * x[i,j]", {{"i", 5}, {"j", 3}}), 15);  // the product of a point
  EXPECT_EQ(flops("y[i] = max[j] x[i,j]", {{"i", 5}, {"j", 3}}), 15);
  EXPECT_EQ(flops("y[i+j] += x[i] * w[j]", {{"i", 5}, {"j", 3}}), 15);
  EXPECT_EQ(flops("t[i] = sum[j] x[i,j] * w[j]; y[i] = relu(t[i])", {{"i", 5}, {"j", 3}}), 20);
}

TEST(Cost, OfAConvolutionAtEveryValuation) {
  ConvAttributes a;
  a.in_channels = a.out_channels = 64;
  a.in_size = {56, 56};
  a.kernel = {3, 3};
  a.pad_begin = a.pad_end = {1, 1};
  const Cost c = cost(conv(a), 0);
  EXPECT_EQ(c.flops, 115605504);  // Syno's count for the 64 -> 64, 56 x 56 layer of ResNet-18
  EXPECT_EQ(c.params, 36864);
  EXPECT_EQ(c.bytes, 4 * (64 * 56 * 56 * 2 + 36864));
  const Program p = sample();
  EXPECT_EQ(cost(p, 0).flops, 2 * 6 * 3 + 2 * 6);
  EXPECT_EQ(cost(p, 1).flops, 3 * 4 * 2 + 3 * 4);
  EXPECT_EQ(cost(p, 1).params, 2);
  EXPECT_THROW(cost(p, 2), ShapeError);
}

TEST(Cost, OverflowIsAnErrorNotANumber) {
  ParseOptions options;
  for (const char* name : {"i", "j", "k"}) options.sizes[name] = std::int64_t{1} << 30;
  EXPECT_THROW(cost(parse("y[i,j] = sum[k] a[i,k] * b[k,j]", options), 0), ShapeError);
}

TEST(At, RefusesAValuationThatIsNotThere) { EXPECT_THROW(at(sample(), 2), ShapeError); }

}  // namespace
}  // namespace syno::program
