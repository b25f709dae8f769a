#pragma once
// What each fuzzer says of itself; the rest is fuzz_main.cc's and libFuzzer's, or the mutator's
// (mutator_main.cc) where there is none.

#include <string>
#include <string_view>
#include <vector>

namespace motley::testing {

/// Takes any bytes, and keeps nothing of them. What must never be is a MOTLEY_CHECK; the sanitizers
/// see the rest.
void fuzz_one(std::string_view input);

/// Inputs that are fine, made of what the repository has: others are mutations of them.
std::vector<std::string> fuzz_seeds();

/// Of a file of the repository.
std::string repository_text(const std::string& path);
/// Of all files in a folder of it that end so, by name.
std::vector<std::string> repository_texts(const std::string& folder, const std::string& ending);

/// Cuts the first byte off, by which a fuzzer of several things chooses one; 0 where there is none.
char take_choice(std::string_view* input);

}  // namespace motley::testing
