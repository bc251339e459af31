// Where older programs look for it.
#include <grpcpp/completion_queue.h>
