// The digest of very many bytes is BLAKE3's, in however many pieces they come.
#include "jit/content_digest.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

namespace syno::jit {
namespace {

std::string in_pieces(std::string_view content, std::size_t piece) {
  ContentDigest digest;
  for (std::size_t at = 0; at < content.size(); at += piece) digest.update(content.substr(at, piece));
  return digest.digits();
}

TEST(ContentDigest, IsBlake3) {
  EXPECT_EQ(ContentDigest().digits(), "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
  EXPECT_EQ(in_pieces("abc", 3), "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85");
}

TEST(ContentDigest, DoesNotDependOnThePieces) {
  std::string content;
  for (std::size_t i = 0; i < 100'000; ++i) content += static_cast<char>(i * i % 251);
  std::set<std::string> found;
  for (const std::size_t piece : {1u, 1'000u, 1'024u, 65'536u, 1'000'000u})
    found.insert(in_pieces(content, piece));
  EXPECT_EQ(found.size(), 1u);
  content[50'000] ^= 1;
  found.insert(in_pieces(content, content.size()));
  EXPECT_EQ(found.size(), 2u);
}

TEST(PartDigests, AreThoseOfTheParts) {
  std::string content;
  for (std::size_t i = 0; i < 10'000; ++i) content += static_cast<char>(i * i % 251);
  const auto as_digits = [](std::string_view bytes) {
    std::string found;
    for (const char byte : bytes) found += fmt::format("{:02x}", static_cast<std::uint8_t>(byte));
    return found;
  };
  for (const std::size_t size : {1'000u, 4'096u, 10'000u, 20'000u}) {
    const std::string found = part_digests(content, size);
    std::string expected;
    for (std::size_t at = 0; at < content.size(); at += size)
      expected += in_pieces(content.substr(at, size), size).substr(0, 2 * part_digest_size);
    EXPECT_EQ(as_digits(found), expected) << size;
  }
  EXPECT_EQ(part_digests("", 7), "");
}

}  // namespace
}  // namespace syno::jit
