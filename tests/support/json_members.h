#pragma once
// What holds of every document that is read strictly: each member is needed, and of one type.

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

namespace motley::testing {

/// The error that reading a document gives; "" for none.
using TryToRead = std::function<std::string(const nlohmann::json&)>;

/// `document` can be read; without any one of its members it cannot, and the error names the
/// member. Members with a name in `optional` may be missing.
void expect_members_are_needed(const nlohmann::json& document, const TryToRead& read,
                               const std::set<std::string>& optional = {});

/// An object in the place of any value, elements of lists included, is refused at its pointer.
void expect_members_are_typed(const nlohmann::json& document, const TryToRead& read);

}  // namespace motley::testing
