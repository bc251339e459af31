// Where older programs look for it.
#include <grpc/support/atm.h>
