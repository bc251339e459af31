// Examines trunkline.hpp: server and client in one process, with the daemon inside it. Leaves no handle.
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <poll.h>
#include <sys/wait.h>
#include <trunkline.hpp>
#include <unistd.h>

using namespace trunkline;

#define CHECK(condition) check((condition), #condition, __LINE__)

static void check(bool holds, const char *condition, int line) {
    if (holds) return;
    std::fprintf(stderr, "line %d: does not hold: %s\n", line, condition);
    std::exit(1);
}

// A message class with protobuf's methods: its bytes are `text`, and what begins with '!' cannot be decoded.
struct Text {
    std::string text;
    bool SerializeToString(std::string *out) const {
        *out = text;
        return text != "unencodable";
    }
    bool ParseFromArray(const void *data, int size) {
        text.assign(static_cast<const char *>(data), static_cast<size_t>(size));
        return text.empty() || text[0] != '!';
    }
};

static const std::string SERVICE = "exam.v1.Cpp";

static std::string path(const char *method) { return "/" + SERVICE + "/" + method; }

// Request streams that were read to their end, and that were cut off.
static std::atomic<int> whole{0}, cut_off{0};

static Service service(const Channel &onward, std::atomic<int> &hung) {
    Service service(SERVICE);
    service.unary("Echo", [](std::string_view request, ServedCall &) -> Result<std::string> {
        return std::string(request);
    });
    service.unary<Text, Text>("Shout", [](const Text &request, Text &response, ServedCall &) {
        response.text = request.text + "!";
        return Status();
    });
    service.unary("Fail", [](std::string_view, ServedCall &) -> Result<std::string> {
        Status status(TL_NOT_FOUND, "nobody", "\x08\x05");
        status.metadata().emplace_back("ended", "yes");
        return status;
    });
    service.unary("Throw", [](std::string_view, ServedCall &) -> Result<std::string> {
        throw std::runtime_error("on order");
    });
    service.unary("Pass", [&onward](std::string_view, ServedCall &) -> Result<std::string> {
        return std::string(onward.unary(path("Fail"), "x").value().bytes());
    });
    service.unary("ThrowUnsendable", [](std::string_view, ServedCall &) -> Result<std::string> {
        Status status(TL_NOT_FOUND, "with no key");
        status.metadata().emplace_back("no key", "x");
        throw Error(status);
    });
    service.unary("Relay", [&onward](std::string_view, ServedCall &call) -> Result<std::string> {
        CHECK(call.time_left().has_value());
        // No limit but the inherited one.
        return Status(onward.unary(path("Hang"), "x").status());
    });
    service.method("Hang", [&hung](ServedCall &call) {
        call.wait_over();
        CHECK(!call.send("too late").ok());
        hung++;
    });
    service.client_streaming<Text, Text>("Gather", [](ServedStream<Text, Text> &stream, Text &out, ServedCall &call) {
        CHECK(call.send_headers({{"begun", "yes"}}).ok());
        while (auto request = stream.read()) out.text += request->text;
        CHECK(stream.ended().ok() != (call.is_over() || !stream.fault().ok()));
        (stream.ended().ok() ? whole : cut_off)++;
        return Status();
    });
    service.method("Chat", [](ServedCall &call) {
        CHECK(call.send_headers(call.metadata()).ok());
        for (;;) {
            Event event = call.receive();
            if (event.kind == TL_EVENT_END) return;
            if (event.kind == TL_EVENT_REQUESTS_END) break;
            CHECK(call.send(event.message.bytes()).ok());
        }
        Status ended;
        ended.metadata().emplace_back("ended", "yes");
        call.finish(ended, "last");
        CHECK(call.finish(ended).code() == TL_FAILED_PRECONDITION);
    });
    return service;
}

static void unary(const Channel &channel) {
    CHECK(channel.unary(path("Echo"), "hello").value().bytes() == "hello");
    CHECK(channel.unary<Text>(path("Shout"), Text{"hello"})->text == "hello!");
    CHECK(channel.unary<Text>(path("Echo"), Text{"!"}).status().code() == TL_INTERNAL);
    CHECK(channel.unary<Text>(path("Shout"), Text{"!"}).status().code() == TL_INVALID_ARGUMENT);
    CHECK(channel.unary<Text>(path("Echo"), Text{"unencodable"}).status().code() == TL_INVALID_ARGUMENT);
    auto failed = channel.unary(path("Fail"), "x");
    CHECK(!failed && failed.status().code() == TL_NOT_FOUND && failed.status().message() == "nobody");
    CHECK(failed.status().details() == "\x08\x05" && failed.status().execution() == TL_EXECUTED);
    CHECK(first(failed.status().metadata(), "ended") == "yes" && !first(failed.status().metadata(), "begun"));
    CHECK(channel.unary(path("Throw"), "x").status().message() == "on order");
    auto passed = channel.unary(path("Pass"), "x");
    CHECK(passed.status().code() == TL_NOT_FOUND && passed.status().message() == "nobody");
    CHECK(passed.status().details() == "\x08\x05" && first(passed.status().metadata(), "ended") == "yes");
    auto unsendable = channel.unary(path("ThrowUnsendable"), "x").status();
    CHECK(unsendable.code() == TL_NOT_FOUND && unsendable.message() == "with no key");
    CHECK(channel.unary(path("Missing"), "x").status().code() == TL_UNIMPLEMENTED);
    auto nobody = channel.unary("/nobody.v1.Nobody/Here", "x");
    CHECK(nobody.status().code() == TL_UNAVAILABLE && nobody.status().execution() == TL_NOT_EXECUTED);
    try {
        std::move(nobody).value();
        CHECK(false);
    } catch (const Error &error) {
        CHECK(error.status().code() == TL_UNAVAILABLE);
    }
    std::puts("unary");
}

