// The client of the split: a load generator that costs little, since it shares a core with what it measures, while the
// paper's has a machine of its own. It speaks gRPC over HTTP/2 itself: the request is made once and sent again and again
// from where it lies, answers are counted and not kept. Whoever serves gets and gives the same bytes as from gRPC's own
// client. Calls are made so many at once on one thread, each as soon as one is answered.
//
//   split_client ADDRESS WIRE
//
// An order's size says what is called: 0 the application's method, 1 one that it has not, which whoever carries the calls
// refuses. Answers to orders: CALLS ELAPSED_NS P50_NS P75_NS P90_NS P99_NS.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "business.h"
#include "orders.h"

namespace {

enum Type : uint8_t { kData, kHeaders, kPriority, kReset, kSettings, kPush, kPing, kGoAway, kWindowUpdate, kContinuation };
constexpr uint8_t kEndStream = 1, kAck = 1, kEndHeaders = 4, kPadded = 8;
constexpr uint32_t kWindow = 0x7fffffff;
// What it takes in one frame, and what it hands to the kernel at once.
constexpr uint32_t kFrameBytes = 1 << 20;
constexpr size_t kBurstBytes = 1 << 18;

uint32_t Read32(const char* at) {
  uint32_t out;
  std::memcpy(&out, at, 4);
  return ntohl(out);
}

void Append32(std::string* to, uint32_t value) {
  value = htonl(value);
  to->append(reinterpret_cast<const char*>(&value), 4);
}

void AppendFrameHead(std::string* to, size_t length, uint8_t type, uint8_t flags, uint32_t stream) {
  const char head[] = {char(length >> 16), char(length >> 8), char(length), char(type), char(flags)};
  to->append(head, 5);
  Append32(to, stream);
}

std::string WindowUpdate(uint32_t bytes) {
  std::string out;
  AppendFrameHead(&out, 4, kWindowUpdate, 0, 0);
  Append32(&out, bytes);
  return out;
}

// The head of a request, in HPACK without tables of its own.
std::string Head(const std::string& path) {
  const auto text = [](std::string of) { return char(of.size()) + of; };
  std::string out = "\x83\x86";  // POST, http
  out += '\x04' + text(path) + '\x01' + text("split");
  out += std::string("\x0f\x10", 2) + text("application/grpc");
  out += std::string(1, '\0') + text("te") + text("trailers");
  return out;
}

struct Call {
  uint64_t began = 0;
  // Bytes of the request that have gone, and may; bytes of the answer that have come.
  size_t sent = 0, came = 0;
  int64_t window = 0;
  std::string trailers;
};

// How a call ended.
struct Ended {
  uint64_t took = 0;
  bool has_answer = false, is_refused = false;
};

class Connection {
 public:
  Connection(const std::string& address, const std::string& head, const std::string& body) : head_(head), body_(body) {
    const size_t colon = address.rfind(':');
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(uint16_t(std::stoi(address.substr(colon + 1))));
    inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) peer::Fail("nobody listens at " + address);
    const int on = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    std::string hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    AppendFrameHead(&hello, 18, kSettings, 0, 0);
    for (auto [name, value] : {std::pair<uint16_t, uint32_t>{1, 0}, {4, kWindow}, {5, kFrameBytes}}) {
      hello += {char(name >> 8), char(name)};
      Append32(&hello, value);
    }
    Say(hello + WindowUpdate(kWindow - 65535));
  }
  Connection(const Connection&) = delete;
  ~Connection() { close(socket_); }

  int socket() const { return socket_; }
  size_t under_way() const { return calls_.size(); }
  // It takes no more calls.
  bool is_leaving() const { return is_leaving_; }
  bool wants_to_write() const { return !out_.empty(); }

  void Start() {
    Call& call = calls_[next_];
    call.began = peer::NowNs();
    call.window = initial_window_;
    std::string head;
    AppendFrameHead(&head, head_.size(), kHeaders, kEndHeaders, next_);
    Say(head + head_);
    next_ += 2;
  }

  // Sends what may be sent and the kernel takes.
  void Write() {
    while (true) {
      while (out_bytes_ < kBurstBytes && NextFrame()) {
      }
      if (out_.empty()) return;
      iovec pieces[64];
      const size_t count = std::min<size_t>(out_.size(), 64);
      std::transform(out_.begin(), out_.begin() + count, pieces, [](const Piece& piece) {
        return iovec{const_cast<char*>(piece.data()), piece.size()};
      });
      msghdr message{};
      message.msg_iov = pieces;
      message.msg_iovlen = count;
      const ssize_t sent = sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (sent < 0) peer::Fail("the connection is gone");
      Sent(size_t(sent));
    }
  }

