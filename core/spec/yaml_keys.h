#pragma once
// A mapping of a spec described as a table: its keys, what each expects, where the value goes. The
// table reads, refuses unknown keys with the nearest known one, and says what is missing; whatever
// else wants to know the keys (completion, a JSON Schema) walks it too.
//
//   const YamlKeys<EvalSpec>& eval_keys() {
//     static const YamlKeys<EvalSpec> keys = {
//         integer("every", &EvalSpec::every, {0, kManySteps}),
//         integer("samples", &EvalSpec::samples, {1, 1 << 20}),
//     };
//     return keys;
//   }

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/log.h"
#include "core/spec/names.h"
#include "core/spec/yaml_values.h"
#include "core/units.h"

namespace motley {

template <class Spec>
struct YamlKey {
  using Read = std::function<Result<Unit>(const YamlNode& value, Spec& spec)>;

  YamlKey(std::string_view key, std::string expected, Read reader)
      : name(key), expects(std::move(expected)), read(std::move(reader)) {}
  /// A key of a base class serves its derived ones.
  template <class Base>
  requires std::is_base_of_v<Base, Spec> YamlKey(YamlKey<Base> key)
      : name(key.name),
        expects(std::move(key.expects)),
        read(std::move(key.read)),
        is_required(key.is_required),
        is_nullable(key.is_nullable) {}

  std::string_view name;
  std::string expects;  ///< "an integer from 1 to 8"; empty: a key of a later version
  Read read;
  bool is_required = false;
  bool is_nullable = false;  ///< `key: ~` is as good as no key

