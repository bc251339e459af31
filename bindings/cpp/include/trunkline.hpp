// Trunkline for C++17 and later: trunkline.h with owners, values and exceptions kept on this side. Header only.
//
// What owns a handle releases it in its destructor; all of them move and none copies. Nothing here throws but
// `Result::value`, and nothing a handler throws leaves it: its call ends with UNKNOWN.
//
// `unary<Response>` and `Service::unary<Request, Response>` take any class with `SerializeToString(std::string *) const`
// and `ParseFromArray(const void *, int)`, as protobuf's have; and the classes over linear messages of
// trunkline_linear.hpp, which are neither encoded nor decoded.
#ifndef TRUNKLINE_HPP
#define TRUNKLINE_HPP

#include <trunkline.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
#include <unistd.h>

namespace trunkline {

// Pairs of keys and values, in order.
using Metadata = std::vector<std::pair<std::string, std::string>>;

// The first value of a key.
inline std::optional<std::string_view> first(const Metadata &metadata, std::string_view key) {
    for (const auto &[name, value] : metadata) {
        if (name == key) return std::string_view(value);
    }
    return std::nullopt;
}

namespace detail {

inline tl_slice slice(std::string_view text) {
    return {reinterpret_cast<const uint8_t *>(text.data()), text.size()};
}

inline std::string_view view(tl_slice slice) {
    return {reinterpret_cast<const char *>(slice.data), slice.len};
}

// A handle with an owner.
template <class H, tl_code (*Release)(H)> class Owned {
  public:
    Owned() = default;
    explicit Owned(H handle) : handle_(handle) {}
    Owned(Owned &&other) noexcept : handle_(std::exchange(other.handle_, H{})) {}
    Owned &operator=(Owned &&other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Owned() {
        if (handle_.id != 0) Release(handle_);
    }

    H get() const { return handle_; }
    H *out() { return &handle_; }
    explicit operator bool() const { return handle_.id != 0; }

  private:
    H handle_{};
};

using MetadataHandle = Owned<tl_metadata, tl_metadata_release>;
using MemoryHandle = Owned<tl_memory, tl_memory_release>;

inline Metadata read(tl_metadata handle) {
    Metadata out;
    tl_slice key, value;
    // Null is none.
    for (size_t at = 0, count = handle.id == 0 ? 0 : tl_metadata_count(handle); at < count; at++) {
        if (tl_metadata_at(handle, at, &key, &value, nullptr) == TL_OK) out.emplace_back(view(key), view(value));
    }
    return out;
}

} // namespace detail

// How something ended.
class Status {
  public:
    Status() = default;
    Status(tl_code code, std::string message, std::string details = {})
        : code_(code), message_(std::move(message)), details_(std::move(details)) {}

    bool ok() const { return code_ == TL_OK; }
    tl_code code() const { return code_; }
    const std::string &message() const { return message_; }
    // A serialized google.rpc.Status, or nothing.
    const std::string &details() const { return details_; }
    // Whether the handler may have run: TL_EXECUTED, TL_NOT_EXECUTED, TL_EXECUTION_UNKNOWN.
    uint32_t execution() const { return execution_; }
    // Trailers.
    const Metadata &metadata() const { return metadata_; }
    Metadata &metadata() { return metadata_; }

    // Takes what the library wrote.
    static Status take(tl_status handle) {
        // Null is OK.
        if (handle.id == 0) return Status();
        detail::Owned<tl_status, tl_status_release> owned(handle);
        Status out(tl_status_code(handle), std::string(detail::view(tl_status_message(handle))),
                   std::string(detail::view(tl_status_details(handle))));
        out.execution_ = tl_status_execution(handle);
        detail::MetadataHandle metadata;
        if (tl_status_metadata(handle, metadata.out(), nullptr) == TL_OK) {
            out.metadata_ = detail::read(metadata.get());
        }
        return out;
    }

