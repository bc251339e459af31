// A process that may have no more threads: they are refused where they are made.
#pragma once

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"

namespace exam {

inline std::atomic<bool> threads_are_refused{false};
inline std::atomic<int> refused_threads{0};

} // namespace exam

// Before that of the system and those of sanitizers.
extern "C" int pthread_create(pthread_t *out, const pthread_attr_t *how, void *(*run)(void *), void *with) {
    using Create = int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    static Create create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
    if (!exam::threads_are_refused) return create(out, how, run, with);
    exam::refused_threads++;
    return EAGAIN;
}

namespace exam {

// Calls that nobody asks for are not kept when they are over.
inline void unasked(const std::string &address) {
    v1::Exam::AsyncService service;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    auto queue = builder.AddCompletionQueue();
    auto server = builder.BuildAndStart();
    CHECK(server != nullptr);
    uint64_t before = tl_handles_open();
    auto stub = v1::Exam::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    for (int call = 0; call < 400; call++) {
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(3));
        Text response;
        CHECK(stub->Echo(&context, text("hello"), &response).error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
    }
    // Those of a look and those that have come since, with a handle or two each.
    CHECK(tl_handles_open() < before + 200);
    server->Shutdown();
    queue->Shutdown();
    void *tag;
    bool ok;
    while (queue->Next(&tag, &ok)) continue;
}

// More calls at once than a server has threads for.
inline void crowded(const std::string &address) {
    struct Service final : v1::Exam::Service {
        grpc::Status Echo(grpc::ServerContext *, const Text *, Text *) override {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            return grpc::Status::OK;
        }
    } service;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    auto server = builder.BuildAndStart();
    CHECK(server != nullptr);
    Gate begin;
    std::vector<std::thread> clients;
    for (int client = 0; client < 8; client++) {
        clients.emplace_back([&address, &begin] {
            auto stub = v1::Exam::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
            begin.wait();
            for (int call = 0; call < 10; call++) {
                grpc::ClientContext context;
                Text response;
                CHECK(stub->Echo(&context, text("hello"), &response).ok());
            }
        });
    }
    threads_are_refused = true;
    begin.open();
    for (std::thread &client : clients) client.join();
    threads_are_refused = false;
    CHECK(refused_threads > 0);
    server->Shutdown();
}

// A forked child has its parent's server in hand, with no thread of it, and ends.
inline void inherited(const std::string &address) {
    BlockingExam service;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    CHECK(server != nullptr);
    std::thread waits([&server] { server->Wait(); });
    for (int count = 0; count < 3; count++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            server->Wait();
            server->Shutdown();
            server.reset();
            _exit(0);
        }
        int ended = -1;
        CHECK(waitpid(child, &ended, 0) == child && ended == 0);
    }
    server->Shutdown();
    waits.join();
}

} // namespace exam
