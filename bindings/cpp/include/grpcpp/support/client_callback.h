// The callback API of clients: unary calls with a function, and reactors of all four patterns.
//
// A reactor belongs to one call at a time. Its last reaction is OnDone, after all others and when no holds are left.
#ifndef TRUNKLINE_GRPCPP_SUPPORT_CLIENT_CALLBACK_H
#define TRUNKLINE_GRPCPP_SUPPORT_CLIENT_CALLBACK_H

#include <grpcpp/impl/reactions.h>
#include <grpcpp/impl/stream_interfaces.h>
#include <grpcpp/support/async_unary_call.h>

#include <cstdint>
#include <cstring>

namespace grpc {
namespace internal {

// The call behind a reactor.
struct ReactingCall {
    std::shared_ptr<ClientCall> call;
    std::shared_ptr<Reactions> reactions;
    Status status;
    Target response; // of calls with one response
};

} // namespace internal

// What reactors of all patterns have in common.
class ClientReactor {
  public:
    virtual ~ClientReactor() = default;
    virtual void OnDone(const Status &status) = 0;
    virtual void OnReadInitialMetadataDone(bool /*ok*/) {}

    // For generated code: the call is made, and not begun.
    void trunkline_bind(ChannelInterface *channel, const char *method, ClientContext *context,
                        internal::ClientCall::Type type, internal::Target response) {
        auto &loop = internal::EventLoop::Get();
        auto bound = std::make_shared<internal::ReactingCall>();
        bound->call = std::make_shared<internal::ClientCall>(channel, method, context, type, loop.queue(), true);
        bound->response = std::move(response);
        // The reactor may end in its last reaction.
        bound->reactions = std::make_shared<internal::Reactions>([this, bound] { OnDone(bound->status); });
        bound_ = bound;
    }
    internal::ClientCall &trunkline_call() { return *bound_->call; }

  protected:
    // What comes of every call; then it begins.
    void Begin() {
        internal::Asking asking;
        auto bound = bound_;
        bound->reactions->Enter(); // nothing ends before all was asked for
        // Its interceptors have seen it begin before the last reaction: they are the context's, which may end there.
        bound->reactions->Enter();
        bound->call->Start([reactions = bound->reactions](bool) { reactions->Leave(); });
        auto *call = bound->call.get();
        bound->call->WantHeaders(bound->reactions->Telling(
            [this, call](bool ok) { OnReadInitialMetadataDone(ok && !call->HasOnlyTrailers()); }));
        auto ends = bound->reactions->Telling([](bool) {});
        if (bound->response) bound->call->WantOnly(bound->response, &bound->status, std::move(ends));
        if (!bound->response) bound->call->WantEnd(&bound->status, false, std::move(ends));
        bound->reactions->Leave();
    }
    template <class R> void AskRead(R *message, std::function<void(bool)> react) {
        internal::Asking asking;
        auto bound = bound_;
        bound->call->WantMessage(internal::Into(message), bound->reactions->Telling(std::move(react)));
    }
    template <class W> void AskWrite(const W *message, WriteOptions options, std::function<void(bool)> react) {
        internal::Asking asking;
        auto bound = bound_;
        bound->call->Send(*message, options, bound->reactions->Telling(std::move(react)));
    }
    void AskWritesDone(std::function<void(bool)> react) {
        internal::Asking asking;
        auto bound = bound_;
        bound->call->EndRequests(bound->reactions->Telling(std::move(react)));
    }
    void Hold(int holds) { bound_->reactions->Enter(holds); }
    void Release() {
        internal::Asking asking;
        auto reactions = bound_->reactions;
        reactions->Leave();
    }

