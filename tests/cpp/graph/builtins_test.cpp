#include "graph/builtins.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "graph/interpret.hpp"
#include "support/bfloat16.hpp"
#include "support/error.hpp"
#include "support/float16.hpp"
#include "support/random.hpp"

namespace syno::graph {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");
constexpr ElementType kTypes[] = {ElementType::F32, ElementType::F64, ElementType::BF16, ElementType::F16,
                                  ElementType::I64, ElementType::I32, ElementType::I16,  ElementType::I8,
                                  ElementType::U8,  ElementType::Bool};

template <class T>
void put(std::vector<char>& memory, T value) {
  const auto* bytes = reinterpret_cast<const char*>(&value);
  memory.insert(memory.end(), bytes, bytes + sizeof(T));
}
template <class T>
T got(const std::vector<char>& memory, std::size_t i) {
  T value;
  std::memcpy(&value, memory.data() + i * sizeof(T), sizeof(T));
  return value;
}

std::vector<char> stored(ElementType type, const std::vector<double>& values) {
  std::vector<char> memory;
  for (const double value : values) {
    switch (type) {
      case ElementType::F32:
        put(memory, static_cast<float>(value));
        break;
      case ElementType::F64:
        put(memory, value);
        break;
      case ElementType::BF16:
        put(memory, to_bfloat16(static_cast<float>(value)));
        break;
      case ElementType::F16:
        put(memory, to_float16(static_cast<float>(value)));
        break;
      case ElementType::I64:
        put(memory, static_cast<std::int64_t>(value));
        break;
      case ElementType::I32:
        put(memory, static_cast<std::int32_t>(value));
        break;
      case ElementType::I16:
        put(memory, static_cast<std::int16_t>(value));
        break;
      case ElementType::I8:
        put(memory, static_cast<std::int8_t>(value));
        break;
      case ElementType::U8:
        put(memory, static_cast<std::uint8_t>(value));
        break;
      case ElementType::Bool:
        put(memory, static_cast<std::uint8_t>(value != 0));
        break;
    }
  }
  return memory;
}

std::vector<double> loaded(ElementType type, const std::vector<char>& memory) {
  std::vector<double> values;
  for (std::size_t i = 0; i * static_cast<std::size_t>(byte_size(type)) < memory.size(); ++i) {
    switch (type) {
      case ElementType::F32:
        values.push_back(got<float>(memory, i));
        break;
      case ElementType::F64:
        values.push_back(got<double>(memory, i));
        break;
      case ElementType::BF16:
        values.push_back(from_bfloat16(got<std::uint16_t>(memory, i)));
        break;
      case ElementType::F16:
        values.push_back(from_float16(got<std::uint16_t>(memory, i)));
        break;
      case ElementType::I64:
        values.push_back(static_cast<double>(got<std::int64_t>(memory, i)));
        break;
      case ElementType::I32:
        values.push_back(got<std::int32_t>(memory, i));
        break;
      case ElementType::I16:
        values.push_back(got<std::int16_t>(memory, i));
        break;
      case ElementType::I8:
        values.push_back(got<std::int8_t>(memory, i));
        break;
      case ElementType::U8:
        values.push_back(got<std::uint8_t>(memory, i));
        break;
      case ElementType::Bool:
        values.push_back(got<std::uint8_t>(memory, i));
        break;
    }
  }
  return values;
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }
bool same(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](double x, double y) { return same(x, y); });
}

std::size_t count_of(const Shape& shape) {
  return static_cast<std::size_t>(program::checked_product("test", shape));
}

/// Runs on memory, and says whether interpret() gives the same.
std::vector<double> run(const char* name, const std::vector<Operand>& inputs, const std::string& attributes,
                        const std::vector<std::vector<double>>& values) {
  const Builtin* row = find_builtin(name);
  const Operand result = row->result(inputs, attributes);
  std::vector<std::vector<char>> memory;
  std::vector<Values> given;
  std::vector<void*> pointers;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    memory.push_back(stored(inputs[i].type, values[i]));
    given.push_back({inputs[i].shape, loaded(inputs[i].type, memory.back())});
  }
  const std::size_t bytes = count_of(result.shape) * static_cast<std::size_t>(byte_size(result.type));
  std::vector<char> output(bytes + 8, 77);
  for (auto& all : memory) pointers.push_back(all.data());
  pointers.push_back(output.data());
  row->bind(inputs, attributes)(pointers.data());
  EXPECT_EQ(std::vector<char>(output.begin() + static_cast<std::ptrdiff_t>(bytes), output.end()),
            std::vector<char>(8, 77));
  output.resize(bytes);
  const auto made = loaded(result.type, output);
  const Values wanted = row->interpret(inputs, attributes, given);
  EXPECT_EQ(wanted.shape, result.shape);
  // In the interpreter no type rounds.
  EXPECT_TRUE(
      same(made, is_float(result.type) ? loaded(result.type, stored(result.type, wanted.data)) : wanted.data))
      << name << ' ' << attributes;
  return made;
}

