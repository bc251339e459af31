// Health checks are answered by the daemon, for every service of an attached program: SERVING while it is attached.
#ifndef TRUNKLINE_GRPCPP_HEALTH_CHECK_SERVICE_INTERFACE_H
#define TRUNKLINE_GRPCPP_HEALTH_CHECK_SERVICE_INTERFACE_H

#include <grpcpp/security/credentials.h>

namespace grpc {

// The daemon's setting is `grpc_services.health`.
class HealthCheckServiceInterface {
  public:
    template <class Unused = void> void SetServingStatus(bool) { Refuse<Unused>(); }
    template <class Name> void SetServingStatus(const Name &, bool) { Refuse<Name>(); }
    template <class Unused = void> void Shutdown() { Refuse<Unused>(); }

  private:
    template <class T> void Refuse() {
        static_assert(internal::kNever<T>, "not in Trunkline: the daemon says SERVING while the service is attached; "
                                           "Server::Shutdown makes it NOT_SERVING");
    }
};

namespace internal {
inline bool &AnswersHealth() {
    static bool answers = false;
    return answers;
}
} // namespace internal

// It is so in any case; with this, `Server::GetHealthCheckService` gives an object.
inline void EnableDefaultHealthCheckService(bool enable) { internal::AnswersHealth() = enable; }
inline bool DefaultHealthCheckServiceEnabled() { return internal::AnswersHealth(); }

} // namespace grpc

#endif
