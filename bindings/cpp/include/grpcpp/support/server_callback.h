// The callback API of servers: reactors of all four patterns.
//
// A handler gives a reactor, which may have asked for things before: they begin when it is given. Its last reaction is
// OnDone, after Finish and all others. What is asked for after Finish is nothing.
#ifndef TRUNKLINE_GRPCPP_SUPPORT_SERVER_CALLBACK_H
#define TRUNKLINE_GRPCPP_SUPPORT_SERVER_CALLBACK_H

#include <grpcpp/impl/reactions.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/impl/stream_interfaces.h>

namespace grpc {
namespace internal {

// The last message of a call, if it has one.
struct Last {
    template <class Response> static Last Of(const Response *message) {
        return {[message](Batch &batch) { batch.SendsMessage(*message); },
                [message](Slice *out) { return Encode(*message, out); }};
    }

    std::function<void(Batch &)> sends;
    std::function<Status(Slice *)> encode;
};

// The call behind a reactor, with all that lives as long as it.
struct ReactingServed {
    explicit ReactingServed(std::shared_ptr<ServerCall> of) : call(std::move(of)) { ServerAccess::Bind(context, call); }

    std::shared_ptr<ServerCall> call;
    CallbackServerContext context;
    std::shared_ptr<void> request, response;
    // Of methods with one response.
    Last last;
    std::shared_ptr<Reactions> reactions;
    tl_queue queue = EventLoop::Get().queue();
};

} // namespace internal

// What reactors of all patterns have in common.
class ServerReactor {
  public:
    virtual ~ServerReactor() = default;
    virtual void OnDone() = 0;
    virtual void OnCancel() {}
    virtual void OnSendInitialMetadataDone(bool /*ok*/) {}

    void StartSendInitialMetadata() {
        Ask(false, [this](internal::ReactingServed &served) {
            auto *with = &served;
            auto acts = [with](internal::Batch *, internal::ServerCall::Done done) {
                internal::SentMetadata headers;
                if (!internal::ServerAccess::TakeHeaders(with->context, true, &headers)) return done(false);
                with->call->SendHeaders(with->queue, std::move(headers), std::move(done));
            };
            internal::Between(
                served.call->NewBatch(),
                [with](internal::Batch &batch) { internal::ServerAccess::SendsHeaders(with->context, batch); }, acts,
                served.reactions->Telling([this](bool ok) { OnSendInitialMetadataDone(ok); }));
        });
    }
    void Finish(Status status) {
        Ask(true, [status = std::move(status)](internal::ReactingServed &served) { End(served, status, served.last); });
    }

    // For handlers: the call is there.
    void trunkline_bind(std::shared_ptr<internal::ReactingServed> served) {
        internal::Asking asking;
        served->reactions = std::make_shared<internal::Reactions>([this] {
            // The reactor may end in its last reaction, and the context that has it with what is kept here.
            auto kept = std::move(served_);
            OnDone();
        });
        // Until Finish, and until the call is over.
        served->reactions->Enter(2);
        std::unique_lock<std::mutex> lock(mutex_);
        served_ = served;
        auto asked = std::move(asked_);
        lock.unlock();
        served->call->Watch(served->queue, [this, served] {
            served->call->Close([this, served] {
                internal::React([this, served] {
                    if (served->call->IsCancelled()) internal::Quietly([this] { OnCancel(); });
                    served->reactions->Leave();
                });
            });
        });
        for (auto &ask : asked) ask(*served);
    }

  protected:
    using Asked = std::function<void(internal::ReactingServed &)>;

    // What lies in `served` is there until the last of its reactions.
    template <class R> void AskRead(R *message, std::function<void(bool)> react) {
        Ask(false, [message, react = std::move(react)](internal::ReactingServed &served) {
            auto acts = [message, with = &served](internal::Batch *, internal::ServerCall::Done done) {
                with->call->Receive(
                    with->queue, [message](tl_message received) { return internal::Decode(received, message); },
                    std::move(done));
            };
            internal::Between(
                served.call->NewBatch(), [message](internal::Batch &batch) { batch.ReceivesMessage(message); }, acts,
                served.reactions->Telling(react));
        });
    }
    template <class W> void AskWrite(const W *message, WriteOptions options, std::function<void(bool)> react) {
        Ask(false, [message, options, react = std::move(react)](internal::ReactingServed &served) {
            auto sends = [message, with = &served](internal::Batch &batch) {
                internal::ServerAccess::SendsHeaders(with->context, batch);
                batch.SendsMessage(*message);
            };
            auto acts = [message, options, with = &served](internal::Batch *batch, internal::ServerCall::Done done) {
                Slice bytes;
                Status encoded = batch != nullptr ? batch->Bytes(&bytes) : internal::Encode(*message, &bytes);
                if (!encoded.ok()) return done(with->call->Fault(encoded));
                internal::ServerAccess::SendHeaders(with->context, with->queue);
                with->call->Send(with->queue, std::move(bytes), options, std::move(done));
            };
            internal::Between(served.call->NewBatch(), sends, acts, served.reactions->Telling(react));
        });
    }
    template <class W> void AskWriteAndFinish(const W *message, WriteOptions options, Status status) {
        Ask(true, [message, options, status = std::move(status)](internal::ReactingServed &served) {
            End(served, status, internal::Last::Of(message), options);
        });
    }

