// What clients and servers of the exam have in common. Nothing here is Trunkline's: the sources compile against gRPC
// C++, too, and that is part of what they show.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "exam.grpc.pb.h"

namespace exam {

using exam::v1::Number;
using exam::v1::Text;

#define CHECK(condition) ::exam::check((condition), #condition, __FILE__, __LINE__)

inline void check(bool holds, const char *condition, const char *file, int line) {
    if (holds) return;
    std::printf("failed %s:%d: %s\n", file, line, condition);
    std::fflush(stdout);
    std::_Exit(1);
}

inline Text text(const std::string &said) {
    Text out;
    out.set_text(said);
    return out;
}

inline Number number(int64_t value) {
    Number out;
    out.set_value(value);
    return out;
}

// What `fail CODE` asks for.
inline grpc::Status verdict(const std::string &said) {
    if (said.rfind("fail ", 0) != 0) return grpc::Status::OK;
    return grpc::Status(static_cast<grpc::StatusCode>(std::atoi(said.c_str() + 5)), "as it was asked", "details\x01");
}

// Gives what came in `exam` back before and after the answer.
template <class Context> void answer_metadata(Context *context) {
    auto range = context->client_metadata().equal_range("exam");
    for (auto at = range.first; at != range.second; ++at) {
        context->AddInitialMetadata("exam-initial", std::string(at->second.data(), at->second.size()));
        context->AddTrailingMetadata("exam-trailing-bin", std::string(at->second.data(), at->second.size()) + '\0');
    }
}

// Opens once.
class Gate {
  public:
    void open() {
        std::lock_guard<std::mutex> lock(mutex_);
        is_open_ = true;
        opened_.notify_all();
    }
    void wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        opened_.wait(lock, [this] { return is_open_; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable opened_;
    bool is_open_ = false;
};

// Tags of completion queues are functions, each called once.
using Step = std::function<void(bool)>;

inline void *step(Step act) { return new Step(std::move(act)); }

inline void take(void *tag, bool ok) {
    std::unique_ptr<Step> act(static_cast<Step *>(tag));
    (*act)(ok);
}

} // namespace exam
