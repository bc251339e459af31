// grpc::AuthContext: what is known of the other end. The daemon has authenticated it, and policies there decide by it;
// the program is not told.
#ifndef TRUNKLINE_GRPCPP_SECURITY_AUTH_CONTEXT_H
#define TRUNKLINE_GRPCPP_SECURITY_AUTH_CONTEXT_H

#include <grpcpp/support/string_ref.h>

#include <string>
#include <vector>

namespace grpc {

class AuthContext {
  public:
    virtual ~AuthContext() = default;
    virtual bool IsPeerAuthenticated() const { return false; }
    virtual std::vector<grpc::string_ref> GetPeerIdentity() const { return {}; }
    virtual std::string GetPeerIdentityPropertyName() const { return ""; }
    virtual std::vector<grpc::string_ref> FindPropertyValues(const std::string &) const { return {}; }
};

} // namespace grpc

#endif
