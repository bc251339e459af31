// Calls that are opened in parts, and what their contexts say: of Trunkline's surface only.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <system_error>

#include "common.h"
#include "servers.h"

namespace exam {

// The sanitizer of classes looks at objects through a pipe, for which there is no descriptor then.
#if defined(__SANITIZE_ADDRESS__)
#define EXAM_NEEDS_DESCRIPTORS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EXAM_NEEDS_DESCRIPTORS 1
#endif
#endif

// A process that may open no more descriptors: who asks for a queue, or is the first to ask for a callback, is told, and
// gets it once there are some.
inline void without_descriptors([[maybe_unused]] const std::string &address) {
#ifndef EXAM_NEEDS_DESCRIPTORS
    BlockingExam service;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    auto server = builder.BuildAndStart();
    CHECK(server != nullptr);
    auto stub = v1::Exam::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    grpc::ClientContext first, refused, later;
    Text request = text("hello"), response;
    CHECK(stub->Echo(&first, request, &response).ok());
    rlimit before{};
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    int free = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(free >= 0 && close(free) == 0);
    rlimit none = before;
    none.rlim_cur = static_cast<rlim_t>(free);
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    bool queue_is_refused = false, call_is_refused = false;
    try {
        grpc::CompletionQueue queue;
    } catch (const std::system_error &error) {
        queue_is_refused = error.code() == std::errc::too_many_files_open;
    }
    try {
        stub->async()->Echo(&refused, &request, &response, [](grpc::Status) {});
    } catch (const std::system_error &error) {
        call_is_refused = error.code() == std::errc::too_many_files_open;
    }
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(queue_is_refused && call_is_refused);
    Gate told;
    stub->async()->Echo(&later, &request, &response, [&told](grpc::Status status) {
        CHECK(status.ok());
        told.open();
    });
    told.wait();
    grpc::CompletionQueue queue;
    queue.Shutdown();
    server->Shutdown();
#endif
}

// What a plugin is told that it signs for.
inline void signed_for() {
    struct Plugin final : grpc::MetadataCredentialsPlugin {
        explicit Plugin(std::string *told) : told(told) {}
        grpc::Status GetMetadata(grpc::string_ref url, grpc::string_ref method, const grpc::AuthContext &,
                                 std::multimap<std::string, std::string> *) override {
            *told = std::string(url.data(), url.size()) + " " + std::string(method.data(), method.size());
            // The call is not made: nobody is there.
            return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "not signed");
        }
        std::string *told;
    };
    auto told_for = [](const std::string &target, const std::string &authority) {
        std::string told;
        grpc::ClientContext context;
        context.set_credentials(grpc::MetadataCredentialsFromPlugin(std::make_unique<Plugin>(&told)));
        if (!authority.empty()) context.set_authority(authority);
        auto stub = v1::Exam::NewStub(grpc::CreateChannel(target, grpc::InsecureChannelCredentials()));
        Text response;
        CHECK(stub->Echo(&context, text("hello"), &response).error_code() == grpc::StatusCode::UNAUTHENTICATED);
        return told;
    };
    const char *expected[][3] = {
        {"dns:///search.internal:443", "", "search.internal"},
        {"dns://1.2.3.4/search.internal:8443", "", "search.internal:8443"},
        {"dns:search.internal", "", "search.internal"},
        {"search.internal:443", "", "search.internal"},
        {"ipv4:10.0.0.7:50051,10.0.0.8:50051", "", "10.0.0.7:50051"},
        {"ipv6:[fd00::7]:443", "", "[fd00::7]"},
        {"tls://search.internal@10.0.0.7:7443", "", "search.internal:7443"},
        {"unix:/run/search", "", "localhost"},
        {"search.v1.Search", "", "search.v1.Search"},
        {"", "", "localhost"},
        {"dns:///search.internal:443", "other.internal:9", "other.internal:9"},
        {"localhost:50051", "other.internal:443", "other.internal"},
    };
    for (const auto &[target, authority, host] : expected) {
        CHECK(told_for(target, authority) == std::string("https://") + host + "/exam.v1.Exam Echo");
    }
}

