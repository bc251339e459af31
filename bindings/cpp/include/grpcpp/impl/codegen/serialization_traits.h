// Where older programs look for it.
#include <grpcpp/impl/serialization_traits.h>
