// The exam's service by each API: handlers that block, reactors, and completion queues.
#pragma once

#include <stdexcept>

#include "common.h"
#include "interceptors.h"

namespace exam {

class BlockingExam final : public v1::Exam::Service {
    grpc::Status Echo(grpc::ServerContext *context, const Text *request, Text *response) override {
        answer_metadata(context);
        CHECK(context->peer().find(':') != std::string::npos);
        if (request->text() == "throw") throw std::runtime_error("as the exam wants it");
        while (request->text() == "wait" && !context->IsCancelled()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        *response = *request;
        return verdict(request->text());
    }
    grpc::Status Count(grpc::ServerContext *, const Number *request, grpc::ServerWriter<Number> *writer) override {
        for (int64_t at = 1; at <= request->value(); at++) {
            if (!writer->Write(number(at))) return grpc::Status::CANCELLED;
        }
        return grpc::Status::OK;
    }
    grpc::Status Sum(grpc::ServerContext *context, grpc::ServerReader<Number> *reader, Number *response) override {
        context->AddInitialMetadata("exam-initial", "sum");
        reader->SendInitialMetadata();
        Number next;
        int64_t sum = 0;
        while (reader->Read(&next)) sum += next.value();
        response->set_value(sum);
        return grpc::Status::OK;
    }
    grpc::Status Talk(grpc::ServerContext *, grpc::ServerReaderWriter<Text, Text> *stream) override {
        Text said;
        while (stream->Read(&said)) {
            if (said.text() == "enough") return grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "enough");
            stream->Write(said);
        }
        return grpc::Status::OK;
    }
};

class ReactingExam final : public v1::Exam::CallbackService {
    grpc::ServerUnaryReactor *Echo(grpc::CallbackServerContext *context, const Text *request, Text *response) override {
        struct Waiting : grpc::ServerUnaryReactor {
            void OnCancel() override { Finish(grpc::Status::CANCELLED); }
            void OnDone() override { delete this; }
        };
        answer_metadata(context);
        if (request->text() == "throw") throw std::runtime_error("as the exam wants it");
        if (request->text() == "wait") return new Waiting;
        *response = *request;
        auto *reactor = context->DefaultReactor();
        reactor->Finish(verdict(request->text()));
        return reactor;
    }
    grpc::ServerWriteReactor<Number> *Count(grpc::CallbackServerContext *, const Number *request) override {
        class Counting : public grpc::ServerWriteReactor<Number> {
          public:
            explicit Counting(int64_t last) : last_(last) { next(); }
            void OnWriteDone(bool ok) override {
                if (ok) return next();
                Finish(grpc::Status::CANCELLED);
            }
            void OnDone() override { delete this; }

          private:
            void next() {
                if (at_ == last_) return Finish(grpc::Status::OK);
                number_ = number(++at_);
                StartWrite(&number_);
            }
            int64_t at_ = 0, last_;
            Number number_;
        };
        return new Counting(request->value());
    }
    grpc::ServerReadReactor<Number> *Sum(grpc::CallbackServerContext *context, Number *response) override {
        class Summing : public grpc::ServerReadReactor<Number> {
          public:
            explicit Summing(Number *response) : response_(response) {
                StartSendInitialMetadata();
                StartRead(&number_);
            }
            void OnReadDone(bool ok) override {
                if (!ok) return Finish(grpc::Status::OK);
                response_->set_value(response_->value() + number_.value());
                StartRead(&number_);
            }
            void OnDone() override { delete this; }

          private:
            Number *response_;
            Number number_;
        };
        context->AddInitialMetadata("exam-initial", "sum");
        return new Summing(response);
    }
    grpc::ServerBidiReactor<Text, Text> *Talk(grpc::CallbackServerContext *) override {
        class Talking : public grpc::ServerBidiReactor<Text, Text> {
          public:
            Talking() { StartRead(&said_); }
            void OnReadDone(bool ok) override {
                if (!ok) return Finish(grpc::Status::OK);
                if (said_.text() == "enough") return Finish(grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "enough"));
                StartWrite(&said_);
            }
            void OnWriteDone(bool ok) override {
                if (ok) StartRead(&said_);
                if (!ok) Finish(grpc::Status::CANCELLED);
            }
            void OnDone() override { delete this; }

          private:
            Text said_;
        };
        return new Talking;
    }
};

// The same in a queue. An object of a class below is one call; it asks for the next when it has come.
class QueuedExam {
  public:
    v1::Exam::AsyncService service;

    void begin(grpc::ServerCompletionQueue *queue) {
        (new Echoing(this, queue))->ask();
        (new Counting(this, queue))->ask();
        (new Summing(this, queue))->ask();
        (new Talking(this, queue))->ask();
    }

  private:
    struct Call {
        Call(QueuedExam *exam, grpc::ServerCompletionQueue *queue) : exam(exam), queue(queue) {}
        virtual ~Call() = default;
        void *end() {
            return step([this](bool) { delete this; });
        }
        QueuedExam *exam;
        grpc::ServerCompletionQueue *queue;
        grpc::ServerContext context;
    };