  YamlKey required() && {
    is_required = true;
    return std::move(*this);
  }
  YamlKey nullable() && {
    is_nullable = true;
    return std::move(*this);
  }
};

template <class Spec>
using YamlKeys = std::vector<YamlKey<Spec>>;

/// "unknown key 'stepz' (did you mean 'steps'?)", at the key.
tl::unexpected<Error> fail_unknown_key(const YamlNode& key,
                                       const std::vector<std::string_view>& known);

template <class Spec>
Result<Unit> read_mapping(const YamlNode& node, const YamlKeys<Spec>& keys, Spec& spec) {
  if (node.kind != YamlNode::Kind::kMapping) return fail_expected(node, "a mapping of keys");
  for (size_t i = 0; i < node.member_count(); ++i) {
    const YamlKey<Spec>* known = nullptr;
    for (const YamlKey<Spec>& key : keys)
      if (key.name == node.key(i).text) known = &key;
    if (!known) {
      std::vector<std::string_view> names;
      for (const YamlKey<Spec>& key : keys)
        if (!key.expects.empty()) names.push_back(key.name);
      return fail_unknown_key(node.key(i), names);
    }
    const YamlNode& place = known->expects.empty() ? node.key(i) : node.value(i);
    if (known->is_nullable && node.value(i).kind == YamlNode::Kind::kNull) continue;
    MOTLEY_TRY_VOID(known->read(place, spec));
  }
  for (const YamlKey<Spec>& key : keys)
    if (key.is_required && !node.find(key.name))
      return fail_at(node, "'" + std::string(key.name) + "' is missing (" + key.expects + ")");
  return Unit{};
}

/// Any value through `convert(const YamlNode&) -> Result<T>` to `spec.*member`. Its errors name the
/// key.
template <class Spec, class Member, class Convert>
YamlKey<Spec> converted(std::string_view name, std::string expects, Member Spec::*member,
                        Convert convert) {
  return {name, std::move(expects),
          [name, member, convert](const YamlNode& node, Spec& spec) -> Result<Unit> {
            auto value = convert(node);
            if (!value) {
              Error error = std::move(value).error();
              error.message = "'" + std::string(name) + "': " + error.message;
              return fail(std::move(error));
            }
            if constexpr (std::is_arithmetic_v<Member>)
              spec.*member = static_cast<Member>(*value);
            else
              spec.*member = *std::move(value);
            return Unit{};
          }};
}

/// `range` must fit the member's type.
template <class Spec, class Integer>
YamlKey<Spec> integer(std::string_view name, Integer Spec::*member, IntegerRange range) {
  return converted(name, range.expects(), member,
                   [range](const YamlNode& node) { return to_integer(node, range); });
}
template <class Spec>
YamlKey<Spec> integer(std::string_view name, std::optional<int> Spec::*member, IntegerRange range) {
  return converted(name, range.expects(), member, [range](const YamlNode& node) {
    return to_integer(node, range).map([](int64_t value) { return static_cast<int>(value); });
  });
}

template <class Spec, class Integer>
YamlKey<Spec> count(std::string_view name, Integer Spec::*member, IntegerRange range) {
  return converted(name, range.expects(), member,
                   [range](const YamlNode& node) { return to_count(node, range); });
}

template <class Spec>
YamlKey<Spec> number(std::string_view name, double Spec::*member, NumberRange range) {
  return converted(name, range.expects(), member,
                   [range](const YamlNode& node) { return to_number(node, range); });
}

template <class Spec>
YamlKey<Spec> flag(std::string_view name, bool Spec::*member, std::string_view yes = "true",
                   std::string_view no = "false") {
  return converted(name, listed({yes, no}), member,
                   [yes, no](const YamlNode& node) { return to_flag(node, yes, no); });
}

/// A text that passes `accepts`.
template <class Spec>
YamlKey<Spec> text(std::string_view name, std::string Spec::*member, std::string expects,
                   bool (*accepts)(std::string_view)) {
  return converted(name, expects, member,
                   [expects, accepts](const YamlNode& node) -> Result<std::string> {
                     MOTLEY_TRY(std::string value, to_text(node, expects));
                     if (!accepts(value)) return fail_expected(node, expects);
                     return value;
                   });
}

/// One of `words`, kept as it is.
template <class Spec>
YamlKey<Spec> word(std::string_view name, std::string Spec::*member,
                   std::vector<std::string_view> words) {
  return converted(name, listed(words), member, [words](const YamlNode& node) {
    return to_word(node, words).map([&](size_t i) { return std::string(words[i]); });
  });
}

/// One of the words of an enumeration (core/spec/names.h).
template <class Spec, class Enum>
YamlKey<Spec> word(std::string_view name, Enum Spec::*member) {
  std::vector<std::string_view> words;
  for (const Named<Enum>& named : names_of(Enum{})) words.push_back(named.name);
  return converted(name, listed(words), member, [words](const YamlNode& node) {
    return to_word(node, words).map([](size_t i) { return names_of(Enum{})[i].value; });
  });
}

/// A text through a parser of core/units.h.
template <class Spec, class Member, class T>
YamlKey<Spec> measure(std::string_view name, Member Spec::*member, std::string expects,
                      Result<T> (*parse)(std::string_view)) {
  return converted(name, expects, member, [expects, parse](const YamlNode& node) {
    return to_measure<T>(node, expects, parse);
  });
}

/// A mapping within.
template <class Spec, class Inner>
YamlKey<Spec> section(std::string_view name, Inner Spec::*member,
                      const YamlKeys<Inner>& (*keys)()) {
  return {name, "a mapping of keys", [member, keys](const YamlNode& node, Spec& spec) {
            return read_mapping(node, keys(), spec.*member);
          }};
}

/// A mapping that may be missing.
template <class Spec, class Inner>
YamlKey<Spec> section(std::string_view name, std::optional<Inner> Spec::*member,
                      const YamlKeys<Inner>& (*keys)()) {
  return {name, "a mapping of keys", [member, keys](const YamlNode& node, Spec& spec) {
            return read_mapping(node, keys(), (spec.*member).emplace());
          }};
}

/// One or more mappings.
template <class Spec, class Inner>
YamlKey<Spec> sections(std::string_view name, std::vector<Inner> Spec::*member,
                       const YamlKeys<Inner>& (*keys)()) {
  return {name, "a list", [name, member, keys](const YamlNode& node, Spec& spec) -> Result<Unit> {
            if (node.kind != YamlNode::Kind::kList || node.items.empty())
              return fail_expected(node, "a list of " + std::string(name));
            (spec.*member).reserve(node.items.size());
            for (const YamlNode& item : node.items)
              MOTLEY_TRY_VOID(read_mapping(item, keys(), (spec.*member).emplace_back()));
            return Unit{};
          }};
}

/// Only `words` are possible yet, and they change nothing.
template <class Spec>
YamlKey<Spec> fixed(std::string_view name, std::vector<std::string_view> words) {
  return {name, listed(words), [name, words](const YamlNode& node, Spec&) -> Result<Unit> {
            if (node.kind == YamlNode::Kind::kScalar)
              for (const std::string_view allowed : words)
                if (node.text == allowed) return Unit{};
            return fail_at(node, "'" + std::string(name) + "': " + found_text(node) +
                                     " is not supported yet (only " + listed(words) + ")");
          }};
}

/// Designed, not built: refused by name instead of as unknown.
template <class Spec>
YamlKey<Spec> later(std::string_view name, std::string remedy = {}) {
  return {name, {}, [name, remedy](const YamlNode& key, Spec&) -> Result<Unit> {
            return fail_at(key, "'" + std::string(name) + "' is not supported yet" +
                                    (remedy.empty() ? "" : " (" + remedy + ")"));
          }};
}

}  // namespace motley