  private:
    tl_code code_ = TL_OK;
    uint32_t execution_ = TL_EXECUTED;
    std::string message_, details_;
    Metadata metadata_;
};

// What `Result::value` throws.
class Error : public std::runtime_error {
  public:
    explicit Error(Status status) : std::runtime_error(status.message()), status_(std::move(status)) {}
    const Status &status() const { return status_; }

  private:
    Status status_;
};

// A value, or why there is none.
template <class T> class [[nodiscard]] Result {
  public:
    Result(T value) : value_(std::move(value)) {}
    Result(Status status) : status_(std::move(status)) {}

    bool ok() const { return value_.has_value(); }
    explicit operator bool() const { return ok(); }
    const Status &status() const { return status_; }
    T &operator*() { return *value_; }
    T *operator->() { return &*value_; }
    T &&value() && {
        if (!ok()) throw Error(status_);
        return std::move(*value_);
    }

  private:
    std::optional<T> value_;
    Status status_;
};

// A received message, where the daemon put it.
class Message {
  public:
    Message() = default;
    explicit Message(tl_message handle) : handle_(handle) {}
    tl_message get() const { return handle_.get(); }
    // Until this is destroyed. Nothing is copied.
    std::string_view bytes() const { return detail::view(tl_message_bytes(handle_.get())); }

  private:
    detail::Owned<tl_message, tl_message_release> handle_;
};

class ServedCall;

namespace detail {

// A message on its way out: bytes, or memory that it was built in.
struct Outgoing {
    std::string bytes;
    MemoryHandle built;
    size_t built_bytes = 0;
};

// How messages of a class are written and read. This is for protobuf's; trunkline_linear.hpp has its own.
template <class M, class = void> struct Codec {
    // False if it cannot be encoded. The memory is for what is sent through `channel`, or as an answer to `call`.
    template <class From> static bool encode(From &&message, tl_channel, tl_call, Outgoing &out) {
        return message.SerializeToString(&out.bytes);
    }

    static bool decode(Message message, M &out) {
        std::string_view bytes = message.bytes();
        return out.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
    }

    static M answer(const ServedCall &) { return M(); }
};

} // namespace detail

// What came of an operation.
struct Event {
    uint32_t kind = 0; // TL_EVENT_REPLY, ...
    uint64_t tag = 0;
    tl_call call{};
    Message message;
    Metadata headers;
    Status status; // its metadata are the trailers

    static Event take(tl_event &raw) {
        Event out;
        out.kind = raw.kind;
        out.tag = raw.tag;
        out.call = raw.call;
        out.message = Message(std::exchange(raw.message, tl_message{}));
        out.headers = detail::read(raw.headers);
        out.status = Status::take(std::exchange(raw.status, tl_status{}));
        if (out.status.ok()) out.status.metadata() = detail::read(raw.trailers);
        tl_event_clear(&raw);
        return out;
    }
};

// A completion queue.
class Queue {
  public:
    static Result<Queue> make() {
        Queue out;
        tl_status status;
        if (tl_queue_new(out.handle_.out(), &status) != TL_OK) return Status::take(status);
        return out;
    }

    // Readable while `next` has something to do.
    int fd() const { return tl_queue_fd(handle_.get()); }

    // Up to `most` events; waits for the first, for ever without a limit, and not at all if that has passed. None: none
    // came in time.
    Result<std::vector<Event>> next(size_t most = 16, std::optional<std::chrono::nanoseconds> limit = std::nullopt) {
        std::vector<tl_event> raw(most);
        std::vector<Event> out;
        size_t count = 0;
        tl_status status;
        // Below 0 is no limit: what has passed has passed.
        int64_t timeout = limit ? std::max<int64_t>(limit->count(), 0) : -1;
        if (tl_queue_next(handle_.get(), raw.data(), most, timeout, &count, &status) != TL_OK) {
            return Status::take(status);
        }
        for (size_t at = 0; at < count; at++) out.push_back(Event::take(raw[at]));
        return out;
    }

    tl_queue get() const { return handle_.get(); }