using F = ElementType;
using D = std::vector<double>;

TEST(Builtins, CastsOnMemoryAreThoseOfTheInterpreter) {
  const D values = {0,     1,     -1,        0.5,          -0.5,         2.5,           -2.5,
                    100,   -100,  127,       128,          -128,         -129,          200,
                    255,   256,   300,       32767,        32768,        -32769,        40000,
                    65535, 65536, 70000,     2147483647.0, 2147483648.0, -2147483649.0, 3e9,
                    -3e9,  1e10,  kInfinity, -kInfinity,   kNan};
  for (const ElementType from : kTypes) {
    D exact;
    for (const double value : values) {
      const double bits = static_cast<double>(8 * byte_size(from));
      const double least =
          from == F::U8 || from == F::Bool ? 0 : -std::ldexp(1.0, static_cast<int>(bits) - 1);
      const double most = from == F::Bool ? 1 : least + std::ldexp(1.0, static_cast<int>(bits)) - 1;
      if (is_float(from) || (value == std::floor(value) && value >= least && value <= most))
        exact.push_back(value);
    }
    for (const ElementType to : kTypes)
      run("cast", {{from, {static_cast<std::int64_t>(exact.size())}}},
          fmt::format("{{\"to\": \"{}\"}}", name_of(to)), {exact});
  }
}

