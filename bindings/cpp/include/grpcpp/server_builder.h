// grpc::ServerBuilder. What is the daemon's does not compile, or is said on standard error.
#ifndef TRUNKLINE_GRPCPP_SERVER_BUILDER_H
#define TRUNKLINE_GRPCPP_SERVER_BUILDER_H

#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>

namespace grpc {

class ServerBuilder {
  public:
    enum SyncServerOption { NUM_CQS, MIN_POLLERS, MAX_POLLERS, CQ_TIMEOUT_MSEC };

    ServerBuilder() = default;
    virtual ~ServerBuilder() = default;

    ServerBuilder &RegisterService(Service *service) {
        services_.push_back(service);
        return *this;
    }
    ServerBuilder &RegisterService(const std::string &host, Service *service) {
        internal::SayIgnored("the host " + host + " of a service", "services are told apart by their names");
        return RegisterService(service);
    }

    // The daemon has the ports, so none is opened here: programs of this host call `localhost:PORT` with any port, those
    // of others one of the daemon's (`daemon.listen`, `gateway.listen`). `selected_port` gets the port that was named.
    ServerBuilder &AddListeningPort(const std::string &address, std::shared_ptr<ServerCredentials>,
                                    int *selected_port = nullptr) {
        internal::SayIgnored("the address " + address,
                             "the daemon has the ports (daemon.listen); here localhost with any port leads to it");
        size_t colon = address.rfind(':');
        int port = colon == std::string::npos ? 0 : std::atoi(address.c_str() + colon + 1);
        // 0 would say that it has failed.
        if (selected_port != nullptr) *selected_port = port > 0 ? port : kSomePort;
        return *this;
    }

    std::unique_ptr<ServerCompletionQueue> AddCompletionQueue(bool /*is_frequently_polled*/ = true) {
        return std::make_unique<ServerCompletionQueue>();
    }

    ServerBuilder &SetResourceQuota(const ResourceQuota &quota) {
        if (quota.threads_max() > 0) threads_max_ = static_cast<size_t>(quota.threads_max());
        return *this;
    }
    // Threads come and go with the calls; there is nothing to choose.
    ServerBuilder &SetSyncServerOption(SyncServerOption, int) {
        internal::SayIgnored("SetSyncServerOption", "threads come and go with the calls (ResourceQuota has a limit)");
        return *this;
    }
    ServerBuilder &SetMaxReceiveMessageSize(int) { return Limit("SetMaxReceiveMessageSize"); }
    ServerBuilder &SetMaxMessageSize(int) { return Limit("SetMaxMessageSize"); }
    ServerBuilder &SetMaxSendMessageSize(int) { return Limit("SetMaxSendMessageSize"); }
    ServerBuilder &SetDefaultCompressionAlgorithm(grpc_compression_algorithm) { return Limit("default compression"); }
    ServerBuilder &SetDefaultCompressionLevel(grpc_compression_level) { return Limit("default compression"); }
    template <class T> ServerBuilder &AddChannelArgument(const std::string &key, const T &) {
        return Limit("channel argument " + key);
    }
    ServerBuilder &SetOption(std::unique_ptr<ServerBuilderOption> option) {
        ChannelArguments arguments;
        option->UpdateArguments(&arguments);
        std::vector<std::unique_ptr<ServerBuilderPlugin>> plugins;
        option->UpdatePlugins(&plugins);
        for (auto &plugin : plugins) plugins_.push_back(std::move(plugin));
        return *this;
    }
    template <class Unused = void> ServerBuilder &RegisterAsyncGenericService(Unused *) { return Refuse<Unused>(); }
    template <class Unused = void> ServerBuilder &RegisterCallbackGenericService(Unused *) { return Refuse<Unused>(); }

    // What gRPC calls experimental.
    class experimental_type {
      public:
        explicit experimental_type(ServerBuilder *builder) : builder_(builder) {}
        // Makes the interceptors of each call.
        void SetInterceptorCreators(internal::ServerInterceptorFactories creators) {
            builder_->interceptors_ = std::move(creators);
        }

      private:
        ServerBuilder *builder_;
    };
    experimental_type experimental() { return experimental_type(this); }

    // Returns when calls arrive, or after five seconds without a daemon, for which the server then goes on waiting; null if
    // the daemon refuses a service, and why is said on standard error.
    virtual std::unique_ptr<Server> BuildAndStart() {
        for (const auto &plugin : plugins_) plugin->UpdateServerBuilder(this);
        std::unique_ptr<Server> server(new Server(services_, threads_max_, std::move(interceptors_)));
        Status status = server->Begin();
        if (status.ok()) return server;
        std::fprintf(stderr, "trunkline: the server cannot start: %s\n", status.error_message().c_str());
        return nullptr;
    }

  private:
    static constexpr int kSomePort = 50051;
    // Blocking handlers at a time, unless a ResourceQuota says otherwise; more calls wait.
    static constexpr size_t kThreadsMax = 512;

    ServerBuilder &Limit(const std::string &what) {
        internal::SayIgnored(what, "the daemon's configuration says it ([limits], [gateway])");
        return *this;
    }
    template <class T> ServerBuilder &Refuse() {
        static_assert(internal::kNever<T>, "not in Trunkline: a server names its services; use trunkline::Service of "
                                           "trunkline.hpp for methods without generated code");
        return *this;
    }

    std::vector<Service *> services_;
    size_t threads_max_ = kThreadsMax;
    internal::ServerInterceptorFactories interceptors_;
    std::vector<std::unique_ptr<ServerBuilderPlugin>> plugins_;
};

} // namespace grpc

#endif