  // Takes what has come.
  void Read(std::vector<Ended>* ended) {
    // Of an answer only its length is of interest: the kernel drops it, and what is read with a head is little.
    const bool is_answer = left_ > 0 && type() == kData;
    static char bytes[4096];
    const ssize_t came = recv(socket_, bytes, is_answer ? left_ : sizeof bytes, MSG_DONTWAIT | (is_answer ? MSG_TRUNC : 0));
    if (came < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (came <= 0 && is_leaving_ && calls_.empty()) return;
    if (came <= 0) peer::Fail("the connection is gone");
    if (is_answer) {
      left_ -= uint32_t(came);
      if (left_ == 0) Frame(ended);
      return;
    }
    for (const char *at = bytes, *end = bytes + came; at < end;) {
      if (head_in_.size() < 9) {
        const size_t part = std::min<size_t>(9 - head_in_.size(), end - at);
        head_in_.append(at, part);
        at += part;
        if (head_in_.size() < 9) break;
        left_ = Read32(head_in_.data()) >> 8;
        if (left_ > 0) continue;
      } else {
        const size_t part = std::min<size_t>(left_, end - at);
        if (type() != kData) payload_.append(at, part);
        at += part;
        left_ -= part;
      }
      if (left_ == 0) Frame(ended);
    }
  }

 private:
  // A part of what is to be sent: words of its own, or a part of the request.
  struct Piece {
    std::string own;
    const char* lent = nullptr;
    size_t length = 0, gone = 0;
    const char* data() const { return (lent != nullptr ? lent : own.data()) + gone; }
    size_t size() const { return (lent != nullptr ? length : own.size()) - gone; }
  };

  void Say(std::string words) {
    out_bytes_ += words.size();
    out_.push_back({std::move(words), nullptr, 0, 0});
  }

  // The next part of a request, of each call in turn; false if none may be sent.
  bool NextFrame() {
    if (window_ <= 0) return false;
    auto found = calls_.upper_bound(last_);
    for (size_t look = 0; look < calls_.size(); ++look, ++found) {
      if (found == calls_.end()) found = calls_.begin();
      auto& [stream, call] = *found;
      const int64_t may = std::min({window_, call.window, int64_t(frame_bytes_), int64_t(body_.size() - call.sent)});
      if (may <= 0) continue;
      last_ = stream;
      const bool is_last = call.sent + size_t(may) == body_.size();
      std::string head;
      AppendFrameHead(&head, size_t(may), kData, is_last ? kEndStream : 0, stream);
      Say(std::move(head));
      out_.push_back({std::string(), body_.data() + call.sent, size_t(may), 0});
      out_bytes_ += size_t(may);
      call.sent += size_t(may);
      call.window -= may;
      window_ -= may;
      return true;
    }
    return false;
  }

  void Sent(size_t bytes) {
    out_bytes_ -= bytes;
    while (bytes > 0) {
      Piece& first = out_.front();
      const size_t part = std::min(bytes, first.size());
      first.gone += part;
      bytes -= part;
      if (first.size() == 0) out_.pop_front();
    }
  }

  Type type() const { return Type(uint8_t(head_in_[3])); }

  // A frame is whole.
  void Frame(std::vector<Ended>* ended) {
    const uint8_t flags = uint8_t(head_in_[4]);
    const size_t length = Read32(head_in_.data()) >> 8;
    const uint32_t stream = Read32(head_in_.data() + 5) & kWindow;
    const auto call = calls_.find(stream);
    switch (type()) {
      case kData:
        if ((flags & kPadded) != 0) peer::Fail("padding");
        unsaid_ += length;
        if (unsaid_ > kWindow / 2) Say(WindowUpdate(std::exchange(unsaid_, 0)));
        if (call != calls_.end()) call->second.came += length;
        break;
      case kHeaders:
      case kContinuation:
        if (call != calls_.end()) call->second.trailers = payload_;
        break;
      case kSettings:
        if ((flags & kAck) == 0) Settings();
        break;
      case kPing:
        if ((flags & kAck) == 0) {
          std::string pong;
          AppendFrameHead(&pong, 8, kPing, kAck, 0);
          Say(pong + payload_);
        }
        break;
      case kWindowUpdate:
        if (stream == 0) window_ += Read32(payload_.data());
        if (call != calls_.end()) call->second.window += Read32(payload_.data());
        break;
      case kGoAway:
        is_leaving_ = true;
        break;
      case kReset:
        break;
      default:
        break;
    }
    const bool is_over = type() == kReset || ((type() == kData || type() == kHeaders) && (flags & kEndStream) != 0);
    if (is_over && call != calls_.end()) {
      ended->push_back(EndOf(call->second));
      calls_.erase(call);
    }
    head_in_.clear();
    payload_.clear();
  }

  Ended EndOf(const Call& call) const {
    // UNIMPLEMENTED, as it is and in HPACK's code.
    const bool is_refused = call.trailers.find("\x02" "12") != std::string::npos ||
                            call.trailers.find("\x82\x08\xbf") != std::string::npos;
    // Of the business the answer is the message that was sent; fields of one are as long in any order.
    return {peer::NowNs() - call.began, call.came == body_.size(), call.came == 0 && is_refused};
  }

  void Settings() {
    for (size_t at = 0; at + 6 <= payload_.size(); at += 6) {
      const uint32_t value = Read32(payload_.data() + at + 2);
      if (payload_[at + 1] == 5) frame_bytes_ = value;
      if (payload_[at + 1] != 4) continue;
      for (auto& [stream, call] : calls_) call.window += int64_t(value) - initial_window_;
      initial_window_ = value;
    }
    std::string ack;
    AppendFrameHead(&ack, 0, kSettings, kAck, 0);
    Say(ack);
  }

  const std::string &head_, &body_;
  int socket_ = -1;
  bool is_leaving_ = false;
  std::map<uint32_t, Call> calls_;
  uint32_t next_ = 1, last_ = 0;
  int64_t window_ = 65535, initial_window_ = 65535, frame_bytes_ = 16384;
  std::deque<Piece> out_;
  size_t out_bytes_ = 0;
  // The frame that comes.
  std::string head_in_, payload_;
  uint32_t left_ = 0, unsaid_ = 0;
};

// What is called, and by which connections.
class Callee {
 public:
  Callee(std::string address, const std::string& path, const std::string& message)
      : address_(std::move(address)), head_(Head(path)) {
    body_ += '\0';
    Append32(&body_, uint32_t(message.size()));
    body_ += message;
  }