TEST(Builtins, CastsAtTheEndsOfIntegers) {
  const auto cast = [](auto value, ElementType from, ElementType to, auto result) {
    cast_function(from, to)(&value, &result, 1);
    return result;
  };
  constexpr auto most = std::numeric_limits<std::int64_t>::max(),
                 least = std::numeric_limits<std::int64_t>::min();
  const std::int64_t i64 = 5;
  const std::int32_t i32 = 5;
  const std::int8_t i8 = 5;
  const std::uint8_t u8 = 5;
  EXPECT_EQ(cast(most, F::I64, F::I32, i32), -1);
  EXPECT_EQ(cast(least, F::I64, F::I32, i32), 0);
  EXPECT_EQ(cast(most, F::I64, F::U8, u8), 255);
  EXPECT_EQ(cast(std::int64_t{-3}, F::I64, F::U8, u8), 253);
  EXPECT_EQ(cast(std::uint8_t{200}, F::U8, F::I8, i8), -56);
  EXPECT_EQ(cast(most, F::I64, F::F64, 0.0), 9223372036854775808.0);
  EXPECT_EQ(cast(std::int64_t{9007199254740993}, F::I64, F::I64, i64), 9007199254740993);
  for (const double value : {9223372036854775808.0, 1e300, kInfinity})
    EXPECT_EQ(cast(value, F::F64, F::I64, i64), most);
  for (const double value : {-9223372036854775808.0, -1e300, -kInfinity})
    EXPECT_EQ(cast(value, F::F64, F::I64, i64), least);
  EXPECT_EQ(cast(9223372036854774784.0, F::F64, F::I64, i64), 9223372036854774784);
  EXPECT_EQ(cast(2147483647.9, F::F64, F::I32, i32), 2147483647);
  EXPECT_EQ(cast(-2147483648.9, F::F64, F::I32, i32), std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(cast(3e9f, F::F32, F::I32, i32), 2147483647);
  EXPECT_EQ(cast(-1.0f, F::F32, F::U8, u8), 0);
  EXPECT_EQ(cast(255.9f, F::F32, F::U8, u8), 255);
  EXPECT_EQ(cast(std::nanf(""), F::F32, F::I64, i64), 0);
  EXPECT_EQ(cast(std::nanf(""), F::F32, F::Bool, u8), 1);
  EXPECT_EQ(cast(0.25f, F::F32, F::Bool, u8), 1);
  EXPECT_EQ(cast(-0.0f, F::F32, F::Bool, u8), 0);
  EXPECT_EQ(cast(std::uint8_t{7}, F::Bool, F::I64, i64), 1);
  EXPECT_EQ(cast(1e300, F::F64, F::F32, 0.0f), std::numeric_limits<float>::infinity());
}

TEST(Builtins, GatherTakesRows) {
  EXPECT_EQ(run("gather", {{F::F32, {3, 2}}, {F::I64, {2, 2}}}, "{}", {{0, 1, 2, 3, 4, 5}, {2, 0, 1, 2}}),
            (D{4, 5, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(
      run("gather", {{F::Bool, {3}}, {F::I32, {4}}}, R"({"negative": true})", {{1, 0, 1}, {-1, -3, 1, -2}}),
      (D{1, 1, 0, 0}));
  EXPECT_EQ(run("gather", {{F::F64, {3, 0}}, {F::I64, {2}}}, "{}", {{}, {2, 0}}), D{});
  EXPECT_EQ(run("gather", {{F::F64, {0, 2}}, {F::I64, {0}}}, "{}", {{}, {}}), D{});
  EXPECT_EQ(run("gather", {{F::F64, {2}}, {F::I64, {}}}, "{}", {{7, 8}, {1}}), D{8});
  Random random(4);
  for (int i = 0; i < 60; ++i) {
    const auto rows = 1 + static_cast<std::int64_t>(random.below(5)),
               columns = static_cast<std::int64_t>(random.below(4)),
               count = static_cast<std::int64_t>(random.below(6));
    const ElementType type = kTypes[random.below(10)];
    D table, indices, wanted;
    for (std::int64_t e = 0; e < rows * columns; ++e) table.push_back(static_cast<double>(random.below(2)));
    for (std::int64_t e = 0; e < count; ++e) {
      const auto row = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(rows)));
      indices.push_back(static_cast<double>(random.below(2) == 0 ? row : row - rows));
      for (std::int64_t c = 0; c < columns; ++c)
        wanted.push_back(table[static_cast<std::size_t>(row * columns + c)]);
    }
    EXPECT_EQ(run("gather", {{type, {rows, columns}}, {i % 2 == 0 ? F::I64 : F::I32, {count}}},
                  R"({"negative": true})", {table, indices}),
              wanted);
  }
}

TEST(Builtins, ScatterPutsRowsOrCombinesThem) {
  const double nan = std::nan("");
  const std::vector<Operand> three{{F::F32, {3, 2}}, {F::I64, {2}}, {F::F32, {2, 2}}};
  EXPECT_EQ(run("scatter", three, "{}", {{0, 1, 2, 3, 4, 5}, {2, 0}, {6, 7, 8, 9}}), (D{8, 9, 2, 3, 6, 7}));
  EXPECT_EQ(run("scatter", three, "{}", {{0, 1, 2, 3, 4, 5}, {1, 1}, {6, 7, 8, 9}}), (D{0, 1, 8, 9, 4, 5}));
  EXPECT_EQ(run("scatter", {{F::U8, {2}}, {F::I32, {2}}, {F::U8, {2}}}, R"({"reduce": "add"})",
                {{250, 1}, {0, 0}, {4, 5}}),
            (D{3, 1}));
  EXPECT_EQ(
      run("scatter", {{F::I8, {1}}, {F::I32, {1}}, {F::I8, {1}}}, R"({"reduce": "mul"})", {{100}, {0}, {-2}}),
      (D{56}));
  EXPECT_EQ(run("scatter", {{F::Bool, {3}}, {F::I64, {1}}, {F::Bool, {1}}}, "{}", {{0, 1, 0}, {2}, {1}}),
            (D{0, 1, 1}));
  EXPECT_TRUE(std::isnan(run("scatter", {{F::F32, {1}}, {F::I64, {2}}, {F::F32, {2}}}, R"({"reduce": "max"})",
                             {{1}, {0, 0}, {nan, 2}})[0]));
  EXPECT_EQ(run("scatter", {{F::F64, {0, 2}}, {F::I64, {0}}, {F::F64, {0, 2}}}, "{}", {{}, {}, {}}), D{});
  Random random(5);
  for (int i = 0; i < 100; ++i) {
    const auto rows = 1 + static_cast<std::int64_t>(random.below(5)),
               columns = static_cast<std::int64_t>(random.below(4)),
               count = static_cast<std::int64_t>(random.below(9));
    const ElementType type = kTypes[random.below(10)];
    const std::string words[] = {"set", "add", "mul", "max", "min"};
    const std::string word = words[type == F::Bool ? 0 : random.below(5)];
    const auto number = [&] { return static_cast<double>(random.below(2)); };
    D table, indices, given;
    for (std::int64_t e = 0; e < rows * columns; ++e) table.push_back(number());
    for (std::int64_t e = 0; e < count * columns; ++e) given.push_back(number());
    D wanted = table;
    for (std::int64_t e = 0; e < count; ++e) {
      const auto row = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(rows)));
      indices.push_back(static_cast<double>(random.below(2) == 0 ? row : row - rows));
      for (std::int64_t c = 0; c < columns; ++c) {
        double& to = wanted[static_cast<std::size_t>(row * columns + c)];
        const double from = given[static_cast<std::size_t>(e * columns + c)];
        to = word == "add"   ? to + from
             : word == "mul" ? to * from
             : word == "max" ? std::max(to, from)
             : word == "min" ? std::min(to, from)
                             : from;
      }
    }
    EXPECT_EQ(
        run("scatter",
            {{type, {rows, columns}}, {i % 2 == 0 ? F::I64 : F::I32, {count}}, {type, {count, columns}}},
            R"({"negative": true, "reduce": ")" + word + "\"}", {table, indices, given}),
        wanted)
        << word;
  }
  float values[3] = {0, 1, 2}, result[3] = {};
  std::int64_t outside[1] = {3};
  void* pointers[] = {values, outside, values, result};
  const auto function = find_builtin("scatter")->bind({{F::F32, {3}}, {F::I64, {1}}, {F::F32, {1}}}, "{}");
  EXPECT_THROW(function(pointers), ShapeError);
}

