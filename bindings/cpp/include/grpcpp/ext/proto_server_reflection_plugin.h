// Reflection is the daemon's: it answers for all that is served, with the descriptors it has been given.
#ifndef TRUNKLINE_GRPCPP_EXT_PROTO_SERVER_REFLECTION_PLUGIN_H
#define TRUNKLINE_GRPCPP_EXT_PROTO_SERVER_REFLECTION_PLUGIN_H

#include <grpcpp/impl/library.h>

namespace grpc::reflection {

// The daemon lists this program's services already; their types it knows from `gateway.schemas`, or from programs that
// bring a schema. This says so.
inline void InitProtoReflectionServerBuilderPlugin() {
    internal::SayIgnored("the reflection plugin", "the daemon answers reflection; gateway.schemas names it the types");
}

} // namespace grpc::reflection

#endif
