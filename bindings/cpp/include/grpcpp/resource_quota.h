// grpc::ResourceQuota: of it, how many threads a server's blocking handlers may have.
#ifndef TRUNKLINE_GRPCPP_RESOURCE_QUOTA_H
#define TRUNKLINE_GRPCPP_RESOURCE_QUOTA_H

#include <grpcpp/security/credentials.h>

#include <cstddef>
#include <string>

namespace grpc {

class ResourceQuota final {
  public:
    ResourceQuota() = default;
    explicit ResourceQuota(const std::string &) {}
    ResourceQuota &SetMaxThreads(int threads) {
        threads_max_ = threads;
        return *this;
    }
    template <class Unused = void> ResourceQuota &Resize(size_t) {
        static_assert(internal::kNever<Unused>, "not in Trunkline: memory of calls is the daemon's ([limits])");
        return *this;
    }
    int threads_max() const { return threads_max_; }

  private:
    int threads_max_ = 0;
};

} // namespace grpc

#endif
