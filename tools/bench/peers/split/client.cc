// The client of the split: carries bytes and reads none of them, so that it costs the same whoever serves. Calls are made
// so many at once on one thread, each as soon as one is answered.
//
//   split_client ADDRESS WIRE
//
// An order's size says what is called: 0 the application's method, 1 one that it has not, which whoever carries the calls
// refuses. Answers to orders: CALLS ELAPSED_NS P50_NS P75_NS P90_NS P99_NS.

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>

#include "business.h"
#include "orders.h"

namespace {

struct Pending {
  grpc::ClientContext context;
  grpc::ByteBuffer reply;
  grpc::Status status;
  uint64_t began = 0;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
};

class Client {
 public:
  Client(const std::string& address, const std::string& wire) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    stub_ = std::make_unique<grpc::GenericStub>(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    const grpc::Slice slice(wire);
    request_ = grpc::ByteBuffer(&slice, 1);
  }

  // Until the server is there: a daemon answers before its application does.
  void WaitForServer() {
    for (int look = 0; look < 1000; ++look) {
      Start();
      void* tag = nullptr;
      bool ok = false;
      if (!queue_.Next(&tag, &ok)) break;
      std::unique_ptr<Pending> done(static_cast<Pending*>(tag));
      if (done->status.ok()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    peer::Fail("nobody answers");
  }

  std::vector<uint64_t> CarryOut(const peer::Order& order) {
    refused_ = order.request_bytes == 1;
    const uint64_t end = peer::NowNs() + order.millis * 1'000'000;
    std::vector<uint64_t> took;
    size_t under_way = order.outstanding;
    for (size_t i = 0; i < order.outstanding; ++i) Start();
    void* tag = nullptr;
    bool ok = false;
    while (under_way > 0 && queue_.Next(&tag, &ok)) {
      std::unique_ptr<Pending> done(static_cast<Pending*>(tag));
      if (refused_ ? done->status.error_code() != grpc::StatusCode::UNIMPLEMENTED : !done->status.ok()) {
        peer::Fail(std::to_string(done->status.error_code()) + " " + done->status.error_message());
      }
      // Of the business the answer is the message that was sent; fields of one are as long in any order.
      if (!refused_ && done->reply.Length() != request_.Length()) {
        peer::Fail(std::to_string(done->reply.Length()) + " bytes came");
      }
      const uint64_t now = peer::NowNs();
      took.push_back(now - done->began);
      if (now < end) {
        Start();
      } else {
        --under_way;
      }
    }
    return took;
  }

 private:
  void Start() {
    auto* pending = new Pending;
    pending->context.set_wait_for_ready(true);
    pending->began = peer::NowNs();
    pending->reader = refused_ ? stub_->PrepareUnaryCall(&pending->context, "/echo.Echo/Refused", empty_, &queue_)
                               : stub_->PrepareUnaryCall(&pending->context, "/echo.Echo/Call", request_, &queue_);
    pending->reader->StartCall();
    pending->reader->Finish(&pending->reply, &pending->status, pending);
  }

  std::unique_ptr<grpc::GenericStub> stub_;
  grpc::ByteBuffer request_;
  const grpc::Slice nothing_;
  const grpc::ByteBuffer empty_{&nothing_, 1};
  bool refused_ = false;
  grpc::CompletionQueue queue_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  Client client(argv[1], business::ReadFile(argv[2]));
  client.WaitForServer();
  peer::Order order;
  while (std::cin >> order.millis >> order.request_bytes >> order.outstanding) {
    const uint64_t began = peer::NowNs();
    std::vector<uint64_t> took = client.CarryOut(order);
    const uint64_t elapsed = peer::NowNs() - began;
    std::sort(took.begin(), took.end());
    std::cout << took.size() << ' ' << elapsed;
    for (double share : {0.5, 0.75, 0.9, 0.99}) std::cout << ' ' << peer::Percentile(took, share);
    std::cout << std::endl;
  }
}
