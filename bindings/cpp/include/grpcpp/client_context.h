// grpc::ClientContext: what is asked of one call, and what came with its answer.
#ifndef TRUNKLINE_GRPCPP_CLIENT_CONTEXT_H
#define TRUNKLINE_GRPCPP_CLIENT_CONTEXT_H

#include <grpc/compression.h>
#include <grpcpp/channel.h>
#include <grpcpp/impl/sync.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/time.h>

#include <atomic>

namespace grpc {

namespace testing {
class InteropClientContextInspector;
} // namespace testing

class ServerContextBase;
class ServerContext;
class CallbackServerContext;

// What a call inherits of the delivered call on whose behalf it is made. The library hands on deadline, cancellation
// and trace context together; asking for less than all of it is refused when it is compiled.
class PropagationOptions {
  public:
    PropagationOptions &enable_deadline_propagation() { return *this; }
    PropagationOptions &enable_census_stats_propagation() { return *this; }
    PropagationOptions &enable_census_tracing_propagation() { return *this; }
    PropagationOptions &enable_cancellation_propagation() { return *this; }
    template <class Unused = void> PropagationOptions &disable_deadline_propagation() { return Refuse<Unused>(); }
    template <class Unused = void> PropagationOptions &disable_cancellation_propagation() { return Refuse<Unused>(); }
    template <class Unused = void> PropagationOptions &disable_census_stats_propagation() { return Refuse<Unused>(); }
    template <class Unused = void> PropagationOptions &disable_census_tracing_propagation() { return Refuse<Unused>(); }

  private:
    template <class Unused> PropagationOptions &Refuse() {
        static_assert(internal::kNever<Unused>, "not in Trunkline: deadline, cancellation and trace context are handed "
                                                "on together; make the call with a ClientContext of its own instead");
        return *this;
    }
};

namespace internal {
class PreparedCall;
class ClientCall;

// A call that was made, by which it is cancelled; 0 when it has ended. What was told of its last message stays. The
// context has it, and who makes the call: a stream may end after its context.
class CallInFlight {
  public:
    // It has a handle by which it can be cancelled.
    void Is(tl_call call) {
        id_ = call.id;
        if (is_cancelled_) TellLibrary();
    }
    // From any thread; before it is made, too.
    void Cancel() {
        is_cancelled_ = true;
        TellLibrary();
    }
    bool IsCancelled() const { return is_cancelled_; }
    // Whether its last message came compressed from a gRPC server.
    bool WasCompressed() const { return was_compressed_; }
    void Came(bool compressed) { was_compressed_ = compressed; }

  private:
    void TellLibrary() {
        tl_call call{id_};
        if (call.id != 0) tl_call_cancel(call, nullptr);
    }

    std::atomic<uint64_t> id_{0};
    std::atomic<bool> was_compressed_{false}, is_cancelled_{false};
};

inline const char *CompressionName(grpc_compression_algorithm algorithm) {
    return algorithm == GRPC_COMPRESS_GZIP ? "gzip" : algorithm == GRPC_COMPRESS_DEFLATE ? "deflate" : "identity";
}
} // namespace internal

class ClientContext {
  public:
    ClientContext() = default;
    ClientContext(const ClientContext &) = delete;
    ClientContext &operator=(const ClientContext &) = delete;
    ~ClientContext() { tl_call_release(tl_call{cancellation_}); }

    // A context of calls made on behalf of a delivered one.
    static std::unique_ptr<ClientContext> FromServerContext(const ServerContextBase &server,
                                                            PropagationOptions options = PropagationOptions());
    static std::unique_ptr<ClientContext> FromCallbackServerContext(const ServerContextBase &server,
                                                                    PropagationOptions options = PropagationOptions()) {
        return FromServerContext(server, options);
    }

    void AddMetadata(const std::string &key, const std::string &value) { sent_.emplace(key, value); }
    const std::multimap<grpc::string_ref, grpc::string_ref> &GetServerInitialMetadata() const {
        return initial_.pairs();
    }
    const std::multimap<grpc::string_ref, grpc::string_ref> &GetServerTrailingMetadata() const {
        return trailing_.pairs();
    }

    template <typename T> void set_deadline(const T &deadline) { deadline_ = TimePoint<T>(deadline).raw_time(); }
    std::chrono::system_clock::time_point deadline() const { return internal::Timespec2Timepoint(deadline_); }
    gpr_timespec raw_deadline() const { return deadline_; }