  private:
    detail::Owned<tl_queue, tl_queue_release> handle_;
};

// Settings of a call.
struct CallOptions {
    std::optional<std::chrono::nanoseconds> timeout;
    Metadata metadata;
    tl_call parent{}; // a delivered call: `ServedCall::get`
};

namespace detail {

// `CallOptions` as the library reads them.
class RawOptions {
  public:
    explicit RawOptions(const CallOptions &options, Outgoing *request = nullptr) {
        raw_.size = sizeof raw_;
        // 0 is no limit: what has passed has passed.
        if (options.timeout) raw_.timeout_ns = options.timeout->count() > 0 ? options.timeout->count() : 1;
        raw_.parent = options.parent;
        if (!options.metadata.empty()) status_ = write(options.metadata, metadata_);
        raw_.metadata = metadata_.get();
        // Released by the function that gets it: without one it stays the request's.
        if (request != nullptr && status_.ok()) {
            raw_.built = std::exchange(*request->built.out(), tl_memory{});
            raw_.built_bytes = request->built_bytes;
        }
    }

    const Status &status() const { return status_; }
    const tl_call_options *get() const { return &raw_; }

    static Status write(const Metadata &from, MetadataHandle &to) {
        tl_status status;
        if (tl_metadata_new(to.out(), &status) != TL_OK) return Status::take(status);
        for (const auto &[key, value] : from) {
            if (tl_metadata_add(to.get(), slice(key), slice(value), &status) != TL_OK) return Status::take(status);
        }
        return {};
    }

  private:
    tl_call_options raw_{};
    MetadataHandle metadata_;
    Status status_;
};

} // namespace detail

// A call of any pattern. Destroyed before its end, it is cancelled.
class Call {
  public:
    Call() = default;
    explicit Call(tl_call handle) : handle_(handle) {}

    // Waits until there is room for it.
    Status send(std::string_view message, bool last = false) {
        tl_status status;
        tl_call_send(get(), detail::slice(message), last ? TL_LAST : 0, tl_queue{}, 0, &status);
        return Status::take(status);
    }

    Status send(detail::Outgoing &message) {
        if (!message.built) return send(message.bytes);
        tl_status status;
        tl_memory built = std::exchange(*message.built.out(), tl_memory{});
        tl_call_send_built(get(), built, message.built_bytes, 0, tl_queue{}, 0, &status);
        return Status::take(status);
    }

    Status end_requests() {
        tl_status status;
        tl_call_end_requests(get(), &status);
        return Status::take(status);
    }

    // What comes next; kind TL_EVENT_END in the end.
    Event receive() {
        tl_event raw{};
        tl_status status;
        if (tl_call_receive(get(), tl_queue{}, 0, &raw, &status) == TL_OK) return Event::take(raw);
        Event out;
        out.kind = TL_EVENT_END;
        out.status = Status::take(status);
        return out;
    }

    void cancel() { tl_call_cancel(get(), nullptr); }
    tl_call get() const { return handle_.get(); }

  private:
    detail::Owned<tl_call, tl_call_release> handle_;
};

// Where calls go. Copies share it.
class Channel {
  public:
    struct Options {
        uint32_t daemon = TL_ANY_DAEMON;
        bool wait_for_ready = false;
        std::string target, socket, name;
    };

    static Result<Channel> make(const Options &options) {
        Channel out;
        tl_channel_options raw{};
        raw.size = sizeof raw;
        raw.daemon = options.daemon;
        raw.wait_for_ready = options.wait_for_ready;
        raw.target = detail::slice(options.target);
        raw.socket = detail::slice(options.socket);
        raw.name = detail::slice(options.name);
        tl_status status;
        if (tl_channel_new(&raw, out.handle_->out(), &status) != TL_OK) return Status::take(status);
        return out;
    }

    // To whoever serves the called service on this host.
    static Result<Channel> local() { return make(Options{}); }

