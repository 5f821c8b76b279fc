#include "synth/sizes.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/error.hpp"

namespace syno::synth {
namespace {

using symbolic::Size;
using symbolic::VariableKind;

constexpr int kMaxBlockExponent = 4;
constexpr std::int64_t kMostNumber = std::int64_t{1} << 40;  // is taken apart into primes

std::uint64_t stable_hash(const Size& size) {
  Hasher hasher;
  hasher.add(size.factor().num()).add(size.factor().den());
  for (std::size_t i = 0; i < symbolic::kMaxVariables; ++i)
    hasher.add(static_cast<std::int8_t>(size.exponent(i)));
  return hasher.finish().low;
}

/// Two words make one key; sizes that collide move on to the next odd number.
std::uint64_t key_of(PackedSize size) {
  return (size.low * 0x9e3779b97f4a7c15ULL ^ (size.high + 0x5851f42d4c957f2dULL)) | 1;
}

}  // namespace

SizePool::SizePool(const Spec& spec) : spec_(spec) {
  const auto& sizes = spec_.signature.sizes;
  for (std::size_t v = 0; v < sizes.valuation_count(); ++v) {
    std::size_t same = 0;
    while (
        same < representative_.size() &&
        !std::ranges::equal(sizes.variables().empty() ? std::span<const std::int64_t>() : sizes.valuation(v),
                            sizes.variables().empty() ? std::span<const std::int64_t>()
                                                      : sizes.valuation(representative_[same]))) {
      ++same;
    }
    if (same == representative_.size()) {
      representative_.push_back(v);
      weights_.push_back(0);
      work_share_.push_back(0);
    }
    weights_[same] += 1;
    work_share_[same] += spec_.weights.empty() ? 1 : spec_.weights[v];
  }
  const double all = std::accumulate(work_share_.begin(), work_share_.end(), 0.0);
  for (double& share : work_share_) share /= all;
  find_primes();
  intern(Size());
  enumerate_reduce_extents();
  widest_window_ = find_widest_window();
}

/// Where coefficients have one value at every valuation, a window that is narrow mostly is narrow everywhere.
double SizePool::find_widest_window() const {
  const auto& sizes = spec_.signature.sizes;
  if (spec_.disabled_rules.contains("unfold-large-window")) return kUnbounded;
  for (std::size_t i = 0; i < sizes.variables().size(); ++i) {
    for (const std::size_t v : representative_) {
      if (sizes.variables()[i].kind == VariableKind::Coefficient &&
          sizes.valuation(v)[i] != sizes.valuation(representative_[0])[i])
        return kUnbounded;
    }
  }
  return spec_.thresholds.max_window;
}

bool SizePool::within_limits(PackedSize size) const {
  int variables = 0;
  int powers = 0;
  for (std::size_t i = 0; i < spec_.occurrences.size(); ++i) {
    variables += size.exponent(i) != 0;
    powers += std::abs(size.exponent(i));
  }
  return variables <= spec_.budgets.max_variables_in_size && powers <= spec_.budgets.max_powers_in_size;
}

SizeNumber SizePool::intern(const Size& size) { return intern(pack(size)); }

SizeNumber SizePool::intern(PackedSize packed) {
  for (std::uint64_t key = key_of(packed);; key += 2) {
    std::uint32_t& known = by_packed_[key];
    if (known == 0) {
      known = static_cast<std::uint32_t>(facts_.size()) + 1;
      return add(packed);
    }
    if (facts_[known - 1].packed == packed) return known - 1;
  }
}

bool SizePool::may_be_reduced(PackedSize size) const {
  for (std::uint64_t key = key_of(size);; key += 2) {
    const std::uint32_t known = by_packed_.find(key);
    if (known == 0) return false;
    if (facts_[known - 1].packed == size) return facts_[known - 1].reduced;
  }
}

SizeNumber SizePool::add(PackedSize packed) {
  const Size size = unpack(packed);
  SYNO_ASSERT(facts_.size() < 0xfffffffeU, "size numbers fit 32 bits");
  const auto number = static_cast<SizeNumber>(facts_.size());
  SizeFacts facts;
  facts.size = size;
  facts.packed = packed;
  facts.hash = stable_hash(size);
  facts.integral = true;
  facts.odd = true;
  facts.coefficient = true;
  bool negative_coefficient = false;
  const auto& variables = spec_.signature.sizes.variables();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const int exponent = size.exponent(i);
    facts.magnitude[i] = static_cast<std::int8_t>(std::abs(exponent));
    if (variables[i].kind == VariableKind::Primary) {
      facts.primary[i] = static_cast<std::int8_t>(exponent);
      if (exponent != 0) facts.coefficient = false;
      if (exponent < 0) facts.negative_primary = true;
    } else if (exponent < 0) {
      negative_coefficient = true;
    }
  }
  facts.least = kUnbounded;
  for (const std::size_t v : representative_) {
    // Numbers beyond 2^53 are no extent of anything: their value stays approximate and they are not legal.
    double numerator = static_cast<double>(size.factor().num());
    double denominator = static_cast<double>(size.factor().den());
    for (std::size_t i = 0; i < variables.size(); ++i) {
      const auto value = static_cast<double>(spec_.signature.sizes.valuation(v)[i]);
      for (int e = size.exponent(i); e > 0; --e) numerator *= value;
      for (int e = size.exponent(i); e < 0; ++e) denominator *= value;
    }
    const bool whole = numerator < 0x1p53 && denominator < 0x1p53 && std::fmod(numerator, denominator) == 0;
    const double value = numerator / denominator;
    facts.integral = facts.integral && whole;
    facts.odd = facts.odd && whole && std::fmod(value, 2) == 1;
    facts.least = std::min(facts.least, value);
    facts.greatest = std::max(facts.greatest, value);
    values_.push_back(value);
  }
  facts.legal = facts.integral && !size.is_one() && !facts.negative_primary &&
                !(facts.coefficient && negative_coefficient) && within_limits(packed);
  const Thresholds& t = spec_.thresholds;
  const double* const values = values_.data() + values_.size() - representative_.size();
  facts.narrow = mostly([&](std::size_t v) { return values[v] <= t.max_window; });
  facts.matchable = mostly([&](std::size_t v) { return values[v] <= t.max_matched; });
  facts.matchable_again = facts.greatest >= t.min_matched_reduce &&
                          mostly([&](std::size_t v) { return values[v] <= t.max_matched_reduce; });
  facts_.push_back(facts);
  return number;
}

