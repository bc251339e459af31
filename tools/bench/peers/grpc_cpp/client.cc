// The gRPC C++ client: takes orders on standard input, as every driver of trunkline-bench does.
//
//   grpc_client ADDRESS WORK
//
// WORK is what it calls: bytes, open, guarded, hello, average, numbers, large (src/work.rs has their meaning).
//
// With one outstanding it uses the blocking stub, with more one thread on one completion queue.

#include <grpcpp/grpcpp.h>

#include <memory>

#include "bench.grpc.pb.h"
#include "large.grpc.pb.h"
#include "orders.h"

namespace {

using peer::Fail;
using peer::NowNs;
using peer::Order;

void Need(const grpc::Status& status) {
  if (!status.ok()) Fail(std::to_string(status.error_code()) + " " + status.error_message());
}

// The services on one channel.
struct Stubs {
  std::unique_ptr<bench::v1::Bench::Stub> bench;
  std::unique_ptr<large::v1::Large::Stub> large;
};

template <typename Reply>
using Reader = std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>>;

// One kind of call: how the n-th request is filled, how it is made, and what its answer must be.
template <typename Q, typename R>
class Work {
 public:
  using Request = Q;
  using Reply = R;
  virtual ~Work() = default;
  virtual void Fill(uint64_t call, Q* request) const = 0;
  virtual grpc::Status Call(const Stubs& stubs, grpc::ClientContext* context, const Q& request, R* reply) const = 0;
  virtual Reader<R> Start(const Stubs& stubs, grpc::ClientContext* context, const Q& request,
                          grpc::CompletionQueue* queue) const = 0;
  virtual void Check(uint64_t, const grpc::Status& status, const R&) const { Need(status); }
};

class BytesWork final : public Work<bench::v1::Bytes, bench::v1::Number> {
 public:
  explicit BytesWork(const Order& order) : small_(order.IsSmall()), data_(order.Data()) {}
  void Fill(uint64_t, bench::v1::Bytes* request) const override { request->set_data(data_); }
  grpc::Status Call(const Stubs& stubs, grpc::ClientContext* context, const bench::v1::Bytes& request,
                    bench::v1::Number* reply) const override {
    return small_ ? stubs.bench->Small(context, request, reply) : stubs.bench->Sink(context, request, reply);
  }
  Reader<bench::v1::Number> Start(const Stubs& stubs, grpc::ClientContext* context, const bench::v1::Bytes& request,
                                  grpc::CompletionQueue* queue) const override {
    return small_ ? stubs.bench->AsyncSmall(context, request, queue) : stubs.bench->AsyncSink(context, request, queue);
  }

 private:
  bool small_;
  std::string data_;
};

// One in a hundred bears a name that must not pass; where that is guarded it is refused, and never seen by the server.
class NamedWork final : public Work<bench::v1::Named, bench::v1::Number> {
 public:
  NamedWork(const Order& order, bool guarded) : guarded_(guarded), data_(order.request_bytes, '\7') {}
  void Fill(uint64_t call, bench::v1::Named* request) const override {
    request->set_name(IsForbidden(call) ? "mallory" : "alice");
    request->set_data(data_);
  }
  grpc::Status Call(const Stubs& stubs, grpc::ClientContext* context, const bench::v1::Named& request,
                    bench::v1::Number* reply) const override {
    return stubs.bench->Guarded(context, request, reply);
  }
  Reader<bench::v1::Number> Start(const Stubs& stubs, grpc::ClientContext* context, const bench::v1::Named& request,
                                  grpc::CompletionQueue* queue) const override {
    return stubs.bench->AsyncGuarded(context, request, queue);
  }
  void Check(uint64_t call, const grpc::Status& status, const bench::v1::Number& reply) const override {
    if (guarded_ && IsForbidden(call)) {
      if (status.error_code() != grpc::StatusCode::PERMISSION_DENIED) Fail("a forbidden call was not refused");
      return;
    }
    Need(status);
    if (guarded_ && reply.value() != 0) Fail("a forbidden call reached the server");
  }