    // The same for methods of a schema: messages are linear.
    Result<Channel> typed(tl_schema schema) const {
        Channel out;
        tl_status status;
        if (tl_channel_typed(get(), schema, out.handle_->out(), &status) != TL_OK) return Status::take(status);
        return out;
    }

    // One request, one response.
    Result<Message> unary(std::string_view method, std::string_view request, const CallOptions &how = {}) const {
        return answered(method, request, detail::RawOptions(how));
    }

    // The same with messages of classes. A linear request that is moved in is sent from where it was built.
    template <class Response, class Request, class = decltype(&std::decay_t<Request>::SerializeToString)>
    Result<Response> unary(std::string_view method, Request &&request, const CallOptions &how = {}) const {
        using Class = std::decay_t<Request>;
        detail::Outgoing out;
        if (!detail::Codec<Class>::encode(std::forward<Request>(request), get(), tl_call{}, out)) {
            return Status(TL_INVALID_ARGUMENT, "the request cannot be encoded");
        }
        Result<Message> reply = answered(method, out.bytes, detail::RawOptions(how, &out));
        if (!reply) return reply.status();
        Response response;
        if (!detail::Codec<Response>::decode(std::move(*reply), response)) {
            return Status(TL_INTERNAL, "the response cannot be decoded");
        }
        return response;
    }

    // Begins a call in a queue; its end is TL_EVENT_REPLY with `tag`.
    Result<Call> start_unary(std::string_view method, std::string_view request, const Queue &queue, uint64_t tag,
                             const CallOptions &how = {}) const {
        detail::RawOptions options(how);
        if (!options.status().ok()) return options.status();
        tl_call call;
        tl_status status;
        tl_code code = tl_unary_start(get(), detail::slice(method), detail::slice(request), options.get(), queue.get(),
                                      tag, &call, &status);
        if (code != TL_OK) return Status::take(status);
        return Call(call);
    }

    // Opens a call to send and receive along; with `only`, that is its one request.
    Result<Call> open(std::string_view method, const CallOptions &how = {},
                      std::optional<std::string_view> only = std::nullopt) const {
        return opened(method, detail::RawOptions(how), only);
    }

    Result<Call> open(std::string_view method, const CallOptions &how, detail::Outgoing &only) const {
        return opened(method, detail::RawOptions(how, &only), only.bytes);
    }

    tl_channel get() const { return handle_->get(); }

  private:
    Result<Message> answered(std::string_view method, std::string_view request,
                             const detail::RawOptions &options) const {
        if (!options.status().ok()) return options.status();
        tl_message reply;
        tl_status status;
        if (tl_unary(get(), detail::slice(method), detail::slice(request), options.get(), &reply, &status) != TL_OK) {
            return Status::take(status);
        }
        return Message(reply);
    }

    Result<Call> opened(std::string_view method, const detail::RawOptions &options,
                        std::optional<std::string_view> only) const {
        if (!options.status().ok()) return options.status();
        tl_call call;
        tl_status status;
        tl_code code = tl_call_open(get(), detail::slice(method), detail::slice(only.value_or(std::string_view())),
                                    only ? TL_LAST : TL_NO_MESSAGE, options.get(), tl_queue{}, 0, &call, &status);
        if (code != TL_OK) return Status::take(status);
        return Call(call);
    }

