#include "core/spec/yaml_tree.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace motley {
namespace {

constexpr YamlLimits kSmall{1000, 20, 4};

std::string parse_error_of(const std::string& text, const YamlLimits& limits = kJobLimits) {
  const Result<YamlTree> tree = parse_yaml(text, "f.yaml", limits);
  return tree ? "no error" : tree.error().to_string();
}

struct BadText {
  const char* name;
  std::string text;
  const char* error;
};

TEST(YamlTree, RefusesWhatSpecsDoNotNeed) {
  const BadText cases[] = {
      {"anchor on a scalar", "a: &x 1\n",
       "f.yaml:1:4: anchors are not allowed (write the value again where it is needed)"},
      {"anchor on a mapping", "a: &x {b: 1}\n",
       "f.yaml:1:4: anchors are not allowed (write the value again where it is needed)"},
      {"anchor on a key", "&x a: 1\n",
       "f.yaml:1:1: anchors are not allowed (write the value again where it is needed)"},
      {"anchor on nothing", "a: &x\n",
       "f.yaml:1:4: anchors are not allowed (write the value again where it is needed)"},
      {"alias without anchor", "a: *x\n",
       "f.yaml:1:4: aliases are not allowed (write the value again)"},
      {"alias as a key", "a: 1\n*x : 2\n",
       "f.yaml:2:1: aliases are not allowed (write the value again)"},
      {"standard tag", "a: !!int 1\n", "f.yaml:1:4: tags are not allowed (leave it out)"},
      {"own tag", "a: !Job {b: 1}\n", "f.yaml:1:4: tags are not allowed (leave it out)"},
      {"empty tag", "a: ! 1\n", "f.yaml:1:4: tags are not allowed (leave it out)"},
      {"verbatim tag", "a: !<tag:x> 1\n", "f.yaml:1:4: tags are not allowed (leave it out)"},
      {"tag before quotes", "a: ! \"1\"\n", "f.yaml:1:4: tags are not allowed (leave it out)"},
      {"tag on a list", "a: !!seq [1]\n", "f.yaml:1:4: tags are not allowed (leave it out)"},
      {"duplicate key", "a: 1\nb: 2\na: 3\n", "f.yaml:3:1: duplicate key 'a'"},
      {"duplicate key in a flow mapping", "x: {a: 1, a: 2}\n", "f.yaml:1:11: duplicate key 'a'"},
      {"duplicate key in quotes", "a: 1\n\"a\": 3\n", "f.yaml:2:1: duplicate key 'a'"},
      {"second document", "a: 1\n---\nb: 2\n",
       "f.yaml:2:1: a second document starts here (only one is allowed)"},
      {"text after the end mark", "a: 1\n...\nb: 2\n",
       "f.yaml:3:1: a second document starts here (only one is allowed)"},
      {"list as a key", "? [a, b]\n: 1\n",
       "f.yaml:1:3: a key must be a word (or was a bracket left open?)"},
      {"mapping as a key", "{{a: 1}: 2}\n",
       "f.yaml:1:2: a key must be a word (or was a bracket left open?)"},
      {"no key", ": 1\n", "f.yaml:1:1: a key must be a word (or was a bracket left open?)"},
      {"null as a key", "~: 1\n", "f.yaml:1:1: a key must be a word (or was a bracket left open?)"},
      {"empty file", "", "f.yaml:1:1: the file is empty"},
      {"only comments", "# nothing\n\n", "f.yaml:1:1: the file is empty"},
      {"tab as indentation", "a:\n\tb: 1\n", "f.yaml:2:1: a tab in the indentation (use spaces)"},
      {"tab after spaces", "a:\n  \tb: 1\n", "f.yaml:2:1: a tab in the indentation (use spaces)"},
      {"Latin-1", "a: t\xe4\n", "f.yaml:1:5: not UTF-8 text (save the file as UTF-8)"},
      {"overlong UTF-8", "a: \xc0\xaf\n", "f.yaml:1:4: not UTF-8 text (save the file as UTF-8)"},
      {"surrogate", "a: \xed\xa0\x80\n", "f.yaml:1:4: not UTF-8 text (save the file as UTF-8)"},
      {"cut character", "a: \xe2\x82", "f.yaml:1:4: not UTF-8 text (save the file as UTF-8)"},
      {"beyond Unicode", "a: \xf4\x90\x80\x80",
       "f.yaml:1:4: not UTF-8 text (save the file as UTF-8)"},
      {"UTF-16",
       std::string("\xff\xfe"
                   "a\0",
                   4),
       "f.yaml:1:1: not UTF-8 text (save the file as UTF-8)"},
      {"zero byte", std::string("a: 1\n\0", 6),
       "f.yaml:2:1: not UTF-8 text (save the file as UTF-8)"},
      {"escape sequence", "a: \x1b[31m\n", "f.yaml:1:4: not UTF-8 text (save the file as UTF-8)"},
      {"open quote", "a: \"b\nc: 1\n", "f.yaml:1:4: this quote is never closed"},
      {"open single quote", "a: 'it''s\n", "f.yaml:1:4: this quote is never closed"},
      {"open list", "a: [1, 2\nb: 3\n",
       "f.yaml:2:2: not valid YAML: end of sequence flow not found"},
      {"open mapping", "a: {b: 1\n", "f.yaml:2:1: not valid YAML: end of map flow not found"},
      {"two values", "a: b: c\n", "f.yaml:1:5: not valid YAML: illegal map value"},
      {"wrong indentation", "a:\n  b: 1\n   c: 2\n",
       "f.yaml:3:5: not valid YAML: illegal map value"},
      {"reserved character", "a: @b\n", "f.yaml:1:4: not valid YAML: unknown token"},
  };
  for (const BadText& bad : cases) EXPECT_EQ(parse_error_of(bad.text), bad.error) << bad.name;
}

TEST(YamlTree, NeverExpandsAliases) {
  std::string laughs = "a0: &a0 [ha, ha]\n";
  for (int i = 1; i < 40; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before + ", " + before +
              "]\n";
  }
  EXPECT_EQ(parse_error_of(laughs),
            "f.yaml:1:5: anchors are not allowed (write the value again where it is needed)");
  EXPECT_EQ(parse_error_of("a: &a [*a]\n"),
            "f.yaml:1:4: anchors are not allowed (write the value again where it is needed)");
}

TEST(YamlTree, KeepsItsLimits) {
  EXPECT_EQ(parse_error_of("a: [[[1]]]", kSmall), "no error");
  EXPECT_EQ(parse_error_of("a: [[[[1]]]]", kSmall), "f.yaml:1:7: nested deeper than 4 levels");
  std::string entries = "a:\n";
  for (int i = 0; i < 17; ++i) entries += "- 1\n";
  EXPECT_EQ(parse_error_of(entries, kSmall), "no error");
  EXPECT_EQ(parse_error_of(entries + "- 1\n", kSmall), "f.yaml:19:3: more than 20 nodes");
  EXPECT_EQ(parse_error_of("a: " + std::string(997, 'x'), kSmall), "no error");
  EXPECT_EQ(parse_error_of("a: " + std::string(998, 'x'), kSmall), "f.yaml: larger than 1000 B");
}

// Or yaml-cpp would hold gigabytes of tokens for a fleet of eight million brackets.
TEST(YamlTree, CountsMarksBeforeAnythingIsParsed) {
  EXPECT_EQ(parse_error_of(std::string(21, '['), kSmall),
            "f.yaml: more than 20 brackets, commas and colons");
  EXPECT_EQ(parse_error_of(std::string(20'001, '{')),
            "f.yaml: more than 20000 brackets, commas and colons");
}

TEST(YamlTree, DeepNestingEndsAtTheLimitNotInTheStack) {
  for (const char* piece : {"[", "{a: ", "{", "- ", "? ", "[[{"}) {
    std::string text;
    while (text.size() < 10'000) text += piece;
    EXPECT_NE(parse_error_of(text), "no error") << piece;
  }
  std::string block = "a:\n";
  for (int i = 1; i < 40; ++i) block += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  EXPECT_EQ(parse_error_of(block), "f.yaml:33:33: nested deeper than 32 levels");
}

TEST(YamlTree, KnowsWhereEverythingStands) {
  const Result<YamlTree> tree = parse_yaml(
      "\xef\xbb\xbf"
      "a: 1\r\nb:\r\n  c: [x, 'y']\r\n  d:\r\n",
      "f.yaml", kJobLimits);
  ASSERT_TRUE(tree) << tree.error().to_string();
  const YamlNode& c = tree->nearest("b.c");
  EXPECT_EQ(c.kind, YamlNode::Kind::kList);
  EXPECT_EQ(c.line, 3);
  EXPECT_EQ(c.column, 6);
  EXPECT_EQ(c.items[1].text, "y");
  EXPECT_TRUE(c.items[1].quoted);
  EXPECT_FALSE(c.items[0].quoted);
  EXPECT_EQ(tree->nearest("b.d").kind, YamlNode::Kind::kNull);
  EXPECT_EQ(tree->nearest("b.d").line, 4);
  EXPECT_EQ(&tree->nearest("b.missing.key"), &tree->nearest("b"));
  EXPECT_EQ(tree->root.find("z"), nullptr);
}

TEST(YamlTree, OverridesTakeTheirPlace) {
  Result<YamlTree> tree = parse_yaml("train: {steps: 1}\n", "f.yaml", kJobLimits);
  ASSERT_TRUE(override_value(*tree, "train.steps", "20", "--set train.steps"));
  ASSERT_TRUE(override_value(*tree, "train.eval.every", "5", "--set train.eval.every"));
  ASSERT_TRUE(override_value(*tree, "data.text", "[a, b]", "--set data.text"));
  EXPECT_EQ(tree->nearest("train.steps").text, "20");
  EXPECT_EQ(tree->nearest("train.eval.every").text, "5");
  EXPECT_EQ(tree->nearest("data.text").items.size(), 2u);
  EXPECT_EQ(tree->nearest("data.text").items[0].place().file, "--set data.text");
  EXPECT_EQ(tree->nearest("data.text").items[0].place().line, 0);
}

TEST(YamlTree, RefusesOverridesThatLeadNowhere) {
  const auto error_of_set = [](const std::string& path, const std::string& value) {
    Result<YamlTree> tree = parse_yaml("train: {steps: 1}\n", "f.yaml", kJobLimits);
    const Result<Unit> outcome = override_value(*tree, path, value, "--set " + std::string(path));
    return outcome ? "no error" : outcome.error().to_string();
  };
  EXPECT_EQ(error_of_set("", "1"), "--set : expected key=value, such as train.steps=100");
  for (const char* path : {".a", "a.", "a..b"})
    EXPECT_EQ(error_of_set(path, "1"),
              "--set " + std::string(path) + ": expected key=value, such as train.steps=100");
  EXPECT_EQ(error_of_set("train.steps.x", "1"),
            "--set train.steps.x: there is no mapping to set 'x' in");
  EXPECT_EQ(error_of_set("train.steps", ""),
            "--set train.steps: expected key=value, such as train.steps=100");
  EXPECT_EQ(error_of_set("train.steps", "&a 1"),
            "--set train.steps: anchors are not allowed (write the value again where it is "
            "needed)");
  EXPECT_EQ(error_of_set("train.steps", "[1, 2"),
            "--set train.steps: a key must be a word (or was a bracket left open?)");
}

TEST(YamlTree, FilesAreReadUpToTheLimit) {
  EXPECT_EQ(read_yaml_file("/nonexistent/job.yaml", 10).error().to_string(),
            "/nonexistent/job.yaml: No such file or directory");
  EXPECT_EQ(read_yaml_file("/nonexistent/job.yaml", 10).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(read_yaml_file("/", 10).error().to_string(), "/: is a directory, not a YAML file");
  EXPECT_EQ(read_yaml_file("/dev/zero", 256 << 10).error().to_string(),
            "/dev/zero: larger than 256 KiB, the limit for this kind of file");
}

RC_GTEST_PROP(YamlTree, AnyTextIsReadOrRefused, ()) {
  const auto letters = rc::gen::elementOf(std::string("ab1 \n\t:-?,[]{}#&*!|>'\"%@`~.\\\xc3\xa4"));
  parse_error_of(*rc::gen::container<std::string>(letters));
}

}  // namespace
}  // namespace motley
