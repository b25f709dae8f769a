#include "scheduler/service/certificates.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <memory>
#include <optional>

#include "core/file_system.h"
#include "scheduler/launch/this_host.h"
#include "scheduler/service/private_file.h"
#include "scheduler/service/secret.h"

namespace motley {
namespace {

constexpr int64_t kDay = 86'400;
constexpr int64_t kAuthorityLasts = 30 * 365 * kDay;
constexpr int64_t kServerLasts = 365 * kDay;
constexpr int64_t kRenewedBefore = 60 * kDay;
constexpr int64_t kClocksDiffer = kDay;
constexpr Bytes kLargestFile{64 << 10};
constexpr int kSerialBits = 126;
constexpr size_t kDigits = 64;

template <auto kFree>
struct FreeBy {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, FreeBy<EVP_PKEY_free>>;
using X509Ptr = std::unique_ptr<X509, FreeBy<X509_free>>;
using Bio = std::unique_ptr<BIO, FreeBy<BIO_free_all>>;
using Extension = std::unique_ptr<X509_EXTENSION, FreeBy<X509_EXTENSION_free>>;
using BigNumber = std::unique_ptr<BIGNUM, FreeBy<BN_free>>;

/// A certificate and the key that belongs to it.
struct Identity {
  X509Ptr certificate;
  Key key;
};

Error openssl_error(const std::string& what) {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  ERR_clear_error();
  return {ErrorCode::kInternal, what + ": " + text.data(), {}};
}

Bio reader_of(std::string_view text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string text_of(BIO* bio) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio, &bytes);
  return {bytes, static_cast<size_t>(size)};
}

Result<std::string> pem_of(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(bio.get(), certificate) != 1)
    return fail(openssl_error("cannot write a certificate"));
  return text_of(bio.get());
}

Result<std::string> pem_of(EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return fail(openssl_error("cannot write a key"));
  return text_of(bio.get());
}

X509Ptr certificate_of(std::string_view pem) {
  const Bio bio = reader_of(pem);
  X509Ptr certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate;
}

// --- making them ---

bool add_extension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

/// Of 126 random bits: no two certificates of an authority have the same.
bool set_serial(X509* certificate) {
  const BigNumber number(BN_new());
  return number && BN_rand(number.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool set_subject(X509* certificate, const std::string& name) {
  return X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1,
                                    0) == 1;
}

bool set_times(X509* certificate, int64_t now, int64_t lasts) {
  return ASN1_TIME_set(X509_getm_notBefore(certificate), now - kClocksDiffer) != nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(certificate), now + lasts) != nullptr;
}

struct Wanted {
  std::string subject;
  int64_t now = 0;
  int64_t lasts = 0;
  std::vector<std::pair<int, std::string>> extensions;
};

/// Signed by `issuer`, or, without one, by itself.
Result<Identity> make_identity(const Wanted& wanted, const Identity* issuer) {
  Identity made{X509Ptr(X509_new()), Key(EVP_EC_gen("P-256"))};
  if (!made.certificate || !made.key) return fail(openssl_error("cannot make a key"));
  X509* certificate = made.certificate.get();
  X509* by = issuer != nullptr ? issuer->certificate.get() : certificate;
  EVP_PKEY* signing = issuer != nullptr ? issuer->key.get() : made.key.get();
  bool done = X509_set_version(certificate, X509_VERSION_3) == 1 && set_serial(certificate) &&
              set_subject(certificate, wanted.subject) &&
              set_times(certificate, wanted.now, wanted.lasts) &&
              X509_set_issuer_name(certificate, X509_get_subject_name(by)) == 1 &&
              X509_set_pubkey(certificate, made.key.get()) == 1;
  for (const auto& [kind, value] : wanted.extensions)
    done = done && add_extension(certificate, by, kind, value);
  if (!done || X509_sign(certificate, signing, EVP_sha256()) == 0)
    return fail(openssl_error("cannot make a certificate"));
  return made;
}

Result<Identity> make_authority(int64_t now) {
  return make_identity({"Motley service authority",
                        now,
                        kAuthorityLasts,
                        {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                         {NID_key_usage, "critical,keyCertSign,cRLSign"},
                         {NID_subject_key_identifier, "hash"}}},
                       nullptr);
}

bool is_address(const std::string& name) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return ::inet_pton(AF_INET, name.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), bytes.data()) == 1;
}

Result<Identity> make_server(const Identity& authority, const std::vector<std::string>& names,
                             int64_t now) {
  std::string alternatives;
  for (const std::string& name : names)
    alternatives +=
        (alternatives.empty() ? "" : ",") + std::string(is_address(name) ? "IP:" : "DNS:") + name;
  return make_identity({"Motley service",
                        now,
                        kServerLasts,
                        {{NID_basic_constraints, "critical,CA:FALSE"},
                         {NID_key_usage, "critical,digitalSignature"},
                         {NID_ext_key_usage, "serverAuth"},
                         {NID_subject_key_identifier, "hash"},
                         {NID_authority_key_identifier, "keyid"},
                         {NID_subject_alt_name, alternatives}}},
                       &authority);
}

// --- keeping them ---

/// A file that holds a certificate and its key; nothing where there is none.
Result<std::optional<Identity>> read_identity(const std::string& path) {
  if (!real_file_system().exists(path)) return std::optional<Identity>();
  MOTLEY_TRY(const std::string text, read_text(real_file_system(), path, kLargestFile));
  const Bio bio = reader_of(text);
  Identity read{certificate_of(text),
                Key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr))};
  const bool whole = read.certificate && read.key &&
                     X509_check_private_key(read.certificate.get(), read.key.get()) == 1;
  ERR_clear_error();
  if (!whole) return fail(ErrorCode::kCorrupt, path + " does not hold a certificate and its key");
  return std::optional(std::move(read));
}

