// Calls that are opened in parts, and what their contexts say: of Trunkline's surface only.
#pragma once

#include "common.h"

namespace exam {

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