    struct Echoing : Call {
        using Call::Call;
        void ask() {
            over_tag = step([this](bool) { over(); });
            context.AsyncNotifyWhenDone(over_tag);
            exam->service.RequestEcho(&context, &request, &responder, queue, queue, step([this](bool ok) { come(ok); }));
        }
        void come(bool ok) {
            // Of a call that never came there is no word of its end.
            if (!ok) {
                delete static_cast<Step *>(over_tag);
                return delete this;
            }
            (new Echoing(exam, queue))->ask();
            answer_metadata(&context);
            if (request.text() == "wait") return;
            grpc::Status status = verdict(request.text());
            void *tag = step([this](bool) { leave(); });
            if (status.ok()) responder.Finish(request, status, tag);
            if (!status.ok()) responder.FinishWithError(status, tag);
        }
        void over() {
            if (context.IsCancelled() && request.text() == "wait") {
                responder.FinishWithError(grpc::Status::CANCELLED, step([this](bool) { leave(); }));
            }
            leave();
        }
        void leave() {
            if (--left == 0) delete this;
        }
        int left = 2;
        void *over_tag = nullptr;
        Text request;
        grpc::ServerAsyncResponseWriter<Text> responder{&context};
    };

    struct Counting : Call {
        using Call::Call;
        void ask() {
            exam->service.RequestCount(&context, &request, &writer, queue, queue, step([this](bool ok) {
                if (!ok) return delete this;
                (new Counting(exam, queue))->ask();
                next(true);
            }));
        }
        void next(bool ok) {
            if (!ok) return writer.Finish(grpc::Status::CANCELLED, end());
            if (at == request.value()) return writer.Finish(grpc::Status::OK, end());
            writer.Write(number(++at), step([this](bool ok) { next(ok); }));
        }
        int64_t at = 0;
        Number request;
        grpc::ServerAsyncWriter<Number> writer{&context};
    };

    struct Summing : Call {
        using Call::Call;
        void ask() {
            exam->service.RequestSum(&context, &reader, queue, queue, step([this](bool ok) {
                if (!ok) return delete this;
                (new Summing(exam, queue))->ask();
                context.AddInitialMetadata("exam-initial", "sum");
                reader.SendInitialMetadata(step([this](bool) { read(); }));
            }));
        }
        void read() {
            reader.Read(&next, step([this](bool ok) {
                if (!ok) return reader.Finish(sum, grpc::Status::OK, end());
                sum.set_value(sum.value() + next.value());
                read();
            }));
        }
        Number next, sum;
        grpc::ServerAsyncReader<Number, Number> reader{&context};
    };

    struct Talking : Call {
        using Call::Call;
        void ask() {
            exam->service.RequestTalk(&context, &stream, queue, queue, step([this](bool ok) {
                if (!ok) return delete this;
                (new Talking(exam, queue))->ask();
                read();
            }));
        }
        void read() {
            stream.Read(&said, step([this](bool ok) {
                if (!ok) return stream.Finish(grpc::Status::OK, end());
                if (said.text() == "enough") {
                    return stream.Finish(grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "enough"), end());
                }
                stream.Write(said, step([this](bool ok) {
                    if (ok) return read();
                    stream.Finish(grpc::Status::CANCELLED, end());
                }));
            }));
        }
        Text said;
        grpc::ServerAsyncReaderWriter<Text, Text> stream{&context};
    };
};

// The exam served by one of the three, until it ends.
class Served {
  public:
    Served(const std::string &by, const std::string &address) {
        grpc::EnableDefaultHealthCheckService(true);
        grpc::reflection::InitProtoReflectionServerBuilderPlugin();
        grpc::ServerBuilder builder;
        int port = 0;
        builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
        if (by == "sync") builder.RegisterService(&blocking_);
        if (by == "callback") builder.RegisterService(&reacting_);
        if (by == "async") {
            builder.RegisterService(&queued_.service);
            queue_ = builder.AddCompletionQueue();
        }
        std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
        factories.push_back(std::make_unique<ServerFactory>());
        factory_ = static_cast<ServerFactory *>(factories.front().get());
        builder.experimental().SetInterceptorCreators(std::move(factories));
        server_ = builder.BuildAndStart();
        CHECK(server_ != nullptr && port != 0);
        CHECK(server_->GetHealthCheckService() != nullptr);
        if (queue_ == nullptr) return;
        queued_.begin(queue_.get());
        thread_ = std::thread([this] {
            void *tag;
            bool ok;
            while (queue_->Next(&tag, &ok)) take(tag, ok);
        });
    }

    ~Served() {
        std::thread waits([this] { server_->Wait(); });
        server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
        waits.join();
        // Every call has come to its end.
        auto deadline = std::chrono::system_clock::now() + std::chrono::minutes(1);
        while (factory_->over() != factory_->begun() && std::chrono::system_clock::now() < deadline) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        CHECK(factory_->begun() > 0 && factory_->over() == factory_->begun());
        if (queue_ == nullptr) return;
        queue_->Shutdown();
        thread_.join();
    }

  private:
    BlockingExam blocking_;
    ReactingExam reacting_;
    QueuedExam queued_;
    ServerFactory *factory_ = nullptr;
    std::unique_ptr<grpc::ServerCompletionQueue> queue_;
    std::unique_ptr<grpc::Server> server_;
    std::thread thread_;
};

} // namespace exam