 private:
  static bool IsForbidden(uint64_t call) { return call % 100 == 0; }
  bool guarded_;
  std::string data_;
};

class HelloWork final : public Work<bench::v1::HelloRequest, bench::v1::HelloReply> {
 public:
  void Fill(uint64_t, bench::v1::HelloRequest* request) const override { request->set_name("world"); }
  grpc::Status Call(const Stubs& stubs, grpc::ClientContext* context, const bench::v1::HelloRequest& request,
                    bench::v1::HelloReply* reply) const override {
    return stubs.bench->SayHello(context, request, reply);
  }
  Reader<bench::v1::HelloReply> Start(const Stubs& stubs, grpc::ClientContext* context,
                                      const bench::v1::HelloRequest& request,
                                      grpc::CompletionQueue* queue) const override {
    return stubs.bench->AsyncSayHello(context, request, queue);
  }
};

class AverageWork final : public Work<bench::v1::Numbers, bench::v1::Mean> {
 public:
  explicit AverageWork(const Order& order) {
    uint32_t number = 1;
    for (size_t i = 0; i < order.request_bytes; ++i) {
      values_.push_back(int32_t(number >> 1));
      number = number * 1664525u + 1013904223u;
    }
  }
  void Fill(uint64_t, bench::v1::Numbers* request) const override {
    request->mutable_values()->Add(values_.begin(), values_.end());
  }
  grpc::Status Call(const Stubs& stubs, grpc::ClientContext* context, const bench::v1::Numbers& request,
                    bench::v1::Mean* reply) const override {
    return stubs.bench->Average(context, request, reply);
  }
  Reader<bench::v1::Mean> Start(const Stubs& stubs, grpc::ClientContext* context, const bench::v1::Numbers& request,
                                grpc::CompletionQueue* queue) const override {
    return stubs.bench->AsyncAverage(context, request, queue);
  }

 private:
  std::vector<int32_t> values_;
};

class NumbersWork final : public Work<bench::v1::Count, bench::v1::Numbers> {
 public:
  explicit NumbersWork(const Order& order) : count_(int(order.request_bytes)) {}
  void Fill(uint64_t, bench::v1::Count* request) const override { request->set_value(count_); }
  grpc::Status Call(const Stubs& stubs, grpc::ClientContext* context, const bench::v1::Count& request,
                    bench::v1::Numbers* reply) const override {
    return stubs.bench->GetRandNums(context, request, reply);
  }
  Reader<bench::v1::Numbers> Start(const Stubs& stubs, grpc::ClientContext* context, const bench::v1::Count& request,
                                   grpc::CompletionQueue* queue) const override {
    return stubs.bench->AsyncGetRandNums(context, request, queue);
  }