// Queues that are looked at when their descriptor says so, one tag at a time.
class WatchedQueue {
  public:
    explicit WatchedQueue(grpc::CompletionQueue *queue) : queue_(queue), fd_(queue->trunkline_fd()) {}

    grpc::CompletionQueue::NextStatus next(void **tag, bool *ok) {
        for (;;) {
            pollfd watched{fd_, POLLIN, 0};
            CHECK(poll(&watched, 1, 60000) == 1);
            auto now = std::chrono::system_clock::time_point();
            auto got = queue_->AsyncNext(tag, ok, now);
            if (got != grpc::CompletionQueue::TIMEOUT) return got;
        }
    }
    void expect(void *wanted, bool ok) {
        void *tag = nullptr;
        bool is_ok = !ok;
        CHECK(next(&tag, &is_ok) == grpc::CompletionQueue::GOT_EVENT && tag == wanted && is_ok == ok);
    }
    void expect_end() {
        void *tag;
        bool ok;
        CHECK(next(&tag, &ok) == grpc::CompletionQueue::SHUTDOWN);
        CHECK(next(&tag, &ok) == grpc::CompletionQueue::SHUTDOWN);
    }

  private:
    grpc::CompletionQueue *queue_;
    int fd_;
};

inline void watched(const std::string &address) {
    QueuedExam exam;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&exam.service);
    auto serving = builder.AddCompletionQueue();
    auto server = builder.BuildAndStart();
    CHECK(server != nullptr);
    exam.begin(serving.get());
    std::thread serves([&serving] {
        WatchedQueue queue(serving.get());
        void *tag;
        bool ok;
        while (queue.next(&tag, &ok) == grpc::CompletionQueue::GOT_EVENT) take(tag, ok);
    });
    auto stub = v1::Exam::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    int tags[4];
    grpc::CompletionQueue queue;
    WatchedQueue watches(&queue);
    // Nobody's event: what timers say, two at once, and what was there before anybody watched.
    auto soon = [] { return std::chrono::system_clock::now() + std::chrono::milliseconds(5); };
    grpc::Alarm alarm(&queue, soon(), &tags[0]);
    watches.expect(&tags[0], true);
    for (int round = 0; round < 20; round++) {
        grpc::Alarm one(&queue, soon() + std::chrono::hours(1), &tags[1]);
        grpc::Alarm other(&queue, soon() + std::chrono::hours(1), &tags[2]);
        one.Cancel();
        other.Cancel();
        watches.expect(&tags[1], false);
        watches.expect(&tags[2], false);
    }
    grpc::CompletionQueue late;
    grpc::Alarm past(&late, std::chrono::system_clock::time_point(), &tags[3]);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    WatchedQueue(&late).expect(&tags[3], true);
    late.Shutdown();
    WatchedQueue(&late).expect_end();
    // Calls: one that is not made at all, and a stream to a server that watches, too.
    grpc::ClientContext cancelled, talks;
    cancelled.TryCancel();
    Text response;
    grpc::Status status;
    auto call = stub->AsyncEcho(&cancelled, text("hello"), &queue);
    call->Finish(&response, &status, &tags[0]);
    watches.expect(&tags[0], true);
    CHECK(status.error_code() == grpc::StatusCode::CANCELLED);
    auto talk = stub->AsyncTalk(&talks, &queue, &tags[1]);
    watches.expect(&tags[1], true);
    for (const char *said : {"a", "b"}) {
        talk->Write(text(said), &tags[0]);
        watches.expect(&tags[0], true);
        talk->Read(&response, &tags[1]);
        watches.expect(&tags[1], true);
        CHECK(response.text() == said);
    }
    talk->WritesDone(&tags[0]);
    watches.expect(&tags[0], true);
    talk->Read(&response, &tags[1]);
    watches.expect(&tags[1], false);
    talk->Finish(&status, &tags[2]);
    watches.expect(&tags[2], true);
    CHECK(status.ok());
    queue.Shutdown();
    watches.expect_end();
    server->Shutdown();
    serving->Shutdown();
    serves.join();
}

