// What the classes of gRPC's surface share: values of trunkline.h as gRPC's, and back.
#ifndef TRUNKLINE_GRPCPP_IMPL_LIBRARY_H
#define TRUNKLINE_GRPCPP_IMPL_LIBRARY_H

#include <grpcpp/impl/serialization_traits.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>
#include <grpcpp/support/string_ref.h>
#include <trunkline.hpp>

#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

// Of gcc, and of clang.
#if defined(__SANITIZE_THREAD__)
#define TRUNKLINE_GRPCPP_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TRUNKLINE_GRPCPP_TSAN 1
#endif
#endif
#ifdef TRUNKLINE_GRPCPP_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace grpc::internal {

using trunkline::detail::MetadataHandle;
using trunkline::detail::slice;
using SentMetadata = std::multimap<std::string, std::string>;

inline tl_slice raw(const Slice &from) { return {from.begin(), from.size()}; }

// What a program sets and nothing here reads is said once, on standard error.
inline void SayIgnored(const std::string &what, const char *instead) {
    static std::mutex mutex;
    static auto *said = new std::set<std::string>;
    std::lock_guard<std::mutex> lock(mutex);
    if (said->insert(what).second) std::fprintf(stderr, "trunkline: %s is not read: %s\n", what.c_str(), instead);
}

// Takes what the library wrote.
inline Status TakeStatus(tl_status handle) {
    if (handle.id == 0) return Status();
    auto text = [](tl_slice of) { return std::string(trunkline::detail::view(of)); };
    Status out(static_cast<StatusCode>(tl_status_code(handle)), text(tl_status_message(handle)),
               text(tl_status_details(handle)));
    out.set_execution(tl_status_execution(handle));
    tl_status_release(handle);
    return out;
}

// Pairs that were received, where the library has them.
class ReceivedMetadata {
  public:
    void Take(tl_metadata handle) {
        pairs_.clear();
        handle_ = MetadataHandle(handle);
        tl_slice key, value;
        for (size_t at = 0, count = handle.id == 0 ? 0 : tl_metadata_count(handle); at < count; at++) {
            if (tl_metadata_at(handle, at, &key, &value, nullptr) == TL_OK) pairs_.emplace(Text(key), Text(value));
        }
    }
    const std::multimap<string_ref, string_ref> &pairs() const { return pairs_; }
    std::multimap<string_ref, string_ref> *mutable_pairs() { return &pairs_; }

  private:
    static string_ref Text(tl_slice of) { return string_ref(reinterpret_cast<const char *>(of.data), of.len); }

    MetadataHandle handle_;
    std::multimap<string_ref, string_ref> pairs_;
};

// Pairs to be sent. None: no handle.
inline Status WriteMetadata(const SentMetadata &pairs, MetadataHandle &out) {
    if (pairs.empty()) return Status();
    tl_status status;
    if (tl_metadata_new(out.out(), &status) != TL_OK) return TakeStatus(status);
    for (const auto &[key, value] : pairs) {
        if (tl_metadata_add(out.get(), slice(key), slice(value), &status) != TL_OK) return TakeStatus(status);
    }
    return Status();
}

template <class Message> Status Encode(const Message &message, Slice *out) {
    ByteBuffer buffer;
    bool own = false;
    Status status = SerializationTraits<Message>::Serialize(message, &buffer, &own);
    if (status.ok()) *out = buffer.Single();
    return status;
}

// Reads a received message, and releases it.
template <class Message> Status Decode(tl_message handle, Message *out) {
    std::shared_ptr<void> owner(nullptr, [handle](void *) { tl_message_release(handle); });
    tl_slice bytes = tl_message_bytes(handle);
    ByteBuffer buffer(Slice(std::move(owner), bytes.data, bytes.len));
    return SerializationTraits<Message>::Deserialize(&buffer, out);
}

// Something that was begun in a queue: the tag of its event points here.
class Operation {
  public:
    virtual ~Operation() = default;
    // Ends this, too.
    virtual void Arrived(tl_event &event) = 0;

