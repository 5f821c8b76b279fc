#include "jit/check_data.hpp"

#include <cmath>
#include <set>

namespace syno::jit {

using nest::Buffer;
using nest::Dtype;

namespace {

double rounded(Dtype dtype, double value) {
  if (dtype == Dtype::F64) return value;
  if (dtype == Dtype::F32) return static_cast<double>(static_cast<float>(value));
  return static_cast<double>(from_bfloat16(to_bfloat16(static_cast<float>(value))));
}

/// So many numbers of a dtype.
std::vector<double> drawn(std::size_t count, const Data& data, Dtype dtype, Random stream) {
  std::vector<double> values(count);
  const auto fill = [&](const auto& of) {
    if (dtype == Dtype::F32)
      for (double& value : values) value = static_cast<double>(static_cast<float>(of(2 * stream.unit() - 1)));
    else
      for (double& value : values) value = rounded(dtype, of(2 * stream.unit() - 1));
  };
  if (data.kind == Data::Kind::Around)
    fill([center = data.center, size = data.size](double u) { return center + size * u; });
  else
    fill([&](double u) { return data.of(u); });
  return values;
}

}  // namespace

double Data::of(double u) const {
  switch (kind) {
    case Kind::Around:
      return center + size * u;
    case Kind::Both:
      return std::copysign(center * std::exp2(2 * std::abs(u) - 1), u);
    case Kind::Positive:
      return center * std::exp2(u);
  }
  return u;
}

std::vector<Data> choices_of_data(const program::Program& program, Dtype dtype) {
  // A mean that is not zero first: sums of very many terms stand out from the error of their estimate.
  std::vector<Data> made{{Data::Kind::Around, 0.25, 1}, {Data::Kind::Around, 0.5, 1}};
  for (const double scale : {1.0, 4.0}) {
    made.push_back({Data::Kind::Both, scale, 1});
    made.push_back({Data::Kind::Positive, scale, 1});
    made.push_back({Data::Kind::Positive, -scale, 1});
  }
  std::set<double> literals;
  for (const program::Scalar& scalar : program.scalars)
    if (scalar.kind == program::ScalarKind::Literal && scalar.literal.finite())
      literals.insert(std::abs(scalar.literal.to_double()));
  for (const double literal : literals) {
    if (literal <= 0 || literals.size() > 12) continue;
    for (const double center : {literal, -literal, 1 / literal, -1 / literal}) {
      made.push_back({Data::Kind::Around, center, 1});
      made.push_back({Data::Kind::Both, std::abs(center), 1});
    }
  }
  for (const double center : {8.0, 32.0, 100.0, 300.0, 1000.0}) {
    made.push_back({Data::Kind::Around, center, 1});
    made.push_back({Data::Kind::Around, -center, 1});
    made.push_back({Data::Kind::Around, 0, center});
  }
  const int most = dtype == Dtype::F64 ? 900 : 112;
  for (int exponent = most / 7; exponent <= most; exponent += most / 7)
    for (const int sign : {1, -1}) made.push_back({Data::Kind::Both, std::ldexp(1.0, sign * exponent), 1});
  return made;
}

Memory::Memory(const Buffer& buffer) : buffer_(buffer), size_(nest::byte_size(buffer.dtype)) {
  std::int64_t low = 0, high = 0;
  for (std::size_t d = 0; d < buffer.extents.size(); ++d) {
    const std::int64_t reach = std::max<std::int64_t>(buffer.extents[d] - 1, 0) * buffer.strides[d];
    (reach < 0 ? low : high) += reach;
  }
  offset_ = -low;
  // What the kernel must not touch is not a number, and what it leaves unwritten shows.
  bytes_.assign(static_cast<std::size_t>(high - low + 1) * size_, '\xff');
}

bool Memory::fits(const Buffer& buffer) const {
  return buffer.dtype == buffer_.dtype && buffer.extents == buffer_.extents &&
         buffer.strides == buffer_.strides;
}

bool Memory::untouched(const Point& at) const {
  const char* place = address(at);
  return std::all_of(place, place + size_, [](char byte) { return byte == '\xff'; });
}

Drawn input_of(const Buffer& buffer, const Data& data, const Random& stream) {
  std::size_t count = 1;
  for (const std::int64_t extent : buffer.extents) count *= static_cast<std::size_t>(extent);
  Drawn made{data, {buffer.extents, drawn(count, data, buffer.dtype, stream)}, Memory(buffer)};
  made.memory.put_all(made.values.data.data());
  if (nest::strides_overlap(buffer.extents, buffer.strides)) {  // what was put there last
    made.values.data.clear();
    made.memory.for_each_place(
        [&](const char* place) { made.values.data.push_back(made.memory.take(place)); });
  }
  return made;
}

Drawn DrawnInputs::take(std::size_t input, const Buffer& buffer, const Data& data, const Random& stream) {
  if (found_.size() <= input) found_.resize(input + 1);
  const auto kept = kept_.find(input);
  found_[input] = kept != kept_.end() && kept->second.data == data && kept->second.memory.fits(buffer);
  if (found_[input]) {
    Drawn made = std::move(kept->second);
    kept_.erase(kept);
    return made;
  }
  if (kept != kept_.end()) kept_.erase(kept);
  return input_of(buffer, data, stream);
}

}  // namespace syno::jit