TEST(Builtins, GatherNamesIndicesThatAreOutside) {
  const std::int64_t extremes[] = {3, -1, std::numeric_limits<std::int64_t>::max(),
                                   std::numeric_limits<std::int64_t>::min()};
  for (const std::int64_t bad : extremes) {
    float table[3] = {0, 1, 2}, result[2] = {};
    std::int64_t indices[2] = {0, bad};
    void* pointers[] = {table, indices, result};
    const auto function = find_builtin("gather")->bind({{F::F32, {3}}, {F::I64, {2}}}, "{}");
    try {
      function(pointers);
      ADD_FAILURE() << bad;
    } catch (const ShapeError& error) {
      EXPECT_NE(std::string(error.what()).find(std::to_string(bad)), std::string::npos) << error.what();
    }
  }
  const auto refuses = [](const std::string& attributes, D indices, std::int64_t rows) {
    EXPECT_THROW(run("gather", {{F::F32, {rows}}, {F::I64, {1}}}, attributes,
                     {D(static_cast<std::size_t>(rows)), indices}),
                 ShapeError);
    EXPECT_THROW(
        find_builtin("gather")->interpret({{F::F32, {rows}}, {F::I64, {1}}}, attributes,
                                          {{{rows}, D(static_cast<std::size_t>(rows))}, {{1}, indices}}),
        ShapeError);
  };
  refuses("{}", {-1}, 3);
  refuses(R"({"negative": true})", {-4}, 3);
  refuses(R"({"negative": true})", {3}, 3);
  refuses("{}", {0}, 0);
}

