// The gRPC C++ server: answers every request with the count of its bytes.
//
//   grpc_server sync|queue ADDRESS PORT_FILE
//
// sync: the synchronous server with its own threads. queue: one thread on one completion queue, the frugal form.
// ADDRESS is 127.0.0.1:0 or unix:PATH; the address to call is written to PORT_FILE.

#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include "bench.grpc.pb.h"


namespace {

class SyncService final : public bench::v1::Bench::Service {
  grpc::Status Small(grpc::ServerContext*, const bench::v1::Bytes* request, bench::v1::Number* reply) override {
    reply->set_value(request->data().size());
    return grpc::Status::OK;
  }
  grpc::Status Sink(grpc::ServerContext*, const bench::v1::Bytes* request, bench::v1::Number* reply) override {
    reply->set_value(request->data().size());
    return grpc::Status::OK;
  }
};

// One call on the completion queue: asked for, answered, finished; then it asks for the next.
class QueuedCall {
 public:
  using Ask = void (bench::v1::Bench::AsyncService::*)(grpc::ServerContext*, bench::v1::Bytes*,
                                                   grpc::ServerAsyncResponseWriter<bench::v1::Number>*,
                                                   grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*);

  QueuedCall(bench::v1::Bench::AsyncService* service, grpc::ServerCompletionQueue* queue, Ask ask)
      : service_(service), queue_(queue), ask_(ask) {
    Begin();
  }

  void Proceed() {
    if (answered_) {
      Begin();
      return;
    }
    answered_ = true;
    reply_.set_value(state_->request.data().size());
    state_->responder.Finish(reply_, grpc::Status::OK, this);
  }

 private:
  // What gRPC wants new for every call.
  struct State {
    State() : responder(&context) {}
    grpc::ServerContext context;
    bench::v1::Bytes request;
    grpc::ServerAsyncResponseWriter<bench::v1::Number> responder;
  };

  void Begin() {
    answered_ = false;
    state_ = std::make_unique<State>();
    (service_->*ask_)(&state_->context, &state_->request, &state_->responder, queue_, queue_, this);
  }

  bench::v1::Bench::AsyncService* service_;
  grpc::ServerCompletionQueue* queue_;
  Ask ask_;
  bool answered_ = false;
  bench::v1::Number reply_;
  std::unique_ptr<State> state_;
};

// More than any client here has outstanding.
constexpr int kCallsAskedFor = 256;

void ServeQueue(bench::v1::Bench::AsyncService* service, grpc::ServerCompletionQueue* queue) {
  std::vector<std::unique_ptr<QueuedCall>> calls;
  for (int i = 0; i < kCallsAskedFor; ++i) {
    calls.push_back(std::make_unique<QueuedCall>(service, queue, &bench::v1::Bench::AsyncService::RequestSmall));
    calls.push_back(std::make_unique<QueuedCall>(service, queue, &bench::v1::Bench::AsyncService::RequestSink));
  }
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) {
    if (ok) static_cast<QueuedCall*>(tag)->Proceed();
  }
}

// Written aside and renamed, so that a reader sees all of it or nothing.
void WriteAddress(const std::string& file, const std::string& address, int port) {
  const std::string aside = file + ".new";
  std::ofstream(aside) << (port > 1 ? "127.0.0.1:" + std::to_string(port) : address);
  std::rename(aside.c_str(), file.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: grpc_server sync|queue ADDRESS PORT_FILE\n");
    return 2;
  }
  const bool queued = std::string(argv[1]) == "queue";
  SyncService sync;
  bench::v1::Bench::AsyncService async;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(argv[2], grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(-1);
  std::unique_ptr<grpc::ServerCompletionQueue> queue;
  if (queued) {
    builder.RegisterService(&async);
    queue = builder.AddCompletionQueue();
  } else {
    builder.RegisterService(&sync);
  }
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) return 1;
  WriteAddress(argv[3], argv[2], port);
  if (queued) {
    ServeQueue(&async, queue.get());
  } else {
    server->Wait();
  }
}
