#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <vector>

// Makes certificates with OpenSSL. These functions throw std::runtime_error with OpenSSL's reason.
namespace epipe::transport {

using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
using Certificate = std::unique_ptr<X509, void (*)(X509*)>;

struct CertificateRequest {
  std::string common_name;
  std::vector<std::string> names;  // host names and addresses it is valid for
  std::string usage;               // "serverAuth", "clientAuth"; empty: it signs others
  int days = 825;
};

Key make_key();  // elliptic curve P-256
// Signed by `issuer` with its key; self-signed if there is no issuer.
Certificate make_certificate(const CertificateRequest& request, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key);

std::string pem_of(X509* certificate);
std::string pem_of(EVP_PKEY* key);
std::string random_token();  // 256 random bits as hexadecimal digits

}  // namespace epipe::transport
