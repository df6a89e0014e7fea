#include "epipe/transport/grpc/certificate.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <array>
#include <ctime>
#include <stdexcept>

namespace epipe::transport {
namespace {

constexpr long kDay = 24L * 60 * 60;

void require_openssl(bool good, const char* what) {
  if (good) return;
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  throw std::runtime_error(fmt::format("cannot {}: {}", what, text.data()));
}

// "IP:127.0.0.1" or "DNS:localhost"
std::string alternative(const std::string& name) {
  std::array<unsigned char, sizeof(in6_addr)> address;
  const bool is_address =
      ::inet_pton(AF_INET, name.c_str(), address.data()) == 1 || ::inet_pton(AF_INET6, name.c_str(), address.data()) == 1;
  const bool fits =
      !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._*:") == std::string::npos;
  if (!is_address && (!fits || name.find(':') != std::string::npos)) {
    throw std::invalid_argument(fmt::format("expected a host name or an address, got '{}'", name));
  }
  return (is_address ? "IP:" : "DNS:") + name;
}

void add_extension(X509* certificate, X509V3_CTX& context, int kind, const std::string& value) {
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  require_openssl(extension != nullptr, "make a certificate extension");
  const int added = X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
  require_openssl(added == 1, "add a certificate extension");
}

void add_extensions(X509* certificate, X509* issuer, const CertificateRequest& request) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const bool signs = request.usage.empty();
  add_extension(certificate, context, NID_basic_constraints, signs ? "critical,CA:TRUE,pathlen:0" : "critical,CA:FALSE");
  add_extension(certificate, context, NID_key_usage, signs ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature");
  add_extension(certificate, context, NID_subject_key_identifier, "hash");
  if (!signs) add_extension(certificate, context, NID_ext_key_usage, request.usage);
  std::vector<std::string> names;
  for (const auto& name : request.names) names.push_back(alternative(name));
  if (!names.empty()) add_extension(certificate, context, NID_subject_alt_name, fmt::format("{}", fmt::join(names, ",")));
}

void set_serial(X509* certificate) {
  std::array<unsigned char, 16> bytes;
  require_openssl(RAND_bytes(bytes.data(), bytes.size()) == 1, "draw random bytes");
  bytes[0] &= 0x7f;
  BIGNUM* const number = BN_bin2bn(bytes.data(), bytes.size(), nullptr);
  const bool set = number != nullptr && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr;
  BN_free(number);
  require_openssl(set, "set a serial number");
}

template <typename Write>
std::string pem(const Write& write) {
  const std::unique_ptr<BIO, void (*)(BIO*)> out(BIO_new(BIO_s_mem()), [](BIO* bio) { BIO_free(bio); });
  require_openssl(out && write(out.get()) == 1, "write PEM");
  char* text = nullptr;
  const long size = BIO_get_mem_data(out.get(), &text);
  return {text, static_cast<std::size_t>(size)};
}

}  // namespace

Key make_key() {
  Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  require_openssl(key != nullptr, "make a key");
  return key;
}

Certificate make_certificate(const CertificateRequest& request, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key) {
  Certificate made(X509_new(), X509_free);
  require_openssl(made != nullptr, "make a certificate");
  X509* const certificate = made.get();
  X509_set_version(certificate, X509_VERSION_3);
  set_serial(certificate);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -kDay);  // clocks differ
  X509_gmtime_adj(X509_getm_notAfter(certificate), request.days * kDay);
  X509_NAME* const subject = X509_get_subject_name(certificate);
  const auto* const name = reinterpret_cast<const unsigned char*>(request.common_name.c_str());
  require_openssl(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, name, -1, -1, 0) == 1, "name a certificate");
  require_openssl(X509_set_issuer_name(certificate, issuer != nullptr ? X509_get_subject_name(issuer) : subject) == 1, "name an issuer");
  require_openssl(X509_set_pubkey(certificate, key) == 1, "put the key into a certificate");
  add_extensions(certificate, issuer != nullptr ? issuer : certificate, request);
  require_openssl(X509_sign(certificate, issuer_key != nullptr ? issuer_key : key, EVP_sha256()) > 0, "sign a certificate");
  return made;
}

std::string pem_of(X509* certificate) {
  return pem([certificate](BIO* out) { return PEM_write_bio_X509(out, certificate); });
}

std::string pem_of(EVP_PKEY* key) {
  return pem([key](BIO* out) { return PEM_write_bio_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr); });
}

std::string random_token() {
  std::array<unsigned char, 32> bytes;
  require_openssl(RAND_bytes(bytes.data(), bytes.size()) == 1, "draw random bytes");
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

}  // namespace epipe::transport