TEST(Builtins, RowsOfAnyDimensionAreGathered) {
  EXPECT_EQ(run("gather", {{F::F32, {2, 3}}, {F::I64, {2}}}, R"({"dim": 1})", {{1, 2, 3, 4, 5, 6}, {2, 0}}),
            (D{3, 1, 6, 4}));
  EXPECT_EQ(find_builtin("gather")->result({{F::I8, {2, 3, 4}}, {F::I32, {5, 6}}}, R"({"dim": -2})"),
            (Operand{F::I8, {2, 5, 6, 4}}));
  for (const ElementType type : kTypes)
    for (std::uint64_t seed = 0; seed < 24; ++seed) {
      Random random(seed);
      Shape table, indices;
      for (int d = 0; d < 3; ++d) table.push_back(1 + static_cast<std::int64_t>(random.below(6)));
      for (std::size_t d = random.below(3); d-- > 0;)
        indices.push_back(static_cast<std::int64_t>(random.below(5)));
      const std::size_t dim = random.below(3);
      const auto rows = static_cast<std::uint64_t>(table[dim]);
      D values, places, wanted;
      for (std::size_t n = count_of(table); n-- > 0;) values.push_back(static_cast<double>(random.below(2)));
      for (std::size_t n = count_of(indices); n-- > 0;)
        places.push_back(static_cast<double>(random.below(2 * rows)) - static_cast<double>(rows));
      const auto before = count_of(Shape(table.begin(), table.begin() + static_cast<std::ptrdiff_t>(dim)));
      const auto behind = count_of(table) / before / rows;
      for (std::size_t t = 0; t < before; ++t)
        for (const double place : places)
          for (std::size_t j = 0; j < behind; ++j) {
            const auto row = static_cast<std::size_t>(place < 0 ? place + static_cast<double>(rows) : place);
            wanted.push_back(values[(t * rows + row) * behind + j]);
          }
      EXPECT_EQ(run("gather", {{type, table}, {seed % 2 == 0 ? F::I64 : F::I32, indices}},
                    fmt::format(R"({{"dim": {}, "negative": true}})", dim), {values, places}),
                wanted);
    }
  const std::vector<Operand> fit{{F::F32, {2, 3}}, {F::I64, {2, 3}}};
  EXPECT_THROW(find_builtin("gather")->result(fit, R"({"dim": 2})"), ShapeError);
  EXPECT_THROW(find_builtin("gather")->result(fit, R"({"dim": "0"})"), FormatError);
  EXPECT_THROW(find_builtin("gather")->result(fit, R"({"dim": 0, "axis": 0})"), FormatError);
  EXPECT_THROW(run("gather", {{F::F32, {2, 3}}, {F::I64, {1}}}, R"({"dim": 1})", {D(6, 1), {3}}), ShapeError);
}

TEST(Builtins, ElementsAlongAnAxisAreGatheredAndScattered) {
  EXPECT_EQ(run("gather", {{F::F32, {2, 3}}, {F::I64, {2, 2}}}, R"({"axis": 1})",
                {{1, 2, 3, 4, 5, 6}, {2, 0, 1, 1}}),
            (D{3, 1, 5, 5}));
  EXPECT_EQ(run("gather", {{F::F32, {3, 2}}, {F::I32, {1, 2}}}, R"({"axis": 0, "negative": true})",
                {{1, 2, 3, 4, 5, 6}, {-1, 0}}),
            (D{5, 2}));
  EXPECT_EQ(run("scatter", {{F::F32, {3, 2}}, {F::I64, {2, 2}}, {F::F32, {2, 2}}},
                R"({"axis": 0, "reduce": "add"})", {{1, 2, 3, 4, 5, 6}, {0, 2, 0, 1}, {10, 20, 30, 40}}),
            (D{41, 2, 3, 44, 5, 26}));
  for (const ElementType type : kTypes)
    for (std::uint64_t seed = 0; seed < 24; ++seed) {
      Random random(seed);
      Shape table, indices;
      for (int d = 0; d < 3; ++d) table.push_back(1 + static_cast<std::int64_t>(random.below(6)));
      const std::size_t axis = random.below(3);
      for (std::size_t d = 0; d < 3; ++d)
        indices.push_back(
            d == axis ? static_cast<std::int64_t>(random.below(8))
                      : static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(table[d]) + 1)));
      D values, places, given;
      for (std::size_t n = count_of(table); n-- > 0;) values.push_back(static_cast<double>(random.below(2)));
      for (std::size_t n = count_of(indices); n-- > 0;) {
        places.push_back(static_cast<double>(random.below(static_cast<std::uint64_t>(table[axis]))));
        given.push_back(static_cast<double>(random.below(2)));
      }
      const ElementType whole = seed % 2 == 0 ? F::I64 : F::I32;
      run("gather", {{type, table}, {whole, indices}}, fmt::format(R"({{"axis": {}}})", axis),
          {values, places});
      const char* reduce = type == F::Bool ? "set" : std::array{"set", "add", "mul", "max", "min"}[seed % 5];
      run("scatter", {{type, table}, {whole, indices}, {type, indices}},
          fmt::format(R"({{"axis": {}, "reduce": "{}"}})", axis, reduce), {values, places, given});
    }
  std::int64_t outside[1] = {3};
  float table[3] = {1, 2, 3}, result[1];
  void* pointers[] = {table, outside, result};
  EXPECT_THROW(find_builtin("gather")->bind({{F::F32, {3}}, {F::I64, {1}}}, R"({"axis": 0})")(pointers),
               ShapeError);
}

