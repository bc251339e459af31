// Where older programs look for it.
#include <grpcpp/support/interceptor.h>