  private:
    static void End(internal::ReactingServed &served, const Status &status, internal::Last last,
                    WriteOptions options = WriteOptions()) {
        if (!status.ok()) last = internal::Last();
        // Interceptors may make another of it.
        auto kept = std::make_shared<Status>(status);
        auto sends = [kept, last, with = &served](internal::Batch &batch) {
            if (last.sends) last.sends(batch);
            internal::ServerAccess::SendsStatus(with->context, batch, kept.get());
        };
        auto acts = [kept, last, options, with = &served](internal::Batch *batch, internal::ServerCall::Done done) {
            Slice bytes;
            bool has_last = last.encode != nullptr && kept->ok();
            if (has_last) *kept = batch != nullptr ? batch->Bytes(&bytes) : last.encode(&bytes);
            has_last = has_last && kept->ok();
            internal::ServerAccess::SendHeaders(with->context, with->queue);
            with->call->Finish(with->queue, *kept, has_last ? std::optional<Slice>(bytes) : std::nullopt,
                               internal::ServerAccess::Trailers(with->context), std::move(done), options);
        };
        internal::Between(served.call->NewBatch(), sends, acts, [reactions = served.reactions](bool) {
            internal::React([reactions] { reactions->Leave(); });
        });
    }

    // Begins what is asked for, or keeps it until the call is there.
    void Ask(bool is_last, Asked ask) {
        internal::Asking asking;
        std::unique_lock<std::mutex> lock(mutex_);
        if (is_finished_) return;
        is_finished_ = is_last;
        if (served_ == nullptr) return asked_.push_back(std::move(ask));
        auto served = served_;
        lock.unlock();
        ask(*served);
    }

