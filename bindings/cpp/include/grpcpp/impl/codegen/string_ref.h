// Where older programs look for it.
#include <grpcpp/support/string_ref.h>
