// gRPC C++'s headers bring Abseil's mutex along, and programs use it without saying so. Where the machine has Abseil, so
// do these; who uses it links it (`absl_synchronization`), as with gRPC.
#ifndef TRUNKLINE_GRPCPP_IMPL_SYNC_H
#define TRUNKLINE_GRPCPP_IMPL_SYNC_H

#if __has_include(<absl/synchronization/mutex.h>)
#include <absl/synchronization/mutex.h>
#endif

#endif
