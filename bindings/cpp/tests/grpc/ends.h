// How calls end where a program is not tidy: what nobody reads, what is thrown, and what goes before its calls.
#pragma once

#include <stdexcept>

#include "common.h"

namespace exam {

// Reads once, and never again.
class ReadsOnce final : public grpc::ClientBidiReactor<Text, Text> {
  public:
    ReadsOnce(v1::Exam::Stub *stub, grpc::ClientContext *context) {
        stub->async()->Talk(context, this);
        StartRead(&back_);
        StartWrite(&say_);
        StartCall();
    }
    void OnWriteDone(bool ok) override {
        if (ok && ++written_ < 3) StartWrite(&say_);
    }
    void OnReadDone(bool ok) override {
        if (ok) has_read.open();
    }
    void OnDone(const grpc::Status &status) override {
        status_ = status;
        done_.open();
    }
    grpc::StatusCode await() {
        done_.wait();
        return status_.error_code();
    }
    Gate has_read;

  private:
    Text say_ = text("word"), back_;
    int written_ = 0;
    grpc::Status status_;
    Gate done_;
};

// A call that is cancelled, or too late, ends though there is something to be read.
inline void unread(v1::Exam::Stub *stub) {
    grpc::ClientContext cancelled;
    ReadsOnce first(stub, &cancelled);
    first.has_read.wait();
    // The next answer comes meanwhile.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    cancelled.TryCancel();
    CHECK(first.await() == grpc::StatusCode::CANCELLED);
    grpc::ClientContext late;
    late.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
    ReadsOnce second(stub, &late);
    CHECK(second.await() == grpc::StatusCode::DEADLINE_EXCEEDED);
}

// Writes more than its channel may send, and goes on.
class WritesTooMuch final : public grpc::ClientBidiReactor<Text, Text> {
  public:
    WritesTooMuch(v1::Exam::Stub *stub, grpc::ClientContext *context) {
        stub->async()->Talk(context, this);
        StartRead(&back_);
        StartWrite(&large_);
        StartCall();
    }
    void OnWriteDone(bool) override { StartWritesDone(); }
    void OnDone(const grpc::Status &status) override {
        status_ = status;
        done_.open();
    }
    grpc::StatusCode await() {
        done_.wait();
        return status_.error_code();
    }

  private:
    Text large_ = text(std::string(1000, 'x')), back_;
    grpc::Status status_;
    Gate done_;
};

// A message of a stream that cannot be sent ends the call, whatever the program does with what `Write` says.
inline void refused(const std::string &target) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxSendMessageSize(100);
    auto stub = v1::Exam::NewStub(grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments));
    grpc::ClientContext context;
    auto stream = stub->Talk(&context);
    Text back;
    CHECK(stream->Write(text("first")) && stream->Read(&back) && back.text() == "first");
    stream->Write(text(std::string(1000, 'x')));
    stream->Write(text("last"));
    stream->WritesDone();
    CHECK(!stream->Read(&back));
    CHECK(stream->Finish().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
    grpc::ClientContext reacting;
    CHECK(WritesTooMuch(stub.get(), &reacting).await() == grpc::StatusCode::RESOURCE_EXHAUSTED);
}

// What a handler or a reaction throws ends neither the program nor a thread of the library's.
inline void thrown(v1::Exam::Stub *stub) {
    for (int round = 0; round < 20; round++) {
        grpc::ClientContext context;
        Text request = text("throw"), response;
        Gate told;
        grpc::StatusCode code{};
        stub->async()->Echo(&context, &request, &response, [&](grpc::Status status) {
            code = status.error_code();
            told.open();
            throw std::runtime_error("as the exam wants it");
        });
        told.wait();
        // A queue's handler is the program's own, and throws nothing here.
        CHECK(code == grpc::StatusCode::UNIMPLEMENTED || code == grpc::StatusCode::UNKNOWN || code == grpc::StatusCode::OK);
    }
}

