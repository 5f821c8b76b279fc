// Kernels that were linked before: what is loaded computes what it did, and nothing else is loaded.
#include "jit/native_library.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "jit/kernel.hpp"
#include "nest/loop_nest.hpp"
#include "support/error.hpp"

namespace syno::jit {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<Kernel> doubled() {
  return compile(
      nest::parse_loop_nest("nest doubled\ninput x: f32[8]\noutput y: f32[8]\n"
                            "for i in 0..8\n  y[i] = x[i] * 2\n"));
}

void write(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

/// A library of the kernel and of an interface; empty where no compiler is here.
std::string linked(const Kernel& kernel, const std::string& interface) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("syno-library-{}", ::getpid());
  fs::create_directories(folder);
  write(folder / "k.o", kernel.object());
  std::string quoted;
  for (const char letter : interface) quoted += letter == '"' ? "\\\"" : std::string(1, letter);
  write(folder / "i.c", "const char syno_interface[] = \"" + quoted + "\";\n");
  const std::string command =
      fmt::format("cd '{}' && cc -shared -fPIC -nostartfiles -o l.so i.c k.o 2>/dev/null", folder.string());
  std::string bytes;
  if (std::system(command.c_str()) == 0) {
    std::ifstream file(folder / "l.so", std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  fs::remove_all(folder);
  return bytes;
}

std::string interface_of(const Kernel& kernel) {
  const auto [shared, each] = kernel.workspace_bytes();
  return fmt::format(R"({{"version":1,"kernels":{{"{}":{{"shared":{},"private":{},"arguments":[32,32]}}}}}})",
                     kernel.symbol(), shared, each);
}

TEST(NativeLibrary, RunsWhatWasLinked) {
  const auto kernel = doubled();
  const std::string bytes = linked(*kernel, interface_of(*kernel));
  if (bytes.empty()) GTEST_SKIP() << "no C compiler";
  // Two at once, and one in the place of another that is gone.
  for (int turn = 0; turn < 2; ++turn) {
    const NativeLibrary library(bytes), other(bytes);
    const NativeKernel& found = library.kernel(kernel->symbol());
    EXPECT_EQ(found.argument_bytes, (std::vector<std::int64_t>{32, 32}));
    EXPECT_NE(found.function, other.kernel(kernel->symbol()).function);
    float x[8], y[8] = {};
    for (int i = 0; i < 8; ++i) x[i] = static_cast<float>(i + turn);
    void* const arguments[] = {x, y};
    run_kernel(found.function, arguments, found.shared_bytes, found.private_bytes, 2);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(y[i], 2 * x[i]);
    EXPECT_THROW(library.kernel("main"), UnknownName);
  }
}

TEST(NativeLibrary, RunsAtSizesThatACallBringsAlong) {
  const auto kernel =
      compile(nest::parse_loop_nest("nest doubled\nparameter n in 1..9\ninput x: f32[n]\noutput y: f32[n]\n"
                                    "for i in 0..n\n  y[i] = x[i] * 2\n"));
  const auto [shared, each] = kernel->workspace_bytes();
  const std::string bytes = linked(
      *kernel,
      fmt::format(
          R"({{"version":2,"kernels":{{"{}":{{"shared":{},"private":{},"arguments":[32,32],"parameters":[[1,8]]}}}}}})",
          kernel->symbol(), shared, each));
  if (bytes.empty()) GTEST_SKIP() << "no C compiler";
  const NativeLibrary library(bytes);
  const NativeKernel& found = library.kernel(kernel->symbol());
  EXPECT_EQ(found.parameters, (std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 8}}));
  for (std::intptr_t n : {1, 5, 8}) {
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8] = {};
    void* const arguments[] = {x, y, reinterpret_cast<void*>(n)};
    run_kernel(found.function, arguments, found.shared_bytes, found.private_bytes, 1);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(y[i], i < n ? 2 * x[i] : 0) << n;
  }
}

TEST(NativeLibrary, RefusesInterfacesThatDoNotFit) {
  const auto kernel = doubled();
  const std::string name = kernel->symbol();
  for (
      const std::string& interface : {
          std::string("["),
          std::string("{}"),
          std::string(R"({"version":3,"kernels":{}})"),
          std::string(R"({"version":1,"kernels":[]})"),
          std::string(R"({"version":1,"kernels":{"none":{}}})"),
          fmt::format(R"({{"version":1,"kernels":{{"{}":{{"shared":-1,"private":0,"arguments":[]}}}}}})",
                      name),
          fmt::format(R"({{"version":1,"kernels":{{"{}":{{"shared":0,"private":0,"arguments":[1.5]}}}}}})",
                      name),
          fmt::format(
              R"({{"version":2,"kernels":{{"{}":{{"shared":0,"private":0,"arguments":[],"parameters":3}}}}}})",
              name),
          fmt::format(
              R"({{"version":2,"kernels":{{"{}":{{"shared":0,"private":0,"arguments":[],"parameters":[[1]]}}}}}})",
              name),
          fmt::format(
              R"({{"version":2,"kernels":{{"{}":{{"shared":0,"private":0,"arguments":[],"parameters":[[-1,2]]}}}}}})",
              name),
          fmt::format(R"({{"version":1,"kernels":{{"{}_":{{"shared":0,"private":0,"arguments":[]}}}}}})",
                      name),
      }) {
    const std::string bytes = linked(*kernel, interface);
    if (bytes.empty()) GTEST_SKIP() << "no C compiler";
    EXPECT_THROW(NativeLibrary{bytes}, FormatError) << interface;
  }
}

TEST(NativeLibrary, RefusesWhatIsNoLibrary) {
  const auto kernel = doubled();
  std::mt19937 random(1);
  for (std::size_t size : {0, 1, 63, 64, 4096}) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    EXPECT_THROW(NativeLibrary{bytes}, FormatError) << size;
  }
  EXPECT_THROW(NativeLibrary{kernel->object()}, FormatError);  // an object, not linked
  std::string bytes = linked(*kernel, interface_of(*kernel));
  if (bytes.empty()) GTEST_SKIP() << "no C compiler";
  EXPECT_THROW(NativeLibrary{bytes.substr(0, 64)}, Error);
  bytes[18] = static_cast<char>(243);  // RISC-V
  EXPECT_THROW(NativeLibrary{bytes}, FormatError);
}

}  // namespace
}  // namespace syno::jit