    using Handle = detail::Owned<tl_channel, tl_channel_release>;
    std::shared_ptr<Handle> handle_ = std::make_shared<Handle>();
};

// A call with messages of classes, as its caller has it.
template <class Request, class Response> class Stream {
  public:
    static Result<Stream> open(const Channel &channel, std::string_view method, const CallOptions &how) {
        return made(channel, channel.open(method, how));
    }

    template <class From>
    static Result<Stream> open(const Channel &channel, std::string_view method, From &&only, const CallOptions &how) {
        detail::Outgoing out;
        if (!Coded::encode(std::forward<From>(only), channel.get(), tl_call{}, out)) return unencoded();
        return made(channel, channel.open(method, how, out));
    }

    // Waits until there is room for it. A linear request that is moved in is sent from where it was built.
    Status write(const Request &request) { return sent(request); }
    Status write(Request &&request) { return sent(std::move(request)); }

    Status done_writing() { return call_.end_requests(); }

    // The next response; none at the end, of which `finish` tells.
    std::optional<Response> read() {
        while (!ended_) {
            Event event = call_.receive();
            if (event.kind == TL_EVENT_HEADERS) headers_ = std::move(event.headers);
            if (event.kind == TL_EVENT_END) ended_ = std::move(event.status);
            if (event.kind != TL_EVENT_MESSAGE) continue;
            Response response;
            if (detail::Codec<Response>::decode(std::move(event.message), response)) return response;
            call_.cancel();
            ended_ = Status(TL_INTERNAL, "a response cannot be decoded");
        }
        return std::nullopt;
    }

    // How the call ended; reads what is left.
    Status finish() {
        while (read()) {
        }
        return *ended_;
    }

    // Response headers, once a response or the end was read.
    const Metadata &headers() const { return headers_; }
    void cancel() { call_.cancel(); }

  private:
    using Coded = detail::Codec<Request>;

    Stream(Channel channel, Call call) : channel_(std::move(channel)), call_(std::move(call)) {}

    static Result<Stream> made(const Channel &channel, Result<Call> call) {
        if (!call) return call.status();
        return Stream(channel, std::move(*call));
    }

    static Status unencoded() { return Status(TL_INVALID_ARGUMENT, "the request cannot be encoded"); }

    template <class From> Status sent(From &&request) {
        detail::Outgoing out;
        if (!Coded::encode(std::forward<From>(request), channel_.get(), tl_call{}, out)) return unencoded();
        return call_.send(out);
    }

    Channel channel_;
    Call call_;
    Metadata headers_;
    std::optional<Status> ended_;
};

// A call that was delivered. Unanswered when destroyed, its caller gets UNAVAILABLE.
class ServedCall {
  public:
    explicit ServedCall(tl_call handle) : call_(handle) {}

    std::string_view method() const { return detail::view(tl_call_method(get())); }

    Metadata metadata() const {
        detail::MetadataHandle handle;
        tl_call_metadata(get(), handle.out(), nullptr);
        return detail::read(handle.get());
    }

    // How long there is to answer; none without a limit.
    std::optional<std::chrono::nanoseconds> time_left() const {
        int64_t left = tl_call_time_left(get());
        if (left == INT64_MAX) return std::nullopt;
        return std::chrono::nanoseconds(left);
    }

    // TL_EVENT_MESSAGE, TL_EVENT_REQUESTS_END, or TL_EVENT_END when the call is no longer wanted.
    Event receive() { return call_.receive(); }
    Status send(std::string_view message) { return call_.send(message); }
    Status send(detail::Outgoing &message) { return call_.send(message); }

    Status send_headers(const Metadata &headers) {
        detail::MetadataHandle handle;
        Status written = detail::RawOptions::write(headers, handle);
        if (!written.ok()) return written;
        tl_status status;
        tl_call_send_headers(get(), handle.get(), tl_queue{}, 0, &status);
        return Status::take(status);
    }

    // Whether the call is over: answered, or no longer wanted.
    bool is_over() const { return tl_call_is_over(get()) != 0; }

    // Waits until the call is over: answered, or no longer wanted.
    void wait_over() { tl_call_watch(get(), tl_queue{}, 0, nullptr); }

    // Answers, with a last response if there is one. The status's metadata are the trailers.
    Status finish(const Status &with, std::optional<std::string_view> message = std::nullopt) {
        return finished(with, message, nullptr);
    }

    Status finish(const Status &with, detail::Outgoing &message) {
        return finished(with, message.bytes, &message);
    }

    tl_call get() const { return call_.get(); }

