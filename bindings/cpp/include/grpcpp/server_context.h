// grpc::ServerContext and grpc::CallbackServerContext: a delivered call, as its handler sees it.
#ifndef TRUNKLINE_GRPCPP_SERVER_CONTEXT_H
#define TRUNKLINE_GRPCPP_SERVER_CONTEXT_H

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/impl/server_call.h>

namespace grpc {

namespace testing {
class InteropServerContextInspector;
} // namespace testing

class ServerUnaryReactor;

namespace internal {
class ServerAccess;
}

class ServerContextBase {
  public:
    ServerContextBase(const ServerContextBase &) = delete;
    ServerContextBase &operator=(const ServerContextBase &) = delete;
    virtual ~ServerContextBase() = default;

    std::chrono::system_clock::time_point deadline() const { return internal::Timespec2Timepoint(deadline_); }
    gpr_timespec raw_deadline() const { return deadline_; }

    void AddInitialMetadata(const std::string &key, const std::string &value) { initial_.emplace(key, value); }
    void AddTrailingMetadata(const std::string &key, const std::string &value) { trailing_.emplace(key, value); }
    const std::multimap<grpc::string_ref, grpc::string_ref> &client_metadata() const { return client_.pairs(); }

    // Its caller has gone, its deadline has passed, or `TryCancel` was called.
    bool IsCancelled() const { return call_.call != nullptr && call_.call->IsCancelled(); }
    // Its caller gets UNAVAILABLE.
    void TryCancel() const {
        if (call_.call != nullptr) call_.call->Cancel();
    }

    // How responses are compressed on the way to a gRPC client; what stays on this host is not.
    grpc_compression_algorithm compression_algorithm() const { return compression_; }
    void set_compression_algorithm(grpc_compression_algorithm algorithm) {
        compression_ = algorithm;
        initial_.erase("grpc-encoding");
        initial_.emplace("grpc-encoding", internal::CompressionName(algorithm));
    }
    grpc_compression_level compression_level() const { return level_; }
    bool compression_level_set() const { return has_level_; }
    void set_compression_level(grpc_compression_level level) {
        level_ = level;
        has_level_ = true;
        set_compression_algorithm(level == GRPC_COMPRESS_LEVEL_NONE ? GRPC_COMPRESS_NONE : GRPC_COMPRESS_GZIP);
    }

    // In the form of gRPC's names, which programs take apart. Who calls is the daemon's to know (`trunkline explain`); here
    // it is the daemon that delivers, through a socket of this host.
    std::string peer() const { return "unix:trunkline"; }
    std::shared_ptr<const AuthContext> auth_context() const { return std::make_shared<AuthContext>(); }

  protected:
    ServerContextBase() = default;

    void NotifyWhenDone(void *tag) {
        done_tag_ = tag;
        has_done_tag_ = true;
    }

  private:
    friend class internal::ServerAccess;
    friend class ClientContext;
    // gRPC's own interop server looks inside.
    friend class testing::InteropServerContextInspector;

    struct {
        std::shared_ptr<internal::ServerCall> call;
    } call_;
    internal::SentMetadata initial_, trailing_;
    internal::ReceivedMetadata client_;
    gpr_timespec deadline_ = gpr_inf_future(GPR_CLOCK_REALTIME);
    grpc_compression_algorithm compression_ = GRPC_COMPRESS_NONE;
    grpc_compression_level level_ = GRPC_COMPRESS_LEVEL_NONE;
    bool has_level_ = false, sent_headers_ = false, has_told_headers_ = false, has_done_tag_ = false;
    void *done_tag_ = nullptr;
};

class ServerContext : public ServerContextBase {
  public:
    ServerContext() = default;
    // Of a call in a completion queue: `tag` comes when it is over. To be said before the call is asked for.
    void AsyncNotifyWhenDone(void *tag) { NotifyWhenDone(tag); }
};

class CallbackServerContext : public ServerContextBase {
  public:
    CallbackServerContext() = default;
    // A reactor for handlers that need none of their own. It is the context's.
    ServerUnaryReactor *DefaultReactor();

  private:
    std::shared_ptr<ServerUnaryReactor> default_reactor_;
};

inline std::unique_ptr<ClientContext> ClientContext::FromServerContext(const ServerContextBase &server,
                                                                       PropagationOptions) {
    auto out = std::make_unique<ClientContext>();
    if (server.call_.call != nullptr) out->parent_ = server.call_.call->get().id;
    return out;
}

namespace internal {

// What the classes of servers do with a context.
class ServerAccess {
  public:
    static void Bind(ServerContextBase &context, std::shared_ptr<ServerCall> call) {
        MetadataHandle metadata;
        tl_call_metadata(call->get(), metadata.out(), nullptr);
        context.client_.Take(std::exchange(*metadata.out(), tl_metadata{}));
        int64_t left = tl_call_time_left(call->get());
        if (left != INT64_MAX) {
            context.deadline_ =
                gpr_time_add(gpr_now(GPR_CLOCK_REALTIME), gpr_time_from_nanos(left, GPR_TIMESPAN));
        }
        context.call_.call = std::move(call);
        context.call_.call->Bound(&context);
    }
    static const std::shared_ptr<ServerCall> &Call(const ServerContextBase &context) { return context.call_.call; }
    static const SentMetadata &Trailers(const ServerContextBase &context) { return context.trailing_; }

    // ---- For interceptors.
    static std::shared_ptr<Batch> NewBatch(const ServerContextBase &context) { return context.call_.call->NewBatch(); }
    static void ReceivesHeaders(ServerContextBase &context, Batch &batch) {
        batch.ReceivesHeaders(context.client_.mutable_pairs());
    }
    // The first that sends sends headers, too.
    static void SendsHeaders(ServerContextBase &context, Batch &batch) {
        if (!std::exchange(context.has_told_headers_, true)) batch.SendsHeaders(&context.initial_);
    }
    static void SendsStatus(ServerContextBase &context, Batch &batch, Status *status) {
        SendsHeaders(context, batch);
        batch.SendsStatus(status, &context.trailing_);
    }

    // Response headers, if they are still to be sent: `wanted` or not empty.
    static bool TakeHeaders(ServerContextBase &context, bool wanted, SentMetadata *out) {
        bool is_due = !context.sent_headers_ && (wanted || !context.initial_.empty());
        context.sent_headers_ = context.sent_headers_ || is_due;
        if (is_due) *out = context.initial_;
        return is_due;
    }

    // Blocking.
    static void SendHeaders(ServerContextBase &context, bool wanted) {
        SentMetadata headers;
        if (TakeHeaders(context, wanted, &headers)) context.call_.call->SendHeaders(headers);
    }
    // In a queue, before what follows.
    static void SendHeaders(ServerContextBase &context, tl_queue queue) {
        SentMetadata headers;
        if (TakeHeaders(context, false, &headers)) {
            context.call_.call->SendHeaders(queue, std::move(headers), [](bool) {});
        }
    }

    static bool DoneTag(const ServerContextBase &context, void **tag) {
        *tag = context.done_tag_;
        return context.has_done_tag_;
    }
};

} // namespace internal
} // namespace grpc

#endif
