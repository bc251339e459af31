// Streams that block: those of clients and, below, those of servers.
#ifndef TRUNKLINE_GRPCPP_SUPPORT_SYNC_STREAM_H
#define TRUNKLINE_GRPCPP_SUPPORT_SYNC_STREAM_H

#include <grpcpp/impl/client_sync.h>
#include <grpcpp/impl/server_sync.h>

#endif
