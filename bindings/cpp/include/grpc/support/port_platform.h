// What gRPC's sources begin with. There is nothing to adapt.
#ifndef TRUNKLINE_GRPC_SUPPORT_PORT_PLATFORM_H
#define TRUNKLINE_GRPC_SUPPORT_PORT_PLATFORM_H

#include <stddef.h>
#include <stdint.h>

#endif