  void Start() {
    if (connections_.empty() || connections_.back()->is_leaving()) {
      connections_.push_back(std::make_unique<Connection>(address_, head_, body_));
    }
    connections_.back()->Start();
  }

  // Calls that have ended, one at least.
  std::vector<Ended> Next() {
    std::vector<Ended> ended;
    while (ended.empty()) {
      std::vector<pollfd> watched;
      for (auto& connection : connections_) {
        connection->Write();
        watched.push_back({connection->socket(), short(POLLIN | (connection->wants_to_write() ? POLLOUT : 0)), 0});
      }
      if (poll(watched.data(), watched.size(), 60'000) == 0) peer::Fail("nothing comes");
      for (size_t at = 0; at < watched.size(); ++at) {
        if ((watched[at].revents & ~POLLOUT) != 0) connections_[at]->Read(&ended);
      }
      const auto is_over = [](auto& connection) { return connection->is_leaving() && connection->under_way() == 0; };
      connections_.erase(std::remove_if(connections_.begin(), connections_.end(), is_over), connections_.end());
    }
    return ended;
  }

 private:
  std::string address_, head_, body_;
  std::vector<std::unique_ptr<Connection>> connections_;
};

// Until the server is there: a daemon answers before its application does.
void WaitForServer(Callee* callee) {
  for (int look = 0; look < 1000; ++look) {
    callee->Start();
    if (callee->Next().front().has_answer) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  peer::Fail("nobody answers");
}

std::vector<uint64_t> CarryOut(Callee* callee, bool refused, const peer::Order& order) {
  const uint64_t end = peer::NowNs() + order.millis * 1'000'000;
  std::vector<uint64_t> took;
  size_t under_way = order.outstanding;
  for (size_t i = 0; i < order.outstanding; ++i) callee->Start();
  while (under_way > 0) {
    for (const Ended& call : callee->Next()) {
      if (refused ? !call.is_refused : !call.has_answer) peer::Fail("a call ended in another way");
      took.push_back(call.took);
      if (peer::NowNs() < end) {
        callee->Start();
      } else {
        --under_way;
      }
    }
  }
  return took;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  Callee business(argv[1], "/echo.Echo/Call", business::ReadFile(argv[2])), nobody(argv[1], "/echo.Echo/Refused", "");
  WaitForServer(&business);
  peer::Order order;
  while (std::cin >> order.millis >> order.request_bytes >> order.outstanding) {
    const bool refused = order.request_bytes == 1;
    const uint64_t began = peer::NowNs();
    std::vector<uint64_t> took = CarryOut(refused ? &nobody : &business, refused, order);
    const uint64_t elapsed = peer::NowNs() - began;
    std::sort(took.begin(), took.end());
    std::cout << took.size() << ' ' << elapsed;
    for (double share : {0.5, 0.75, 0.9, 0.99}) std::cout << ' ' << peer::Percentile(took, share);
    std::cout << std::endl;
  }
}