// A unary reactor that looks at headers.
struct Looking : grpc::ClientUnaryReactor {
    void OnReadInitialMetadataDone(bool) override {}
    void OnDone(const grpc::Status &said) override {
        status = said;
        done.open();
    }
    grpc::Status await() {
        StartCall();
        done.wait();
        return status;
    }
    grpc::Status status;
    Gate done;
};

// Which classes of reactors look at headers is known before their first call, and whatever their reaction calls.
inline void looking() {
    struct Blind : grpc::ClientUnaryReactor {
        void OnDone(const grpc::Status &) override {}
    };
    struct Deferring final : Blind {
        void OnReadInitialMetadataDone(bool ok) override { ClientUnaryReactor::OnReadInitialMetadataDone(ok); }
    };
    struct Other {
        virtual ~Other() = default;
        int at = 0;
    };
    struct BlindToo final : Other, Blind {};
    struct LookingToo final : Other, virtual Looking {};
    Blind blind;
    // Where a class's functions cannot be read, all are taken for ones that look.
    bool is_known = grpc::internal::ReactionToHeaders(blind) != nullptr;
    CHECK(blind.trunkline_hears_headers() != is_known && BlindToo().trunkline_hears_headers() != is_known);
    CHECK(Looking().trunkline_hears_headers() && LookingToo().trunkline_hears_headers());
    CHECK(Deferring().trunkline_hears_headers());
}

// A unary call that gets two responses fails, in parts as in one event: the method called is one that streams.
inline void answered_twice(const std::string &address) {
    auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    const char *method = "/exam.v1.Exam/Count";
    Number request = number(2), response;
    grpc::Status status;
    auto fails = [](const grpc::Status &status, const grpc::ClientContext &context) {
        CHECK(status.error_code() == grpc::StatusCode::UNIMPLEMENTED);
        CHECK(status.error_message() == "the server sent more than one response");
        CHECK(context.debug_error_string() == "the server sent more than one response [executed]");
    };
    grpc::ClientContext whole, heard, queued;
    Gate told;
    grpc::internal::CallbackUnaryCall(channel.get(), method, &whole, &request, &response, [&](grpc::Status said) {
        status = said;
        told.open();
    });
    told.wait();
    fails(status, whole);
    Looking looking;
    grpc::internal::CallbackUnaryCall(channel.get(), method, &heard, &request, &response, &looking);
    fails(looking.await(), heard);
    grpc::CompletionQueue queue;
    auto next = [&queue](void *wanted) {
        void *tag = nullptr;
        bool ok = false;
        CHECK(queue.Next(&tag, &ok) && tag == wanted);
    };
    grpc::ClientAsyncResponseReader<Number> call(channel.get(), &queue, method, &queued, request, true);
    call.ReadInitialMetadata(&queued);
    next(&queued);
    call.Finish(&response, &status, &status);
    next(&status);
    fails(status, queued);
    queue.Shutdown();
    void *tag;
    bool ok;
    CHECK(!queue.Next(&tag, &ok));
}

// A call that could not be opened says why, and that it was not executed.
inline void unopened(const std::string &address) {
    struct Talking final : grpc::ClientBidiReactor<Text, Text> {
        void OnDone(const grpc::Status &said) override {
            status = said;
            done.open();
        }
        grpc::Status status;
        Gate done;
    };
    auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    grpc::ClientContext unary, stream;
    for (grpc::ClientContext *context : {&unary, &stream}) {
        context->set_wait_for_ready(true);
        context->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
    }
    auto fails = [](const grpc::Status &status, const grpc::ClientContext &context) {
        CHECK(status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
        CHECK(context.debug_error_string() == status.error_message() + " [not executed]");
    };
    Text request = text("hello"), response;
    Looking looking;
    grpc::internal::CallbackUnaryCall(channel.get(), "/exam.v1.Absent/Echo", &unary, &request, &response, &looking);
    fails(looking.await(), unary);
    Talking talking;
    grpc::internal::CallbackBidiCall(channel.get(), "/exam.v1.Absent/Talk", &stream, &talking);
    talking.StartCall();
    talking.done.wait();
    fails(talking.status, stream);
}

} // namespace exam