TEST(Builtins, ArgmaxIsTheFirstOfTheGreatest) {
  EXPECT_EQ(run("argmax", {{F::F32, {2, 3}}}, R"({"axis": 1})", {{1, 3, 3, 5, 4, 5}}), (D{1, 0}));
  EXPECT_EQ(run("argmax", {{F::F32, {2, 3}}}, R"({"axis": -2, "keepdim": true})", {{1, 3, 3, 5, 3, 1}}),
            (D{1, 0, 0}));
  EXPECT_EQ(run("argmax", {{F::F32, {2, 3}}}, "{}", {{1, 3, 3, 5, 4, 5}}), D{3});
  EXPECT_EQ(run("argmax", {{F::F32, {}}}, "{}", {{4}}), D{0});
  EXPECT_EQ(run("argmax", {{F::F32, {5}}}, R"({"axis": null})", {{1, kInfinity, kNan, 2, kNan}}), D{2});
  EXPECT_EQ(run("argmax", {{F::F16, {3}}}, "{}", {{-kInfinity, kNan, kInfinity}}), D{1});
  EXPECT_EQ(run("argmax", {{F::BF16, {2}}}, "{}", {{-kInfinity, -kInfinity}}), D{0});
  EXPECT_EQ(run("argmax", {{F::F32, {0, 3}}}, R"({"axis": 1})", {{}}), D{});
  EXPECT_EQ(find_builtin("argmax")->result({{F::U8, {2, 3}}}, R"({"keepdim": true})"),
            (Operand{F::I64, {1, 1}}));
  for (const ElementType type : kTypes)
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      Random random(seed);
      D values;
      for (int i = 0; i < 24; ++i)
        values.push_back(is_float(type) && random.below(12) == 0
                             ? kNan
                             : static_cast<double>(random.below(type == F::Bool ? 2 : 5)) -
                                   (type == F::Bool || type == F::U8 ? 0 : 2));
      const std::string axis = seed % 4 == 3 ? "null" : std::to_string(static_cast<int>(seed % 4) - 3);
      run("argmax", {{type, {2, 3, 4}}}, fmt::format(R"({{"axis": {}, "keepdim": {}}})", axis, seed % 3 == 0),
          {values});
    }
  std::int64_t extremes[3] = {std::numeric_limits<std::int64_t>::max() - 1,
                              std::numeric_limits<std::int64_t>::max(),
                              std::numeric_limits<std::int64_t>::min()};
  std::int64_t result = -1;
  void* pointers[] = {extremes, &result};
  find_builtin("argmax")->bind({{F::I64, {3}}}, "{}")(pointers);
  EXPECT_EQ(result, 1);
}

TEST(Builtins, ScansJoinEachElementWithThoseBeforeIt) {
  EXPECT_EQ(run("scan", {{F::F32, {2, 3}}}, R"({"axis": 1})", {{1, 2, 3, 4, 5, 6}}), (D{1, 3, 6, 4, 9, 15}));
  EXPECT_EQ(run("scan", {{F::F32, {2, 3}}}, R"({"axis": -2})", {{1, 2, 3, 4, 5, 6}}), (D{1, 2, 3, 5, 7, 9}));
  EXPECT_EQ(run("scan", {{F::F32, {3}}}, R"({"axis": 0, "exclusive": true})", {{1, 2, 3}}), (D{0, 1, 3}));
  EXPECT_EQ(run("scan", {{F::F32, {3}}}, R"({"axis": 0, "reverse": true})", {{1, 2, 3}}), (D{6, 5, 3}));
  EXPECT_EQ(run("scan", {{F::I32, {3}}}, R"({"axis": 0, "by": "prod", "reverse": true, "exclusive": true})",
                {{2, 3, 4}}),
            (D{12, 4, 1}));
  EXPECT_EQ(run("scan", {{F::F64, {3}}}, R"({"axis": 0, "by": "logsumexp"})", {{-kInfinity, -kInfinity, 0}}),
            (D{-kInfinity, -kInfinity, 0}));
  EXPECT_EQ(run("scan", {{F::F32, {2, 0}}}, R"({"axis": 1})", {{}}), D{});
  for (const ElementType type : {F::F32, F::F64, F::BF16, F::F16, F::I64, F::I32})
    for (std::uint64_t seed = 0; seed < 24; ++seed) {
      Random random(seed);
      Shape shape;  // more lines than are taken side by side, and fewer
      for (int d = 0; d < 3; ++d)
        shape.push_back(1 + static_cast<std::int64_t>(random.below(d == 2 ? 150 : 12)));
      if (seed % 3 == 0) shape.back() = 1;
      D values;
      for (std::size_t n = count_of(shape); n-- > 0;)
        values.push_back(is_float(type) && random.below(40) == 0 ? (random.below(2) == 0 ? kNan : kInfinity)
                                                                 : static_cast<double>(random.below(9)) - 4);
      const std::size_t ways = is_float(type) ? 3 : 2;
      const char* by = std::array{"sum", "prod", "logsumexp"}[random.below(ways)];
      run("scan", {{type, shape}},
          fmt::format(R"({{"axis": {}, "by": "{}", "exclusive": {}, "reverse": {}}})", random.below(3), by,
                      random.below(2) == 0, random.below(2) == 0),
          {values});
    }
  // In double precision: small numbers are not lost beside a large one.
  D many(1000, 1);
  many[0] = 1 << 24;
  EXPECT_EQ(run("scan", {{F::F32, {1000}}}, R"({"axis": 0})", {many}).back(), (1 << 24) + 1000);  // is even
  std::int64_t extremes[2] = {std::numeric_limits<std::int64_t>::max(), 1};
  void* pointers[] = {extremes, extremes};
  find_builtin("scan")->bind({{F::I64, {2}}}, R"({"axis": 0})")(pointers);
  EXPECT_EQ(extremes[1], std::numeric_limits<std::int64_t>::min());
}