// A context that goes before its stream, as where a program connects anew; and a channel that goes before its calls.
inline void gone(const std::string &target) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(1 << 20);
    arguments.SetMaxSendMessageSize(1 << 20);
    auto connect = [&] {
        return v1::Exam::NewStub(grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments));
    };
    auto stub = connect();
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientReader<Number>> reader;
    for (int round = 0; round < 3; round++) {
        context = std::make_unique<grpc::ClientContext>();
        reader = stub->Count(context.get(), number(3));
        Number next;
        while (reader->Read(&next)) continue;
        CHECK(next.value() == 3 && reader->Finish().ok());
    }
    reader.reset();
    grpc::ClientContext left;
    reader = connect()->Count(&left, number(3));
    Number next;
    while (reader->Read(&next)) continue;
    CHECK(next.value() == 3 && reader->Finish().ok());
    grpc::ClientContext queued;
    grpc::CompletionQueue queue;
    Text response;
    grpc::Status status;
    auto call = connect()->PrepareAsyncEcho(&queued, text("hello"), &queue);
    call->StartCall();
    call->Finish(&response, &status, &response);
    void *tag = nullptr;
    bool ok = false;
    CHECK(queue.Next(&tag, &ok) && ok && tag == &response && status.ok() && response.text() == "hello");
    queue.Shutdown();
    CHECK(!queue.Next(&tag, &ok));
}

// A unary call in a queue of which nothing is asked is none: it reaches no server, and its context may go at once.
inline void unfinished(const std::string &address) {
    struct Service final : v1::Exam::Service {
        grpc::Status Echo(grpc::ServerContext *, const Text *, Text *) override {
            calls++;
            return grpc::Status::OK;
        }
        std::atomic<int> calls{0};
    } service;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    auto server = builder.BuildAndStart();
    CHECK(server != nullptr);
    auto stub = v1::Exam::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    grpc::ClientContext first;
    Text response;
    CHECK(stub->Echo(&first, text("hello"), &response).ok() && service.calls == 1);
    grpc::CompletionQueue queue;
    void *tag = nullptr;
    bool ok = false;
    for (bool prepares : {false, true}) {
        auto context = std::make_unique<grpc::ClientContext>();
        std::unique_ptr<grpc::ClientAsyncResponseReader<Text>> call;
        if (!prepares) {
            call = stub->AsyncEcho(context.get(), text("hello"), &queue);
        } else {
            call = stub->PrepareAsyncEcho(context.get(), text("hello"), &queue);
            call->StartCall();
        }
        call.reset();
        context.reset();
        auto soon = std::chrono::system_clock::now() + std::chrono::milliseconds(100);
        CHECK(queue.AsyncNext(&tag, &ok, soon) == grpc::CompletionQueue::TIMEOUT);
    }
    CHECK(service.calls == 1);
    queue.Shutdown();
    CHECK(!queue.Next(&tag, &ok));
    server->Shutdown();
}