static void deadlines(const Channel &channel, std::atomic<int> &hung) {
    CallOptions soon;
    soon.timeout = std::chrono::milliseconds(50);
    // A call whose deadline passes before it is delivered is never handled.
    do {
        CHECK(channel.unary(path("Hang"), "x", soon).status().code() == TL_DEADLINE_EXCEEDED);
    } while (hung == 0);
    for (int before = hung; hung == before;) {
        CHECK(channel.unary(path("Relay"), "x", soon).status().code() == TL_DEADLINE_EXCEEDED);
    }
    std::puts("deadlines");
}

static void streams(const Channel &channel) {
    CallOptions options;
    options.metadata = {{"who", "C++"}, {"blob-bin", std::string("\0\1", 2)}};
    auto call = channel.open(path("Chat"), options);
    CHECK(call.ok());
    Event event = call->receive();
    CHECK(event.kind == TL_EVENT_HEADERS && first(event.headers, "who") == "C++");
    CHECK(first(event.headers, "blob-bin") == std::string_view("\0\1", 2));
    for (int number = 0; number < 20; number++) {
        std::string text = std::to_string(number);
        CHECK(call->send(text).ok());
        CHECK(call->receive().message.bytes() == text);
    }
    CHECK(call->end_requests().ok());
    CHECK(call->receive().message.bytes() == "last");
    event = call->receive();
    CHECK(event.kind == TL_EVENT_END && event.status.ok() && first(event.status.metadata(), "ended") == "yes");
    // A handler knows a request stream that was cut off from one that has ended.
    auto gathers = Stream<Text, Text>::open(channel, path("Gather"), {});
    CHECK(gathers.ok() && gathers->write(Text{"a"}).ok() && gathers->write(Text{"b"}).ok());
    CHECK(gathers->done_writing().ok() && gathers->read()->text == "ab" && gathers->finish().ok());
    CHECK(whole == 1 && cut_off == 0);
    auto gather = channel.open(path("Gather"));
    CHECK(gather.ok() && gather->receive().kind == TL_EVENT_HEADERS);
    gather->cancel();
    while (cut_off == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(whole == 1);
    // And one with a request that cannot be decoded.
    auto garbled = Stream<Text, Text>::open(channel, path("Gather"), {});
    CHECK(garbled.ok() && garbled->write(Text{"a"}).ok() && garbled->write(Text{"!"}).ok());
    CHECK(!garbled->read() && garbled->finish().code() == TL_INVALID_ARGUMENT);
    CHECK(whole == 1 && cut_off == 2);
    std::puts("streams");
}

static void queued(const Channel &channel) {
    auto queue = Queue::make();
    CHECK(queue.ok());
    // A time that has passed, as loops with timers come by.
    CHECK(queue->next(1, std::chrono::nanoseconds(-1))->empty());
    std::vector<Call> calls;
    std::vector<bool> seen(100);
    for (uint64_t tag = 0; tag < seen.size(); tag++) {
        auto call = channel.start_unary(path("Echo"), std::to_string(tag), *queue, tag);
        CHECK(call.ok());
        calls.push_back(std::move(*call));
    }
    for (size_t count = 0; count < seen.size();) {
        pollfd fd = {queue->fd(), POLLIN, 0};
        CHECK(poll(&fd, 1, -1) == 1);
        auto events = queue->next(16, std::chrono::nanoseconds(0));
        CHECK(events.ok());
        for (Event &event : *events) {
            CHECK(event.kind == TL_EVENT_REPLY && event.status.ok() && !seen[event.tag]);
            CHECK(event.message.bytes() == std::to_string(event.tag));
            seen[event.tag] = true;
            count++;
        }
    }
    std::puts("queued");
}

// A forked child has its parent's server in hand, with no thread of it, and lets go.
static void inherited(std::unique_ptr<Server> server) {
    CHECK(server->ready().ok() && server->ready(std::chrono::nanoseconds(0)).ok());
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        CHECK(server->ready().code() == TL_UNAVAILABLE);
        server.reset();
        _exit(0);
    }
    int ended = -1;
    CHECK(waitpid(child, &ended, 0) == child && ended == 0);
}

// A server that has no daemon is there all the same, and says so to who asks.
static void without_a_daemon() {
    Server::Options options;
    options.daemon = TL_ATTACHED;
    options.socket = "/nowhere/daemon.sock";
    options.ready_within = std::chrono::milliseconds(1);
    auto server = Server::start(options, {Service("exam.v1.Nowhere")});
    CHECK(server.ok());
    CHECK((*server)->ready(std::chrono::nanoseconds(0)).code() == TL_DEADLINE_EXCEEDED);
}

int main() {
    {
        Channel::Options inside;
        inside.daemon = TL_EMBEDDED;
        auto channel = Channel::make(inside);
        CHECK(channel.ok());
        std::atomic<int> hung{0};
        Server::Options options;
        options.daemon = TL_EMBEDDED;
        options.threads = 4;
        std::vector<Service> services;
        services.push_back(service(*channel, hung));
        auto server = Server::start(options, std::move(services));
        CHECK(server.ok());
        unary(*channel);
        deadlines(*channel, hung);
        streams(*channel);
        queued(*channel);
        inherited(std::move(*server));
        without_a_daemon();
    }
    std::printf("handles %" PRIu64 "\n", tl_handles_open());
    return tl_handles_open() == 0 ? 0 : 1;
}
