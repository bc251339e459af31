module trunkline.test/search

go 1.25

require (
	github.com/bufbuild/protocompile v0.14.1
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.10
)