    void set_wait_for_ready(bool wait_for_ready) { wait_for_ready_ = wait_for_ready; }
    void set_fail_fast(bool fail_fast) { set_wait_for_ready(!fail_fast); }
    // `:authority` of the request, towards a gRPC server.
    void set_authority(const std::string &authority) { authority_ = authority; }
    std::shared_ptr<const AuthContext> auth_context() const { return std::make_shared<AuthContext>(); }
    void set_credentials(const std::shared_ptr<CallCredentials> &credentials) { credentials_ = credentials; }
    std::shared_ptr<CallCredentials> credentials() { return credentials_; }

    // How messages are compressed on the way to a gRPC server; what stays on this host is not.
    grpc_compression_algorithm compression_algorithm() const { return compression_; }
    void set_compression_algorithm(grpc_compression_algorithm algorithm) { compression_ = algorithm; }
    // Headers leave with the first message, or before; the library decides.
    void set_initial_metadata_corked(bool) {}

    // The target: whom the daemon chose is in its records (`trunkline explain`).
    std::string peer() const { return target_; }
    // Ends the call from any thread; before it is made, too.
    void TryCancel() {
        TellCancelled();
        call_->Cancel();
    }
    // What is known of a failed call beyond its status: whether its handler may have run.
    std::string debug_error_string() const { return debug_; }

  private:
    friend class internal::PreparedCall;
    // gRPC's own interop client looks inside.
    friend class testing::InteropClientContextInspector;

    void TellCancelled() {
        internal::Interceptors *interceptors = interceptors_;
        if (interceptors == nullptr) return;
        auto batch = std::make_shared<internal::Batch>(interceptors);
        batch->SendsCancel();
        batch->Before([] {});
    }

    void Ended(tl_metadata trailers, const Status &status) {
        trailing_.Take(trailers);
        static const char *const known[] = {"executed", "not executed", "execution unknown"};
        if (!status.ok()) debug_ = status.error_message() + " [" + known[status.execution() % 3] + "]";
    }

    internal::SentMetadata sent_;
    internal::ReceivedMetadata initial_, trailing_;
    gpr_timespec deadline_ = gpr_inf_future(GPR_CLOCK_REALTIME);
    std::string authority_, target_, debug_;
    std::shared_ptr<CallCredentials> credentials_;
    grpc_compression_algorithm compression_ = GRPC_COMPRESS_NONE;
    bool wait_for_ready_ = false;
    uint64_t parent_ = 0;
    // A handle of this context's own, of blocking calls.
    uint64_t cancellation_ = 0;
    const std::shared_ptr<internal::CallInFlight> call_ = std::make_shared<internal::CallInFlight>();
    // Of the call that is made: its interceptors are made by it.
    std::shared_ptr<ChannelInterface> channel_;
    // Of the call that is made; `TryCancel` looks from another thread.
    std::unique_ptr<internal::ClientInterception> interception_;
    std::atomic<internal::Interceptors *> interceptors_{nullptr};
};

namespace internal {

// What the library is told of a call.
class PreparedCall {
  public:
    using Type = experimental::ClientRpcInfo::Type;

    PreparedCall(ChannelInterface *channel, ClientContext *context, const char *method, Type type)
        : context_(context), call_(context->call_), kept_(channel->trunkline_shared()), method_(method),
          arguments_(channel->trunkline_arguments()) {
        channel_ = channel->trunkline_channel(context->wait_for_ready_);
        context->channel_ = kept_;
        status_ = channel->trunkline_status();
        context->target_ = channel->trunkline_target();
        context->interception_ = ClientInterception::Of(channel, context, method, type);
        if (context->interception_ != nullptr) context->interceptors_ = context->interception_->interceptors();
        options_.size = sizeof options_;
        options_.parent = tl_call{context->parent_};
    }

    // What is done at once, for its interceptors; null if the call has none.
    std::shared_ptr<Batch> NewBatch() const {
        Interceptors *interceptors = context_->interceptors_;
        return interceptors == nullptr ? nullptr : std::make_shared<Batch>(interceptors);
    }
    void SendsHeaders(Batch &batch) { batch.SendsHeaders(&context_->sent_); }
    // The first that receives sees the headers, too.
    void ReceivesHeaders(Batch &batch) {
        if (!has_told_headers_.exchange(true)) batch.ReceivesHeaders(context_->initial_.mutable_pairs());
    }
    void ReceivesStatus(Batch &batch, Status *status) {
        ReceivesHeaders(batch);
        batch.ReceivesStatus(status, context_->trailing_.mutable_pairs());
    }