 private:
  int count_;
};

// A message of many members. It is filled once and encoded for every call; of the answer, which is decoded whole, the
// last member is looked at.
template <typename M>
class LargeWork final : public Work<M, M> {
 public:
  using Method = grpc::Status (large::v1::Large::Stub::*)(grpc::ClientContext*, const M&, M*);
  explicit LargeWork(Method method) : method_(method), last_(M::descriptor()->field(M::descriptor()->field_count() - 1)) {
    for (int member = 1; member <= M::descriptor()->field_count(); ++member) {
      request_.GetReflection()->SetInt32(&request_, M::descriptor()->FindFieldByNumber(member),
                                         member * 7919 % 100'000 + 1);
    }
  }
  void Fill(uint64_t, M*) const override {}
  grpc::Status Call(const Stubs& stubs, grpc::ClientContext* context, const M&, M* reply) const override {
    return (stubs.large.get()->*method_)(context, request_, reply);
  }
  Reader<M> Start(const Stubs&, grpc::ClientContext*, const M&, grpc::CompletionQueue*) const override {
    Fail("large messages are called one at a time");
  }
  void Check(uint64_t, const grpc::Status& status, const M& reply) const override {
    Need(status);
    if (Last(reply) != Last(request_)) Fail("another last member came back");
  }

 private:
  int32_t Last(const M& message) const { return message.GetReflection()->GetInt32(message, last_); }

  Method method_;
  const google::protobuf::FieldDescriptor* last_;
  M request_;
};

// Named calls are counted over all orders, so that the server's count has a meaning.
uint64_t calls_made = 0;

template <typename W>
std::vector<uint64_t> OneAtATime(const Stubs& stubs, const Order& order, const W& work) {
  const uint64_t end = NowNs() + order.millis * 1'000'000;
  std::vector<uint64_t> took;
  for (uint64_t began = NowNs(); began < end;) {
    const uint64_t call = calls_made++;
    grpc::ClientContext context;
    typename W::Request request;
    typename W::Reply reply;
    work.Fill(call, &request);
    work.Check(call, work.Call(stubs, &context, request, &reply), reply);
    const uint64_t now = NowNs();
    took.push_back(now - began);
    began = now;
  }
  return took;
}

template <typename W>
struct Pending {
  grpc::ClientContext context;
  typename W::Reply reply;
  grpc::Status status;
  uint64_t call = 0;
  uint64_t began = 0;
  Reader<typename W::Reply> reader;
};

template <typename W>
void Start(const Stubs& stubs, grpc::CompletionQueue* queue, const W& work) {
  auto* pending = new Pending<W>;
  pending->call = calls_made++;
  pending->began = NowNs();
  typename W::Request request;
  work.Fill(pending->call, &request);
  pending->reader = work.Start(stubs, &pending->context, request, queue);
  pending->reader->Finish(&pending->reply, &pending->status, pending);
}

template <typename W>
std::vector<uint64_t> ManyAtOnce(const Stubs& stubs, const Order& order, const W& work) {
  const uint64_t end = NowNs() + order.millis * 1'000'000;
  std::vector<uint64_t> took;
  grpc::CompletionQueue queue;
  for (size_t i = 0; i < order.outstanding; ++i) Start(stubs, &queue, work);
  size_t under_way = order.outstanding;
  void* tag = nullptr;
  bool ok = false;
  while (under_way > 0 && queue.Next(&tag, &ok)) {
    std::unique_ptr<Pending<W>> done(static_cast<Pending<W>*>(tag));
    work.Check(done->call, done->status, done->reply);
    const uint64_t now = NowNs();
    took.push_back(now - done->began);
    done.reset();
    if (now < end) {
      Start(stubs, &queue, work);
    } else {
      --under_way;
    }
  }
  return took;
}

template <typename W>
std::vector<uint64_t> CarryOut(const Stubs& stubs, const Order& order, const W& work) {
  return order.outstanding == 1 ? OneAtATime(stubs, order, work) : ManyAtOnce(stubs, order, work);
}

// The size of an order is the number of members.
std::vector<uint64_t> CarryOutLarge(const Stubs& stubs, const Order& order) {
  using large::v1::Large;
  switch (order.request_bytes) {
    case 128:
      return CarryOut(stubs, order, LargeWork<large::v1::LargeData128>(&Large::Stub::SendRcv128));
    case 256:
      return CarryOut(stubs, order, LargeWork<large::v1::LargeData256>(&Large::Stub::SendRcv256));
    case 512:
      return CarryOut(stubs, order, LargeWork<large::v1::LargeData512>(&Large::Stub::SendRcv512));
    case 1024:
      return CarryOut(stubs, order, LargeWork<large::v1::LargeData1024>(&Large::Stub::SendRcv1024));
    case 2048:
      return CarryOut(stubs, order, LargeWork<large::v1::LargeData2048>(&Large::Stub::SendRcv2048));
    default:
      Fail("more members than are worth compiling");
  }
}

std::vector<uint64_t> CarryOut(const Stubs& stubs, const Order& order, const std::string& work) {
  if (work == "bytes") return CarryOut(stubs, order, BytesWork(order));
  if (work == "open") return CarryOut(stubs, order, NamedWork(order, false));
  if (work == "guarded") return CarryOut(stubs, order, NamedWork(order, true));
  if (work == "hello") return CarryOut(stubs, order, HelloWork());
  if (work == "average") return CarryOut(stubs, order, AverageWork(order));
  if (work == "numbers") return CarryOut(stubs, order, NumbersWork(order));
  if (work == "large") return CarryOutLarge(stubs, order);
  Fail("no such work: " + work);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: grpc_client ADDRESS WORK\n");
    return 2;
  }
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  auto channel = grpc::CreateCustomChannel(argv[1], grpc::InsecureChannelCredentials(), arguments);
  const Stubs stubs{bench::v1::Bench::NewStub(channel), large::v1::Large::NewStub(channel)};
  peer::Obey([&](const Order& order) { return CarryOut(stubs, order, std::string(argv[2])); });
}