/// Both in one file: there is never one without the other.
Result<Unit> write_identity(const std::string& path, const Identity& identity) {
  MOTLEY_TRY(const std::string certificate, pem_of(identity.certificate.get()));
  MOTLEY_TRY(const std::string key, pem_of(identity.key.get()));
  return write_private_file(path, certificate + key);
}

Result<Identity> authority_in(const std::string& directory, int64_t now) {
  const std::string path = directory + "/authority.pem";
  MOTLEY_TRY(std::optional<Identity> kept, read_identity(path));
  if (kept) return std::move(*kept);
  MOTLEY_TRY(Identity made, make_authority(now));
  MOTLEY_TRY_VOID(write_identity(path, made));
  return made;
}

bool is_for(X509* certificate, const std::string& name) {
  return is_address(name)
             ? X509_check_ip_asc(certificate, name.c_str(), 0) == 1
             : X509_check_host(certificate, name.c_str(), name.size(), 0, nullptr) == 1;
}

int count_names(X509* certificate) {
  auto* names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  const int count = sk_GENERAL_NAME_num(names);
  GENERAL_NAMES_free(names);
  return count;
}

/// Seconds since 1970; 0 where it cannot be told.
int64_t end_of(X509* certificate) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &parts) != 1) return 0;
  return ::timegm(&parts);
}

bool still_good(const Identity& server, const Identity& authority,
                const std::vector<std::string>& names, int64_t now) {
  X509* certificate = server.certificate.get();
  return end_of(certificate) - kRenewedBefore > now &&
         X509_verify(certificate, authority.key.get()) == 1 &&
         count_names(certificate) == static_cast<int>(names.size()) &&
         std::all_of(names.begin(), names.end(),
                     [&](const std::string& name) { return is_for(certificate, name); });
}

Result<Identity> server_in(const std::string& directory, const Identity& authority,
                           const std::vector<std::string>& names, int64_t now) {
  const std::string path = directory + "/server.pem";
  // One that is damaged is replaced: nobody but the service relies on it.
  auto kept = read_identity(path);
  if (kept && *kept && still_good(**kept, authority, names, now)) return std::move(**kept);
  ERR_clear_error();
  MOTLEY_TRY(Identity made, make_server(authority, names, now));
  MOTLEY_TRY_VOID(write_identity(path, made));
  return made;
}

/// Of all interfaces that are up; link-local ones mean nothing without the interface's name.
std::vector<std::string> interface_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return addresses;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* bytes = nullptr;
    if (each->ifa_addr->sa_family == AF_INET)
      bytes = &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr;
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr);
    if (each->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
      bytes = &v6->sin6_addr;
    if (bytes != nullptr &&
        ::inet_ntop(each->ifa_addr->sa_family, bytes, text.data(), text.size()) != nullptr)
      addresses.emplace_back(text.data());
  }
  ::freeifaddrs(all);
  return addresses;
}

std::string in_small_letters(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

Result<Certificate> certificate_in(const std::string& directory,
                                   const std::vector<std::string>& names, int64_t now) {
  MOTLEY_TRY_VOID(real_file_system().make_directories(directory));
  MOTLEY_TRY(const Identity authority, authority_in(directory, now));
  MOTLEY_TRY(const Identity server, server_in(directory, authority, names, now));
  Certificate shown;
  MOTLEY_TRY(shown.chain, pem_of(server.certificate.get()));
  MOTLEY_TRY(const std::string authority_text, pem_of(authority.certificate.get()));
  // For clients of others, which are given a file.
  MOTLEY_TRY_VOID(write_private_file(directory + "/ca.pem", authority_text));
  shown.chain += authority_text;
  MOTLEY_TRY(shown.key, pem_of(server.key.get()));
  MOTLEY_TRY(shown.fingerprint, fingerprint_of(authority_text));
  shown.names = names;
  shown.renew_at = end_of(server.certificate.get()) - kRenewedBefore;
  return shown;
}

std::vector<std::string> names_of_server(const std::string& host,
                                         const std::vector<std::string>& more) {
  std::vector<std::string> all = {"localhost", "127.0.0.1", "::1", own_host_name()};
  if (host == "0.0.0.0" || host == "::")
    for (const std::string& address : interface_addresses()) all.push_back(address);
  else
    all.push_back(host);
  all.insert(all.end(), more.begin(), more.end());
  std::vector<std::string> names;
  for (const std::string& name : all) {
    const std::string small = in_small_letters(name);
    if (!small.empty() && std::find(names.begin(), names.end(), small) == names.end())
      names.push_back(small);
  }
  return names;
}

Result<std::string> fingerprint_of(std::string_view certificate) {
  const X509Ptr read = certificate_of(certificate);
  unsigned char* bytes = nullptr;
  const int size = read ? i2d_X509(read.get(), &bytes) : -1;
  if (size < 0) return fail(ErrorCode::kCorrupt, "not a certificate");
  const std::string digest =
      sha256_of({reinterpret_cast<const char*>(bytes), static_cast<size_t>(size)});
  OPENSSL_free(bytes);
  return "sha256:" + digest;
}

Result<std::string> parse_fingerprint(std::string_view text) {
  constexpr std::string_view kKind = "sha256:";
  std::string digits = in_small_letters(std::string(text));
  if (digits.starts_with(kKind)) digits.erase(0, kKind.size());
  std::erase(digits, ':');
  const bool fits =
      digits.size() == kDigits && digits.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!fits)
    return fail(ErrorCode::kUsage, "a fingerprint is sha256: and 64 hexadecimal digits, not '" +
                                       std::string(text) + "'");
  return std::string(kKind) + digits;
}

}  // namespace motley
