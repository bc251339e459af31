// Examines stubs that protoc-gen-trunkline made of examples/greeter: all four patterns. stubs [client]
//
// Without an argument server and client are here, with the daemon inside; as `client` it calls whoever serves.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <greeter.v1.trunkline.hpp>

using namespace greeter::v1;
using trunkline::Status;

#define CHECK(condition) check((condition), #condition, __LINE__)

static void check(bool holds, const char *condition, int line) {
    if (holds) return;
    std::fprintf(stderr, "line %d: does not hold: %s\n", line, condition);
    std::exit(1);
}

static HelloReply greeting(const std::string &hello, const std::string &name) {
    HelloReply out;
    out.set_message(hello + ", " + name + "!");
    return out;
}

class Greeter : public GreeterService {
    using Greetings = trunkline::ServedStream<HelloRequest, HelloReply>;

    Status SayHello(const HelloRequest &request, HelloReply &reply, trunkline::ServedCall &) override {
        if (request.name().empty()) return Status(TL_INVALID_ARGUMENT, "whom shall I greet?");
        reply = greeting("Hello", request.name());
        return Status();
    }

    Status SayHelloInManyTongues(const HelloRequest &request, Greetings &out, trunkline::ServedCall &) override {
        for (const char *hello : {"Hello", "Hej", "Salut", "Jambo"}) {
            if (!out.write(greeting(hello, request.name()))) break;
        }
        return Status();
    }

    Status SayHelloToAll(Greetings &in, HelloReply &reply, trunkline::ServedCall &) override {
        std::string names;
        while (auto request = in.read()) names += (names.empty() ? "" : " and ") + request->name();
        reply = greeting("Hello", names);
        return Status();
    }

    Status Introduce(Greetings &both, trunkline::ServedCall &) override {
        while (auto request = both.read()) both.write(greeting("Nice to meet you", request->name()));
        return Status();
    }
};

static HelloRequest named(const std::string &name) {
    HelloRequest out;
    out.set_name(name);
    return out;
}

static void examine(const GreeterClient &client) {
    CHECK(client.SayHello(named("Ada"))->message() == "Hello, Ada!");
    CHECK(client.SayHello(named("")).status().code() == TL_INVALID_ARGUMENT);
    auto tongues = client.SayHelloInManyTongues(named("Ada"));
    CHECK(tongues.ok());
    for (const char *hello : {"Hello", "Hej", "Salut", "Jambo"}) {
        CHECK(tongues->read()->message() == std::string(hello) + ", Ada!");
    }
    CHECK(!tongues->read() && tongues->finish().ok());
    auto all = client.SayHelloToAll();
    CHECK(all.ok() && all->write(named("Ada")).ok() && all->write(named("Eve")).ok() && all->done_writing().ok());
    CHECK(all->read()->message() == "Hello, Ada and Eve!" && all->finish().ok());
    auto both = client.Introduce();
    CHECK(both.ok());
    for (const char *name : {"Ada", "Eve"}) {
        CHECK(both->write(named(name)).ok());
        CHECK(both->read()->message() == std::string("Nice to meet you, ") + name + "!");
    }
    CHECK(both->done_writing().ok() && !both->read() && both->finish().ok());
}

int main(int argc, char **argv) {
    if (argc > 1 && std::strcmp(argv[1], "client") == 0) {
        examine(GreeterClient(trunkline::Channel::local().value()));
    } else {
        trunkline::Channel::Options inside;
        inside.daemon = TL_EMBEDDED;
        Greeter greeter;
        trunkline::Server::Options options;
        options.daemon = TL_EMBEDDED;
        auto server = trunkline::Server::start(options, {greeter.service()});
        CHECK(server.ok());
        examine(GreeterClient(trunkline::Channel::make(inside).value()));
    }
    std::printf("handles %" PRIu64 "\n", tl_handles_open());
    return tl_handles_open() == 0 ? 0 : 1;
}