  private:
    Status finished(const Status &with, std::optional<std::string_view> message, detail::Outgoing *out) {
        detail::MetadataHandle trailers;
        Status written = detail::RawOptions::write(with.metadata(), trailers);
        if (!written.ok()) return written;
        tl_outcome outcome{};
        outcome.size = sizeof outcome;
        outcome.code = with.code();
        outcome.message = detail::slice(with.message());
        outcome.details = detail::slice(with.details());
        outcome.trailers = trailers.get();
        if (out != nullptr) {
            outcome.built = std::exchange(*out->built.out(), tl_memory{});
            outcome.built_bytes = out->built_bytes;
        }
        tl_slice last = detail::slice(message.value_or(std::string_view()));
        tl_status status;
        tl_call_finish(get(), &outcome, message ? &last : nullptr, tl_queue{}, 0, &status);
        return Status::take(status);
    }

    Call call_;
};

// A call with messages of classes, as its server has it.
template <class Request, class Response> class ServedStream {
  public:
    explicit ServedStream(ServedCall &call) : call_(call) {}

    // The next request; none after the last, when the call is no longer wanted, and for one that cannot be decoded:
    // `ended` says which.
    std::optional<Request> read() {
        Event event = call_.receive();
        if (event.kind == TL_EVENT_END) ended_ = std::move(event.status);
        if (event.kind != TL_EVENT_MESSAGE) return std::nullopt;
        Request request;
        if (detail::Codec<Request>::decode(std::move(event.message), request)) return request;
        ended_ = fault_ = Status(TL_INVALID_ARGUMENT, "a request cannot be decoded");
        return std::nullopt;
    }

    // Waits until there is room for it; false when the call is no longer wanted. A linear response that is moved in is
    // sent from where it was built.
    bool write(const Response &response) { return sent(response); }
    bool write(Response &&response) { return sent(std::move(response)); }

    // Why `read` gave none before the last request: the call is no longer wanted, or a request cannot be decoded. OK
    // otherwise: those were all.
    const Status &ended() const { return ended_; }

    // What was wrong with a message.
    const Status &fault() const { return fault_; }

  private:
    template <class From> bool sent(From &&response) {
        detail::Outgoing out;
        if (detail::Codec<Response>::encode(std::forward<From>(response), tl_channel{}, call_.get(), out)) {
            return call_.send(out).ok();
        }
        fault_ = Status(TL_INTERNAL, "a response cannot be encoded");
        return false;
    }

    ServedCall &call_;
    Status fault_, ended_;
};

// A service's methods.
class Service {
  public:
    // Answers by itself what it does not answer with `finish`: nothing.
    using Handler = std::function<void(ServedCall &)>;

    // With a schema, whose handle must stay open until the server was started, messages are linear.
    explicit Service(std::string name, tl_schema schema = {}) : name_(std::move(name)), schema_(schema) {}

    const std::string &name() const { return name_; }
    tl_schema schema() const { return schema_; }

    // A method of any pattern.
    Service &method(const std::string &name, Handler handler) {
        methods_["/" + name_ + "/" + name] = std::move(handler);
        return *this;
    }

    // A method of one request and one response: `act(request, call)` gives a `Result<std::string>`.
    Service &unary(const std::string &name, std::function<Result<std::string>(std::string_view, ServedCall &)> act) {
        return method(name, [act = std::move(act)](ServedCall &call) {
            Event request = call.receive();
            if (request.kind == TL_EVENT_REQUESTS_END) {
                call.finish(Status(TL_INTERNAL, "the call came without its request"));
            }
            if (request.kind != TL_EVENT_MESSAGE) return;
            Result<std::string> response = act(request.message.bytes(), call);
            if (response) {
                call.finish(Status(), std::string_view(*response));
            } else {
                call.finish(response.status());
            }
        });
    }