void SizePool::find_primes() {
  const auto& signature = spec_.signature;
  const auto take_primes = [&](std::int64_t number) {
    for (std::int64_t p = 2; number > 1; ++p) {
      if (p * p > number) p = number;
      if (number % p != 0) continue;
      if (std::find(primes_.begin(), primes_.end(), p) == primes_.end()) primes_.push_back(p);
      while (number % p == 0) number /= p;
    }
  };
  const auto take_dims = [&](const std::vector<pgraph::Dim>& dims) {
    for (const auto& dim : dims) {
      for (const std::int64_t number : {dim.extent.factor().num(), dim.extent.factor().den()}) {
        if (number > kMostNumber)
          fail<SpecError>("spec", "dimension '{}' has the number {} in its extent; at most 2^40 is read",
                          dim.name, number);
      }
      take_primes(dim.extent.factor().num());
      take_primes(dim.extent.factor().den());
    }
  };
  take_dims(signature.output);
  take_dims(signature.input);
  for (const auto& input : signature.further) take_dims(input.dims);
  const auto& variables = signature.sizes.variables();
  if (variables.size() + primes_.size() > symbolic::kMaxVariables) {
    fail<SpecError>("spec",
                    "{} variables and {} prime factors of the signature's numbers are more than {} together",
                    variables.size(), primes_.size(), symbolic::kMaxVariables);
  }
  for (std::size_t i = 0; i < variables.size(); ++i) {
    if (variables[i].kind == VariableKind::Primary) primary_lanes_.set(i, -1);
  }
  for (std::size_t k = 0; k < primes_.size(); ++k) number_lanes_.set(variables.size() + k, -1);
}

