// Where older programs look for it.
#include <grpcpp/impl/service_type.h>
