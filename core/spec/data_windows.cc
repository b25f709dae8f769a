#include "core/spec/data_windows.h"

#include <algorithm>

#include "core/units.h"

namespace motley {

Result<DataWindows> cut_windows(const DataSpec& data, Bytes bytes, int context) {
  const int64_t windows = bytes > Bytes(0) ? (bytes.value() - 1) / context : 0;
  if (windows < 2)
    return fail(ErrorCode::kInvalidSpec, "data.text holds " + format_bytes(bytes) +
                                             ", fewer than the two windows of " +
                                             std::to_string(context) +
                                             " tokens that training and evaluation need: name "
                                             "more text or lower model.context");
  const auto share = static_cast<int64_t>(static_cast<double>(windows) * data.held_out);
  const int64_t eval = std::clamp<int64_t>(share, 1, windows - 1);
  return DataWindows{.train = windows - eval, .eval = eval};
}

}  // namespace motley
