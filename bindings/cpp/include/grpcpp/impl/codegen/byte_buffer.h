// Where older programs look for it.
#include <grpcpp/support/byte_buffer.h>
