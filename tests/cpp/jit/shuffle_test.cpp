// Loads of lanes that lie apart: whole vectors and shuffles give what a gather gives, read nothing outside
// the arrays, and take the place of gathers where they should.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nests.hpp"

namespace syno::jit {
namespace {

using namespace testing_nests;

struct Case {
  std::string name, text;
  bool gathers = false;  ///< on a CPU with gathers
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"stride_two",
       "input x: T[64]\noutput y: T[32]\nfor i in 0..32 vector\n  y[i] = x[2 * i] - x[2 * i + 1]\n"},
      {"stride_two_to_the_end",
       "input x: T[63]\noutput y: T[32]\nfor i in 0..32 vector\n  y[i] = x[2 * i]\n"},
      {"stride_three",
       "input x: T[140]\noutput y: T[45]\nfor i in 0..45 vector\n  y[i] = x[3 * i + 2] + x[3 * i]\n"},
      {"backwards", "input x: T[140]\noutput y: T[45]\nfor i in 0..45 vector\n  y[i] = x[100 - 2 * i]\n"},
      {"views",
       "input x: T[40, 9] strides[23, 2]\ninput z: T[33] strides[-3]\noutput y: T[33]\n"
       "for i in 0..33 vector\n  y[i] = x[2, i / 4] + z[i]\n"},
      {"interleaved",
       "input x: T[2, 64]\noutput y: T[128]\nfor i in 0..128 vector\n  y[i] = x[i % 2, i / 2]\n"},
      {"repeated",
       "input x: T[40]\noutput y: T[120]\nfor i in 0..120 vector\n  y[i] = x[i / 3] * x[i % 3]\n"},
      {"window_at_borders",
       "input x: T[70]\noutput y: T[35]\nfor o in 0..3\n  for i in 0..16 vector\n"
       "    if 16 * o + i in 0..35\n"
       "      y[16 * o + i] = x[32 * o + 2 * i - 1] {32 * o + 2 * i - 1 in 0..70 else 5}\n",
       true},
      {"constant_borders",
       "input x: T[30]\noutput y: T[16]\nfor i in 0..16 vector\n"
       "  y[i] = x[2 * i - 1] {2 * i - 1 in 0..30 else -3}\n"},
      {"rows_on_a_condition",
       "input x: T[4, 64]\noutput y: T[6, 32]\nfor r in 0..6\n  for i in 0..32 vector\n"
       "    y[r, i] = x[r - 1, 2 * i] {r - 1 in 0..4 else 2}\n"},
      {"written_between",
       "input x: T[64]\noutput y: T[64]\nfor i in 0..16 vector\n  y[i] = x[i]\n"
       "for i in 0..16 vector\n  y[16 + i] = y[i / 2]\n"
       "for i in 0..16 vector\n  y[i] = y[16 + i] + 1\n"
       "for i in 0..32 vector\n  y[32 + i] = y[i / 2]\n"},
  };
  return all;
}

std::string with_dtype(const Case& value, const std::string& dtype) {
  std::string text = "nest " + value.name + "\n" + value.text;
  for (std::size_t at = 0; (at = text.find(": T[", at)) != std::string::npos;) text.replace(at + 2, 1, dtype);
  return text;
}

class ShuffledLoad : public testing::TestWithParam<Case> {};

TEST_P(ShuffledLoad, ComputesWhatTheInterpreterDoes) {
  const Cpu v3 = cpu_named("x86-64-v3"), generic = cpu_named("generic");
  std::uint64_t seed = 1;
  for (const std::string dtype : {"f32", "f64", "bf16"})
    for (const Cpu* cpu : {static_cast<const Cpu*>(nullptr), &v3, &generic})
      expect_as_interpreted(nest::parse_loop_nest(with_dtype(GetParam(), dtype)), seed++, cpu, 1);
}

/// An array that ends where memory ends, or begins where it begins.
class AtTheEdge {
 public:
  AtTheEdge(std::size_t bytes, bool at_end) : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    inside_ = (bytes + page_ - 1) / page_ * page_;
    base_ = static_cast<char*>(
        ::mmap(nullptr, inside_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ::mprotect(base_ + page_, inside_, PROT_READ | PROT_WRITE);
    data_ = base_ + page_ + (at_end ? inside_ - bytes : 0);
  }
  ~AtTheEdge() { ::munmap(base_, inside_ + 2 * page_); }
  AtTheEdge(const AtTheEdge&) = delete;
  AtTheEdge& operator=(const AtTheEdge&) = delete;
  char* data() const { return data_; }

 private:
  std::size_t page_, inside_;
  char *base_, *data_;
};

TEST_P(ShuffledLoad, ReadsNothingOutsideTheArrays) {
  for (const std::string name : {"host", "x86-64-v3", "generic"}) {
    const Cpu cpu = cpu_named(name);
    CompileOptions options;
    options.cpu = &cpu;
    const auto kernel = compile(nest::parse_loop_nest(with_dtype(GetParam(), "f32")), options);
    for (const bool at_end : {false, true}) {
      std::vector<std::unique_ptr<AtTheEdge>> memory;
      std::vector<View> views;
      for (const auto id : nest::arguments(kernel->nest())) {
        const Buffer& buffer = kernel->nest().buffer(id);
        std::int64_t low = 0, high = 0;
        for (std::size_t d = 0; d < buffer.extents.size(); ++d) {
          const std::int64_t reach = (buffer.extents[d] - 1) * buffer.strides[d];
          (reach < 0 ? low : high) += reach;
        }
        memory.push_back(std::make_unique<AtTheEdge>(static_cast<std::size_t>(high - low + 1) * 4, at_end));
        views.push_back({memory.back()->data() - low * 4, buffer.extents, buffer.strides});
      }
      kernel->call(views, 1);  // a read outside ends the process
    }
  }
}

TEST_P(ShuffledLoad, TakesThePlaceOfAGather) {
  const Cpu cpu = cpu_named("x86-64-v4");
  CompileOptions options;
  options.cpu = &cpu;
  const auto kernel = compile(nest::parse_loop_nest(with_dtype(GetParam(), "f32")), options);
  EXPECT_EQ(kernel->llvm().find("masked.gather") != std::string::npos, GetParam().gathers) << kernel->llvm();
}

INSTANTIATE_TEST_SUITE_P(Table, ShuffledLoad, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace syno::jit
