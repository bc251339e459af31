// grpc::Status: how a call ended.
#ifndef TRUNKLINE_GRPCPP_SUPPORT_STATUS_H
#define TRUNKLINE_GRPCPP_SUPPORT_STATUS_H

#include <grpcpp/support/config.h>
#include <grpcpp/support/status_code_enum.h>

#include <cstdint>
#include <string>
#include <utility>

namespace grpc {

class [[nodiscard]] Status {
  public:
    Status() = default;
    Status(StatusCode code, const std::string &error_message) : code_(code), message_(error_message) {}
    Status(StatusCode code, const std::string &error_message, const std::string &error_details)
        : code_(code), message_(error_message), details_(error_details) {}

    static const Status &OK;
    static const Status &CANCELLED;

    StatusCode error_code() const { return code_; }
    std::string error_message() const { return message_; }
    // A serialized google.rpc.Status, or nothing.
    std::string error_details() const { return details_; }
    bool ok() const { return code_ == StatusCode::OK; }
    void IgnoreError() const {}

    // Beyond gRPC: whether the handler may have run. TL_EXECUTED, TL_NOT_EXECUTED (calling again is sound) or
    // TL_EXECUTION_UNKNOWN of trunkline.h.
    uint32_t execution() const { return execution_; }
    void set_execution(uint32_t execution) { execution_ = execution; }

  private:
    StatusCode code_ = StatusCode::OK;
    uint32_t execution_ = 0;
    std::string message_, details_;
};

namespace internal {
// Made when first asked for, so that initialisers of other files may use them.
inline const Status &StatusOk() {
    static const Status status;
    return status;
}
inline const Status &StatusCancelled() {
    static const Status status(StatusCode::CANCELLED, "");
    return status;
}
} // namespace internal

inline const Status &Status::OK = internal::StatusOk();
inline const Status &Status::CANCELLED = internal::StatusCancelled();

} // namespace grpc

#endif