    std::mutex mutex_;
    std::shared_ptr<internal::ReactingServed> served_;
    std::vector<Asked> asked_;
    bool is_finished_ = false;
};

class ServerUnaryReactor : public ServerReactor {};

template <class R> class ServerReadReactor : public ServerReactor {
  public:
    void StartRead(R *message) {
        AskRead(message, [this](bool ok) { OnReadDone(ok); });
    }
    virtual void OnReadDone(bool /*ok*/) {}
};

template <class W> class ServerWriteReactor : public ServerReactor {
  public:
    void StartWrite(const W *message) { StartWrite(message, WriteOptions()); }
    void StartWrite(const W *message, WriteOptions options) {
        AskWrite(message, options, [this](bool ok) { OnWriteDone(ok); });
    }
    void StartWriteLast(const W *message, WriteOptions options) { StartWrite(message, options); }
    void StartWriteAndFinish(const W *message, WriteOptions options, Status status) {
        AskWriteAndFinish(message, options, std::move(status));
    }
    virtual void OnWriteDone(bool /*ok*/) {}
};

template <class R, class W> class ServerBidiReactor : public ServerReactor {
  public:
    void StartRead(R *message) {
        AskRead(message, [this](bool ok) { OnReadDone(ok); });
    }
    void StartWrite(const W *message) { StartWrite(message, WriteOptions()); }
    void StartWrite(const W *message, WriteOptions options) {
        AskWrite(message, options, [this](bool ok) { OnWriteDone(ok); });
    }
    void StartWriteLast(const W *message, WriteOptions options) { StartWrite(message, options); }
    void StartWriteAndFinish(const W *message, WriteOptions options, Status status) {
        AskWriteAndFinish(message, options, std::move(status));
    }
    virtual void OnReadDone(bool /*ok*/) {}
    virtual void OnWriteDone(bool /*ok*/) {}
};

namespace internal {

class DefaultReactor final : public ServerUnaryReactor {
    void OnDone() override {}
};

// A reactor that answers at once and ends itself: of methods nobody implements.
template <class Reactor> class FinishingReactor final : public Reactor {
  public:
    explicit FinishingReactor(Status status) { this->Finish(std::move(status)); }

  private:
    void OnDone() override { delete this; }
};

// `make` gives a handler's reactor; null where it throws.
template <class Make> void Bind(Make make, const std::shared_ptr<ReactingServed> &served) {
    decltype(make()) reactor = nullptr;
    Quietly([&] { reactor = make(); });
    if (reactor != nullptr) return reactor->trunkline_bind(served);
    static_cast<ServerReactor *>(new FinishingReactor<ServerUnaryReactor>(
                                     Status(StatusCode::UNIMPLEMENTED, "the handler gave no reactor")))
        ->trunkline_bind(served);
}

// A handler that is asked for its reactor when the request is there.
template <class Request, class Act>
ServedMethod::Handler ReactingToRequest(experimental::ServerRpcInfo::Type type, Act act) {
    return {type, [act = std::move(act)](std::shared_ptr<ServerCall> call) {
        auto served = std::make_shared<ReactingServed>(call);
        auto request = std::make_shared<Request>();
        served->request = request;
        auto receives = [served, request](Batch &batch) {
            ServerAccess::ReceivesHeaders(served->context, batch);
            batch.ReceivesMessage(request.get());
        };
        auto acts = [served, request](Batch *, ServerCall::Done done) {
            served->call->Receive(
                served->queue, [request](tl_message received) { return Decode(received, request.get()); },
                std::move(done));
        };
        Between(call->NewBatch(), receives, acts, [act, served, request](bool ok) {
            if (ok) return act(served, request.get());
            Status none(StatusCode::INTERNAL, "there is no request");
            served->call->Finish(served->queue, none, std::nullopt, {}, [served](bool) {});
            served->call->Close([served] {});
        });
    }};
}

// A handler that is asked for its reactor before there is a request.
template <class Act> ServedMethod::Handler ReactingToCall(experimental::ServerRpcInfo::Type type, Act act) {
    return {type, [act = std::move(act)](std::shared_ptr<ServerCall> call) {
        auto served = std::make_shared<ReactingServed>(std::move(call));
        Between(
            served->call->NewBatch(), [served](Batch &batch) { ServerAccess::ReceivesHeaders(served->context, batch); },
            [](Batch *, ServerCall::Done done) { done(true); }, [act, served](bool) { act(served); });
    }};
}

template <class Response> Response *WithResponse(const std::shared_ptr<ReactingServed> &served) {
    auto response = std::make_shared<Response>();
    served->response = response;
    served->last = Last::Of(response.get());
    return response.get();
}

template <class Request, class Response>
ServedMethod::Handler
CallbackUnaryMethod(std::function<ServerUnaryReactor *(CallbackServerContext *, const Request *, Response *)> act) {
    auto reacts = [act = std::move(act)](const std::shared_ptr<ReactingServed> &served, Request *request) {
        Response *response = WithResponse<Response>(served);
        Bind([&] { return act(&served->context, request, response); }, served);
    };
    return ReactingToRequest<Request>(experimental::ServerRpcInfo::Type::UNARY, std::move(reacts));
}

template <class Request, class Response>
ServedMethod::Handler CallbackServerStreamingMethod(
    std::function<ServerWriteReactor<Response> *(CallbackServerContext *, const Request *)> act) {
    auto reacts = [act = std::move(act)](const std::shared_ptr<ReactingServed> &served, Request *request) {
        Bind([&] { return act(&served->context, request); }, served);
    };
    return ReactingToRequest<Request>(experimental::ServerRpcInfo::Type::SERVER_STREAMING, std::move(reacts));
}

template <class Request, class Response>
ServedMethod::Handler
CallbackClientStreamingMethod(std::function<ServerReadReactor<Request> *(CallbackServerContext *, Response *)> act) {
    auto reacts = [act = std::move(act)](const std::shared_ptr<ReactingServed> &served) {
        Response *response = WithResponse<Response>(served);
        Bind([&] { return act(&served->context, response); }, served);
    };
    return ReactingToCall(experimental::ServerRpcInfo::Type::CLIENT_STREAMING, std::move(reacts));
}

template <class Request, class Response>
ServedMethod::Handler
CallbackBidiMethod(std::function<ServerBidiReactor<Request, Response> *(CallbackServerContext *)> act) {
    auto reacts = [act = std::move(act)](const std::shared_ptr<ReactingServed> &served) {
        Bind([&] { return act(&served->context); }, served);
    };
    return ReactingToCall(experimental::ServerRpcInfo::Type::BIDI_STREAMING, std::move(reacts));
}

} // namespace internal

inline ServerUnaryReactor *CallbackServerContext::DefaultReactor() {
    if (default_reactor_ == nullptr) default_reactor_ = std::make_shared<internal::DefaultReactor>();
    return default_reactor_.get();
}

} // namespace grpc

#endif
