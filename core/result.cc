#include "core/result.h"

namespace motley {

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kRunFailed:
    case ErrorCode::kDiverged:
    case ErrorCode::kDeviceLost:
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kPeerLost:
    case ErrorCode::kCorrupt:
    case ErrorCode::kIo:
      return 1;
    case ErrorCode::kUsage:
      return 2;
    case ErrorCode::kInvalidSpec:
    case ErrorCode::kNoPlan:
    case ErrorCode::kUnsupported:
      return 65;
    case ErrorCode::kNotFound:
      return 66;
    case ErrorCode::kNoDevice:
      return 69;
    case ErrorCode::kInternal:
      return 70;
    case ErrorCode::kStopped:
      return 75;
    case ErrorCode::kNotPermitted:
      return 77;
    case ErrorCode::kBrokenInstall:
      return 78;
  }
  return 70;
}

ErrorCode error_code_of_exit(int status) {
  switch (status) {
    case 2:
      return ErrorCode::kUsage;
    case 65:
      return ErrorCode::kInvalidSpec;
    case 66:
      return ErrorCode::kNotFound;
    case 69:
      return ErrorCode::kNoDevice;
    case 70:
      return ErrorCode::kInternal;
    case 75:
      return ErrorCode::kStopped;
    case 77:
      return ErrorCode::kNotPermitted;
    case 78:
      return ErrorCode::kBrokenInstall;
    default:
      return ErrorCode::kRunFailed;
  }
}

const char* name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kRunFailed:
      return "run_failed";
    case ErrorCode::kDiverged:
      return "diverged";
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kInvalidSpec:
      return "invalid_spec";
    case ErrorCode::kNoPlan:
      return "no_plan";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kNoDevice:
      return "no_device";
    case ErrorCode::kDeviceLost:
      return "device_lost";
    case ErrorCode::kOutOfMemory:
      return "out_of_memory";
    case ErrorCode::kPeerLost:
      return "peer_lost";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kInternal:
      return "internal";
    case ErrorCode::kStopped:
      return "stopped";
    case ErrorCode::kNotPermitted:
      return "not_permitted";
    case ErrorCode::kBrokenInstall:
      return "broken_install";
  }
  return "internal";
}

ErrorCode error_code_of_name(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::kBrokenInstall); ++i)
    if (name == name_of(static_cast<ErrorCode>(i))) return static_cast<ErrorCode>(i);
  return ErrorCode::kInternal;
}

std::string Error::to_string() const {
  if (place.file.empty()) return message;
  std::string text = place.file;
  if (place.line > 0) text += ":" + std::to_string(place.line) + ":" + std::to_string(place.column);
  return text + ": " + message;
}

}  // namespace motley
