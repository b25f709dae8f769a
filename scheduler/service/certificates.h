#pragma once
// The service's own certificate authority, and the certificate that it gives the service: whoever
// has the authority's fingerprint knows whom he speaks with. OpenSSL inside.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace motley {

/// What a server shows, and by which it proves that this is it.
struct Certificate {
  std::string chain;               ///< PEM: the server's certificate, then the authority's
  std::string key;                 ///< PEM: the server's
  std::string fingerprint;         ///< "sha256:" and 64 digits, of the authority's certificate
  std::vector<std::string> names;  ///< whom it is for: host names (small letters) and addresses
  int64_t renew_at = 0;            ///< seconds since 1970
};

/// What a server shows now; asked again once its time to be renewed has come.
using CertificateSource = std::function<Result<Certificate>()>;

/// From `directory` (made, 0700), with keys in files of mode 0600: what is missing is made, a
/// certificate that nears its end or is for other names is replaced; the authority stays. `now` is
/// in seconds since 1970. kIo, kCorrupt naming the file.
Result<Certificate> certificate_in(const std::string& directory,
                                   const std::vector<std::string>& names, int64_t now);

/// "localhost", the loopback addresses, this machine's name, `host` and, where that is any
/// address, those of all interfaces; then `more`. Each once.
std::vector<std::string> names_of_server(const std::string& host,
                                         const std::vector<std::string>& more);

/// "sha256:" and 64 digits of a certificate in PEM; kCorrupt where it is none.
Result<std::string> fingerprint_of(std::string_view certificate);
/// As people type it: with or without "sha256:", colons, capitals. kUsage for anything else.
Result<std::string> parse_fingerprint(std::string_view text);

}  // namespace motley
