// Where older programs look for it.
#include <grpcpp/support/client_interceptor.h>
