// Where older programs look for it.
#include <grpcpp/server_context.h>