PackedSize SizePool::pack(const Size& size) const {
  PackedSize packed;
  const std::size_t variables = spec_.signature.sizes.variables().size();
  for (std::size_t i = 0; i < variables; ++i) packed.set(i, static_cast<std::int8_t>(size.exponent(i)));
  std::int64_t num = size.factor().num();
  std::int64_t den = size.factor().den();
  for (std::size_t k = 0; k < primes_.size(); ++k) {
    int exponent = 0;
    for (; num % primes_[k] == 0; num /= primes_[k]) ++exponent;
    for (; den % primes_[k] == 0; den /= primes_[k]) --exponent;
    packed.set(variables + k, static_cast<std::int8_t>(exponent));
  }
  if (num != 1 || den != 1) {
    fail<SpecError>(
        "spec",
        "the size {} holds the number {}, which is made of none of the numbers in the signature of "
        "'{}' ({}): no operator of that spec has it; give it as a variable of the spec",
        spec_.signature.sizes.to_text(size), num != 1 ? num : den, spec_.name,
        primes_.empty() ? std::string("there are none") : fmt::format("{}", fmt::join(primes_, ", ")));
  }
  return packed;
}

std::size_t SizePool::bytes() const {
  return facts_.capacity() * sizeof(SizeFacts) + values_.capacity() * sizeof(double) + by_packed_.bytes();
}

Size SizePool::unpack(PackedSize packed) const {
  const std::size_t variables = spec_.signature.sizes.variables().size();
  Size size;
  for (std::size_t i = 0; i < variables; ++i) {
    if (packed.exponent(i) != 0) size = size * Size::variable(i, packed.exponent(i));
  }
  for (std::size_t k = 0; k < primes_.size(); ++k) {
    const Size prime(primes_[k]);
    for (int e = packed.exponent(variables + k); e > 0; --e) size = size * prime;
    for (int e = packed.exponent(variables + k); e < 0; ++e) size = size / prime;
  }
  return size;
}

std::optional<BlockChoice> SizePool::block_of(SizeNumber extent, PackedSize block) {
  const auto& variables = spec_.signature.sizes.variables();
  const PackedSize whole = facts_[extent].packed;
  BlockChoice choice;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const int part = block.exponent(i);
    const int rest = whole.exponent(i) - part;
    const int used = (std::abs(part) + std::abs(rest) - std::abs(whole.exponent(i))) / 2;
    const bool primary = variables[i].kind == VariableKind::Primary;
    if (used > spec_.occurrences[i] || (primary && (part < 0 || rest < 0)) ||
        std::abs(part) > kMaxBlockExponent)
      return std::nullopt;
    choice.usage[i] = static_cast<std::int8_t>(used);
  }
  const PackedSize numbers = block & number_lanes_;
  if (!numbers.is_zero() && !(numbers == (whole & number_lanes_))) return std::nullopt;
  if (!within_limits(block) || !within_limits(whole / block)) return std::nullopt;
  choice.block = intern(block);
  if (!facts_[choice.block].legal) return std::nullopt;
  choice.group = over(extent, choice.block);
  if (!facts_[choice.group].legal) return std::nullopt;
  return choice;
}

RatioFacts SizePool::ratio(PackedSize size) const {
  RatioFacts facts;
  const std::size_t variables = spec_.signature.sizes.variables().size();
  const PackedSize primary = size & primary_lanes_;
  facts.coefficient = primary.is_zero();
  constexpr std::uint64_t kSigns = 0x8080808080808080ULL;
  facts.negative_primary = ((primary.low | primary.high) & kSigns) != 0;
  facts.integral = true;
  facts.odd = true;
  for (const std::size_t v : representative_) {
    double numerator = 1;
    double denominator = 1;
    for (std::size_t lane = 0; lane < variables + primes_.size(); ++lane) {
      const auto value = static_cast<double>(lane < variables ? spec_.signature.sizes.valuation(v)[lane]
                                                              : primes_[lane - variables]);
      for (int e = size.exponent(lane); e > 0; --e) numerator *= value;
      for (int e = size.exponent(lane); e < 0; ++e) denominator *= value;
    }
    const bool whole = numerator < 0x1p53 && denominator < 0x1p53 && std::fmod(numerator, denominator) == 0;
    facts.integral = facts.integral && whole;
    facts.odd = facts.odd && whole && std::fmod(numerator / denominator, 2) == 1;
  }
  return facts;
}

SizeNumber SizePool::times(SizeNumber a, SizeNumber b) {
  if (a == kOne) return b;
  if (b == kOne) return a;
  return intern(facts_[a].packed * facts_[b].packed);
}

