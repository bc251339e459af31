// Small programs over gRPC C++'s surface, each as programs of its users usually begin: blocking, with callbacks, and with a
// completion queue and a state per call; streams as blocking programs use them. Compiled against ours and against gRPC's.
//
//   greeting serve sync|callback|async ADDRESS    serves until its input ends
//   greeting call sync|callback|async TARGET      says hello, and what came of it
//   greeting streams TARGET                       the other patterns, of a server that blocks
#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "greeter.grpc.pb.h"

using greeter::v1::Greeter;
using greeter::v1::HelloReply;
using greeter::v1::HelloRequest;

static void say(const std::string &line) { std::cout << line << std::endl; }

static std::string greeting(const std::string &name) { return "Hello, " + name + "!"; }

static HelloRequest named(const std::string &name) {
    HelloRequest request;
    request.set_name(name);
    return request;
}

// ---- servers

class BlockingGreeter final : public Greeter::Service {
    grpc::Status SayHello(grpc::ServerContext *, const HelloRequest *request, HelloReply *reply) override {
        reply->set_message(greeting(request->name()));
        return grpc::Status::OK;
    }

    grpc::Status SayHelloInManyTongues(grpc::ServerContext *, const HelloRequest *request,
                                       grpc::ServerWriter<HelloReply> *writer) override {
        for (const char *hello : {"Hello", "Hej", "Jambo"}) {
            HelloReply reply;
            reply.set_message(std::string(hello) + ", " + request->name() + "!");
            if (!writer->Write(reply)) break;
        }
        return grpc::Status::OK;
    }

    grpc::Status SayHelloToAll(grpc::ServerContext *, grpc::ServerReader<HelloRequest> *reader,
                               HelloReply *reply) override {
        std::string names;
        HelloRequest request;
        while (reader->Read(&request)) names += (names.empty() ? "" : " and ") + request.name();
        reply->set_message(greeting(names));
        return grpc::Status::OK;
    }

    grpc::Status Introduce(grpc::ServerContext *, grpc::ServerReaderWriter<HelloReply, HelloRequest> *stream) override {
        HelloRequest request;
        while (stream->Read(&request)) {
            HelloReply reply;
            reply.set_message(greeting(request.name()));
            if (!stream->Write(reply)) break;
        }
        return grpc::Status::OK;
    }
};

class ReactingGreeter final : public Greeter::CallbackService {
    grpc::ServerUnaryReactor *SayHello(grpc::CallbackServerContext *context, const HelloRequest *request,
                                       HelloReply *reply) override {
        reply->set_message(greeting(request->name()));
        grpc::ServerUnaryReactor *reactor = context->DefaultReactor();
        reactor->Finish(grpc::Status::OK);
        return reactor;
    }
};

// One call of a completion queue, from its request to its end. It deletes itself.
class Answering {
  public:
    Answering(Greeter::AsyncService *service, grpc::ServerCompletionQueue *queue)
        : service_(service), queue_(queue), writer_(&context_) {
        service_->RequestSayHello(&context_, &request_, &writer_, queue_, queue_, this);
    }

    void proceed(bool ok) {
        if (!ok || is_answered_) {
            delete this;
            return;
        }
        // Another takes the next call.
        new Answering(service_, queue_);
        HelloReply reply;
        reply.set_message(greeting(request_.name()));
        is_answered_ = true;
        writer_.Finish(reply, grpc::Status::OK, this);
    }

  private:
    Greeter::AsyncService *service_;
    grpc::ServerCompletionQueue *queue_;
    grpc::ServerContext context_;
    HelloRequest request_;
    grpc::ServerAsyncResponseWriter<HelloReply> writer_;
    bool is_answered_ = false;
};

