// Where older programs look for it.
#include <grpcpp/support/sync_stream.h>
