// Where older programs look for it.
#include <grpcpp/support/status_code_enum.h>
