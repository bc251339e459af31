// The linked application: gRPC C++ and the business in one process, one thread on one completion queue, which is the
// better form of its server for many calls at once.
//
//   linked_NAME PORT_FILE WIRE

#include <grpcpp/grpcpp.h>

#include <memory>

#include "echo.grpc.pb.h"
#include "business.h"
#include "orders.h"

namespace {

using Message = MESSAGE;

// Asked for, answered, finished; then it asks for the next.
class Call {
 public:
  Call(echo::Echo::AsyncService* service, grpc::ServerCompletionQueue* queue, const business::Answers<Message>& answers)
      : service_(service), queue_(queue), answers_(answers) {
    Begin();
  }

  void Proceed() {
    if (answered_) {
      Begin();
      return;
    }
    answered_ = true;
    answers_.Make(state_->request, &state_->reply);
    state_->responder.Finish(state_->reply, grpc::Status::OK, this);
  }

 private:
  struct State {
    State() : responder(&context) {}
    grpc::ServerContext context;
    Message request, reply;
    grpc::ServerAsyncResponseWriter<Message> responder;
  };

  void Begin() {
    answered_ = false;
    state_ = std::make_unique<State>();
    service_->RequestCall(&state_->context, &state_->request, &state_->responder, queue_, queue_, this);
  }

  echo::Echo::AsyncService* service_;
  grpc::ServerCompletionQueue* queue_;
  const business::Answers<Message>& answers_;
  bool answered_ = false;
  std::unique_ptr<State> state_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const business::Answers<Message> answers(business::ReadFile(argv[2]));
  echo::Echo::AsyncService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterService(&service);
  auto queue = builder.AddCompletionQueue();
  auto server = builder.BuildAndStart();
  if (!server) return 1;
  std::thread(business::TakeOrders).detach();
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 64; ++i) calls.push_back(std::make_unique<Call>(&service, queue.get(), answers));
  peer::WriteAddress(argv[1], peer::LoopbackAddress(port));
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) {
    if (ok) static_cast<Call*>(tag)->Proceed();
  }
}