// Headers that come before the answer are told when they come.
inline void headed(const std::string &address) {
    struct Service final : v1::Exam::CallbackService {
        struct Answering final : grpc::ServerUnaryReactor {
            explicit Answering(Service *of) : of_(of) { StartSendInitialMetadata(); }
            void OnCancel() override {
                of_->cancelled++;
                Finish(grpc::Status::CANCELLED);
            }
            void OnDone() override { delete this; }
            Service *of_;
        };
        grpc::ServerUnaryReactor *Echo(grpc::CallbackServerContext *context, const Text *request,
                                       Text *response) override {
            *response = *request;
            context->AddInitialMetadata("exam-initial", "early");
            auto *made = new Answering(this);
            answering = made;
            return made;
        }
        std::atomic<grpc::ServerUnaryReactor *> answering{nullptr};
        std::atomic<int> cancelled{0};
    } service;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    auto server = builder.BuildAndStart();
    CHECK(server != nullptr);
    auto stub = v1::Exam::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    grpc::CompletionQueue queue;
    auto next = [&queue](void *wanted) {
        void *tag = nullptr;
        bool ok = false;
        CHECK(queue.Next(&tag, &ok) && ok && tag == wanted);
    };
    for (const char *ends : {"well", "badly", "left"}) {
        auto context = std::make_unique<grpc::ClientContext>();
        context->set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
        auto call = stub->AsyncEcho(context.get(), text("hello"), &queue);
        call->ReadInitialMetadata(&context);
        next(&context);
        CHECK(context->GetServerInitialMetadata().count("exam-initial") == 1);
        CHECK(service.cancelled == 0);
        // It goes before its end: its handler is told.
        if (ends == std::string("left")) continue;
        bool is_well = ends == std::string("well");
        service.answering.load()->Finish(is_well ? grpc::Status::OK : grpc::Status(grpc::StatusCode::ABORTED, "late"));
        Text response;
        grpc::Status status;
        call->Finish(&response, &status, &response);
        next(&response);
        CHECK(status.error_code() == (is_well ? grpc::StatusCode::OK : grpc::StatusCode::ABORTED));
        CHECK(response.text() == (is_well ? "hello" : ""));
    }
    while (service.cancelled == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // A reactor is told at once, too, in each of its calls, also one whose reaction calls what it overrides.
    struct Reacting : grpc::ClientUnaryReactor {
        void OnReadInitialMetadataDone(bool ok) override {
            has_headers = ok && context.GetServerInitialMetadata().count("exam-initial") == 1;
            told.open();
        }
        void OnDone(const grpc::Status &status) override {
            is_well = status.ok();
            done.open();
        }
        grpc::ClientContext context;
        Text request = text("hello"), response;
        bool has_headers = false, is_well = false;
        Gate told, done;
    };
    struct Deferring final : Reacting {
        void OnReadInitialMetadataDone(bool ok) override {
            ClientUnaryReactor::OnReadInitialMetadataDone(ok);
            Reacting::OnReadInitialMetadataDone(ok);
        }
    };
    for (int call = 0; call < 6; call++) {
        std::unique_ptr<Reacting> kept(call % 2 == 0 ? new Reacting : new Deferring);
        Reacting &reacting = *kept;
        reacting.context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
        stub->async()->Echo(&reacting.context, &reacting.request, &reacting.response, &reacting);
        reacting.StartCall();
        reacting.told.wait();
        CHECK(reacting.has_headers);
        service.answering.load()->Finish(grpc::Status::OK);
        reacting.done.wait();
        CHECK(reacting.is_well && reacting.response.text() == "hello");
    }
    server->Shutdown();
    queue.Shutdown();
    void *tag;
    bool ok;
    CHECK(!queue.Next(&tag, &ok));
}

// Of a call that failed before headers or a message came, a reactor is told that there are no headers.
inline void unheaded(const std::string &target) {
    struct Unary final : grpc::ClientUnaryReactor {
        void OnReadInitialMetadataDone(bool ok) override { told = ok; }
        void OnDone(const grpc::Status &) override { done.open(); }
        int told = -1;
        Gate done;
    };
    struct Stream final : grpc::ClientBidiReactor<Text, Text> {
        void OnReadInitialMetadataDone(bool ok) override { told = ok; }
        void OnDone(const grpc::Status &) override { done.open(); }
        int told = -1;
        Gate done;
    };
    auto stub = v1::Exam::NewStub(grpc::CreateChannel(target, grpc::InsecureChannelCredentials()));
    for (bool is_well : {true, false}) {
        grpc::ClientContext context, talking;
        Text request = text(is_well ? "hello" : "fail 5"), response, say = text(is_well ? "hello" : "enough"), back;
        Unary unary;
        stub->async()->Echo(&context, &request, &response, &unary);
        unary.StartCall();
        unary.done.wait();
        CHECK(unary.told == is_well);
        Stream stream;
        stub->async()->Talk(&talking, &stream);
        stream.StartRead(&back);
        stream.StartWriteLast(&say, grpc::WriteOptions());
        stream.StartCall();
        stream.done.wait();
        CHECK(stream.told == is_well);
    }
}

// Of a service in a queue: what tells of the end comes where the call's operations end.
inline void notified(const std::string &address) {
    v1::Exam::AsyncService service;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    auto operations = builder.AddCompletionQueue(), calls = builder.AddCompletionQueue();
    auto server = builder.BuildAndStart();
    CHECK(server != nullptr);
    auto deadline = std::chrono::system_clock::now() + std::chrono::minutes(1);
    auto next = [deadline](grpc::ServerCompletionQueue &queue) {
        void *tag = nullptr;
        bool ok = false;
        CHECK(queue.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT && ok);
        return static_cast<int *>(tag);
    };
    int come = 0, over = 0, sent = 0;
    {
        grpc::ServerContext context;
        Text request;
        grpc::ServerAsyncResponseWriter<Text> responder(&context);
        context.AsyncNotifyWhenDone(&over);
        service.RequestEcho(&context, &request, &responder, operations.get(), calls.get(), &come);
        std::thread client([&address] {
            auto stub = v1::Exam::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
            grpc::ClientContext asks;
            Text response;
            CHECK(stub->Echo(&asks, text("hello"), &response).ok() && response.text() == "hello");
        });
        CHECK(next(*calls) == &come);
        responder.Finish(request, grpc::Status::OK, &sent);
        for (int count = 0; count < 2; count++) ++*next(*operations);
        CHECK(over == 1 && sent == 1 && !context.IsCancelled());
        client.join();
    }
    server->Shutdown();
    for (auto *queue : {operations.get(), calls.get()}) {
        queue->Shutdown();
        void *tag;
        bool ok;
        while (queue->Next(&tag, &ok)) continue;
    }
}

// A call that was answered was not cancelled, whichever thread learns first that it is over.
inline void answered(const std::string &address) {
    struct Service final : v1::Exam::CallbackService {
        struct Answering final : grpc::ServerUnaryReactor {
            explicit Answering(Service *of) : of_(of) { Finish(grpc::Status::OK); }
            void OnCancel() override { of_->cancelled++; }
            void OnDone() override {
                of_->ended++;
                delete this;
            }
            Service *of_;
        };
        grpc::ServerUnaryReactor *Echo(grpc::CallbackServerContext *, const Text *, Text *) override {
            return new Answering(this);
        }
        std::atomic<int> cancelled{0}, ended{0};
    } service;
    constexpr int kClients = 4, kCalls = 500;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    auto server = builder.BuildAndStart();
    CHECK(server != nullptr);
    std::vector<std::thread> clients;
    for (int client = 0; client < kClients; client++) {
        clients.emplace_back([&address] {
            auto stub = v1::Exam::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
            for (int call = 0; call < kCalls; call++) {
                grpc::ClientContext context;
                Text response;
                CHECK(stub->Echo(&context, text("hello"), &response).ok());
            }
        });
    }
    for (std::thread &client : clients) client.join();
    // The reactors' last reactions come after the answers.
    while (service.ended < kClients * kCalls) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    server->Shutdown();
    CHECK(service.cancelled == 0);
}

// When a server has ended, no reaction is still to come: its service may go.
inline void outlived(const std::string &address) {
    struct Service final : v1::Exam::CallbackService {
        struct Slow final : grpc::ServerUnaryReactor {
            Slow(Service *of, bool waits) : of_(of) {
                if (!waits) Finish(grpc::Status::OK);
            }
            void OnCancel() override {
                of_->cancelled++;
                Finish(grpc::Status::CANCELLED);
            }
            void OnDone() override {
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
                of_->ended++;
                delete this;
            }
            Service *of_;
        };
        grpc::ServerUnaryReactor *Echo(grpc::CallbackServerContext *, const Text *request, Text *) override {
            begun++;
            return new Slow(this, request->text() == "wait");
        }
        std::atomic<int> begun{0}, cancelled{0}, ended{0};
    };
    for (bool waits : {false, true}) {
        Service service;
        grpc::ServerBuilder builder;
        builder.AddListeningPort(address, grpc::InsecureServerCredentials());
        builder.RegisterService(&service);
        auto server = builder.BuildAndStart();
        CHECK(server != nullptr);
        std::thread client([&address, waits] {
            auto stub = v1::Exam::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
            grpc::ClientContext context;
            Text response;
            CHECK(stub->Echo(&context, text(waits ? "wait" : "hello"), &response).ok() != waits);
        });
        while (service.begun == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (waits) server->Shutdown(std::chrono::system_clock::now());
        if (!waits) server->Shutdown();
        CHECK(service.ended == 1 && service.cancelled == (waits ? 1 : 0));
        client.join();
    }
}

} // namespace exam
