// What interceptors are examined with, of clients by each API and of servers.
//
// A server of the exam is intercepted whatever serves: a call with `exam-intercept: OK?` in its metadata gets back in
// `exam-seen-bin` what its interceptor saw until its end, and a response or status that the interceptor has changed.
#pragma once

#include <grpcpp/support/client_interceptor.h>
#include <grpcpp/support/server_interceptor.h>

#include <sstream>

#include "clients.h"

namespace exam {

namespace hooks {

using Hook = grpc::experimental::InterceptionHookPoints;
using Methods = grpc::experimental::InterceptorBatchMethods;

inline const char *name(Hook hook) {
    static const char *const names[] = {"headers", "message",         "sent",             "status",          "close",
                                        "give-headers", "give-message", "give-status",    "got-headers",     "got-message",
                                        "got-status",   "got-close",    "cancel"};
    return names[static_cast<int>(hook)];
}

// The points of a batch, in the order of their numbers.
inline std::string of(Methods *methods) {
    std::ostringstream out;
    for (int at = 0; at < static_cast<int>(Hook::NUM_INTERCEPTION_HOOKS); at++) {
        if (methods->QueryInterceptionHookPoint(static_cast<Hook>(at))) out << name(static_cast<Hook>(at)) << ' ';
    }
    return out.str();
}

// A message that is sent, read from its bytes.
inline Text sent(Methods *methods) {
    grpc::ByteBuffer copy(*methods->GetSerializedSendMessage());
    Text out;
    CHECK((grpc::SerializationTraits<Text>::Deserialize(&copy, &out).ok()));
    return out;
}

inline void send_instead(Methods *methods, const Text &message) {
    bool own = false;
    grpc::ByteBuffer bytes;
    CHECK((grpc::SerializationTraits<Text>::Serialize(message, &bytes, &own).ok()));
    methods->GetSerializedSendMessage()->Swap(&bytes);
}

} // namespace hooks

// What the interceptors of a channel have seen.
class Seen {
  public:
    void add(const std::string &text) {
        std::lock_guard<std::mutex> lock(mutex_);
        seen_ += text;
    }
    std::string take() {
        std::lock_guard<std::mutex> lock(mutex_);
        return std::exchange(seen_, std::string());
    }

  private:
    std::mutex mutex_;
    std::string seen_;
};

// A factory of interceptors that each do `act`.
class Factory final : public grpc::experimental::ClientInterceptorFactoryInterface {
  public:
    using Act = std::function<void(hooks::Methods *, grpc::experimental::ClientRpcInfo *)>;
    explicit Factory(Act act) : act_(std::move(act)) {}
    grpc::experimental::Interceptor *CreateClientInterceptor(grpc::experimental::ClientRpcInfo *info) override {
        struct Acting : grpc::experimental::Interceptor {
            Acting(const Act *act, grpc::experimental::ClientRpcInfo *info) : act(act), info(info) {}
            void Intercept(hooks::Methods *methods) override { (*act)(methods, info); }
            const Act *act;
            grpc::experimental::ClientRpcInfo *info;
        };
        return new Acting(&act_, info);
    }

