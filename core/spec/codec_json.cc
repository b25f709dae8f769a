#include "core/spec/codec_json.h"

#include <nlohmann/json.hpp>

#include "core/spec/names.h"

namespace motley {

using nlohmann::json;

json to_json(const CodecSpec& codec) {
  if (!has_values(codec.kind) && !codec.warmup) return spec_name(codec.kind);
  json document = {{"type", spec_name(codec.kind)}};
  if (has_values(codec.kind)) document["values"] = spec_name(codec.values);
  if (has_fraction(codec.kind)) document["fraction"] = codec.fraction;
  if (has_rank(codec.kind)) document["rank"] = codec.rank;
  if (codec.warmup) document["warmup"] = *codec.warmup;
  return document;
}

void read_codec(JsonFields& fields, const char* key, CodecSpec& codec) {
  const json* written = fields.member(key);
  if (written == nullptr || !written->is_object() || written->empty())
    return void(fields.read_word(key, codec.kind, from_spec_name<CodecKind>));
  fields.object(key, [&](JsonFields& f) {
    f.read_word("type", codec.kind, from_spec_name<CodecKind>);
    if (has_values(codec.kind)) f.read_word("values", codec.values, from_spec_name<CodecValues>);
    if (has_fraction(codec.kind)) f.read("fraction", codec.fraction);
    if (has_rank(codec.kind)) f.read("rank", codec.rank);
    if (f.has("warmup")) f.read("warmup", codec.warmup);
  });
}

}  // namespace motley
