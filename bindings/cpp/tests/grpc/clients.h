// What each API of clients is examined with. Every function makes calls to one server, and ends the program where an
// answer is wrong.
#pragma once

#include "common.h"

namespace exam {

// A stub of each service, and by which API it is called.
class Examiner {
  public:
    explicit Examiner(const std::shared_ptr<grpc::Channel> &channel)
        : stub_(v1::Exam::NewStub(channel)), absent_(v1::Absent::NewStub(channel)) {}
    virtual ~Examiner() = default;

    void examine() {
        answers();
        metadata();
        ends();
        streams();
    }

    // For those who examine more than the calls.
    grpc::Status answer(grpc::ClientContext &context, const std::string &said, std::string *heard) {
        Text response;
        grpc::Status status = Echo(context, text(said), response);
        *heard = response.text();
        return status;
    }
    void talk_twice() {
        grpc::ClientContext context;
        size_t heard = 0;
        CHECK(Talk(context, {"one", "two"}, heard).ok() && heard == 2);
    }
    void sum_ten() {
        grpc::ClientContext context;
        Number sum;
        CHECK(Sum(context, 10, sum).ok() && sum.value() == 55);
    }

  protected:
    // The four patterns, waiting for the end.
    virtual grpc::Status Echo(grpc::ClientContext &context, const Text &request, Text &response) = 0;
    virtual grpc::Status Absent(grpc::ClientContext &context, const Text &request, Text &response) = 0;
    virtual grpc::Status Count(grpc::ClientContext &context, int64_t last, std::vector<int64_t> &counted) = 0;
    virtual grpc::Status Sum(grpc::ClientContext &context, int64_t last, Number &sum) = 0;
    // Says each and waits for it to come back.
    virtual grpc::Status Talk(grpc::ClientContext &context, const std::vector<std::string> &said, size_t &heard) = 0;

    std::unique_ptr<v1::Exam::Stub> stub_;
    std::unique_ptr<v1::Absent::Stub> absent_;

  private:
    grpc::Status echo(const std::string &said, std::string *heard = nullptr) {
        grpc::ClientContext context;
        Text response;
        grpc::Status status = Echo(context, text(said), response);
        if (heard != nullptr) *heard = response.text();
        return status;
    }

    void answers() {
        for (const std::string &said : {std::string("hello"), std::string(), std::string(1 << 20, 'x')}) {
            std::string heard;
            CHECK(echo(said, &heard).ok());
            CHECK(heard == said);
        }
        grpc::Status status = echo("fail 9");
        CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
        CHECK(status.error_message() == "as it was asked" && status.error_details() == "details\x01");
        grpc::ClientContext context;
        Text response;
        // A server of gRPC says that it has no such service, a daemon that nobody serves it.
        grpc::StatusCode code = Absent(context, text("hello"), response).error_code();
        CHECK(code == grpc::StatusCode::UNIMPLEMENTED || code == grpc::StatusCode::UNAVAILABLE);
        // Who waits until somebody serves it hears that it is too late.
        grpc::ClientContext patient;
        patient.set_wait_for_ready(true);
        patient.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
        code = Absent(patient, text("hello"), response).error_code();
        CHECK(code == grpc::StatusCode::UNIMPLEMENTED || code == grpc::StatusCode::DEADLINE_EXCEEDED);
    }

    static bool has(const std::multimap<grpc::string_ref, grpc::string_ref> &pairs, const char *key,
                    const std::string &value) {
        auto found = pairs.find(key);
        return found != pairs.end() && found->second == grpc::string_ref(value);
    }

    void metadata() {
        grpc::ClientContext context;
        context.AddMetadata("exam", "given");
        context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
        Text response;
        CHECK(Echo(context, text("hello"), response).ok());
        CHECK(has(context.GetServerInitialMetadata(), "exam-initial", "given"));
        CHECK(has(context.GetServerTrailingMetadata(), "exam-trailing-bin", std::string("given") + '\0'));
        CHECK(!context.peer().empty());
        grpc::ClientContext failing;
        failing.AddMetadata("exam", "failing");
        CHECK(Echo(failing, text("fail 5"), response).error_code() == grpc::StatusCode::NOT_FOUND);
        CHECK(has(failing.GetServerTrailingMetadata(), "exam-trailing-bin", std::string("failing") + '\0'));
    }