    // The same with messages of classes: `act(request, response, call)` gives a status.
    template <class Request, class Response>
    Service &unary(const std::string &name, std::function<Status(const Request &, Response &, ServedCall &)> act) {
        return method(name, [act = std::move(act)](ServedCall &call) {
            Event event = call.receive();
            if (event.kind == TL_EVENT_REQUESTS_END) {
                call.finish(Status(TL_INTERNAL, "the call came without its request"));
            }
            if (event.kind != TL_EVENT_MESSAGE) return;
            Request request;
            if (!detail::Codec<Request>::decode(std::move(event.message), request)) {
                call.finish(Status(TL_INVALID_ARGUMENT, "the request cannot be decoded"));
                return;
            }
            Response response = detail::Codec<Response>::answer(call);
            Status status = act(request, response, call);
            detail::Outgoing out;
            if (!status.ok()) {
                call.finish(status);
            } else if (detail::Codec<Response>::encode(std::move(response), tl_channel{}, call.get(), out)) {
                call.finish(status, out);
            } else {
                call.finish(Status(TL_INTERNAL, "the response cannot be encoded"));
            }
        });
    }

    // One request, many responses: `act(request, stream, call)` gives a status.
    template <class Request, class Response>
    Service &server_streaming(
        const std::string &name,
        std::function<Status(const Request &, ServedStream<Request, Response> &, ServedCall &)> act) {
        return bidirectional<Request, Response>(name, [act = std::move(act)](auto &stream, ServedCall &call) {
            std::optional<Request> request = stream.read();
            if (!request) return Status(TL_INTERNAL, "the call came without its request");
            return act(*request, stream, call);
        });
    }

    // Many requests, one response: `act(stream, response, call)` gives a status.
    template <class Request, class Response>
    Service &client_streaming(
        const std::string &name,
        std::function<Status(ServedStream<Request, Response> &, Response &, ServedCall &)> act) {
        return bidirectional<Request, Response>(name, [act = std::move(act)](auto &stream, ServedCall &call) {
            Response response = detail::Codec<Response>::answer(call);
            Status status = act(stream, response, call);
            if (status.ok() && stream.fault().ok()) stream.write(std::move(response));
            return status;
        });
    }

    // Many of both: `act(stream, call)` gives a status.
    template <class Request, class Response>
    Service &bidirectional(const std::string &name,
                           std::function<Status(ServedStream<Request, Response> &, ServedCall &)> act) {
        return method(name, [act = std::move(act)](ServedCall &call) {
            ServedStream<Request, Response> stream(call);
            Status status = act(stream, call);
            call.finish(stream.fault().ok() ? status : stream.fault());
        });
    }

    // Handles one call: the thread's own calls inherit its deadline, cancellation and trace context meanwhile.
    void handle(ServedCall &call) const {
        auto found = methods_.find(std::string(call.method()));
        if (found == methods_.end()) {
            call.finish(Status(TL_UNIMPLEMENTED, "this server does not implement the method"));
            return;
        }
        bool entered = tl_context_enter(call.get(), nullptr) == TL_OK;
        try {
            found->second(call);
        } catch (const Error &error) {
            // Where its metadata cannot be sent, without them.
            const Status &status = error.status();
            if (!call.finish(status).ok()) call.finish(Status(status.code(), status.message()));
        } catch (const std::exception &error) {
            call.finish(Status(TL_UNKNOWN, error.what()));
        } catch (...) {
            call.finish(Status(TL_UNKNOWN, "the handler threw"));
        }
        if (entered) tl_context_leave(nullptr);
    }

  private:
    std::string name_;
    tl_schema schema_;
    std::map<std::string, Handler, std::less<>> methods_;
};

// Serves calls on threads of its own, each with one call at a time. Destroyed, it is shut down.
class Server {
  public:
    struct Options {
        uint32_t daemon = TL_ANY_DAEMON;
        std::string socket, name;
        // Threads that handle calls. With 0 the threads that receive calls handle them, which saves changing threads:
        // for handlers that do not take long, and do not wait.
        size_t threads = 2;
        // Threads that receive calls.
        uint32_t workers = 1;
        std::chrono::nanoseconds grace = std::chrono::seconds(10);
        // How long `start` waits for calls to arrive, where there is no daemon yet: then it returns all the same, and the
        // server goes on waiting. Negative: for ever.
        std::chrono::nanoseconds ready_within = std::chrono::nanoseconds(-1);
    };