  private:
    Act act_;
};

template <class By> class InterceptedExaminer {
  public:
    explicit InterceptedExaminer(std::string target) : target_(std::move(target)) {}

    void examine() {
        recorded();
        changed();
        hijacked();
        elsewhere();
    }

  private:
    using Hook = hooks::Hook;
    using Methods = hooks::Methods;
    using Info = grpc::experimental::ClientRpcInfo;

    By with(std::vector<Factory::Act> acts) {
        std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> factories;
        for (Factory::Act &act : acts) factories.push_back(std::make_unique<Factory>(std::move(act)));
        return By(grpc::experimental::CreateCustomChannelWithInterceptors(
            target_, grpc::InsecureChannelCredentials(), grpc::ChannelArguments(), std::move(factories)));
    }

    static Factory::Act recorder(Seen *seen, const std::string &prefix = "") {
        return [seen, prefix](Methods *methods, Info *info) {
            CHECK(info->client_context() != nullptr && info->channel() != nullptr);
            std::string all = hooks::of(methods);
            if (!all.empty()) seen->add(prefix + all);
            methods->Proceed();
        };
    }

    // Without the end of sending, which gRPC does not tell in completion queues.
    static std::string known(std::string seen) {
        for (size_t at = seen.find("sent "); at != std::string::npos; at = seen.find("sent ")) seen.erase(at, 5);
        return seen;
    }

    // What is seen of each pattern, and in which order.
    void recorded() {
        Seen seen;
        By one = with({recorder(&seen)});
        grpc::ClientContext context;
        std::string heard;
        CHECK(one.answer(context, "hello", &heard).ok() && heard == "hello");
        CHECK(known(seen.take()) == "headers message close got-headers got-message got-status ");
        grpc::ClientContext failing;
        CHECK(one.answer(failing, "fail 5", &heard).error_code() == grpc::StatusCode::NOT_FOUND);
        CHECK(seen.take().find("got-status ") != std::string::npos);
        one.talk_twice();
        std::string talked = seen.take();
        for (const char *part : {"headers ", "message ", "got-headers ", "got-message ", "close ", "got-status "}) {
            CHECK(talked.find(part) != std::string::npos);
        }
        CHECK(talked.rfind("headers ", 0) == 0);
        one.sum_ten();
        CHECK(seen.take().find("got-message got-status ") != std::string::npos);
        // Two: the first is called first, and behind the call last.
        By two = with({recorder(&seen, "1:"), recorder(&seen, "2:")});
        grpc::ClientContext again;
        CHECK(two.answer(again, "hello", &heard).ok());
        std::string both = seen.take();
        CHECK(both.rfind("1:headers message close 2:headers message close 2:", 0) == 0);
        CHECK(both.rfind("1:") > both.rfind("2:"));
        grpc::ClientContext cancelled;
        std::thread cancels([&cancelled] {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            cancelled.TryCancel();
        });
        CHECK(one.answer(cancelled, "wait", &heard).error_code() == grpc::StatusCode::CANCELLED);
        cancels.join();
        CHECK(seen.take().find("cancel ") != std::string::npos);
    }

    // Metadata, messages and the status are what the interceptor makes of them; the server's does the same.
    void changed() {
        By changing = with({[](Methods *methods, Info *info) {
            CHECK(info->type() == Info::Type::UNARY);
            CHECK(std::string(info->method()) == "/exam.v1.Exam/Echo");
            if (methods->QueryInterceptionHookPoint(Hook::PRE_SEND_INITIAL_METADATA)) {
                methods->GetSendInitialMetadata()->emplace("exam-intercept", "yes");
                methods->GetSendInitialMetadata()->emplace("exam", "given");
            }
            if (methods->QueryInterceptionHookPoint(Hook::PRE_SEND_MESSAGE)) {
                hooks::send_instead(methods, text(hooks::sent(methods).text() + " there"));
            }
            if (methods->QueryInterceptionHookPoint(Hook::POST_SEND_MESSAGE)) CHECK(methods->GetSendMessageStatus());
            if (methods->QueryInterceptionHookPoint(Hook::POST_RECV_INITIAL_METADATA)) {
                CHECK(methods->GetRecvInitialMetadata()->count("exam-initial") == 1);
            }
            if (methods->QueryInterceptionHookPoint(Hook::POST_RECV_MESSAGE)) {
                auto *message = static_cast<Text *>(methods->GetRecvMessage());
                if (message != nullptr) message->set_text(message->text() + " seen");
            }
            if (methods->QueryInterceptionHookPoint(Hook::POST_RECV_STATUS)) {
                CHECK(methods->GetRecvTrailingMetadata()->count("exam-trailing-bin") == 1);
                auto *status = methods->GetRecvStatus();
                if (status->error_code() == grpc::StatusCode::ABORTED) {
                    *status = grpc::Status(grpc::StatusCode::DATA_LOSS, status->error_message());
                }
            }
            methods->Proceed();
        }});
        grpc::ClientContext context;
        std::string heard;
        CHECK(changing.answer(context, "hello", &heard).ok());
        CHECK(heard == "hello there answered seen");
        grpc::ClientContext failing;
        grpc::Status status = changing.answer(failing, "refuse", &heard);
        CHECK(status.error_code() == grpc::StatusCode::DATA_LOSS && status.error_message() == "refused");
    }

    // An interceptor answers itself: none behind it sees the call, and no server.
    void hijacked() {
        Seen seen;
        auto hijacks = [](Methods *methods, Info *) {
            if (methods->QueryInterceptionHookPoint(Hook::PRE_SEND_INITIAL_METADATA)) return methods->Hijack();
            if (methods->QueryInterceptionHookPoint(Hook::PRE_RECV_INITIAL_METADATA)) {
                methods->GetRecvInitialMetadata()->emplace("made", "up");
            }
            if (methods->QueryInterceptionHookPoint(Hook::PRE_RECV_MESSAGE)) {
                static_cast<Text *>(methods->GetRecvMessage())->set_text("made up");
            }
            if (methods->QueryInterceptionHookPoint(Hook::PRE_RECV_STATUS)) *methods->GetRecvStatus() = grpc::Status::OK;
            methods->Proceed();
        };
        By made = with({recorder(&seen, "1:"), hijacks, recorder(&seen, "3:")});
        grpc::ClientContext context;
        std::string heard;
        CHECK(made.answer(context, "fail 9", &heard).ok() && heard == "made up");
        CHECK(context.GetServerInitialMetadata().count("made") == 1);
        std::string all = seen.take();
        CHECK(all.find("3:") == std::string::npos && all.find("got-status ") != std::string::npos);
        // One that ends the call without a response, by a status.
        By fails = with({[](Methods *methods, Info *) {
            if (methods->QueryInterceptionHookPoint(Hook::PRE_SEND_INITIAL_METADATA)) return methods->Hijack();
            if (methods->QueryInterceptionHookPoint(Hook::PRE_RECV_MESSAGE)) methods->FailHijackedRecvMessage();
            if (methods->QueryInterceptionHookPoint(Hook::PRE_RECV_STATUS)) {
                *methods->GetRecvStatus() = grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "not today");
            }
            methods->Proceed();
        }});
        grpc::ClientContext refused;
        CHECK(fails.answer(refused, "hello", &heard).error_code() == grpc::StatusCode::PERMISSION_DENIED);
    }