  private:
    std::shared_ptr<internal::ReactingCall> bound_;
};

class ClientUnaryReactor : public ClientReactor {
  public:
    void StartCall() {
        // Headers that come before the response are told when they come, which takes more than one event.
        if (trunkline_hears_headers()) trunkline_call().ReceiveInParts();
        Begin();
    }
    // Beyond gRPC: whether its class has a reaction of its own to headers, as far as can be known.
    bool trunkline_hears_headers() const;
};

template <class R> class ClientReadReactor : public ClientReactor {
  public:
    void StartCall() { Begin(); }
    void StartRead(R *message) {
        AskRead(message, [this](bool ok) { OnReadDone(ok); });
    }
    void AddHold() { Hold(1); }
    void AddMultipleHolds(int holds) { Hold(holds); }
    void RemoveHold() { Release(); }
    virtual void OnReadDone(bool /*ok*/) {}
};

template <class W> class ClientWriteReactor : public ClientReactor {
  public:
    void StartCall() { Begin(); }
    void StartWrite(const W *message) { StartWrite(message, WriteOptions()); }
    void StartWrite(const W *message, WriteOptions options) {
        AskWrite(message, options, [this](bool ok) { OnWriteDone(ok); });
    }
    void StartWriteLast(const W *message, WriteOptions options) { StartWrite(message, options.set_last_message()); }
    void StartWritesDone() {
        AskWritesDone([this](bool ok) { OnWritesDoneDone(ok); });
    }
    void AddHold() { Hold(1); }
    void AddMultipleHolds(int holds) { Hold(holds); }
    void RemoveHold() { Release(); }
    virtual void OnWriteDone(bool /*ok*/) {}
    virtual void OnWritesDoneDone(bool /*ok*/) {}
};

template <class W, class R> class ClientBidiReactor : public ClientReactor {
  public:
    void StartCall() { Begin(); }
    void StartRead(R *message) {
        AskRead(message, [this](bool ok) { OnReadDone(ok); });
    }
    void StartWrite(const W *message) { StartWrite(message, WriteOptions()); }
    void StartWrite(const W *message, WriteOptions options) {
        AskWrite(message, options, [this](bool ok) { OnWriteDone(ok); });
    }
    void StartWriteLast(const W *message, WriteOptions options) { StartWrite(message, options.set_last_message()); }
    void StartWritesDone() {
        AskWritesDone([this](bool ok) { OnWritesDoneDone(ok); });
    }
    void AddHold() { Hold(1); }
    void AddMultipleHolds(int holds) { Hold(holds); }
    void RemoveHold() { Release(); }
    virtual void OnReadDone(bool /*ok*/) {}
    virtual void OnWriteDone(bool /*ok*/) {}
    virtual void OnWritesDoneDone(bool /*ok*/) {}
};

namespace internal {

// A reactor that calls a function, and ends itself.
class FunctionReactor final : public ClientUnaryReactor {
  public:
    explicit FunctionReactor(std::function<void(Status)> done) : done_(std::move(done)) {}
    // Nobody looks at its headers before its end.
    void StartCall() { Begin(); }
    void OnDone(const Status &status) override {
        auto done = std::move(done_);
        Status kept = status;
        delete this;
        done(kept);
    }

  private:
    std::function<void(Status)> done_;
};

// The function that a reactor's class has for headers: an override may call the one it overrides, so that a call of
// that does not tell. It is read from the class's table of virtual functions, which lies as the Itanium C++ ABI says;
// null under any other.
inline const void *ReactionToHeaders(const ClientUnaryReactor &reactor) {
    const void *found = nullptr;
#if defined(__GXX_ABI_VERSION) && (defined(__x86_64__) || defined(__aarch64__))
    auto reaction = &ClientUnaryReactor::OnReadInitialMetadataDone;
    // Where it lies in the table, on x86-64 plus 1, and a word on bases, of which there is one. A reactor begins with
    // the table's address.
    uintptr_t parts[2];
    static_assert(sizeof parts == sizeof reaction, "a pointer to a member is two words");
    std::memcpy(parts, &reaction, sizeof parts);
    const char *table = nullptr;
    std::memcpy(&table, static_cast<const void *>(&reactor), sizeof table);
    std::memcpy(&found, table + (parts[0] & ~uintptr_t{1}), sizeof found);
#else
    (void)reactor;
#endif
    return found;
}

template <class Request, class Response>
void CallbackUnaryCall(ChannelInterface *channel, const char *method, ClientContext *context, const Request *request,
                       Response *response, ClientUnaryReactor *reactor) {
    reactor->trunkline_bind(channel, method, context, ClientCall::Type::UNARY, Into(response));
    reactor->trunkline_call().Prepare(*request);
}

template <class Request, class Response>
void CallbackUnaryCall(ChannelInterface *channel, const char *method, ClientContext *context, const Request *request,
                       Response *response, std::function<void(Status)> done) {
    auto *reactor = new FunctionReactor(std::move(done));
    CallbackUnaryCall(channel, method, context, request, response, static_cast<ClientUnaryReactor *>(reactor));
    reactor->StartCall();
}

template <class Request, class Response>
void CallbackReaderCall(ChannelInterface *channel, const char *method, ClientContext *context, const Request *request,
                        ClientReadReactor<Response> *reactor) {
    reactor->trunkline_bind(channel, method, context, ClientCall::Type::SERVER_STREAMING, {});
    reactor->trunkline_call().Prepare(*request);
}

template <class Request, class Response>
void CallbackWriterCall(ChannelInterface *channel, const char *method, ClientContext *context, Response *response,
                        ClientWriteReactor<Request> *reactor) {
    reactor->trunkline_bind(channel, method, context, ClientCall::Type::CLIENT_STREAMING, Into(response));
}

template <class Request, class Response>
void CallbackBidiCall(ChannelInterface *channel, const char *method, ClientContext *context,
                      ClientBidiReactor<Request, Response> *reactor) {
    reactor->trunkline_bind(channel, method, context, ClientCall::Type::BIDI_STREAMING, {});
}

} // namespace internal

inline bool ClientUnaryReactor::trunkline_hears_headers() const {
    // Of a class that has none. Two libraries of a program may have a copy each: then it is taken for an override.
    static const void *const none = internal::ReactionToHeaders(internal::FunctionReactor(nullptr));
    return none == nullptr || internal::ReactionToHeaders(*this) != none;
}

} // namespace grpc

#endif
