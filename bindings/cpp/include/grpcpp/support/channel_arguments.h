// grpc::ChannelArguments. What the daemon decides is said to be so, once, when a channel is made with it.
#ifndef TRUNKLINE_GRPCPP_SUPPORT_CHANNEL_ARGUMENTS_H
#define TRUNKLINE_GRPCPP_SUPPORT_CHANNEL_ARGUMENTS_H

#include <grpc/grpc.h>
#include <grpcpp/impl/library.h>

#include <string>

namespace grpc {

class ChannelArguments {
  public:
    // `user-agent` of the calls begins with it.
    void SetUserAgentPrefix(const std::string &prefix) { user_agent_ = prefix; }
    // Responses that are longer end their call with RESOURCE_EXHAUSTED; -1 is no limit, as without this.
    void SetMaxReceiveMessageSize(int bytes) { receive_bytes_max_ = bytes; }
    void SetMaxSendMessageSize(int bytes) { send_bytes_max_ = bytes; }
    void SetCompressionAlgorithm(grpc_compression_algorithm algorithm) { compression_ = algorithm; }

    void SetInt(const std::string &key, int value) {
        if (key == GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH) return SetMaxReceiveMessageSize(value);
        if (key == GRPC_ARG_MAX_SEND_MESSAGE_LENGTH) return SetMaxSendMessageSize(value);
        Ignore(key);
    }
    void SetString(const std::string &key, const std::string &value) {
        if (key == GRPC_ARG_PRIMARY_USER_AGENT_STRING) return SetUserAgentPrefix(value);
        Ignore(key);
    }
    void SetPointer(const std::string &key, void *) { Ignore(key); }
    void SetLoadBalancingPolicyName(const std::string &) { Ignore(GRPC_ARG_LB_POLICY_NAME); }
    void SetServiceConfigJSON(const std::string &) { Ignore(GRPC_ARG_SERVICE_CONFIG); }
    void SetGrpclbFallbackTimeout(int) { Ignore("grpc.grpclb_fallback_timeout_ms"); }

    const std::string &user_agent() const { return user_agent_; }
    int receive_bytes_max() const { return receive_bytes_max_; }
    int send_bytes_max() const { return send_bytes_max_; }
    grpc_compression_algorithm compression() const { return compression_; }

  private:
    static void Ignore(const std::string &key) {
        internal::SayIgnored("channel argument " + key, "the daemon connects (services.NAME in its configuration)");
    }

    std::string user_agent_;
    int receive_bytes_max_ = -1, send_bytes_max_ = -1;
    grpc_compression_algorithm compression_ = GRPC_COMPRESS_NONE;
};

} // namespace grpc

#endif
