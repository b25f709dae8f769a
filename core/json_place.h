#pragma once
// Where in a text something of a JSON document stands: a document that has been parsed knows only
// its pointers, a person looks for a line.

#include <string>
#include <string_view>

#include "core/result.h"

namespace motley {

/// Line and column where the value at a JSON pointer ("/replicas/0/stages") begins in `text`, which
/// must be valid JSON; of the innermost value there is on the way to it where it is missing. Names
/// no file.
SourcePlace place_in_json(std::string_view text, std::string_view pointer);

/// Of the byte at `offset`, or of the text's end where it is shorter. Names no file.
SourcePlace place_at(std::string_view text, size_t offset);

/// kInvalidSpec: `what` is wrong at a JSON pointer; placed_in() finds its line.
tl::unexpected<Error> invalid_at(const std::string& pointer, const std::string& what);

/// An error whose message begins with a JSON pointer and a colon, as JsonFields and validate() give
/// them, with its place in `text`, which is what `path` holds. Any other gets the file alone.
Error placed_in(Error error, std::string_view text, const std::string& path);

}  // namespace motley