  private:
    friend class UnderWay;
    // Its neighbours among what is under way in its queue, if that one is kept account of.
    Operation *before_ = nullptr, *after_ = nullptr;
    uint64_t queue_ = 0;
};

// The library hands a tag from the thread that begins an operation to the one that takes its event. The thread sanitizer
// does not see into the library, and is told.
inline void TellGiven([[maybe_unused]] void *operation) {
#ifdef TRUNKLINE_GRPCPP_TSAN
    __tsan_release(operation);
#endif
}
inline void TellTaken([[maybe_unused]] void *operation) {
#ifdef TRUNKLINE_GRPCPP_TSAN
    __tsan_acquire(operation);
#endif
}

// What is under way in the program's queues: one that goes before it has ended takes along what it holds. The queue of
// the event loop stays, and is not among them.
class UnderWay {
  public:
    // From now on, or not any more: what is under way then is let go of. Nobody takes the queue's events meanwhile.
    static void Keep(tl_queue queue) {
        Shard &shard = Of(queue.id);
        std::lock_guard<std::mutex> lock(shard.mutex);
        shard.first.emplace(queue.id, nullptr);
    }
    static void LetGo(tl_queue queue) {
        Shard &shard = Of(queue.id);
        std::unique_lock<std::mutex> lock(shard.mutex);
        auto found = shard.first.find(queue.id);
        Operation *next = found == shard.first.end() ? nullptr : found->second;
        if (found != shard.first.end()) shard.first.erase(found);
        for (Operation *each = next; each != nullptr; each = each->after_) each->queue_ = 0;
        // What they hold may begin or end something else.
        lock.unlock();
        while (next != nullptr) delete std::exchange(next, next->after_);
    }

    static void Enter(tl_queue queue, Operation *operation) {
        Shard &shard = Of(queue.id);
        std::lock_guard<std::mutex> lock(shard.mutex);
        auto found = shard.first.find(queue.id);
        if (found == shard.first.end()) return;
        operation->queue_ = queue.id;
        operation->after_ = found->second;
        if (found->second != nullptr) found->second->before_ = operation;
        found->second = operation;
    }
    static void Leave(Operation *operation) {
        if (operation->queue_ == 0) return;
        Shard &shard = Of(operation->queue_);
        std::lock_guard<std::mutex> lock(shard.mutex);
        if (operation->after_ != nullptr) operation->after_->before_ = operation->before_;
        if (operation->before_ != nullptr) {
            operation->before_->after_ = operation->after_;
        } else if (auto found = shard.first.find(operation->queue_); found != shard.first.end()) {
            found->second = operation->after_;
        }
        operation->queue_ = 0;
    }

  private:
    // By queue, so that queues of different threads seldom wait for each other here.
    struct Shard {
        std::mutex mutex;
        std::unordered_map<uint64_t, Operation *> first;
    };

    static Shard &Of(uint64_t queue) {
        // Operations may end until the process does.
        static Shard *shards = new Shard[16];
        return shards[(queue ^ queue >> 32) % 16];
    }
};

template <class Act> class ActOperation final : public Operation {
  public:
    explicit ActOperation(Act act) : act_(std::move(act)) {}
    void Arrived(tl_event &event) override {
        Act act = std::move(act_);
        delete this;
        act(event);
    }

  private:
    Act act_;
};

// The tag of an operation in `queue` that ends in `act(tl_event &)`.
template <class Act> uint64_t TagOf(tl_queue queue, Act act) {
    Operation *operation = new ActOperation<Act>(std::move(act));
    UnderWay::Enter(queue, operation);
    TellGiven(operation);
    return reinterpret_cast<uint64_t>(operation);
}

// An operation could not be begun: no event comes.
inline void Forget(uint64_t tag) {
    auto *operation = reinterpret_cast<Operation *>(tag);
    UnderWay::Leave(operation);
    delete operation;
}

inline void Dispatch(tl_event &event) {
    if (event.tag != 0) {
        auto *operation = reinterpret_cast<Operation *>(event.tag);
        TellTaken(operation);
        UnderWay::Leave(operation);
        operation->Arrived(event);
    }
    tl_event_clear(&event);
}

} // namespace grpc::internal

#endif