    // Nothing is added to its metadata any more: it is made now.
    void Seal() {
        if (status_.ok()) status_ = Write();
        // Its answer could come before it is cancelled a second time.
        if (status_.ok() && call_->IsCancelled()) {
            status_ = Status(StatusCode::CANCELLED, "cancelled before it was made");
            status_.set_execution(TL_NOT_EXECUTED);
        }
        int64_t left = NanosecondsUntil(context_->deadline_);
        // 0 is no limit: what has passed has passed.
        if (left != INT64_MAX) options_.timeout_ns = std::max<int64_t>(left, 1);
    }

    // Before a call that blocks: it can be cancelled from another thread.
    void MakeCancellable() {
        tl_call handle{};
        if (context_->cancellation_ == 0 && tl_cancellation_new(&handle, nullptr) == TL_OK) {
            context_->cancellation_ = handle.id;
        }
        options_.cancellation = tl_call{context_->cancellation_};
        call_->Is(options_.cancellation);
    }

    // Too long for what the channel says.
    Status Fits(const Slice &request) const {
        int most = arguments_.send_bytes_max();
        if (most < 0 || request.size() <= static_cast<size_t>(most)) return Status::OK;
        return Status(StatusCode::RESOURCE_EXHAUSTED, "the request is longer than the channel may send");
    }
    Status Fits(tl_message response) const {
        int most = arguments_.receive_bytes_max();
        if (most < 0 || tl_message_bytes(response).len <= static_cast<size_t>(most)) return Status::OK;
        return Status(StatusCode::RESOURCE_EXHAUSTED, "the response is longer than the channel may receive");
    }

    void Opened(tl_call call) { call_->Is(call); }
    void Headers(tl_event &event) { context_->initial_.Take(std::exchange(event.headers, tl_metadata{})); }
    // A message, if there is one in it.
    void Came(const tl_event &event) {
        if (event.message.id != 0) call_->Came((event.flags & TL_COMPRESSED) != 0);
    }
    // How the call ended.
    Status End(tl_event &event) {
        return End(TakeStatus(std::exchange(event.status, tl_status{})), std::exchange(event.trailers, tl_metadata{}));
    }
    Status End(Status status, tl_metadata trailers = {}) {
        call_->Is(tl_call{});
        context_->Ended(trailers, status);
        return status;
    }

    // What was wrong before it was made.
    const Status &status() const { return status_; }
    tl_channel channel() const { return channel_; }
    tl_slice method() const { return slice(method_); }
    const tl_call_options *options() const { return &options_; }
    ClientContext *context() const { return context_; }

  private:
    Status Write() {
        SentMetadata pairs = context_->sent_;
        if (!context_->authority_.empty()) pairs.emplace("host", context_->authority_);
        if (!arguments_.user_agent().empty()) pairs.emplace("user-agent", arguments_.user_agent());
        auto compression = context_->compression_;
        if (compression == GRPC_COMPRESS_NONE) compression = arguments_.compression();
        if (compression != GRPC_COMPRESS_NONE) pairs.emplace("grpc-encoding", CompressionName(compression));
        if (context_->credentials_ != nullptr) {
            const std::string &authority = context_->authority_;
            Status said = context_->credentials_->trunkline_metadata(
                authority.empty() ? AuthorityOf(context_->target_) : authority, method_, &pairs);
            if (!said.ok()) return said;
        }
        Status written = WriteMetadata(pairs, metadata_);
        options_.metadata = metadata_.get();
        return written;
    }

    ClientContext *context_;
    std::shared_ptr<CallInFlight> call_;
    // The program may let go of its channel while the call goes on.
    std::shared_ptr<ChannelInterface> kept_;
    const char *method_;
    const ChannelArguments &arguments_;
    tl_channel channel_{};
    tl_call_options options_{};
    MetadataHandle metadata_;
    Status status_;
    std::atomic<bool> has_told_headers_{false};
};

} // namespace internal
} // namespace grpc

#endif
