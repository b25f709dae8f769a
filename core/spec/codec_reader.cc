#include "core/spec/codec_reader.h"

#include "core/spec/yaml_keys.h"

namespace motley {
namespace {

const YamlKeys<CodecSpec>& codec_keys() {
  static const YamlKeys<CodecSpec> keys = {
      word("type", &CodecSpec::kind).required(),
      number("fraction", &CodecSpec::fraction,
             {.low = CodecSpec::kLeastFraction, .high = CodecSpec::kMostFraction}),
      integer("rank", &CodecSpec::rank, {CodecSpec::kLeastRank, CodecSpec::kMostRank}),
      word("values", &CodecSpec::values),
      integer("warmup", &CodecSpec::warmup, {0, CodecSpec::kMostWarmup}),
  };
  return keys;
}

/// A parameter that the codec has not got is a mistake even with its default.
Result<Unit> check_parameters(const YamlNode& node, CodecKind kind) {
  const std::pair<const char*, bool> parameters[] = {{"fraction", has_fraction(kind)},
                                                     {"rank", has_rank(kind)},
                                                     {"values", has_values(kind)},
                                                     {"warmup", has_warmup(kind)}};
  for (const auto& [name, is_used] : parameters)
    if (const YamlNode* value = node.find(name); value != nullptr && !is_used)
      return fail_at(*value,
                     "'" + std::string(name) + "' is of no use: " + spec_name(kind) + " has none");
  return Unit{};
}

}  // namespace

Result<CodecSpec> to_codec(const YamlNode& node) {
  CodecSpec codec;
  if (node.kind != YamlNode::Kind::kMapping) {
    std::vector<std::string_view> words;
    for (const Named<CodecKind>& named : kCodecKindNames) words.push_back(named.name);
    MOTLEY_TRY(const size_t i, to_word(node, words));
    codec.kind = kCodecKindNames[i].value;
    return codec;
  }
  MOTLEY_TRY_VOID(read_mapping(node, codec_keys(), codec));
  MOTLEY_TRY_VOID(check_parameters(node, codec.kind));
  if (const std::optional<CodecFault> fault = first_fault(codec)) {
    const YamlNode* value = node.find(fault->key);
    return fail_at(value != nullptr ? *value : node, fault->what);
  }
  return codec;
}

}  // namespace motley