    // An interceptor proceeds from a thread of its own, with a call of its own that only those behind it see.
    void elsewhere() {
        Seen seen;
        std::vector<std::thread> threads;
        std::mutex mutex;
        auto hijacks = [&](Methods *methods, Info *info) {
            if (!methods->QueryInterceptionHookPoint(Hook::PRE_SEND_INITIAL_METADATA)) {
                if (methods->QueryInterceptionHookPoint(Hook::PRE_RECV_MESSAGE)) {
                    static_cast<Text *>(methods->GetRecvMessage())->set_text(heard_elsewhere_);
                }
                if (methods->QueryInterceptionHookPoint(Hook::PRE_RECV_STATUS)) {
                    *methods->GetRecvStatus() = grpc::Status::OK;
                }
                return methods->Proceed();
            }
            std::shared_ptr<grpc::ChannelInterface> rest = methods->GetInterceptedChannel();
            CHECK(info->channel() != nullptr);
            std::lock_guard<std::mutex> lock(mutex);
            threads.emplace_back([this, methods, rest] {
                grpc::ClientContext context;
                Text response;
                CHECK(v1::Exam::NewStub(rest)->Echo(&context, text("aside"), &response).ok());
                heard_elsewhere_ = response.text();
                methods->Hijack();
            });
        };
        By aside = with({recorder(&seen, "1:"), hijacks, recorder(&seen, "3:")});
        grpc::ClientContext context;
        std::string heard;
        CHECK(aside.answer(context, "hello", &heard).ok() && heard == "aside");
        for (std::thread &thread : threads) thread.join();
        std::string all = seen.take();
        CHECK(all.find("3:got-status ") != std::string::npos || all.find("got-status 1:") != std::string::npos);
    }

    std::string target_, heard_elsewhere_;
};

// The interceptor of the exam's server.
class ServerFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
  public:
    grpc::experimental::Interceptor *CreateServerInterceptor(grpc::experimental::ServerRpcInfo *info) override {
        return new Watching(this, info);
    }
    // Calls that have begun, and that are over.
    int begun() const { return begun_; }
    int over() const { return over_; }

  private:
    using Hook = hooks::Hook;

    class Watching final : public grpc::experimental::Interceptor {
      public:
        Watching(ServerFactory *factory, grpc::experimental::ServerRpcInfo *info) : factory_(factory), info_(info) {}
        void Intercept(hooks::Methods *methods) override {
            if (methods->QueryInterceptionHookPoint(Hook::POST_RECV_INITIAL_METADATA)) {
                factory_->begun_++;
                changes_ = methods->GetRecvInitialMetadata()->count("exam-intercept") == 1;
                CHECK(std::string(info_->method()).rfind("/exam.v1.", 0) == 0);
            }
            if (methods->QueryInterceptionHookPoint(Hook::POST_RECV_CLOSE)) factory_->over_++;
            if (changes_) change(methods);
            methods->Proceed();
        }

      private:
        void change(hooks::Methods *methods) {
            if (methods->QueryInterceptionHookPoint(Hook::POST_RECV_MESSAGE) && methods->GetRecvMessage() != nullptr) {
                refuses_ = static_cast<Text *>(methods->GetRecvMessage())->text() == "refuse there";
            }
            if (methods->QueryInterceptionHookPoint(Hook::PRE_SEND_INITIAL_METADATA)) {
                methods->GetSendInitialMetadata()->emplace("exam-server", "intercepted");
            }
            if (methods->QueryInterceptionHookPoint(Hook::PRE_SEND_MESSAGE)) {
                hooks::send_instead(methods, text(hooks::sent(methods).text() + " answered"));
            }
            if (refuses_ && methods->QueryInterceptionHookPoint(Hook::PRE_SEND_STATUS)) {
                CHECK(methods->GetSendStatus().ok());
                methods->ModifySendStatus(grpc::Status(grpc::StatusCode::ABORTED, "refused"));
            }
        }

        ServerFactory *factory_;
        grpc::experimental::ServerRpcInfo *info_;
        bool changes_ = false, refuses_ = false;
    };

    std::atomic<int> begun_{0}, over_{0};
};

} // namespace exam