TEST(Builtins, CopyKeepsElementsInOrder) {
  for (const ElementType type : kTypes) {
    const D values = {1, 0, 1, 1, 0, 1};
    EXPECT_EQ(run("copy", {{type, {2, 3}}}, "{}", {values}), values);
    EXPECT_EQ(run("copy", {{type, {2, 3}}}, R"({"shape": [3, 1, 2]})", {values}), values);
    EXPECT_EQ(run("copy", {{type, {0, 3}}}, R"({"shape": [7, 0]})", {{}}), D{});
  }
  EXPECT_EQ(run("copy", {{F::F32, {1}}}, R"({"shape": []})", {{3}}), D{3});
}

struct Refusal {
  const char* name;
  std::vector<Operand> inputs;
  const char* attributes;
};

TEST(Builtins, WhatDoesNotFitIsRefused) {
  const Operand x{F::F32, {2, 3}}, i{F::I64, {2}};
  const Refusal table[] = {
      {"gather", {x}, "{}"},
      {"gather", {x, x}, "{}"},
      {"gather", {{F::F32, {}}, i}, "{}"},
      {"gather", {x, i}, R"({"negative": 1})"},
      {"gather", {x, i}, R"({"axis": 1})"},
      {"gather", {x, i}, "[]"},
      {"cast", {x}, "{}"},
      {"cast", {x}, R"({"to": "float"})"},
      {"cast", {x}, R"({"to": 3})"},
      {"cast", {x, x}, R"({"to": "int64"})"},
      {"cast", {}, R"({"to": "int64"})"},
      {"argmax", {x}, R"({"axis": 2})"},
      {"argmax", {x}, R"({"axis": -3})"},
      {"argmax", {x}, R"({"axis": 18446744073709551615})"},
      {"argmax", {x}, R"({"axis": 1.0})"},
      {"argmax", {x}, R"({"axis": true})"},
      {"argmax", {{F::F32, {2, 0}}}, R"({"axis": 1})"},
      {"argmax", {{F::F32, {0}}}, "{}"},
      {"argmax", {{F::F32, {}}}, R"({"axis": 0})"},
      {"scatter", {x, i}, "{}"},
      {"scatter", {x, x, x}, "{}"},
      {"scatter", {x, i, x, x}, "{}"},
      {"scatter", {{F::F32, {}}, i, x}, "{}"},
      {"scatter", {{F::F32, {4}}, {F::I64, {2}}, {F::F32, {3}}}, "{}"},
      {"scatter", {{F::F32, {4}}, {F::I64, {2}}, {F::F64, {2}}}, "{}"},
      {"scatter", {{F::Bool, {4}}, {F::I64, {2}}, {F::Bool, {2}}}, R"({"reduce": "add"})"},
      {"scatter", {{F::F32, {4}}, {F::I64, {2}}, {F::F32, {2}}}, R"({"reduce": "mean"})"},
      {"scatter", {{F::F32, {4}}, {F::I64, {2}}, {F::F32, {2}}}, R"({"reduce": 1})"},
      {"scatter", {{F::F32, {4}}, {F::I64, {2}}, {F::F32, {2}}}, R"({"dim": 0})"},
      {"scatter", {{F::F32, {4}}, {F::I64, {2}}, {F::F32, {3}}}, R"({"axis": 0})"},
      {"scatter", {{F::F32, {4, 2}}, {F::I64, {2}}, {F::F32, {2, 2}}}, R"({"axis": 0})"},
      {"scatter", {{F::F32, {4, 2}}, {F::I64, {2, 3}}, {F::F32, {2, 3}}}, R"({"axis": 0})"},
      {"gather", {x, {F::I64, {2, 3}}}, R"({"axis": 2})"},
      {"gather", {x, {F::I64, {2, 3}}}, R"({"axis": 0.5})"},
      {"gather", {x, {F::I64, {2}}}, R"({"axis": 0})"},
      {"gather", {x, {F::I64, {3, 3}}}, R"({"axis": 1})"},
      {"gather", {x, {F::F32, {2, 3}}}, R"({"axis": 1})"},
      {"scan", {x}, "{}"},
      {"scan", {x, x}, R"({"axis": 0})"},
      {"scan", {x}, R"({"axis": 2})"},
      {"scan", {x}, R"({"axis": 0.5})"},
      {"scan", {x}, R"({"axis": 0, "by": "max"})"},
      {"scan", {x}, R"({"axis": 0, "by": 1})"},
      {"scan", {x}, R"({"axis": 0, "reverse": 1})"},
      {"scan", {x}, R"({"axis": 0, "keepdim": true})"},
      {"scan", {{F::I64, {2}}}, R"({"axis": 0, "by": "logsumexp"})"},
      {"scan", {{F::U8, {2}}}, R"({"axis": 0})"},
      {"scan", {{F::F32, {}}}, R"({"axis": 0})"},
      {"copy", {x}, R"({"shape": [5]})"},
      {"copy", {x}, R"({"shape": [-6]})"},
      {"copy", {x}, R"({"shape": [6.0]})"},
      {"copy", {x}, R"({"shape": 6})"},
      {"copy", {x}, R"({"shape": [4611686018427387904, 4611686018427387904]})"},
      {"copy", {}, "{}"},
  };
  for (const Refusal& row : table) {
    EXPECT_THROW(find_builtin(row.name)->result(row.inputs, row.attributes), Error)
        << row.name << row.attributes;
    EXPECT_THROW(find_builtin(row.name)->bind(row.inputs, row.attributes), Error)
        << row.name << row.attributes;
  }
  EXPECT_EQ(find_builtin("gathers"), nullptr);
  EXPECT_EQ(builtins().size(), 7u);
}

