// The gRPC C++ server: answers what bench.proto asks for. The queue server has the methods called many at once.
//
//   grpc_server sync|queue ADDRESS PORT_FILE
//
// sync: the synchronous server with its own threads. queue: one thread on one completion queue, the frugal form.
// ADDRESS is 127.0.0.1:0 or unix:PATH; the address to call is written to PORT_FILE.

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>

#include "bench.grpc.pb.h"
#include "large.grpc.pb.h"
#include "orders.h"

namespace {

// What is answered to each kind of request.

void Answer(const bench::v1::Bytes& request, bench::v1::Number* reply) { reply->set_value(request.data().size()); }

std::atomic<int64_t> forbidden{0};

void Answer(const bench::v1::Named& request, bench::v1::Number* reply) {
  if (request.name() == "mallory") ++forbidden;
  reply->set_value(forbidden);
}

void Answer(const bench::v1::HelloRequest& request, bench::v1::HelloReply* reply) {
  reply->set_message("Hello " + request.name());
}

void Answer(const bench::v1::Numbers& request, bench::v1::Mean* reply) {
  int64_t sum = 0;
  for (const int32_t value : request.values()) sum += value;
  reply->set_value(request.values().empty() ? 0 : double(sum) / request.values_size());
}

void Answer(const bench::v1::Count& request, bench::v1::Numbers* reply) {
  reply->mutable_values()->Reserve(request.value());
  uint32_t number = 1;
  for (int i = 0; i < request.value(); ++i) {
    reply->add_values(int32_t(number >> 1));
    number = number * 1664525u + 1013904223u;
  }
}

class SyncService final : public bench::v1::Bench::Service {
  template <typename Q, typename R>
  static grpc::Status Done(const Q* request, R* reply) {
    Answer(*request, reply);
    return grpc::Status::OK;
  }
  grpc::Status Small(grpc::ServerContext*, const bench::v1::Bytes* request, bench::v1::Number* reply) override {
    return Done(request, reply);
  }
  grpc::Status Sink(grpc::ServerContext*, const bench::v1::Bytes* request, bench::v1::Number* reply) override {
    return Done(request, reply);
  }
  grpc::Status Guarded(grpc::ServerContext*, const bench::v1::Named* request, bench::v1::Number* reply) override {
    return Done(request, reply);
  }
  grpc::Status SayHello(grpc::ServerContext*, const bench::v1::HelloRequest* request,
                        bench::v1::HelloReply* reply) override {
    return Done(request, reply);
  }
  grpc::Status Average(grpc::ServerContext*, const bench::v1::Numbers* request, bench::v1::Mean* reply) override {
    return Done(request, reply);
  }
  grpc::Status GetRandNums(grpc::ServerContext*, const bench::v1::Count* request,
                           bench::v1::Numbers* reply) override {
    return Done(request, reply);
  }
};

// Sends messages of many members back.
class LargeService final : public large::v1::Large::Service {
  template <typename M>
  static grpc::Status Back(const M* request, M* reply) {
    *reply = *request;
    return grpc::Status::OK;
  }
  using Context = grpc::ServerContext;
  using D128 = large::v1::LargeData128;
  using D256 = large::v1::LargeData256;
  using D512 = large::v1::LargeData512;
  using D1024 = large::v1::LargeData1024;
  using D2048 = large::v1::LargeData2048;
  grpc::Status SendRcv128(Context*, const D128* request, D128* reply) override { return Back(request, reply); }
  grpc::Status SendRcv256(Context*, const D256* request, D256* reply) override { return Back(request, reply); }
  grpc::Status SendRcv512(Context*, const D512* request, D512* reply) override { return Back(request, reply); }
  grpc::Status SendRcv1024(Context*, const D1024* request, D1024* reply) override { return Back(request, reply); }
  grpc::Status SendRcv2048(Context*, const D2048* request, D2048* reply) override { return Back(request, reply); }
};

// A call on the completion queue.
class Queued {
 public:
  virtual ~Queued() = default;
  virtual void Proceed() = 0;
};

// Asked for, answered, finished; then it asks for the next.
template <typename Q, typename R>
class QueuedCall final : public Queued {
 public:
  using Ask = void (bench::v1::Bench::AsyncService::*)(grpc::ServerContext*, Q*, grpc::ServerAsyncResponseWriter<R>*,
                                                   grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*);

  QueuedCall(bench::v1::Bench::AsyncService* service, grpc::ServerCompletionQueue* queue, Ask ask)
      : service_(service), queue_(queue), ask_(ask) {
    Begin();
  }

  void Proceed() override {
    if (answered_) {
      Begin();
      return;
    }
    answered_ = true;
    Answer(state_->request, &reply_);
    state_->responder.Finish(reply_, grpc::Status::OK, Tag());
  }

 private:
  // What gRPC wants new for every call.
  struct State {
    State() : responder(&context) {}
    grpc::ServerContext context;
    Q request;
    grpc::ServerAsyncResponseWriter<R> responder;
  };

  void Begin() {
    answered_ = false;
    state_ = std::make_unique<State>();
    (service_->*ask_)(&state_->context, &state_->request, &state_->responder, queue_, queue_, Tag());
  }

  void* Tag() { return static_cast<Queued*>(this); }

  bench::v1::Bench::AsyncService* service_;
  grpc::ServerCompletionQueue* queue_;
  Ask ask_;
  bool answered_ = false;
  R reply_;
  std::unique_ptr<State> state_;
};

// More than any client here has outstanding.
constexpr int kCallsAskedFor = 256;

void ServeQueue(bench::v1::Bench::AsyncService* service, grpc::ServerCompletionQueue* queue) {
  using bench::v1::Bench;
  using Bytes = QueuedCall<bench::v1::Bytes, bench::v1::Number>;
  using Named = QueuedCall<bench::v1::Named, bench::v1::Number>;
  std::vector<std::unique_ptr<Queued>> calls;
  for (int i = 0; i < kCallsAskedFor; ++i) {
    calls.push_back(std::make_unique<Bytes>(service, queue, &Bench::AsyncService::RequestSmall));
    calls.push_back(std::make_unique<Bytes>(service, queue, &Bench::AsyncService::RequestSink));
    calls.push_back(std::make_unique<Named>(service, queue, &Bench::AsyncService::RequestGuarded));
  }
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) {
    if (ok) static_cast<Queued*>(tag)->Proceed();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: grpc_server sync|queue ADDRESS PORT_FILE\n");
    return 2;
  }
  const bool queued = std::string(argv[1]) == "queue";
  SyncService sync;
  LargeService large;
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
    builder.RegisterService(&large);
  }
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) return 1;
  peer::WriteAddress(argv[3], port > 1 ? peer::LoopbackAddress(port) : argv[2]);
  if (queued) {
    ServeQueue(&async, queue.get());
  } else {
    server->Wait();
  }
}
