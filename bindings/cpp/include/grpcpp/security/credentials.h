// Credentials of clients. TLS is the daemon's affair: the channel's credentials say nothing to it, and what would have
// to be ignored does not compile. Call credentials are metadata.
#ifndef TRUNKLINE_GRPCPP_SECURITY_CREDENTIALS_H
#define TRUNKLINE_GRPCPP_SECURITY_CREDENTIALS_H

#include <grpcpp/support/status.h>
#include <grpcpp/support/string_ref.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace grpc {

class ChannelCredentials {
  public:
    virtual ~ChannelCredentials() = default;
};

// Between a program and the daemon of its host there is nothing to encrypt; beyond the host the daemon's configuration
// says what is ([tls] and the target's scheme).
inline std::shared_ptr<ChannelCredentials> InsecureChannelCredentials() {
    return std::make_shared<ChannelCredentials>();
}

struct SslCredentialsOptions {
    std::string pem_root_certs, pem_private_key, pem_cert_chain;
};

namespace internal {
template <class> inline constexpr bool kNever = false;
}

template <class Options = SslCredentialsOptions>
std::shared_ptr<ChannelCredentials> SslCredentials(const Options &) {
    static_assert(internal::kNever<Options>, "not in Trunkline: keys and certificates are the daemon's ([tls] in its "
                                             "configuration; target tls://NAME@ADDRESS:PORT); use "
                                             "InsecureChannelCredentials");
    return nullptr;
}

template <class Unused = void> std::shared_ptr<ChannelCredentials> GoogleDefaultCredentials() {
    static_assert(internal::kNever<Unused>, "not in Trunkline: keys and certificates are the daemon's; use "
                                            "InsecureChannelCredentials, and AccessTokenCredentials for the call");
    return nullptr;
}

// Adds metadata to calls. gRPC asks for it on a thread of its own; here it is the thread that makes the call.
class MetadataCredentialsPlugin {
  public:
    virtual ~MetadataCredentialsPlugin() = default;
    virtual bool IsBlocking() const { return true; }
    virtual const char *GetType() const { return ""; }
    virtual Status GetMetadata(string_ref service_url, string_ref method_name, const class AuthContext &channel_auth,
                               std::multimap<std::string, std::string> *metadata) = 0;
    virtual std::string DebugString() { return "MetadataCredentialsPlugin"; }
};

class CallCredentials {
  public:
    virtual ~CallCredentials() = default;
    virtual std::string DebugString() { return "CallCredentials"; }
    // Beyond gRPC: adds what they say to the metadata of a call. `authority` is `HOST:PORT` of whom it is for.
    virtual Status trunkline_metadata(const std::string &authority, const char *method,
                                      std::multimap<std::string, std::string> *out) = 0;
};

namespace internal {

// `:authority` of calls to a target, as gRPC and the daemon have it; of a Unix socket and of no target `localhost`.
inline std::string AuthorityOf(const std::string &target) {
    std::string rest = target;
    for (const char *scheme : {"dns:", "ipv4:", "ipv6:", "tcp:", "tls:", "unix:", "unix-abstract:"}) {
        if (target.rfind(scheme, 0) != 0) continue;
        if (scheme[0] == 'u') return "localhost";
        rest = target.substr(std::char_traits<char>::length(scheme));
        if (rest.rfind("//", 0) != 0) break;
        rest.erase(0, 2);
        // Of `dns://SERVER/NAME` the name; of `tls://NAME@ADDRESS:PORT` too, with the port.
        size_t slash = rest.find('/'), at = rest.rfind('@');
        if (scheme[0] == 'd' && slash != std::string::npos) rest.erase(0, slash + 1);
        if (at != std::string::npos) {
            std::string name = rest.substr(0, at), port = rest.substr(rest.rfind(':') + 1);
            rest = name.find('/') == std::string::npos ? name + ":" + port : rest.substr(at + 1);
        }
        break;
    }
    rest.erase(std::min(rest.find(','), rest.size()));
    return rest.empty() ? "localhost" : rest;
}

class TokenCredentials final : public CallCredentials {
  public:
    explicit TokenCredentials(std::string value) : value_(std::move(value)) {}
    Status trunkline_metadata(const std::string &, const char *, std::multimap<std::string, std::string> *out) override {
        out->emplace("authorization", value_);
        return Status::OK;
    }

  private:
    std::string value_;
};

// Of a kind that is fetched or signed: calls with them fail, and say so.
class RefusedCredentials final : public CallCredentials {
  public:
    explicit RefusedCredentials(const char *kind) : kind_(kind) {}
    Status trunkline_metadata(const std::string &, const char *, std::multimap<std::string, std::string> *) override {
        return Status(StatusCode::UNAUTHENTICATED, std::string("not in Trunkline: ") + kind_ +
                                                       "; fetch a token, and use AccessTokenCredentials");
    }

  private:
    const char *kind_;
};

class PluginCredentials final : public CallCredentials {
  public:
    explicit PluginCredentials(std::unique_ptr<MetadataCredentialsPlugin> plugin) : plugin_(std::move(plugin)) {}
    Status trunkline_metadata(const std::string &authority, const char *method,
                              std::multimap<std::string, std::string> *out) override;

  private:
    std::unique_ptr<MetadataCredentialsPlugin> plugin_;
};

} // namespace internal

inline std::shared_ptr<CallCredentials> AccessTokenCredentials(const std::string &token) {
    return std::make_shared<internal::TokenCredentials>("Bearer " + token);
}

// These compile, since programs choose among credentials when they run; their calls end with UNAUTHENTICATED.
inline std::shared_ptr<CallCredentials> GoogleComputeEngineCredentials() {
    return std::make_shared<internal::RefusedCredentials>("GoogleComputeEngineCredentials");
}
inline std::shared_ptr<CallCredentials> ServiceAccountJWTAccessCredentials(const std::string &, long = 3600) {
    return std::make_shared<internal::RefusedCredentials>("ServiceAccountJWTAccessCredentials");
}

inline std::shared_ptr<CallCredentials>
MetadataCredentialsFromPlugin(std::unique_ptr<MetadataCredentialsPlugin> plugin) {
    return std::make_shared<internal::PluginCredentials>(std::move(plugin));
}

} // namespace grpc

#include <grpcpp/security/auth_context.h>

inline grpc::Status grpc::internal::PluginCredentials::trunkline_metadata(const std::string &authority,
                                                                        const char *method,
                                                                        std::multimap<std::string, std::string> *out) {
    std::string path(method), service = path.substr(0, path.rfind('/')), name = path.substr(path.rfind('/') + 1);
    // As gRPC has it: without the port that such a URL means anyway.
    std::string host = authority;
    if (size_t port = host.rfind(":443"); port != std::string::npos && port + 4 == host.size()) host.erase(port);
    std::string url = "https://" + host + service;
    return plugin_->GetMetadata(url, name, AuthContext(), out);
}

#endif
