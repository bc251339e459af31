// Interceptors of gRPC C++ are experimental and not here.
#error "not in Trunkline: interceptors; use policies of the daemon (docs/policy.md), which also see calls of other programs"