SizeNumber SizePool::over(SizeNumber a, SizeNumber b) {
  if (b == kOne) return a;
  if (a == b) return kOne;
  return intern(facts_[a].packed / facts_[b].packed);
}

bool SizePool::promising_window(SizeNumber window, SizeNumber extent) const {
  return mostly([&](std::size_t v) {
    return value(window, v) <= spec_.thresholds.max_window &&
           value(extent, v) >= spec_.thresholds.unfold_ratio * value(window, v);
  });
}

bool SizePool::fits_inside(SizeNumber window, SizeNumber extent) const {
  for (std::size_t v = 0; v < valuation_count(); ++v) {
    if (value(window, v) > value(extent, v)) return false;
  }
  return true;
}

bool SizePool::lexicographic_less(SizeNumber a, SizeNumber b) const {
  const auto& variables = spec_.signature.sizes.variables();
  for (const VariableKind kind : {VariableKind::Primary, VariableKind::Coefficient}) {
    for (std::size_t i = 0; i < variables.size(); ++i) {
      if (variables[i].kind != kind) continue;
      const int left = facts_[a].size.exponent(i);
      const int right = facts_[b].size.exponent(i);
      if (left != right) return left < right;
    }
  }
  return facts_[a].size.factor() < facts_[b].size.factor();
}

/// Primary exponents 0 to 4, coefficient exponents -2 to 2, within the occurrence limits (the authors'
/// ranges).
void SizePool::enumerate_reduce_extents() {
  const auto& variables = spec_.signature.sizes.variables();
  std::vector<Size> found;
  const auto choose = [&](const auto& self, std::size_t variable, const Size& size) -> void {
    if (variable == variables.size()) {
      if (within_limits(pack(size))) found.push_back(size);
      return;
    }
    const bool primary = variables[variable].kind == VariableKind::Primary;
    const int limit = std::min(spec_.occurrences[variable], primary ? 4 : 2);
    for (int exponent = primary ? 0 : -limit; exponent <= limit; ++exponent) {
      self(self, variable + 1, exponent == 0 ? size : size * Size::variable(variable, exponent));
    }
  };
  choose(choose, 0, Size());
  for (const Size& size : found) {
    const SizeNumber number = intern(size);
    if (!facts_[number].legal) continue;
    facts_[number].reduced = true;
    reduce_extents_.push_back(number);
  }
}

const std::vector<BlockChoice>& SizePool::blocks(SizeNumber extent) {
  const auto [found, inserted] = blocks_.try_emplace(extent);
  if (!inserted) return found->second;
  const auto& variables = spec_.signature.sizes.variables();
  const Size whole = facts_[extent].size;
  std::vector<std::pair<Size, Usage>> choices;
  Usage usage{};
  const auto choose = [&](const auto& self, std::size_t variable, const Size& size) -> void {
    if (variable == variables.size()) {
      choices.emplace_back(size, usage);
      return;
    }
    const int exponent = whole.exponent(variable);
    const bool primary = variables[variable].kind == VariableKind::Primary;
    const int limit = spec_.occurrences[variable];
    for (int block = -limit - 2; block <= limit + std::abs(exponent) + 2; ++block) {
      const int used = (std::abs(block) + std::abs(exponent - block) - std::abs(exponent)) / 2;
      if (used > limit || (primary && (block < 0 || exponent - block < 0)) ||
          std::abs(block) > kMaxBlockExponent)
        continue;
      usage[variable] = static_cast<std::int8_t>(used);
      self(self, variable + 1, block == 0 ? size : size * Size::variable(variable, block));
    }
    usage[variable] = 0;
  };
  choose(choose, 0, Size());
  std::vector<BlockChoice> result;
  for (const auto& [size, used] : choices) {
    for (const Size& factor : {Size(), Size(whole.factor())}) {
      // Most are beyond the limits; only the others are remembered.
      const PackedSize part = pack(size * factor);
      const PackedSize rest = facts_[extent].packed / part;
      if (within_limits(part) && within_limits(rest)) {
        const SizeNumber block = intern(part);
        const SizeNumber group = intern(rest);
        if (facts_[block].legal && facts_[group].legal) result.push_back({block, group, used});
      }
      if (whole.factor() == Rational(1)) break;
    }
  }
  result.shrink_to_fit();
  return blocks_[extent] = std::move(result);
}

}  // namespace syno::synth