TEST(GraphInterpret, MistakesAreErrors) {
  Graph graph("g");
  const TensorId x = graph.add_input("x", {2}, F::F32);
  graph.add_call("c", "f", "{}", {x}, {{"y", {2}, F::F32, {}}});
  graph.outputs = {x, graph.nodes()[0].outputs[0]};
  const std::map<std::string, Values> given = {{"x", {{2}, {1, 2}}}};
  EXPECT_THROW(interpret(graph, given), KernelError);
  EXPECT_THROW(interpret(graph, {}), ShapeError);
  EXPECT_THROW(interpret(graph, {{"x", {{2}, {1}}}}), ShapeError);
  EXPECT_THROW(interpret(graph, {{"x", {{1, 2}, {1, 2}}}}), ShapeError);
  const auto none = [](const Node&, const std::vector<Values>&) { return std::vector<Values>(); };
  const auto other = [](const Node&, const std::vector<Values>&) { return std::vector<Values>{{{1}, {0}}}; };
  const auto same_values = [](const Node& node, const std::vector<Values>& values) {
    EXPECT_EQ(node.name, "c");
    return values;
  };
  EXPECT_THROW(interpret(graph, given, none), ShapeError);
  EXPECT_THROW(interpret(graph, given, other), ShapeError);
  const auto made = interpret(graph, given, same_values);
  EXPECT_EQ(made.at("y").data, (D{1, 2}));
  EXPECT_EQ(made.at("x").data, (D{1, 2}));
}

}  // namespace
}  // namespace syno::graph
