#include "worker/data/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

DataSpec data_spec(std::vector<std::string> files, double held_out = 0.05) {
  DataSpec data;
  data.files = std::move(files);
  data.held_out = held_out;
  return data;
}

class CorpusTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = folder_.path() + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  Corpus load(const std::vector<std::string>& files, int context, double held_out = 0.05) {
    auto corpus = Corpus::load(data_spec(files, held_out), context);
    EXPECT_TRUE(corpus) << corpus.error().to_string();
    return std::move(*corpus);
  }

  testing::TemporaryDirectory folder_;
};

std::string text_of(std::span<const int32_t> tokens) { return {tokens.begin(), tokens.end()}; }

std::string train_sample(const Corpus& corpus, int context, uint64_t seed, int64_t position) {
  std::vector<int32_t> tokens(static_cast<size_t>(context) + 1);
  corpus.train_samples(seed, position, 1, tokens);
  return text_of(tokens);
}

TEST_F(CorpusTest, WindowsOverlapByOneTokenAndSpanFiles) {
  const Corpus corpus = load({write("a", "abcd"), write("b", ""), write("c", "efghi!")}, 3, 0.3);
  ASSERT_EQ(corpus.train_windows(), 2);
  ASSERT_EQ(corpus.eval_windows(), 1);
  std::set<std::string> windows;
  for (int64_t i = 0; i < 2; ++i) windows.insert(train_sample(corpus, 3, 1, i));
  EXPECT_THAT(windows, ElementsAre("abcd", "defg"));
  std::vector<int32_t> tokens(4);
  corpus.eval_samples(0, 1, tokens);
  EXPECT_EQ(text_of(tokens), "ghi!");
}

TEST_F(CorpusTest, BytesAboveAsciiAreNotNegative) {
  const Corpus corpus = load({write("a", "\xff\xfe\xfd\xfc\xfb")}, 2);
  std::vector<int32_t> tokens(3);
  corpus.eval_samples(0, 1, tokens);
  EXPECT_THAT(tokens, ElementsAre(0xfd, 0xfc, 0xfb));
}

TEST_F(CorpusTest, TheShortestTextHasOneWindowForEachUse) {
  const Corpus corpus = load({write("a", "abcde")}, 2, 0.9);
  EXPECT_EQ(corpus.train_windows(), 1);
  EXPECT_EQ(corpus.eval_windows(), 1);
  EXPECT_EQ(train_sample(corpus, 2, 1, 1000), "abc");
}

TEST_F(CorpusTest, TooLittleTextSaysWhatToDo) {
  for (const std::string text : {"", "a", "abcd"}) {
    const auto corpus = Corpus::load(data_spec({write("a", text)}), 2);
    ASSERT_FALSE(corpus);
    EXPECT_EQ(corpus.error().code, ErrorCode::kInvalidSpec);
    EXPECT_THAT(corpus.error().message, HasSubstr("name more text or lower model.context"));
  }
}

TEST_F(CorpusTest, MissingFileIsNamed) {
  const auto corpus = Corpus::load(data_spec({"nowhere/none.txt"}), 2);
  ASSERT_FALSE(corpus);
  EXPECT_EQ(corpus.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(corpus.error().message, HasSubstr("nowhere/none.txt"));
  const auto folder = Corpus::load(data_spec({folder_.path()}), 2);
  ASSERT_FALSE(folder);
  EXPECT_THAT(folder.error().message, HasSubstr(folder_.path()));
}

TEST_F(CorpusTest, EachEpochVisitsEveryWindowOnceInItsOwnOrder) {
  std::string text;
  for (int i = 0; i < 201; ++i) text += static_cast<char>(i);
  const Corpus corpus = load({write("a", text)}, 4);
  const int64_t windows = corpus.train_windows();
  ASSERT_EQ(windows, 48);
  std::vector<std::string> epochs[2];
  for (int64_t i = 0; i < 2 * windows; ++i)
    epochs[i / windows].push_back(train_sample(corpus, 4, 9, i));
  EXPECT_NE(epochs[0], epochs[1]);
  for (auto& epoch : epochs)
    EXPECT_EQ(std::set<std::string>(epoch.begin(), epoch.end()).size(),
              static_cast<size_t>(windows));
}

TEST_F(CorpusTest, SamplesDependOnTheirGlobalPositionAlone) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>(i);
  const Corpus corpus = load({write("a", text)}, 4);
  std::vector<int32_t> together(5 * 30), one(5);
  corpus.train_samples(3, 7, 30, together);  // crosses into the second epoch
  for (int i = 0; i < 30; ++i) {
    corpus.train_samples(3, 7 + i, 1, one);
    EXPECT_TRUE(std::equal(one.begin(), one.end(), together.begin() + 5 * i)) << i;
  }
}

TEST_F(CorpusTest, EvaluationWrapsRound) {
  const Corpus corpus = load({write("a", "abcdefghijk")}, 2, 0.4);
  ASSERT_EQ(corpus.eval_windows(), 2);
  std::vector<int32_t> tokens(9);
  corpus.eval_samples(1, 3, tokens);
  EXPECT_EQ(text_of(tokens), "ijkghiijk");
}

TEST_F(CorpusTest, HashIsOfTheContentAlone) {
  const Corpus whole = load({write("a", "abcdefgh")}, 2);
  const Corpus parts = load({write("b", "abc"), write("c", "defgh")}, 2);
  const Corpus other = load({write("d", "abcdefgx")}, 2);
  EXPECT_EQ(whole.hash(), parts.hash());
  EXPECT_NE(whole.hash(), other.hash());
  EXPECT_EQ(whole.hash().size(), 32u);
}

}  // namespace
}  // namespace motley
