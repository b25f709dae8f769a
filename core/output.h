#pragma once
// How a program ends: what it printed has arrived, or it has failed.

#include <exception>

#include "core/result.h"

namespace motley {

/// kIo with the system's reason when something printed on stdout, by stdio or by a stream, was not
/// taken; to be asked once, last.
Result<Unit> flush_output();

/// kInternal with the words of an exception nobody expected.
Error own_fault(const std::exception& exception);

/// What `work` returns, a Result; own_fault() when it lets out an exception: a bug of ours, which
/// shall end the program as an error does.
template <class Work>
auto without_exceptions(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception& exception) {
    return fail(own_fault(exception));
  }
}

}  // namespace motley