    // Starts serving; returns when calls arrive, or the options' time for that is over.
    static Result<std::unique_ptr<Server>> start(const Options &options, std::vector<Service> services) {
        auto server = std::unique_ptr<Server>(new Server(std::move(services), options.grace));
        Status status = server->begin(options);
        if (!status.ok()) return status;
        return server;
    }

    // Waits until calls arrive, for ever if the time is negative; TL_DEADLINE_EXCEEDED if they do not by then.
    Status ready(std::chrono::nanoseconds within = std::chrono::nanoseconds(-1)) const {
        tl_status status;
        tl_server_ready_within(handle_.get(), within.count(), &status);
        return Status::take(status);
    }

    // Takes no new calls and gives those in flight the grace of the options. A forked child has no server: there is
    // nothing to stop.
    void shutdown() {
        if (getpid() != process_) return forget();
        tl_server_shutdown(handle_.get(), grace_.count(), nullptr);
        tl_queue_release(queue_);
        for (std::thread &thread : threads_) thread.join();
        threads_.clear();
    }

    Server(const Server &) = delete;
    ~Server() { shutdown(); }

  private:
    Server(std::vector<Service> services, std::chrono::nanoseconds grace)
        : services_(std::move(services)), grace_(grace) {}

    Status begin(const Options &options) {
        tl_status status;
        tl_server_options raw{};
        raw.size = sizeof raw;
        raw.daemon = options.daemon;
        raw.workers = options.workers;
        raw.socket = detail::slice(options.socket);
        raw.name = detail::slice(options.name);
        if (tl_queue_new(&queue_, &status) != TL_OK) return Status::take(status);
        if (tl_server_new(&raw, handle_.out(), &status) != TL_OK) return Status::take(status);
        for (size_t at = 0; at < services_.size(); at++) {
            Service &service = services_[at];
            tl_slice name = detail::slice(service.name());
            tl_handler handler = options.threads == 0 ? &Server::received : nullptr;
            tl_code code = service.schema().id == 0
                               ? tl_server_add_service(handle_.get(), name, queue_, at, handler, &service, &status)
                               : tl_server_add_typed_service(handle_.get(), service.schema(), name, queue_, at,
                                                             handler, &service, &status);
            if (code != TL_OK) return Status::take(status);
        }
        for (size_t at = 0; at < options.threads; at++) threads_.emplace_back([this] { serve(); });
        if (tl_server_start(handle_.get(), &status) != TL_OK) return Status::take(status);
        Status arrive = ready(options.ready_within);
        return arrive.code() == TL_DEADLINE_EXCEEDED ? Status() : arrive;
    }

    // Threads that a child does not have can be neither joined nor let go of: they are kept until it ends.
    void forget() {
        static auto &kept = *new std::vector<std::vector<std::thread>>();
        kept.push_back(std::move(threads_));
        threads_.clear();
        tl_queue_release(queue_);
    }

    static void received(void *service, tl_call handle) {
        ServedCall call(handle);
        static_cast<const Service *>(service)->handle(call);
    }

    void serve() {
        tl_event event;
        size_t count = 0;
        while (tl_queue_next(queue_, &event, 1, -1, &count, nullptr) == TL_OK) {
            if (count == 0) continue;
            if (event.kind == TL_EVENT_CALL) {
                ServedCall call(event.call);
                services_[event.tag].handle(call);
            }
            tl_event_clear(&event);
        }
    }

    std::vector<Service> services_;
    std::chrono::nanoseconds grace_;
    detail::Owned<tl_server, tl_server_release> handle_;
    tl_queue queue_{};
    std::vector<std::thread> threads_;
    pid_t process_ = getpid();
};

} // namespace trunkline

#endif
