// grpc::experimental::Interceptor: what a program does between its calls and the library. See impl/interception.h for
// when each is called. Policies of the daemon (docs/policy.md) see the calls of all programs.
#ifndef TRUNKLINE_GRPCPP_SUPPORT_INTERCEPTOR_H
#define TRUNKLINE_GRPCPP_SUPPORT_INTERCEPTOR_H

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>
#include <grpcpp/support/string_ref.h>

#include <map>
#include <memory>
#include <string>

namespace grpc {

class ChannelInterface;

namespace experimental {

enum class InterceptionHookPoints {
    PRE_SEND_INITIAL_METADATA,
    PRE_SEND_MESSAGE,
    POST_SEND_MESSAGE,
    PRE_SEND_STATUS, // servers
    PRE_SEND_CLOSE,  // clients: no requests follow
    // Of a hijacked call, to the interceptor that hijacked it: it gives what is received.
    PRE_RECV_INITIAL_METADATA,
    PRE_RECV_MESSAGE,
    PRE_RECV_STATUS,
    POST_RECV_INITIAL_METADATA,
    POST_RECV_MESSAGE,
    POST_RECV_STATUS, // clients
    POST_RECV_CLOSE,  // servers: the call is over
    PRE_SEND_CANCEL,
    NUM_INTERCEPTION_HOOKS
};

// What an interceptor is given: some operations of a call. It calls `Proceed` once, on any thread, or `Hijack`.
class InterceptorBatchMethods {
  public:
    virtual ~InterceptorBatchMethods() = default;
    // Whether that is among them.
    virtual bool QueryInterceptionHookPoint(InterceptionHookPoints type) = 0;
    virtual void Proceed() = 0;
    // Takes the call over: nothing of it goes to the library, and this interceptor gives what is received. With a
    // client's PRE_SEND_INITIAL_METADATA only; then the interceptor is called for PRE_RECV_* and proceeds.
    virtual void Hijack() = 0;

    // PRE_SEND_MESSAGE. The message as bytes, which may be changed; and as it was given, null if it is bytes already.
    virtual ByteBuffer *GetSerializedSendMessage() = 0;
    virtual const void *GetSendMessage() = 0;
    // Another message of the same type is sent instead. It lives until POST_SEND_MESSAGE.
    virtual void ModifySendMessage(const void *message) = 0;
    // POST_SEND_MESSAGE: whether it was sent.
    virtual bool GetSendMessageStatus() = 0;
    // PRE_SEND_INITIAL_METADATA.
    virtual std::multimap<std::string, std::string> *GetSendInitialMetadata() = 0;
    // PRE_SEND_STATUS.
    virtual Status GetSendStatus() = 0;
    virtual void ModifySendStatus(const Status &status) = 0;
    virtual std::multimap<std::string, std::string> *GetSendTrailingMetadata() = 0;

    // POST_RECV_*, and to a hijacker PRE_RECV_*. Null: none came.
    virtual void *GetRecvMessage() = 0;
    virtual std::multimap<grpc::string_ref, grpc::string_ref> *GetRecvInitialMetadata() = 0;
    virtual Status *GetRecvStatus() = 0;
    virtual std::multimap<grpc::string_ref, grpc::string_ref> *GetRecvTrailingMetadata() = 0;

    // For calls of a hijacker's own: the channel with the interceptors that follow this one. Null at a server.
    virtual std::unique_ptr<ChannelInterface> GetInterceptedChannel() = 0;
    // To a hijacker: there is no message; a message is not sent.
    virtual void FailHijackedRecvMessage() = 0;
    virtual void FailHijackedSendMessage() = 0;
};

// Lives as long as its call.
class Interceptor {
  public:
    virtual ~Interceptor() = default;
    virtual void Intercept(InterceptorBatchMethods *methods) = 0;
};

} // namespace experimental
} // namespace grpc

#endif
