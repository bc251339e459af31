// What programs in C++ use of gRPC's core: names of channel arguments, states and versions. Its functions are not here.
#ifndef TRUNKLINE_GRPC_GRPC_H
#define TRUNKLINE_GRPC_GRPC_H

#include <grpc/compression.h>
#include <grpc/status.h>
#include <grpc/support/time.h>

typedef enum {
    GRPC_CHANNEL_IDLE,
    GRPC_CHANNEL_CONNECTING,
    GRPC_CHANNEL_READY,
    GRPC_CHANNEL_TRANSIENT_FAILURE,
    GRPC_CHANNEL_SHUTDOWN
} grpc_connectivity_state;

#define GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH "grpc.max_receive_message_length"
#define GRPC_ARG_MAX_SEND_MESSAGE_LENGTH "grpc.max_send_message_length"
#define GRPC_ARG_KEEPALIVE_TIME_MS "grpc.keepalive_time_ms"
#define GRPC_ARG_KEEPALIVE_TIMEOUT_MS "grpc.keepalive_timeout_ms"
#define GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS "grpc.keepalive_permit_without_calls"
#define GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA "grpc.http2.max_pings_without_data"
#define GRPC_ARG_MAX_CONCURRENT_STREAMS "grpc.max_concurrent_streams"
#define GRPC_ARG_ALLOW_REUSEPORT "grpc.so_reuseport"
#define GRPC_ARG_PRIMARY_USER_AGENT_STRING "grpc.primary_user_agent"
#define GRPC_ARG_ENABLE_RETRIES "grpc.enable_retries"
#define GRPC_ARG_SERVICE_CONFIG "grpc.service_config"
#define GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION "grpc.service_config_disable_resolution"
#define GRPC_ARG_LB_POLICY_NAME "grpc.lb_policy_name"

static inline void grpc_init(void) {}
static inline void grpc_shutdown(void) {}

#endif
