// Where older programs look for it.
#include <grpcpp/client_context.h>