static int serve(const std::string &by, const std::string &address) {
    BlockingGreeter blocking;
    ReactingGreeter reacting;
    Greeter::AsyncService queued;
    std::unique_ptr<grpc::ServerCompletionQueue> queue;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    if (by == "sync") builder.RegisterService(&blocking);
    if (by == "callback") builder.RegisterService(&reacting);
    if (by == "async") {
        builder.RegisterService(&queued);
        queue = builder.AddCompletionQueue();
    }
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (server == nullptr) return 1;
    std::thread answering;
    if (queue != nullptr) {
        answering = std::thread([&queued, &queue] {
            new Answering(&queued, queue.get());
            void *tag;
            bool ok;
            while (queue->Next(&tag, &ok)) static_cast<Answering *>(tag)->proceed(ok);
        });
    }
    say("ready");
    std::string line;
    while (std::getline(std::cin, line)) continue;
    server->Shutdown();
    if (queue != nullptr) {
        queue->Shutdown();
        answering.join();
    }
    return 0;
}

// ---- clients

// A call waits until somebody serves it.
static void begin(grpc::ClientContext &context) {
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
}

static std::unique_ptr<Greeter::Stub> stub_of(const std::string &target) {
    return Greeter::NewStub(grpc::CreateChannel(target, grpc::InsecureChannelCredentials()));
}

static grpc::Status called(const std::string &by, Greeter::Stub &stub, const HelloRequest &request, HelloReply *reply) {
    grpc::ClientContext context;
    begin(context);
    if (by == "sync") return stub.SayHello(&context, request, reply);
    grpc::Status status;
    if (by == "callback") {
        std::mutex mutex;
        std::condition_variable changed;
        bool is_over = false;
        stub.async()->SayHello(&context, &request, reply, [&](grpc::Status ended) {
            std::lock_guard<std::mutex> lock(mutex);
            status = std::move(ended);
            is_over = true;
            changed.notify_one();
        });
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&is_over] { return is_over; });
        return status;
    }
    grpc::CompletionQueue queue;
    std::unique_ptr<grpc::ClientAsyncResponseReader<HelloReply>> call(stub.PrepareAsyncSayHello(&context, request, &queue));
    call->StartCall();
    call->Finish(reply, &status, &queue);
    void *tag;
    bool ok;
    if (!queue.Next(&tag, &ok) || !ok || tag != &queue) return grpc::Status(grpc::StatusCode::INTERNAL, "another tag");
    return status;
}

static int told(const grpc::Status &status, const std::string &message) {
    say("said " + message);
    if (!status.ok()) std::cerr << status.error_message() << std::endl;
    return status.ok() ? 0 : 1;
}

static int call(const std::string &by, const std::string &target) {
    HelloReply reply;
    grpc::Status status = called(by, *stub_of(target), named("Ada"), &reply);
    return told(status, reply.message());
}

static int streams(const std::string &target) {
    auto stub = stub_of(target);
    HelloReply reply;
    std::string all;
    grpc::ClientContext tongues, names, both;
    for (grpc::ClientContext *context : {&tongues, &names, &both}) begin(*context);

    auto reader = stub->SayHelloInManyTongues(&tongues, named("Ada"));
    while (reader->Read(&reply)) all += reply.message() + " ";
    grpc::Status status = reader->Finish();
    if (!status.ok()) return told(status, all);

    auto writer = stub->SayHelloToAll(&names, &reply);
    for (const char *name : {"Ada", "Eve"}) writer->Write(named(name));
    writer->WritesDone();
    status = writer->Finish();
    all += reply.message();
    if (!status.ok()) return told(status, all);

    auto stream = stub->Introduce(&both);
    std::thread writing([&stream] {
        for (const char *name : {"Bob", "Kim"}) stream->Write(named(name));
        stream->WritesDone();
    });
    while (stream->Read(&reply)) all += " " + reply.message();
    writing.join();
    return told(stream->Finish(), all);
}

int main(int argc, char **argv) {
    std::vector<std::string> words(argv + 1, argv + argc);
    int code = 2;
    if (words.size() == 3 && words[0] == "serve") {
        code = serve(words[1], words[2]);
    } else if (words.size() >= 2) {
        say("ready");
        code = words[0] == "call" ? call(words[1], words.at(2)) : streams(words[1]);
    }
    say("handles 0");
    return code;
}
