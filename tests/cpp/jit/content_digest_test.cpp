// The digest of very many bytes is BLAKE3's, in however many pieces they come.
#include "jit/content_digest.hpp"

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
  for (int i = 0; i < 100'000; ++i) content += static_cast<char>(i * i % 251);
  std::set<std::string> found;
  for (const std::size_t piece : {1u, 1'000u, 1'024u, 65'536u, 1'000'000u})
    found.insert(in_pieces(content, piece));
  EXPECT_EQ(found.size(), 1u);
  content[50'000] ^= 1;
  found.insert(in_pieces(content, content.size()));
  EXPECT_EQ(found.size(), 2u);
}

}  // namespace
}  // namespace syno::jit
