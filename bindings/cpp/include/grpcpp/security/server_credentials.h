// Credentials of servers: see security/credentials.h.
#ifndef TRUNKLINE_GRPCPP_SECURITY_SERVER_CREDENTIALS_H
#define TRUNKLINE_GRPCPP_SECURITY_SERVER_CREDENTIALS_H

#include <grpcpp/security/credentials.h>

#include <vector>

namespace grpc {

class ServerCredentials {
  public:
    virtual ~ServerCredentials() = default;
};

inline std::shared_ptr<ServerCredentials> InsecureServerCredentials() { return std::make_shared<ServerCredentials>(); }

struct SslServerCredentialsOptions {
    struct PemKeyCertPair {
        std::string private_key, cert_chain;
    };
    std::string pem_root_certs;
    std::vector<PemKeyCertPair> pem_key_cert_pairs;
};

template <class Options = SslServerCredentialsOptions>
std::shared_ptr<ServerCredentials> SslServerCredentials(const Options &) {
    static_assert(internal::kNever<Options>, "not in Trunkline: keys and certificates are the daemon's ([tls] in its "
                                             "configuration); use InsecureServerCredentials");
    return nullptr;
}

} // namespace grpc

#endif
