// Where older programs look for it.
#include <grpcpp/support/server_interceptor.h>
