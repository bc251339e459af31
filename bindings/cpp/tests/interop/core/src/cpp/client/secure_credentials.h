// Of gRPC C++'s inside: credentials that the core has. There are none.
#pragma once

#include <absl/strings/str_cat.h> // which the programs have from here
#include <grpcpp/security/credentials.h>

struct grpc_call_credentials;

namespace grpc {

class SecureCallCredentials : public CallCredentials {
  public:
    virtual grpc_call_credentials *GetRawCreds() = 0;
};

} // namespace grpc
