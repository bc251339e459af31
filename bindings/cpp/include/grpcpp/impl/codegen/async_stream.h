// Where older programs look for it.
#include <grpcpp/support/async_stream.h>
