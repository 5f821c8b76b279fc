// An enumeration that was interrupted goes on where it was; a file that does not fit is refused.
#include "synth/checkpoint.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "small_specs.hpp"
#include "support/error.hpp"

namespace syno::synth {
namespace {

class InFile : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(test->test_suite_name()) + test->name() + std::to_string(::getpid());
    std::replace(name.begin(), name.end(), '/', '_');
    path_ = (std::filesystem::temp_directory_path() / name).string();
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string content() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  std::ptrdiff_t line_count() const {
    const std::string text = content();
    return std::count(text.begin(), text.end(), '\n');
  }
  void write(const std::string& text) const { std::ofstream(path_, std::ios::trunc) << text; }
  EnumerationOptions options(int threads = 1) const {
    EnumerationOptions result;
    result.threads = threads;
    result.checkpoint = path_;
    return result;
  }
  std::string path_;
};

void expect_same(const Enumeration& a, const Enumeration& b) {
  ASSERT_EQ(a.operators.size(), b.operators.size());
  for (std::size_t i = 0; i < a.operators.size(); ++i) {
    EXPECT_EQ(a.operators[i].graph, b.operators[i].graph) << i;
    EXPECT_EQ(a.operators[i].steps, b.operators[i].steps) << i;
    EXPECT_EQ(a.operators[i].work.flops, b.operators[i].work.flops) << i;
    EXPECT_EQ(a.operators[i].work.params, b.operators[i].work.params) << i;
    EXPECT_EQ(a.operators[i].work.bytes, b.operators[i].work.bytes) << i;
  }
  EXPECT_EQ(a.statistics.children, b.statistics.children);
  EXPECT_EQ(a.statistics.states, b.statistics.states);
  EXPECT_EQ(a.statistics.finished, b.statistics.finished);
  EXPECT_EQ(a.statistics.rejected, b.statistics.rejected);
  EXPECT_EQ(a.statistics.by_steps, b.statistics.by_steps);
}

class KilledEnumeration : public InFile, public ::testing::WithParamInterface<std::tuple<int, int>> {};

TEST_P(KilledEnumeration, GoesOnAndGivesTheSame) {
  const auto [threads, lines] = GetParam();
  const Spec spec = testing::rich_line_spec(4);
  const Enumeration whole = enumerate(spec);
  EnumerationOptions kept = options(threads);
  for (int death = 0; death < 2; ++death) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      kept.poll = [&, at = lines + death] {
        if (line_count() >= at) ::raise(SIGKILL);
      };
      enumerate(spec, kept);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "it ended before it could be killed";
    EXPECT_GE(line_count(), lines + death);
  }
  kept.poll = nullptr;
  expect_same(enumerate(spec, kept), whole);
}
INSTANTIATE_TEST_SUITE_P(CutPoints, KilledEnumeration,
                         ::testing::Combine(::testing::Values(1, 2), ::testing::Values(1, 7, 100)));

TEST_F(InFile, AnExceptionIsAnInterruptionToo) {
  const Spec spec = testing::line_spec(5);
  EnumerationOptions kept = options(2);
  int left = 12;
  kept.poll = [&left] {
    if (--left == 0) throw std::runtime_error("stop");
  };
  EXPECT_THROW(enumerate(spec, kept), std::runtime_error);
  kept.poll = nullptr;
  expect_same(enumerate(spec, kept), enumerate(spec));
}

TEST_F(InFile, WhatIsFinishedIsNotSearchedAgain) {
  const Spec spec = testing::line_spec(5);
  int first = 0;
  int second = 0;
  EnumerationOptions kept = options();
  kept.poll = [&first] { ++first; };
  enumerate(spec, kept);
  const std::string text = content();
  kept.poll = [&second] { ++second; };
  enumerate(spec, kept);
  EXPECT_EQ(first - second, std::count(text.begin(), text.end(), '\n') - 1) << "one a branch";
  EXPECT_EQ(content(), text);
}

TEST_F(InFile, AFileCutOffAnywhereIsReadUpToThere) {
  const Spec spec = testing::line_spec(4);
  const Enumeration whole = enumerate(spec, options());
  const std::string text = content();
  ASSERT_GT(text.size(), 1'000U);
  for (std::size_t cut = 0; cut <= 40; ++cut) {
    write(text.substr(0, text.size() * cut / 40));
    expect_same(enumerate(spec, options(1 + static_cast<int>(cut % 2))), whole);
  }
}

TEST_F(InFile, DamageIsSeen) {
  const Spec spec = testing::line_spec(4);
  enumerate(spec, options());
  const std::string text = content();
  for (std::size_t at = text.find('\n') + 1; at + 1 < text.size(); at += 97) {
    std::string damaged = text;
    damaged[at] = damaged[at] == '7' ? '8' : '7';
    write(damaged);
    EXPECT_THROW(enumerate(spec, options()), FormatError) << at;
  }
  const std::string first = text.substr(0, text.find('\n') + 1);
  const std::string second = text.substr(first.size(), text.find('\n', first.size()) + 1 - first.size());
  write(first + second + second);
  EXPECT_THROW(enumerate(spec, options()), FormatError) << "a branch twice";
}

TEST_F(InFile, AnotherEnumerationsFileIsRefusedAndLeftAlone) {
  const Spec spec = testing::line_spec(4);
  enumerate(spec, options());
  const std::string text = content();
  const auto refused = [&](const Spec& other, const EnumerationOptions& with, const char* word) {
    try {
      enumerate(other, with);
      FAIL() << word;
    } catch (const SpecError& error) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
    EXPECT_EQ(content(), text);
  };
  refused(testing::line_spec(5), options(), "spec");
  EnumerationOptions deeper = options();
  deeper.max_steps = 3;
  refused(spec, deeper, "max_steps");
  EnumerationOptions blind = options();
  blind.shape_distance = false;
  refused(spec, blind, "shape_distance");

  const std::string notes = "notes of mine\nnothing to do with operators\n";
  write(notes);
  EXPECT_THROW(enumerate(spec, options()), FormatError);
  EXPECT_EQ(content(), notes);
  std::string newer = text;
  newer.replace(newer.find("\"syno_enumeration\":1"), 20, "\"syno_enumeration\":9");
  write(newer);
  EXPECT_THROW(enumerate(spec, options()), FormatError);
}

TEST_F(InFile, AFileInUseIsRefused) {
  const Spec spec = testing::line_spec(4);
  EnumerationOptions outer = options();
  bool refused = false;
  outer.poll = [&] {
    if (refused || content().empty()) return;
    EXPECT_THROW(enumerate(spec, options()), SpecError);
    refused = true;
  };
  expect_same(enumerate(spec, outer), enumerate(spec));
  EXPECT_TRUE(refused);
  EnumerationOptions nowhere = options();
  nowhere.checkpoint = path_ + "/no/such/folder";
  EXPECT_THROW(enumerate(spec, nowhere), SpecError);
}

TEST_F(InFile, TheMemoryLimitCountsWhatWasFinishedBefore) {
  const Spec spec = testing::line_spec(5);
  enumerate(spec, options());
  EnumerationOptions small = options();
  small.memory_limit = 1'000;
  EXPECT_THROW(enumerate(spec, small), SpecError);
}

}  // namespace
}  // namespace syno::synth