    // Deadlines and cancellation: before the call, and while it waits.
    void ends() {
        Text response;
        grpc::ClientContext late;
        late.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
        CHECK(Echo(late, text("wait"), response).error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
        grpc::ClientContext past;
        past.set_deadline(std::chrono::system_clock::now() - std::chrono::seconds(1));
        CHECK(Echo(past, text("hello"), response).error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
        grpc::ClientContext before;
        before.TryCancel();
        CHECK(Echo(before, text("hello"), response).error_code() == grpc::StatusCode::CANCELLED);
        grpc::ClientContext meanwhile;
        std::thread cancels([&meanwhile] {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            meanwhile.TryCancel();
        });
        CHECK(Echo(meanwhile, text("wait"), response).error_code() == grpc::StatusCode::CANCELLED);
        cancels.join();
    }

    void streams() {
        std::vector<int64_t> counted;
        grpc::ClientContext counting;
        CHECK(Count(counting, 1000, counted).ok());
        CHECK(counted.size() == 1000 && counted.front() == 1 && counted.back() == 1000);
        grpc::ClientContext nothing;
        counted.clear();
        CHECK(Count(nothing, 0, counted).ok() && counted.empty());
        Number sum;
        grpc::ClientContext summing;
        CHECK(Sum(summing, 1000, sum).ok() && sum.value() == 500500);
        CHECK(has(summing.GetServerInitialMetadata(), "exam-initial", "sum"));
        size_t heard = 0;
        grpc::ClientContext talking;
        CHECK(Talk(talking, {"one", "two", "three"}, heard).ok() && heard == 3);
        grpc::ClientContext interrupted;
        heard = 0;
        grpc::Status status = Talk(interrupted, {"one", "enough", "three"}, heard);
        CHECK(status.error_code() == grpc::StatusCode::OUT_OF_RANGE && status.error_message() == "enough");
        CHECK(heard == 1);
        grpc::ClientContext silent;
        CHECK(Talk(silent, {}, heard).ok());
    }
};

class BlockingExaminer final : public Examiner {
  public:
    using Examiner::Examiner;

  private:
    grpc::Status Echo(grpc::ClientContext &context, const Text &request, Text &response) override {
        return stub_->Echo(&context, request, &response);
    }
    grpc::Status Absent(grpc::ClientContext &context, const Text &request, Text &response) override {
        return absent_->Echo(&context, request, &response);
    }
    grpc::Status Count(grpc::ClientContext &context, int64_t last, std::vector<int64_t> &counted) override {
        std::unique_ptr<grpc::ClientReader<Number>> reader(stub_->Count(&context, number(last)));
        Number next;
        while (reader->Read(&next)) counted.push_back(next.value());
        return reader->Finish();
    }
    grpc::Status Sum(grpc::ClientContext &context, int64_t last, Number &sum) override {
        std::unique_ptr<grpc::ClientWriter<Number>> writer(stub_->Sum(&context, &sum));
        for (int64_t at = 1; at <= last; at++) CHECK(writer->Write(number(at)));
        CHECK(writer->WritesDone());
        return writer->Finish();
    }
    grpc::Status Talk(grpc::ClientContext &context, const std::vector<std::string> &said, size_t &heard) override {
        std::unique_ptr<grpc::ClientReaderWriter<Text, Text>> stream(stub_->Talk(&context));
        for (const std::string &one : said) {
            Text back;
            if (!stream->Write(text(one)) || !stream->Read(&back)) break;
            CHECK(back.text() == one);
            heard++;
        }
        stream->WritesDone();
        return stream->Finish();
    }
};

class ReactingExaminer final : public Examiner {
  public:
    using Examiner::Examiner;

  private:
    // A reactor that is waited for.
    template <class Reactor> struct Awaited : Reactor {
        void OnDone(const grpc::Status &status) override {
            status_ = status;
            done_.open();
        }
        grpc::Status await() {
            done_.wait();
            return status_;
        }
        grpc::Status status_;
        Gate done_;
    };

    grpc::Status Echo(grpc::ClientContext &context, const Text &request, Text &response) override {
        if (request.text().size() % 2 == 0) {
            Awaited<grpc::ClientUnaryReactor> reactor;
            stub_->async()->Echo(&context, &request, &response, &reactor);
            reactor.StartCall();
            return reactor.await();
        }
        return Function([&](auto done) { stub_->async()->Echo(&context, &request, &response, std::move(done)); });
    }
    grpc::Status Absent(grpc::ClientContext &context, const Text &request, Text &response) override {
        return Function([&](auto done) { absent_->async()->Echo(&context, &request, &response, std::move(done)); });
    }
    template <class Call> static grpc::Status Function(Call call) {
        grpc::Status out;
        Gate done;
        call(std::function<void(grpc::Status)>([&](grpc::Status status) {
            out = std::move(status);
            done.open();
        }));
        done.wait();
        return out;
    }

    grpc::Status Count(grpc::ClientContext &context, int64_t last, std::vector<int64_t> &counted) override {
        struct Reader : Awaited<grpc::ClientReadReactor<Number>> {
            void OnReadDone(bool ok) override {
                if (!ok) return;
                counted->push_back(next.value());
                StartRead(&next);
            }
            std::vector<int64_t> *counted = nullptr;
            Number next;
        };
        Reader reader;
        reader.counted = &counted;
        Number request = number(last);
        stub_->async()->Count(&context, &request, &reader);
        reader.StartRead(&reader.next);
        reader.StartCall();
        return reader.await();
    }
    grpc::Status Sum(grpc::ClientContext &context, int64_t last, Number &sum) override {
        struct Writer : Awaited<grpc::ClientWriteReactor<Number>> {
            void next() {
                number_.set_value(++at);
                if (at == last) return StartWriteLast(&number_, grpc::WriteOptions());
                StartWrite(&number_);
            }
            void OnReadInitialMetadataDone(bool ok) override { has_headers = ok; }
            void OnWriteDone(bool ok) override {
                if (ok && at < last) next();
            }
            int64_t at = 0, last = 0;
            std::atomic<bool> has_headers{false};
            Number number_;
        };
        Writer writer;
        writer.last = last;
        stub_->async()->Sum(&context, &sum, &writer);
        // The end waits for what comes from elsewhere.
        writer.AddHold();
        writer.StartCall();
        std::thread elsewhere([&writer] {
            writer.next();
            writer.RemoveHold();
        });
        grpc::Status status = writer.await();
        elsewhere.join();
        CHECK(writer.has_headers);
        return status;
    }
    grpc::Status Talk(grpc::ClientContext &context, const std::vector<std::string> &said, size_t &heard) override {
        struct Talker : Awaited<grpc::ClientBidiReactor<Text, Text>> {
            void next() {
                if (at == said->size()) return StartWritesDone();
                awaited = 2;
                say = text((*said)[at++]);
                StartWrite(&say);
            }
            // One write at a time: the next begins when this one is done and answered, in whatever order that is told.
            void came() {
                if (--awaited == 0) next();
            }
            void OnWriteDone(bool ok) override {
                if (ok) came();
            }
            void OnReadDone(bool ok) override {
                if (!ok) return;
                CHECK(back.text() == say.text());
                ++*heard;
                StartRead(&back);
                came();
            }
            std::atomic<int> awaited{0};
            const std::vector<std::string> *said = nullptr;
            size_t *heard = nullptr, at = 0;
            Text say, back;
        };
        Talker talker;
        talker.said = &said;
        talker.heard = &heard;
        stub_->async()->Talk(&context, &talker);
        talker.StartRead(&talker.back);
        talker.next();
        talker.StartCall();
        return talker.await();
    }
};

class QueuedExaminer final : public Examiner {
  public:
    using Examiner::Examiner;

  private:
    // A queue that is emptied when the call has ended.
    class Queue {
      public:
        ~Queue() {
            queue_.Shutdown();
            void *tag;
            bool ok;
            while (queue_.Next(&tag, &ok)) CHECK(false);
        }
        // Waits for what comes next, which must be this.
        bool wait(int wanted) {
            void *tag = nullptr;
            bool ok = false;
            if (wanted % 2 == 0) {
                CHECK(queue_.Next(&tag, &ok));
            } else {
                auto deadline = std::chrono::system_clock::now() + std::chrono::minutes(5);
                CHECK(queue_.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT);
            }
            CHECK(tag == name(wanted));
            return ok;
        }
        static void *name(int number) { return reinterpret_cast<void *>(static_cast<intptr_t>(number)); }
        grpc::CompletionQueue *operator&() { return &queue_; }

      private:
        grpc::CompletionQueue queue_;
    };

    grpc::Status Echo(grpc::ClientContext &context, const Text &request, Text &response) override {
        Queue queue;
        grpc::Status status;
        std::unique_ptr<grpc::ClientAsyncResponseReader<Text>> call;
        if (request.text().size() % 2 == 0) {
            call = stub_->AsyncEcho(&context, request, &queue);
        } else {
            call = stub_->PrepareAsyncEcho(&context, request, &queue);
            call->StartCall();
        }
        call->Finish(&response, &status, Queue::name(1));
        CHECK(queue.wait(1));
        return status;
    }
    grpc::Status Absent(grpc::ClientContext &context, const Text &request, Text &response) override {
        Queue queue;
        grpc::Status status;
        auto call = absent_->AsyncEcho(&context, request, &queue);
        call->Finish(&response, &status, Queue::name(1));
        CHECK(queue.wait(1));
        return status;
    }
    grpc::Status Count(grpc::ClientContext &context, int64_t last, std::vector<int64_t> &counted) override {
        Queue queue;
        grpc::Status status;
        auto reader = stub_->AsyncCount(&context, number(last), &queue, Queue::name(1));
        CHECK(queue.wait(1));
        Number next;
        for (reader->Read(&next, Queue::name(2)); queue.wait(2); reader->Read(&next, Queue::name(2))) {
            counted.push_back(next.value());
        }
        reader->Finish(&status, Queue::name(3));
        CHECK(queue.wait(3));
        return status;
    }
    grpc::Status Sum(grpc::ClientContext &context, int64_t last, Number &sum) override {
        Queue queue;
        grpc::Status status;
        auto writer = stub_->PrepareAsyncSum(&context, &sum, &queue);
        writer->StartCall(Queue::name(1));
        CHECK(queue.wait(1));
        writer->ReadInitialMetadata(Queue::name(5));
        CHECK(queue.wait(5));
        for (int64_t at = 1; at <= last; at++) {
            writer->Write(number(at), Queue::name(2));
            CHECK(queue.wait(2));
        }
        writer->WritesDone(Queue::name(3));
        CHECK(queue.wait(3));
        writer->Finish(&status, Queue::name(4));
        CHECK(queue.wait(4));
        return status;
    }
    grpc::Status Talk(grpc::ClientContext &context, const std::vector<std::string> &said, size_t &heard) override {
        Queue queue;
        grpc::Status status;
        auto stream = stub_->AsyncTalk(&context, &queue, Queue::name(1));
        CHECK(queue.wait(1));
        for (const std::string &one : said) {
            Text back;
            stream->Write(text(one), Queue::name(2));
            if (!queue.wait(2)) break;
            stream->Read(&back, Queue::name(3));
            if (!queue.wait(3)) break;
            CHECK(back.text() == one);
            heard++;
        }
        stream->WritesDone(Queue::name(4));
        queue.wait(4);
        stream->Finish(&status, Queue::name(5));
        CHECK(queue.wait(5));
        return status;
    }
};

// An alarm comes at its time, and at once when it is cancelled.
inline void alarms() {
    grpc::CompletionQueue queue;
    void *tag = nullptr;
    bool ok = false;
    auto soon = std::chrono::system_clock::now() + std::chrono::milliseconds(20);
    CHECK(queue.AsyncNext(&tag, &ok, std::chrono::system_clock::now()) == grpc::CompletionQueue::TIMEOUT);
    grpc::Alarm rings(&queue, soon, &queue);
    CHECK(queue.Next(&tag, &ok) && ok && tag == &queue && std::chrono::system_clock::now() >= soon);
    grpc::Alarm cancelled(&queue, gpr_inf_future(GPR_CLOCK_REALTIME), &soon);
    cancelled.Cancel();
    CHECK(queue.Next(&tag, &ok) && !ok && tag == &soon);
    queue.Shutdown();
    CHECK(!queue.Next(&tag, &ok));
}

#ifdef TRUNKLINE_HPP
// A queue that goes while operations are under way in it takes along what they hold: calls end, and no handle stays.
// gRPC's own forbids it.
inline void abandoned(const std::string &target) {
    auto stub = v1::Exam::NewStub(grpc::CreateChannel(target, grpc::InsecureChannelCredentials()));
    v1::Text hello, back;
    hello.set_text("wait");
    uint64_t before = tl_handles_open();
    for (int round = 0; round < 10; round++) {
        grpc::ClientContext waits, talks;
        grpc::Status status;
        v1::Text answer, word;
        auto queue = std::make_unique<grpc::CompletionQueue>();
        auto call = stub->AsyncEcho(&waits, hello, queue.get());
        call->Finish(&answer, &status, &answer);
        auto stream = stub->AsyncTalk(&talks, queue.get(), &stub);
        void *tag = nullptr;
        bool ok = false;
        CHECK(queue->Next(&tag, &ok) && ok && tag == &stub);
        stream->Read(&word, &word);
        queue.reset();
    }
    // Whose thread has a handle in its hand lets go of it in its own time, be it of these calls or of those before.
    for (int looks = 0; looks < 1000 && tl_handles_open() > before; looks++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CHECK(tl_handles_open() <= before);
}
#endif

} // namespace exam
